//! Video files, paths that are no video, and the test source.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::*;
use crate::{WholePictures, ingest::first_picture};
use spotter_core::Picture;

/// A short video of that pixel format, made by GStreamer itself: 15 frames at 15 frames a second.
fn video_file(folder: &tempfile::TempDir, format: &str) -> PathBuf {
    use gstreamer::{self as gst, prelude::*};
    gst::init().unwrap();
    let path = folder.path().join("a \"b\" 'c'.mkv");
    let text = format!(
        "videotestsrc num-buffers=15 ! video/x-raw,format={format},width=160,height=120,framerate=15/1 \
         ! x264enc ! h264parse ! matroskamux ! filesink name=end"
    );
    let pipeline = gst::parse::launch(&text).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let end = pipeline.by_name("end").unwrap();
    end.set_property("location", &path);
    pipeline.set_state(gst::State::Playing).unwrap();
    let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    let limit = gst::ClockTime::from_seconds(LIMIT.as_secs());
    let message = pipeline.bus().unwrap().timed_pop_filtered(limit, &ends);
    assert_eq!(message.unwrap().type_(), gst::MessageType::Eos);
    pipeline.set_state(gst::State::Null).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_end_once_or_loop_and_other_paths_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = video_file(&folder, "I420");
    let file = |path: &PathBuf, looped| {
        camera(SourceConfig::File {
            path: path.clone(),
            looped,
        })
    };
    let mut once = WatchedCamera::start(file(&path, false));
    let first = once.frame().await;
    assert!(first.key);
    assert_eq!(first.times.capture.unwrap().source, CaptureSource::File);
    let ended = |health: &Health| health.phase == Phase::Ended;
    let health = once.until("the end", ended).await;
    assert_eq!((health.frames, health.next_retry), (15, None));
    once.stop().await;

    let mut looped = WatchedCamera::start(file(&path, true));
    looped.frame_until(|frame| frame.number > 40).await;
    let health = looped.health();
    assert_eq!((health.attempts, health.reconnects_1h), (0, 0));
    looped.stop().await;

    let text = folder.path().join("text.mp4");
    std::fs::write(&text, "this is no video\n".repeat(1000)).unwrap();
    for (path, fault) in [
        (text.clone(), StreamFault::NotVideo),
        (folder.path().join("nothing.mp4"), StreamFault::NotFound),
    ] {
        let watched = WatchedCamera::start(file(&path, false));
        let failure = watched.failure().await.failure.unwrap();
        assert_eq!(failure.fault, fault, "{failure}");
        watched.stop().await;
    }

    assert_eq!(first_picture(&path).unwrap().size(), (160, 120));
    let failure = first_picture(&text).unwrap_err();
    assert_eq!(failure.fault, StreamFault::NotVideo);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_test_source_runs_and_reconnects_on_request() {
    let mut watched = WatchedCamera::start(camera(SourceConfig::Test));
    let first = watched.frame().await;
    assert_eq!((first.camera_size, first.key), ((640, 360), true));
    watched.until("streaming", is_streaming).await;
    watched.handle.reconnect();
    let again = |health: &Health| health.reconnects_1h == 1 && is_streaming(health);
    let before = watched.until("streaming again", again).await.frames;
    watched.frame_until(|frame| frame.number > before).await;
    watched.stop().await;
}

/// Wants one picture at a time.
#[derive(Default)]
struct WholeFrames {
    is_wanted: AtomicBool,
    sizes: Mutex<Vec<(usize, usize)>>,
}

impl WholePictures for WholeFrames {
    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    fn take_whole(&self, picture: Picture) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.sizes.lock().unwrap().push(picture.size());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_picture_is_had_beside_the_scaled_frames() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["I420", "Y42B", "I420_10LE"] {
        let camera = CameraConfig {
            width: 80,
            ..camera(SourceConfig::File {
                path: video_file(&folder, format),
                looped: true,
            })
        };
        let whole = Arc::new(WholeFrames::default());
        let (sender, received) = mpsc::channel(500);
        let sink = FrameSink::new(move |frame| _ = sender.try_send(frame));
        let sink = sink.with_whole(Arc::clone(&whole) as Arc<dyn WholePictures>);
        let opener = Arc::new(GstOpener::new(camera.clone(), None));
        let clock = Arc::new(SystemClock::new());
        let mut watched = WatchedCamera {
            handle: spawn_with(opener, &camera, clock, sink),
            received,
        };
        for wanted in 0..3 {
            whole.is_wanted.store(wanted > 0, Ordering::Relaxed);
            let is_over = |frame: &Frame| {
                assert_eq!(frame.picture.size(), (80, 60));
                !whole.is_wanted()
            };
            watched.frame_until(is_over).await;
            let sizes = whole.sizes.lock().unwrap().clone();
            assert_eq!(sizes, vec![(160, 120); wanted], "{format}");
        }
        watched.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_device_is_named_and_tried_again() {
    let device = PathBuf::from("/dev/video-that-is-not-there");
    let watched = WatchedCamera::start(camera(SourceConfig::Usb { device }));
    let health = watched.failure().await;
    let failure = health.failure.unwrap();
    assert_eq!(failure.fault, StreamFault::Device, "{failure}");
    assert!(failure.text.contains("/dev/video-that-is-not-there"));
    assert!(health.next_retry.is_some());
    watched.stop().await;
}
