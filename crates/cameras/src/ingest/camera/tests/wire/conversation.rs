//! What a camera answers before it streams: logins, redirects, channels, timeouts. And how often it is connected to.

use gio::{glib, prelude::*};
use sha2::{Digest, Sha256};

use super::*;
use spotter_config::RtspConfig;
use spotter_scripted::{
    rtsp::script::{Redirect, Takes},
    tls,
};

fn with_login(scheme: Scheme) -> CameraScript {
    CameraScript {
        login: Some(Login {
            scheme,
            user: "viewer",
            password: CANARY,
        }),
        ..good()
    }
}

fn configured(url: String, change: impl FnOnce(&mut RtspConfig)) -> CameraConfig {
    let mut camera = rtsp(url, Transport::Tcp);
    change(rtsp_of(&mut camera));
    camera
}

// Faults: C7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_on_the_same_host_and_port_logs_in_again() {
    let server = serve(&CameraScript {
        redirect: Some(Redirect::Path("/old", "/x".into())),
        ..with_login(Scheme::Digest)
    })
    .await;
    let old = server.url().replace("/x", "/old");
    let watched = CheckedCamera::start(configured(old, |_| {}), &good());
    watched.frames(5).await;
    watched.stop().await;
    let memory = server.memory();
    let logins = (memory.connections, memory.wrong_logins);
    assert_eq!(logins, (2, 0), "{memory:?}");
}

// Faults: C8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_elsewhere_is_followed_without_login_where_named() {
    let there = serve(&good()).await;
    let guarded = serve(&with_login(Scheme::Basic)).await;
    let other_host = |server: &Server| server.url().replace("127.0.0.1", "localhost");
    let to = |location: String| CameraScript {
        redirect: Some(Redirect::Path("/x", location)),
        ..good()
    };
    let refused = async |location: String, hosts: &[&str], fault: StreamFault, text: &str| {
        let server = serve(&to(location)).await;
        let camera = configured(server.url(), |rtsp| {
            rtsp.redirect_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        });
        let watched = CheckedCamera::start(camera, &good());
        let failure = watched.failure().await.failure.unwrap();
        assert!(
            failure.fault == fault && failure.text.contains(text),
            "{failure}"
        );
        watched.stop().await;
    };
    let (host, text) = (other_host(&there), "redirect_hosts");
    refused(host, &["nvr"], StreamFault::Protocol, text).await;
    assert_eq!(there.memory().connections, 0);
    let text = "the login is sent to the host and port of `url` alone";
    let host = other_host(&guarded);
    refused(host, &["localhost"], StreamFault::AuthFailed, text).await;
    assert_eq!(guarded.memory().wrong_logins, 0);

    let server = serve(&to(other_host(&there))).await;
    let camera = configured(server.url(), |rtsp| {
        rtsp.redirect_hosts = vec!["localhost".into()]
    });
    let watched = CheckedCamera::start(camera, &good());
    watched.frames(5).await;
    watched.stop().await;
}

// Faults: C10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rtsps_camera_streams_with_an_accepted_certificate_alone() {
    let directory = tempfile::tempdir().unwrap();
    tls::certificates(directory.path());
    let certificate = gio::TlsCertificate::from_file(directory.path().join("server.pem")).unwrap();
    let der = certificate.property::<glib::ByteArray>("certificate");
    let pinned: [u8; 32] = Sha256::digest(&*der).into();
    let script = CameraScript {
        redirect: Some(Redirect::Unencrypted),
        ..with_login(Scheme::Digest)
    };
    let server = serve(&script).await;
    let url = server.encrypted(directory.path()).await;
    let watch = |checked| {
        let camera = configured(url.clone(), |rtsp| rtsp.tls = checked);
        CheckedCamera::start(camera, &script)
    };
    for good in [CameraTls::Insecure, CameraTls::Fingerprint(pinned)] {
        let watched = watch(good);
        watched.frames(5).await;
        watched.stop().await;
    }
    for bad in [CameraTls::Verify, CameraTls::Fingerprint([7; 32])] {
        let watched = watch(bad);
        let failure = watched.failure().await.failure.unwrap();
        assert_eq!(failure.fault, StreamFault::Tls, "{failure}");
        watched.stop().await;
    }
    let memory = server.memory();
    let is_encrypted = |(_, _, url): &(usize, String, String)| url.starts_with("rtsps://");
    assert!(
        memory.sessions == 2 && memory.requests.iter().all(is_encrypted),
        "{memory:?}"
    );
}

