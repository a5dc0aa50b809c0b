//! [`CudaBackend`]: the engine's steps on a GPU.

use std::{ops::Range, path::Path, sync::Arc};

use half::bf16;

use super::{
    clock::StepClock,
    error::{CudaError, require_multiples},
    fp8,
    frames::{FramePreprocessor, WantedCrops},
    graphs::{GraphShape, Graphs, UnrecordedShape},
    kernels::{ExpertShape, Kernels, PlanarFrame, TAU_OUTPUTS_MAX},
    library::{self, Gpu},
    memory::{Buffer, CurrentContext, held_bytes, record},
    network::{GpuNetwork, LayerRunner, NetworkParts, hidden_values},
    peers::{Peers, RankNote},
    products::{AlgorithmChoices, Products},
    program::{self, StepPlace, StepTables, TableLayout},
    record::DecisionRecord,
    reuse::{FeatureCopy, PlacedCrop, StepCrops},
    slot::{GpuSlot, QueuedStep, Streams},
    stage::FrameStage,
    tensor::{PAGE, TEXT_HEAD},
    weights::GpuWeights,
};
use crate::{
    model::{self, Formats, ModelConfig, Tiling, view_tiling},
    network::{
        format::{INT4_GROUP, Number},
        shard::Shard,
    },
    ranks::Seat,
    scheduler::backend::{
        Backend, BackendError, BackendLimits, GraphUse, PickResult, RowMask, SlotId, Step,
        StepResult,
    },
    step_check::{Flights, check},
};
use spotter_core::{Clock, Picture};

/// Limits of a [`CudaBackend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaCapacity {
    pub slots: usize,
    /// Rows in one step.
    pub rows: usize,
    /// Images in one step.
    pub images: usize,
    /// Crops that the encoder computes together.
    pub crops_at_once: usize,
    /// Pages of the cache.
    pub pages: usize,
    /// Crops whose features are kept.
    pub kept_crops: usize,
    /// Adapters that have a slot.
    pub adapters: usize,
}

impl CudaCapacity {
    /// For one row behind one image.
    pub(super) fn for_calibration(config: &ModelConfig) -> Self {
        Self {
            slots: 1,
            rows: 1,
            images: 1,
            crops_at_once: CALIBRATED_CROPS,
            pages: pages_min(config),
            kept_crops: 0,
            adapters: 0,
        }
    }
}

/// What a [`CudaBackend`] is built with.
#[derive(Clone, Copy, Debug)]
pub struct CudaSettings<'a> {
    /// Number of the GPU, from 0.
    pub gpu: u32,
    /// Folder of compiled kernels and chosen algorithms.
    pub cache: &'a Path,
    pub capacity: CudaCapacity,
    pub formats: Formats<'a>,
    /// The scales of e4m3 come from these: at least one, where layers are in it.
    pub pictures: &'a [Picture],
}

/// Pixels of the largest picture that a step has room for. The model sees some 1.1 million of a picture, so more would show it nothing.
pub(super) const FRAME_PIXELS: usize = 1920 * 1080;
/// Positions of rows in a step, for each row that it may have.
const POSITIONS_PER_ROW: usize = 128;
/// Tokens that drafts may choose in a step, for each row that it may have: two answers of a hundred for 32 rows. Each takes 0.2 MB, for its
/// logits.
const DRAFTED_TOKENS_PER_ROW: usize = 7;

/// Decisions in a step, for each row that it may have: drafts of fifty objects each, and their ends.
const PICKS_PER_ROW: usize = 160;

/// Steps that the driver refused, one after the other, after which the GPU counts as lost although it ends what is queued.
const UNQUEUED_STEPS_MAX: u32 = 8;

/// Crops that the encoder computes together while fp8 is calibrated.
const CALIBRATED_CROPS: usize = 5;

/// The place of a backend among those that work as one.
pub struct CudaRank {
    shard: Shard,
    notes: Seat<RankNote>,
    choices: Seat<AlgorithmChoices>,
}

impl CudaRank {
    /// So many places, one for each backend.
    pub fn all(ranks: usize) -> Vec<Self> {
        let seats = Seat::all(ranks).into_iter().zip(Seat::all(ranks));
        let place = |(rank, (notes, choices))| Self {
            shard: Shard { rank, ranks },
            notes,
            choices,
        };
        seats.enumerate().map(place).collect()
    }
}

/// A GPU with streams for one backend after the other.
#[derive(Clone)]
struct PreparedDevice {
    gpu: Gpu,
    streams: Streams,
    clock: Arc<dyn Clock>,
}

