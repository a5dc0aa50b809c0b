//! The arithmetic of an engine on a GPU.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantNames};

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    EnumString,
    IntoStaticStr,
    VariantNames,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum GpuPrecision {
    Bf16,
    /// 8-bit products of many rows (compute capability 8.9 and newer).
    Fp8,
    /// 8-bit weights, and 8-bit products of many rows.
    Int8,
    /// The same with experts in 4 bits.
    Int4,
}

impl GpuPrecision {
    /// As the file writes it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
