//! Buffers of a step in flight, and the order of its copies and kernels.
//!
//! ```text
//!   copies up    ─ tables, frames ─┐ uploaded                masks ─┐ masked
//!   compute                        └▶ forward, decisions ───────────┴▶ tokens ─┐ computed
//!   copies down                                                                └▶ records ─▶ copied ◀ commit waits here
//! ```
//!
//! Three streams, ordered by events alone. Everything is allocated when the backend is built, so addresses stay.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys::CUevent_flags};

use super::{
    error::{CudaError, tried},
    kernels::DecisionBuffers,
    memory::{
        Buffer, PinnedBuffer, download, record, upload, wait, wait_for_event, wait_for_stream,
    },
    program::{StepCounts, StepTables, TableLayout},
    record::DecisionRecord,
    stage::FrameStage,
};

/// Waits for their work when they are dropped, so that buffers which are dropped behind them are free.
#[derive(Clone)]
pub struct Streams {
    /// Copies to the GPU.
    pub up: Arc<CudaStream>,
    /// All kernels and products.
    pub compute: Arc<CudaStream>,
    /// Copies from the GPU.
    pub down: Arc<CudaStream>,
}

impl Streams {
    /// New ones; none is the default stream, which waits for all others.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        let stream = || context.new_stream().map_err(tried("making a stream"));
        Ok(Self {
            up: stream()?,
            compute: stream()?,
            down: stream()?,
        })
    }

    /// Waits until no stream has work left.
    pub fn drain(&self) -> Result<(), CudaError> {
        for stream in [&self.up, &self.compute, &self.down] {
            wait_for_stream(stream, "waiting for the GPU")?;
        }
        Ok(())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // An error means that the GPU has failed, which was reported before.
        let _ = self.drain();
    }
}

/// Events of a step on the compute stream, with times.
pub struct StepEvents {
    pub began: CudaEvent,
    /// Its frames are patches; recorded in steps with images.
    pub prepared: CudaEvent,
    /// Its images are tokens; recorded in steps with images.
    pub encoded: CudaEvent,
    /// Its hidden states are computed.
    pub forwarded: CudaEvent,
    /// Its masks are uploaded.
    pub masked: CudaEvent,
    /// Its decisions are computed.
    pub computed: CudaEvent,
}

/// What the commit of a step in flight needs.
#[derive(Clone, Debug, Default)]
pub struct QueuedStep {
    pub counts: StepCounts,
    /// Pixels that the model sees of each image.
    pub model_sizes: Vec<(u32, u32)>,
    /// Crops that are encoded.
    pub crops_encoded: usize,
    /// Crops whose features are those of earlier steps.
    pub crops_reused: usize,
}

/// One of the slots.
pub struct GpuSlot {
    host_block: PinnedBuffer<i32>,
    pub block: Buffer<i32>,
    /// Frames of the step.
    pub frames: FrameStage,
    host_masks: PinnedBuffer<u32>,
    /// `[tokens, words]`.
    pub masks: Buffer<u32>,
    mask_words: usize,
    records: Buffer<DecisionRecord>,
    host_records: PinnedBuffer<DecisionRecord>,
    uploaded: CudaEvent,
    /// On the compute stream. Two sets in turn: the end of a step is still read when its slot's next step is launched.
    events: [StepEvents; 2],
    pub event_set: usize,
    copied: CudaEvent,
    /// The step in flight.
    pub step: QueuedStep,
}

