//! `[model]`: which model runs where.

use std::{
    collections::BTreeSet,
    fmt::{self, Display},
    ops::RangeInclusive,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    forms::{
        environment::{DEFAULT_MODEL, Environment},
        prelude::*,
    },
    read::prelude::*,
};
use spotter_core::GpuPrecision;

/// Which model runs where. Its serde form goes to the processes of engines and is not that of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSettings {
    pub source: ModelSource,
    /// True when no path is set and no model was fetched, so that the embedded model is the only one.
    pub is_stand_in: bool,
    pub device: DevicePreference,
    /// The GPUs of each engine, of several each in a process of its own; default the first GPU.
    pub gpus: Vec<GpuGroup>,
    /// Default bf16.
    pub precision: PrecisionSetting,
    /// The most memory of each GPU that an engine may take, bytes; `None`: what is free, less a share for others.
    pub memory: Option<u64>,
    /// Receive to publish; older work is dropped. Default 250 ms with a GPU model, 1 s with the embedded one.
    pub budget: Duration,
    /// Objects a prompt may return; default 50.
    pub max_objects: u32,
    /// Where frames lie that an NVIDIA GPU decodes for the only engine, on one GPU; with several they come to the host. Default
    /// the host.
    pub frames: FramePlace,
    /// What is used again of a camera's picture that does not change.
    pub reuse: ReuseMode,
    /// A picture is encoded afresh after this time, also when it has not changed. Default 10 s.
    pub reuse_max_age: Duration,
}

/// The GPUs of an engine: one, or several that work as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct GpuGroup(Vec<u32>);

impl GpuGroup {
    /// How many can work as one: heads and widths of models are multiples of these.
    pub const SIZES: [usize; 4] = [1, 2, 4, 8];
    /// Of a GPU.
    const INDICES: RangeInclusive<u32> = 0..=63;

    pub fn one(index: u32) -> Self {
        Self(vec![index])
    }

    /// At least one.
    pub fn indices(&self) -> &[u32] {
        &self.0
    }
}

impl TryFrom<Vec<u32>> for GpuGroup {
    type Error = String;

    fn try_from(indices: Vec<u32>) -> Result<Self, String> {
        let (count, [.., most]) = (indices.len(), Self::SIZES);
        if !Self::SIZES.contains(&count) {
            return Err(format!(
                "{count} GPUs cannot work as one; name 2, 4 or {most}, or make each an engine of its own, as in [0, 1]"
            ));
        }
        if let Some(twice) = listed_twice(&indices) {
            return Err(format!("GPU {twice} is listed twice"));
        }
        Ok(Self(indices))
    }
}

impl From<GpuGroup> for Vec<u32> {
    fn from(group: GpuGroup) -> Self {
        group.0
    }
}

impl Display for GpuGroup {
    /// As the file writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [index] => write!(f, "{index}"),
            indices => write!(f, "{indices:?}"),
        }
    }
}

impl FromStr for GpuGroup {
    type Err = String;

    /// As the command line has it: `0`, or `0,1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let index = |part: &str| {
            let index = part.trim().parse().ok();
            index.filter(|index| Self::INDICES.contains(index))
        };
        let indices: Option<Vec<u32>> = text.split(',').map(index).collect();
        let (low, high) = (Self::INDICES.start(), Self::INDICES.end());
        let wanted = || format!("not indices of GPUs, {low} to {high}, as in 0,1");
        indices.ok_or_else(wanted)?.try_into()
    }
}

/// The first index that is there before.
fn listed_twice<'a>(indices: impl IntoIterator<Item = &'a u32>) -> Option<u32> {
    let mut seen = BTreeSet::new();
    let mut indices = indices.into_iter();
    indices.find(|index| !seen.insert(**index)).copied()
}

/// Where frames lie that an NVIDIA GPU decodes for an engine on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FramePlace {
    /// They come to the host: unchanged tiles are found and not encoded again.
    Host,
    /// They stay on the GPU, and every tile is encoded.
    Gpu,
}

/// When a part of a picture counts as unchanged, so that it is not encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReuseMode {
    /// It differs by less than the camera's noise.
    Auto,
    /// All of its bytes are equal.
    Exact,
    /// Never.
    Off,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelSource {
    /// The demonstration model in the binary.
    Embedded,
    /// A directory with config.json, model.safetensors, tokenizer.json.
    Directory(PathBuf),
}

/// On what a model runs.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::EnumString,
    strum::VariantNames,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "lowercase")]
