//! Answers whose truth is known become maps of scores, and maps become part of `model.toml`. Pure but for the file.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use spotter_config::{ModelSettings, ModelSource};
use spotter_core::{
    ModelRecord, RecordedScoreMap, ScoreMap, ScoreMapError, ScoreMaps, ScoredAnswer, ScoredKind,
};
use spotter_engine::open::ModelCard;
use spotter_street::score::{Calibration, CalibrationBin};

use crate::cli::out::remark;

/// Parts into which the pictures are divided: the map of all but one is tested on that one.
const PARTS: usize = 5;

/// Answers with what is known of them, by kind. Empty by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoredAnswers {
    /// With the number of the picture.
    of_kind: BTreeMap<ScoredKind, Vec<(usize, ScoredAnswer)>>,
}

impl ScoredAnswers {
    pub fn add(&mut self, kind: ScoredKind, picture: usize, answer: ScoredAnswer) {
        self.of_kind
            .entry(kind)
            .or_default()
            .push((picture, answer));
    }

    /// A map for each kind that has answers, or why there is none. `recorded` are the maps that the model has already.
    pub fn fit(&self, recorded: &ScoreMaps) -> Vec<ScoreFit> {
        let fits = self.of_kind.iter();
        fits.map(|(kind, answers)| ScoreFit::of(*kind, answers, recorded.get(kind)))
            .collect()
    }
}

/// How well scores of one kind say how often answers are right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreFit {
    pub kind: ScoredKind,
    pub answers: usize,
    /// Mean gap between the model's own probability and the share of right answers.
    pub error_before: f64,
    /// The same of mapped scores, each of a map that was made without its picture; `None` when too few answers are left for such
    /// maps.
    pub error_after: Option<f64>,
    /// The same of the map that `model.toml` has, if it has one.
    pub error_recorded: Option<f64>,
    /// By mapped score, where they are known.
    pub bins: Vec<CalibrationBin>,
    #[serde(skip)]
    pub map: Result<ScoreMap, ScoreMapError>,
}

impl ScoreFit {
    fn of(
        kind: ScoredKind,
        answers: &[(usize, ScoredAnswer)],
        recorded: Option<&ScoreMap>,
    ) -> Self {
        let with = |score: &dyn Fn(f64) -> f64| {
            let mut calibration = Calibration::default();
            for (_, answer) in answers {
                calibration.add(score(answer.probability), answer.right);
            }
            calibration
        };
        let before = with(&|probability| probability);
        let recorded = recorded.map(|map| with(&|probability| map.share(probability)));
        let after = mapped_by_others(answers);
        let all = answers.iter().map(|(_, answer)| *answer);
        Self {
            kind,
            answers: answers.len(),
            error_before: before.error().unwrap_or_default(),
            error_after: after.as_ref().and_then(Calibration::error),
            error_recorded: recorded.and_then(|recorded| recorded.error()),
            bins: after.unwrap_or(before).bins(),
            map: ScoreMap::fit(all.collect()),
        }
    }
}

/// Each answer with the score of a map that was made of the other parts' pictures.
fn mapped_by_others(answers: &[(usize, ScoredAnswer)]) -> Option<Calibration> {
    let mut after = Calibration::default();
    for part in 0..PARTS {
        let (here, others): (Vec<_>, Vec<_>) = answers
            .iter()
            .partition(|(picture, _)| picture % PARTS == part);
        let others = others.into_iter().map(|(_, answer)| answer);
        let map = ScoreMap::fit(others.collect()).ok()?;
        for (_, answer) in here {
            after.add(map.share(answer.probability), answer.right);
        }
    }
    Some(after)
}

