//! Packets in datagrams, which may be lost and overtake each other.

use super::*;
use spotter_scripted::rtsp::conversation::Takes;

/// Streams by `transport` until the health is as wanted; every frame is right.
async fn watched(
    name: &str,
    script: CameraScript,
    transport: Transport,
    wanted: impl Fn(&Health) -> bool,
) -> (Health, Tally, Server) {
    let server = serve(&script).await;
    let watched = CheckedCamera::start(rtsp(server.url(), transport), &script);
    let health = watched.until(name, wanted).await;
    let tally = watched.stop().await;
    println!("{name}: {} right, {health:?}", tally.right);
    (health, tally, server)
}

fn shows(health: &Health, frames: u64) -> bool {
    health.phase == Phase::Streaming && health.frames >= frames
}

fn by_udp(damage: Damage) -> CameraScript {
    CameraScript {
        takes: Takes::Udp,
        damage,
        ..good()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udp_frames_are_shown_except_those_with_losses() {
    tape(TapeCodec::H264);
    let whole = async {
        let is_trusted = |health: &Health| shows(health, 60) && health.clock.trusted;
        let (health, _, server) =
            watched("udp", by_udp(Damage::None), Transport::Udp, is_trusted).await;
        assert_eq!(health.stream.transport, Some("udp"));
        assert_undamaged(&health, "udp");
        eventually("goodbye", || server.memory().torn_down == 1).await;
        assert_eq!(server.memory().connections, 1);
    };
    let lossy = async {
        let hurt = |health: &Health| {
            shows(health, 60) && health.counters.rtp_lost > 0 && health.counters.frames_corrupt > 0
        };
        let damage = Damage::LoseOneOf(20);
        let (health, tally, _) = watched("udp, loss", by_udp(damage), Transport::Udp, hurt).await;
        assert_eq!(health.losses, 0);
        assert!(tally.right >= 60);
    };
    let late = async {
        let damage = Damage::DelayOneOf(20);
        let enough = |health: &Health| shows(health, 150);
        let (health, ..) = watched("udp, reorder", by_udp(damage), Transport::Udp, enough).await;
        assert_undamaged(&health, "udp, reorder");
    };
    // The camera ends sessions of clients that send no requests; media packets do not keep a session alive.
    let kept = async {
        let script = CameraScript {
            timeout: Duration::from_secs(10),
            ..by_udp(Damage::None)
        };
        let longer = |health: &Health| shows(health, 20 * 13);
        let (health, _, server) = watched("udp, kept alive", script, Transport::Udp, longer).await;
        assert_eq!((health.losses, server.memory().connections), (0, 1));
    };
    tokio::join!(whole, lossy, late, kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_transport_falls_back_to_udp_and_silence_is_noticed() {
    tape(TapeCodec::H264);
    let only = |takes| CameraScript { takes, ..good() };
    let auto = async |name: &str, takes, transport: &str, tries: usize| {
        let is_there = |health: &Health| shows(health, 20);
        let (health, _, server) = watched(name, only(takes), Transport::Auto, is_there).await;
        assert_eq!(health.stream.transport, Some(transport), "{name}");
        assert_eq!(server.memory().connections, tries, "{name}");
    };
    let refused = async {
        let server = Server::start(move |_| only(Takes::Tcp)).await;
        let watched = CheckedCamera::start(rtsp(server.url(), Transport::Udp), &good());
        let health = watched.failure().await;
        assert_eq!(health.failure.unwrap().fault, Fault::Unsupported);
        watched.stop().await;
    };
    let remembered = async {
        let server = Server::start(move |_| only(Takes::Udp)).await;
        let watched = CheckedCamera::start(rtsp(server.url(), Transport::Auto), &only(Takes::Udp));
        let health = watched.failure().await;
        let text = health.failure.unwrap().text;
        let message = "camera refused RTP over TCP (RTSP 461); retrying over UDP";
        assert!(text.ends_with(message), "{text}");
        let health = watched.frames(5).await;
        watched.handle.reconnect().await;
        let again = |now: &Health| now.reconnects == 1 && shows(now, health.frames + 5);
        let health = watched.until("a new connection", again).await;
        assert_eq!(health.stream.transport, Some("udp"));
        watched.stop().await;
        let memory = server.memory();
        assert_eq!((memory.connections, memory.sessions), (3, 2), "{memory:?}");
    };
    let probed = async {
        let server = Server::start(move |_| only(Takes::Udp)).await;
        let camera = rtsp(server.url(), Transport::Auto);
        let report = probe(&camera, Arc::new(SystemClock::new())).await;
        assert_eq!(report.unwrap().stream.transport, Some("udp"));
        let camera = rtsp(server.url(), Transport::Tcp);
        let refused = probe(&camera, Arc::new(SystemClock::new())).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.fault, Fault::Unsupported);
        let message = "camera refused RTP over TCP (RTSP 461); set transport = \"auto\"";
        assert!(refused.text.ends_with(message), "{refused}");
    };
    let silent = async {
        let script = by_udp(Damage::None).after(30, CameraFault::Silence);
        let server = serve(&script).await;
        let mut camera = rtsp(server.url(), Transport::Udp);
        (camera.stall, camera.first_frame) = (STALL, FIRST_FRAME);
        let watched = CheckedCamera::start(camera, &script);
        let health = watched.within(STALL + SLACK, "silence", failed).await;
        assert_eq!(health.failure.as_ref().unwrap().fault, Fault::Stalled);
        watched.comes_back(&health, "after silence").await;
        watched.stop().await;
    };
    tokio::join!(
        auto("auto, datagrams alone", Takes::Udp, "udp", 2),
        auto("auto, both", Takes::Both, "tcp", 1),
        refused,
        remembered,
        probed,
        silent
    );
}
