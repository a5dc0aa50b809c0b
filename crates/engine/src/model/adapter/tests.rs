use std::path::PathBuf;

use safetensors::{Dtype, tensor::TensorView};

use super::*;
use crate::testing::{golden_model, golden_set};

fn dims(set: &str) -> ModelConfig {
    golden_model::config(&golden_set(set))
}

fn moondream3() -> ModelConfig {
    dims("md3-lora-tiny")
}

fn moondream2() -> ModelConfig {
    dims("md2-micro")
}

fn md3_file(name: &str) -> PathBuf {
    golden_set("md3-lora-tiny").join("adapters").join(name)
}

fn md2_file(name: &str) -> PathBuf {
    golden_set("md2-lora-micro").join(name)
}

/// All values of a file, layer by layer.
fn values(path: &Path, config: &ModelConfig) -> Vec<(usize, Vec<bf16>, Vec<bf16>)> {
    let weights = AdapterFile::open(path, config).unwrap().load().unwrap();
    let layers = weights.blocks.iter().flat_map(TextBlock::layers).flatten();
    layers
        .map(|layer| (layer.rank, layer.a.clone(), layer.b.clone()))
        .collect()
}

#[test]
fn torch_and_safetensors_files_give_equal_adapters() {
    for (name, ranks) in [("a", [8, 1]), ("b", [16, 2])] {
        let [torch, plain] = ["pt", "safetensors"]
            .map(|kind| values(&md3_file(&format!("{name}.{kind}")), &moondream3()));
        assert_eq!(torch, plain, "{name}");
        let found: Vec<usize> = plain.iter().map(|(rank, ..)| *rank).collect();
        let [dense, expert] = ranks;
        assert_eq!(found, [dense, dense, expert, expert, expert, expert]);
    }
    let [torch, plain] =
        ["final.pt", "variant.safetensors"].map(|name| values(&md2_file(name), &moondream2()));
    assert_eq!(torch, plain);
    assert_eq!(plain.iter().filter(|(rank, ..)| *rank == 4).count(), 8);
}

#[test]
fn adapter_of_another_family_is_refused_by_its_name() {
    for (path, config, families) in [
        (
            md2_file("variant.safetensors"),
            moondream3(),
            ["Moondream 2", "Moondream 3"],
        ),
        (
            md3_file("b.pt"),
            moondream2(),
            ["Moondream 3", "Moondream 2"],
        ),
    ] {
        let error = check_adapter(&path, &config).unwrap_err().to_string();
        let [of, model] = families;
        let said = format!("is an adapter for {of}, the model is a {model}");
        assert!(error.contains(&said), "{error}");
    }
    let weights = golden_set("md2-micro").join("model.safetensors");
    let error = check_adapter(&weights, &moondream2()).unwrap_err();
    assert!(
        error.to_string().contains("is no adapter for Moondream 2"),
        "{error}"
    );
}

/// A safetensors file of zeros in a format.
fn file_of(tensors: &[(&str, &[usize], Dtype)]) -> tempfile::NamedTempFile {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape, dtype)| vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8])
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, dtype), bytes)| {
            let view = TensorView::new(*dtype, shape.to_vec(), bytes).unwrap();
            (name.to_string(), view)
        });
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

// Faults: E10.
#[test]
fn all_that_does_not_fit_is_in_one_error() {
    let file = file_of(&[
        // Another width, and ranks that differ.
        ("text_lora.dense.0.up_a", &[8, 96], Dtype::BF16),
        ("text_lora.dense.0.up_b", &[160, 4], Dtype::BF16),
        // Its other half is not there.
        ("text_lora.dense.0.down_a", &[8, 160], Dtype::BF16),
        // Rank 40 of the eight active experts.
        ("text_lora.moe.0.up_a", &[16, 5, 128], Dtype::BF16),
        ("text_lora.moe.0.up_b", &[16, 64, 5], Dtype::BF16),
        ("text_lora.moe.1.up_a", &[16, 1, 128], Dtype::I32),
        ("text_lora.moe.1.up_b", &[16, 64, 1], Dtype::BF16),
        ("text_lora.moe.7.up_a", &[16, 1, 128], Dtype::BF16),
        ("text_lora.\x1b[2J.0.a", &[1], Dtype::BF16),
    ]);
    let error = check_adapter(file.path(), &moondream3()).unwrap_err();
    let error = error.to_string();
    for part in [
        "text_lora.dense.0.up_a has shape [8, 96], needs [8, 128]",
        "text_lora.dense.0.up_b has shape [160, 4], needs [160, 8]",
        "tensor dense.0.down_b is missing",
        "it has rank 40, needs 1 to 32",
        "text_lora.moe.1.up_a holds I32",
        "Moondream 3 has no layer for text_lora.\u{fffd}[2J.0.a, text_lora.moe.7.up_a",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert_eq!(
        error.matches("does not fit the model").count(),
        1,
        "{error}"
    );
}

#[test]
fn part_of_the_layers_may_have_an_adapter() {
    let file = file_of(&[
        ("moe.1.down_a", &[16, 4, 32], Dtype::F32),
        ("moe.1.down_b", &[16, 128, 4], Dtype::F16),
    ]);
    let values = values(file.path(), &moondream3());
    assert_eq!(values.len(), 1);
    assert_eq!(values[0].0, 4);
}

#[test]
fn values_that_are_no_numbers_are_refused_when_read() {
    let bytes = |value: f32| bf16::from_f32(value).to_le_bytes();
    let a: Vec<u8> = [bytes(f32::NAN); 128].concat();
    let b: Vec<u8> = [bytes(1.0); 160].concat();
    let views = [
        (
            "dense.0.up_a",
            TensorView::new(Dtype::BF16, vec![1, 128], &a).unwrap(),
        ),
        (
            "dense.0.up_b",
            TensorView::new(Dtype::BF16, vec![160, 1], &b).unwrap(),
        ),
    ];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();
    let opened = AdapterFile::open(file.path(), &moondream3()).unwrap();
    let error = opened.load().unwrap_err().to_string();
    assert!(
        error.contains("dense.0.up_a has values that are no numbers"),
        "{error}"
    );
}

#[test]
fn file_that_is_cut_off_is_refused_by_its_header() {
    let whole = std::fs::read(md3_file("a.safetensors")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &whole[..whole.len() - 2]).unwrap();
    let error = check_adapter(file.path(), &moondream3()).unwrap_err();
    assert!(error.to_string().contains("it is cut off"), "{error}");
}
