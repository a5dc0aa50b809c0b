//! What the probes of one pipeline share: its events, its statistics, and what is remembered of the camera from pipeline to
//! pipeline.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tracing::warn;

use super::{
    decoder::Decoders,
    statistics::{SourceKind, StreamStatistics},
};
use crate::ingest::{
    clock::ClockReading,
    gate::Gap,
    health::Failure,
    source::{Outlet, SourceEvent},
    transport::{RtpTransport, TransportChoice},
};
use spotter_core::{CameraId, Frame, LogThrottle};

/// Why frames are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOmission {
    /// The frame was dropped before the decoder.
    NotDecoded(Gap),
    /// The decoder reports an error.
    Broken,
    /// The picture has a format or memory that cannot be used.
    Unusable,
}

/// What is remembered of a camera from one pipeline to the next.
pub struct CameraMemory {
    /// Its decoders, and which of them failed.
    pub decoders: Decoders,
    transport: Mutex<TransportChoice>,
    omissions: Mutex<LogThrottle<FrameOmission>>,
}

impl CameraMemory {
    /// Of a camera that was not connected yet.
    pub fn new(decoders: Decoders, transport: TransportChoice) -> Self {
        Self {
            decoders,
            transport: Mutex::new(transport),
            omissions: Mutex::default(),
        }
    }

    /// Which transport the camera accepts. The lock is never held while another is taken.
    pub fn transport(&self) -> MutexGuard<'_, TransportChoice> {
        self.transport
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pipeline's events and statistics.
pub struct PipelineContext {
    outlet: Outlet,
    source: String,
    kind: SourceKind,
    memory: Arc<CameraMemory>,
    open: AtomicBool,
    has_packet: AtomicBool,
    has_failed: AtomicBool,
    statistics: Mutex<StreamStatistics>,
}

impl PipelineContext {
    /// Of a pipeline that does not play yet. `source` is its source in messages, without a login.
    pub fn new(
        outlet: Outlet,
        source: String,
        kind: SourceKind,
        memory: Arc<CameraMemory>,
    ) -> Self {
        Self {
            outlet,
            source,
            kind,
            memory,
            open: AtomicBool::new(true),
            has_packet: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            statistics: Mutex::new(StreamStatistics::new(kind)),
        }
    }

    pub fn camera(&self) -> &CameraId {
        &self.outlet.camera
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    pub fn memory(&self) -> &CameraMemory {
        &self.memory
    }

    pub fn now(&self) -> ClockReading {
        ClockReading {
            mono: self.outlet.clock.now(),
            wall: self.outlet.clock.wall(),
        }
    }

    /// Held for some additions by GStreamer's threads, so never across a call into GStreamer.
    pub fn statistics(&self) -> MutexGuard<'_, StreamStatistics> {
        self.statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event unless the pipeline is closed.
    pub fn send(&self, event: SourceEvent) {
        if self.is_open() {
            self.outlet.send(event);
        }
    }

    /// Reports the first packet, once.
    pub fn packet_came(&self) {
        if !self.has_packet.swap(true, Ordering::Relaxed) {
            self.send(SourceEvent::FirstPacket);
        }
    }

    /// Reports the first failure; later ones follow from it and are dropped.
    pub fn fail(&self, failure: Failure) {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            self.send(SourceEvent::Failed(failure));
        }
    }

    /// The number of the next frame, from 1.
    pub fn next_number(&self) -> u64 {
        self.outlet.next_number()
    }

    /// Hands a frame over, in the calling thread.
    pub fn hand_over(&self, frame: Frame) {
        (self.outlet.sink)(frame);
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// From now on no event is sent and no frame handed over.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// RTP comes inside of the RTSP connection, so both end together.
    pub fn is_interleaved(&self) -> bool {
        self.statistics().stream.transport == Some(RtpTransport::Tcp.as_str())
    }

    /// Warns of frames that are left out, once a minute and reason.
    pub fn warn_of(&self, omission: FrameOmission, why: &str) {
        let omissions = &self.memory.omissions;
        let mut omissions = omissions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(suppressed) = omissions.admit(omission, self.now().mono) else {
            return;
        };
        drop(omissions);
        let (camera, suppressed) = (self.camera(), (suppressed > 0).then_some(suppressed));
        warn!(%camera, suppressed, "frames are left out: {why}");
    }
}
