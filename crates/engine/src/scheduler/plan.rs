//! Which waiting looks go into the next step. Pure: candidates and a budget in, grants out.
//!
//! ```text
//!   every step     all rows that can decode  +  prefills, as many as fit: images first in order, all their prompts
//!
//!   order          the first look of each camera by deadline, then the second of each camera, …
//!                  gate 1 ─ yard 1 ─ dock 1 ─ gate 2 ─ gate 3 ─ gate 4        a flood waits behind everybody's first
//! ```
//!
//! *Prefill first, decode along.* A new look does not wait for running answers: its prefill joins the next step, and the
//! running rows ride in the same step, where the weights are read once for both. So an answer never stops, and what a
//! token waits for is bounded by the work of the images of one step ([`ImageRoom`]). More of it would fill a large device
//! better; less would make answers end sooner.
//!
//! *Free texts ride along.* A text takes a step for each token, and no look waits for it: it begins when the short answers of its
//! look are there, it does not count where images are kept out of a step, two texts at most have rows in every second step of
//! short answers alone, texts are limited to half of the rows and pages, and when pages are short they are evicted first.
//!
//! *No look is overtaken for want of pages.* When the first look in order does not get its pages, none behind it does, so
//! that a look with many prompts is not starved by small ones.

use super::request::LookId;
use spotter_core::Mono;

/// Arithmetic of images in a step that also carries decoding rows of short answers, in crops through the encoder: what a token waits
/// for at most, unless one image alone is more. Four pictures of 1280x720 fill it, or eight of 378x378 two thirds of it.
const WORK_WITH_DECODE: usize = 48;
/// Arithmetic of an image's prefix, in crops.
const PREFIX_WORK: usize = 3;

/// Beside short answers, where no look begins, free texts have rows in one of this many steps: a row more makes a step longer,
/// and a long list of objects has many steps.
pub const TEXT_EVERY: u64 = 2;

/// The most free texts that have rows in such a step, the oldest first: of many cameras that all have texts under way, each row
/// makes the step longer.
pub const TEXTS_BESIDE_SHORT: usize = 2;

/// A look with prompts that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookCandidate {
    /// Which; rises with each arrival.
    pub look: LookId,
    /// Only free texts of it are left.
    pub only_text_left: bool,
    /// Looks of the same camera that are running or before it in the queue.
    pub rank: usize,
    /// To be started by then.
    pub start_by: Mono,
    /// What its image needs; `None` when the look has it already, or there is none.
    pub image: Option<ImageNeed>,
    /// What each waiting prompt needs, in their order; at least one.
    pub prompts: Vec<PrefillNeed>,
    /// How many of them, the last, are free texts.
    pub texts: usize,
}

impl LookCandidate {
    /// Smaller is served first: round robin over cameras, earliest deadline first within a round. Texts that no other look waits
    /// for come last.
    pub fn order(&self) -> impl Ord + use<> {
        (self.only_text_left, self.rank, self.start_by, self.look)
    }

    /// At most this many of its texts may start; returns how many.
    pub fn keep_texts(&mut self, limit: usize) -> usize {
        let kept = self.texts.min(limit);
        self.prompts
            .truncate(self.prompts.len() - (self.texts - kept));
        self.texts = kept;
        kept
    }

    /// Pages without which nothing of it can start.
    pub fn pages_wanted(&self) -> usize {
        self.image_pages() + self.prompts[0].pages
    }

    fn image_pages(&self) -> usize {
        self.image.map_or(0, |image| image.pages)
    }
}

/// What an image needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageNeed {
    pub pages: usize,
    /// Of [`image_work`]; `None` when its prefix is in the cache.
    pub work: Option<usize>,
}

/// Arithmetic of an image of which so many crops are encoded, in crops.
pub fn image_work(crops: usize) -> usize {
    crops + PREFIX_WORK
}

/// Room for images in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRoom {
    images: usize,
    work: usize,
    has_image: bool,
}

impl ImageRoom {
    /// Of a step on a device with room for `images_max`, with decoding rows of short answers or without.
    pub fn of_step(images_max: usize, decodes: bool) -> Self {
        Self {
            images: images_max,
            work: if decodes {
                WORK_WITH_DECODE
            } else {
                usize::MAX
            },
            has_image: false,
        }
    }

    /// Takes the room of an image; false when there is none, and then there is none for another image either, which would overtake it.
    /// The first image has room however large it is.
    pub fn take(&mut self, work: usize) -> bool {
        if self.images == 0 || self.has_image && work > self.work {
            self.images = 0;
            return false;
        }
        self.images -= 1;
        self.work = self.work.saturating_sub(work);
        self.has_image = true;
        true
    }
}

/// What a prompt's prefill needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillNeed {
    pub pages: usize,
    /// Positions, the draft's included.
    pub positions: usize,
}

/// What the step has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub rows: usize,
    pub images: ImageRoom,
    pub pages: usize,
    pub positions: usize,
}

impl Budget {
    fn without(self, pages: usize, positions: usize) -> Option<Self> {
        Some(Self {
            pages: self.pages.checked_sub(pages)?,
            positions: self.positions.checked_sub(positions)?,
            ..self
        })
    }
}

/// The first `prompts` waiting prompts of a look go into the step; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub look: LookId,
    pub prompts: usize,
}

