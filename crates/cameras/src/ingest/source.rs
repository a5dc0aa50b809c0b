//! The interface between a camera's session and what makes the frames: GStreamer in the daemon, a script in tests.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;

use super::{
    clock::ClockHealth,
    health::{Failure, StreamInfo},
};
use crate::WholePictures;
use spotter_core::{CameraId, Clock, Frame, Mono, StreamCounters};

/// Takes every good frame, in the source's thread. Must not block; the newest frame wins.
#[derive(Clone)]
pub struct FrameSink {
    take: Arc<dyn Fn(Frame) + Send + Sync>,
    whole: Option<Arc<dyn WholePictures>>,
}

impl FrameSink {
    pub fn new(take: impl Fn(Frame) + Send + Sync + 'static) -> Self {
        Self {
            take: Arc::new(take),
            whole: None,
        }
    }

    pub fn with_whole(self, whole: Arc<dyn WholePictures>) -> Self {
        Self {
            whole: Some(whole),
            ..self
        }
    }

    pub fn take(&self, frame: Frame) {
        (self.take)(frame);
    }

    /// `None`: no person waits for a whole picture.
    pub fn wanted_whole(&self) -> Option<&dyn WholePictures> {
        self.whole.as_deref().filter(|whole| whole.is_wanted())
    }
}

/// What a running source reports, each at most once, [`SourceEvent::Ended`] once for each rewind.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// Data came for the first time.
    FirstPacket,
    /// The first good frame was handed over.
    FirstFrame,
    /// It cannot go on.
    Failed(Failure),
    /// It came to its end.
    Ended,
}

/// What a running source has done so far.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Good frames handed over.
    pub frames: u64,
    pub counters: StreamCounters,
    /// When the last packet came; `None` for sources without packets.
    pub last_packet: Option<Mono>,
    /// When the last good frame was handed over.
    pub last_frame: Option<Mono>,
    /// The stream, as far as known.
    pub stream: StreamInfo,
    pub clock: ClockHealth,
}

/// Where a source sends frames and events: one for each pipeline, so that an old one cannot send in the name of a new one.
#[derive(Clone)]
pub struct SourceOutlet {
    pub camera: CameraId,
    pub clock: Arc<dyn Clock>,
    pub sink: FrameSink,
    /// Counts the camera's frames over all of its pipelines.
    pub numbers: Arc<AtomicU64>,
    pub events: mpsc::Sender<SourceEvent>,
}

impl SourceOutlet {
    /// Sends an event without blocking. A pipeline has at most four of them, fewer than the channel can keep.
    pub fn send(&self, event: SourceEvent) {
        let _ = self.events.try_send(event);
    }

    /// The number of the next frame, from 1.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A source that runs. [`Source::stop`] ends it for good.
pub trait Source: Send + Sync {
    /// What it has done so far. Does not block.
    fn progress(&self) -> Progress;

    /// Plays from the start again; only for sources that sent [`SourceEvent::Ended`]. May block shortly.
    fn rewind(&self) -> Result<(), Failure>;

    /// Ends the session with the camera and frees everything. May block for seconds, or for ever in a broken driver, so it is
    /// called in a thread of its own. No frame is handed over after it has returned.
    fn stop(&self);
}

/// Makes sources of one camera.
pub trait Opener: Send + Sync + 'static {
    /// Builds a source and starts it. May block shortly.
    fn open(&self, outlet: SourceOutlet) -> Result<Arc<dyn Source>, Failure>;

    /// An operator asks for a connection: what limits how often the camera is connected to on average begins again.
    fn requested(&self) {}
}
