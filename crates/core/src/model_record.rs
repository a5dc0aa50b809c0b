//! `model.toml`: which files a fetched model has, where they come from, and their hashes; how often its answers are right. `spotter model get`
//! writes the files, `spotter eval` and `spotter compare` the maps of scores; the loader compares the files and uses the maps.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    FileReaders, GpuPrecision, ScoreMap, ScoreMaps, ScoredKind, read_short_file, write_file_for,
};

const HEAD: &str = "# Written by `spotter model get` and `spotter eval`. Spotter compares the files with it when it loads the model, and maps scores.\n\n";
/// No record is longer, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// The contents of a `model.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// The name that `spotter model get` was given, else that of the family. It decides the family.
    pub model: String,
    /// URL of the hub that the files were fetched from, without a login; `None` when their source is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Empty without a hub.
    #[serde(default, rename = "file", skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RecordedFile>,
    #[serde(default, rename = "licence", skip_serializing_if = "Vec::is_empty")]
    pub licences: Vec<AcceptedLicence>,
    #[serde(default, rename = "score_map", skip_serializing_if = "Vec::is_empty")]
    pub score_maps: Vec<RecordedScoreMap>,
}

/// A licence that the user accepted when the model was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedLicence {
    /// Repository on the hub.
    pub repository: String,
    /// Its licence file.
    pub file: String,
    /// Of that file; hex, lower case.
    pub sha256: String,
    /// UTC, like `2026-11-27`.
    pub accepted: String,
}

/// A map of scores, with what it was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedScoreMap {
    pub kind: ScoredKind,
    pub precision: GpuPrecision,
    /// Hash of the weights, hex, lower case: the map is of no others.
    pub weights_sha256: String,
    /// The number of answers that it was made of.
    pub answers: usize,
    /// Probabilities of the model and the shares of right answers.
    pub points: ScoreMap,
}

/// One file of a fetched model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFile {
    pub name: String,
    /// Repository on the hub.
    pub repository: String,
    /// The revision that was asked for, and the commit that it was.
    pub revision: String,
    pub commit: String,
    /// The repository's licence as the hub names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Hex, lower case.
    pub sha256: String,
}

/// Why a `model.toml` says nothing about a model.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ModelRecordError {
    path: PathBuf,
    reason: String,
}

/// A file that is not the recorded one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileMismatch(String);

impl ModelRecord {
    /// Name of the file in a model directory.
    pub const FILE: &str = "model.toml";

    /// The record in a model directory; `None` when it has none. Blocks on the disk.
    pub fn read(directory: &Path) -> Result<Option<Self>, ModelRecordError> {
        let path = directory.join(Self::FILE);
        let parsed = match read_short_file(&path, MAX_BYTES) {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => Self::parse(&text),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        match parsed {
            Ok(record) => Ok(Some(record)),
            Err(reason) => Err(ModelRecordError { path, reason }),
        }
    }

    /// Replaces the record of a model directory. Blocks on the disk.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        let text = format!("{HEAD}{text}");
        write_file_for(
            FileReaders::Everyone,
            &directory.join(Self::FILE),
            text.as_bytes(),
        )
    }

    /// The maps for these weights in this precision.
    pub fn score_maps(&self, weights_sha256: &str, precision: GpuPrecision) -> ScoreMaps {
        let maps = self
            .score_maps
            .iter()
            .filter(|map| map.weights_sha256 == weights_sha256 && map.precision == precision);
        maps.map(|map| (map.kind, map.points.clone())).collect()
    }

    /// Replaces the map of the same kind and precision; those of other weights are removed.
    pub fn set_score_map(&mut self, map: RecordedScoreMap) {
        self.score_maps.retain(|old| {
            let is_same = (old.kind, old.precision) == (map.kind, map.precision);
            old.weights_sha256 == map.weights_sha256 && !is_same
        });
        self.score_maps.push(map);
    }

    fn parse(text: &str) -> Result<Self, String> {
        let record: Self =
            toml::from_str(text).map_err(|error| format!("is no record of a model: {error}"))?;
        if record.hub.is_some() == record.files.is_empty() {
            return Err("is no record of a model: a hub and files belong together".into());
        }
        let mut names = BTreeSet::new();
        for file in &record.files {
            let is_plain = Path::new(&file.name).file_name() == Some(file.name.as_ref());
            if !is_plain || !names.insert(&file.name) {
                return Err(format!(
                    "{:?} is not the name of one file of this directory",
                    file.name
                ));
            }
        }
        Ok(record)
    }

