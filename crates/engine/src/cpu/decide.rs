//! From the hidden states of a step to decisions: first all logits, then, when its masks are there, each decision.

use super::{
    ops::{argmax, softmax},
    region::RegionModel,
    text::TextModel,
};
use crate::{
    model::BINS,
    scheduler::backend::{BackendError, MaskSource, Pick, PickResult, TokenMask, ValueTokens},
};

/// Bins to both sides of the chosen one that count as agreeing with it.
const NEIGHBOURS: usize = 2;

/// What decides: the heads of the decoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionHeads<'a> {
    pub text: &'a TextModel,
    pub region: &'a RegionModel,
}

impl DecisionHeads<'_> {
    /// What the heads say to each of `picks`. `hidden` is `[picks, width]`, before the final layer norm. Every head runs
    /// once, over the picks that need it; for the value of a token it runs when the token is known to have one.
    pub fn outputs(&self, picks: Vec<Pick>, hidden: &[f32]) -> Outputs {
        let (text, region, width) = (self.text, self.region, self.text.width());
        let normed = text.head_inputs(hidden);
        let rows = |wants: fn(&Pick) -> bool| HeadRows::of(&picks, wants);

        let ends = rows(|pick| matches!(pick, Pick::CoordOrEnd));
        let tokens = rows(Pick::is_token);
        let valued = rows(
            |pick| matches!(pick, Pick::Token { values, .. } if *values != ValueTokens::default()),
        );
        let coords = rows(|pick| matches!(pick, Pick::Coord | Pick::CoordOrEnd));
        let sizes = rows(|pick| matches!(pick, Pick::Size));
        Outputs {
            ends: ends.run(&normed, width, |x| text.on_or_end_logits(x)),
            tokens: tokens.run(&normed, width, |x| text.logits(x)),
            coords: coords.run(hidden, width, |x| region.decode_coords(x)),
            sizes: sizes.run(hidden, width, |x| region.decode_sizes(x)),
            hidden: valued.run(hidden, width, <[f32]>::to_vec),
            picks,
        }
    }
}

/// Logits of a step, from which its decisions are made.
#[derive(Debug)]
pub(super) struct Outputs {
    picks: Vec<Pick>,
    ends: Logits,
    tokens: Logits,
    coords: Logits,
    sizes: Logits,
    /// Hidden states behind which a token with a value may be chosen.
    hidden: Logits,
}

impl Outputs {
    /// Decision `index`. A token that wants a mask of the host is not decided without one. An error means that the
    /// hidden state was not made of numbers: something was read that was never written.
    pub fn decide(
        &self,
        index: usize,
        mask: Option<&TokenMask>,
        region: &RegionModel,
    ) -> Result<PickResult, BackendError> {
        let coords = self.coords.row(index);
        let picked = match &self.picks[index] {
            Pick::Coord => coord(coords, 1.0),
            Pick::CoordOrEnd => {
                let logits = self.ends.row(index);
                coord_or_end(coords, logits[0], logits[1])
            }
            Pick::Size => size(self.sizes.row(index), 1.0),
            Pick::Token {
                mask: source,
                values,
            } => {
                let allowed = match (source, mask) {
                    (MaskSource::Banned(banned), _) => AllowedTokens::AllBut(banned),
                    (MaskSource::Host, Some(mask)) => AllowedTokens::Only(mask),
                    (MaskSource::Host, None) => return Ok(PickResult::Nothing),
                };
                let logits = self.tokens.row(index);
                let id = token(logits, allowed);
                let (probability, hidden) = (probabilities(logits)[id], self.hidden.row(index));
                let id = id as u32;
                match Some(id) {
                    id if id == values.coord => coord(&region.decode_coords(hidden), probability),
                    id if id == values.size => size(&region.decode_sizes(hidden), probability),
                    _ => PickResult::Token { id, probability },
                }
            }
        };
        match is_number(&picked) {
            true => Ok(picked),
            false => Err(BackendError::Step(format!(
                "decision {index} of the step came from values that are not numbers; a page was read that was never written, or the weights are damaged"
            ))),
        }
    }
}

