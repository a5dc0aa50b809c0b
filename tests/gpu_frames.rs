//! Pictures that were to stay on a GPU and cannot: they come by way of the host. Elements of the CPU stand in for a GPU's, for the
//! whole process, so this test has one of its own.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

use std::{fs, sync::Arc, time::Duration};

use gstreamer::{self as gst, prelude::*};
use tokio::{sync::mpsc, time::timeout};

use spotter_cameras::ingest::{self, FrameSink};
use spotter_config::{self as config, Environment};
use spotter_core::SystemClock;
use spotter_street::rtsp::{RtspContent, RtspStreet, StreetOptions};

const LIMIT: Duration = Duration::from_secs(60);
/// Replaces a GPU's decoder by one that leaves pictures on the host.
const DECODER: (&str, &str) = ("nvh264dec", "avdec_h264");
const SCALER: &str = "cudaconvertscale";
/// Replacements of the scaler and the expected error. The first passes caps on, so that it cannot be linked; with the second
/// the caps do not fit when the first frame arrives.
const SCALERS: [(&str, &str); 2] = [
    ("identity", "cannot be built"),
    ("netsim", "by way of the host"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_that_cannot_stay_on_the_gpu_use_host_memory() {
    ingest::start_gstreamer().expect("GStreamer");
    for name in [DECODER.0, SCALER] {
        // A real one is hidden from this process.
        if let Some(real) = gst::ElementFactory::find(name) {
            gst::Registry::get().remove_feature(&real);
        }
    }
    register(DECODER);
    for (stand_in, reported) in SCALERS {
        register((SCALER, stand_in));
        watch_a_camera(reported).await;
    }
}

fn register((name, stand_in): (&str, &str)) {
    let factory = gst::ElementFactory::find(stand_in).expect(stand_in);
    let factory = factory.load().expect("a plugin that loads");
    gst::Element::register(None, name, gst::Rank::NONE, factory.element_type())
        .expect("a name that is free or ours");
}

async fn watch_a_camera(reported: &str) {
    let clock = Arc::new(SystemClock::new());
    let options = StreetOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        mount: "/street".into(),
        size: (320, 180),
        fps: 20,
        content: RtspContent::Pictures { kbit_per_s: 1000 },
    };
    let grey = |_| vec![128; 320 * 180 * 3 / 2];
    let street = RtspStreet::start(options, clock.clone(), grey).expect("a camera");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("site.toml");
    let text = format!(
        "mqtt.url = \"mqtt://127.0.0.1\"\n\
         defaults = {{ first_frame = \"60s\", stall = \"60s\" }}\n[camera.gate]\nurl = \"{}\"\nprompt.person.detect = \"person\"\n",
        street.url()
    );
    fs::write(&path, text).expect("a file");
    let config = config::load(&path, &Environment::process()).expect("a good configuration");

    let (sender, mut frames) = mpsc::channel(100);
    let sink = FrameSink::new(move |frame| drop(sender.try_send(frame)));
    let camera = config.config.cameras[0].clone();
    let refusing = |_| Err("no picture was to come this way".to_owned());
    let handle = ingest::spawn(camera, clock, sink, Some(refusing));
    let mut health = handle.health();
    let refused = timeout(LIMIT, health.wait_for(|health| health.failure.is_some())).await;
    let refused = refused.expect("in time").expect("a camera that runs");
    let text = refused.failure.as_ref().expect("a failure").to_string();
    assert!(text.contains(reported), "{text}");
    drop(refused);

    let frame = timeout(LIMIT, frames.recv()).await.expect("in time");
    let picture = frame.expect("a camera that runs").picture;
    assert!(picture.is_on_host() && picture.on_device().is_none());
    assert_eq!((picture.width(), picture.height()), (320, 180));
    assert!(picture.row(0, 90)[160].abs_diff(128) < 20);
    // The decoder is still the one of the GPU.
    let named = timeout(
        LIMIT,
        health.wait_for(|health| health.stream.decoder.is_some()),
    )
    .await;
    let named = named.expect("in time").expect("a camera that runs");
    assert_eq!(named.stream.decoder.as_deref(), Some("nvh264dec"));
    drop(named);
    assert!(handle.stop(LIMIT).await);
}
