//! Every kernel compiles for every architecture; needs NVRTC (`.ci/packages test` installs it) and no GPU.

use std::fs;

use cudarc::nvrtc::sys::is_culib_present;
use rayon::prelude::*;
use spotter_core::testing::cases;

use super::{KernelSource, ParameterKind, SOURCES, architectures, cached_code, compile};

/// As `CodeArch` names them: one for each branch of the kernels' `#if` (before 8.9, 8.9, 9.0a, after it), and PTX.
const BRANCHES: &[&str] = &["sm_80", "sm_89", "sm_90a", "sm_120", "compute_80"];
/// Those in the same branches, which `make test-properties` compiles too.
const SAME_BRANCHES: &[&str] = &["sm_86", "sm_87", "sm_100a", "sm_103", "sm_110", "sm_121"];

fn assert_nvrtc() {
    // SAFETY: it only tries to load the library.
    let is_present = unsafe { is_culib_present() };
    assert!(
        is_present,
        "NVRTC is missing: run `.ci/packages test`, then `make test`"
    );
}

#[test]
fn each_kernel_compiles_for_each_architecture() {
    assert_nvrtc();
    let takes_all = cases(1) > 1;
    let same_branches = if takes_all { SAME_BRANCHES } else { &[] };
    let chosen = [BRANCHES, same_branches].concat();
    let pairs = chosen.iter();
    let all = pairs.flat_map(|arch| SOURCES.iter().map(move |source| (source, *arch)));
    // An older NVRTC does not know the newest ones.
    let known = architectures();
    // It has the branches of decode_step.cu, and takes as long: 20 s of a processor for each architecture.
    let is_spared = |source: &KernelSource, arch: &str| {
        !takes_all && source.file == "decode_step_ranks.cu" && arch != "sm_90a"
    };
    let all: Vec<_> = all
        .filter(|(source, arch)| !is_spared(source, arch))
        .filter(|(_, arch)| {
            let number = arch
                .split('_')
                .next_back()
                .map(|arch| arch.trim_end_matches('a'));
            known
                .iter()
                .any(|known| number == Some(&*known.0.to_string()))
        })
        .collect();
    assert!(all.len() >= 4 * SOURCES.len(), "NVRTC knows {known:?}");
    all.par_iter().for_each(|(source, arch)| {
        let code = compile(source, arch).unwrap_or_else(|error| panic!("{error}"));
        let is_code = match arch.starts_with("compute_") {
            true => code.ends_with(b"\0") && code.starts_with(b"//"),
            false => code.starts_with(b"\x7fELF"),
        };
        assert!(is_code, "{} for {arch}", source.file);
    });
}

#[test]
fn a_damaged_file_in_the_cache_is_compiled_again() {
    assert_nvrtc();
    let folder = tempfile::tempdir().unwrap();
    let source = SOURCES.iter().find(|s| s.file == "quantise.cu").unwrap();
    let cached = || cached_code(source, "sm_90a", 13_000, folder.path()).unwrap();
    let code = cached();
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let good = fs::read(&file).unwrap();
    let mut flipped = good.clone();
    flipped[code.len() / 2] ^= 1;
    for bad in [&flipped[..], &good[..good.len() - 7], b"short", b""] {
        fs::write(&file, bad).unwrap();
        assert_eq!(cached(), code);
        assert_eq!(fs::read(&file).unwrap(), good, "the file is replaced");
    }
}

#[test]
fn a_cache_that_cannot_be_written_costs_no_kernel() {
    assert_nvrtc();
    let file = tempfile::NamedTempFile::new().unwrap();
    let source = SOURCES.iter().find(|s| s.file == "quantise.cu").unwrap();
    // No folder can be made below a file.
    let code = cached_code(source, "sm_90a", 13_000, &file.path().join("kernels"));
    assert_eq!(code.unwrap(), compile(source, "sm_90a").unwrap());
}

#[test]
fn every_kernel_has_one_name() {
    let kernels = SOURCES.iter().flat_map(|source| source.kernels());
    let mut names: Vec<&str> = kernels.map(|kernel| kernel.unwrap().name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 40, "{count}");
}

fn parameters(name: &str) -> Vec<ParameterKind> {
    let mut kernels = SOURCES.iter().flat_map(|source| source.kernels());
    let kernel = kernels.find_map(|kernel| kernel.ok().filter(|kernel| kernel.name == name));
    kernel.unwrap().parameters
}

#[test]
fn parameters_are_those_of_the_declaration_with_its_macros() {
    use ParameterKind::{Float, Int, Pointer, Value};
    let all = |kinds: &[(usize, ParameterKind)]| -> Vec<ParameterKind> {
        let kinds = kinds.iter().flat_map(|(count, kind)| vec![*kind; *count]);
        kinds.collect()
    };
    for (name, kinds) in [
        ("gather_rows", vec![(3, Pointer), (1, Int)]),
        ("layer_norm_e4m3", vec![(4, Pointer), (2, Int), (1, Float)]),
        (
            "rgb_from_planes",
            vec![(3, Pointer), (3, Int), (1, Value), (1, Pointer), (2, Int)],
        ),
        (
            "attend_dense_any",
            vec![(2, Pointer), (4, Int), (2, Float), (1, Int)],
        ),
        (
            "attend_wide_72_e4m3",
            vec![(2, Value), (2, Pointer), (4, Int), (2, Float), (1, Int)],
        ),
        ("attend_own_e4m3", vec![(10, Pointer), (3, Int), (1, Float)]),
        ("skinny_16_add_to_e4m3", vec![(6, Pointer), (7, Int)]),
        (
            "experts_up_in_e4m3",
            vec![(6, Pointer), (4, Int), (1, Pointer)],
        ),
        ("experts_few_up_int4", vec![(7, Pointer), (3, Int)]),
        ("experts_wide_up", vec![(2, Value), (6, Pointer), (4, Int)]),
        ("decode_step_32_e4m3", vec![(1, Value)]),
        ("decide", vec![(11, Pointer), (1, Int)]),
    ] {
        assert_eq!(parameters(name), all(&kinds), "{name}");
    }
}

#[test]
fn declaration_that_cannot_be_read_is_named() {
    let source = KernelSource {
        file: "wrong.cu",
        text: "KERNEL one(ARGUMENTS, int rows) {\nextern \"C\" __global__ void two(int a) { }",
    };
    let kernels: Vec<_> = source.kernels().collect();
    assert_eq!(kernels[0], Err("KERNEL one(ARGUMENTS, int rows) {"));
    assert_eq!(
        kernels[1].as_ref().unwrap().parameters,
        [ParameterKind::Int]
    );
}
