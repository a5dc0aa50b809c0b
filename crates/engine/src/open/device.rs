//! Which devices a model runs on, and how much it may hold there.
//!
//! `device = "auto"` takes the GPUs when they work, else the CPU, and says which and why; `cuda` takes the GPUs or fails. A
//! machine on which some of the listed GPUs work and others do not is never what was meant, so both refuse it.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    gpus::{UnusableGpu, identify, label_of, of_one_model, place_on_gpus},
    memory_plan::{PAGE_TOKENS, SLOTS, crops_max, pages},
    placement::{GpuId, LoadedDevice, ModelToPlace, log_layers},
};
use crate::{
    cpu::{self, CpuBackend},
    cuda,
    model::{Formats, ModelCalibration, ModelConfig},
    network::format::{Format, Number},
    scheduler::sequence::Bounds,
};
use spotter_config::{self as config, GpuGroup};
use spotter_core::GpuPrecision;

/// Prompts that are decoded together; more are taken in turns.
const CPU_ROWS: usize = 16;
/// Cameras whose crops are kept.
const CPU_CAMERAS: usize = 16;
/// Looks that may be inside an engine on the CPU: while one decodes, the next is prefilled. More would only grow old,
/// because a row more costs a processor nearly what a row alone does.
const CPU_PERMITS: usize = 2;

/// Names of the board and the chip, each with a zero byte behind.
const CHIP_NAMES: &str = "sys/firmware/devicetree/base/compatible";
const TEGRA: &str = "nvidia,tegra";

const NO_EXPERTS: &str = "model.precision = \"int4\" is for models with experts, such as Moondream 3; \
    this model has none; set \"int8\"";

/// What is plugged in, as the kernel reports it, and numbers of the PCI ID database: a maker, and a class of devices.
const PCI_DEVICES: &str = "sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
const DISPLAY: &str = "0x03";

/// What a model runs on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ModelDevice {
    /// The processor, and why.
    Cpu(String),
    /// One, or several that work as one.
    Gpus(Vec<GpuId>),
}

/// Chooses by the settings and by what is there: the processor, or the listed GPUs in their order. The error says
/// what is missing. A GPU is opened for it and closed again: an open one takes some hundred MB of its memory.
pub fn choose(settings: &config::ModelSettings) -> Result<Vec<ModelDevice>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = |why: String| vec![ModelDevice::Cpu(format!("cpu, {threads} threads, {why}"))];
    if settings.device == config::DevicePreference::Cpu {
        return Ok(cpu("as configured".into()));
    }
    let wanted = settings.gpus.iter().flat_map(GpuGroup::indices);
    let opened: Vec<_> = wanted.map(|&index| identify(index)).collect();
    let none_works = opened.iter().all(Result::is_err);
    match opened.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(gpus) => {
            let mut gpus = gpus.into_iter();
            let mut of_group = |group: &GpuGroup| {
                let gpus = gpus.by_ref().take(group.indices().len()).collect();
                of_one_model(gpus).map(ModelDevice::Gpus)
            };
            settings.gpus.iter().map(&mut of_group).collect()
        }
        Err(unusable) if none_works && settings.device == config::DevicePreference::Auto => {
            let error = unusable.error;
            if has_nvidia_gpu(Path::new("/")) {
                tracing::warn!(
                    "this machine has an NVIDIA GPU that does not work: {error}; the CPU is used until Spotter starts again. \
                     With model.device = \"cuda\" the start fails instead, and systemd tries again until the GPU works"
                );
            }
            Ok(cpu(error.to_string()))
        }
        Err(UnusableGpu { index, error }) => Err(format!("GPU {index} of model.gpus: {error}")),
    }
}

/// Whether the machine has a graphics card of NVIDIA's or a Jetson's GPU, with or without a driver for it. `root` is `/` except in
/// tests. Blocks a moment.
fn has_nvidia_gpu(root: &Path) -> bool {
    let is = |device: &Path, name, start| {
        let text = fs::read_to_string(device.join(name));
        text.is_ok_and(|text| text.starts_with(start))
    };
    let devices = fs::read_dir(root.join(PCI_DEVICES));
    let mut devices = devices.into_iter().flatten().flatten();
    let has_card = devices.any(|device| {
        let device = device.path();
        is(&device, "vendor", NVIDIA) && is(&device, "class", DISPLAY)
    });
    has_card || is_tegra(root)
}

