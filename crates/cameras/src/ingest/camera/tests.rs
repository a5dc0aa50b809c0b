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

/// Left half red, right half blue in BT.601.
fn painted(_: WallTime) -> Vec<u8> {
    let (width, height) = (320, 180);
    let halves = |width: usize, rows: usize, left: u8, right: u8| {
        let half = |value| vec![value; width / 2];
        [half(left), half(right)].concat().repeat(rows)
    };
    let luma = halves(width, height, 81, 41);
    let chroma = |left, right| halves(width / 2, height / 2, left, right);
    [luma, chroma(90, 240), chroma(240, 110)].concat()
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
        let sink = FrameSink::new(move |frame| {
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

fn assert_colours(frame: &Frame) {
    let (picture, columns) = (&frame.picture, frame.picture.width() / 2);
    let row = picture.height() / 3;
    let chroma = |column: usize| match picture.format() {
        PixelFormat::Nv12 => [0, 1].map(|plane| picture.row(1, row)[2 * column + plane]),
        _ => [1, 2].map(|plane| picture.row(plane, row)[column]),
    };
    for (column, expected) in [(columns / 4, [90, 240]), (columns * 3 / 4, [240, 110])] {
        let found = chroma(column);
        let is_near = |plane: usize| found[plane].abs_diff(expected[plane]) < 8;
        assert!(is_near(0) && is_near(1), "{found:?} at {column}");
    }
    assert!(picture.row(0, row)[columns / 4].abs_diff(81) < 6);
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
    let by_camera = |frame: &Frame| frame.times.capture.unwrap().source == CaptureSource::Rtcp;
    let dated = watched.frame_until(by_camera).await;
    assert!(dated.times.received <= dated.times.decoded);
    assert!(dated.times.received_wall >= dated.times.capture.unwrap().wall);
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
