//! Shared by tests: golden data and how to read it, its models on a backend, scripted decisions. Panics name what is wrong.
//!
//! `tests/golden` is a part of the golden data. The whole is needed by ignored tests only; `SPOTTER_GOLDEN` names its folder.

pub mod ahead;
pub mod e4m3;
pub mod figures;
pub mod golden_adapters;
pub mod golden_bins;
pub mod golden_figures;
pub mod golden_full;
pub mod golden_model;
pub mod golden_report;
pub mod golden_run;
pub mod raw_tensors;
pub mod rule;
pub mod script;
pub mod simulated;
pub mod tally;
pub mod wire;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use half::bf16;
use safetensors::{Dtype, SafeTensors};

/// Shape and values of the tensors of a file, by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The folder of a set of the repository: `ops`, `md2-micro`, `md2-full`, `md2-bins`, `md3-ln-tiny`, `md3-names` or `md3-segment-tiny`.
pub fn golden_set(name: &str) -> PathBuf {
    let set = repository().join("tests/golden").join(name);
    assert!(set.is_dir(), "{} is no folder", set.display());
    set
}

/// The folders of the sets with weights and a tokenizer, complete: for tests that are ignored in `make test`. Panics without the whole
/// golden data.
pub fn whole_golden_sets() -> [PathBuf; 4] {
    ["md2-micro", "md2-tiny", "md3-tiny", "md3-ln-tiny"].map(whole_golden_set)
}

/// One set of the whole golden data.
pub fn whole_golden_set(name: &str) -> PathBuf {
    let whole = std::env::var_os("SPOTTER_GOLDEN")
        .map_or_else(|| repository().join("../shared/golden"), PathBuf::from);
    let set = whole.join(name);
    assert!(
        set.is_dir(),
        "{} is no folder; SPOTTER_GOLDEN must name that of the whole golden data (tests/golden/README.md)",
        set.display()
    );
    set
}

/// Tests of each function, which takes the folder of a small golden set: one with each set of the repository, and one with the sets of the whole golden data, which `make test` ignores.
#[cfg(test)]
macro_rules! golden_tests {
    ($($test:ident),+ $(,)?) => {
        mod md2_micro {
            $(#[test]
            fn $test() {
                super::$test(&crate::testing::golden_set("md2-micro"));
            })+
        }

        mod md3_ln_tiny {
            $(#[test]
            fn $test() {
                super::$test(&crate::testing::golden_set("md3-ln-tiny"));
            })+
        }

        mod whole_golden_data {
            $(#[test]
            #[ignore = "needs the whole golden data; run make test-full"]
            fn $test() {
                for set in crate::testing::whole_golden_sets() {
                    super::$test(&set);
                }
            })+
        }
    };
}
#[cfg(test)]
pub(crate) use golden_tests;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The bytes of a file.
pub fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

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
            Dtype::U8 => bytes.iter().copied().map(f32::from).collect(),
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
pub fn micro_model() -> crate::service::EngineModel {
    golden_engine_model("md2-micro")
}

/// The same of one that draws outlines.
pub fn outline_model() -> crate::service::EngineModel {
    golden_engine_model("md3-segment-tiny")
}

fn golden_engine_model(name: &str) -> crate::service::EngineModel {
    let set = golden_set(name);
    let config = golden_model::config(&set);
    let tokenizer =
        crate::model::Tokenizer::open(&set.join("tokenizer.json")).expect("a tokenizer");
    crate::service::EngineModel {
        config,
        tokenizer,
        explains_strips: true,
    }
}
