//! Decisions on the reference's way ([`golden_run`](super::golden_run)) counted against the reference's own.
//!
//! Belongs here: when a decision is right, and when its margin is too small for bf16 to decide it. Not here: which sets are
//! counted.

use serde_json::Value;

use super::{
    figures::rms,
    golden_run::{Ask, ReferenceRun, Seen},
};
use crate::{
    model::{ModelConfig, coord_from_bin},
    scheduler::backend::PickResult,
};

/// A decision beside the reference's.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedDecision {
    /// Which, what was decided, what the reference decides, and its margin.
    pub what: String,
    /// The same; a bin may be one off.
    pub right: bool,
    /// The reference's margin (logit of the best less that of the second) is so small that bf16 may choose either.
    pub open: bool,
}

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Those that are right.
    pub right: usize,
    pub of: usize,
}

impl Share {
    pub fn of(right: impl IntoIterator<Item = bool>) -> Self {
        right
            .into_iter()
            .fold(Self::default(), |share, right| Self {
                right: share.right + usize::from(right),
                of: share.of + 1,
            })
    }

    pub fn wrong(self) -> usize {
        self.of - self.right
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = self.right as f64 * 100.0 / self.of.max(1) as f64;
        write!(f, "{} of {} ({percent:.1} %)", self.right, self.of)
    }
}

/// Two logits may each be off by `error` (in parts of all logits' rms), in opposite directions.
fn is_open(margin: f64, error: f64, logits: &[f32]) -> bool {
    margin < 2.0 * error * rms(logits)
}

/// The bins of a point or detect case in their order: x, y (, w, h) of each object. `error` is the largest that logits of
/// the reference in bf16 have.
pub fn bins(expected: &Value, followed: &ReferenceRun, error: f64) -> Vec<ComparedDecision> {
    let mut bins = Vec::new();
    for Seen {
        ask,
        picked,
        logits,
    } in &followed.seen
    {
        let (object, got): (usize, &[(&str, u16)]) = match (*ask, *picked) {
            (Ask::X(object), PickResult::Coord { bin, .. }) => (object, &[("x", bin)]),
            (Ask::Y(object), PickResult::Coord { bin, .. }) => (object, &[("y", bin)]),
            (Ask::Size(object), picked) => {
                let PickResult::Size {
                    width_bin,
                    height_bin,
                    ..
                } = picked
                else {
                    panic!("a size was asked for, got {picked:?}");
                };
                (object, &[("w", width_bin), ("h", height_bin)])
            }
            (Ask::Token(_), _) => continue,
            (ask, picked) => panic!("asked for {ask:?}, got {picked:?}"),
        };
        let wanted = &expected["objects"][object];
        for (key, bin) in got {
            let want = wanted[format!("{key}_bin")].as_u64().unwrap();
            let margin = wanted[format!("{key}_margin")].as_f64().unwrap();
            bins.push(ComparedDecision {
                what: format!("{key} of object {object}: {bin}, wants {want}, margin {margin:.3}"),
                right: want.abs_diff(u64::from(*bin)) <= 1,
                open: is_open(margin, error, logits),
            });
        }
    }
    bins
}

/// The other decisions of a case: tokens, or the end against the next object. `error` as in [`bins`].
pub fn choices(
    expected: &Value,
    followed: &ReferenceRun,
    error: f64,
    config: &ModelConfig,
) -> Vec<ComparedDecision> {
    let choice = |seen: &Seen| {
        let Ask::Token(i) = seen.ask else { return None };
        let (got, want, margin) = match expected["decisions"].get(i) {
            Some(decision) => {
                let ids = &config.tokenizer;
                let logit = |id: u32| seen.logits[id as usize];
                let on = decision["coord_minus_eos"].as_f64().unwrap();
                let goes_on = logit(ids.coord_id) >= logit(ids.eos_id);
                (u32::from(goes_on), u32::from(on >= 0.0), on.abs())
            }
            None => {
                let phase = &expected["phases"][0];
                let id = phase["tokens"].get(i).unwrap_or(&phase["next_token"]);
                let PickResult::Token { id: got, .. } = seen.picked else {
                    panic!("a token was asked for, got {:?}", seen.picked);
                };
                let margin = phase["margins"][i].as_f64().unwrap();
                (got, id.as_u64().unwrap() as u32, margin)
            }
        };
        Some(ComparedDecision {
            what: format!("choice {i}: {got}, wants {want}, margin {margin:.3}"),
            right: got == want,
            open: is_open(margin, error, &seen.logits),
        })
    };
    followed.seen.iter().filter_map(choice).collect()
}

