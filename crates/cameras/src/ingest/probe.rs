//! A short look at a camera for `spotter check --probe`.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::info;

use super::{
    camera::{in_time, stuck, tear_down},
    clock::ClockHealth,
    gst::GstOpener,
    health::{Failure, Fault, StreamInfo},
    rate,
    source::{Opener, Progress, Source, SourceEvent, SourceOutlet},
};
use spotter_config::CameraConfig;
use spotter_core::Clock;

/// How long a stream is watched when its key-frame distance or its clock stay unknown; two sender reports come in it.
const WATCH: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(100);
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

/// Connects, watches for some seconds (at most `first_frame` plus fifteen, or plus half a minute), and disconnects. As a running camera does, it
/// connects once more when the camera refuses the first transport and there is another one. Needs a tokio runtime.
pub async fn probe(camera: &CameraConfig, clock: Arc<dyn Clock>) -> Result<ProbeReport, Failure> {
    let opener = Arc::new(GstOpener::new(camera.clone(), None));
    let first = match probe_once(camera, &opener, &clock).await {
        Err(failure) if opener.has_alternative() => failure.after(None),
        result => return result,
    };
    info!(camera = %camera.id, "{first}");
    let second = probe_once(camera, &opener, &clock).await;
    second.map_err(|failure| failure.after(Some(&first)))
}

async fn probe_once(
    camera: &CameraConfig,
    opener: &Arc<GstOpener>,
    clock: &Arc<dyn Clock>,
) -> Result<ProbeReport, Failure> {
    let (events, mut received) = mpsc::channel(16);
    let outlet = SourceOutlet {
        camera: camera.id.clone(),
        clock: Arc::clone(clock),
        sink: Arc::new(drop),
        numbers: Arc::new(AtomicU64::new(0)),
        events,
    };
    let started = clock.now();
    let (opener, has_reports) = (Arc::clone(opener), opener.has_sender_reports());
    let source = in_time(camera.first_frame, move || opener.open(outlet))
        .await
        .unwrap_or_else(|| Err(stuck("the source did not open in time")))?;
    let left = camera
        .first_frame
        .saturating_sub(clock.now().since(started));
    let first = timeout(left, first_frame(&mut received)).await;
    let first_frame_after = clock.now().since(started);
    let seen = match first {
        Ok(Ok(())) => watch(source.as_ref(), &mut received, has_reports).await,
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            let limit_s = camera.first_frame.as_secs_f64();
            let text = format!("no picture within {limit_s:.0}s of connecting");
            Err(Failure::new(Fault::NoFrame, text))
        }
    };
    let _ = timeout(TEARDOWN_LIMIT, tear_down(source)).await;
    seen.map(|seen| ProbeReport {
        stream: seen.stream,
        clock: seen.clock,
        first_frame_after,
    })
}

async fn first_frame(events: &mut mpsc::Receiver<SourceEvent>) -> Result<(), Failure> {
    loop {
        match events.recv().await {
            Some(SourceEvent::FirstFrame) => return Ok(()),
            Some(SourceEvent::FirstPacket) => {}
            Some(SourceEvent::Failed(failure)) => return Err(failure),
            Some(SourceEvent::Ended) | None => {
                let text = "it ended before the first picture";
                return Err(Failure::new(Fault::NotVideo, text));
            }
        }
    }
}

/// Watches until everything is known, the source ends or fails, or the time is over, which is later for a camera that may get a
/// note of its rate.
async fn watch(
    source: &dyn Source,
    events: &mut mpsc::Receiver<SourceEvent>,
    has_reports: bool,
) -> Result<Progress, Failure> {
    for step in 0.. {
        let progress = source.progress();
        let is_undecided = progress.stream.note.is_none() && rate::seems_fast(&progress.stream);
        let limit = match is_undecided {
            true => rate::WINDOW + STEP * 20,
            false => WATCH,
        };
        let clock_known = !has_reports || progress.clock.trusted;
        let rate_known = progress.frames > 10 && progress.stream.gop_s.is_some();
        if STEP * step >= limit || (clock_known && rate_known && !is_undecided) {
            break;
        }
        tokio::select! {
            event = events.recv() => match event {
                Some(SourceEvent::Failed(failure)) => return Err(failure),
                Some(SourceEvent::Ended) | None => break,
                Some(_) => {}
            },
            () = sleep(STEP) => {}
        }
    }
    Ok(source.progress())
}
