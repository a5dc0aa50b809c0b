//! Who holds which KV page, and which texts are already in the cache. Pure: the memory itself is the backend's.
//!
//! ```text
//!   look      prefix  ● ● ● ●            the image, written once, read by all prompts of the look
//!                     │ │ │ │
//!   prompt a  ●●●● + own ■ ■             a page is free when its last holder released it
//!   prompt b  ●●●● + own ▣ ■ ■           ▣ shared too: a full page of the same text behind the same image
//! ```
//!
//! After a look its image stays, as known texts do: a *kept image* is a holder of its pages, and is the first to give way when
//! pages are needed.
//!
//! Invariants: a page is free or has at least one holder; it is given out only when free; [`PagePool::release`] returns
//! it exactly when its last holder releases it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3;

use super::{
    backend::{AdapterNumber, DecoderInput, PageId},
    still::ImageNumber,
};

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

/// What precedes a text, and what both are computed with. Only texts behind the same root share pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixRoot {
    /// `None`: text alone.
    pub image: Option<ImageNumber>,
    pub adapter: Option<AdapterNumber>,
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

/// An image whose prefix is in the cache.
#[derive(Debug)]
struct KeptImage {
    pages: Arc<[PageId]>,
    last_use: u64,
}

/// What gives way when pages are needed.
enum Idle {
    Text(u64),
    Image(PrefixRoot),
}

/// The cache's pages together with the texts and images that keep some of them; a known text and a kept image are holders of their
/// pages.
#[derive(Debug)]
pub struct KvPool {
    pool: PagePool,
    page_tokens: usize,
    texts: HashMap<u64, KnownPage>,
    /// Of roots with an image.
    images: BTreeMap<PrefixRoot, KeptImage>,
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
            images: BTreeMap::new(),
            uses: 0,
            freed: Vec::new(),
        }
    }

    /// Pages without a holder, or held by known texts and kept images alone.
    pub fn available(&self) -> usize {
        let texts = self.texts.values().filter(|text| self.is_idle(text.page));
        let images = self.images.values().flat_map(|image| image.pages.iter());
        let images = images.filter(|page| self.is_idle(**page));
        self.pool.free() + texts.count() + images.count()
    }

    /// True when the page has one holder, which is a text or an image.
    fn is_idle(&self, page: PageId) -> bool {
        self.pool.holders[page.0 as usize] == 1
    }

    pub fn count(&self) -> usize {
        self.pool.count()
    }

    /// Takes `count` pages, or none. Known texts and kept images that no look uses make room, those used longest ago first; what
    /// follows a forgotten page or image is not found any more and is forgotten in its turn.
    pub fn take(&mut self, count: usize) -> Result<Vec<PageId>, OutOfPages> {
        loop {
            let short = match self.pool.take(count) {
                Ok(pages) => return Ok(pages),
                Err(short) => short,
            };
            match self.oldest_idle().ok_or(short)? {
                Idle::Text(key) => {
                    let text = self.texts.remove(&key);
                    self.release(text.map(|text| text.page));
                }
                Idle::Image(root) => self.drop_prefix(root),
            }
        }
    }

    fn oldest_idle(&self) -> Option<Idle> {
        let texts = self.texts.iter();
        let texts = texts.map(|(key, text)| (text.last_use, *key, Idle::Text(*key)));
        let idle = |image: &KeptImage| image.pages.first().is_some_and(|page| self.is_idle(*page));
        let images = self.images.iter().filter(|(_, image)| idle(image));
        let number = |root: &PrefixRoot| root.image.map_or(0, |image| image.0);
        let images = images.map(|(root, kept)| (kept.last_use, number(root), Idle::Image(*root)));
        let oldest = texts.chain(images).min_by_key(|(age, key, _)| (*age, *key));
        oldest.map(|(.., idle)| idle)
    }

    /// Keeps the prefix of an image behind its look.
    pub fn keep_image(&mut self, root: PrefixRoot, pages: &Arc<[PageId]>) {
        self.uses += 1;
        self.pool.share(pages);
        let kept = KeptImage {
            pages: Arc::clone(pages),
            last_use: self.uses,
        };
        if let Some(before) = self.images.insert(root, kept) {
            self.release(before.pages.iter().copied());
        }
    }

    /// The prefix of an image, if it is kept. The caller becomes a holder of its pages.
    pub fn find_image(&mut self, root: PrefixRoot) -> Option<Arc<[PageId]>> {
        self.uses += 1;
        let kept = self.images.get_mut(&root)?;
        kept.last_use = self.uses;
        let pages = Arc::clone(&kept.pages);
        self.pool.share(&pages);
        Some(pages)
    }

    /// Pages by which [`KvPool::available`] shrinks when a look uses the image; `None` when it is not kept.
    pub fn idle_pages(&self, root: PrefixRoot) -> Option<usize> {
        let pages = self.images.get(&root)?.pages.iter();
        Some(pages.filter(|page| self.is_idle(**page)).count())
    }

    /// The image is kept no more, with any adapter. Looks that use it stay holders of its pages.
    pub fn drop_image(&mut self, image: ImageNumber) {
        let roots = self.images.keys().copied();
        let roots: Vec<_> = roots.filter(|root| root.image == Some(image)).collect();
        roots.into_iter().for_each(|root| self.drop_prefix(root));
    }

    fn drop_prefix(&mut self, root: PrefixRoot) {
        if let Some(kept) = self.images.remove(&root) {
            self.release(kept.pages.iter().copied());
            self.forget(root);
        }
    }

    /// No text is known and no image kept any more. Looks that use them stay holders of their pages.
    pub fn forget_all(&mut self) {
        let images = std::mem::take(&mut self.images).into_values();
        let texts = std::mem::take(&mut self.texts).into_values();
        let mut pages: Vec<PageId> = texts.map(|text| text.page).collect();
        pages.extend(images.flat_map(|image| image.pages.to_vec()));
        // A map has no order, and runs should be alike.
        pages.sort();
        self.release(pages);
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

    /// A look does not use the image of `root` any more; unless the image is kept, every text behind it is forgotten.
    pub fn forget(&mut self, root: PrefixRoot) {
        if self.images.contains_key(&root) {
            return;
        }
        let gone = self.texts.extract_if(|_, known| known.root == root);
        let mut pages: Vec<PageId> = gone.map(|(_, known)| known.page).collect();
        // A map has no order, and runs should be alike.
        pages.sort();
        self.release(pages);
    }
}

