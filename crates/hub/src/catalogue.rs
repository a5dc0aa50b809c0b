//! The models that Spotter can fetch: which files of which repositories, at which revisions.

use std::{collections::BTreeMap, path::Path};

use spotter_config::DEFAULT_MODEL;

/// The tokenizer of all releases since June 2025. The repository has no tags.
const STARMIE: ModelSourceRepository = ModelSourceRepository {
    name: "moondream/starmie-v1",
    revision: "35192e10a54e36eabe0a7cc57a2c1aab371cafc5",
    files: &[WantedFile::Named("tokenizer.json")],
    has_own_licence: false,
};

/// All models that can be fetched; the first is the one that is used when no path is set.
pub static KNOWN_MODELS: &[KnownModel] = &[
    KnownModel {
        name: DEFAULT_MODEL,
        summary: "Moondream 2, release 2025-06-21, 3.9 GB",
        repositories: &[
            ModelSourceRepository {
                name: "vikhyatk/moondream2",
                revision: "2025-06-21",
                files: &[
                    WantedFile::Named("config.json"),
                    WantedFile::Named("model.safetensors"),
                ],
                has_own_licence: false,
            },
            // The tokenizer.json beside the weights is of older revisions.
            STARMIE,
        ],
    },
    // No revision of these two was verified yet, so `main` is resolved when it is fetched.
    KnownModel {
        name: "moondream3.1",
        summary: "Moondream 3.1 (9B-A2B), about 10 GB",
        repositories: &[
            ModelSourceRepository {
                name: "moondream/moondream3.1-9B-A2B",
                revision: "main",
                files: &[
                    WantedFile::IfListed("config.json"),
                    WantedFile::Named("model.safetensors"),
                ],
                has_own_licence: true,
            },
            STARMIE,
        ],
    },
    KnownModel {
        name: "moondream3-preview",
        summary: "Moondream 3 preview, about 10 GB, or 19 GB where the repository has no fp8 file",
        repositories: &[
            ModelSourceRepository {
                name: "moondream/moondream3-preview",
                revision: "main",
                files: &[
                    WantedFile::IfListed("config.json"),
                    WantedFile::FirstListed(&[
                        WantedFile::Named("model_fp8.pt"),
                        WantedFile::Shards,
                        WantedFile::Named("model.safetensors"),
                    ]),
                ],
                has_own_licence: true,
            },
            STARMIE,
        ],
    },
];

/// Names the shards of a model in safetensors.
const SHARD_INDEX: &str = "model.safetensors.index.json";

/// A model that can be fetched.
#[derive(Debug)]
pub struct KnownModel {
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    pub repositories: &'static [ModelSourceRepository],
}

/// A repository of the hub, at a revision.
#[derive(Debug)]
pub struct ModelSourceRepository {
    pub name: &'static str,
    /// A tag, a commit or a branch; `model.toml` records the commit.
    pub revision: &'static str,
    pub files: &'static [WantedFile],
    /// The user has to accept the licence in the repository's licence file.
    pub has_own_licence: bool,
}