/// A model on one GPU.
///
/// `launch` and `finalize` queue copies and kernels and return; `commit` waits for an event. Used by the thread that built it
/// only.
pub struct CudaBackend {
    limits: BackendLimits,
    vocab: usize,
    flights: Flights,
    layout: TableLayout,
    // Dropped before all buffers: it waits for the work that uses them.
    pub(super) streams: Streams,
    // Dropped before the network, whose kernels and buffers they refer to.
    pub(super) graphs: Graphs,
    pub(super) network: GpuNetwork,
    frames: FramePreprocessor,
    /// Features of crops, by entry.
    kept: Buffer<bf16>,
    slots: Vec<GpuSlot>,
    /// What rows in flight decided, `[slots, rows]`.
    carried: Buffer<DecisionRecord>,
    /// When the steps ran.
    clock: StepClock,
    /// Slot and set of events of the step committed last.
    last: Option<(SlotId, usize)>,
    /// Steps that the driver refused since the last one with results.
    unqueued_steps: u32,
    pub(super) config: ModelConfig,
    // Last, so that it outlives everything above.
    gpu: Gpu,
}

impl CudaBackend {
    /// Opens the GPU, compiles and times what is not in the cache, and copies the weights. Blocks for some seconds.
    pub fn new(
        settings: CudaSettings<'_>,
        config: &ModelConfig,
        weights: model::Weights,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CudaError> {
        Self::of_rank(settings, config, weights, clock, None)
    }

    /// The same as one of several that work as one, or alone. Each is built on a thread of its own, of the same settings but for the GPU, with
    /// the configuration and the weights of the whole model; all wait for each other, also when they are dropped.
    pub fn of_rank(
        settings: CudaSettings<'_>,
        config: &ModelConfig,
        weights: model::Weights,
        clock: Arc<dyn Clock>,
        rank: Option<CudaRank>,
    ) -> Result<Self, CudaError> {
        let (cache, capacity) = (settings.cache, settings.capacity);
        supported(config)?;
        let shard = rank.as_ref().map_or(Shard::WHOLE, |rank| rank.shard);
        let config = &config.of_shard(shard).map_err(CudaError::Shape)?;
        let weights = weights.of_shard(shard);
        let gpu = library::open(settings.gpu)?;
        let formats = settings.formats;
        match formats.large.input {
            Number::E4m3 => fp8::supported(config, &gpu)?,
            Number::Int8 => int8_supported(config)?,
            _ => {}
        }
        if formats.experts.weight == Number::Int4 {
            int4_supported(config)?;
        }
        let streams = Streams::new(&gpu.context)?;
        let stream = &streams.compute;
        let kernels = Kernels::load_of_ranks(&gpu, Arc::clone(stream), cache, shard.ranks)?;
        let weights = GpuWeights::upload(&kernels, config, weights, formats)?;
        let mut products = Products::new(&gpu, Arc::clone(stream), cache)?;
        let mut peers = None;
        if let Some(CudaRank { notes, choices, .. }) = rank {
            products = products.of_rank(choices);
            let layout = TableLayout::new(&limits(config, capacity)?);
            let values = hidden_values(&config.text, &layout);
            peers = Some(Peers::new(notes, &gpu, stream, values)?);
        }
        let device = PreparedDevice {
            gpu,
            streams,
            clock,
        };
        let mut runner = LayerRunner::new(kernels, products);
        runner.peers = peers;
        let mut parts = NetworkParts { runner, weights };
        if formats.large.input == Number::E4m3 {
            parts = quantised(device.clone(), config, parts, settings.pictures)?;
        }
        let backend = Self::assemble(device, config, parts, capacity, shard)?;
        tracing::debug!("buffers on the GPU take {} MiB", held_bytes() >> 20);
        backend.network.prepare()?;
        Ok(backend)
    }

    /// Allocates everything beside the weights.
    fn assemble(
        device: PreparedDevice,
        config: &ModelConfig,
        parts: NetworkParts,
        capacity: CudaCapacity,
        crops_of: Shard,
    ) -> Result<Self, CudaError> {
        let PreparedDevice {
            gpu,
            streams,
            clock,
        } = device;
        let stream = &streams.compute;
        let limits = limits(config, capacity)?;
        let layout = TableLayout::new(&limits);
        let network = GpuNetwork::new(parts, config, &layout, capacity.crops_at_once, crops_of)?;
        let vocab = config.text.vocab_size;
        let slot = |_| GpuSlot::new(&streams, &layout, vocab, frame_bytes(capacity));
        let slots = (0..capacity.slots).map(slot).collect::<Result<_, _>>()?;
        Ok(Self {
            limits,
            vocab,
            flights: Flights::new(limits.slots, vocab),
            frames: FramePreprocessor::new(stream, &config.vision, FRAME_PIXELS)?,
            kept: Buffer::zeros(stream, limits.kept_crops * crop_values(config))?,
            carried: Buffer::zeros(stream, limits.slots * limits.rows)?,
            graphs: Graphs::new(Arc::clone(stream)),
            layout,
            network,
            slots,
            clock: StepClock::new(clock),
            last: None,
            unqueued_steps: 0,
            config: config.clone(),
            streams,
            gpu,
        })
    }

    fn queue(&mut self, slot: SlotId, step: &Step) -> Result<(), BackendError> {
        let buffers = &mut self.slots[slot.0];
        buffers.next_events();
        if let Some(adapters) = &mut self.network.text.adapters {
            adapters.load(&self.streams.compute, step)?;
        }
        let adapters = self.network.text.adapters.as_ref();
        let place = StepPlace {
            slot,
            adapters: adapters.map(|adapters| &adapters.held),
        };
        let mut counts = program::write(step, place, &self.layout, buffers.block_mut())?;
        // One launch needs no graph.
        if self.network.text.one_launch_of(&counts).is_none() {
            program::pad(&mut counts, &self.layout, buffers.block_mut());
        }
        let (cuts, crops) = self.plan(slot, step)?;
        let fresh = crops.batch();
        let all: usize = cuts.iter().map(|cut| cut.crops.len()).sum();
        let model_size = |cut: &PictureCrops| {
            let (width, height) = cut.tiling.resized(&self.config.vision);
            (width as u32, height as u32)
        };
        let buffers = &mut self.slots[slot.0];
        let encoded = step
            .images
            .iter()
            .zip(&cuts)
            .filter(|(_, cut)| cut.crops.iter().any(|c| c.is_fresh));
        let (pictures, encoded): (Vec<&Picture>, Vec<&PictureCrops>) =
            encoded.map(|(image, cut)| (&image.picture, cut)).unzip();
        let staged = buffers.frames.put(&self.streams.up, &pictures)?;
        buffers.upload(&self.streams)?;
        buffers.step = QueuedStep {
            counts,
            model_sizes: cuts.iter().map(model_size).collect(),
            crops_encoded: fresh,
            crops_reused: all - fresh,
        };
        let compute = &self.streams.compute;
        record(&buffers.events().began, compute)?;
        if !step.images.is_empty() {
            self.queue_images(slot, &staged, &encoded, crops.keeps())?;
        }
        self.queue_rows(slot)
    }

    /// Queues the fresh crops of the `staged` frames, which are cut as in `cuts`, then the tokens of all images and the copies to
    /// entries.
    fn queue_images(
        &mut self,
        slot: SlotId,
        staged: &[PlanarFrame],
        cuts: &[&PictureCrops],
        keeps: &[FeatureCopy],
    ) -> Result<(), BackendError> {
        let buffers = &self.slots[slot.0];
        let compute = &self.streams.compute;
        let rows = self.network.vision.patch_rows();
        let fresh = buffers.step.crops_encoded;
        let own = self.network.vision.own(fresh);
        let mut crop = 0;
        for (frame, cut) in staged.iter().zip(cuts) {
            let first = crop;
            let mut is_own = |placed: &PlacedCrop| {
                crop += usize::from(placed.is_fresh);
                placed.is_fresh && own.contains(&(crop - 1))
            };
            let wanted: Vec<bool> = cut.crops.iter().map(&mut is_own).collect();
            if !wanted.contains(&true) {
                continue;
            }
            let out = rows.from(first.max(own.start) * self.config.image_tokens());
            let crops = WantedCrops {
                tiling: cut.tiling,
                wanted: &wanted,
            };
            let kernels = &self.network.runner.kernels;
            self.frames.patches(kernels, frame, crops, out)?;
        }
        record(&buffers.events().prepared, compute)?;
        let network = &self.network;
        if fresh > 0 {
            let shape = GraphShape::Encode { crops: fresh };
            let encode = || network.encode(fresh);
            let counts = &buffers.step.counts;
            self.graphs.run(Some(shape), counts, encode)?;
        }
        let (tables, kept) = (buffers.tables(&self.layout), self.kept.start());
        let vision = &network.vision;
        vision.project(&network.runner, tables, kept, keeps)?;
        Ok(record(&buffers.events().encoded, compute)?)
    }

    /// How the step's pictures are cut, and the places of their crops; writes both for the kernels.
    fn plan(
        &mut self,
        slot: SlotId,
        step: &Step,
    ) -> Result<(Vec<PictureCrops>, StepCrops), BackendError> {
        let mut places = StepCrops::default();
        let block = self.slots[slot.0].block_mut();
        let (image, source) = (self.layout.image, self.layout.crop_source);
        let (mut cuts, mut first) = (Vec::with_capacity(step.images.len()), 0);
        for (index, job) in step.images.iter().enumerate() {
            let tiling = view_tiling(job.picture.size(), &job.view, &self.config.vision);
            let crops = places.place(&job.sources(tiling.crops())?);
            let most = self.network.vision.room.crops;
            let unfit = |reason| BackendError::Image {
                image: index,
                reason,
            };
            if first + crops.len() > source.len || places.batch() > most {
                return Err(unfit(format!(
                    "a step of {} crops is more than the GPU's {most}; use pictures that are less long",
                    first + crops.len()
                )));
            }
            self.frames.check_room(tiling).map_err(unfit)?;
            let words = [first, tiling.rows, tiling.cols].map(|word| word as i32);
            block[image.start + index * 3..][..3].copy_from_slice(&words);
            for crop in &crops {
                block[source.start + first] = crop.source;
                first += 1;
            }
            cuts.push(PictureCrops { tiling, crops });
        }
        Ok((cuts, places))
    }

    fn queue_rows(&mut self, slot: SlotId) -> Result<(), BackendError> {
        let buffers = &mut self.slots[slot.0];
        let counts = &buffers.step.counts;
        let tables = buffers.tables(&self.layout);
        let results = buffers.decisions(&self.carried);
        let (network, carried) = (&self.network, self.carried.start());
        let forward = match network.text.one_launch_of(counts) {
            Some(_) => None,
            None => Some(GraphShape::forward(slot, counts)),
        };
        self.graphs
            .run(forward, counts, || network.forward(tables, carried))?;
        record(&buffers.events().forwarded, &self.streams.compute)?;
        let decide = || network.decide(tables, results);
        let decided = GraphShape::decide(slot, counts);
        self.graphs.run(decided, counts, decide)?;
        if counts.needs_masks {
            return Ok(());
        }
        if counts.tokens > 0 {
            let masks = buffers.masks.start();
            self.network.choose_tokens(tables, masks, results)?;
        }
        Ok(buffers.download(&self.streams)?)
    }
}

/// A picture of a step.
struct PictureCrops {
    tiling: Tiling,
    crops: Vec<PlacedCrop>,
}

impl Backend for CudaBackend {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        check(&step, &self.limits, self.vocab)?;
        let _current = CurrentContext::new(&self.gpu.context)?;
        self.flights.launch(slot, &step.rows)?;
        self.queue(slot, &step).map_err(|error| {
            self.flights.remove_newest();
            self.abandon(slot, error)
        })
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        let _current = CurrentContext::new(&self.gpu.context)?;
        self.flights.finalize(slot, &masks)?;
        self.queue_masked(slot, &masks).map_err(|error| {
            self.flights.remove_newest();
            self.abandon(slot, error)
        })
    }

    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let _current = CurrentContext::new(&self.gpu.context)?;
        self.flights.commit(slot)?;
        let buffers = &self.slots[slot.0];
        let records = buffers.results()?;
        let decided = |picks: &Range<usize>| {
            let records = &records[picks.clone()];
            records.iter().map(DecisionRecord::picked).collect()
        };
        let counts = &buffers.step.counts;
        let picked: Option<Vec<Vec<PickResult>>> = counts.row_picks.iter().map(decided).collect();
        let before = self.last.map(|(slot, set)| self.slots[slot.0].end_of(set));
        let times = self.clock.times(buffers.events(), before, counts)?;
        self.last = Some((slot, buffers.event_set));
        let buffers = &mut self.slots[slot.0];
        buffers.frames.release();
        let picked = picked.ok_or_else(|| {
            BackendError::Step(format!(
                "a step on {} gave values that are not numbers; a page was read that was never written, or the weights are damaged",
                self.gpu.name
            ))
        })?;
        self.unqueued_steps = 0;
        Ok(StepResult {
            picked,
            model_sizes: buffers.step.model_sizes.clone(),
            crops_encoded: buffers.step.crops_encoded,
            crops_reused: buffers.step.crops_reused,
            times,
        })
    }

    fn prepare_shape(&mut self) -> Result<bool, BackendError> {
        let Some(wanted) = self.graphs.unrecorded() else {
            return Ok(false);
        };
        let _current = CurrentContext::new(&self.gpu.context)?;
        if let Err(error) = self.record_shape(&wanted) {
            self.graphs.leave_unrecorded(wanted.shape);
            // A lost device does not end its work.
            self.streams.drain()?;
            tracing::warn!(
                "steps of one shape stay slower, because it cannot be recorded: {error}"
            );
        }
        Ok(true)
    }

    fn graph_use(&self) -> GraphUse {
        self.graphs.use_counts()
    }
}

