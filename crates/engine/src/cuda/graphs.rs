//! CUDA graphs: work that is queued repeatedly in the same shape is captured once and then launched as one.
//!
//! The vision encoder is some 190 launches, a decoder over prompts and images as many, the heads are six. As graphs they cost
//! the host a few microseconds and leave no gaps between kernels. A graph has the addresses and numbers of its capture, so it is valid
//! for work of the same shape; values that differ within a shape are in the slot's tables. Shapes are exact, so nothing is padded:
//! cameras repeat the same prompts, and so their steps have few shapes.

use std::{collections::HashMap, sync::Arc};

use cudarc::driver::{
    CudaGraph, CudaStream,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use super::{
    error::{CudaError, tried},
    program::StepCounts,
};
use crate::scheduler::backend::SlotId;

/// Shapes that are known at once, so that memory has a bound (some 100 KB a graph). A new one replaces the one that was
/// not used for the longest time, which is in no step in flight, because those are few.
const SHAPES_MAX: usize = 128;

/// A part of a step, with everything that its launches depend on beside the slot's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphShape {
    Encode {
        crops: usize,
    },
    /// All blocks of the decoder: images, positions of rows, tiles.
    Forward(SlotId, [usize; 3]),
    /// Heads, and decisions but those of tokens: decisions, those with a coordinate, with a size, and tokens.
    Decide(SlotId, [usize; 4]),
}

impl GraphShape {
    /// Of the decoder in the step in `slot`.
    pub fn forward(slot: SlotId, counts: &StepCounts) -> Self {
        Self::Forward(slot, [counts.images, counts.row_positions, counts.tiles])
    }

    /// Of the heads in the step in `slot`; `None` when nothing is decided.
    pub fn decide(slot: SlotId, counts: &StepCounts) -> Option<Self> {
        let numbers = [counts.picks, counts.coords, counts.sizes, counts.tokens];
        (counts.picks > 0).then_some(Self::Decide(slot, numbers))
    }
}

struct GraphEntry {
    /// `None` was queued once: plans are made and kernels loaded, which a recording does not allow.
    graph: Option<CudaGraph>,
    last_use: u64,
}

pub struct Graphs {
    stream: Arc<CudaStream>,
    entries: HashMap<GraphShape, GraphEntry>,
    uses: u64,
}

impl Graphs {
    /// For work on `stream`.
    pub fn new(stream: Arc<CudaStream>) -> Self {
        Self {
            stream,
            entries: HashMap::new(),
            uses: 0,
        }
    }

    /// Queues the work of that shape: kernel by kernel with `queue` at first, recorded at the second time, then as one. Work
    /// without a shape is always queued.
    pub fn run(
        &mut self,
        shape: Option<GraphShape>,
        queue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let Some(shape) = shape else {
            return queue();
        };
        self.uses += 1;
        let last_use = self.uses;
        let Some(entry) = self.entries.get_mut(&shape) else {
            queue()?;
            self.make_room();
            let graph = None;
            self.entries.insert(shape, GraphEntry { graph, last_use });
            return Ok(());
        };
        entry.last_use = last_use;
        let graph = match entry.graph.take() {
            Some(graph) => graph,
            None => capture(&self.stream, queue)?,
        };
        let graph = entry.graph.insert(graph);
        graph.launch().map_err(tried("launching a graph"))
    }

    /// Discards all graphs, because the network has changed. None of them may be in flight.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn make_room(&mut self) {
        if self.entries.len() < SHAPES_MAX {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use);
        if let Some(shape) = oldest.map(|(shape, _)| *shape) {
            self.entries.remove(&shape);
        }
    }
}

fn capture(
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