impl GpuSlot {
    /// Room for one step with masks of `vocab` tokens and `frame_bytes` of decoded frames.
    pub fn new(
        streams: &Streams,
        layout: &TableLayout,
        vocab: usize,
        frame_bytes: usize,
    ) -> Result<Self, CudaError> {
        let event = |flags| {
            let event = streams.compute.context().new_event(Some(flags));
            event.map_err(tried("making an event"))
        };
        let untimed = || event(CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let timed = || event(CUevent_flags::CU_EVENT_DEFAULT);
        let events = || {
            Ok::<_, CudaError>(StepEvents {
                began: timed()?,
                prepared: timed()?,
                encoded: timed()?,
                forwarded: timed()?,
                masked: timed()?,
                computed: timed()?,
            })
        };
        let mask_words = vocab.div_ceil(32);
        let masks = layout.token_rows.len * mask_words;
        Ok(Self {
            host_block: PinnedBuffer::zeros(layout.words)?,
            block: Buffer::zeros(&streams.compute, layout.words)?,
            frames: FrameStage::new(&streams.up, frame_bytes)?,
            host_masks: PinnedBuffer::zeros(masks)?,
            masks: Buffer::zeros(&streams.compute, masks)?,
            mask_words,
            records: Buffer::zeros(&streams.compute, layout.picks)?,
            host_records: PinnedBuffer::zeros(layout.picks)?,
            uploaded: untimed()?,
            events: [events()?, events()?],
            event_set: 0,
            copied: untimed()?,
            step: QueuedStep::default(),
        })
    }

    /// Bytes of GPU memory that one takes.
    pub fn gpu_bytes(layout: &TableLayout, vocab: usize, frame_bytes: usize) -> usize {
        let masks = layout.token_rows.len * vocab.div_ceil(32);
        (layout.words + masks) * size_of::<u32>()
            + layout.picks * size_of::<DecisionRecord>()
            + frame_bytes
    }

    /// Events of the step in flight, or of the last one.
    pub fn events(&self) -> &StepEvents {
        &self.events[self.event_set]
    }

    /// Takes the other set of events, for a new step.
    pub fn next_events(&mut self) {
        self.event_set = 1 - self.event_set;
    }

    /// The end of the step that used that set.
    pub fn end_of(&self, set: usize) -> &CudaEvent {
        &self.events[set].computed
    }

    /// The tables of the step in flight.
    pub fn tables<'a>(&'a self, layout: &'a TableLayout) -> StepTables<'a> {
        StepTables {
            layout,
            block: self.block.start(),
            counts: &self.step.counts,
        }
    }

    /// Where its decisions go.
    pub fn decisions(&self, carried: &Buffer<DecisionRecord>) -> DecisionBuffers {
        DecisionBuffers {
            records: self.records.start(),
            carried: carried.start(),
        }
    }

    /// The block that the host fills before [`GpuSlot::uploaded`].
    pub fn block_mut(&mut self) -> &mut [i32] {
        self.host_block.as_mut_slice()
    }

    /// Queues the block's copy; kernels queued from now on see it and all copies before it.
    pub fn upload(&mut self, streams: &Streams) -> Result<(), CudaError> {
        let words = self.host_block.as_slice().len();
        upload(&streams.up, &self.host_block, 0..words, self.block.start())?;
        self.order_behind_uploads(streams)
    }

    /// Queues the copy of the masks: for each token a mask, or `None`, which allows no token.
    pub fn upload_masks<'a>(
        &mut self,
        streams: &Streams,
        masks: impl Iterator<Item = Option<&'a [u32]>>,
    ) -> Result<(), CudaError> {
        let mut used = 0;
        for mask in masks {
            let words = &mut self.host_masks.as_mut_slice()[used..][..self.mask_words];
            match mask {
                Some(mask) => words.copy_from_slice(mask),
                None => words.fill(0),
            }
            used += self.mask_words;
        }
        upload(&streams.up, &self.host_masks, 0..used, self.masks.start())?;
        self.order_behind_uploads(streams)
    }

    fn order_behind_uploads(&self, streams: &Streams) -> Result<(), CudaError> {
        record(&self.uploaded, &streams.up)?;
        wait(&streams.compute, &self.uploaded)
    }

    /// Queues the copy of the decisions behind everything that computes them.
    pub fn download(&mut self, streams: &Streams) -> Result<(), CudaError> {
        let computed = &self.events[self.event_set].computed;
        record(computed, &streams.compute)?;
        wait(&streams.down, computed)?;
        let picks = self.step.counts.picks;
        download(
            &streams.down,
            self.records.start(),
            &mut self.host_records,
            picks,
        )?;
        record(&self.copied, &streams.down)
    }

    /// Waits for that copy.
    pub fn results(&self) -> Result<&[DecisionRecord], CudaError> {
        wait_for_event(&self.copied, "waiting for a step of the GPU")?;
        Ok(&self.host_records.as_slice()[..self.step.counts.picks])
    }
}
