//! [`CudaBackend`]: the engine's steps on a GPU.

use std::{path::Path, sync::Arc};

use super::{
    clock::StepClock,
    error::CudaError,
    fp8,
    frames::Frames,
    graphs::{Graphs, Part, Shape},
    kernels::{Kernels, PAGE, TEXT_HEAD},
    library::{self, Gpu},
    memory::Buffer,
    network::{Network, Tables},
    products::Products,
    program::{self, Layout},
    record::Record,
    slot::{Flight, Slot, Streams, record},
    weights::Weights,
};
use crate::{
    contract::{Flights, check},
    domain::{Clock, Picture},
    engine::backend::{Backend, BackendError, Committed, Limits, Picked, RowMask, SlotId, Step},
    model::{self, ModelConfig},
};

/// How much a [`CudaBackend`] takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Steps in flight.
    pub slots: usize,
    /// Rows in one step.
    pub rows: usize,
    /// Images in one step.
    pub images: usize,
    /// Pages of the cache.
    pub pages: usize,
}

/// Arithmetic of products with many rows.
#[derive(Clone, Copy, Debug)]
pub enum Precision<'a> {
    /// bfloat16.
    Bf16,
    /// 8 bits in the blocks of encoder and decoder, with scales from these pictures; at least one.
    Fp8(&'a [Picture]),
}

/// Frames that are expected; larger ones make buffers grow when they first come.
const FRAME_PIXELS: usize = 1920 * 1080;
/// Positions of rows in a step, for each row that it may have.
const POSITIONS_PER_ROW: usize = 128;

/// A Moondream 2 on one GPU.
///
/// `launch` and `finalize` queue copies and kernels and return; `commit` waits for an event. Belongs to the thread that
/// built it.
pub struct CudaBackend {
    limits: Limits,
    vocab: usize,
    flights: Flights,
    layout: Layout,
    streams: Streams,
    // Before the network, whose kernels and buffers they name.
    graphs: Graphs,
    network: Network,
    frames: Frames,
    slots: Vec<Slot>,
    /// What rows in flight decided, `[slots, rows]`.
    carried: Buffer<Record>,
    /// When the steps ran.
    clock: StepClock,
    /// Slot and set of moments of the step committed last.
    last: Option<(SlotId, usize)>,
    config: ModelConfig,
    // Last, so that it outlives everything above.
    gpu: Gpu,
}