/// Which bins of a case are right in the reference's own run in bf16, of which only the `output` is known. It goes its own
/// way, so this ends behind the first decision that is not exactly as in f32.
pub fn reference_bins(expected: &Value, output: &Value) -> Vec<bool> {
    let objects = expected["objects"].as_array().unwrap();
    let run = output.get("objects").or(output.get("points")).unwrap();
    let mut right = Vec::new();
    for (object, run) in objects.iter().zip(run.as_array().unwrap()) {
        let got = bins_of(run);
        let want = ["x_bin", "y_bin", "w_bin", "h_bin"].map(|key| object[key].as_f64());
        let pairs: Vec<(f64, f64)> = got.into_iter().zip(want.into_iter().flatten()).collect();
        for decision in [pairs.get(..1), pairs.get(1..2), pairs.get(2..)] {
            let decision = decision.unwrap();
            right.extend(decision.iter().map(|(got, want)| (got - want).abs() <= 1.0));
            if decision.iter().any(|(got, want)| got != want) {
                return right;
            }
        }
    }
    right
}

/// x, y (, w, h) bins of a point or box of an output.
fn bins_of(output: &Value) -> Vec<f64> {
    let value = |key: &str| output[key].as_f64();
    let coord = |value: f64| (value / coord_from_bin(1)).round();
    if let (Some(x), Some(y)) = (value("x"), value("y")) {
        return vec![coord(x), coord(y)];
    }
    let side = |axis: &str| {
        let end = |which: &str| value(&format!("{axis}_{which}")).unwrap();
        (end("min"), end("max"))
    };
    let sides = [side("x"), side("y")];
    let centres = sides.map(|(min, max)| coord(f64::midpoint(min, max)));
    // The inverse of `size_from_bin`.
    let sizes = sides.map(|(min, max)| (((max - min).log2() + 10.0) / 10.0 * 1023.0).round());
    [centres, sizes].concat()
}

#[test]
fn bins_come_out_of_boxes() {
    let (w, h) = (
        crate::model::size_from_bin(489),
        crate::model::size_from_bin(1023),
    );
    let output = serde_json::json!({
        "x_min": coord_from_bin(50) - w / 2.0, "x_max": coord_from_bin(50) + w / 2.0,
        "y_min": coord_from_bin(626) - h / 2.0, "y_max": coord_from_bin(626) + h / 2.0,
    });
    assert_eq!(bins_of(&output), [50.0, 626.0, 489.0, 1023.0]);
    assert_eq!(
        bins_of(&serde_json::json!({"x": 0.5, "y": 0.25})),
        [512.0, 256.0]
    );
}

#[test]
fn reference_bins_count_up_to_the_first_difference() {
    let expected = serde_json::json!({"objects": [
        {"x_bin": 512, "y_bin": 256}, {"x_bin": 512, "y_bin": 256}, {"x_bin": 1, "y_bin": 1},
    ]});
    let point =
        |x: u16, y: u16| serde_json::json!({"x": coord_from_bin(x), "y": coord_from_bin(y)});
    let run = |points: &[Value]| reference_bins(&expected, &serde_json::json!({"points": points}));
    assert_eq!(run(&[point(512, 256), point(512, 256)]), [true; 4]);
    assert_eq!(run(&[point(512, 257), point(512, 256)]), [true; 2]);
    assert_eq!(run(&[point(512, 256), point(9, 256)]), [true, true, false]);
}

#[test]
fn a_decision_is_right_open_or_wrong() {
    let expected = serde_json::json!({"objects": [
        {"x_bin": 3, "x_margin": 0.5, "y_bin": 9, "y_margin": 1.5},
    ]});
    let seen = |ask, bin| Seen {
        ask,
        picked: PickResult::Coord {
            bin,
            probability: 1.0,
            sharpness: 1.0,
        },
        logits: vec![-5.0, 5.0],
    };
    let followed = ReferenceRun {
        prompt: Vec::new(),
        seen: vec![seen(Ask::X(0), 4), seen(Ask::Y(0), 11)],
    };
    let bins = bins(&expected, &followed, 0.1);
    let found: Vec<_> = bins.iter().map(|bin| (bin.right, bin.open)).collect();
    assert_eq!(found, [(true, true), (false, false)]);
    let share = Share::of(bins.iter().map(|bin| bin.right));
    assert_eq!((share.right, share.of, share.wrong()), (1, 2, 1));
}
