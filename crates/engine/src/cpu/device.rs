//! [`CpuDevice`]: what the stream's thread owns, and how it runs a step.
//!
//! A step is `crops ─▶ images ─▶ rows ─▶ decisions`; each stage takes everything of its kind as one batch. What is
//! beside a row or a crop never changes its numbers, to the bit: products sum each row in the same order, and attention
//! goes row by row. So a carried row, a draft and a batch of images give the bits that they would give alone.

use std::{borrow::Cow, sync::Arc};

use super::{
    decide::{DecisionHeads, Outputs},
    kv::KvCache,
    rank::{CpuRank, RankPart},
    region::RegionModel,
    span::{PositionSpan, Sees},
    text::TextModel,
    tiles::{CropsToEncode, FeatureStore},
    vision::VisionModel,
};
use crate::{
    model::{self, AdapterWeights, Crops, ModelConfig, Tiling},
    scheduler::{
        backend::{
            BackendError, CropSource, DecoderInput, Feed, ImageJob, KvTable, LoadedAdapter,
            PickResult, Row, RowMask, SlotId, Step, StepResult, StepTimes,
        },
        decision::Decision,
    },
};
use spotter_core::{Clock, Mono};

/// The network, its cache, and the memory of the steps in flight.
pub(super) struct CpuDevice {
    pub config: ModelConfig,
    pub vision: VisionModel,
    pub text: TextModel,
    pub region: RegionModel,
    /// `None` where it has the whole network.
    pub rank: Option<CpuRank>,
    pub cache: KvCache,
    pub tiles: FeatureStore,
    pub slots: Vec<SlotState>,
    /// Hidden states of the step that runs; the memory is used again by the next one.
    pub hidden: Vec<f32>,
    pub clock: Arc<dyn Clock>,
}

/// What a slot keeps of its step.
#[derive(Default)]
pub(super) struct SlotState {
    /// The last decision of each row, for those that carry it on.
    decided: Vec<PickResult>,
    /// A step whose masks are missing.
    waiting: Option<UndecidedStep>,
    /// Why the step whose masks are missing failed.
    failed: Option<BackendError>,
}

/// A step after its forward pass.
struct UndecidedStep {
    committed: StepResult,
    outputs: Outputs,
    /// First output of each row; `None` for a zombie.
    places: Vec<Option<usize>>,
    forwarded: Mono,
}

/// A picture of a step.
struct PreparedPicture {
    tiling: Tiling,
    sources: Vec<CropSource>,
    /// `None` when no crop is encoded.
    crops: Option<Crops>,
}

/// The images of a step.
struct EncodedImages {
    /// Of each, `[tokens, width]`.
    tokens: Vec<Vec<f32>>,
    /// Crops that ran through the encoder.
    fresh: usize,
    /// Crops whose features were kept.
    reused: usize,
}

impl CpuDevice {
    /// Runs a step, all of it or, when a row wants a mask, up to there: then [`CpuDevice::finalize`] does the rest, and has its error.
    pub fn run(&mut self, slot: SlotId, step: Step) -> Result<Option<StepResult>, BackendError> {
        let wants_masks = step.rows.iter().any(Row::wants_mask);
        let result = self.pass(slot, step);
        let Err(error) = result else {
            return result;
        };
        let place = &mut self.slots[slot.0];
        // Rows that carry one of the step's on are zombies.
        place.decided.clear();
        match wants_masks {
            true => {
                place.failed = Some(error);
                Ok(None)
            }
            false => Err(error),
        }
    }