pub enum DevicePreference {
    /// The GPU when it works, else the CPU.
    Auto,
    Cpu,
    /// The GPU or nothing.
    Cuda,
}

/// `None`: the fastest on the GPU that fits into its memory.
pub type PrecisionSetting = Option<GpuPrecision>;

impl ModelSettings {
    /// A model with every other setting at its default.
    pub fn of(source: ModelSource) -> Self {
        let budget = match source {
            ModelSource::Embedded => Self::EMBEDDED_BUDGET,
            ModelSource::Directory(_) => Self::BUDGET,
        };
        Self {
            source,
            is_stand_in: false,
            device: DevicePreference::Auto,
            gpus: vec![GpuGroup::one(0)],
            frames: FramePlace::Host,
            precision: Some(GpuPrecision::Bf16),
            memory: None,
            budget,
            max_objects: 50,
            reuse: ReuseMode::Auto,
            reuse_max_age: Duration::from_secs(10),
        }
    }

    const BUDGET: Duration = Duration::from_millis(250);
    /// It runs on a small machine's CPU.
    const EMBEDDED_BUDGET: Duration = Duration::from_secs(1);

    /// The model that is used when no path is set: the fetched one, else the embedded one. Blocks on the disk.
    pub fn of_default(environment: &Environment) -> Self {
        match environment.fetched_model() {
            Some(directory) => Self::of(ModelSource::Directory(directory)),
            None => Self {
                is_stand_in: true,
                ..Self::of(ModelSource::Embedded)
            },
        }
    }
}

/// Reads `[model]`, and the most adapters that it may have.
pub(crate) fn model(scope: &Scope<'_>, mut table: Reader<'_>) -> (ModelSettings, usize) {
    keys! { table in "`[model]`", "The vision-language model and the device that runs it.", "[model]\npath = \"/var/lib/spotter/models/moondream2\"\ndevice = \"cuda\"";
        /// Directory with `config.json`, `model.safetensors` and `tokenizer.json`. `embedded` is the small demonstration model in the program. A service looks for a fetched model in `$STATE_DIRECTORY/models` (`/var/lib/spotter/models`), a user in `$XDG_DATA_HOME/spotter/models` (`~/.local/share`), then in `/var/lib/spotter/models`.
        path = text("path of a directory, or `\"embedded\"`", not_empty).optional(format!("the model that `spotter model get {DEFAULT_MODEL}` fetched, else `\"embedded\"`")), r#"path = "/var/lib/spotter/models/moondream2""#;
    }
    let mut model = match path.as_deref() {
        None => ModelSettings::of_default(scope.environment),
        Some("embedded") => ModelSettings::of(ModelSource::Embedded),
        Some(path) => ModelSettings::of(ModelSource::Directory(scope.path(path))),
    };
    if let (ModelSource::Directory(dir), Some(path)) = (&model.source, table.given("path"))
        && !dir.is_dir()
    {
        let remedy = "`spotter model get` fetches a model";
        let text = format!("directory not found: {}; {remedy}", dir.display());
        scope.absent(&path, text);
    }
    let [budget, of_embedded] =
        [ModelSettings::BUDGET, ModelSettings::EMBEDDED_BUDGET].map(duration_text);
    keys! { table into model;
        /// `auto` uses an NVIDIA GPU when one works, otherwise the CPU. `cuda` requires a GPU: without one, Spotter does not start.
        device = words(&[("auto", DevicePreference::Auto), ("cpu", DevicePreference::Cpu), ("cuda", DevicePreference::Cuda)]).or(model.device), r#"device = "cuda""#;
        /// GPUs to use. Each GPU runs one engine; GPUs in a list of their own, as in `[[0, 1]]`, run one engine together and must be of one model. Several engines run in separate processes and share the cameras. See [Several GPUs](gpu.md#several-gpus).
        gpus = gpus().or(model.gpus.clone()), "gpus = [0, 1]";
        /// Arithmetic on the GPU, and with `int8` also on the CPU, which otherwise computes in f32. `fp8` is faster and requires compute capability 8.9 or newer. `int8` halves the memory of the weights. `int4` is `int8` with experts in 4 bits, for models with experts (Moondream 3) on a GPU. All of them can change answers. `auto` measures products of the model's sizes at each start and takes the fastest that fits into the memory: `fp8` or `int8` only when it is at least 15 % faster than `bf16`, `int4` only when it is 15 % faster than these, or nothing else fits.
        precision = words(&[("auto", None), ("bf16", Some(GpuPrecision::Bf16)), ("fp8", Some(GpuPrecision::Fp8)), ("int8", Some(GpuPrecision::Int8)), ("int4", Some(GpuPrecision::Int4))]).or(model.precision), r#"precision = "int8""#;
        /// The most memory of each GPU that an engine may take. Set it where other programs share the GPU. With less memory, a step has fewer images. See [Memory](gpu.md#memory).
        memory = memory().optional("what is free, less a sixteenth of the GPU's memory"), r#"memory = "6GiB""#;
        /// Longest time from receiving a frame to publishing its answer. Looks that would be later are dropped and counted.
        budget = time(Duration::from_millis(10)..=Duration::from_mins(1)).or_as(format!("`\"{budget}\"` with a model directory, `\"{of_embedded}\"` with the embedded model"), model.budget), r#"budget = "250ms""#;
        /// The most objects that one answer may have.
        max_objects = whole(1..=1000, "objects").or(model.max_objects), "max_objects = 50";
        /// Memory of the frames that an NVIDIA GPU decodes. `gpu` avoids copies but encodes every tile again; it requires exactly one engine, on one GPU; otherwise frames come to the host.
        frames = words(&[("host", FramePlace::Host), ("gpu", FramePlace::Gpu)]).or(model.frames), r#"frames = "gpu""#;
        /// Whether parts of a picture that have not changed are encoded again. `auto` compares with a noise floor that is learned for each camera; `exact` reuses only equal bytes; `off` encodes everything. When nothing changed, the last answer is published again with `unchanged`.
        reuse = words(&[("auto", ReuseMode::Auto), ("exact", ReuseMode::Exact), ("off", ReuseMode::Off)]).or(model.reuse), r#"reuse = "exact""#;
        /// A picture is encoded afresh after this time, even if nothing changed.
        reuse_max_age = time(Duration::from_secs(1)..=Duration::from_hours(1)).or(model.reuse_max_age), r#"reuse_max_age = "30s""#;
    }
    keys! { table;
        /// The most `[adapter]` tables. With the first one, a GPU reserves memory for this number, each at rank 32 about 79 MB with Moondream 3.
        adapters = whole(0..=32, "adapters").or(4), "adapters = 8";
    }
    table.ignored("tile_difference", "write reuse = \"exact\" for what 0 did");
    table.finish();
    (model, adapters)
}