impl CudaBackend {
    /// The error of a step that was not queued to its end. What was queued of it ends before its slot is used again; the device is lost
    /// when it does not end, or accepts no steps any more.
    fn abandon(&mut self, slot: SlotId, error: BackendError) -> BackendError {
        if let Err(lost) = self.streams.drain() {
            return lost.into();
        }
        let buffers = &mut self.slots[slot.0];
        buffers.frames.release();
        // The next step takes the set again, because the end of the last step may be in the other one.
        buffers.next_events();
        refused(&mut self.unqueued_steps, error)
    }

    /// Queues the masks of a step, its tokens and the copy of its results.
    fn queue_masked(&mut self, slot: SlotId, masks: &[RowMask]) -> Result<(), BackendError> {
        let buffers = &mut self.slots[slot.0];
        let of_row = |row: &Option<usize>| {
            let wanted = masks.iter().find(|mask| Some(mask.row) == *row);
            wanted.map(|mask| mask.mask.0.as_slice())
        };
        let rows = buffers.step.counts.masked_rows.clone();
        buffers.upload_masks(&self.streams, rows.iter().map(of_row))?;
        record(&buffers.events().masked, &self.streams.compute)?;
        let tables = buffers.tables(&self.layout);
        let results = buffers.decisions(&self.carried);
        let masks = buffers.masks.start();
        self.network.choose_tokens(tables, masks, results)?;
        Ok(buffers.download(&self.streams)?)
    }