/// Files by their names, in the repository and in the model directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedFile {
    Named(&'static str),
    /// Not required.
    IfListed(&'static str),
    /// All shards of a model in safetensors, with their index.
    Shards,
    /// The first of these that the repository has.
    FirstListed(&'static [WantedFile]),
}

impl KnownModel {
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN_MODELS.iter().find(|model| model.name == name)
    }

    /// Can a file with this name belong to the model?
    pub fn may_have(&self, file: &str) -> bool {
        let mut wanted = self.repositories.iter().flat_map(|source| source.files);
        wanted.any(|wanted| wanted.may_be(file))
    }

    /// What to do on a machine that cannot reach the hub: lines for a person.
    pub fn by_hand(&self, endpoint: &str, directory: &Path) -> String {
        let (name, directory) = (self.name, directory.display());
        let elsewhere = format!(
            "Without a network here, run `spotter model get {name} --dir DIR` on another machine and copy DIR, with its \
             model.toml, to {directory}."
        );
        // Its acceptance is recorded by `model get`.
        let has_own_licence = |repository: &ModelSourceRepository| repository.has_own_licence;
        if self.repositories.iter().any(has_own_licence) {
            return elsewhere;
        }
        let files = self.repositories.iter().flat_map(|repository| {
            let ModelSourceRepository { name, revision, .. } = repository;
            let url =
                move |file: &WantedFile| format!("  {endpoint}/{name}/resolve/{revision}/{file}");
            repository.files.iter().map(url)
        });
        let files: Vec<String> = files.collect();
        format!(
            "{elsewhere}\nOr copy these files to {directory}; without model.toml, Spotter looks once at a \
             known picture at each start:\n{}",
            files.join("\n")
        )
    }
}

impl WantedFile {
    /// The names of these files in a repository that lists `files`; the error is the name that it lacks.
    pub fn names<'a, T>(&self, files: &'a BTreeMap<String, T>) -> Result<Vec<&'a str>, String> {
        let listed = |name: &str| match files.get_key_value(name) {
            Some((name, _)) => Ok(vec![name.as_str()]),
            None => Err(name.to_owned()),
        };
        match *self {
            Self::Named(name) => listed(name),
            Self::IfListed(name) => Ok(listed(name).unwrap_or_default()),
            Self::Shards => {
                let mut names = listed(SHARD_INDEX)?;
                let mut shards = files.keys().filter_map(|name| Some((name, shard(name)?)));
                let count = shards.next().map_or(1, |(_, (_, count))| count);
                for number in 1..=count {
                    let name = format!("model-{number:05}-of-{count:05}.safetensors");
                    names.extend(listed(&name)?);
                }
                Ok(names)
            }
            Self::FirstListed(choices) => {
                let mut missing = Vec::new();
                for choice in choices {
                    match choice.names(files) {
                        Ok(names) => return Ok(names),
                        Err(name) => missing.push(name),
                    }
                }
                Err(missing.join(", or "))
            }
        }
    }

    fn may_be(&self, file: &str) -> bool {
        match self {
            Self::Named(name) | Self::IfListed(name) => *name == file,
            Self::Shards => file == SHARD_INDEX || shard(file).is_some(),
            Self::FirstListed(choices) => choices.iter().any(|choice| choice.may_be(file)),
        }
    }
}

impl std::fmt::Display for WantedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::IfListed(name) => write!(f, "{name} (if it is there)"),
            Self::Shards => write!(f, "{SHARD_INDEX} with its model-*.safetensors"),
            Self::FirstListed(choices) => {
                let choices: Vec<String> = choices.iter().map(Self::to_string).collect();
                f.write_str(&choices.join(" or "))
            }
        }
    }
}

/// The number of a shard, and of how many.
fn shard(name: &str) -> Option<(u32, u32)> {
    let numbers = name.strip_prefix("model-")?.strip_suffix(".safetensors")?;
    let (number, count) = numbers.split_once("-of-")?;
    let parse = |text: &str| match text.len() == 5 {
        true => text.parse().ok(),
        false => None,
    };
    Some((parse(number)?, parse(count)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: WantedFile, listed: &[&str]) -> Result<Vec<String>, String> {
        let files = listed.iter().map(|name| ((*name).to_owned(), ()));
        let files: BTreeMap<String, ()> = files.collect();
        let names = wanted.names(&files)?;
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn weights_are_the_first_form_that_is_complete() {
        let [one, two] = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ];
        let preview = KnownModel::named("moondream3-preview").unwrap();
        let [config, weights] = preview.repositories[0].files else {
            panic!("{preview:?}");
        };
        assert_eq!(names(*config, &["README.md"]), Ok(vec![]));
        for (listed, expected) in [
            (vec!["model_fp8.pt", SHARD_INDEX], Ok(vec!["model_fp8.pt"])),
            (vec![SHARD_INDEX, one, two], Ok(vec![SHARD_INDEX, one, two])),
            (
                vec![SHARD_INDEX, two, "model.safetensors"],
                Ok(vec!["model.safetensors"]),
            ),
            (
                vec![SHARD_INDEX, two],
                Err(format!("model_fp8.pt, or {one}, or model.safetensors")),
            ),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(names(*weights, &listed), expected, "{listed:?}");
            for name in listed {
                assert!(preview.may_have(name), "{name}");
            }
        }
        for other in ["model-1-of-2.safetensors", "README.md", "notes.txt"] {
            assert!(!preview.may_have(other), "{other}");
        }
    }
}