    fn pass(&mut self, slot: SlotId, step: Step) -> Result<Option<StepResult>, BackendError> {
        let started = self.clock.now();
        let pictures = step.images.iter().map(|image| self.prepare(image));
        let pictures: Vec<PreparedPicture> = pictures.collect::<Result<_, _>>()?;
        let prepared = self.clock.now();
        let images = self.encode(&pictures)?;
        let encoded = self.clock.now();
        let inputs: Vec<_> = step.rows.iter().map(|row| self.inputs(row)).collect();
        let outputs = self.forward(&step, &inputs, &images.tokens)?;
        let forwarded = self.clock.now();

        let mut places = Vec::with_capacity(step.rows.len());
        let mut picked = Vec::with_capacity(step.rows.len());
        let mut place = 0;
        for (row, inputs) in step.rows.iter().zip(&inputs) {
            let live = inputs.is_some();
            places.push(live.then_some(place));
            let decision = |i| match live {
                true => outputs.decide(place + i, None, &self.region),
                false => Ok(PickResult::Nothing),
            };
            picked.push(
                (0..row.picks.len())
                    .map(decision)
                    .collect::<Result<_, _>>()?,
            );
            place += if live { row.picks.len() } else { 0 };
        }
        let committed = StepResult {
            picked,
            model_sizes: pictures.iter().map(|p| self.model_size(p.tiling)).collect(),
            crops_encoded: images.fresh,
            crops_reused: images.reused,
            times: StepTimes {
                started,
                prepare: prepared.since(started),
                encode: encoded.since(prepared),
                rows: forwarded.since(encoded),
                sampling: self.clock.now().since(forwarded),
                ..StepTimes::default()
            },
        };
        self.slots[slot.0].remember(&committed);
        if !step.rows.iter().any(Row::wants_mask) {
            return Ok(Some(committed));
        }
        self.slots[slot.0].waiting = Some(UndecidedStep {
            committed,
            outputs,
            places,
            forwarded,
        });
        Ok(None)
    }

    /// Decides the rows that waited for `masks`. A row without one, and a zombie, stays undecided.
    pub fn finalize(
        &mut self,
        slot: SlotId,
        masks: &[RowMask],
    ) -> Result<StepResult, BackendError> {
        let began = self.clock.now();
        let place = &mut self.slots[slot.0];
        if let Some(error) = place.failed.take() {
            return Err(error);
        }
        // The caller's side lets no masks through that no step waits for.
        let Some(mut waiting) = place.waiting.take() else {
            return Err(BackendError::Step(format!(
                "slot {} has no step that waits for masks",
                slot.0
            )));
        };
        for RowMask { row, mask } in masks {
            if let Some(output) = waiting.places[*row] {
                let decision = waiting.outputs.decide(output, Some(mask), &self.region)?;
                waiting.committed.picked[*row] = vec![decision];
            }
        }
        let mut committed = waiting.committed;
        place.remember(&committed);
        let times = &mut committed.times;
        times.mask_wait = began
            .since(waiting.forwarded)
            .saturating_sub(times.sampling);
        times.sampling += self.clock.now().since(began);
        Ok(committed)
    }

    /// The inputs at a row's positions; `None` for a zombie.
    fn inputs(&self, row: &Row) -> Option<Vec<DecoderInput>> {
        match &row.inputs {
            Feed::Host(inputs) => Some(inputs.clone()),
            Feed::Carry(from) => {
                let decided = self.slots[from.slot.0].decided.get(from.row);
                let decision = decided.and_then(|picked| Decision::of(*picked));
                decision.map(|decision| vec![decision.input()])
            }
        }
    }

    /// Scales and cuts a picture, unless all features are kept.
    fn prepare(&self, image: &ImageJob) -> Result<PreparedPicture, BackendError> {
        let vision = &self.config.vision;
        let tiling = model::view_tiling(image.picture.size(), &image.view, vision);
        let sources = image.sources(tiling.crops())?;
        let is_encoded = |source: &CropSource| matches!(source, CropSource::Encoded(_));
        let crops = sources.iter().any(is_encoded);
        Ok(PreparedPicture {
            tiling,
            crops: crops.then(|| model::cut_crops(&image.picture, tiling, vision)),
            sources,
        })
    }

    /// Pictures to image tokens.
    fn encode(&mut self, pictures: &[PreparedPicture]) -> Result<EncodedImages, BackendError> {
        let wanted = pictures.iter().map(|picture| CropsToEncode {
            sources: picture.sources.clone(),
            crops: picture.crops.as_ref(),
        });
        let encoded = self
            .tiles
            .encode(&self.vision, &wanted.collect::<Vec<_>>())?;
        let images = encoded.features.iter().zip(pictures);
        Ok(EncodedImages {
            tokens: images
                .map(|(features, picture)| self.vision.image_tokens(features, picture.tiling))
                .collect(),
            fresh: encoded.fresh,
            reused: encoded.reused,
        })
    }

