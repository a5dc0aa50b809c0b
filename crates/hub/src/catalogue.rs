//! The models that Spotter can fetch: which files of which repositories, at which revisions.

use std::path::Path;

use spotter_core::config::DEFAULT_MODEL;

/// All models that can be fetched; the first is the one that is used when no path is set.
pub static KNOWN_MODELS: &[KnownModel] = &[KnownModel {
    name: DEFAULT_MODEL,
    summary: "Moondream 2, release 2025-06-21, 3.9 GB",
    repositories: &[
        ModelSourceRepository {
            name: "vikhyatk/moondream2",
            revision: "2025-06-21",
            files: &[WantedFile("config.json"), WantedFile("model.safetensors")],
        },
        // The tokenizer.json beside the weights is of older revisions. This repository has no tags.
        ModelSourceRepository {
            name: "moondream/starmie-v1",
            revision: "35192e10a54e36eabe0a7cc57a2c1aab371cafc5",
            files: &[WantedFile("tokenizer.json")],
        },
    ],
}];

/// A model that can be fetched.
#[derive(Debug)]
pub struct KnownModel {
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    pub repositories: &'static [ModelSourceRepository],
}

/// A repository of the hub, at a fixed revision.
#[derive(Debug)]
pub struct ModelSourceRepository {
    pub name: &'static str,
    /// A tag or a commit.
    pub revision: &'static str,
    pub files: &'static [WantedFile],
}

/// Name of a file, in the repository and in the model directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedFile(pub &'static str);

impl KnownModel {
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN_MODELS.iter().find(|model| model.name == name)
    }

    /// What to do on a machine that cannot reach the hub: lines for a person.
    pub fn by_hand(&self, endpoint: &str, directory: &Path) -> String {
        let (name, directory) = (self.name, directory.display());
        let files = self.repositories.iter().flat_map(|repository| {
            let ModelSourceRepository { name, revision, .. } = repository;
            let url = move |file: &WantedFile| {
                format!("  {endpoint}/{name}/resolve/{revision}/{}", file.0)
            };
            repository.files.iter().map(url)
        });
        let files: Vec<String> = files.collect();
        format!(
            "Without a network here, run `spotter model get {name} --dir DIR` on another machine and copy DIR, with its \
             model.toml, to {directory}.\nOr copy these files to {directory}; without model.toml, Spotter looks once at a \
             known picture at each start:\n{}",
            files.join("\n")
        )
    }
}
