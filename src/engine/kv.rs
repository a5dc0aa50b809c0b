//! Who holds which KV page, and which texts are already in the cache. Pure: the memory itself is the backend's.
//!
//! ```text
//!   look      prefix  ● ● ● ●            the image, written once, read by all prompts of the look
//!                     │ │ │ │
//!   prompt a  ●●●● + own ■ ■             a page is free when its last holder let go of it
//!   prompt b  ●●●● + own ▣ ■ ■           ▣ shared too: a full page of the same text behind the same image
//! ```
//!
//! Invariants: a page is free or has at least one holder; it is given out only when free; [`PagePool::release`] returns
//! it exactly when its last holder lets go.

use std::collections::HashMap;

use xxhash_rust::xxh3::Xxh3;

use super::backend::{Input, PageId};

/// More pages were asked for than are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} KV pages wanted, {free} free")]
pub struct OutOfPages {
    /// Asked for.
    pub wanted: usize,
    /// There.
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

    /// One holder more for each of these pages, which somebody holds.
    pub fn share(&mut self, pages: &[PageId]) {
        for page in pages {
            debug_assert!(self.holders[page.0 as usize] > 0, "{page:?} is free");
            self.holders[page.0 as usize] += 1;
        }
    }

    /// One holder less; returns the pages that are free now.
    pub fn release(&mut self, pages: impl IntoIterator<Item = PageId>) -> Vec<PageId> {
        let before = self.free.len();
        for page in pages {
            let holders = &mut self.holders[page.0 as usize];
            debug_assert!(*holders > 0, "{page:?} is released twice");
            *holders = holders.saturating_sub(1);
            if *holders == 0 {
                self.free.push(page);
            }
        }
        self.free[before..].to_vec()
    }
}

/// What stands before a text: nothing, or an image. Only texts behind the same image share pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// Text alone.
    Nothing,
    /// The image of the look with this number.
    Image(u64),
}

/// Full pages of text that are in the cache, found by a chained hash:
///
/// ```text
///   h0 = hash(root)    h1 = hash(h0, page 0's inputs)    h2 = hash(h1, page 1's inputs) …
/// ```
///
/// A hit counts only when the inputs are equal, so a collision costs time and never an answer. Every entry holds its page.
#[derive(Debug)]
pub struct TextPrefixes {
    entries: HashMap<u64, Entry>,
    page_tokens: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    root: Root,
    parent: u64,
    inputs: Vec<Input>,
    page: PageId,
    last_use: u64,
}

impl TextPrefixes {
    /// Knows nothing yet.
    pub fn new(page_tokens: usize) -> Self {
        Self {
            entries: HashMap::new(),
            page_tokens,
            uses: 0,
        }
    }

    /// Pages of the longest known beginning of `text`. At least one input is left over, because a row must feed one.
    /// The caller becomes a holder of them.
    pub fn find(&mut self, root: Root, text: &[Input], pool: &mut PagePool) -> Vec<PageId> {
        self.uses += 1;
        let mut pages = Vec::new();
        let shareable = &text[..text.len().saturating_sub(1)];
        let mut parent = hash(0, root, &[]);
        for inputs in shareable.chunks_exact(self.page_tokens) {
            let key = hash(parent, root, inputs);
            let Some(entry) = self.entries.get_mut(&key) else {
                break;
            };
            if entry.root != root || entry.parent != parent || entry.inputs != inputs {
                break;
            }
            entry.last_use = self.uses;
            pages.push(entry.page);
            parent = key;
        }
        pool.share(&pages);
        pages
    }

