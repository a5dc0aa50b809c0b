//! What watches one pipeline: its events, its statistics, and what is remembered of the camera from pipeline to pipeline.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use tracing::warn;

use super::{
    GstOpener,
    decoder::Decoders,
    failure,
    picture::DeviceMap,
    statistics::{SourceKind, StreamStatistics},
};
use crate::ingest::{
    clock::ClockReading,
    gate::Gap,
    health::Failure,
    nal::NalCodec,
    rtsp::{ConnectionBudget, RtspRelay},
    source::{SourceEvent, SourceOutlet},
    transport::{RtpTransport, TransportChoice},
};
use crate::lock;
use spotter_config::CameraConfig;
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
    pub connections: Arc<Mutex<ConnectionBudget>>,
    transport: Mutex<TransportChoice>,
    omissions: Mutex<LogThrottle<FrameOmission>>,
}

impl CameraMemory {
    /// Of a camera that was not connected yet.
    pub fn new(decoders: Decoders, transport: TransportChoice) -> Self {
        Self {
            decoders,
            connections: Arc::default(),
            transport: Mutex::new(transport),
            omissions: Mutex::default(),
        }
    }

    /// Which transport the camera accepts. The lock is never held while another is taken.
    pub fn transport(&self) -> MutexGuard<'_, TransportChoice> {
        lock(&self.transport)
    }
}

/// What watches one pipeline from the network to its end. GStreamer's threads call it; `packet_probe`, `decode_queue` and
/// `picture_sink` have the calls of each place.
pub struct PipelineProbes {
    pub outlet: SourceOutlet,
    pub camera: CameraConfig,
    /// The source in messages, without a login.
    pub name: String,
    pub kind: SourceKind,
    pub memory: Arc<CameraMemory>,
    /// Takes pictures in a GPU's memory over; `None` when they cannot be handed over.
    pub device: Option<DeviceMap>,
    /// The memory of a picture on the GPU could not be taken over.
    pub refused: AtomicBool,
    open: AtomicBool,
    has_packet: AtomicBool,
    has_failed: AtomicBool,
    statistics: Mutex<StreamStatistics>,
    relay: Mutex<Option<RtspRelay>>,
    /// The status with which the camera refused the last request.
    refusal: Mutex<Option<u16>>,
}

impl PipelineProbes {
    /// Of a pipeline that does not play yet.
    pub fn new(outlet: SourceOutlet, opener: &GstOpener) -> Arc<Self> {
        let source = &opener.camera.source;
        let kind = SourceKind::of(source);
        Arc::new(Self {
            outlet,
            name: source.name(),
            camera: opener.camera.clone(),
            kind,
            memory: Arc::clone(&opener.memory),
            device: opener.device,
            refused: AtomicBool::new(false),
            open: AtomicBool::new(true),
            has_packet: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            statistics: Mutex::new(StreamStatistics::new(kind)),
            relay: Mutex::default(),
            refusal: Mutex::default(),
        })
    }

    pub fn now(&self) -> ClockReading {
        ClockReading {
            mono: self.outlet.clock.now(),
            wall: self.outlet.clock.wall(),
        }
    }

    /// Held for some additions by GStreamer's threads, so never across a call into GStreamer.
    pub fn statistics(&self) -> MutexGuard<'_, StreamStatistics> {
        lock(&self.statistics)
    }

    /// The announced codec and the one that the camera seems to send.
    pub fn suspected_codec(&self) -> Option<(NalCodec, NalCodec)> {
        self.statistics().codec_check?.suspected()
    }

    /// Keeps the relay of the conversation with the camera, until another one or none is kept.
    pub fn keep_relay(&self, relay: Option<RtspRelay>) {
        *lock(&self.relay) = relay;
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

    /// The camera answered a request, which it refused with this status if any.
    pub fn answered(&self, refusal: Option<u16>) {
        *lock(&self.refusal) = refusal;
    }

    /// Reports the first failure; later ones follow from it and are dropped. What ends a conversation whose last request was
    /// refused is no other reason.
    pub fn fail(&self, failure: Failure) {
        if self.has_failed.swap(true, Ordering::AcqRel) {
            return;
        }
        let refusal = *lock(&self.refusal);
        let failure = match refusal {
            None => failure,
            Some(461) => self.memory.transport().refuse(),
            Some(status) => failure::of_status(status),
        };
        self.send(SourceEvent::Failed(failure.at(&self.name)));
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
        let mut omissions = lock(&self.memory.omissions);
        let Some(suppressed) = omissions.admit(omission, self.now().mono) else {
            return;
        };
        drop(omissions);
        let (camera, suppressed) = (&self.outlet.camera, (suppressed > 0).then_some(suppressed));
        warn!(%camera, suppressed, "frames dropped: {why}");
    }
}