/// Whether the chip is one of NVIDIA's with a GPU inside, with or without a driver for it. `root` is `/` except in tests.
pub fn is_tegra(root: &Path) -> bool {
    let compatible = fs::read(root.join(CHIP_NAMES));
    compatible.is_ok_and(|names| String::from_utf8_lossy(&names).contains(TEGRA))
}

/// The first of them, which may be GPUs that work as one: for work that needs one.
pub fn choose_one(settings: &config::ModelSettings) -> Result<ModelDevice, String> {
    let first = config::ModelSettings {
        gpus: settings.gpus.first().cloned().into_iter().collect(),
        ..settings.clone()
    };
    let none = || "model.gpus names no GPU; write [0]".to_owned();
    choose(&first)?.pop().ok_or_else(none)
}

impl ModelDevice {
    /// A short name, different for each device: `cpu`, `cuda 1, NVIDIA H200`, or `cuda 0+1, 2 × NVIDIA H200`.
    pub fn label(&self) -> String {
        match self {
            Self::Cpu(_) => "cpu".into(),
            Self::Gpus(gpus) => label_of(gpus),
        }
    }

    /// Puts the model there. Blocks while weights are converted or copied.
    pub fn place(self, model: ModelToPlace<'_>) -> Result<LoadedDevice, String> {
        let is_int4 = model.settings.precision == Some(GpuPrecision::Int4);
        if is_int4 && !model.weights.has_experts() {
            return Err(NO_EXPERTS.into());
        }
        let label = self.label();
        match self {
            Self::Cpu(device) => place_on_cpu(label, device, model),
            Self::Gpus(gpus) => place_on_gpus(label, gpus, model),
        }
    }
}

fn place_on_cpu(
    label: String,
    device: String,
    model: ModelToPlace<'_>,
) -> Result<LoadedDevice, String> {
    let formats = cpu_formats(model.settings, model.measured.measured());
    let (name, layers) = match formats.large.weight {
        Number::Int8 => ("int8", Some(model.measured.about_int8("f32"))),
        _ => ("f32", None),
    };
    log_layers(layers.as_deref(), model.measured);
    let cpu_settings = cpu_settings(model.config, model.bounds, formats);
    let backend = CpuBackend::new(model.config, model.weights, cpu_settings, model.clock);
    Ok(LoadedDevice {
        backend: Box::new(backend.map_err(|e| e.to_string())?),
        precision: name,
        layers,
        device,
        label,
        gpus: Vec::new(),
        permits: CPU_PERMITS,
    })
}

/// Those of the configured precision, as far as the CPU has it.
fn cpu_formats<'a>(
    settings: &config::ModelSettings,
    measured: Option<&'a ModelCalibration>,
) -> Formats<'a> {
    match settings.precision {
        Some(GpuPrecision::Int8) => Formats::F32.with_large(Format::INT8, measured),
        Some(GpuPrecision::Int4) => {
            tracing::warn!("precision = \"int4\" is for GPUs; the model runs in int8 on the CPU");
            Formats::F32.with_large(Format::INT8, measured)
        }
        Some(GpuPrecision::Fp8) => {
            tracing::warn!("precision = \"fp8\" is for GPUs; the model runs in f32 on the CPU");
            Formats::F32
        }
        Some(GpuPrecision::Bf16) | None => Formats::F32,
    }
}

/// How frames that are decoded on a GPU stay there for an engine on that GPU alone, where that is asked for; `None`: they come to the host.
pub fn frames_on(gpu: bool, settings: &config::ModelSettings) -> Option<cuda::FrameImport> {
    (gpu && settings.frames == config::FramePlace::Gpu)
        .then_some(cuda::take_frame as cuda::FrameImport)
}