    /// Queues the work of a shape on the compute stream, as a step with these counts would.
    fn record_shape(&mut self, wanted: &UnrecordedShape) -> Result<(), CudaError> {
        let UnrecordedShape { shape, counts } = wanted;
        let (network, carried) = (&self.network, &self.carried);
        let tables = |slot: SlotId| StepTables {
            layout: &self.layout,
            block: self.slots[slot.0].block.start(),
            counts,
        };
        let slots = &self.slots;
        self.graphs.record(*shape, || match *shape {
            GraphShape::Encode { crops } => network.encode(crops),
            GraphShape::Forward(slot, ..) => network.forward(tables(slot), carried.start()),
            GraphShape::Decide(slot, _) => {
                network.decide(tables(slot), slots[slot.0].decisions(carried))
            }
        })
    }
}

/// What fails with a step that the driver refused while it ends what is queued: the step, and the GPU when it refuses one after the other.
pub(super) fn refused(unqueued_steps: &mut u32, error: BackendError) -> BackendError {
    let BackendError::Device(reason) = error else {
        return error;
    };
    *unqueued_steps += 1;
    match *unqueued_steps < UNQUEUED_STEPS_MAX {
        true => BackendError::Step(reason),
        false => BackendError::Device(format!(
            "{unqueued_steps} steps in a row could not be queued; the last one: {reason}"
        )),
    }
}

