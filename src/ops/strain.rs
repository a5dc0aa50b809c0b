//! Figures of a GPU at work.

use serde::Serialize;

/// Means over some time. What the driver does not report is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Strain {
    pub power_w: Option<f64>,
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<f64>,
    pub celsius: Option<f64>,
    /// Share of time in which a kernel of anybody ran, percent.
    pub use_pct: Option<f64>,
    /// Share of time in which its video decoders worked, percent.
    pub decoder_pct: Option<f64>,
    /// Memory that anybody uses, MiB.
    pub memory_mib: Option<f64>,
}
