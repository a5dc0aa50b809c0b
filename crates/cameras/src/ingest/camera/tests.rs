//! Real GStreamer, real RTSP on loopback, ports chosen by the system; every wait is for an event and bounded.

use std::{
    fmt::Debug,
    net::TcpListener,
    sync::{Mutex, atomic::Ordering},
};

use super::*;
use crate::ingest::probe;
use spotter_config::{CameraTls, Decode, RtspConfig, Secret, SourceConfig, Transport};
use spotter_core::{CaptureSource, Frame, PixelFormat, SystemClock};
use spotter_street::rtsp::{RtspContent, RtspStreet, StreetOptions};

mod cameras;
mod decoders;
mod life;
mod local;
mod wire;

/// Generous, because no test measures speed with it. No camera stalls or fails sooner, unless a test configures that.
const LIMIT: Duration = Duration::from_secs(60);
const CANARY: &str = "canary-7f3a91";

fn camera(source: SourceConfig) -> CameraConfig {
    CameraConfig {
        source,
        stall: LIMIT,
        first_frame: LIMIT,
        ..spotter_config::testing::camera("gate", Vec::new())
    }
}

fn rtsp(url: String, transport: Transport) -> CameraConfig {
    camera(SourceConfig::Rtsp(RtspConfig {
        url,
        user: Some("viewer".into()),
        password: Some(Secret::new(CANARY.into())),
        transport,
        tls: CameraTls::Verify,
        redirect_hosts: Vec::new(),
    }))
}

/// The settings of a camera that is configured with [`rtsp`].
fn rtsp_of(camera: &mut CameraConfig) -> &mut RtspConfig {
    match &mut camera.source {
        SourceConfig::Rtsp(rtsp) => rtsp,
        other => panic!("{other:?}"),
    }
}

fn street_options() -> StreetOptions {
    StreetOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        mount: "/street".into(),
        size: (320, 180),
        fps: 20,
        content: RtspContent::Pictures { kbit_per_s: 2000 },
    }
}

/// Left half red, right half blue in BT.601; 16 blocks along the top encode the wall clock's milliseconds.
fn painted(wall: WallTime) -> Vec<u8> {
    let (width, height) = (320, 180);
    let mut bytes = vec![0; width * height * 3 / 2];
    let (luma, chroma) = bytes.split_at_mut(width * height);
    for (y, row) in luma.chunks_mut(width).enumerate() {
        for (x, value) in row.iter_mut().enumerate() {
            *value = if x < width / 2 { 81 } else { 41 };
            if y < 20 {
                let bit = wall.unix_millis() >> (x / 20) & 1;
                *value = if bit == 1 { 235 } else { 16 };
            }
        }
    }
    let (u, v) = chroma.split_at_mut(width * height / 4);
    for at in 0..width * height / 4 {
        let left = at % (width / 2) < width / 4;
        (u[at], v[at]) = match (at / (width / 2) < 10, left) {
            (true, _) => (128, 128),
            (false, true) => (90, 240),
            (false, false) => (240, 110),
        };
    }
    bytes
}

fn street(options: StreetOptions) -> RtspStreet {
    RtspStreet::start(options, Arc::new(SystemClock::new()), painted).unwrap()
}

/// A camera's handle, and what its sink received.
struct TestCamera<R> {
    handle: CameraHandle,
    received: R,
}

impl<R: Debug> TestCamera<R> {
    fn health(&self) -> Health {
        self.handle.health().borrow().clone()
    }

    async fn until(&self, what: &str, wanted: impl FnMut(&Health) -> bool) -> Health {
        self.within(LIMIT, what, wanted).await
    }

    async fn within(
        &self,
        limit: Duration,
        what: &str,
        wanted: impl FnMut(&Health) -> bool,
    ) -> Health {
        let mut health = self.handle.health();
        let found = timeout(limit, health.wait_for(wanted)).await;
        match found {
            Ok(health) => health.unwrap().clone(),
            Err(_) => panic!(
                "{what} within {limit:?}: {:?} {:?}",
                self.health(),
                self.received
            ),
        }
    }

    /// Waits for a failure; the next try has not begun.
    async fn failure(&self) -> Health {
        self.until("failure", failed).await
    }
}

fn failed(health: &Health) -> bool {
    health.failure.is_some() && health.next_retry.is_some()
}

fn is_streaming(health: &Health) -> bool {
    health.phase == Phase::Streaming
}

/// With the camera's frames.
type WatchedCamera = TestCamera<mpsc::Receiver<Frame>>;

impl WatchedCamera {
    fn start(camera: CameraConfig) -> Self {
        Self::start_with(GstOpener::new(camera.clone(), None), &camera)
    }

    fn start_with(opener: impl Opener, camera: &CameraConfig) -> Self {
        let (sender, received) = mpsc::channel(500);
        let sink: FrameSink = Arc::new(move |frame| {
            let _ = sender.try_send(frame);
        });
        let clock = Arc::new(SystemClock::new());
        Self {
            handle: spawn_with(Arc::new(opener), camera, clock, sink),
            received,
        }
    }

    async fn frame(&mut self) -> Frame {
        timeout(LIMIT, self.received.recv()).await.unwrap().unwrap()
    }

