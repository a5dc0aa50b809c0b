//! Streams that the camera, the network or the client ends.

use super::*;

/// The systemd unit's stop timeout; fifty stops at once, on a busy machine, must end in that time. One alone takes less than
/// five seconds: the rest of a read that has begun, and half a second for TEARDOWN.
const STOP_LIMIT: Duration = Duration::from_secs(20);

// Faults: C17, C18, C19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stream_end_has_its_reason_and_the_stream_reconnects() {
    tape(TapeCodec::H264);
    let mut cases = Vec::new();
    for (deed, fault) in [
        (CameraFault::Silence, StreamFault::Stalled),
        (CameraFault::Close, StreamFault::Disconnected),
        (CameraFault::Reset, StreamFault::Disconnected),
        (CameraFault::Babble, StreamFault::Protocol),
    ] {
        // Before the first packet nothing can stall.
        let at_once = match fault {
            StreamFault::Stalled => StreamFault::NoFrame,
            other => other,
        };
        for (place, script, fault) in [
            ("after PLAY", good().after(0, deed), at_once),
            ("in a group", good().after(15, deed), fault),
            ("in a fragment", good().within(15, deed), fault),
        ] {
            cases.push(Case::new(format!("{deed:?} {place}"), script, fault));
        }
    }
    side_by_side(cases).await;
}

// Faults: C21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_session_end_sends_one_teardown() {
    let silent = || good().after(15, CameraFault::Silence);
    let playing = async |script: fn() -> CameraScript, stall| {
        let server = Server::start(move |_| script()).await;
        let mut camera = camera_of(&server);
        camera.stall = stall;
        let watched = CheckedCamera::start(camera, &good());
        watched.frames(5).await;
        (server, watched)
    };
    let disabled = async {
        let (server, watched) = playing(good, LIMIT).await;
        watched.handle.set_enabled(false);
        let off = |health: &Health| health.phase == Phase::Disabled;
        watched.until("disabled", off).await;
        gone(&server, 1).await;
        watched.handle.set_enabled(true);
        watched.frames(watched.health().frames + 1).await;
        watched.stop().await;
        gone(&server, 2).await;
    };
    let reconnected = async {
        let (server, watched) = playing(good, LIMIT).await;
        watched.handle.reconnect();
        let again = |health: &Health| health.reconnects_1h == 1;
        watched.until("a new connection", again).await;
        watched.stop().await;
        gone(&server, 2).await;
    };
    let dropped = async {
        let (server, watched) = playing(good, LIMIT).await;
        drop(watched.handle);
        gone(&server, 1).await;
    };
    let stalled = async {
        let (server, watched) = playing(silent, STALL).await;
        watched.failure().await;
        watched.handle.set_enabled(false);
        let heard = || server.memory().count("TEARDOWN") == 1 && server.memory().open == 0;
        eventually("a goodbye to who is silent", heard).await;
        watched.stop().await;
    };
    tokio::join!(disabled, reconnected, dropped, stalled);
}

/// The client ended each session with one TEARDOWN, and all connections are closed.
async fn gone(server: &Server, sessions: usize) {
    let over = || {
        let memory = server.memory();
        memory.torn_down == sessions && memory.open == 0
    };
    eventually("goodbye", over).await;
    let memory = server.memory();
    let counts = (memory.sessions, memory.count("TEARDOWN"));
    assert_eq!(counts, (sessions, sessions), "{memory:?}");
}

// Faults: C12, C20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_kept_alive_for_each_answer_of_the_camera() {
    let timeout_s = 4;
    let mut running = JoinSet::new();
    for deed in [
        None,
        Some(CameraFault::Refuse(451)),
        Some(CameraFault::Refuse(501)),
        Some(CameraFault::Refuse(404)),
        Some(CameraFault::Ignore),
    ] {
        running.spawn(async move {
            let script = CameraScript {
                timeout: Duration::from_secs(timeout_s),
                deeds: Vec::from_iter(deed.map(|deed| ("GET_PARAMETER", deed))),
                ..good()
            };
            let server = serve(&script).await;
            let camera = camera_of(&server);
            let watched = CheckedCamera::start(camera, &script);
            watched.frames(20 * 3 * timeout_s).await;
            let (health, memory) = (watched.health(), server.memory());
            assert_undamaged(&health, &format!("{deed:?}"));
            let kept = memory.connections == 1 && memory.count("GET_PARAMETER") > 0;
            assert!(kept, "{deed:?} {memory:?}");
            watched.stop().await;
        });
    }
    running.join_all().await;
}

// Faults: C22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn camera_stops_in_time_in_each_phase() {
    let mut scripts = vec![
        ("playing".to_owned(), good()),
        (
            "silent in a fragment".into(),
            good().within(3, CameraFault::Silence),
        ),
        ("closed".into(), good().after(3, CameraFault::Close)),
    ];
    let mut at = |request: &'static str, fault: CameraFault| {
        scripts.push((format!("{fault:?} at {request}"), good().at(request, fault)));
    };
    for request in ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"] {
        at(request, CameraFault::Silence);
        at(request, CameraFault::Refuse(500));
    }
    at("TEARDOWN", CameraFault::Silence);
    at("TEARDOWN", CameraFault::Reset);
    let mut running = JoinSet::new();
    for (name, script) in scripts {
        for after_ms in [0, 30, 100, 1000] {
            let (name, script) = (name.clone(), script.clone());
            running.spawn(async move {
                let server = serve(&script).await;
                let mut camera = camera_of(&server);
                camera.stall = STALL;
                let watched = CheckedCamera::start(camera, &script);
                // The test stops the camera in every state that it may have by then.
                sleep(Duration::from_millis(after_ms)).await;
                let clock = SystemClock::new();
                let began = clock.now();
                assert!(watched.handle.stop(STOP_LIMIT).await, "{name} {after_ms}");
                let took = clock.now().since(began);
                eventually(&name, || server.memory().open == 0).await;
                (took, name)
            });
        }
    }
    let slowest = running.join_all().await.into_iter().max();
    println!("slowest stop: {slowest:?}");
}
