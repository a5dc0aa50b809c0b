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

    /// The lower one of each figure.
    pub(super) fn or_less(self, other: Self) -> Self {
        Self {
            threads: self.threads.min(other.threads),
            files: self.files.min(other.files),
            mib: self.mib.min(other.mib),
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

/// By how much the least memory in the last quarter of these moments is above that of the quarter before.
pub(super) fn growth_mib(of: &[ProcessUse]) -> f64 {
    let least = |of: &[ProcessUse]| of.iter().map(|it| it.mib).fold(f64::INFINITY, f64::min);
    let quarter = of.len() / 4;
    least(&of[3 * quarter..]) - least(&of[2 * quarter..3 * quarter])
}
