//! A device without tensors, in virtual time. It shows what the scheduler does on a device with given costs, and finds its
//! mistakes: the "KV cache" holds a number for each position that depends on what was fed there, and a decision depends on
//! every number that the row may read, and on nothing else.
//!
//! ```text
//!   feed      token 17 at position 3 ─▶ cell[page][offset] = hash(17, 3)
//!   decide    hash(cells of positions 0..=3, in order) ─▶ x = 412, or the end
//! ```
//!
//! So an answer is a function of image, prompt and what was decided before, like a model's, and every stale, foreign or
//! missing page changes it. Cells of released pages are emptied; reading one is an error.

use std::{sync::Arc, time::Duration};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    scheduler::{
        backend::{
            Backend, BackendError, BackendLimits, CropSource, DecoderInput, Feed, ImageJob,
            KvTable, LoadedAdapter, MaskSource, PageId, Pick, PickResult, Row, RowMask, SlotId,
            Step, StepResult, StepTimes, TokenMask,
        },
        decision::Decision,
        still::CropRegion,
    },
    step_check::check,
};
use spotter_core::{Clock as _, ManualClock, Mono, Picture};

/// What a simulated device costs.
#[derive(Clone)]
pub struct SimCosts {
    /// Forward pass and sampling of a step with these numbers of rows and positions.
    pub step: Arc<dyn Fn(usize, usize) -> (Duration, Duration) + Send + Sync>,
    /// So many crops of a step through the vision encoder, with their shares of the prefix.
    pub crops: Arc<dyn Fn(usize) -> Duration + Send + Sync>,
    /// The host's work for a step; it passes at the commit.
    pub bookkeeping: Duration,
}

impl SimCosts {
    /// Every step costs the same.
    pub fn constant(forward: Duration, sampling: Duration, bookkeeping: Duration) -> Self {
        Self {
            step: Arc::new(move |_, _| (forward, sampling)),
            crops: Arc::new(|_| Duration::ZERO),
            bookkeeping,
        }
    }
}

/// How the simulated model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimModel {
    /// Ids of the vocabulary.
    pub vocab: usize,
    /// One of this many x decisions is the end.
    pub objects: u64,
    /// Crops of a picture.
    pub crops: usize,
    /// Keep and check a number for every position. Off, answers are noise, and a step takes next to no real time.
    pub memory: bool,
}

pub struct SimBackend {
    limits: BackendLimits,
    model: SimModel,
    costs: SimCosts,
    clock: ManualClock,
    /// Lets virtual time pass until a moment; `None`: the clock is set to it.
    wait: Option<Box<dyn FnMut(Mono)>>,
    /// `None` was never written, or was released since.
    cells: Vec<Option<u64>>,
    /// Features in their entries; `None` was never filled.
    kept: Vec<Option<u64>>,
    slots: Vec<Option<SimStep>>,
    device_free: Mono,
}

/// A step in a slot. What it decides is known at once; when, is a matter of the virtual clock.
struct SimStep {
    step: Step,
    hidden: Vec<Vec<u64>>,
    results: StepResult,
    finalized: bool,
    sampling: Duration,
}

impl SimBackend {
    /// A device with its own clock, which passes while the host waits for it.
    pub fn new(
        limits: BackendLimits,
        model: SimModel,
        costs: SimCosts,
        clock: ManualClock,
    ) -> Self {
        Self {
            limits,
            model,
            costs,
            clock,
            wait: None,
            cells: vec![None; limits.pages * limits.page_tokens],
            kept: vec![None; limits.kept_crops],
            slots: (0..limits.slots).map(|_| None).collect(),
            device_free: Mono::default(),
        }
    }

    /// `wait` is to advance the clock to the moment that it is given, and may let others act before.
    #[must_use]
    pub fn on_wait(mut self, wait: impl FnMut(Mono) + 'static) -> Self {
        self.wait = Some(Box::new(wait));
        self
    }

    fn cell(&self, kv: &KvTable, position: usize) -> Result<usize, BackendError> {
        let tokens = self.limits.page_tokens;
        let (pages, at) = match position.checked_sub(kv.prefix_positions) {
            Some(own) => (&kv.own[..], own),
            None => (&kv.prefix[..], position),
        };
        let page = pages.get(at / tokens);
        let page =
            page.ok_or_else(|| BackendError::Step(format!("position {position} has no page")))?;
        Ok(page.0 as usize * tokens + at % tokens)
    }

