//! A short look at a camera for `spotter check --probe`.

use std::{sync::Arc, time::Duration};

use super::{
    camera::spawn_with,
    clock::ClockHealth,
    gst::GstOpener,
    health::{Failure, Health, StreamInfo},
    source::{FrameSink, Opener},
};
use spotter_config::CameraConfig;
use spotter_core::{Clock, Phase, StreamFault};

/// How long a stream is watched when its key-frame distance or its clock stay unknown; two sender reports come in it.
const WATCH: Duration = Duration::from_secs(15);
const TEARDOWN_LIMIT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq)]
pub struct ProbeReport {
    /// Codec, size, rates, key-frame distance, transport, decoder.
    pub stream: StreamInfo,
    /// Clock offset and whether it is trusted.
    pub clock: ClockHealth,
    /// From the start of the connection to the first frame.
    pub first_frame_after: Duration,
}

/// Connects, watches for some seconds (at most `first_frame` plus fifteen), and disconnects. As a running camera does, it
/// connects once more when the camera refuses the first transport and there is another one. Needs a tokio runtime.
pub async fn probe(camera: &CameraConfig, clock: Arc<dyn Clock>) -> Result<ProbeReport, Failure> {
    let opener = Arc::new(GstOpener::new(camera.clone(), None));
    let running: Arc<dyn Opener> = opener.clone();
    let handle = spawn_with(running, camera, Arc::clone(&clock), FrameSink::new(drop));
    let mut reports = handle.health();
    let (mut began, mut streaming_since, mut attempts) = (clock.now(), None, 0);
    let result = loop {
        let health = reports.borrow_and_update().clone();
        let now = clock.now();
        if matches!(health.phase, Phase::Streaming | Phase::Ended) {
            let since = *streaming_since.get_or_insert(now);
            if health.phase == Phase::Ended || is_known(&health, &opener, now.since(since)) {
                break Ok(ProbeReport {
                    stream: health.stream,
                    clock: health.clock,
                    first_frame_after: since.since(began),
                });
            }
        } else if health.next_retry.is_some() {
            began = now;
        }
        if let Some(failure) = health.failure.filter(|_| health.attempts > attempts) {
            let is_first = streaming_since.is_none() && health.attempts == 1;
            if !is_first || !opener.has_alternative() {
                break Err(failure);
            }
            attempts = health.attempts;
        }
        if reports.changed().await.is_err() {
            let text = "the camera's task panicked; the panic message is in the log above";
            break Err(Failure::new(StreamFault::Device, text));
        }
    };
    handle.stop(TEARDOWN_LIMIT).await;
    result
}

/// All of a stream is known after this time, or it has been watched for long enough.
fn is_known(health: &Health, opener: &GstOpener, watched: Duration) -> bool {
    let clock_known = !opener.has_sender_reports() || health.clock.trusted;
    let rate_known = health.frames > 10 && health.stream.gop_s.is_some();
    watched >= WATCH || (clock_known && rate_known)
}
