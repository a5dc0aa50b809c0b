//! Prompts of `md2-micro` whose decisions are known in kind before any of them is made, run with steps in flight that feed
//! each other on the device, or one by one as the host feeds and masks them.

use std::collections::VecDeque;

use super::{
    golden_model::{config, job, picture, row, step_of, tokens},
    golden_set,
};
use crate::{
    model::{ModelConfig, SequenceOutput, Skill},
    scheduler::{
        backend::{Backend, Feed, MaskSource, Pick, Row, RowMask, RowRef, SlotId, Step, TokenMask},
        sequence::{Bounds, Sequence},
    },
};
use spotter_core::Picture;

/// An image, a detect prompt that ends by itself after two objects on it, and a point prompt that does not.
pub const IMAGE: &str = "gray_200x200";
/// Ids of the detect prompt.
pub const DETECT: &[u32] = &[1, 498, 95, 376, 2, 345, 364, 509, 283, 356, 3];
/// Ids of the point prompt.
pub const POINT: &[u32] = &[1, 91, 90, 421, 2, 345, 364, 509, 283, 356, 3];
/// Ids of a prompt that is answered in words.
pub const CAPTION: &[u32] = &[1, 79, 290, 495, 84, 490, 2, 94, 378, 95, 3];

pub fn micro_config() -> ModelConfig {
    config(&golden_set("md2-micro"))
}

/// One of its pictures.
pub fn micro_picture(image: &str) -> Picture {
    picture(&golden_set("md2-micro"), image)
}

/// The likeliest token but these.
pub fn token_pick(banned: &[u32]) -> Pick {
    Pick::token(MaskSource::Banned(banned.to_vec()))
}

/// A step that begins with [`IMAGE`].
pub fn image_step(backend: &dyn Backend, rows: Vec<Row>) -> Step {
    Step {
        images: vec![job(backend, micro_picture(IMAGE))],
        rows,
    }
}

/// A prompt and the decisions that it will ask for.
struct Prompt {
    ids: &'static [u32],
    skill: Skill,
    first: Pick,
    cycle: Vec<Pick>,
}

impl Prompt {
    /// What it decides in step `t`.
    fn pick(&self, t: usize) -> &Pick {
        match t {
            0 => &self.first,
            _ => &self.cycle[(t - 1) % self.cycle.len()],
        }
    }

    /// Where it feeds in step `t`, behind the image.
    fn after(&self, t: usize) -> usize {
        match t {
            0 => 0,
            _ => self.ids.len() + t - 1,
        }
    }
}

fn prompts(config: &ModelConfig) -> Vec<Prompt> {
    let structured = |ids, skill, cycle: &[Pick]| Prompt {
        ids,
        skill,
        first: Pick::CoordOrEnd,
        cycle: cycle.to_vec(),
    };
    vec![
        structured(
            DETECT,
            Skill::Detect,
            &[Pick::Coord, Pick::Size, Pick::CoordOrEnd],
        ),
        structured(POINT, Skill::Point, &[Pick::Coord, Pick::CoordOrEnd]),
        Prompt {
            ids: CAPTION,
            skill: Skill::Text,
            first: token_pick(&[]),
            cycle: vec![token_pick(&[config.tokenizer.answer_id])],
        },
    ]
}

/// The three prompts as sequences that nothing was decided of.
pub fn sequences() -> Vec<Sequence> {
    let config = micro_config();
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 12,
    };
    let sequence = |p: &Prompt| Sequence::new(config.grammar(p.skill), tokens(p.ids), bounds);
    prompts(&config).iter().map(sequence).collect()
}

/// Who says which tokens are banned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Masks {
    Launch,
    /// Masks of the host, behind the launch.
    Host,
}

/// Runs the prompts with `depth` steps in flight: a step behind another one is fed by it on the device; with a depth of 1,
/// the host feeds every step. Returns what was found and how many rows ran as zombies.
pub fn run_ahead(
    backend: &mut dyn Backend,
    depth: usize,
    masks: Masks,
) -> (Vec<SequenceOutput>, usize) {
    let config = micro_config();
    let prompts = prompts(&config);
    let mut running = sequences();
    let mut in_flight: VecDeque<(SlotId, Vec<usize>)> = VecDeque::new();
    let mut zombies = 0;
    for t in 0.. {
        let unfinished = |i: &usize| running[*i].feed().is_some();
        let members: Vec<usize> = (0..prompts.len()).filter(unfinished).collect();
        if members.is_empty() && in_flight.is_empty() {
            break;
        }
        if !members.is_empty() {
            let inputs = |i: usize| match (in_flight.back(), running[i].feed()) {
                (None, Some(next)) => Feed::Host(next.inputs),
                (Some((slot, before)), Some(_)) => Feed::Carry(RowRef {
                    slot: *slot,
                    row: before.iter().position(|&member| member == i).unwrap(),
                }),
                (_, None) => unreachable!("it has not ended"),
            };
            let rows = members.iter().map(|&i| {
                let (after, pick) = (prompts[i].after(t), prompts[i].pick(t));
                row(backend, i, after, inputs(i), std::slice::from_ref(pick))
            });
            let rows = rows.collect();
            let step = match t {
                0 => image_step(backend, rows),
                _ => step_of(rows),
            };
            let slot = SlotId(t % depth);
            launch(backend, slot, step, (masks, config.text.vocab_size));
            in_flight.push_back((slot, members));
        }
        if in_flight.len() < depth && running.iter().any(|s| s.feed().is_some()) {
            continue;
        }
        let (slot, members) = in_flight.pop_front().unwrap();
        let picked = backend.commit(slot).unwrap().picked.concat();
        for (i, picked) in members.into_iter().zip(picked) {
            match running[i].feed() {
                Some(_) => running[i].advance(picked).unwrap(),
                None => zombies += 1,
            }
        }
    }
    let found = running.into_iter().map(Sequence::into_found).collect();
    (found, zombies)
}

/// Launches a step; what it bans comes as the host's masks when that is asked for.
fn launch(backend: &mut dyn Backend, slot: SlotId, mut step: Step, (masks, vocab): (Masks, usize)) {
    let mut brought = Vec::new();
    for (row, of) in step.rows.iter_mut().enumerate() {
        for pick in &mut of.picks {
            if let (Masks::Host, Pick::Token { mask, .. }) = (masks, pick)
                && let MaskSource::Banned(banned) = std::mem::replace(mask, MaskSource::Host)
            {
                let mut mask = TokenMask::none(vocab);
                let allowed = |id: &u32| !banned.contains(id);
                (0..vocab as u32)
                    .filter(allowed)
                    .for_each(|id| mask.allow(id));
                brought.push(RowMask { row, mask });
            }
        }
    }
    backend.launch(slot, step).unwrap();
    if !brought.is_empty() {
        backend.finalize(slot, brought).unwrap();
    }
}
