//! A small Moondream 3 with random weights on the CPU, and adapters with random values.

use std::{convert::Infallible, sync::Arc, time::Duration};

use half::bf16;

use super::{LIMITS, ScheduledModel, SeenPicture};
use crate::{
    cpu::{CpuBackend, CpuSettings},
    model::{
        AdapterWeights, AnswerGrammar, Formats, LowRank, ModelConfig, Skill, Weights, view_tiling,
    },
    network::{
        PartMap,
        spec::{LayerSpec, TensorSpec},
    },
    scheduler::{
        backend::{
            AdapterNumber, Backend, BackendError, BackendLimits, LoadedAdapter, RowMask, SlotId,
            Step, StepResult,
        },
        still::{PictureDetail, PictureMeasure},
    },
    testing::{
        golden_model::{config, weights},
        golden_set,
    },
};
use spotter_core::{ManualClock, Picture, PromptView};

const ADAPTERS: u32 = 2;

/// Of a size in an outline: a token that this model writes, as it does not its own.
const SIZE_ID: u32 = 215;

pub struct SmallMoondream {
    config: ModelConfig,
    weights: Weights,
    formats: Formats<'static>,
    adapters: Vec<Arc<LoadedAdapter>>,
}

impl SmallMoondream {
    pub fn new(formats: Formats<'static>) -> Self {
        let set = golden_set("md3-ln-tiny");
        let config = config(&set);
        let adapter = |number| {
            Arc::new(LoadedAdapter {
                number: AdapterNumber(number),
                weights: random_adapter(&config, number),
            })
        };
        Self {
            weights: weights(&set, &config),
            formats,
            adapters: (1..=ADAPTERS).map(adapter).collect(),
            config,
        }
    }
}

impl ScheduledModel for SmallMoondream {
    fn vocab(&self) -> usize {
        self.config.text.vocab_size
    }

    fn limits(&self) -> BackendLimits {
        BackendLimits {
            prefix_positions: self.config.prefix_positions(),
            ..LIMITS
        }
    }

    fn device(&self, limits: BackendLimits, clock: &ManualClock) -> Box<dyn Backend> {
        let settings = CpuSettings {
            formats: self.formats,
            slots: limits.slots,
            rows: limits.rows,
            images: limits.images,
            pages: limits.pages,
            page_tokens: limits.page_tokens,
            kept_crops: limits.kept_crops,
        };
        // Its thread reads a clock that does not move: the other one moves while it runs.
        let still = Arc::new(ManualClock::default());
        let device = CpuBackend::new(&self.config, self.weights.clone(), settings, still);
        Box::new(LimitedDevice {
            device: device.expect("a backend"),
            limits,
            clock: clock.clone(),
        })
    }

    fn grammar(&self, skill: Skill) -> AnswerGrammar {
        let mut config = self.config.clone();
        config.tokenizer.size_id = SIZE_ID;
        config.grammar(skill)
    }

    /// Pictures up to 2 differ in their right third; picture 3 is a single crop.
    fn picture(&self, number: u8) -> Picture {
        let (width, height) = if number == 3 { (40, 30) } else { (90, 60) };
        let bytes = (0..width * height * 3).map(|i| {
            let x = i / 3 % width;
            let of = if x < 2 * width / 3 { 1 } else { number };
            noise(of.into(), i as u64) as u8
        });
        Picture::from_rgb(width, height, bytes.collect()).expect("a picture")
    }

    fn seen(&self, picture: &Picture) -> SeenPicture {
        let vision = &self.config.vision;
        // Two tiles and the whole picture.
        let view = PromptView {
            crops_max: Some(3),
            ..PromptView::default()
        };
        let tiling = view_tiling(picture.size(), &view, vision);
        SeenPicture {
            view,
            tiling,
            measure: PictureMeasure::of(picture, tiling, vision, PictureDetail::Bytes),
        }
    }

    fn adapter(&self, number: u8) -> Option<Arc<LoadedAdapter>> {
        let index = usize::from(number).checked_sub(1)?;
        self.adapters.get(index).cloned()
    }
}

/// A device with fewer of everything than it has, and with a clock that moves with each step.
struct LimitedDevice {
    device: CpuBackend,
    limits: BackendLimits,
    clock: ManualClock,
}

impl Backend for LimitedDevice {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        crate::step_check::check(&step, &self.limits, usize::MAX)?;
        self.device.launch(slot, step)
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.finalize(slot, masks)
    }

    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let results = self.device.commit(slot)?;
        self.clock.advance(Duration::from_millis(7));
        Ok(results)
    }
}

/// A number of a sequence that looks random.
fn noise(sequence: u64, index: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&index.to_le_bytes(), sequence)
}

fn random_adapter(config: &ModelConfig, number: u32) -> AdapterWeights {
    let mut random = RandomAdapter(u64::from(number) << 32);
    let blocks = config.network().layers.text.blocks.into_iter();
    let blocks = blocks.map(|block| block.try_map(&mut random));
    let Ok(blocks) = blocks.collect();
    AdapterWeights { blocks }
}

/// Has the number of the next layer.
struct RandomAdapter(u64);

impl PartMap<LayerSpec, TensorSpec> for RandomAdapter {
    type Layer = Option<LowRank>;
    type Plain = ();
    type Error = Infallible;

    fn layer(&mut self, layer: LayerSpec) -> Result<Option<LowRank>, Infallible> {
        const RANK: usize = 2;
        self.0 += 1;
        let values = |count: usize, of: u64| {
            let value = |i| noise(2 * self.0 + of, i as u64) as u8 as f32 / 128.0 - 1.0;
            (0..count).map(value).map(bf16::from_f32).collect()
        };
        Ok(layer.adapter.is_some().then(|| LowRank {
            rank: RANK,
            a: values(layer.count * RANK * layer.inner, 0),
            b: values(layer.count * layer.outputs * RANK, 1),
            inner: layer.inner,
            outputs: layer.outputs,
        }))
    }

    fn plain(&mut self, _: TensorSpec) -> Result<(), Infallible> {
        Ok(())
    }
}
