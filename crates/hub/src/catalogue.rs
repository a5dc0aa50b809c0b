//! The models that Spotter can fetch: which files of which repositories, at which revisions.

use std::{collections::BTreeMap, path::Path};

use spotter_config::DEFAULT_MODEL;

/// The tokenizer of all releases since June 2025. The repository has no tags.
const STARMIE: ModelSourceRepository = ModelSourceRepository {
    name: "moondream/starmie-v1",
    revision: "35192e10a54e36eabe0a7cc57a2c1aab371cafc5",
    files: &[WantedFile::required(&[&["tokenizer.json"]])],
    has_own_licence: false,
};

/// The parts of weights that are in several files.
const SHARDS: &str = "model-*";

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
                    WantedFile::required(&[&["config.json"]]),
                    WantedFile::required(&[&["model.safetensors"]]),
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
                    WantedFile::optional(&[&["config.json"]]),
                    WantedFile::required(&[&["model.safetensors"]]),
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
                    WantedFile::optional(&[&["config.json"]]),
                    WantedFile::required(&[
                        &["model_fp8.pt"],
                        &["model.safetensors.index.json", SHARDS],
                        &["model.safetensors"],
                    ]),
                ],
                has_own_licence: true,
            },
            STARMIE,
        ],
    },
];

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
#[derive(Clone, Copy, Debug)]
pub struct WantedFile {
    /// Forms of one content, the best first. [`SHARDS`] is all of them.
    forms: &'static [&'static [&'static str]],
    is_required: bool,
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
        let mut text = format!(
            "Without a network here, run `spotter model get {name} --dir DIR` on another machine and copy DIR, with its \
             model.toml, to {directory}."
        );
        // Its acceptance is recorded by `model get`.
        let has_own_licence = |repository: &ModelSourceRepository| repository.has_own_licence;
        if self.repositories.iter().any(has_own_licence) {
            return text;
        }
        text += &format!(
            "\nOr copy these files to {directory}; without model.toml, Spotter looks once at a known picture at each start:"
        );
        for ModelSourceRepository {
            name,
            revision,
            files,
            ..
        } in self.repositories
        {
            for file in *files {
                text += &format!("\n  {endpoint}/{name}/resolve/{revision}/{file}");
            }
        }
        text
    }
}

impl WantedFile {
    pub const fn required(forms: &'static [&'static [&'static str]]) -> Self {
        let is_required = true;
        Self { forms, is_required }
    }

    pub const fn optional(forms: &'static [&'static [&'static str]]) -> Self {
        let is_required = false;
        Self { forms, is_required }
    }

    /// The names of these files in a repository that lists `files`; the error is what it lacks.
    pub fn names<'a, T>(&self, files: &'a BTreeMap<String, T>) -> Result<Vec<&'a str>, String> {
        let listed = |name: &&str| {
            let names = files.keys().map(String::as_str);
            let names = Vec::from_iter(names.filter(|file| is_named(file, name)));
            let count = names.first().and_then(|file| shard_count(file));
            (names.len() == count.unwrap_or(1)).then_some(names)
        };
        let form = |names: &&[&str]| names.iter().map(listed).collect::<Option<Vec<_>>>();
        match self.forms.iter().find_map(form) {
            None if self.is_required => Err(self.to_string()),
            names => Ok(names.unwrap_or_default().concat()),
        }
    }

    fn may_be(&self, file: &str) -> bool {
        let mut names = self.forms.iter().copied().flatten();
        names.any(|name| is_named(file, name))
    }
}

impl std::fmt::Display for WantedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let forms = self.forms.iter().map(|names| names.join(" with "));
        f.write_str(&Vec::from_iter(forms).join(" or "))?;
        match self.is_required {
            true => Ok(()),
            false => f.write_str(" (if it is there)"),
        }
    }
}

fn is_named(file: &str, name: &str) -> bool {
    match name {
        SHARDS => shard_count(file).is_some(),
        _ => file == name,
    }
}

/// Of `model-00001-of-00002.safetensors`, 2.
fn shard_count(file: &str) -> Option<usize> {
    let numbers = file.strip_prefix("model-")?.strip_suffix(".safetensors")?;
    let (number, count) = numbers.split_once("-of-")?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(number) && is_number(count)).then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_first_form_that_is_listed() {
        const INDEX: &str = "model.safetensors.index.json";
        let [one, two] = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ];
        let names = |wanted: WantedFile, listed: &[&str]| {
            let files = listed.iter().map(|name| ((*name).to_owned(), ()));
            let names = wanted.names(&BTreeMap::from_iter(files))?.join(" ");
            Ok::<String, String>(names)
        };
        let preview = KnownModel::named("moondream3-preview").unwrap();
        let [config, weights] = preview.repositories[0].files else {
            panic!("{preview:?}");
        };
        assert_eq!(names(*config, &["README.md"]).as_deref(), Ok(""));
        for (listed, expected) in [
            (&["model_fp8.pt", INDEX][..], &["model_fp8.pt"][..]),
            (&[INDEX, one, two], &[INDEX, one, two]),
            (&[two, "model.safetensors"], &["model.safetensors"]),
        ] {
            let found = names(*weights, listed).unwrap();
            assert_eq!(found, expected.join(" "), "{listed:?}");
        }
        let missing = names(*weights, &[INDEX]).unwrap_err();
        assert!(
            missing.ends_with("model-* or model.safetensors"),
            "{missing}"
        );
    }
}