    fn file(&self, name: &str) -> Result<&RecordedFile, FileMismatch> {
        let found = self.files.iter().find(|file| file.name == name);
        found.ok_or_else(|| FileMismatch(format!("{name} is not recorded in {}", Self::FILE)))
    }

    /// Is a file of this name with `size` bytes the recorded one, as far as its size says?
    pub fn check_size(&self, name: &str, size: u64) -> Result<(), FileMismatch> {
        let recorded = self.file(name)?.size;
        if size == recorded {
            return Ok(());
        }
        Err(FileMismatch(format!(
            "{name} has {size} bytes, {} records {recorded}",
            Self::FILE
        )))
    }

    /// Is a file of this name with this hash (lower-case hex) the recorded one?
    pub fn check_sha256(&self, name: &str, sha256: &str) -> Result<(), FileMismatch> {
        let recorded = &self.file(name)?.sha256;
        if sha256 == recorded {
            return Ok(());
        }
        Err(FileMismatch(format!(
            "{name} has the SHA-256 {sha256}, {} records {recorded}",
            Self::FILE
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record() -> ModelRecord {
        let text = "model = 'moondream2'\nhub = 'https://huggingface.co'\n\
            [[file]]\nname = 'config.json'\nrepository = 'vikhyatk/moondream2'\nrevision = '2025-06-21'\ncommit = '9a7d'\n\
            size = 3\nsha256 = 'abc'\n\
            [[licence]]\nrepository = 'vikhyatk/moondream2'\nfile = 'LICENSE'\nsha256 = 'def'\naccepted = '2026-11-27'\n";
        toml::from_str(text).unwrap()
    }

    fn score_map(kind: ScoredKind, weights_sha256: &str) -> RecordedScoreMap {
        RecordedScoreMap {
            kind,
            precision: GpuPrecision::Int8,
            weights_sha256: weights_sha256.into(),
            answers: 100,
            points: vec![[0.0, 0.0], [0.5, 0.25], [1.0, 0.9]]
                .try_into()
                .unwrap(),
        }
    }

    #[test]
    fn score_maps_are_of_their_weights_and_precision() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ModelRecord::read(folder.path()).unwrap(), None);
        let mut record = record();
        record.set_score_map(score_map(ScoredKind::Detect, "abc"));
        record.set_score_map(score_map(ScoredKind::Detect, "abc"));
        record.set_score_map(score_map(ScoredKind::Query, "abc"));
        assert_eq!(record.score_maps.len(), 2);
        record.write(folder.path()).unwrap();
        assert_eq!(
            ModelRecord::read(folder.path()).unwrap(),
            Some(record.clone())
        );
        let maps = record.score_maps("abc", GpuPrecision::Int8);
        let detect = maps.get(&ScoredKind::Detect).unwrap();
        assert_eq!(detect.share(0.25), 0.125);
        assert!(maps.keys().eq(&[ScoredKind::Detect, ScoredKind::Query]));
        let none = ScoreMaps::default();
        assert_eq!(record.score_maps("abc", GpuPrecision::Bf16), none);
        assert_eq!(record.score_maps("abd", GpuPrecision::Int8), none);
        record.set_score_map(score_map(ScoredKind::Point, "abd"));
        assert_eq!(record.score_maps.len(), 1);
    }

    #[test]
    fn files_of_another_size_or_hash_are_found() {
        let record = record();
        assert_eq!(record.check_size("config.json", 3), Ok(()));
        assert_eq!(record.check_sha256("config.json", "abc"), Ok(()));
        let size = record.check_size("config.json", 4).unwrap_err();
        assert_eq!(
            size.to_string(),
            "config.json has 4 bytes, model.toml records 3"
        );
        let hash = record.check_sha256("config.json", "abd").unwrap_err();
        assert!(hash.to_string().contains("abd, model.toml records abc"));
        let other = record.check_size("tokenizer.json", 3).unwrap_err();
        assert!(other.to_string().contains("tokenizer.json is not recorded"));
    }

    #[test]
    fn damaged_record_is_an_error_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let mut outside = record();
        outside.files[0].name = "../config.json".into();
        outside.write(folder.path()).unwrap();
        let error = ModelRecord::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("model.toml: \"../config.json\" is not the name"));
        for text in ["", "model = 1", "\u{0}", "model = \"a\"\nhub = \"b\""] {
            fs::write(folder.path().join(ModelRecord::FILE), text).unwrap();
            let error = ModelRecord::read(folder.path()).unwrap_err().to_string();
            assert!(
                error.contains("model.toml: is no record of a model"),
                "{error}"
            );
        }
    }
}
