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
