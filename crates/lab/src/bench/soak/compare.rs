//! Likeness of two answers to one request. Pure.
//!
//! On the CPU an answer does not depend on what else is in a step: the same to the bit. On a GPU it does, a little. Other
//! numbers of rows choose other kernels and other algorithms of cuBLASLt, which add up in another order, and bf16 keeps three
//! digits: logits of some ten differ by up to a tenth or two between a request alone and the same one in a full step. Where
//! two choices are nearer than that, either may win, and everything behind it answers another question. So answers are
//! compared decision by decision, up to the first that differs, and that one is judged by how sure the model was:
//!
//! | first difference | verdict |
//! | --- | --- |
//! | none | same |
//! | a bin by one | near; what follows has other inputs, so a later difference proves nothing |
//! | a bin by more, nine tenths of the mass within two bins of the chosen one | wrong: any other bin is half as likely at most, a margin of 0.6 |
//! | one object more, at three quarters and above | wrong: a margin of 1.1 |
//! | a text, and one of the two is as a whole likelier than three quarters | wrong: each of its tokens had a margin of 1.1 |
//! | anything else | close: it could go either way |
//!
//! A mistake that matters, such as pages of another row, also changes decisions of which the model is sure. Random weights are
//! never sure, so with them only crashes, hangs and memory are tested; the report counts the answers of which the model was sure
//! throughout.

use spotter_engine::model::{ObjectBins, SequenceOutput};

/// Mass within two bins that makes a place sure.
const SURE_PLACE: f32 = 0.9;
/// Probability that makes a decision between two sure.
const SURE: f64 = 0.75;
/// Bins that may differ without a verdict on what follows.
const NEAR_BINS: u16 = 1;
/// Bins that the mass of [`SURE_PLACE`] is within.
const PEAK_BINS: u16 = 2;

/// How alike two answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    Same,
    /// Some bins differ by one.
    Near,
    /// A decision that could go either way did.
    Close,
    /// They differ where the model was sure.
    Wrong,
}

/// Compares the answer to a request `alone` with the one it got `beside` others. An `exact` device guarantees the same
/// answer to the bit, probabilities included.
pub fn compare(alone: &SequenceOutput, beside: &SequenceOutput, exact: bool) -> Likeness {
    match exact {
        true if alone == beside => Likeness::Same,
        true => Likeness::Wrong,
        false => texts(alone, beside).max(objects(alone, beside)),
    }
}

/// The model was sure of every decision that is remembered.
pub fn is_sure(found: &SequenceOutput) -> bool {
    let sure = |o: &ObjectBins| o.sharpness >= SURE_PLACE && f64::from(o.probability) >= SURE;
    match found.objects.is_empty() {
        false => found.objects.iter().all(sure),
        true => !found.tokens.is_empty() && probability(found) >= SURE,
    }
}

fn objects(alone: &SequenceOutput, beside: &SequenceOutput) -> Likeness {
    let mut worst = Likeness::Same;
    let judged = |near: Likeness, sure: bool| match (near, sure) {
        (Likeness::Same, true) => Likeness::Wrong,
        _ => Likeness::Close,
    };
    let pairs = alone.objects.iter().zip(&beside.objects);
    for (a, b) in pairs {
        match apart(a, b) {
            0 => {}
            1..=NEAR_BINS => worst = Likeness::Near,
            bins => {
                let sure = bins > PEAK_BINS && a.sharpness.max(b.sharpness) >= SURE_PLACE;
                return judged(worst, sure);
            }
        }
    }
    let common = alone.objects.len().min(beside.objects.len());
    let longer = [alone, beside]
        .into_iter()
        .find_map(|f| f.objects.get(common));
    match longer {
        Some(object) => judged(worst, f64::from(object.probability) >= SURE),
        None => worst,
    }
}

