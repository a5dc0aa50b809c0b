//! Cameras that refuse the connection or the login.

use super::*;

const REQUESTS: [&str; 4] = ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"];

fn login(scheme: Scheme, password: &'static str) -> CameraScript {
    CameraScript {
        login: Some(Login {
            scheme,
            user: "viewer",
            password,
        }),
        ..good()
    }
}

// Faults: C4, C13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_has_its_reason_and_pause_then_recovers() {
    tape(TapeCodec::H264);
    let mut cases = Vec::new();
    for request in REQUESTS {
        for (status, fault) in [
            (403, StreamFault::AuthFailed),
            (404, StreamFault::NotFound),
            (453, StreamFault::TooManySessions),
            (503, StreamFault::TooManySessions),
            (461, StreamFault::Unsupported),
            (500, StreamFault::Protocol),
        ] {
            for deed in [
                CameraFault::Refuse(status),
                CameraFault::RefuseAndClose(status),
            ] {
                let name = format!("{deed:?} at {request}");
                cases.push(Case::new(name, good().at(request, deed), fault));
            }
        }
        for (deed, fault) in [
            (CameraFault::Silence, StreamFault::NoFrame),
            (CameraFault::Close, StreamFault::Disconnected),
            (CameraFault::Reset, StreamFault::Disconnected),
            (CameraFault::Babble, StreamFault::Protocol),
        ] {
            let script = good().at(request, deed);
            cases.push(Case::new(format!("{deed:?} at {request}"), script, fault));
        }
    }
    // rtspsrc goes on without OPTIONS, so that is not the reason.
    let script = good()
        .at("OPTIONS", CameraFault::Refuse(501))
        .at("DESCRIBE", CameraFault::Close);
    let name = "no OPTIONS, closed at DESCRIBE".to_owned();
    cases.push(Case::new(name, script, StreamFault::Disconnected));
    for scheme in [Scheme::Basic, Scheme::Digest, Scheme::DigestSha256] {
        let wrong = login(scheme, "another");
        let closed = wrong
            .clone()
            .at("OPTIONS", CameraFault::RefuseAndClose(401));
        for (name, script) in [("wrong login", wrong), ("wrong login, closed", closed)] {
            let name = format!("{name}, {scheme:?}");
            cases.push(Case::new(name, script, StreamFault::AuthFailed));
        }
    }
    side_by_side(cases).await;
}

// Faults: C2, C3, C6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_login_is_tried_once_per_connection() {
    const ODD: &str = "p@ss/w:rd%41 #?ü";
    let mut running = JoinSet::new();
    for scheme in [
        Scheme::Basic,
        Scheme::Digest,
        Scheme::DigestSha256,
        Scheme::DigestFor(1),
        Scheme::DigestFor(3),
    ] {
        for password in [CANARY, ODD] {
            running.spawn(is_accepted_at_once(scheme, password));
        }
    }
    running.join_all().await;
    // Only a reconnect command of the operator makes the client try again sooner than after half a minute.
    let server = Server::start(|_| login(Scheme::Digest, "another")).await;
    let watched = CheckedCamera::start(camera_of(&server), &good());
    for tries in 1..4 {
        let refused = || {
            let phase = watched.health().phase;
            server.memory().wrong_logins == tries && phase == Phase::AuthFailed
        };
        eventually("a refused login", refused).await;
        assert_eq!(server.memory().connections, tries);
        watched.handle.reconnect();
    }
    watched.stop().await;
}

async fn is_accepted_at_once(scheme: Scheme, password: &'static str) {
    let script = login(scheme, password);
    let server = serve(&script).await;
    let mut camera = camera_of(&server);
    rtsp_of(&mut camera).password = Some(Secret::new(password.into()));
    let watched = CheckedCamera::start(camera, &script);
    watched.frames(5).await;
    watched.stop().await;
    eventually("goodbye", || server.memory().torn_down == 1).await;
    let memory = server.memory();
    let logins = (memory.connections, memory.wrong_logins);
    assert_eq!(logins, (1, 0), "{scheme:?} {memory:?}");
    let sessions = (memory.sessions, memory.torn_down);
    assert_eq!(sessions, (1, 1), "{scheme:?} {memory:?}");
    let mut urls = memory.requests.iter().map(|(_, _, url)| url);
    assert!(urls.all(|url| !url.contains("viewer")));
}

// Faults: C1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_port_is_retried_until_a_camera_listens() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let watched =
        CheckedCamera::start(rtsp(format!("rtsp://{address}/x"), Transport::Tcp), &good());
    let health = watched.failure().await;
    assert_eq!(
        health.failure.as_ref().unwrap().fault,
        StreamFault::Unreachable
    );
    let server = Server::start_at(address, |_| good()).await;
    watched.comes_back(&health, "a listener").await;
    watched.stop().await;
    drop(server);
}
