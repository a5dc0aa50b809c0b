//! The architecture whose code paths and limits the program uses on a GPU. Pure.
//!
//! It is the GPU's own, but for two cases. A GPU that is newer than NVRTC runs the code of the newest architecture that NVRTC knows;
//! and [`ARCH_VARIABLE`] names an older one, so that its code paths can be tested and timed where no such card is at hand. Both are PTX, which
//! the driver compiles.

/// An environment variable: `80`, `86`, `89`, ….
pub const ARCH_VARIABLE: &str = "SPOTTER_CUDA_ARCH";

/// Compute capability, e.g. 89 for 8.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability(pub u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeArch {
    pub capability: Capability,
    /// What NVRTC compiles for: `sm_90a`, or `compute_80` for PTX.
    pub option: String,
}

impl CodeArch {
    /// For a GPU and the architectures that NVRTC `knows`, or for the one that is `wanted`; the error says what is wrong with that.
    pub fn choose(
        gpu: Capability,
        wanted: Option<&str>,
        knows: &[Capability],
    ) -> Result<Self, String> {
        let Some(wanted) = wanted else {
            return Ok(Self::of_gpu(gpu, knows));
        };
        let is_run = |known: &&Capability| (Capability::OLDEST..=gpu).contains(*known);
        let usable: Vec<Capability> = knows.iter().filter(is_run).copied().collect();
        let found = usable.iter().find(|usable| usable.0.to_string() == wanted);
        found.map(|&found| Self::ptx(found)).ok_or_else(|| {
            let names: Vec<String> = usable.iter().map(|usable| usable.0.to_string()).collect();
            format!(
                "{ARCH_VARIABLE}={wanted:?}: one of {} is expected, as NVRTC knows them and a GPU of compute capability {gpu} runs them",
                names.join(", ")
            )
        })
    }

    fn of_gpu(gpu: Capability, knows: &[Capability]) -> Self {
        let is_older = |known: &&Capability| **known < gpu;
        match knows.iter().filter(is_older).max() {
            Some(&newest) if !knows.contains(&gpu) => Self::ptx(newest),
            _ => Self {
                capability: gpu,
                // Only the `a` variants have a generation's own tensor instructions.
                option: match gpu.0 {
                    90 | 100 => format!("sm_{}a", gpu.0),
                    other => format!("sm_{other}"),
                },
            },
        }
    }

    fn ptx(capability: Capability) -> Self {
        Self {
            capability,
            option: format!("compute_{}", capability.0),
        }
    }
}

impl Capability {
    /// The first one with tensor cores for bf16.
    pub const OLDEST: Self = Self(80);
    /// The first one whose tensor cores support fp8.
    pub const FP8: Self = Self(89);

    /// Shared memory that a block may have at most, bytes (CUDA programming guide, technical specifications).
    pub fn shared_bytes(self) -> usize {
        let kib = match self.0 {
            80 | 87 => 163,
            90..=119 => 227,
            _ => 99,
        };
        kib << 10
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(gpu: u32, wanted: Option<&str>) -> Result<(u32, String), String> {
        let knows = [75, 80, 86, 87, 89, 90, 100, 103, 120].map(Capability);
        let chosen = CodeArch::choose(Capability(gpu), wanted, &knows)?;
        Ok((chosen.capability.0, chosen.option))
    }

    #[test]
    fn gpus_run_their_own_code_or_the_newest_known() {
        assert_eq!(choose(86, None), Ok((86, "sm_86".into())));
        assert_eq!(choose(90, None), Ok((90, "sm_90a".into())));
        assert_eq!(choose(110, None), Ok((103, "compute_103".into())));
    }

    #[test]
    fn older_architecture_is_run_where_it_is_wanted() {
        assert_eq!(choose(90, Some("80")), Ok((80, "compute_80".into())));
        for wrong in ["100", "75", "8.0", ""] {
            let error = choose(90, Some(wrong)).unwrap_err();
            assert!(
                error.ends_with("runs them") && error.contains("80, 86, 87, 89, 90 is"),
                "{error}"
            );
        }
        assert_eq!(Capability(86).shared_bytes(), 101_376);
    }
}