/// The GPUs of each engine.
fn gpus() -> Form<'static, Vec<GpuGroup>> {
    let (low, high) = (GpuGroup::INDICES.start(), GpuGroup::INDICES.end());
    let text = format!(
        "list of GPU indices, {low} to {high}, or of lists of 2, 4 or 8 indices; each once"
    );
    let form = Form::new(text, |value| {
        let empty = "empty; name at least one GPU, as in [0], or write device = \"cpu\"";
        let groups = full_list(gpu_group(), empty).read(value)?;
        if let Some(twice) = listed_twice(groups.iter().flat_map(GpuGroup::indices)) {
            value.error(format!(
                "GPU {twice} is listed twice; a GPU runs one engine"
            ));
        }
        Some(groups)
    });
    form.written(|groups| {
        let groups: Vec<String> = groups.iter().map(GpuGroup::to_string).collect();
        format!("[{}]", groups.join(", "))
    })
}

/// An index, or a list of some that work as one.
fn gpu_group() -> Form<'static, GpuGroup> {
    let index = || whole(GpuGroup::INDICES, "");
    Form::new("GPUs", move |value| {
        if !value.is_list() {
            return index().read(value).map(GpuGroup::one);
        }
        let empty = "empty; name the GPUs that work as one, as in [[0, 1]]";
        let indices = full_list(index(), empty).read(value)?;
        match indices.is_empty() {
            true => None,
            false => value.checked(indices.try_into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_names_gpus_that_work_as_one() {
        let group = |text: &str| text.parse::<GpuGroup>().map(|group| group.to_string());
        assert_eq!(group("3"), Ok("3".into()));
        assert_eq!(group("1, 0"), Ok("[1, 0]".into()));
        for (text, part) in [
            ("", "not indices of GPUs, 0 to 63"),
            ("0;1", "not indices"),
            ("0,64", "not indices"),
            ("0,1,2", "3 GPUs cannot work as one; name 2, 4 or 8"),
            ("1,1", "GPU 1 is listed twice"),
        ] {
            let error = group(text).unwrap_err();
            assert!(error.starts_with(part), "{text}: {error}");
        }
    }
}
