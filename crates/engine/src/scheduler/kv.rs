//! Who holds which KV page, and which texts are already in the cache. Pure: the memory itself is the backend's.
//!
//! ```text
//!   look      prefix  ● ● ● ●            the image, written once, read by all prompts of the look
//!                     │ │ │ │
//!   prompt a  ●●●● + own ■ ■             a page is free when its last holder released it
//!   prompt b  ●●●● + own ▣ ■ ■           ▣ shared too: a full page of the same text behind the same image
//! ```
//!
//! Invariants: a page is free or has at least one holder; it is given out only when free; [`PagePool::release`] returns
//! it exactly when its last holder releases it.

use std::collections::HashMap;

use xxhash_rust::xxh3::Xxh3;

use super::backend::{DecoderInput, PageId};

/// More pages were asked for than are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} KV pages wanted, {free} free")]
pub struct OutOfPages {
    pub wanted: usize,
    pub free: usize,
}

/// All pages with their holders.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<PageId>,
    holders: Vec<u32>,
}

impl PagePool {
    /// A pool of pages `0..count`, all free.
    pub fn new(count: usize) -> Self {
        Self {
            free: (0..count as u32).rev().map(PageId).collect(),
            holders: vec![0; count],
        }
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.holders.len()
    }

    /// Takes `count` pages for one holder, or none at all.
    pub fn take(&mut self, count: usize) -> Result<Vec<PageId>, OutOfPages> {
        let free = self.free.len();
        let rest = free.checked_sub(count).ok_or(OutOfPages {
            wanted: count,
            free,
        })?;
        let pages = self.free.split_off(rest);
        for page in &pages {
            self.holders[page.0 as usize] = 1;
        }
        Ok(pages)
    }

    /// One holder more for each of these pages, which have a holder.
    pub fn share(&mut self, pages: &[PageId]) {
        for page in pages {
            debug_assert!(self.holders[page.0 as usize] > 0, "{page:?} is free");
            self.holders[page.0 as usize] += 1;
        }
    }

    /// One holder less; returns the pages that are free now.
    pub fn release(&mut self, pages: impl IntoIterator<Item = PageId>) -> &[PageId] {
        let before = self.free.len();
        for page in pages {
            let holders = &mut self.holders[page.0 as usize];
            debug_assert!(*holders > 0, "{page:?} is released twice");
            *holders = holders.saturating_sub(1);
            if *holders == 0 {
                self.free.push(page);
            }
        }
        &self.free[before..]
    }
}

/// What precedes a text: nothing, or an image. Only texts behind the same image share pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixRoot {
    /// Text alone.
    Nothing,
    /// The image of the look with this number.
    Image(u64),
}

/// A full page of text that is in the cache, found by a chained hash:
///
/// ```text
///   h0 = hash(root)    h1 = hash(h0, page 0's inputs)    h2 = hash(h1, page 1's inputs) …
/// ```
///
/// A hit counts only when the inputs are equal, so a collision costs time and never an answer.
#[derive(Debug)]
struct KnownPage {
    root: PrefixRoot,
    parent: u64,
    inputs: Vec<DecoderInput>,
    page: PageId,
    last_use: u64,
}

/// The cache's pages together with the texts that keep some of them; a known text is a holder of its pages.
#[derive(Debug)]
pub struct KvPool {
    pool: PagePool,
    page_tokens: usize,
    texts: HashMap<u64, KnownPage>,
    uses: u64,
    freed: Vec<PageId>,
}

impl KvPool {
    /// `pages` free pages of `page_tokens` positions.
    pub fn new(pages: usize, page_tokens: usize) -> Self {
        Self {
            pool: PagePool::new(pages),
            page_tokens,
            texts: HashMap::new(),
            uses: 0,
            freed: Vec::new(),
        }
    }

    /// Pages without a holder, or held by known texts alone.
    pub fn available(&self) -> usize {
        let known = self.texts.values();
        let idle = known.filter(|known| self.pool.holders[known.page.0 as usize] == 1);
        self.pool.free() + idle.count()
    }

    pub fn count(&self) -> usize {
        self.pool.count()
    }

    /// Takes `count` pages, or none. Known texts make room, those used longest ago first; what follows a forgotten
    /// page is not found any more and is forgotten in its turn.
    pub fn take(&mut self, count: usize) -> Result<Vec<PageId>, OutOfPages> {
        loop {
            let short = match self.pool.take(count) {
                Ok(pages) => return Ok(pages),
                Err(short) => short,
            };
            let age = |(key, known): &(&u64, &KnownPage)| (known.last_use, **key);
            let oldest = self.texts.iter().min_by_key(age).map(|(key, _)| *key);
            let known = self.texts.remove(&oldest.ok_or(short)?);
            self.release(known.map(|known| known.page));
        }
    }

    /// One holder more.
    pub fn share(&mut self, pages: &[PageId]) {
        self.pool.share(pages);
    }

    /// One holder less.
    pub fn release(&mut self, pages: impl IntoIterator<Item = PageId>) {
        self.freed.extend_from_slice(self.pool.release(pages));
    }