impl fmt::Display for ScoreFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, answers) = (self.kind.name(), self.answers);
        write!(
            f,
            "scores of {kind}: {answers} answers; mean gap to the share that is right {:.3}",
            self.error_before
        )?;
        if let Some(recorded) = self.error_recorded {
            write!(f, ", with the map of model.toml {recorded:.3}")?;
        }
        match (&self.map, self.error_after) {
            (Err(error), _) => return write!(f, "; {error}"),
            (Ok(_), None) => write!(f, "; the map could not be tested with so few")?,
            (Ok(_), Some(after)) => write!(f, ", with a map of these pictures {after:.3}")?,
        }
        for CalibrationBin {
            from,
            answers,
            score,
            right,
        } in &self.bins
        {
            write!(
                f,
                "\n  from {from:.2}: {answers:>6} answers, mean score {score:.3}, right {right:.3}"
            )?;
        }
        Ok(())
    }
}

/// The directory whose record gets the maps.
pub fn model_directory(settings: &ModelSettings) -> anyhow::Result<PathBuf> {
    match &settings.source {
        ModelSource::Directory(directory) => Ok(directory.clone()),
        ModelSource::Embedded => bail!(
            "the embedded model has no directory for --write; run `spotter model get moondream2`, or name a model directory with --model"
        ),
    }
}

/// Writes the maps that there are into the record of a model directory, beside those of other kinds and precisions, and says which.
/// Blocks on the disk.
pub fn write_maps(directory: &Path, card: &ModelCard, fits: &[ScoreFit]) -> anyhow::Result<()> {
    let mut record = ModelRecord::read(directory)?.unwrap_or_else(|| ModelRecord {
        model: card.family.to_string(),
        hub: None,
        files: Vec::new(),
        licences: Vec::new(),
        score_maps: Vec::new(),
    });
    let mut kinds = Vec::new();
    for fit in fits {
        if let Ok(points) = &fit.map {
            record.set_score_map(RecordedScoreMap {
                kind: fit.kind,
                precision: card.score_precision(),
                weights_sha256: card.sha256.clone(),
                answers: fit.answers,
                points: points.clone(),
            });
            kinds.push(fit.kind.name());
        }
    }
    ensure!(
        !kinds.is_empty(),
        "no map of scores was made: too few answers"
    );
    let path = directory.join(ModelRecord::FILE);
    let path = path.display();
    record
        .write(directory)
        .with_context(|| format!("writing {path}"))?;
    remark(format_args!(
        "{path}: written; from the next start on, scores of {} in {} are the share of such answers that is right",
        kinds.join(", "),
        card.score_precision().name()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing;
    use spotter_core::GpuPrecision;

    fn answer(nth: usize) -> ScoredAnswer {
        // Always sure, and wrong in one of four.
        ScoredAnswer {
            probability: 0.99,
            right: f64::from(u8::from(!nth.is_multiple_of(4))),
        }
    }

    #[test]
    fn maps_are_tested_on_pictures_they_have_not_seen() {
        let mut answers = ScoredAnswers::default();
        (0..400).for_each(|nth| answers.add(ScoredKind::Detect, nth / 2, answer(nth)));
        let [fit] = answers.fit(&ScoreMaps::default()).try_into().unwrap();
        assert!((fit.error_before - 0.24).abs() < 0.001, "{fit:?}");
        assert!(fit.error_after.unwrap() < 0.02, "{fit:?}");
        assert!((fit.map.unwrap().share(0.99) - 0.75).abs() < 0.01);
    }

    #[test]
    fn few_answers_are_reported_and_not_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let mut answers = ScoredAnswers::default();
        (0..110).for_each(|nth| answers.add(ScoredKind::Query, nth, answer(nth)));
        (0..20).for_each(|nth| answers.add(ScoredKind::Point, nth, answer(nth)));
        let fits = answers.fit(&ScoreMaps::default());
        let card = ModelCard {
            sha256: "abc".into(),
            precision: "int8".into(),
            ..testing::card()
        };
        write_maps(folder.path(), &card, &fits).unwrap();
        let read = ModelRecord::read(folder.path()).unwrap().unwrap();
        let maps = read.score_maps("abc", GpuPrecision::Int8);
        assert!(maps.keys().eq(&[ScoredKind::Query]));
        let texts: Vec<String> = fits.iter().map(ScoreFit::to_string).collect();
        assert!(texts[0].contains("20 answers are too few"), "{texts:?}");
        assert!(texts[1].contains("could not be tested"), "{texts:?}");
    }
}
