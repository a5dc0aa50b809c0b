//! A model on a GPU, or on several that work as one: each has a part of the decoder, and a thread of its own.

use std::sync::Arc;

use super::{
    memory_plan::{GpuMemory, MemoryPlan, PlanInputs},
    placement::{GpuId, LoadedDevice, ModelToPlace, log_layers},
    precision::ChosenPrecision,
};
use crate::{
    cuda::{self, CudaBackend, CudaCapacity, CudaError, CudaRank, Gpu, PrecisionSpeed},
    model::{Formats, ModelCalibration, ModelConfig, Weights},
    network::shard::Shard,
    ranks::{RankBuild, RankGroup},
    scheduler::backend::Backend,
};
use spotter_config::{self as config, GpuGroup};
use spotter_core::{Clock, GpuPrecision, Picture};

const NO_CALIBRATION: &str =
    "model.precision = \"fp8\" needs calibration pictures and this program passes none; use bf16";

/// A GPU that cannot be opened, and why.
pub struct UnusableGpu {
    pub index: u32,
    pub error: CudaError,
}

/// Opens the GPU and closes it again.
pub(super) fn identify(index: u32) -> Result<GpuId, UnusableGpu> {
    let gpu = cuda::open(index).map_err(|error| UnusableGpu { index, error })?;
    Ok(GpuId {
        index,
        name: gpu.name,
        uuid: gpu.uuid,
    })
}

/// `cuda 1, NVIDIA H200`, or `cuda 0+1, 2 × NVIDIA H200`.
pub(super) fn label_of(gpus: &[GpuId]) -> String {
    let indices: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    let indices = indices.join("+");
    match gpus {
        [gpu] => format!("cuda {indices}, {}", gpu.name),
        [first, ..] => format!("cuda {indices}, {} × {}", gpus.len(), first.name),
        [] => "cuda".to_owned(),
    }
}

/// GPUs that can work as one: equal sums need equal arithmetic.
pub(super) fn of_one_model(gpus: Vec<GpuId>) -> Result<Vec<GpuId>, String> {
    let others = gpus.iter().skip(1);
    let other = gpus
        .first()
        .and_then(|first| Some((first, others.clone().find(|gpu| gpu.name != first.name)?)));
    match other {
        None => Ok(gpus),
        Some((first, other)) => Err(format!(
            "GPUs {} and {} of model.gpus cannot work as one, because one is {} and the other {}; GPUs in one list must be of one \
             model; make each an engine of its own, as in [{}, {}]",
            first.index, other.index, first.name, other.name, first.index, other.index
        )),
    }
}

/// What a rank is built from, on its own thread.
#[derive(Clone)]
struct RankToPlace {
    gpu: u32,
    config: ModelConfig,
    weights: Weights,
    measured: Option<ModelCalibration>,
    precision: GpuPrecision,
    capacity: CudaCapacity,
    pictures: Vec<Picture>,
    clock: Arc<dyn Clock>,
}

impl RankToPlace {
    fn build(self, rank: Option<CudaRank>) -> Result<Box<dyn Backend>, String> {
        let is_rank = rank.is_some();
        let experts = self.weights.number_of_experts();
        let settings = cuda::CudaSettings {
            gpu: self.gpu,
            cache: &cuda::kernel_cache(),
            capacity: self.capacity,
            formats: Formats::on_gpu(self.precision, self.measured.as_ref(), experts),
            pictures: &self.pictures,
        };
        let backend = CudaBackend::of_rank(settings, &self.config, self.weights, self.clock, rank);
        let backend = backend.map_err(|error| match is_rank {
            true => format!("GPU {}: {error}", self.gpu),
            false => error.to_string(),
        });
        Ok(Box::new(backend?))
    }

    /// On these GPUs.
    fn build_on(self, gpus: &[GpuId]) -> Result<Box<dyn Backend>, String> {
        if gpus.len() < 2 {
            return self.build(None);
        }
        let mut ranks = CudaRank::all(gpus.len()).into_iter();
        let leader = ranks.next();
        let others = gpus.iter().skip(1).zip(ranks).map(|(gpu, rank)| {
            let other = Self {
                gpu: gpu.index,
                ..self.clone()
            };
            Box::new(move || other.build(Some(rank))) as RankBuild
        });
        let others = others.collect();
        Ok(Box::new(RankGroup::build(|| self.build(leader), others)?))
    }
}