/// Runs the pictures in bf16 to measure the largest values, then converts the weights, with little memory beside them. Waits for the
/// stream.
fn quantised(
    device: PreparedDevice,
    config: &ModelConfig,
    parts: NetworkParts,
    pictures: &[Picture],
) -> Result<NetworkParts, CudaError> {
    if pictures.is_empty() {
        return Err(CudaError::Fp8("no pictures to calibrate it with".into()));
    }
    let capacity = CudaCapacity::for_calibration(config);
    // Each of several GPUs measures all crops, so that all have the same scales.
    let crops_of = Shard::WHOLE;
    let mut backend = CudaBackend::assemble(device, config, parts, capacity, crops_of)?;
    let failed = |error: BackendError| CudaError::Fp8(format!("calibrating it: {error}"));
    for picture in pictures {
        let step = fp8::calibration_step(picture, config, &backend.limits);
        backend.launch(SlotId(0), step).map_err(failed)?;
        backend.commit(SlotId(0)).map_err(failed)?;
    }
    let NetworkParts { runner, weights } = backend.network.into_parts();
    Ok(NetworkParts {
        weights: weights.quantised(&runner.kernels)?,
        runner,
    })
}

/// Checks that the kernels support the shape of the model.
pub fn supported(config: &ModelConfig) -> Result<(), CudaError> {
    let (text, vision, region) = (&config.text, &config.vision, &config.region);
    if text.n_heads * 2 > TAU_OUTPUTS_MAX && text.tau_attn {
        return Err(CudaError::Shape(format!(
            "it has {} heads with tau, at most {} are supported",
            text.n_heads,
            TAU_OUTPUTS_MAX / 2
        )));
    }
    if let Some(experts) = ExpertShape::of(text) {
        experts.check()?;
    }
    let eights = [
        ("text.dim", text.dim),
        ("text.ff_dim", text.ff_dim),
        ("vision.enc_dim", vision.enc_dim),
        ("vision.enc_ff_dim", vision.enc_ff_dim),
        ("vision.proj_inner_dim", vision.proj_inner_dim),
        ("region.inner_dim", region.inner_dim),
        ("region.coord_feat_dim", region.coord_feat_dim),
        ("region.size_feat_dim", region.size_feat_dim),
    ];
    require_multiples(&eights, 8).map_err(CudaError::Shape)?;
    if text.head_dim() != TEXT_HEAD {
        return Err(CudaError::Shape(format!(
            "heads of the decoder have {} values, must have {TEXT_HEAD}",
            text.head_dim()
        )));
    }
    Ok(())
}