fn hash(parent: u64, root: PrefixRoot, inputs: &[DecoderInput]) -> u64 {
    let mut hasher = Xxh3::with_seed(parent);
    if let Some(image) = root.image {
        hasher.update(&image.0.to_le_bytes());
    }
    if let Some(adapter) = root.adapter {
        hasher.update(&adapter.0.to_le_bytes());
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

    /// Behind this image, with an adapter.
    fn behind(image: u64) -> PrefixRoot {
        PrefixRoot {
            image: Some(ImageNumber(image)),
            adapter: Some(AdapterNumber(7)),
        }
    }

    proptest! {
        /// Kept images use only pages that nothing else needs, and none is lost.
        #[test]
        fn kept_images_give_way_and_lose_no_page(acts in prop::collection::vec((0_u8..5, 0_usize..8), 1..120)) {
            const PAGES: usize = 12;
            let mut pool = KvPool::new(PAGES, 2);
            let mut held: Vec<Vec<PageId>> = Vec::new();
            let mut images = 0;
            for (act, n) in acts {
                let in_use = |held: &[Vec<PageId>]| {
                    let pages: std::collections::BTreeSet<_> = held.iter().flatten().copied().collect();
                    pages.len()
                };
                prop_assert_eq!(pool.available(), PAGES - in_use(&held));
                match act {
                    0 => {
                        let room = PAGES - in_use(&held);
                        match pool.take(n) {
                            Ok(pages) => {
                                prop_assert!(pages.iter().all(|page| !held.iter().flatten().any(|held| held == page)));
                                held.push(pages);
                            }
                            Err(_) => prop_assert!(n > room, "{} wanted, {} without a look", n, room),
                        }
                    }
                    1 => {
                        // Each image has pages of its own.
                        if let Ok(pages) = pool.take(n + 1) {
                            images += 1;
                            pool.keep_image(behind(images), &pages.clone().into());
                            held.push(pages);
                        }
                    }
                    2 => {
                        let image = behind(images.saturating_sub(n as u64));
                        let idle = pool.idle_pages(image);
                        let before = pool.available();
                        let found = pool.find_image(image);
                        prop_assert_eq!(found.is_some(), idle.is_some());
                        prop_assert_eq!(before - pool.available(), idle.unwrap_or(0));
                        held.extend(found.map(|pages| pages.to_vec()));
                    }
                    3 => pool.drop_image(ImageNumber(images.saturating_sub(n as u64))),
                    _ if !held.is_empty() => {
                        let gone = held.swap_remove(n % held.len());
                        pool.release(gone);
                    }
                    _ => {}
                }
            }
            held.into_iter().for_each(|pages| pool.release(pages));
            prop_assert_eq!(pool.take(PAGES).map(|pages| pages.len()), Ok(PAGES));
        }

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
            memory.know_text(PrefixRoot::default(), &a, &pages);
            let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            let expected = (common / 2).min((b.len() - 1) / 2);
            let found = memory.find_text(PrefixRoot::default(), &b);
            prop_assert_eq!(&found, &pages[..expected]);
            prop_assert!(memory.find_text(behind(1), &b).is_empty());
            memory.release(found);
            memory.release(pages);
            prop_assert_eq!(memory.available(), 8);
            prop_assert_eq!(memory.take(8).map(|pages| pages.len()), Ok(8), "texts make room");
            prop_assert!(memory.find_text(PrefixRoot::default(), &b).is_empty());
        }
    }
}
