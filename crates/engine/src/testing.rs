//! What tests of several rooms share: golden data (where it lies and how it is read), models of it on a
//! backend, scripted decisions, a scripted MQTT broker, and a configured camera. Panics
//! name what is wrong, as tests do.
//!
//! A small part of the golden data is in `tests/golden`. The whole is used when `SPOTTER_GOLDEN` names it or `../shared/golden` lies
//! beside the checkout; what needs it says on stdout when it is not there.

pub mod ahead;
pub mod figures;
pub mod golden_figures;
pub mod golden_full;
pub mod golden_model;
pub mod golden_report;
pub mod golden_run;
pub mod rule;
pub mod script;
pub mod simulated;
pub mod tally;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use half::bf16;
use safetensors::{Dtype, SafeTensors};

/// Shape and values of the tensors of a file, by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The set `name` (`ops`, `md2-micro`, `md2-tiny`, `md2-full`): the whole one when it is there, else the part of it in
/// `tests/golden`, else `None`.
pub fn golden_set(name: &str) -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let whole = std::env::var_os("SPOTTER_GOLDEN")
        .map_or_else(|| repository.join("../shared/golden"), PathBuf::from);
    let found = [whole, repository.join("tests/golden")]
        .into_iter()
        .map(|golden| golden.join(name))
        .find(|set| set.is_dir());
    if found.is_none() {
        println!(
            "golden set {name} is not there (SPOTTER_GOLDEN): its part of the test is left out"
        );
    }
    found
}

/// The Moondream 2 sets with weights and a tokenizer that are there: `md2-micro` always.
pub fn golden_sets() -> Vec<PathBuf> {
    let sets = ["md2-micro", "md2-tiny"];
    sets.into_iter().filter_map(golden_set).collect()
}

/// The bytes of a file.
pub fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A JSON file.
pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&bytes(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All tensors of a safetensors file as single precision.
pub fn tensors(path: &Path) -> Tensors {
    let bytes = bytes(path);
    let file = SafeTensors::deserialize(&bytes)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let values = |dtype, bytes: &[u8]| -> Vec<f32> {
        match dtype {
            Dtype::F32 => words(bytes).map(f32::from_le_bytes).collect(),
            Dtype::BF16 => words(bytes)
                .map(|word| bf16::from_le_bytes(word).to_f32())
                .collect(),
            Dtype::I32 => words(bytes)
                .map(|word| i32::from_le_bytes(word) as f32)
                .collect(),
            other => panic!("{}: {other:?} is not read here", path.display()),
        }
    };
    file.iter()
        .map(|(name, view)| {
            let values = values(view.dtype(), view.data());
            (name.to_owned(), (view.shape().to_vec(), values))
        })
        .collect()
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Configuration and tokenizer of the smallest golden model, which every checkout has.
pub fn micro_model() -> (crate::model::ModelConfig, crate::model::Tokenizer) {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/md2-micro");
    let config = String::from_utf8(bytes(&set.join("config.json"))).expect("UTF-8");
    let config =
        crate::model::ModelConfig::from_json(&config, "md2-micro").expect("a valid config");
    let tokenizer =
        crate::model::Tokenizer::open(&set.join("tokenizer.json")).expect("a tokenizer");
    (config, tokenizer)
}
