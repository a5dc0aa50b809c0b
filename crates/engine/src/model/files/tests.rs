use std::fs;

use tempfile::TempDir;

use super::*;
use crate::{
    model::{ModelFile, TensorBytes, TensorData},
    testing::{
        golden_set,
        raw_tensors::{raw_tensors, written},
    },
};
use spotter_core::RecordedFile;

/// A directory with the golden model's files.
fn model_directory() -> TempDir {
    let directory = TempDir::with_prefix("street").unwrap();
    let golden = golden_set("md2-micro");
    for file in FAMILIES[0].files().map(|file| file.name) {
        // Not fs::copy: the golden files may be read-only, and the tests change their copies.
        let bytes = fs::read(golden.join(file)).unwrap();
        fs::write(directory.path().join(file), bytes).unwrap();
    }
    directory
}

fn load(directory: &Path) -> Result<LoadedModel, ModelError> {
    load_model(&ModelSource::Directory(directory.to_owned()))
}

fn load_error(directory: &Path) -> String {
    load(directory).unwrap_err().to_string()
}

#[test]
fn a_directory_and_the_binary_load() {
    let directory = model_directory();
    let model = load(directory.path()).unwrap();
    assert_eq!(model.weights.text.blocks.len(), model.config.text.n_layers);
    let TensorData::Encoded { bytes, .. } = &model.weights.text.wte.data else {
        panic!("decoded although nothing needs it");
    };
    assert!(matches!(bytes, TensorBytes::File(_)), "read into memory");
    let name = directory.path().file_name().unwrap().to_string_lossy();
    let digits = &model.weights_sha256[..4];
    assert_eq!(model.name, format!("{name}@{digits}"));
    let embedded = load_model(&ModelSource::Embedded).unwrap();
    assert!(embedded.name.starts_with("embedded@"));
    assert_eq!(embedded.weights_sha256.len(), 64);
}

/// Writes a `model.toml` that fits the files.
fn record(directory: &Path) -> ModelRecord {
    let recorded = |file: ModelFile| {
        let bytes = fs::read(directory.join(file.name)).unwrap();
        RecordedFile {
            name: file.name.into(),
            repository: "someone/street".into(),
            revision: "main".into(),
            commit: "0".into(),
            licence: None,
            size: bytes.len() as u64,
            sha256: hex(&Sha256::digest(&bytes)),
        }
    };
    let record = ModelRecord {
        model: "street".into(),
        hub: Some("https://huggingface.co".into()),
        files: FAMILIES[0].files().map(recorded).into(),
        licences: Vec::new(),
        score_maps: Vec::new(),
    };
    record.write(directory).unwrap();
    record
}

#[test]
fn recorded_files_load_and_only_others_are_unknown() {
    let directory = model_directory();
    assert!(load(directory.path()).unwrap().is_unknown);
    let record = record(directory.path());
    assert!(!load(directory.path()).unwrap().is_unknown);
    assert!(!load_model(&ModelSource::Embedded).unwrap().is_unknown);
    // Score maps alone say nothing of the files.
    let scores_alone = ModelRecord {
        hub: None,
        files: Vec::new(),
        ..record
    };
    scores_alone.write(directory.path()).unwrap();
    let loaded = load(directory.path()).unwrap();
    assert!(loaded.is_unknown && loaded.record == Some(scores_alone));
}

// Faults: M13.
/// Equal shapes load: only the record shows that the weights are others.
#[test]
fn file_that_is_not_the_recorded_one_is_refused() {
    for (name, at) in [
        ("config.json", None),
        ("tokenizer.json", None),
        ("model.safetensors", Some(1)),
        ("model.safetensors", None),
    ] {
        let directory = model_directory();
        record(directory.path());
        let path = directory.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        match at {
            // The last byte is a part of the last tensor.
            Some(from_end) => {
                let at = bytes.len() - from_end;
                bytes[at] ^= 1;
            }
            None => bytes.push(b' '),
        }
        fs::write(&path, bytes).unwrap();
        let text = load_error(directory.path());
        let start = format!("{}: {name} has ", directory.path().display());
        assert!(text.starts_with(&start), "{text}");
        let remedy = format!(
            "run `spotter model get street --dir {}`",
            directory.path().display()
        );
        assert!(text.contains(&remedy), "{text}");
        let quick = check_model(&ModelSource::Directory(directory.path().to_owned()));
        assert_eq!(quick.is_err(), at.is_none(), "{name}");
    }
}

#[test]
fn damaged_record_is_not_ignored() {
    let directory = model_directory();
    fs::write(directory.path().join("model.toml"), "model = ").unwrap();
    let text = load_error(directory.path());
    assert!(
        text.contains("model.toml: is no record of a model"),
        "{text}"
    );
}

