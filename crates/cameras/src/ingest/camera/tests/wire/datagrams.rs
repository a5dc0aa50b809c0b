//! Packets in datagrams, which may be lost and overtake each other.

use super::*;
use spotter_scripted::rtsp::script::Takes;

fn over(transport: Transport) -> impl FnOnce(&mut CameraConfig) {
    move |camera| rtsp_of(camera).transport = transport
}

fn by_udp(damage: Damage) -> CameraScript {
    CameraScript {
        takes: Takes::Udp,
        damage,
        ..good()
    }
}

// Faults: C16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udp_frames_are_shown_except_those_with_losses() {
    tape(TapeCodec::H264);
    let whole = async {
        let is_trusted = |health: &Health| streams(60)(health) && health.clock.trusted;
        let script = by_udp(Damage::None);
        let (health, _, server) = played("udp", script, over(Transport::Udp), is_trusted).await;
        assert_eq!(health.stream.transport, Some("udp"));
        assert_undamaged(&health, "udp");
        eventually("goodbye", || server.memory().torn_down == 1).await;
        assert_eq!(server.memory().connections, 1);
    };
    let lossy = async {
        let hurt = |health: &Health| {
            let counters = health.counters;
            streams(60)(health) && counters.rtp_lost > 0 && counters.frames_corrupt > 0
        };
        let script = by_udp(Damage::LoseOneOf(20));
        let (_, tally, _) = played("udp, loss", script, over(Transport::Udp), hurt).await;
        assert!(tally.right >= 60);
    };
    let late = async {
        let script = by_udp(Damage::DelayOneOf(20));
        let (health, ..) = played("udp, reorder", script, over(Transport::Udp), streams(150)).await;
        assert_undamaged(&health, "udp, reorder");
    };
    // The camera ends sessions of clients that send no requests; media packets do not keep a session alive.
    let kept = async {
        let script = CameraScript {
            timeout: Duration::from_secs(10),
            ..by_udp(Damage::None)
        };
        let (_, _, server) = played(
            "udp, kept alive",
            script,
            over(Transport::Udp),
            streams(20 * 13),
        )
        .await;
        assert_eq!(server.memory().connections, 1);
    };
    tokio::join!(whole, lossy, late, kept);
}

// Faults: C14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_transport_falls_back_to_udp_and_silence_is_noticed() {
    tape(TapeCodec::H264);
    let only = |takes| CameraScript { takes, ..good() };
    let both = async {
        let script = only(Takes::Both);
        let (health, _, server) = played("both", script, over(Transport::Auto), streams(20)).await;
        assert_eq!(health.stream.transport, Some("tcp"));
        assert_eq!(server.memory().connections, 1);
    };
    let remembered = async {
        let server = Server::start(move |_| only(Takes::Udp)).await;
        let watched = CheckedCamera::start(rtsp(server.url(), Transport::Auto), &only(Takes::Udp));
        let health = watched.failure().await;
        let text = health.failure.unwrap().text;
        let message = "camera refused RTP over TCP (RTSP 461); retrying over UDP";
        assert!(text.ends_with(message), "{text}");
        let health = watched.frames(5).await;
        watched.handle.reconnect();
        let again = |now: &Health| now.reconnects == 1 && streams(health.frames + 5)(now);
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
        assert_eq!(refused.fault, StreamFault::Unsupported);
        let message = "camera refused RTP over TCP (RTSP 461); set transport = \"auto\"";
        assert!(refused.text.ends_with(message), "{refused}");
    };
    let silent = async {
        let script = by_udp(Damage::None).after(30, CameraFault::Silence);
        let server = serve(&script).await;
        let mut camera = rtsp(server.url(), Transport::Udp);
        impatient(&mut camera);
        let watched = CheckedCamera::start(camera, &script);
        let health = watched.within(STALL + SLACK, "silence", failed).await;
        assert_eq!(health.failure.as_ref().unwrap().fault, StreamFault::Stalled);
        watched.comes_back(&health, "after silence").await;
        watched.stop().await;
    };
    tokio::join!(both, remembered, probed, silent);
}