    /// Remembers the full pages of `text`, whose KV lies in `pages`. To be called once the step that writes them is
    /// launched: steps run in order, so whoever finds them comes after.
    pub fn insert(&mut self, root: Root, text: &[Input], pages: &[PageId], pool: &mut PagePool) {
        let mut parent = hash(0, root, &[]);
        for (inputs, &page) in text.chunks_exact(self.page_tokens).zip(pages) {
            let key = hash(parent, root, inputs);
            self.entries.entry(key).or_insert_with(|| {
                pool.share(&[page]);
                Entry {
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

    /// Forgets everything behind an image that is gone; returns the pages to release.
    pub fn forget(&mut self, root: Root) -> Vec<PageId> {
        let gone = self.entries.extract_if(|_, entry| entry.root == root);
        let mut pages: Vec<PageId> = gone.map(|(_, entry)| entry.page).collect();
        // A map has no order, and runs should be alike.
        pages.sort();
        pages
    }

    /// Forgets the entry used longest ago; returns its page to release. Those behind it are forgotten in their turn: they
    /// are not found any more.
    pub fn forget_oldest(&mut self) -> Option<PageId> {
        let oldest = self
            .entries
            .iter()
            .min_by_key(|(key, e)| (e.last_use, **key));
        let key = *oldest?.0;
        self.entries.remove(&key).map(|entry| entry.page)
    }
}

/// The cache's pages together with the texts that keep some of them.
#[derive(Debug)]
pub struct Memory {
    pool: PagePool,
    texts: TextPrefixes,
    freed: Vec<PageId>,
}

impl Memory {
    /// `pages` free pages of `page_tokens` positions.
    pub fn new(pages: usize, page_tokens: usize) -> Self {
        Self {
            pool: PagePool::new(pages),
            texts: TextPrefixes::new(page_tokens),
            freed: Vec::new(),
        }
    }

    /// Pages that nobody holds, or known texts alone.
    pub fn available(&self) -> usize {
        let known = self.texts.entries.values();
        let idle = known.filter(|entry| self.pool.holders[entry.page.0 as usize] == 1);
        self.pool.free() + idle.count()
    }

    /// All pages.
    pub fn count(&self) -> usize {
        self.pool.count()
    }

    /// Takes `count` pages, or none. Known texts make room, those used longest ago first.
    pub fn take(&mut self, count: usize) -> Result<Vec<PageId>, OutOfPages> {
        loop {
            match (self.pool.take(count), self.texts.entries.is_empty()) {
                (Ok(pages), _) => {
                    self.freed.retain(|page| !pages.contains(page));
                    return Ok(pages);
                }
                (Err(short), true) => return Err(short),
                (Err(_), false) => {
                    let page = self.texts.forget_oldest();
                    self.release(page);
                }
            }
        }
    }

    /// One holder more.
    pub fn share(&mut self, pages: &[PageId]) {
        self.pool.share(pages);
    }

    /// One holder less.
    pub fn release(&mut self, pages: impl IntoIterator<Item = PageId>) {
        self.freed.extend(self.pool.release(pages));
    }

    /// Pages that were freed since the last call and are free still: what a backend may poison.
    pub fn take_freed(&mut self) -> Vec<PageId> {
        std::mem::take(&mut self.freed)
    }

    /// See [`TextPrefixes::find`].
    pub fn find_text(&mut self, root: Root, text: &[Input]) -> Vec<PageId> {
        self.texts.find(root, text, &mut self.pool)
    }

    /// See [`TextPrefixes::insert`].
    pub fn know_text(&mut self, root: Root, text: &[Input], pages: &[PageId]) {
        self.texts.insert(root, text, pages, &mut self.pool);
    }

    /// The image of `root` is gone, and with it every text behind it.
    pub fn forget(&mut self, root: Root) {
        let pages = self.texts.forget(root);
        self.release(pages);
    }
}

fn hash(parent: u64, root: Root, inputs: &[Input]) -> u64 {
    let mut hasher = Xxh3::with_seed(parent);
    if let Root::Image(number) = root {
        hasher.update(&number.to_le_bytes());
    }
    for input in inputs {
        let (kind, a, b) = match *input {
            Input::Token(id) => (0_u8, id, 0),
            Input::Coord(coord) => (1, coord.to_bits(), 0),
            Input::Size(width, height) => (2, width.to_bits(), height.to_bits()),
        };
        hasher.update(&[kind]);
        hasher.update(&a.to_le_bytes());
        hasher.update(&b.to_le_bytes());
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            let inputs = |ids: &[u32]| ids.iter().map(|&id| Input::Token(id)).collect::<Vec<_>>();
            let (a, b) = (inputs(&a), inputs(&b));
            let mut pool = PagePool::new(8);
            let mut prefixes = TextPrefixes::new(2);
            let pages = pool.take(a.len().div_ceil(2)).expect("pages");
            prefixes.insert(Root::Nothing, &a, &pages, &mut pool);
            let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            let expected = (common / 2).min((b.len() - 1) / 2);
            let found = prefixes.find(Root::Nothing, &b, &mut pool);
            prop_assert_eq!(&found, &pages[..expected]);
            prop_assert!(prefixes.find(Root::Image(1), &b, &mut pool).is_empty());
            pool.release(found);
            pool.release(pages);
            while let Some(page) = prefixes.forget_oldest() {
                pool.release([page]);
            }
            prop_assert_eq!(pool.free(), 8);
        }
    }
}
