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
use spotter_core::LogThrottle;

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
    pub outlet: Outlet,
    /// The source in messages, without a login.
    pub source: String,
    pub kind: SourceKind,
    pub memory: Arc<CameraMemory>,
    open: AtomicBool,
    has_packet: AtomicBool,
    has_failed: AtomicBool,
    statistics: Mutex<StreamStatistics>,
}

impl PipelineContext {
    /// Of a pipeline that does not play yet.
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
        let (camera, suppressed) = (&self.outlet.camera, (suppressed > 0).then_some(suppressed));
        warn!(%camera, suppressed, "frames are left out: {why}");
    }
}
