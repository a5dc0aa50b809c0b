//! Which marks belong together: those of one prompt as it is asked and confirmed.

use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};
use spotter_config::PromptConfig;
use spotter_core::PromptRegion;

/// Bytes of a digest: two of the thousand series of a box are the same one once in 10^13 boxes.
const DIGEST_BYTES: usize = 8;

/// What the alarms of a prompt depend on, as a digest to store and to compare: a stored series has no words of its prompt. After a change of any
/// of it, marks of before say nothing about the alarms that come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series(String);

/// What answers the prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweringModel {
    /// Its name and weights, as messages have it.
    pub name: Arc<str>,
    /// The number format that it runs in.
    pub precision: Arc<str>,
}

#[derive(Serialize)]
struct SeriesParts<'a> {
    kind: &'static str,
    words: &'a str,
    verify: Option<&'a str>,
    adapter: Option<&'a str>,
    model: &'a str,
    precision: &'a str,
    region: String,
    crops: Option<u8>,
    confirm: (u32, u32),
    min_score: f64,
}

impl Series {
    pub fn new(prompt: &PromptConfig, model: &AnsweringModel) -> Self {
        let region = match prompt.region {
            PromptRegion::Whole => "whole".to_owned(),
            PromptRegion::Motion => "motion".to_owned(),
            PromptRegion::Fixed(part) => {
                let part = part.norm_box();
                let sides = [part.x0, part.y0, part.x1, part.y1];
                sides.map(|side| format!("{side:.4}")).join(",")
            }
        };
        let parts = SeriesParts {
            kind: prompt.task.kind(),
            words: prompt.task.text(),
            verify: prompt.verify.as_deref(),
            adapter: prompt.adapter.as_ref().map(|adapter| adapter.as_str()),
            model: &model.name,
            precision: &model.precision,
            region,
            crops: prompt.crops_max,
            confirm: prompt.events.confirm,
            min_score: prompt.min_score.get(),
        };
        let digest = Sha256::digest(serde_json::json!(parts).to_string());
        let digits = digest.iter().take(DIGEST_BYTES);
        Self(digits.map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spotter_config::testing::prompt;
    use spotter_core::{NormBox, RegionBox, ZoneId, testing::share};

    use super::*;

    #[test]
    fn series_changes_with_what_alarms_depend_on_alone() {
        let person = prompt("person");
        let with = |prompt: &PromptConfig, name: &str, precision: &str| {
            let [name, precision] = [name, precision].map(Arc::from);
            Series::new(prompt, &AnsweringModel { name, precision })
        };
        let of = |prompt: &PromptConfig| with(prompt, "moondream2-4bd7", "int8");
        let mut others = vec![person.clone(); 7];
        others[0].task = prompt("human").task;
        others[1].min_score = share(0.5);
        others[2].events.confirm = (3, 5);
        others[3].crops_max = Some(1);
        others[4].region = PromptRegion::Motion;
        let part = NormBox::from_corners(0.1, 0.2, 0.3, 0.4);
        others[5].region = PromptRegion::Fixed(RegionBox::new(part));
        others[6].verify = Some("Is it a person?".into());
        let mut all = Vec::from_iter(others.iter().map(of));
        all.extend([
            of(&person),
            with(&person, "moondream2-0000", "int8"),
            with(&person, "moondream2-4bd7", "bf16"),
        ]);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 10);
        let mut same = person.clone();
        same.zones = vec![ZoneId::new("drive").unwrap()];
        (same.revision, same.snapshot) = (7, true);
        same.events.end_after = Duration::from_secs(9);
        assert_eq!(of(&same), of(&person));
    }
}
