use std::fs;

use tempfile::TempDir;

use super::*;
use crate::testing::golden_set;

/// A directory with the golden model's files.
fn model_directory() -> TempDir {
    let directory = TempDir::with_prefix("street").unwrap();
    let golden = golden_set("md2-micro");
    for file in <&dyn ModelFamily>::default().files().map(|file| file.name) {
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
    let name = directory.path().file_name().unwrap().to_string_lossy();
    let digits = &model.weights_sha256[..4];
    assert_eq!(model.name, format!("{name}@{digits}"));
    let embedded = load_model(&ModelSource::Embedded).unwrap();
    assert!(embedded.name.starts_with("embedded@"));
    assert_eq!(embedded.weights_sha256.len(), 64);
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