pub(super) fn place_on_gpus(
    label: String,
    gpus: Vec<GpuId>,
    model: ModelToPlace<'_>,
) -> Result<LoadedDevice, String> {
    let ModelToPlace {
        settings,
        adapter_slots,
        config,
        weights,
        measured,
        bounds,
        calibration,
        clock,
    } = model;
    cuda::supported(config).map_err(|e| e.to_string())?;
    let of_rank = of_rank(config, gpus.len())?;
    let experts = weights.number_of_experts();
    // Kept open: the driver's contexts are there when the free memory is read, and stay.
    let opened: Vec<Gpu> = gpus
        .iter()
        .map(|gpu| cuda::open(gpu.index).map_err(|error| format!("GPU {}: {error}", gpu.index)))
        .collect::<Result<_, _>>()?;
    let [first, ..] = &opened[..] else {
        return Err("model.gpus names no GPU; write [0]".to_owned());
    };
    let memory = fullest(&opened, settings.memory)?;
    let plan = |precision| {
        MemoryPlan::new(PlanInputs {
            config: &of_rank,
            bounds,
            precision,
            measured: measured.measured(),
            experts,
            adapters: adapter_slots,
            has_fp8: first.has_fp8(),
            memory,
        })
    };
    let fits = |precision| plan(precision).is_ok();
    let measure = || cuda::measure_precisions(gpus[0].index, config, experts, clock.as_ref());
    let chosen = chosen_precision(settings, measure, fits)?;
    let plan = plan(chosen.precision)?;
    tracing::info!("{plan}");
    let mut pictures = Vec::new();
    let layers = match chosen.precision {
        GpuPrecision::Bf16 => None,
        GpuPrecision::Int8 | GpuPrecision::Int4 => Some(measured.about_int8("bf16")),
        GpuPrecision::Fp8 => {
            pictures = calibration();
            if pictures.is_empty() {
                return Err(NO_CALIBRATION.into());
            }
            Some(measured.about_fp8(pictures.len()))
        }
    };
    log_layers(layers.as_deref(), measured);
    let rank = RankToPlace {
        gpu: gpus[0].index,
        config: config.clone(),
        weights,
        measured: measured.measured().cloned(),
        precision: chosen.precision,
        capacity: plan.capacity,
        pictures,
        clock,
    };
    Ok(LoadedDevice {
        backend: rank.build_on(&gpus)?,
        precision: chosen.precision.name(),
        layers,
        device: match chosen.reason {
            Some(reason) => format!("{label}, {reason}"),
            None => label.clone(),
        },
        label,
        gpus,
        permits: plan.permits,
    })
}

/// The memory of GPUs that work as one: all have the same plan, so the fullest decides.
fn fullest(gpus: &[Gpu], limit: Option<u64>) -> Result<GpuMemory, String> {
    let free = gpus
        .iter()
        .map(|gpu| gpu.free_bytes().map_err(|e| e.to_string()));
    let free = free.collect::<Result<Vec<usize>, String>>()?;
    let total = gpus.iter().map(|gpu| gpu.memory_bytes);
    Ok(GpuMemory {
        total: total.min().unwrap_or_default(),
        free: free.into_iter().min().unwrap_or_default(),
        limit: limit.map(|bytes| bytes as usize),
    })
}

/// What each of so many GPUs has of the model, as the first one has it.
fn of_rank(config: &ModelConfig, ranks: usize) -> Result<ModelConfig, String> {
    let of_first = |ranks| config.of_shard(Shard { rank: 0, ranks });
    of_first(ranks).map_err(|error| {
        let mut sizes = GpuGroup::SIZES.to_vec();
        sizes.retain(|size| of_first(*size).is_ok());
        format!("{error}; with this model, a list of GPUs in model.gpus may have one of these sizes: {sizes:?}")
    })
}

/// The configured precision, or the fastest that fits into the GPU by what is measured then.
fn chosen_precision(
    settings: &config::ModelSettings,
    measure: impl FnOnce() -> Result<Vec<PrecisionSpeed>, CudaError>,
    fits: impl Fn(GpuPrecision) -> bool,
) -> Result<ChosenPrecision, String> {
    if let Some(precision) = settings.precision {
        return Ok(ChosenPrecision {
            precision,
            reason: None,
        });
    }
    let speeds = measure().map_err(|e| e.to_string())?;
    // Where none fits, the plan for bf16 says what would.
    let chosen = ChosenPrecision::fastest(&speeds, fits).unwrap_or(ChosenPrecision {
        precision: GpuPrecision::Bf16,
        reason: None,
    });
    if let Some(reason) = &chosen.reason {
        tracing::info!("{reason}");
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(names: &[&str]) -> Vec<GpuId> {
        let gpu = |(index, name): (u32, &&str)| GpuId {
            index,
            name: (*name).to_owned(),
            uuid: format!("GPU-{index}"),
        };
        (1..).zip(names).map(gpu).collect()
    }

    #[test]
    fn label_names_all_gpus() {
        assert_eq!(label_of(&gpus(&["NVIDIA L4"])), "cuda 1, NVIDIA L4");
        let two = gpus(&["NVIDIA H100", "NVIDIA H100"]);
        assert_eq!(label_of(&two), "cuda 1+2, 2 × NVIDIA H100");
    }

    #[test]
    fn gpus_of_two_models_are_an_error_that_names_both() {
        let of_one = gpus(&["NVIDIA H100", "NVIDIA H100"]);
        assert_eq!(of_one_model(of_one.clone()), Ok(of_one));
        let error = of_one_model(gpus(&["NVIDIA H100", "NVIDIA H100", "NVIDIA L4"]));
        let error = error.unwrap_err();
        let start = "GPUs 1 and 3 of model.gpus cannot work as one, because one is NVIDIA H100 and the other NVIDIA L4; ";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn model_says_how_many_gpus_can_divide_it() {
        let mut config = ModelConfig::default();
        config.text.n_heads = 4;
        assert_eq!(of_rank(&config, 4).unwrap().text.n_heads, 1);
        let error = of_rank(&config, 8).unwrap_err();
        let end = "; with this model, a list of GPUs in model.gpus may have one of these sizes: [1, 2, 4]";
        assert!(error.ends_with(end), "{error}");
    }
}
