//! Decoders that fail, give no pictures or are too slow.

use super::*;
use crate::{ingest::gst::DecoderChain, testing};

fn watch(server: &RtspStreet, chains: &'static [DecoderChain]) -> WatchedCamera {
    let camera = rtsp(server.url(), Transport::Tcp);
    let opener = GstOpener::with_decoders(camera.clone(), chains);
    WatchedCamera::start_with(opener, &camera)
}

/// The first decoder fails for the reason `why`; then pictures come from the other.
async fn falls_back(server: &RtspStreet, chains: &'static [DecoderChain], why: &str) {
    let mut watched = watch(server, chains);
    let gave_up = |health: &Health| {
        let failure = health.failure.as_ref();
        failure.is_some_and(|it| it.text.contains(why) && it.text.contains("software"))
    };
    watched.until(why, gave_up).await;
    assert_eq!(watched.frame().await.camera_size, (320, 180));
    let health = watched.until("streaming", is_streaming).await;
    assert_eq!(health.stream.decoder.as_deref(), Some("avdec_h264"));
    watched.stop().await;
}

/// With a decoder that is too slow, pictures are left out instead of waiting for their turn.
async fn stays_in_time(server: &RtspStreet, slow: &'static [DecoderChain]) {
    let mut watched = watch(server, slow);
    let (mut first, mut shown) = (None, 0);
    // Six seconds of the camera's time, in which it sends sixty frames.
    loop {
        let rtp = watched.frame().await.times.rtp.unwrap();
        shown += 1;
        if rtp.wrapping_sub(*first.get_or_insert(rtp)) > 6 * 90_000 {
            break;
        }
    }
    // Sixty would have taken fifteen seconds; in six there is time for 24, and for some that wait to begin with.
    assert!(shown < 45, "{shown} of 60");
    let late = |health: &Health| health.counters.frames_late > 0;
    let health = watched.until("late frames", late).await;
    assert_eq!(health.losses, 0);
    // A server that begins to encode may number its first packets with a gap: the first group of 20 pictures is incomplete then.
    assert!(health.counters.frames_corrupt < 20, "{health:?}");
    watched.stop().await;
}

const fn chain(launch: &'static str, hardware: bool) -> DecoderChain {
    DecoderChain {
        launch,
        converter: None,
        hardware,
    }
}

/// What a Jetson's decoder and converter do, by elements of GStreamer that scale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn converter_of_a_decoder_scales_its_pictures() {
    const CONVERTED: DecoderChain = DecoderChain {
        converter: Some("videoscale method=nearest-neighbour ! videoconvert"),
        ..chain("avdec_h264", true)
    };
    let server = street(street_options());
    let mut camera = rtsp(server.url(), Transport::Tcp);
    camera.width = 160;
    let opener = GstOpener::with_decoders(camera.clone(), &[CONVERTED]);
    let mut watched = WatchedCamera::start_with(opener, &camera);
    let frame = watched.frame().await;
    let size = (frame.picture.width(), frame.picture.height());
    assert_eq!((frame.camera_size, size), ((320, 180), (160, 90)));
    watched.stop().await;
}

// Faults: C48, C49.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_decoder_is_replaced_and_slow_decoder_gets_fewer_frames() {
    const SOFTWARE: DecoderChain = chain("avdec_h264", false);
    const SWALLOWS: DecoderChain = chain("identity drop-probability=1.0 ! avdec_h264", true);
    const FAILS: DecoderChain = chain("identity error-after=3 ! avdec_h264", true);
    // Four frames a second, of ten that come.
    const SLOW: DecoderChain = chain("identity sleep-time=250000 ! avdec_h264", false);
    let server = street(StreetOptions {
        fps: 10,
        content: RtspContent::Pictures { kbit_per_s: 500 },
        ..street_options()
    });
    tokio::join!(
        stays_in_time(&server, &[SLOW]),
        falls_back(&server, &[SWALLOWS, SOFTWARE], "gives no pictures"),
        falls_back(&server, &[FAILS, SOFTWARE], "failed or"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a GPU and the GStreamer plugin nvcodec; run make test-gpu"]
async fn gpu_decoded_picture_stays_on_gpu_until_it_is_read() {
    spotter_engine::cuda::open(0).unwrap_or_else(|error| panic!("{error}"));
    testing::need_elements(&["nvh264dec", "cudaconvertscale"]);
    let server = street(street_options());
    for width in [320, 160] {
        let mut camera = rtsp(server.url(), Transport::Tcp);
        camera.width = width;
        let device = Some(spotter_engine::cuda::take_frame as DeviceMap);
        let opener = GstOpener::new(camera.clone(), device);
        let mut watched = WatchedCamera::start_with(opener, &camera);
        for _ in 0..20 {
            let frame = watched.frame().await;
            let picture = &frame.picture;
            assert_eq!(frame.camera_size, (320, 180));
            assert_eq!(picture.width() as u32, width);
            assert!(picture.on_device().is_some() && !picture.is_on_host());
            assert_colours(&frame);
        }
        let health = watched.until("streaming", is_streaming).await;
        assert_eq!(health.stream.decoder.as_deref(), Some("nvh264dec"));
        watched.stop().await;
    }
}