    /// Pages that were freed since the last call; some may be taken again and not written yet.
    pub fn take_freed(&mut self) -> Vec<PageId> {
        std::mem::take(&mut self.freed)
    }

    /// Pages of the longest known beginning of `text`. At least one input is left over, because a row must feed one.
    /// The caller becomes a holder of them.
    pub fn find_text(&mut self, root: PrefixRoot, text: &[DecoderInput]) -> Vec<PageId> {
        self.uses += 1;
        let mut pages = Vec::new();
        let shareable = &text[..text.len().saturating_sub(1)];
        let mut parent = hash(0, root, &[]);
        for inputs in shareable.chunks_exact(self.page_tokens) {
            let key = hash(parent, root, inputs);
            let same =
                |k: &&mut KnownPage| k.root == root && k.parent == parent && k.inputs == inputs;
            let Some(known) = self.texts.get_mut(&key).filter(same) else {
                break;
            };
            known.last_use = self.uses;
            pages.push(known.page);
            parent = key;
        }
        self.pool.share(&pages);
        pages
    }

    /// Remembers the full pages of `text`, whose KV is in `pages`. To be called once the step that writes them is
    /// launched: steps run in order, so a row that finds them comes after.
    pub fn know_text(&mut self, root: PrefixRoot, text: &[DecoderInput], pages: &[PageId]) {
        let mut parent = hash(0, root, &[]);
        for (inputs, &page) in text.chunks_exact(self.page_tokens).zip(pages) {
            let key = hash(parent, root, inputs);
            self.texts.entry(key).or_insert_with(|| {
                self.pool.share(&[page]);
                KnownPage {
                    root,
                    parent,
                    inputs: inputs.to_vec(),
                    page,
                    last_use: self.uses,
                }
            });
            parent = key;
        }
    }

    /// The image of `root` is gone, and with it every text behind it.
    pub fn forget(&mut self, root: PrefixRoot) {
        let gone = self.texts.extract_if(|_, known| known.root == root);
        let mut pages: Vec<PageId> = gone.map(|(_, known)| known.page).collect();
        // A map has no order, and runs should be alike.
        pages.sort();
        self.release(pages);
    }
}

fn hash(parent: u64, root: PrefixRoot, inputs: &[DecoderInput]) -> u64 {
    let mut hasher = Xxh3::with_seed(parent);
    if let PrefixRoot::Image(number) = root {
        hasher.update(&number.to_le_bytes());
    }
    for input in inputs {
        let (kind, a, b) = match *input {
            DecoderInput::Token(id) => (0_u8, id, 0),
            DecoderInput::Coord(coord) => (1, coord.to_bits(), 0),
            DecoderInput::Size(width, height) => (2, width.to_bits(), height.to_bits()),
        };
        hasher.update(&[kind]);
        hasher.update(&a.to_le_bytes());
        hasher.update(&b.to_le_bytes());
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_page_is_lost_or_freed_twice(acts in prop::collection::vec((0_u8..3, 0_usize..6), 1..80)) {
            let mut pool = PagePool::new(16);
            let mut held: Vec<Vec<PageId>> = Vec::new();
            for (act, n) in acts {
                match act {
                    0 => match pool.take(n) {
                        Ok(pages) => held.push(pages),
                        Err(short) => prop_assert!(short.free < n),
                    },
                    1 if !held.is_empty() => {
                        let again = held[n % held.len()].clone();
                        pool.share(&again);
                        held.push(again);
                    }
                    _ if !held.is_empty() => {
                        let gone = held.swap_remove(n % held.len());
                        let freed = pool.release(gone.iter().copied());
                        let kept = |page: &PageId| held.iter().flatten().any(|held| held == page);
                        prop_assert_eq!(freed, gone.into_iter().filter(|p| !kept(p)).collect::<Vec<_>>());
                    }
                    _ => {}
                }
                let mut all: Vec<_> = held.iter().flatten().copied().collect();
                all.sort();
                all.dedup();
                prop_assert_eq!(all.len() + pool.free(), 16);
            }
        }

        #[test]
        fn a_found_prefix_is_the_text_that_was_inserted(
            a in prop::collection::vec(0_u32..2, 1..12),
            b in prop::collection::vec(0_u32..2, 1..12),
        ) {
            let inputs = |ids: &[u32]| ids.iter().map(|&id| DecoderInput::Token(id)).collect::<Vec<_>>();
            let (a, b) = (inputs(&a), inputs(&b));
            let mut memory = KvPool::new(8, 2);
            let pages = memory.take(a.len().div_ceil(2)).expect("pages");
            memory.know_text(PrefixRoot::Nothing, &a, &pages);
            let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            let expected = (common / 2).min((b.len() - 1) / 2);
            let found = memory.find_text(PrefixRoot::Nothing, &b);
            prop_assert_eq!(&found, &pages[..expected]);
            prop_assert!(memory.find_text(PrefixRoot::Image(1), &b).is_empty());
            memory.release(found);
            memory.release(pages);
            prop_assert_eq!(memory.available(), 8);
            prop_assert_eq!(memory.take(8).map(|pages| pages.len()), Ok(8), "texts make room");
            prop_assert!(memory.find_text(PrefixRoot::Nothing, &b).is_empty());
        }
    }
}