/// Enough pages for a look whose every row is as long as it can get, and for the picture of the next.
fn cpu_settings<'a>(
    config: &ModelConfig,
    bounds: Bounds,
    formats: Formats<'a>,
) -> cpu::CpuSettings<'a> {
    let (prefix, own) = pages(config, bounds);
    cpu::CpuSettings {
        formats,
        slots: SLOTS,
        rows: CPU_ROWS,
        images: 1,
        pages: 2 * prefix + CPU_ROWS * own,
        page_tokens: PAGE_TOKENS,
        kept_crops: CPU_CAMERAS * crops_max(config),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        model::CalibrationState,
        testing::{golden_model, golden_set},
    };
    use spotter_config::ModelSource;
    use spotter_core::ManualClock;

    /// More GPUs than any machine has.
    const ABSENT: u32 = 4000;

    fn settings(device: config::DevicePreference, gpus: &[u32]) -> config::ModelSettings {
        config::ModelSettings {
            device,
            gpus: gpus.iter().copied().map(GpuGroup::one).collect(),
            ..config::ModelSettings::of(ModelSource::Embedded)
        }
    }

    #[test]
    fn missing_gpu_is_an_error_that_names_it() {
        let Err(error) = choose(&settings(config::DevicePreference::Cuda, &[ABSENT])) else {
            panic!("no machine has so many GPUs");
        };
        assert!(error.starts_with("GPU 4000 of model.gpus: "), "{error}");
    }

    #[test]
    fn int4_needs_experts_and_is_int8_on_the_cpu() {
        let settings = config::ModelSettings {
            precision: Some(GpuPrecision::Int4),
            ..settings(config::DevicePreference::Cpu, &[])
        };
        let placed = |set: &str| {
            let set = golden_set(set);
            let config = golden_model::config(&set);
            let model = ModelToPlace {
                settings: &settings,
                adapter_slots: 0,
                config: &config,
                weights: golden_model::weights(&set, &config),
                measured: &CalibrationState::Missing,
                bounds: Bounds {
                    max_objects: 50,
                    max_tokens: 128,
                },
                calibration: Vec::new,
                clock: Arc::new(ManualClock::default()),
            };
            ModelDevice::Cpu("cpu".into()).place(model)
        };
        let error = placed("md2-micro").map(|_| ()).unwrap_err();
        assert!(error.ends_with("set \"int8\""), "{error}");
        let device = placed("md3-ln-tiny").map_err(|error| error.to_string());
        assert_eq!(device.map(|device| device.precision), Ok("int8"));
    }

    #[test]
    fn frames_stay_on_the_gpu_when_configured() {
        let mut settings = settings(config::DevicePreference::Cuda, &[0]);
        assert!(frames_on(true, &settings).is_none());
        settings.frames = config::FramePlace::Gpu;
        assert!(frames_on(true, &settings).is_some());
        assert!(frames_on(false, &settings).is_none());
    }

    #[test]
    fn gpu_presence_is_read_from_the_kernel_not_the_driver() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let plug = |name: &str, vendor: &str, class: &str| {
            let device = root.join(PCI_DEVICES).join(name);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
        };
        assert!(!has_nvidia_gpu(root));
        // Its sound device, and a graphics card of another maker.
        plug("0000:01:00.1", "0x10de", "0x040300");
        plug("0000:00:02.0", "0x8086", "0x030000");
        let board = root.join("sys/firmware/devicetree/base");
        fs::create_dir_all(&board).unwrap();
        fs::write(board.join("compatible"), "raspberrypi,5\0brcm,bcm2712\0").unwrap();
        assert!(!has_nvidia_gpu(root));
        plug("0000:01:00.0", "0x10de", "0x030200");
        assert!(has_nvidia_gpu(root));
        fs::remove_dir_all(root.join(PCI_DEVICES)).unwrap();
        fs::write(board.join("compatible"), "nvidia,p3768\0nvidia,tegra234\0").unwrap();
        assert!(has_nvidia_gpu(root));
    }

    #[test]
    fn auto_device_without_working_gpu_is_cpu_with_the_reason() {
        let chosen = choose(&settings(
            config::DevicePreference::Auto,
            &[ABSENT, ABSENT + 1],
        ))
        .unwrap();
        let [ModelDevice::Cpu(why)] = &chosen[..] else {
            panic!("a GPU that is not there");
        };
        assert!(why.contains("GPU"), "{why}");
        assert_eq!(chosen[0].label(), "cpu");
    }
}