#[test]
fn all_missing_files_are_named_with_what_to_do() {
    let directory = model_directory();
    fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    fs::remove_file(directory.path().join("config.json")).unwrap();
    let text = load_error(directory.path());
    let path = directory.path().display();
    let start = format!("no model in {path}: config.json is missing (copy it");
    assert!(text.starts_with(&start), "{text}");
    let then = "; tokenizer.json is missing (download it from moondream/starmie-v1";
    assert!(text.contains(then), "{text}");
    assert!(!text.contains("model.safetensors"), "{text}");
    let text = load_error(&directory.path().join("nothing"));
    let expected = "nothing: it is not a directory; model.path must name one";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn truncated_file_is_reported_as_truncated() {
    let directory = model_directory();
    let path = directory.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    for length in [bytes.len() - 1, bytes.len() / 2, 100] {
        fs::write(&path, &bytes[..length]).unwrap();
        let text = load_error(directory.path());
        let path = path.display();
        let start = format!("{path} has {length} bytes, its header announces ");
        assert!(text.starts_with(&start), "{text}");
        let end = "it is cut off; copy or download it again";
        assert!(text.ends_with(end), "{text}");
    }
    for (content, expected) in [
        ("<!DOCTYPE html>", "is not a safetensors file"),
        ("", "it has 0 bytes, needs 8 or more"),
    ] {
        fs::write(&path, content).unwrap();
        let text = load_error(directory.path());
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_tokenizer_of_another_generation_is_refused() {
    let directory = model_directory();
    let path = directory.path().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("\"eos_id\": 0", "\"eos_id\": 256")).unwrap();
    let text = load_error(directory.path());
    let expected =
        "tokenizer.json is of another model: its <|endoftext|> is 0, config.json says 256";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_name_is_found_for_relative_directories() {
    assert_eq!(label(Path::new("/models/moondream-2b/")), "moondream-2b");
    let here = std::env::current_dir().unwrap();
    assert_eq!(label(Path::new(".")), label(&here));
    assert_eq!(label(Path::new("/")), "model");
}

#[test]
fn moondream_3_is_recognised_by_record_file_or_tensor() {
    let tau = r#"{"text_model.transformer.h.0.tau_alpha":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let header = (tau.len() as u64).to_le_bytes();
    let weights = [&header, tau.as_bytes(), &[0; 4]].concat();
    let named = b"model = \"moondream3.1\"";
    // Its configuration is not required, so these two are what is missing beside a record.
    for (name, content, missing) in [
        ("model_fp8.pt", &b""[..], "tokenizer.json is missing"),
        ("model.safetensors", &weights, "tokenizer.json is missing"),
        (
            "model.safetensors.index.json",
            b"",
            "tokenizer.json is missing",
        ),
        (
            "model.toml",
            named,
            "model.safetensors or model_fp8.pt or model.safetensors.index.json is missing",
        ),
    ] {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join(name), content).unwrap();
        let error = load_error(directory.path());
        assert!(error.contains(missing), "{name}: {error}");
        assert!(!error.contains("config.json is"), "{name}: {error}");
    }
    // The record decides about complete files, and the tensors about those without one. Two blocks are too few for its experts.
    for (name, content) in [("model.toml", &named[..]), ("model.safetensors", &weights)] {
        let directory = model_directory();
        fs::write(directory.path().join(name), content).unwrap();
        let error = load_error(directory.path());
        assert!(error.contains("text.moe.start_layer = 4"), "{error}");
    }
}

#[test]
fn shards_are_one_model() {
    let directory = model_directory();
    let whole = load(directory.path()).unwrap().weights;
    let mut tensors = raw_tensors(&directory.path().join("model.safetensors"));
    let second = tensors.split_off(tensors.len() / 2);
    let mut names = serde_json::Map::new();
    for (shard, tensors) in [("a.safetensors", &tensors), ("b.safetensors", &second)] {
        fs::write(directory.path().join(shard), written(tensors)).unwrap();
        let named = tensors
            .iter()
            .map(|tensor| (tensor.name.clone(), shard.into()));
        names.extend(named);
    }
    let index = directory.path().join("model.safetensors.index.json");
    let write = |names: &serde_json::Map<String, serde_json::Value>| {
        fs::write(&index, serde_json::json!({"weight_map": names}).to_string()).unwrap();
        WeightsPlace::at(index.clone())
    };
    let shards = write(&names).unwrap();
    let config = model_config(&ModelSource::Directory(directory.path().to_owned())).unwrap();
    let joined = Weights::load(&config, &mut shards.open().unwrap()).unwrap();
    let values = |weights: Weights| {
        let (_, plain) = weights.into_parts();
        plain
            .into_iter()
            .map(|tensor| tensor.into_f32().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(values(joined), values(whole));
    for (shard, expected) in [
        ("../b.safetensors", "is not the name of a file beside it"),
        ("c.safetensors", "c.safetensors missing beside it"),
    ] {
        names.insert("t".to_owned(), shard.into());
        let error = write(&names).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
