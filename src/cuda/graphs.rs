//! Recorded work: what is queued again and again in the same shape is captured once and then launched as one.
//!
//! Where the decoder is not one launch (`decode`), a decode step is some 175, its heads are six. As graphs they cost the host next
//! to nothing and leave no gaps between kernels. A graph holds addresses and numbers as they were captured, so it is good for steps of the same slot and the
//! same counts; what differs between them stands in the slot's tables.

use std::{collections::HashMap, sync::Arc};

use cudarc::driver::{
    CudaGraph, CudaStream,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use super::{
    error::{CudaError, tried},
    program::Counts,
};
use crate::engine::backend::SlotId;

/// Shapes that are recorded; those that come later are queued kernel by kernel, so that memory has a bound (some 100 KB a graph).
const GRAPHS_MAX: usize = 256;

/// Which part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// All blocks of the decoder.
    Forward,
    /// Heads and decisions.
    Decide,
}

/// Shape of a step without images and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    part: Part,
    slot: usize,
    row_positions: usize,
    tiles: usize,
    coords: usize,
    sizes: usize,
    picks: usize,
}

impl Shape {
    /// Of a part of the step in `slot`; `None` for steps that are too different from each other, wait for the host, or decide
    /// nothing.
    pub fn of(part: Part, slot: SlotId, counts: &Counts) -> Option<Self> {
        (counts.images == 0 && counts.tokens == 0 && counts.picks > 0).then_some(Self {
            part,
            slot: slot.0,
            row_positions: counts.row_positions,
            tiles: counts.tiles,
            coords: counts.coords,
            sizes: counts.sizes,
            picks: counts.picks,
        })
    }
}

/// What was recorded.
pub struct Graphs {
    stream: Arc<CudaStream>,
    /// `None` was queued once: plans are made and kernels loaded, which a recording does not allow.
    known: HashMap<Shape, Option<CudaGraph>>,
}

impl Graphs {
    /// For work on `stream`.
    pub fn new(stream: Arc<CudaStream>) -> Self {
        Self {
            stream,
            known: HashMap::new(),
        }
    }

    /// Queues the work of that shape: kernel by kernel with `queue` at first, recorded at the second time, then as one.
    pub fn run(
        &mut self,
        shape: Option<Shape>,
        queue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let Some(shape) = shape else {
            return queue();
        };
        if let Some(Some(graph)) = self.known.get(&shape) {
            return graph.launch().map_err(tried("launching a graph"));
        }
        let seen = self.known.contains_key(&shape);
        if !seen {
            if self.known.len() < GRAPHS_MAX {
                self.known.insert(shape, None);
            }
            return queue();
        }
        let graph = self.record(queue)?;
        graph.launch().map_err(tried("launching a graph"))?;
        self.known.insert(shape, Some(graph));
        Ok(())
    }

    fn record(
        &self,
        queue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<CudaGraph, CudaError> {
        let failed = tried("recording a graph");
        self.stream
            .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .map_err(&failed)?;
        let queued = queue();
        // Ended in any case: a stream that still records takes no other work.
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        queued?;
        let graph = graph.map_err(&failed)?;
        graph.ok_or_else(|| CudaError::Shape("a step without work was recorded".into()))
    }
}
