//! Cameras of other kinds than the street: TLS, a codec that cannot be decoded, pictures on a GPU.

use gstreamer_rtsp_server::{self as rtsp_server, gio, glib, prelude::*};
use sha2::{Digest, Sha256};

use super::*;
use crate::{ingest::DeviceMap, testing};

/// Made by `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=camera.test`;
/// the key protects nothing.
const SELF_SIGNED: &str = include_str!("self-signed.pem");

/// An RTSP server for any launch text; ends with the process.
fn serve(launch: &str, certificate: Option<&gio::TlsCertificate>) -> String {
    gstreamer::init().unwrap();
    let server = rtsp_server::RTSPServer::new();
    server.set_address("127.0.0.1");
    server.set_service("0");
    if certificate.is_some() {
        let auth = rtsp_server::RTSPAuth::new();
        auth.set_tls_certificate(certificate);
        let mut token = rtsp_server::RTSPToken::builder()
            .field("media.factory.role", "anyone")
            .build();
        auth.set_default_token(Some(&mut token));
        server.set_auth(Some(&auth));
    }
    let factory = rtsp_server::RTSPMediaFactory::new();
    factory.set_shared(true);
    factory.set_launch(launch);
    factory.add_role_from_structure(
        &gstreamer::Structure::builder("anyone")
            .field("media.factory.access", true)
            .field("media.factory.construct", true)
            .build(),
    );
    server.mount_points().unwrap().add_factory("/x", factory);
    let context = glib::MainContext::new();
    let _source = server.attach(Some(&context)).unwrap();
    let scheme = certificate.map_or("rtsp", |_| "rtsps");
    let url = format!("{scheme}://127.0.0.1:{}/x", server.bound_port());
    let run = move || {
        let _server = server;
        glib::MainLoop::new(Some(&context), false).run();
    };
    let thread = std::thread::Builder::new().name("test-rtsp".into());
    thread.spawn(run).unwrap();
    url
}

const PICTURES: &str = "videotestsrc is-live=true pattern=red \
                        ! video/x-raw,format=I420,width=320,height=240,framerate=15/1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a GPU and the GStreamer plugin nvcodec; run make test-gpu"]
async fn gpu_decoded_picture_stays_on_gpu_until_it_is_read() {
    let device = device_map(&["nvh264dec", "cudaconvertscale"]);
    let pay = "x264enc tune=zerolatency speed-preset=ultrafast ! h264parse ! rtph264pay name=pay0";
    let url = serve(&format!("( {PICTURES} ! {pay} )"), None);
    for width in [320, 160] {
        let mut camera = rtsp(url.clone(), Transport::Tcp);
        camera.width = width;
        let opener = GstOpener::new(camera.clone(), Some(device));
        let mut watched = WatchedCamera::start_with(opener, &camera);
        for _ in 0..20 {
            let Frame {
                camera_size,
                picture,
                ..
            } = watched.frame().await;
            assert_eq!(camera_size, (320, 240));
            assert_eq!(picture.width() as u32, width);
            assert!(picture.on_device().is_some() && !picture.is_on_host());
            let half = (picture.width() / 2) & !1;
            let (u, v) = (picture.row(1, 30)[half], picture.row(1, 30)[half + 1]);
            assert!(u < 115 && v > 220, "{u} {v}");
        }
        let health = watched.until("streaming", is_streaming).await;
        assert_eq!(health.stream.decoder.as_deref(), Some("nvh264dec"));
        watched.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_checked_pinned_or_ignored() {
    let certificate = gio::TlsCertificate::from_pem(SELF_SIGNED).unwrap();
    let der = certificate.property::<glib::ByteArray>("certificate");
    let pinned: [u8; 32] = Sha256::digest(&*der).into();
    let launch = format!("( {PICTURES} ! jpegenc ! rtpjpegpay name=pay0 )");
    let url = serve(&launch, Some(&certificate));
    let with = |checked: CameraTls| {
        let mut camera = rtsp(url.clone(), Transport::Tcp);
        rtsp_of(&mut camera).tls = checked;
        camera
    };
    for good in [CameraTls::Fingerprint(pinned), CameraTls::Insecure] {
        let mut watched = WatchedCamera::start(with(good));
        watched.frame().await;
        watched.stop().await;
    }
    for bad in [CameraTls::Verify, CameraTls::Fingerprint([7; 32])] {
        let watched = WatchedCamera::start(with(bad));
        let failure = watched.failure().await.failure.unwrap();
        assert_eq!(failure.fault, Fault::Tls, "{failure}");
        watched.stop().await;
    }
}

/// Takes frames over for the first GPU. Panics where GStreamer lacks an element or no GPU works.
fn device_map(elements: &[&str]) -> DeviceMap {
    spotter_engine::cuda::open(0).unwrap_or_else(|error| panic!("{error}"));
    testing::need_elements(elements);
    spotter_engine::cuda::take_frame
}
