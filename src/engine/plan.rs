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
//! token waits for is bounded by the images of one step, [`IMAGES_WITH_DECODE`]. More of them would fill a large device
//! better; fewer would make answers end sooner.
//!
//! *Nobody is overtaken for want of pages.* When the first look in order does not get its pages, none behind it does, so
//! that a look with many prompts is not starved by small ones.

use super::request::LookId;
use crate::domain::Mono;

/// Images in a step that also carries decoding rows: what a token waits for at most.
pub const IMAGES_WITH_DECODE: usize = 4;

/// A look with prompts that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which; rises with each arrival.
    pub look: LookId,
    /// Looks of the same camera that are running or before it in the queue.
    pub rank: usize,
    /// To be started by then.
    pub start_by: Mono,
    /// Pages that its image needs; `None` when it is encoded already, or there is none.
    pub image_pages: Option<usize>,
    /// Pages that each waiting prompt needs, in their order; at least one.
    pub prompt_pages: Vec<usize>,
}

impl Candidate {
    /// Smaller is served first: round robin over cameras, earliest deadline first within a round.
    pub fn order(&self) -> impl Ord + use<> {
        (self.rank, self.start_by, self.look)
    }

    /// Pages without which nothing of it can start.
    pub fn pages_wanted(&self) -> usize {
        self.image_pages.unwrap_or(0) + self.prompt_pages[0]
    }
}

/// What the step has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Rows.
    pub rows: usize,
    /// Images.
    pub images: usize,
    /// KV pages.
    pub pages: usize,
}

/// The first `prompts` waiting prompts of a look go into the step; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which look.
    pub look: LookId,
    /// How many.
    pub prompts: usize,
}

/// What goes into the step, in the order of the candidates.
pub fn grants(candidates: &[Candidate], mut left: Budget) -> Vec<Grant> {
    let mut grants = Vec::new();
    for candidate in candidates {
        if candidate.image_pages.is_some() && left.images == 0 {
            continue;
        }
        let mut pages = left.pages.checked_sub(candidate.image_pages.unwrap_or(0));
        let mut prompts = 0;
        for &wanted in candidate.prompt_pages.iter().take(left.rows) {
            let Some(rest) = pages.and_then(|pages| pages.checked_sub(wanted)) else {
                break;
            };
            pages = Some(rest);
            prompts += 1;
        }
        if prompts == 0 {
            break;
        }
        left.pages = pages.unwrap_or_default();
        left.rows -= prompts;
        left.images -= usize::from(candidate.image_pages.is_some());
        let look = candidate.look;
        grants.push(Grant { look, prompts });
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (
            0_usize..4,
            0_u64..50,
            prop::option::of(1_usize..6),
            prop::collection::vec(1_usize..5, 1..6),
        );
        prop::collection::vec(one, 0..10).prop_map(|all| {
            let candidate = |(look, (rank, start_by, image_pages, prompt_pages))| Candidate {
                look: LookId(look as u64),
                rank,
                start_by: Mono::from_nanos(start_by),
                image_pages,
                prompt_pages,
            };
            let mut all: Vec<_> = all.into_iter().enumerate().map(candidate).collect();
            all.sort_by_key(Candidate::order);
            all
        })
    }

    proptest! {
        #[test]
        fn grants_stay_within_the_budget_and_the_first_is_never_passed_over(
            candidates in candidates(), rows in 0_usize..12, images in 0_usize..4, pages in 0_usize..40,
        ) {
            let grants = grants(&candidates, Budget { rows, images, pages });
            let of = |grant: &Grant| candidates.iter().find(|c| c.look == grant.look).expect("a candidate");
            prop_assert!(grants.iter().map(|g| g.prompts).sum::<usize>() <= rows);
            prop_assert!(grants.iter().filter(|g| of(g).image_pages.is_some()).count() <= images);
            let used = |g: &Grant| {
                of(g).image_pages.unwrap_or(0) + of(g).prompt_pages[..g.prompts].iter().sum::<usize>()
            };
            prop_assert!(grants.iter().map(used).sum::<usize>() <= pages);
            prop_assert!(grants.iter().all(|g| g.prompts > 0));
            if let Some(first) = candidates.first() {
                let fits = rows > 0
                    && (first.image_pages.is_none() || images > 0)
                    && first.pages_wanted() <= pages;
                prop_assert_eq!(fits, grants.first().is_some_and(|g| g.look == first.look));
            }
        }

        #[test]
        fn a_flood_waits_behind_the_first_look_of_everybody_else(flood in 1_usize..30, late in 0_u64..100) {
            let candidate = |rank, start_by, look| Candidate {
                look: LookId(look),
                rank,
                start_by: Mono::from_nanos(start_by),
                image_pages: Some(1),
                prompt_pages: vec![1],
            };
            let mut all: Vec<_> = (0..flood).map(|i| candidate(i, i as u64, i as u64)).collect();
            all.push(candidate(0, 1000 + late, flood as u64));
            all.sort_by_key(Candidate::order);
            let place = all.iter().position(|c| c.look == LookId(flood as u64));
            prop_assert_eq!(place, Some(1));
        }
    }
}
