//! Every kernel compiles for every architecture; needs NVRTC and no GPU.

use cudarc::nvrtc::sys::is_culib_present;
use rayon::prelude::*;

use super::{SOURCES, cubin};

const ARCHITECTURES: [&str; 6] = ["sm_80", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_120"];

#[test]
fn every_kernel_compiles_for_every_architecture() {
    // SAFETY: it only tries to load the library.
    if !unsafe { is_culib_present() } {
        let why =
            "NVRTC is not there, so kernels are not compiled; `.ci/packages test` installs it";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        println!("{why}");
        return;
    }
    let all = SOURCES
        .iter()
        .flat_map(|source| ARCHITECTURES.map(|arch| (source, arch)));
    let all: Vec<_> = all.collect();
    all.par_iter().for_each(|(source, arch)| {
        let code = cubin(source, arch).unwrap_or_else(|error| panic!("{error}"));
        assert!(code.starts_with(b"\x7fELF"), "{} for {arch}", source.file);
    });
}

/// The name in a line that declares a kernel.
fn declared_kernel(line: &str) -> Option<&str> {
    let declares = line.starts_with("extern \"C\" __global__") || line.starts_with("KERNEL ");
    let head = match line.split_once("__launch_bounds__(") {
        Some((_, rest)) => rest.split_once(')')?.1,
        None => line,
    };
    let name = head.split_once('(')?.0.split_whitespace().last()?;
    declares.then_some(name)
}

/// `Kernels::load` looks for the first file with a space, the name and a parenthesis, also in comments.
#[test]
fn every_kernel_name_is_found_in_its_own_file_only() {
    let mut count = 0;
    for source in &SOURCES {
        for name in source.text.lines().filter_map(declared_kernel) {
            let head = format!(" {name}(");
            let files = SOURCES.iter().filter(|other| other.text.contains(&head));
            let files: Vec<&str> = files.map(|other| other.file).collect();
            assert_eq!(files, [source.file], "{name}");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}