/// What goes into the step, in the order of the candidates.
pub fn grants(candidates: &[LookCandidate], mut left: Budget) -> Vec<Grant> {
    let mut grants = Vec::new();
    for candidate in candidates {
        let work = candidate.image.and_then(|image| image.work);
        if work.is_some_and(|work| !left.images.take(work)) {
            continue;
        }
        let mut rest = left.without(candidate.image_pages(), 0);
        let mut prompts = 0;
        for need in candidate.prompts.iter().take(left.rows) {
            let Some(less) = rest.and_then(|rest| rest.without(need.pages, need.positions)) else {
                break;
            };
            rest = Some(less);
            prompts += 1;
        }
        let Some(rest) = rest.filter(|_| prompts > 0) else {
            break;
        };
        left = Budget {
            rows: left.rows - prompts,
            images: left.images,
            ..rest
        };
        let look = candidate.look;
        grants.push(Grant { look, prompts });
    }
    grants
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{model::released_config, network::cost::ModelWork};

    fn prompts(needs: Vec<(usize, usize)>) -> Vec<PrefillNeed> {
        let need = |(pages, positions)| PrefillNeed { pages, positions };
        needs.into_iter().map(need).collect()
    }

    fn candidates() -> impl Strategy<Value = Vec<LookCandidate>> {
        let one = (
            0_usize..4,
            0_u64..50,
            prop::option::of((1_usize..6, prop::option::of(3_usize..60))),
            prop::collection::vec((1_usize..5, 1_usize..9), 1..6),
        );
        prop::collection::vec(one, 0..10).prop_map(|all| {
            type Drawn = (
                usize,
                u64,
                Option<(usize, Option<usize>)>,
                Vec<(usize, usize)>,
            );
            let candidate = |(look, drawn): (usize, Drawn)| LookCandidate {
                look: LookId(look as u64),
                only_text_left: false,
                texts: 0,
                rank: drawn.0,
                start_by: Mono::from_nanos(drawn.1),
                image: drawn.2.map(|image| ImageNeed {
                    pages: image.0,
                    work: image.1,
                }),
                prompts: prompts(drawn.3),
            };
            let mut all: Vec<_> = all.into_iter().enumerate().map(candidate).collect();
            all.sort_by_key(LookCandidate::order);
            all
        })
    }

    #[test]
    fn images_beside_decoding_rows_are_bounded_by_their_crops() {
        let fit = |crops| {
            let mut room = ImageRoom::of_step(8, true);
            (0..10).filter(|_| room.take(image_work(crops))).count()
        };
        // 378x378, a picture of 2 x 2 tiles, 1280x720, and the most crops of Moondream 2; then a picture that is too long.
        assert_eq!([1, 5, 9, 13, 60].map(fit), [8, 6, 4, 3, 1]);
    }

    #[test]
    fn prefix_is_three_crops_of_work_in_released_models() {
        for name in ["moondream2", "moondream3.1"] {
            let work = ModelWork::of(released_config(name).expect("it is known").network());
            let [one, nine] = [1, 9].map(|crops| work.look(crops, &[]));
            let prefix = one.prefix * 8.0 / (nine.vision - one.vision);
            assert!(
                (prefix - PREFIX_WORK as f64).abs() < 0.6,
                "{name}: {prefix}"
            );
        }
    }

    proptest! {
        #[test]
        fn grants_keep_the_budget_and_never_skip_the_first_row(
            candidates in candidates(), rows in 0_usize..12, images in 0_usize..6, decodes: bool, pages in 0_usize..40,
            positions in 0_usize..40,
        ) {
            let room = ImageRoom::of_step(images, decodes);
            let grants = grants(&candidates, Budget { rows, images: room, pages, positions });
            let of = |grant: &Grant| candidates.iter().find(|c| c.look == grant.look).expect("a candidate");
            prop_assert!(grants.iter().map(|g| g.prompts).sum::<usize>() <= rows);
            let works: Vec<usize> = grants.iter().filter_map(|g| of(g).image?.work).collect();
            prop_assert!(works.len() <= images);
            prop_assert!(!decodes || works.len() < 2 || works.iter().sum::<usize>() <= WORK_WITH_DECODE);
            let used = |g: &Grant| {
                of(g).image_pages() + of(g).prompts[..g.prompts].iter().map(|n| n.pages).sum::<usize>()
            };
            prop_assert!(grants.iter().map(used).sum::<usize>() <= pages);
            let fed = |g: &Grant| of(g).prompts[..g.prompts].iter().map(|n| n.positions).sum::<usize>();
            prop_assert!(grants.iter().map(fed).sum::<usize>() <= positions);
            prop_assert!(grants.iter().all(|g| g.prompts > 0));
            if let Some(first) = candidates.first() {
                let fits = rows > 0
                    && (images > 0 || first.image.is_none_or(|image| image.work.is_none()))
                    && first.pages_wanted() <= pages
                    && first.prompts[0].positions <= positions;
                prop_assert_eq!(fits, grants.first().is_some_and(|g| g.look == first.look));
            }
        }

        #[test]
        fn a_flood_waits_behind_the_first_look_of_everybody_else(flood in 1_usize..30, late in 0_u64..100) {
            let candidate = |rank, start_by, look| LookCandidate {
                look: LookId(look),
                only_text_left: false,
                rank,
                start_by: Mono::from_nanos(start_by),
                image: Some(ImageNeed { pages: 1, work: Some(4) }),
                prompts: prompts(vec![(1, 1)]),
                texts: 0,
            };
            let mut all: Vec<_> = (0..flood).map(|i| candidate(i, i as u64, i as u64)).collect();
            all.push(candidate(0, 1000 + late, flood as u64));
            all.sort_by_key(LookCandidate::order);
            let place = all.iter().position(|c| c.look == LookId(flood as u64));
            prop_assert_eq!(place, Some(1));
        }
    }
}
