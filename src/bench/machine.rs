//! What the measurement ran on, as far as Linux tells.

use std::{fs, thread};

use serde::Serialize;

/// The machine and the program, to be printed beside every figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the processor; `None` when the system does not tell.
    pub cpu: Option<String>,
    /// Cores that this process may use.
    pub cores: Option<usize>,
    /// Version of Spotter.
    pub spotter: &'static str,
    /// Most memory that this process has had at once, MiB.
    pub peak_rss_mib: Option<f64>,
}

impl Machine {
    /// Reads it from `/proc`; what cannot be read stays unknown. The peak is that of the process so far.
    pub fn now() -> Self {
        let read = |path| fs::read_to_string(path).ok();
        Self {
            cpu: read("/proc/cpuinfo").and_then(|text| cpu_name(&text)),
            cores: thread::available_parallelism().ok().map(usize::from),
            spotter: env!("CARGO_PKG_VERSION"),
            peak_rss_mib: read("/proc/self/status").and_then(|text| peak_rss_mib(&text)),
        }
    }
}

/// x86 says "model name"; many ARM kernels say nothing.
fn cpu_name(cpuinfo: &str) -> Option<String> {
    field(cpuinfo, "model name").map(str::to_owned)
}

/// Memory that this process has now, MiB.
pub(super) fn rss_mib() -> Option<f64> {
    mib(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

fn peak_rss_mib(status: &str) -> Option<f64> {
    mib(status, "VmHWM")
}

fn mib(status: &str, name: &str) -> Option<f64> {
    let kib = field(status, name)?.strip_suffix("kB")?;
    Some(kib.trim().parse::<f64>().ok()? / 1024.0)
}

/// The value of the first line `name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_linux_writes_it() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some CPU @ 2.00GHz\n";
        assert_eq!(cpu_name(cpuinfo).as_deref(), Some("Some CPU @ 2.00GHz"));
        let status = "Name:\tspotter\nVmPeak:\t  900000 kB\nVmHWM:\t   51200 kB\n";
        assert_eq!(peak_rss_mib(status), Some(50.0));
    }

    #[test]
    fn unknown_is_not_an_error() {
        assert_eq!(cpu_name("processor\t: 0\n"), None);
        assert_eq!(peak_rss_mib("VmHWM:\tmany\n"), None);
    }
}