    fn encode(&mut self, image: &ImageJob, results: &mut StepResult) -> Result<(), BackendError> {
        let crops = strips(&image.picture, self.model.crops);
        let sources = image.sources(crops.len())?;
        let mut features = 0;
        for (crop, source) in crops.iter().zip(sources) {
            let of_crop = match source {
                CropSource::Kept(entry) => self.kept[entry.0 as usize].ok_or_else(|| {
                    BackendError::Step(format!("{entry:?} is read and was never filled"))
                })?,
                CropSource::Encoded(keep) => {
                    let encoded = crop.digest(&image.picture);
                    if let Some(entry) = keep {
                        self.kept[entry.0 as usize] = Some(encoded);
                    }
                    encoded
                }
            };
            match source {
                CropSource::Kept(_) => results.crops_reused += 1,
                CropSource::Encoded(_) => results.crops_encoded += 1,
            }
            features = mix(features, of_crop);
        }
        let kv = KvTable {
            prefix: image.pages.clone(),
            prefix_positions: self.limits.prefix_positions,
            own: Vec::new(),
        };
        for position in 0..self.limits.prefix_positions {
            let cell = self.cell(&kv, position)?;
            self.cells[cell] = Some(adapted(mix(features, position as u64), &image.adapter));
        }
        results.model_sizes.push((84, 84));
        Ok(())
    }

    /// What a row feeds; `None` for a zombie.
    fn inputs(&self, row: &Row) -> Result<Option<Vec<DecoderInput>>, BackendError> {
        let from = match &row.inputs {
            Feed::Host(inputs) => return Ok(Some(inputs.clone())),
            Feed::Carry(from) => from,
        };
        let flight = self.slots.get(from.slot.0).and_then(Option::as_ref);
        let flight = flight.filter(|flight| flight.finalized);
        let picked = flight.and_then(|flight| flight.results.picked.get(from.row));
        let picked = picked.ok_or_else(|| {
            BackendError::Step(format!(
                "row {} of slot {} is not in flight, or not decided",
                from.row, from.slot.0
            ))
        })?;
        match picked[..] {
            [one] => Ok(Decision::of(one).map(|decision| vec![decision.input()])),
            _ => Err(BackendError::Step("a carried row has one pick".into())),
        }
    }

    /// Writes the row's cells and returns the hidden state of each pick; none for a zombie.
    fn forward(&mut self, row: &Row) -> Result<Vec<u64>, BackendError> {
        let Some(inputs) = self.inputs(row)? else {
            return Ok(Vec::new());
        };
        if !self.model.memory {
            let hidden = xxh3_64(&(row.position as u64).to_le_bytes());
            return Ok(vec![hidden; row.picks.len()]);
        }
        let mut state = 0;
        for position in 0..row.position {
            let cell = self.cells[self.cell(&row.kv, position)?];
            let cell = cell.ok_or_else(|| {
                BackendError::Step(format!(
                    "position {position} is read and was never written, or was released"
                ))
            })?;
            state = mix(state, cell);
        }
        let mut hidden = Vec::new();
        for (position, input) in (row.position..).zip(&inputs) {
            let cell = self.cell(&row.kv, position)?;
            let value = adapted(mix(position as u64, number(*input)), &row.adapter);
            self.cells[cell] = Some(value);
            state = mix(state, value);
            hidden.push(state);
        }
        Ok(hidden.split_off(inputs.len() - row.picks.len()))
    }

    fn decide(&self, pick: &Pick, hidden: u64, mask: Option<&TokenMask>) -> PickResult {
        let share = |bits: u64| (bits % 1000) as f32 / 1000.0;
        let coord = |probability| PickResult::Coord {
            bin: (hidden >> 8) as u16 % 1024,
            probability,
            sharpness: share(hidden >> 20),
        };
        let size = |probability| PickResult::Size {
            width_bin: (hidden >> 8) as u16 % 1024,
            height_bin: (hidden >> 24) as u16 % 1024,
            probability,
            sharpness: share(hidden >> 40),
        };
        match pick {
            Pick::CoordOrEnd if hidden.is_multiple_of(self.model.objects) => PickResult::End {
                probability: share(hidden >> 20),
            },
            Pick::CoordOrEnd => coord(share(hidden >> 40)),
            Pick::Coord => coord(1.0),
            Pick::Size => size(1.0),
            Pick::Token {
                mask: source,
                values,
            } => {
                let first = hidden % self.model.vocab as u64;
                let allowed = |id: &u32| match (source, mask) {
                    (MaskSource::Banned(banned), _) => !banned.contains(id),
                    (MaskSource::Host, Some(mask)) => mask.allows(*id),
                    (MaskSource::Host, None) => false,
                };
                let vocab = self.model.vocab as u32;
                let ids = (first as u32..vocab).chain(0..first as u32);
                match ids.into_iter().find(allowed) {
                    Some(id) => {
                        let probability = share(hidden >> 20);
                        match Some(id) {
                            id if id == values.coord => coord(probability),
                            id if id == values.size => size(probability),
                            _ => PickResult::Token { id, probability },
                        }
                    }
                    None => PickResult::Nothing,
                }
            }
        }
    }