/// Products in int8 read 16 inputs at once.
pub(super) fn int8_supported(config: &ModelConfig) -> Result<(), CudaError> {
    let (text, vision) = (&config.text, &config.vision);
    let widths = [
        ("text.dim", text.dim),
        ("text.ff_dim", text.ff_dim),
        ("vision.enc_dim", vision.enc_dim),
        ("vision.enc_ff_dim", vision.enc_ff_dim),
        ("vision.proj_inner_dim", vision.proj_inner_dim),
    ];
    require_multiples(&widths, 16).map_err(CudaError::Int8)
}

/// Groups of inputs of experts are whole.
pub(super) fn int4_supported(config: &ModelConfig) -> Result<(), CudaError> {
    let Some(shape) = ExpertShape::of(&config.text) else {
        return Err(CudaError::Int4("it has no experts".into()));
    };
    let widths = [
        ("text.dim", shape.width),
        ("text.moe.expert_inner_dim", shape.inner),
    ];
    require_multiples(&widths, INT4_GROUP).map_err(CudaError::Int4)
}

/// Bytes of the frames of a step.
pub(super) fn frame_bytes(capacity: CudaCapacity) -> usize {
    capacity.images * FrameStage::bytes_for(FRAME_PIXELS)
}

/// Values of the features of a crop.
pub(super) fn crop_values(config: &ModelConfig) -> usize {
    config.image_tokens() * config.vision.enc_dim
}

/// The limits of a backend of that capacity; an error when not even one row fits.
pub(super) fn limits(
    config: &ModelConfig,
    capacity: CudaCapacity,
) -> Result<BackendLimits, CudaError> {
    if capacity.pages < pages_min(config) {
        return Err(CudaError::Shape(format!(
            "its cache has {} pages, one row needs {}",
            capacity.pages,
            pages_min(config)
        )));
    }
    let context = config.context();
    let positions = (capacity.rows * POSITIONS_PER_ROW).max(context);
    Ok(BackendLimits {
        slots: capacity.slots,
        rows: capacity.rows,
        pages: capacity.pages,
        page_tokens: PAGE,
        context,
        prefix_positions: config.prefix_positions(),
        images: capacity.images,
        positions,
        tokens: capacity.rows * (1 + DRAFTED_TOKENS_PER_ROW),
        picks: positions.min(capacity.rows * PICKS_PER_ROW),
        picture_pixels: FRAME_PIXELS,
        kept_crops: capacity.kept_crops,
        adapters: capacity.adapters,
    })
}

/// Pages that the longest row needs, with its image.
pub fn pages_min(config: &ModelConfig) -> usize {
    config.context().div_ceil(PAGE) + 1
}
