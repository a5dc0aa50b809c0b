//! CUDA graphs: work that is queued repeatedly in the same shape is captured once and then launched as one.
//!
//! ```text
//!   first step of a shape   kernel by kernel                        no step waits for a recording
//!   a moment without work   recorded
//!   later steps             one launch
//! ```
//!
//! The vision encoder is some 190 launches, a decoder over prompts and images as many, the heads are six. As graphs they cost
//! the host a few microseconds and leave no gaps between kernels. A graph has the addresses and numbers of its capture, so it is valid
//! for work of the same shape; values that differ within a shape are in the slot's tables. Steps with images have exact shapes: cameras
//! repeat the same prompts, and so their steps have few. Steps without images have any number of rows, behind any number of images, and
//! are padded ([`program::pad`](super::program::pad)): decode steps of 32 rows have 40 shapes for each slot.

use std::{collections::HashMap, mem::discriminant, sync::Arc};

use cudarc::driver::{
    CudaGraph, CudaStream,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use super::{
    error::{CudaError, tried},
    program::StepCounts,
};
use crate::scheduler::backend::{GraphUse, SlotId};

/// Shapes of each part of steps that are known at once, so that memory has a bound (some 100 KB a graph). A new one replaces the one of
/// its part that was not used for the longest time, which is in no step in flight, because those are few.
pub(super) const SHAPES_MAX: usize = 128;

/// A part of a step, with everything that its launches depend on beside the slot's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphShape {
    Encode {
        crops: usize,
    },
    /// All blocks of the decoder: images, positions of rows, tiles; with or without what adapters add.
    Forward(SlotId, [usize; 3], bool),
    /// Heads, and decisions but those of tokens: decisions, those with a coordinate, with a size, and tokens.
    Decide(SlotId, [usize; 4]),
}

impl GraphShape {
    /// Of the decoder in the step in `slot`.
    pub fn forward(slot: SlotId, counts: &StepCounts) -> Self {
        let numbers = [counts.images, counts.row_positions, counts.tiles];
        Self::Forward(slot, numbers, counts.has_adapters)
    }

    /// Of the heads in the step in `slot`; `None` when nothing is decided.
    pub fn decide(slot: SlotId, counts: &StepCounts) -> Option<Self> {
        let numbers = [counts.picks, counts.coords, counts.sizes, counts.tokens];
        (counts.picks > 0).then_some(Self::Decide(slot, numbers))
    }
}

struct GraphEntry {
    /// The numbers of the first step of this shape. A recording needs them to queue the same work.
    counts: StepCounts,
    /// `None` until it is recorded.
    graph: Option<CudaGraph>,
    /// False after a recording or a launch of it that failed.
    is_recordable: bool,
    last_use: u64,
    /// Times that it was queued kernel by kernel.
    queued: u64,
}

/// A shape that was queued and can be recorded now.
pub struct UnrecordedShape {
    pub shape: GraphShape,
    pub counts: StepCounts,
}

pub struct Graphs {
    stream: Arc<CudaStream>,
    entries: HashMap<GraphShape, GraphEntry>,
    use_counts: GraphUse,
}

impl Graphs {
    /// For work on `stream`.
    pub fn new(stream: Arc<CudaStream>) -> Self {
        Self {
            stream,
            entries: HashMap::new(),
            use_counts: GraphUse::default(),
        }
    }

    /// Queues the work of that shape: as one when it is recorded, else kernel by kernel with `queue`. Never records: a recording
    /// would delay the step. Work without a shape is always queued.
    pub fn run(
        &mut self,
        shape: Option<GraphShape>,
        counts: &StepCounts,
        queue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let Some(shape) = shape else {
            return queue();
        };
        let last_use = self.use_counts.launched + self.use_counts.queued;
        if !self.entries.contains_key(&shape) {
            self.make_room(shape);
        }
        let entry = self.entries.entry(shape).or_insert_with(|| GraphEntry {
            counts: counts.clone(),
            graph: None,
            is_recordable: true,
            last_use,
            queued: 0,
        });
        entry.last_use = last_use;
        let Some(graph) = &entry.graph else {
            self.use_counts.queued += 1;
            entry.queued += 1;
            return queue();
        };
        self.use_counts.launched += 1;
        let launched = graph.launch().map_err(tried("launching a graph"));
        if launched.is_err() {
            // This step fails; the next ones of the shape run kernel by kernel.
            (entry.graph, entry.is_recordable) = (None, false);
        }
        launched
    }

    /// The shape without a graph that was queued most often. Each was queued once at least, so its products are planned and its
    /// kernels loaded, which a recording does not allow.
    pub fn unrecorded(&self) -> Option<UnrecordedShape> {
        let unrecorded = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.graph.is_none() && entry.is_recordable);
        let (shape, entry) = unrecorded.max_by_key(|(_, entry)| (entry.queued, entry.last_use))?;
        Some(UnrecordedShape {
            shape: *shape,
            counts: entry.counts.clone(),
        })
    }

    /// Records what `queue` queues as the work of that shape; nothing of it runs. Work of the stream that runs meanwhile is not
    /// touched.
    pub fn record(
        &mut self,
        shape: GraphShape,
        queue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if let Some(entry) = self.entries.get_mut(&shape) {
            entry.graph = Some(capture(&self.stream, queue)?);
            self.use_counts.recorded += 1;
        }
        Ok(())
    }

    /// Queues the work of that shape kernel by kernel from now on, because it could not be recorded.
    pub fn leave_unrecorded(&mut self, shape: GraphShape) {
        if let Some(entry) = self.entries.get_mut(&shape) {
            entry.is_recordable = false;
        }
    }

    pub fn use_counts(&self) -> GraphUse {
        self.use_counts
    }

    /// Discards all graphs, because the network has changed. None of them may be in flight.
    #[cfg(test)]
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// For a shape of the same part of steps.
    fn make_room(&mut self, new: GraphShape) {
        let is_of_part = |shape: &GraphShape| discriminant(shape) == discriminant(&new);
        let of_part = || self.entries.iter().filter(|(shape, _)| is_of_part(shape));
        if of_part().count() < SHAPES_MAX {
            return;
        }
        let oldest = of_part().min_by_key(|(_, entry)| entry.last_use);
        if let Some(shape) = oldest.map(|(shape, _)| *shape) {
            self.entries.remove(&shape);
        }
    }
}

pub(super) fn capture(
    stream: &Arc<CudaStream>,
    queue: impl FnOnce() -> Result<(), CudaError>,
) -> Result<CudaGraph, CudaError> {
    let failed = tried("recording a graph");
    stream
        .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        .map_err(&failed)?;
    let queued = queue();
    // Ended in any case: a stream that is capturing accepts no other work.
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    queued?;
    let graph = graph.map_err(&failed)?;
    graph.ok_or_else(|| CudaError::Shape("a step without work was recorded".into()))
}