#[derive(Debug)]
struct Logits {
    rows: HeadRows,
    /// `[rows, outputs]`.
    values: Vec<f32>,
}

impl Logits {
    /// Of row `row` of the step; empty when the head does not serve it.
    fn row(&self, row: usize) -> &[f32] {
        let outputs = self.values.len() / self.rows.rows.len().max(1);
        match self.rows.rows.binary_search(&row) {
            Ok(place) => &self.values[place * outputs..][..outputs],
            Err(_) => &[],
        }
    }
}

/// The rows of a step that one head serves, in ascending order.
#[derive(Debug)]
struct HeadRows {
    rows: Vec<usize>,
}

impl HeadRows {
    fn of(picks: &[Pick], wants: fn(&Pick) -> bool) -> Self {
        let rows = (0..picks.len()).filter(|&row| wants(&picks[row]));
        Self {
            rows: rows.collect(),
        }
    }

    /// What `head` makes of their part of `[all rows, width]`.
    fn run(self, values: &[f32], width: usize, head: impl Fn(&[f32]) -> Vec<f32>) -> Logits {
        let rows = self.rows.iter().map(|row| &values[row * width..][..width]);
        let inputs: Vec<f32> = rows.flatten().copied().collect();
        let values = head(&inputs);
        Logits { rows: self, values }
    }
}

fn is_number(picked: &PickResult) -> bool {
    match *picked {
        PickResult::End { probability } | PickResult::Token { probability, .. } => {
            !probability.is_nan()
        }
        PickResult::Coord {
            probability,
            sharpness,
            ..
        }
        | PickResult::Size {
            probability,
            sharpness,
            ..
        } => !probability.is_nan() && !sharpness.is_nan(),
        PickResult::Nothing => true,
    }
}

/// Goes on unless the end's logit is the larger one.
fn coord_or_end(bins: &[f32], on: f32, end: f32) -> PickResult {
    let probability = (1.0 + (end - on).exp()).recip();
    if end > on {
        PickResult::End {
            probability: 1.0 - probability,
        }
    } else {
        coord(bins, probability)
    }
}

fn coord(bins: &[f32], probability: f32) -> PickResult {
    let bin = argmax(bins);
    PickResult::Coord {
        bin: bin as u16,
        probability,
        sharpness: sharpness(bins, bin),
    }
}

fn size(bins: &[f32], probability: f32) -> PickResult {
    let (widths, heights) = bins.split_at(BINS);
    let (width, height) = (argmax(widths), argmax(heights));
    PickResult::Size {
        width_bin: width as u16,
        height_bin: height as u16,
        probability,
        sharpness: sharpness(widths, width).min(sharpness(heights, height)),
    }
}

/// Probability mass of `bin` and its neighbours.
fn sharpness(logits: &[f32], bin: usize) -> f32 {
    let end = logits.len().min(bin + NEIGHBOURS + 1);
    probabilities(logits)[bin.saturating_sub(NEIGHBOURS)..end]
        .iter()
        .sum()
}

fn probabilities(logits: &[f32]) -> Vec<f32> {
    let mut probabilities = logits.to_vec();
    softmax(&mut probabilities);
    probabilities
}

/// The tokens that may be chosen.
#[derive(Clone, Copy, Debug)]
enum AllowedTokens<'a> {
    AllBut(&'a [u32]),
    Only(&'a TokenMask),
}

/// The largest logit of those that are allowed; the lowest id among equals.
fn token(logits: &[f32], ids: AllowedTokens<'_>) -> usize {
    let mut allowed = logits.to_vec();
    match ids {
        AllowedTokens::AllBut(banned) => banned
            .iter()
            .for_each(|&id| allowed[id as usize] = f32::NEG_INFINITY),
        AllowedTokens::Only(mask) => {
            let ids = (0..).zip(&mut allowed);
            ids.filter(|(id, _)| !mask.allows(*id))
                .for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        }
    }
    argmax(&allowed)
}

#[cfg(test)]
mod tests;