impl CudaBackend {
    /// Opens the GPU, compiles and times what is not in `cache`, and copies the weights. Blocks for some seconds.
    pub fn new(
        (index, cache): (u32, &Path),
        config: &ModelConfig,
        weights: model::Weights,
        (capacity, precision): (Capacity, Precision<'_>),
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CudaError> {
        supported(config)?;
        let gpu = library::open(index)?;
        if let Precision::Fp8(_) = precision {
            fp8::supported(config, &gpu)?;
        }
        let streams = Streams::new(&gpu.context)?;
        let stream = &streams.compute;
        let parts = (
            Weights::upload(stream, config, weights)?,
            Kernels::load(&gpu, Arc::clone(stream), cache)?,
            Products::new(&gpu, Arc::clone(stream), cache)?,
        );
        let limits = limits(config, capacity, gpu.free_bytes()?)?;
        let layout = Layout::new(&limits, limits.positions);
        let crops =
            (capacity.images * (config.vision.max_crops + 1)).max(config.vision.max_crops * 2);
        let network = Network::new((&gpu, stream), config, parts, &limits, &layout, crops)?;
        let vocab = config.text.vocab_size;
        let frame_bytes = capacity.images * FRAME_PIXELS * 3 / 2;
        let slot = |_| Slot::new(&gpu.context, &streams, &layout, vocab, frame_bytes);
        let slots = (0..capacity.slots).map(slot).collect::<Result<_, _>>()?;
        let mut backend = Self {
            limits,
            vocab,
            flights: Flights::new(limits.slots, vocab),
            frames: Frames::new(stream, &config.vision, FRAME_PIXELS)?,
            carried: Buffer::zeros(stream, limits.slots * limits.rows)?,
            graphs: Graphs::new(Arc::clone(stream)),
            layout,
            network,
            slots,
            clock: StepClock::new(clock),
            last: None,
            config: config.clone(),
            streams,
            gpu,
        };
        if let Precision::Fp8(pictures) = precision {
            backend.quantise(pictures)?;
        }
        backend.network.prepare()?;
        Ok(backend)
    }

    /// Lets the pictures pass in bf16 to see how large values get, then goes over to fp8.
    fn quantise(&mut self, pictures: &[Picture]) -> Result<(), CudaError> {
        if pictures.is_empty() {
            return Err(CudaError::Fp8("no pictures to calibrate it with".into()));
        }
        let failed = |error: BackendError| CudaError::Fp8(format!("calibrating it: {error}"));
        let stream = Arc::clone(&self.streams.compute);
        self.network.watch(&stream)?;
        for picture in pictures {
            let step = fp8::calibration_step(picture, &self.config, &self.limits);
            self.launch(SlotId(0), step).map_err(failed)?;
            self.commit(SlotId(0)).map_err(failed)?;
        }
        self.network.quantise(&stream)
    }

    fn queue(&mut self, slot: SlotId, step: &Step) -> Result<(), BackendError> {
        let place = &mut self.slots[slot.0];
        place.next_turn();
        let counts = program::write(step, slot, &self.limits, &self.layout, place.block_mut())?;
        let pictures: Vec<&Picture> = step.images.iter().map(|image| &image.picture).collect();
        let tilings: Vec<_> = pictures.iter().map(|p| self.frames.tiling(p)).collect();
        let crops = tilings.iter().map(|tiling| tiling.crops()).sum::<usize>();
        if crops > self.network.crops_max() {
            return Err(BackendError(format!(
                "a step of {crops} crops is more than the GPU's {}; use pictures that are less long",
                self.network.crops_max()
            )));
        }
        let mut first = 0;
        for (i, tiling) in tilings.iter().enumerate() {
            let words = [first, tiling.rows, tiling.cols].map(|word| word as i32);
            let start = self.layout.image.start + i * 3;
            place.block_mut()[start..start + 3].copy_from_slice(&words);
            first += tiling.crops();
        }
        let staged = place.frames.put(&self.streams.up, &pictures)?;
        place.upload(&self.streams)?;
        place.flight = Flight {
            counts,
            model_sizes: tilings
                .iter()
                .map(|tiling| {
                    let (width, height) = tiling.resized(&self.config.vision);
                    (width as u32, height as u32)
                })
                .collect(),
            crops,
        };
        let compute = &self.streams.compute;
        record(&place.moments().began, compute)?;
        let rows = self.network.patch_rows();
        let mut crop = 0;
        for (frame, tiling) in staged.iter().zip(&tilings) {
            let out = rows.from(crop * self.config.image_tokens());
            self.frames
                .patches(self.network.kernels(), frame, *tiling, out)?;
            crop += tiling.crops();
        }
        record(&place.moments().prepared, compute)?;
        if crops > 0 {
            let image = place.block.start().at(self.layout.image.start);
            self.network.encode(crops, step.images.len(), image)?;
        }
        record(&place.moments().encoded, compute)?;
        self.queue_rows(slot)
    }

    fn queue_rows(&mut self, slot: SlotId) -> Result<(), BackendError> {
        let place = &mut self.slots[slot.0];
        let tables = Tables {
            layout: &self.layout,
            block: place.block.start(),
        };
        let results = (place.records.start(), self.carried.start());
        let counts = &place.flight.counts;
        let (network, carried) = (&self.network, self.carried.start());
        // What is one launch already is nothing to record.
        let forward = match network.is_one_launch(counts) {
            true => None,
            false => Shape::of(Part::Forward, slot, counts),
        };
        self.graphs
            .run(forward, || network.forward(tables, counts, carried))?;
        record(&place.moments().forwarded, &self.streams.compute)?;
        self.graphs.run(Shape::of(Part::Decide, slot, counts), || {
            network.decide(tables, counts, results)
        })?;
        if counts.wants_masks {
            return Ok(());
        }
        if counts.tokens > 0 {
            let masks = place.masks.start();
            self.network.choose_tokens(tables, counts, masks, results)?;
        }
        Ok(place.download(&self.streams)?)
    }
}

#[cfg(test)]
impl CudaBackend {
    /// Tokens of the first image and hidden states of the first positions of the last step. Waits for it.
    pub fn inside(&self, positions: usize) -> Result<[Vec<f32>; 2], CudaError> {
        self.network.inside(&self.streams.compute, positions)
    }
}

impl Backend for CudaBackend {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        check(&step, &self.limits, self.vocab)?;
        self.flights.launch(slot, &step.rows)?;
        self.queue(slot, &step)
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.flights.finalize(slot, &masks)?;
        let place = &mut self.slots[slot.0];
        let of_row = |row: &Option<usize>| {
            let wanted = masks.iter().find(|mask| Some(mask.row) == *row);
            wanted.map(|mask| mask.mask.0.as_slice())
        };
        let rows = place.flight.counts.masked_rows.clone();
        place.upload_masks(&self.streams, rows.iter().map(of_row))?;
        record(&place.moments().masked, &self.streams.compute)?;
        let tables = Tables {
            layout: &self.layout,
            block: place.block.start(),
        };
        let results = (place.records.start(), self.carried.start());
        let (counts, masks) = (&place.flight.counts, place.masks.start());
        self.network.choose_tokens(tables, counts, masks, results)?;
        Ok(place.download(&self.streams)?)
    }

    fn commit(&mut self, slot: SlotId) -> Result<Committed, BackendError> {
        self.flights.commit(slot)?;
        let place = &self.slots[slot.0];
        let records = place.results()?;
        let decided = |&(first, picks): &(usize, usize)| {
            let records = records[first..first + picks].iter();
            records
                .map(Record::picked)
                .collect::<Result<Vec<Picked>, _>>()
        };
        let counts = &place.flight.counts;
        let picked = counts
            .row_picks
            .iter()
            .map(decided)
            .collect::<Result<_, _>>();
        let picked = picked.map_err(|_| {
            BackendError(format!(
                "a step on {} gave values that are not numbers; a page was read that was never written, or the weights are damaged",
                self.gpu.name
            ))
        })?;
        let before = self
            .last
            .map(|(slot, turn)| self.slots[slot.0].end_of(turn));
        let times = self
            .clock
            .times(place.moments(), before, counts.wants_masks)?;
        let committed = Committed {
            picked,
            model_sizes: place.flight.model_sizes.clone(),
            crops_encoded: place.flight.crops,
            crops_reused: 0,
            times,
        };
        self.last = Some((slot, place.turn()));
        Ok(committed)
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        // Nothing may run when buffers go. An error here means that the GPU is gone, and that was told before.
        let _ = self.streams.drain();
    }
}

/// What the kernels ask of a model's shape.
fn supported(config: &ModelConfig) -> Result<(), CudaError> {
    let (text, vision, region) = (&config.text, &config.vision, &config.region);
    let eights = [
        ("text.dim", text.dim),
        ("text.ff_dim", text.ff_dim),
        ("vision.enc_dim", vision.enc_dim),
        ("vision.enc_ff_dim", vision.enc_ff_dim),
        ("vision.proj_inner_dim", vision.proj_inner_dim),
        ("region.inner_dim", region.inner_dim),
    ];
    if let Some((name, value)) = eights.iter().find(|(_, value)| !value.is_multiple_of(8)) {
        return Err(CudaError::Shape(format!(
            "{name} is {value}, must be a multiple of 8"
        )));
    }
    if text.head_dim() != TEXT_HEAD {
        return Err(CudaError::Shape(format!(
            "heads of the decoder have {} values, must have {TEXT_HEAD}",
            text.head_dim()
        )));
    }
    Ok(())
}

/// Share of the memory that the weights leave which the cache may take; the rest is for a step's own buffers.
const CACHE_SHARE: usize = 2;

/// The capacity, with as many pages as there is memory for; an error when not even one look fits.
fn limits(
    config: &ModelConfig,
    capacity: Capacity,
    free_bytes: usize,
) -> Result<Limits, CudaError> {
    let text = &config.text;
    let page_bytes = text.n_layers * 2 * text.n_heads * PAGE * TEXT_HEAD * size_of::<half::bf16>();
    let pages = capacity.pages.min(free_bytes / CACHE_SHARE / page_bytes);
    let needed = text.max_context.div_ceil(PAGE) + 1;
    if pages < needed {
        return Err(CudaError::Memory {
            free_mib: free_bytes >> 20,
            needed_mib: (needed * page_bytes * CACHE_SHARE) >> 20,
        });
    }
    Ok(Limits {
        slots: capacity.slots,
        rows: capacity.rows,
        pages,
        page_tokens: PAGE,
        context: text.max_context,
        prefix_positions: config.prefix_positions(),
        images: capacity.images,
        positions: (capacity.rows * POSITIONS_PER_ROW).max(text.max_context),
    })
}

#[cfg(test)]
impl CudaBackend {
    /// Without the decoder in one launch.
    pub(super) fn without_one_launch(mut self) -> Self {
        self.network.forget_decoder();
        self
    }

    /// True with it.
    pub(super) fn has_one_launch(&self) -> bool {
        self.network.has_decoder()
    }

    /// Hidden states of the last step's first positions.
    pub(super) fn hidden(&self, positions: usize) -> Vec<f32> {
        let [_, hidden] = self
            .network
            .inside(&self.streams.compute, positions)
            .unwrap();
        hidden
    }
}
