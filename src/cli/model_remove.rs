//! `spotter model remove`: deletes a fetched model that no configuration uses.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{
    args::{ModelRemoveArgs, SERVICE_CONFIG},
    out::say,
};
use spotter_config::{DEFAULT_MODEL, Environment};
use spotter_core::ModelRecord;
use spotter_hub::{KnownModel, amount, is_root, model_files, remove_files};

/// The record of a directory that may have this model. The files of another have the same names, so one that has another is an error. What
/// `spotter eval` records has the name of the family alone.
pub(super) fn own_record(
    known: &KnownModel,
    directory: &Path,
) -> anyhow::Result<Option<ModelRecord>> {
    let record = ModelRecord::read(directory)?;
    let fetched = record.as_ref().filter(|record| record.hub.is_some());
    if let Some(other) = fetched.filter(|record| record.model != known.name) {
        bail!(
            "{} has {}, not {}; nothing was changed; name another directory with --dir",
            directory.display(),
            other.model,
            known.name
        );
    }
    Ok(record)
}

pub fn remove(args: &ModelRemoveArgs) -> anyhow::Result<()> {
    let known = args.name;
    let environment = Environment::process();
    let destination = || environment.models_destination(is_root()).join(known.name);
    let directory = args.dir.clone().unwrap_or_else(destination);
    let path = directory.display();
    let files = model_files(known, &directory)?;
    if files.is_empty() {
        bail!(
            "{path} has no files of {}; `spotter model list` shows where models are, and --dir names another directory",
            known.name
        );
    }
    // Other models have files of the same names.
    let record = own_record(known, &directory)?;
    if record.is_none() && !files.keys().any(|name| name.ends_with(".part")) {
        bail!(
            "{path} has no model.toml, so its files may be of another program; nothing was deleted"
        );
    }
    let service = PathBuf::from(SERVICE_CONFIG);
    let of_service = service.exists().then_some(service);
    for config in of_service.iter().chain(&args.config) {
        if uses(config, &environment, &directory)? {
            bail!(
                "{} uses the model in {path}, so nothing was deleted; set another model.path there first",
                config.display()
            );
        }
    }
    let bytes = remove_files(&directory, &files)?;
    let left = match directory.exists() {
        true => "; the directory stays",
        false => "",
    };
    say(format_args!(
        "{path}: {} removed, {} freed{left}",
        known.name,
        amount(bytes)
    ))
}

/// Does the configuration name the model in `directory`? One that sets no model.path uses the default model, wherever it may be found.
/// Only that key is read: a mistake elsewhere, or a password that this user cannot read, does not matter here.
fn uses(config: &Path, environment: &Environment, directory: &Path) -> anyhow::Result<bool> {
    let unknown = || {
        format!(
            "cannot find out whether {} uses the model; nothing was deleted",
            config.display()
        )
    };
    let text = std::fs::read_to_string(config).with_context(unknown)?;
    let table: toml::Table = text.parse().with_context(unknown)?;
    let path = table.get("model").and_then(|model| model.get("path"));
    let used: Vec<PathBuf> = match path {
        None => {
            let dirs = environment.model_dirs().into_iter();
            dirs.map(|dir| dir.join(DEFAULT_MODEL)).collect()
        }
        Some(path) => {
            let path = path.as_str().ok_or_else(|| {
                let kind = io::Error::other("model.path is not a text");
                anyhow::Error::new(kind).context(unknown())
            })?;
            let beside = config.parent().unwrap_or(Path::new("."));
            vec![beside.join(path)]
        }
    };
    let directory = directory.canonicalize().with_context(unknown)?;
    let mut used = used.iter().filter_map(|used| used.canonicalize().ok());
    Ok(used.any(|used| used == directory))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn configuration_uses_its_path_or_the_default_model() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_str().unwrap().to_owned();
        let environment = Environment::new("edge1", move |name| {
            (name == "XDG_DATA_HOME").then(|| data.clone())
        });
        let models = folder.path().join("spotter/models");
        let [default, other] = [DEFAULT_MODEL, "moondream3.1"].map(|name| models.join(name));
        for directory in [&default, &other] {
            fs::create_dir_all(directory).unwrap();
        }
        let config = folder.path().join("site.toml");
        for (text, expected) in [
            ("", [true, false]),
            ("[model]\nprecision = \"int8\"", [true, false]),
            ("[model]\npath = \"embedded\"", [false, false]),
            (
                "[model]\npath = \"spotter/models/./moondream3.1\"",
                [false, true],
            ),
        ] {
            fs::write(&config, text).unwrap();
            let found =
                [&default, &other].map(|directory| uses(&config, &environment, directory).unwrap());
            assert_eq!(found, expected, "{text}");
        }
        for text in ["[model]\npath = 1", "[model"] {
            fs::write(&config, text).unwrap();
            let error = uses(&config, &environment, &other).unwrap_err();
            assert!(error.to_string().contains("nothing was deleted"), "{error}");
        }
    }
}
