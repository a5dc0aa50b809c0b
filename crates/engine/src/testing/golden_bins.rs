//! `md2-bins` and `md3-bins`: decisions where each is fed with the reference's values, or with given ones, so that each counts by itself.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    golden_model::{job, picture, row, run_step, tokens},
    json,
};
use crate::{
    model::DecoderInput,
    scheduler::backend::{Backend, Feed, ImageJob, Pick, PickResult, Step},
};

/// The upper ends of bands of margins: the reference's two best logits, apart in shares of the rms of all.
const BANDS: [f64; 5] = [0.02, 0.05, 0.1, 0.2, f64::INFINITY];

/// Decisions, and how many of them are the reference's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Equal {
    pub equal: usize,
    pub all: usize,
}

/// Of all cases of a set.
#[derive(Clone, Debug, Default)]
pub struct BinShares {
    /// By band, the smallest margins first.
    pub bands: [Equal; BANDS.len()],
    /// Coordinate against end.
    pub signs: Equal,
    /// The largest margin at which a bin differs.
    pub largest_margin: f64,
}

/// The folder of the weights' rule and the configuration of a set of bins.
pub fn network_of(set: &Path) -> PathBuf {
    let about = json(&set.join("weights.json"));
    let rule = set.join(about["weights_rule"].as_str().unwrap());
    rule.parent().unwrap().to_owned()
}

impl Equal {
    pub fn percent(&self) -> f64 {
        100.0 * self.equal as f64 / self.all as f64
    }

    fn count(&mut self, is_equal: bool) {
        self.all += 1;
        self.equal += usize::from(is_equal);
    }
}

impl BinShares {
    /// Of the set in this folder, on a backend with its network.
    pub fn of(backend: &mut dyn Backend, set: &Path) -> Self {
        let bins = json(&set.join("expected/bins.json"));
        let mut shares = Self::default();
        for (image, about) in bins["images"].as_object().unwrap() {
            let mut image = Some(job(backend, picture(set, image)));
            for case in about["cases"].as_object().unwrap().values() {
                shares.add(backend, image.take(), &case["expected"]);
            }
        }
        shares
    }

    pub fn bins(&self) -> Equal {
        let sum = |of: fn(&Equal) -> usize| self.bands.iter().map(of).sum();
        Equal {
            equal: sum(|band| band.equal),
            all: sum(|band| band.all),
        }
    }

    /// Bins of the band of the largest margins that are not the reference's.
    pub fn different_in_last_band(&self) -> usize {
        let last = self.bands[BANDS.len() - 1];
        last.all - last.equal
    }

    /// One step: the image, unless it is in the cache, and two rows with all that is fed. One decides x where the other decides between x
    /// and the end.
    fn add(&mut self, backend: &mut dyn Backend, image: Option<ImageJob>, expected: &Value) {
        let ids: Vec<u32> = serde_json::from_value(expected["prompt_ids"].clone()).unwrap();
        let objects = expected["objects"].as_array().unwrap();
        let (mut inputs, mut picks) = (tokens(&ids), vec![Pick::Coord]);
        for object in objects {
            let fed = match &object["fed"] {
                Value::Null => object,
                fed => fed,
            };
            let bin = |name: &str| fed[name].as_f64().map(|bin| bin as f32);
            inputs.extend(["x_bin", "y_bin"].map(|name| {
                let bin = bin(name).unwrap();
                DecoderInput::Coord(bin / 1024.0)
            }));
            picks.push(Pick::Coord);
            if let (Some(width), Some(height)) = (bin("w_bin"), bin("h_bin")) {
                let [width, height] =
                    [width, height].map(|bin| (bin / 1023.0 * 10.0 - 10.0).exp2());
                inputs.push(DecoderInput::Size(width, height));
                picks.push(Pick::Size);
            }
            picks.push(Pick::Coord);
        }
        let of_object = (picks.len() - 1).checked_div(objects.len()).unwrap_or(1);
        let starts = |pick: usize| pick.is_multiple_of(of_object);
        let or_end: Vec<Pick> = picks
            .iter()
            .enumerate()
            .map(|(i, pick)| match starts(i) {
                true => Pick::CoordOrEnd,
                false => pick.clone(),
            })
            .collect();
        let rows = [picks, or_end].into_iter().enumerate();
        let rows = rows.map(|(index, picks)| {
            let inputs = Feed::Host(inputs.clone());
            row(backend, index, 0, inputs, &picks)
        });
        let rows = rows.collect();
        let step = Step {
            images: image.into_iter().collect(),
            rows,
        };
        let picked = run_step(backend, step).picked;
        for (object, found) in objects.iter().zip(picked[0].chunks(of_object)) {
            self.count_object(object, found);
        }
        let decisions = expected["decisions"].as_array().unwrap().iter();
        for (wanted, found) in decisions.zip(picked[1].iter().step_by(of_object)) {
            let goes_on = wanted["coord_minus_eos"].as_f64().unwrap() >= 0.0;
            let found = matches!(found, PickResult::Coord { .. });
            self.signs.count(goes_on == found);
        }
    }

    fn count_object(&mut self, object: &Value, found: &[PickResult]) {
        let names: &[&str] = &["x", "y", "w", "h"];
        let bins = found.iter().flat_map(|found| match *found {
            PickResult::Coord { bin, .. } => vec![bin],
            PickResult::Size {
                width_bin,
                height_bin,
                ..
            } => vec![width_bin, height_bin],
            _ => panic!("{found:?} where a bin is picked"),
        });
        for (name, bin) in names.iter().zip(bins) {
            let number = |what: &str| object[format!("{name}_{what}")].as_f64().unwrap();
            let (margin, is_equal) = (
                number("margin") / number("rms"),
                number("bin") == f64::from(bin),
            );
            let band = BANDS.iter().position(|end| margin < *end).unwrap();
            self.bands[band].count(is_equal);
            if !is_equal {
                self.largest_margin = self.largest_margin.max(margin);
            }
        }
    }
}

impl fmt::Display for BinShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bands = self
            .bands
            .map(|band| format!("{}/{}", band.equal, band.all));
        write!(
            f,
            "{:.1} % of {} bins equal ({}), the largest margin of others {:.3}; {} of {} signs",
            self.bins().percent(),
            self.bins().all,
            bands.join(", "),
            self.largest_margin,
            self.signs.equal,
            self.signs.all
        )
    }
}
