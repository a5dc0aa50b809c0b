//! The machine and the program that a measurement ran on, from `/proc`.

use std::{fmt, fs, thread};

use serde::Serialize;

use super::{gpu_stats::GpuCard, process};

/// From the environment of the build, which `make build` sets: a program that was copied to another machine finds no
/// repository to ask, and a build script would build everything again after each commit.
const COMMIT: Option<&str> = option_env!("SPOTTER_COMMIT");

/// The machine and the program, to be printed beside every figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the processor; `None` when the system does not name it.
    pub cpu: Option<String>,
    /// Cores that this process may use.
    pub cores: Option<usize>,
    pub spotter: &'static str,
    /// The commit that it was built from, `-dirty` when files had changed since; `None` when unknown.
    pub commit: Option<&'static str>,
    /// The GPU that was measured, when there is one and its driver names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCard>,
    /// Most memory that this process has had at once, MiB.
    pub peak_rss_mib: Option<f64>,
}

impl Machine {
    /// Reads it from `/proc`; what cannot be read stays unknown. The peak is that of the process so far.
    pub fn now() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
        Self {
            cpu: cpuinfo.and_then(|text| cpu_name(&text)),
            cores: thread::available_parallelism().ok().map(usize::from),
            spotter: env!("CARGO_PKG_VERSION"),
            commit: COMMIT.filter(|commit| !commit.is_empty()),
            gpu: None,
            peak_rss_mib: process::peak_mib(),
        }
    }
}

impl fmt::Display for Machine {
    /// The program and what it ran on, without a line's end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spotter {}", self.spotter)?;
        if let Some(commit) = self.commit {
            write!(f, " ({commit})")?;
        }
        let cpu = self.cpu.as_deref().unwrap_or("unknown processor");
        write!(f, ", {cpu}, {} cores", self.cores.unwrap_or_default())?;
        let Some(gpu) = &self.gpu else { return Ok(()) };
        write!(f, "; {}, driver {}", gpu.name, gpu.driver)
    }
}

/// x86 says "model name"; many ARM kernels say nothing.
fn cpu_name(cpuinfo: &str) -> Option<String> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, name) = fields.find(|(key, _)| key.trim() == "model name")?;
    Some(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_name_is_read_or_unknown() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some CPU @ 2.00GHz\n";
        assert_eq!(cpu_name(cpuinfo).as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(cpu_name("processor\t: 0\n"), None);
    }
}