    /// Runs all rows but the zombies, and behind them the images, as one batch, up to the outputs of the rows' heads. Of images only keys
    /// and values are made.
    fn forward(
        &mut self,
        step: &Step,
        inputs: &[Option<Vec<DecoderInput>>],
        images: &[Vec<f32>],
    ) -> Result<Outputs, BackendError> {
        let live: Vec<(&Row, &Vec<DecoderInput>)> = step
            .rows
            .iter()
            .zip(inputs)
            .filter_map(|(row, inputs)| Some((row, inputs.as_ref()?)))
            .collect();
        let (width, prefix) = (self.text.width(), self.config.prefix_positions());
        self.hidden.clear();
        for (_, inputs) in &live {
            embed(&mut self.hidden, &self.text, &self.region, inputs);
        }
        let rows = self.hidden.len() / width;
        for tokens in images {
            let bos = self.text.embedding(self.config.tokenizer.bos_id);
            self.hidden.extend(bos);
            self.hidden.extend_from_slice(tokens);
        }
        let of_images: Vec<KvTable> = step
            .images
            .iter()
            .map(|image| KvTable {
                prefix: image.pages.clone(),
                prefix_positions: prefix,
                own: Vec::new(),
            })
            .collect();
        let adapters = live.iter().map(|(row, _)| &row.adapter);
        let adapters = adapters.chain(step.images.iter().map(|image| &image.adapter));
        let adapters: Vec<_> = adapters.map(|adapter| self.own(adapter)).collect();
        let (of_live, beside_images) = adapters.split_at(live.len());
        let of_rows = live.iter().zip(of_live);
        let of_rows = of_rows.map(|((row, inputs), adapter)| PositionSpan {
            positions: row.position..row.position + inputs.len(),
            kv: &row.kv,
            sees: Sees::Past,
            adapter: adapter.as_deref(),
        });
        let of_images = of_images.iter().zip(beside_images);
        let of_images = of_images.map(|(kv, adapter)| PositionSpan {
            positions: 0..prefix,
            kv,
            sees: Sees::EachOther,
            adapter: adapter.as_deref(),
        });
        let spans: Vec<PositionSpan<'_>> = of_rows.chain(of_images).collect();
        if !spans.is_empty() {
            let mut ops = self.text.ops(&spans, &mut self.cache);
            ops.part = self.rank.as_ref().map(RankPart::new);
            let run = self.text.forward(&mut self.hidden, ops, rows);
            run.map_err(|error| BackendError::Device(error.to_string()))?;
        }
        self.hidden.truncate(rows * width);

        let mut deciding = Vec::new();
        let mut picks = Vec::new();
        let mut end = 0;
        for (row, inputs) in &live {
            end += inputs.len() * width;
            deciding.extend_from_slice(&self.hidden[end - row.picks.len() * width..end]);
            picks.extend_from_slice(&row.picks);
        }
        let heads = DecisionHeads {
            text: &self.text,
            region: &self.region,
        };
        Ok(heads.outputs(picks, &deciding))
    }

    /// What it has of an adapter. A rank cuts its part out for each step: ranks are here to prove the arithmetic.
    fn own<'a>(&self, adapter: &'a Option<Arc<LoadedAdapter>>) -> Option<Cow<'a, AdapterWeights>> {
        let weights = &adapter.as_ref()?.weights;
        Some(weights.of_shard(self.config.text.shard))
    }

    fn model_size(&self, tiling: Tiling) -> (u32, u32) {
        let (width, height) = tiling.resized(&self.config.vision);
        (width as u32, height as u32)
    }
}

impl SlotState {
    /// Keeps the last decision of every row.
    fn remember(&mut self, committed: &StepResult) {
        let last = committed.picked.iter().map(|picked| picked.last());
        self.decided.clear();
        self.decided
            .extend(last.map(|last| last.copied().unwrap_or(PickResult::Nothing)));
    }
}

/// Appends embeddings, `[inputs, width]`.
pub(super) fn embed(
    hidden: &mut Vec<f32>,
    text: &TextModel,
    region: &RegionModel,
    inputs: &[DecoderInput],
) {
    for input in inputs {
        match *input {
            DecoderInput::Token(id) => hidden.extend(text.embedding(id)),
            DecoderInput::Coord(coord) => hidden.extend(region.encode_coords(&[coord])),
            DecoderInput::Size(width, height) => {
                hidden.extend(region.encode_sizes(&[width, height]))
            }
        }
    }
}