    async fn frame_until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let search = async {
            loop {
                let frame = self.frame().await;
                if wanted(&frame) {
                    return frame;
                }
            }
        };
        timeout(LIMIT, search).await.unwrap()
    }

    async fn stop(self) {
        assert!(self.handle.stop(LIMIT).await, "the camera did not stop");
    }
}

/// The milliseconds that were painted into the picture, of 65 536.
fn painted_millis(frame: &Frame) -> i64 {
    let row = frame.picture.row(0, 10);
    (0..16)
        .map(|bit| i64::from(row[bit * 20 + 10] > 128) << bit)
        .sum()
}

/// Of two times of which one is known modulo 65 536.
fn millis_apart(millis: i64, painted_millis: i64) -> i64 {
    (millis - painted_millis + 32_768).rem_euclid(65_536) - 32_768
}

fn assert_colours(frame: &Frame) {
    let (picture, x) = (&frame.picture, |share: f64| (160.0 * share) as usize);
    let chroma = |share: f64| match picture.format() {
        PixelFormat::Nv12 => {
            let row = picture.row(1, 60);
            (row[2 * x(share)], row[2 * x(share) + 1])
        }
        _ => (picture.row(1, 60)[x(share)], picture.row(2, 60)[x(share)]),
    };
    let near = |found: (u8, u8), wanted: (u8, u8)| {
        found.0.abs_diff(wanted.0) < 8 && found.1.abs_diff(wanted.1) < 8
    };
    assert!(near(chroma(0.2), (90, 240)), "{:?}", chroma(0.2));
    assert!(near(chroma(0.8), (240, 110)), "{:?}", chroma(0.8));
    assert!(picture.row(0, 100)[40].abs_diff(81) < 6);
    assert!(picture.row(0, 179).len() == 320);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_stream_gives_correct_pictures_with_camera_time() {
    let server = street(street_options());
    let mut watched = WatchedCamera::start(rtsp(server.url(), Transport::Tcp));
    let first = watched.frame().await;
    assert_eq!((first.number, first.camera_size), (1, (320, 180)));
    assert_eq!((first.picture.width(), first.picture.height()), (320, 180));
    assert_colours(&first);
    assert!(first.key);
    let source = |frame: &Frame| frame.times.capture.unwrap().source;
    let by_camera = |frame: &Frame| source(frame) == CaptureSource::Rtcp;
    let mut sources = vec![source(&first)];
    let mut errors_ms = Vec::new();
    let mut longest_ms = 0;
    while errors_ms.len() < 40 {
        let frame = watched.frame().await;
        sources.push(source(&frame));
        let received_ms = frame.times.received_wall.unix_millis();
        longest_ms = longest_ms.max(millis_apart(received_ms, painted_millis(&frame)));
        if !by_camera(&frame) {
            continue;
        }
        let capture = frame.times.capture.unwrap();
        let capture_ms = capture.wall.unix_millis();
        errors_ms.push(millis_apart(capture_ms, painted_millis(&frame)));
        assert!(frame.times.received <= frame.times.decoded);
        assert!(frame.times.received_wall >= capture.wall);
    }
    // The camera's own time is known from its first report on, and stays known; but a picture that is held up before it is sent
    // looks like one of another time.
    sources.dedup();
    let known = [CaptureSource::Arrival, CaptureSource::Rtcp];
    assert!(known.ends_with(&sources) || longest_ms > 300, "{sources:?}");
    // The server maps its clocks again with each report; on a busy machine one report may be off by what it was held up.
    errors_ms.sort_by_key(|error_ms| error_ms.abs());
    let median_ms = errors_ms[errors_ms.len() / 2];
    assert!(median_ms.abs() <= 50, "off by {errors_ms:?} ms");
    let known = |health: &Health| {
        health.stream.gop_s.is_some() && health.clock.trusted && is_streaming(health)
    };
    let health = watched.until("key-frame distance and clock", known).await;
    assert_eq!(health.stream.codec, Some("h264"));
    assert_eq!(health.stream.size, Some((320, 180)));
    assert_eq!(health.stream.transport, Some("tcp"));
    assert_eq!(health.clock.note, None);
    let counters = health.counters;
    assert_eq!((counters.rtp_lost, counters.frames_corrupt), (0, 0));
    watched.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_are_scaled_while_decoding_also_with_keyframes_only() {
    let server = street(street_options());
    let mut small = rtsp(server.url(), Transport::Udp);
    (small.width, small.decode) = (160, Decode::KeyFrames);
    let mut watched = WatchedCamera::start(small);
    for _ in 0..2 {
        let frame = watched.frame().await;
        assert_eq!((frame.picture.width(), frame.picture.height()), (160, 90));
        assert_eq!((frame.camera_size, frame.key), ((320, 180), true));
    }
    watched.stop().await;
}

/// Runs a test of this module again, alone in another process, because of what all tests of a process share. Returns the
/// output; `None` in that other process.
fn run_alone(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    const ALONE: &str = "SPOTTER_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .arg(format!("ingest::camera::tests::{test}"))
        .args(["--exact", "--nocapture"])
        .env(ALONE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    Some(text)
}