/// The largest difference of two objects' bins.
fn apart(a: &ObjectBins, b: &ObjectBins) -> u16 {
    let (a_size, b_size) = (
        a.size_bins.unwrap_or_default(),
        b.size_bins.unwrap_or_default(),
    );
    let pairs = [
        (a.x_bin, b.x_bin),
        (a.y_bin, b.y_bin),
        (a_size.0, b_size.0),
        (a_size.1, b_size.1),
    ];
    pairs
        .into_iter()
        .map(|(a, b)| a.abs_diff(b))
        .max()
        .unwrap_or(0)
}

fn texts(alone: &SequenceOutput, beside: &SequenceOutput) -> Likeness {
    match alone.tokens == beside.tokens {
        true => Likeness::Same,
        false if probability(alone).max(probability(beside)) >= SURE => Likeness::Wrong,
        false => Likeness::Close,
    }
}

/// Of the text as a whole, its end included.
fn probability(found: &SequenceOutput) -> f64 {
    found.log_probability.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(x_bin: u16, sharpness: f32, probability: f32) -> ObjectBins {
        ObjectBins {
            x_bin,
            y_bin: 400,
            size_bins: Some((300, 200)),
            probability,
            sharpness,
        }
    }

    fn boxes(objects: &[ObjectBins]) -> SequenceOutput {
        SequenceOutput {
            objects: objects.to_vec(),
            ..SequenceOutput::default()
        }
    }

    fn text(tokens: &[u32], probability: f64) -> SequenceOutput {
        SequenceOutput {
            tokens: tokens.to_vec(),
            log_probability: probability.ln(),
            ..SequenceOutput::default()
        }
    }

    #[track_caller]
    fn check(a: &SequenceOutput, b: &SequenceOutput, expected: Likeness) {
        for (a, b) in [(a, b), (b, a)] {
            assert_eq!(compare(a, b, false), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_difference_counts_where_the_model_was_sure() {
        let sure = |x| object(x, 0.97, 0.99);
        let vague = |x| object(x, 0.3, 0.6);
        let one = boxes(&[sure(500)]);
        for (other, expected) in [
            (&[object(500, 0.96, 0.98)][..], Likeness::Same),
            (&[sure(501)], Likeness::Near),
            (&[sure(502)], Likeness::Close),
            (&[sure(503)], Likeness::Wrong),
            (&[vague(700)], Likeness::Wrong),
            (&[], Likeness::Wrong),
            (&[sure(500), vague(3)], Likeness::Close),
        ] {
            check(&one, &boxes(other), expected);
        }
        let (one_vague, other) = (boxes(&[vague(600)]), boxes(&[vague(700)]));
        check(&one_vague, &other, Likeness::Close);
        assert!(is_sure(&one) && !is_sure(&boxes(&[vague(1)])) && !is_sure(&boxes(&[])));
    }

    #[test]
    fn differences_after_a_moved_bin_prove_nothing() {
        let sure = |x| object(x, 0.97, 0.99);
        let alone = boxes(&[sure(500), sure(100)]);
        check(&alone, &boxes(&[sure(501), sure(800)]), Likeness::Close);
        check(&alone, &boxes(&[sure(501)]), Likeness::Close);
        check(&alone, &boxes(&[sure(500), sure(800)]), Likeness::Wrong);
    }

    #[test]
    fn two_different_texts_cannot_both_be_likely() {
        check(&text(&[7, 8], 0.9), &text(&[7, 8], 0.7), Likeness::Same);
        check(&text(&[7, 8], 0.9), &text(&[7, 9], 0.2), Likeness::Wrong);
        check(&text(&[7, 8], 0.4), &text(&[7, 9], 0.38), Likeness::Close);
    }

    #[test]
    fn an_exact_device_gives_the_same_bits() {
        let [a, b] = [0.5, 0.500_001].map(|probability| boxes(&[object(5, 0.5, probability)]));
        assert_eq!(compare(&a, &a, true), Likeness::Same);
        assert_eq!(compare(&a, &b, true), Likeness::Wrong);
    }
}