// Faults: C9.
/// Cameras that answer so that a client connects again as soon as it can; some of them stream for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_answers_get_few_connections_and_requests() {
    tape(TapeCodec::H264);
    let stale = Scheme::DigestFor(0);
    let scripts = [
        ("closes", good().at("OPTIONS", CameraFault::Close)),
        (
            "refuses SETUP",
            good().at("SETUP", CameraFault::Refuse(461)),
        ),
        ("streams a moment", good().after(3, CameraFault::Close)),
        ("is stale for ever", with_login(stale)),
        (
            "datagrams, closes",
            CameraScript {
                takes: Takes::Udp,
                ..good().after(3, CameraFault::Close)
            },
        ),
        (
            "redirects",
            CameraScript {
                redirect: Some(Redirect::Always),
                ..good()
            },
        ),
    ];
    let mut running = JoinSet::new();
    for (name, script) in scripts {
        running.spawn(async move { (name, connections_of(serve(&script).await).await) });
    }
    for (name, memory) in running.join_all().await {
        let (times, requests) = (&memory.connected_at, memory.requests.len());
        println!("{name}: {} connections, {requests} requests", times.len());
        for (first, start) in times.iter().enumerate() {
            let soon = |time: &&tokio::time::Instant| {
                time.duration_since(*start) <= Duration::from_secs(4)
            };
            let soon = times[first..].iter().filter(soon).count();
            assert!(soon <= 4, "{name}: {soon} connections within 4 s");
        }
        assert!(requests <= 64 * times.len(), "{name}: {requests} requests");
        assert!(memory.wrong_logins == 0, "{name}");
    }
}

async fn connections_of(server: Server) -> spotter_scripted::rtsp::server::ServerMemory {
    let camera = rtsp(server.url(), Transport::Auto);
    let mut stream = SourceSetup::new(Arc::new(GstOpener::new(camera.clone(), None)), &camera);
    // Without pauses of the session, so that nothing else limits the connections.
    stream.policy.pause_scale = 0.0;
    let watched = CheckedCamera::start_with(stream, &good());
    sleep(Duration::from_secs(15)).await;
    let memory = server.memory();
    watched.stop_undated().await;
    memory
}

// Faults: C15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_second_transport_hides_no_reason_of_the_first() {
    tape(TapeCodec::H264);
    // Agrees to TCP alone and sends nothing.
    let script = || CameraScript {
        takes: Takes::Tcp,
        ..good().after(0, CameraFault::Silence)
    };
    let impatient_auto = |server: &Server| {
        let mut camera = rtsp(server.url(), Transport::Auto);
        impatient(&mut camera);
        camera
    };
    let is_whole = |failure: &Failure| {
        let text = &failure.text;
        let names_both = text.starts_with("no picture within 5s")
            && text.ends_with("camera refused RTP over UDP (RTSP 461)");
        assert!(
            failure.fault == StreamFault::NoFrame && names_both,
            "{failure}"
        );
    };
    let probed = async {
        let server = serve(&script()).await;
        let camera = impatient_auto(&server);
        let probed = probe(&camera, Arc::new(SystemClock::new())).await;
        is_whole(&probed.unwrap_err());
    };
    let watched = async {
        let server = serve(&script()).await;
        let watched = CheckedCamera::start(impatient_auto(&server), &good());
        let twice = |health: &Health| failed(health) && health.attempts == 2;
        let health = watched.until("both transports", twice).await;
        is_whole(&health.failure.unwrap());
        watched.stop().await;
    };
    let both = async {
        let server = serve(&good().at("SETUP", CameraFault::Refuse(461))).await;
        let camera = rtsp(server.url(), Transport::Auto);
        let probed = probe(&camera, Arc::new(SystemClock::new())).await;
        let failure = probed.unwrap_err();
        for transport in ["TCP", "UDP"] {
            let text = format!("camera refused RTP over {transport} (RTSP 461)");
            assert!(failure.text.contains(&text), "{failure}");
        }
    };
    tokio::join!(probed, watched, both);
}
