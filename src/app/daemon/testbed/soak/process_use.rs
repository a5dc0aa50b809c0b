//! Threads, descriptors and memory of the process.

use std::{fmt, fs};

use super::{MORE_FILES, MORE_FILES_OVER_UDP, MORE_THREADS, MORE_THREADS_OVER_UDP};
use crate::ops::process;

#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessUse {
    pub(super) threads: u64,
    pub(super) files: u64,
    pub(super) mib: f64,
}

impl ProcessUse {
    pub(super) fn now() -> Self {
        let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).unwrap().count() as u64;
        Self {
            threads: count("task"),
            files: count("fd"),
            mib: process::resident_mib().unwrap(),
        }
    }

    /// True when it has no more threads and descriptors than `before`, but for those of pools.
    pub(super) fn is_near(self, before: Self) -> bool {
        self.threads <= before.threads + MORE_THREADS && self.files <= before.files + MORE_FILES
    }

    /// With so many more cameras over UDP.
    pub(super) fn with_cameras_over_udp(self, cameras: u64) -> Self {
        Self {
            threads: self.threads + cameras * MORE_THREADS_OVER_UDP,
            files: self.files + cameras * MORE_FILES_OVER_UDP,
            ..self
        }
    }

    /// The minimum of each figure over several moments.
    pub(super) fn least(of: &[Self]) -> Self {
        let least = |what: fn(&Self) -> u64| of.iter().map(what).min().unwrap();
        Self {
            threads: least(|moment| moment.threads),
            files: least(|moment| moment.files),
            mib: of
                .iter()
                .map(|moment| moment.mib)
                .fold(f64::INFINITY, f64::min),
        }
    }
}

impl fmt::Display for ProcessUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            threads,
            files,
            mib,
        } = self;
        write!(f, "{threads} threads, {files} descriptors, {mib:.1} MiB")
    }
}

/// By how much memory grew over these moments, which are equally far apart: the slope of the line through them, times
/// their span.
pub(super) fn growth_mib(of: &[ProcessUse]) -> f64 {
    let n = of.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = of.iter().map(|moment| moment.mib).sum::<f64>() / n;
    let (mut up, mut across) = (0.0, 0.0);
    for (at, moment) in of.iter().enumerate() {
        let x = at as f64 - middle;
        up += x * (moment.mib - mean);
        across += x * x;
    }
    if across > 0.0 {
        up / across * (n - 1.0)
    } else {
        0.0
    }
}