    fn flight(&mut self, slot: SlotId) -> Result<&mut Option<SimStep>, BackendError> {
        let flight = self.slots.get_mut(slot.0);
        flight.ok_or_else(|| BackendError::Step(format!("slot {} does not exist", slot.0)))
    }
}

impl Backend for SimBackend {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        if self.flight(slot)?.is_some() {
            return Err(BackendError::Step(format!("slot {} is not free", slot.0)));
        }
        if self.slots.iter().flatten().any(|flight| !flight.finalized) {
            return Err(BackendError::Step(
                "a step before it waits for its masks".into(),
            ));
        }
        check(&step, &self.limits, self.model.vocab)?;
        let mut results = StepResult::default();
        for image in &step.images {
            self.encode(image, &mut results)?;
        }
        let mut hidden = Vec::with_capacity(step.rows.len());
        for row in &step.rows {
            hidden.push(self.forward(row)?);
        }
        let positions = step.rows.iter().map(|row| row.inputs.positions()).sum();
        let (forward, sampling) = (self.costs.step)(step.rows.len(), positions);
        results.times = StepTimes {
            started: self.clock.now().max(self.device_free),
            encode: (self.costs.crops)(results.crops_encoded),
            rows: forward,
            ..StepTimes::default()
        };
        let mut flight = SimStep {
            finalized: !step.rows.iter().any(Row::wants_mask),
            step,
            hidden,
            results,
            sampling,
        };
        self.device_free = flight.results.times.ended();
        if flight.finalized {
            self.sample(&mut flight, &[]);
        }
        self.slots[slot.0] = Some(flight);
        Ok(())
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        let flight = self.flight(slot)?.take();
        let Some(mut flight) = flight.filter(|flight| !flight.finalized) else {
            return Err(BackendError::Step(format!(
                "slot {} wants no masks",
                slot.0
            )));
        };
        flight.finalized = true;
        let times = &mut flight.results.times;
        times.mask_wait = self.clock.now().since(times.ended());
        self.sample(&mut flight, &masks);
        self.slots[slot.0] = Some(flight);
        Ok(())
    }

    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let flight = self.flight(slot)?.take();
        let Some(flight) = flight.filter(|flight| flight.finalized) else {
            return Err(BackendError::Step(format!(
                "slot {} has no results",
                slot.0
            )));
        };
        let now = self.clock.now();
        let until = now
            .max(flight.results.times.ended())
            .after(self.costs.bookkeeping);
        match &mut self.wait {
            Some(wait) => wait(until),
            None => self.clock.advance(until.since(now)),
        }
        Ok(flight.results)
    }

    fn release(&mut self, pages: &[PageId]) {
        let tokens = self.limits.page_tokens;
        for page in pages {
            self.cells[page.0 as usize * tokens..][..tokens].fill(None);
        }
    }
}

impl SimBackend {
    fn sample(&mut self, flight: &mut SimStep, masks: &[RowMask]) {
        let mut picked = Vec::with_capacity(flight.step.rows.len());
        for (i, (row, hidden)) in flight.step.rows.iter().zip(&flight.hidden).enumerate() {
            let mask = masks.iter().find(|mask| mask.row == i).map(|m| &m.mask);
            picked.push(match hidden.is_empty() {
                true => vec![PickResult::Nothing; row.picks.len()],
                false => {
                    let picks = row.picks.iter().zip(hidden);
                    picks.map(|(pick, &h)| self.decide(pick, h, mask)).collect()
                }
            });
        }
        flight.results.picked = picked;
        flight.results.times.sampling = flight.sampling;
        self.device_free = flight.results.times.ended();
    }
}

/// The crops of a picture: as many strips of rows, or one for each row.
pub fn strips(picture: &Picture, count: usize) -> Vec<CropRegion> {
    let height = picture.height();
    let rows = height.div_ceil(count).max(1);
    let strip = |top: usize| CropRegion::band(picture, top..(top + rows).min(height));
    (0..height).step_by(rows).map(strip).collect()
}

fn mix(a: u64, b: u64) -> u64 {
    xxh3_64_with_seed(&b.to_le_bytes(), a)
}

/// What an adapter changes: everything that is computed with it.
fn adapted(value: u64, adapter: &Option<Arc<LoadedAdapter>>) -> u64 {
    let number = adapter.as_ref().map(|adapter| adapter.number.0);
    number.map_or(value, |number| mix(value, number.into()))
}

fn number(input: DecoderInput) -> u64 {
    match input {
        DecoderInput::Token(id) => u64::from(id),
        DecoderInput::Coord(coord) => 1 << 40 | u64::from(coord.to_bits()),
        DecoderInput::Size(width, height) => {
            u64::from(width.to_bits()) << 32 | u64::from(height.to_bits()) ^ 2 << 60
        }
    }
}
