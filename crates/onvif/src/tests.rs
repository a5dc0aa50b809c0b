//! Against a scripted camera on loopback.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    DiscoveredCamera, OnvifCamera, OnvifError, OnvifLogin, OnvifMessage, OnvifSelector,
    OnvifStream, OnvifUpdate, PropertyOperation, describe_camera, device_address, discover,
    watch::{OnvifTiming, watch_with},
};
use spotter_config::Secret;
use spotter_core::{Backoff, SystemClock};
use spotter_scripted::{
    onvif::{
        OnvifLoginScheme, OnvifLoginScript, OnvifScript, PullFault, ReportedTime,
        ScriptedOnvifCamera,
    },
    tls::{certificates, tls_server},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Pauses of milliseconds.
fn quick() -> OnvifTiming {
    let ms = Duration::from_millis;
    let quick_pauses = Backoff {
        first: ms(5),
        longest: ms(20),
    };
    OnvifTiming {
        empty_gap: ms(5),
        full_gap: ms(1),
        answer_within: PATIENCE,
        pauses: quick_pauses,
        login_pauses: quick_pauses,
        full_pauses: quick_pauses,
        ..OnvifTiming::default()
    }
}

fn camera(scripted: &ScriptedOnvifCamera) -> OnvifCamera {
    OnvifCamera {
        address: device_address(&scripted.address()).unwrap(),
        login: None,
        is_insecure: false,
    }
}

fn with_login(camera: OnvifCamera, password: &str) -> OnvifCamera {
    let login = OnvifLogin {
        user: "viewer".into(),
        password: Secret::new(password.into()),
    };
    OnvifCamera {
        login: Some(login),
        ..camera
    }
}

fn demanding(scheme: OnvifLoginScheme) -> OnvifScript {
    let login = OnvifLoginScript {
        scheme,
        user: "viewer",
        password: "pa<ss&\"w,o=rd",
    };
    OnvifScript {
        login: Some(login),
        ..OnvifScript::default()
    }
}

/// A camera whose events are watched.
struct Watched {
    updates: mpsc::Receiver<OnvifUpdate>,
    task: JoinHandle<()>,
}

impl Watched {
    fn start(camera: OnvifCamera, timing: OnvifTiming) -> Self {
        let (sender, updates) = mpsc::channel(16);
        let clock = Arc::new(SystemClock::new());
        Self {
            updates,
            task: tokio::spawn(watch_with(camera, clock, timing, sender)),
        }
    }

    async fn next(&mut self) -> OnvifUpdate {
        let next = timeout(PATIENCE, self.updates.recv()).await;
        next.expect("an update").expect("the task runs")
    }

    async fn connected(&mut self) {
        assert_eq!(self.next().await, OnvifUpdate::Connected);
    }

    async fn message(&mut self) -> OnvifMessage {
        match self.next().await {
            OnvifUpdate::Message(message) => message,
            other => panic!("{other:?}"),
        }
    }

    /// The state of motion in the next message.
    async fn motion(&mut self) -> Option<bool> {
        let message = self.message().await;
        let motion = OnvifSelector::new("motion").unwrap();
        assert!(motion.accepts(&message), "{message:?}");
        motion.state(&message)
    }

    async fn lost(&mut self) -> String {
        match self.next().await {
            OnvifUpdate::Lost { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the watch and waits for it.
    async fn end(self) {
        drop(self.updates);
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

async fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 5 {
        if is_done() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("{PATIENCE:?} went by without {what}")
}

/// Events of a camera arrive, from the state at the start on.
async fn receives(scripted: &ScriptedOnvifCamera, camera: OnvifCamera) {
    scripted.motion(true);
    let mut watched = Watched::start(camera, quick());
    watched.connected().await;
    if scripted.script().has_synchronization {
        let first = watched.message().await;
        assert_eq!(first.operation, PropertyOperation::Initialized);
        assert_eq!(first.is_active, Some(true));
    }
    for is_active in [false, true] {
        scripted.motion(is_active);
        assert_eq!(watched.motion().await, Some(is_active));
    }
    watched.end().await;
    assert_eq!(scripted.complaints(), [""; 0]);
    assert_eq!(scripted.subscriptions(), 0, "it was ended");
}

// Faults: O1.
#[tokio::test]
async fn events_arrive_from_odd_cameras() {
    let oddities: [fn(&mut OnvifScript); 6] = [
        |_| {},
        |script| script.is_oddly_prefixed = true,
        |script| script.has_parameters = true,
        |script| script.named_host = Some("10.9.9.9:8000"),
        |script| script.clock_ahead_s = -3600,
        |script| {
            script.has_services = false;
            script.has_synchronization = false;
        },
    ];
    for odd in oddities {
        let mut script = OnvifScript::default();
        odd(&mut script);
        let scripted = ScriptedOnvifCamera::start(script);
        receives(&scripted, camera(&scripted)).await;
        assert_eq!(scripted.count("Unsubscribe"), 1);
    }
}

// Faults: O2, O3.
#[tokio::test]
async fn login_is_what_the_camera_demands_at_any_time() {
    use OnvifLoginScheme::{Md5, Sha256, UsernameToken};
    use ReportedTime::{LocalAsUtc, LocalOnly, Utc};
    let years_ago_s = -46 * 365 * 86_400;
    for (scheme, reported_time, clock_ahead_s, wrong_logins) in [
        (Md5(100), Utc, 0, 0),
        (Sha256(100), Utc, 0, 0),
        // Each nonce is stale after two requests.
        (Md5(2), Utc, 0, 0),
        (UsernameToken, Utc, 3600, 0),
        (UsernameToken, Utc, -3600, 0),
        // Two clients learn of the wrong time: that of the watch, and that of its end.
        (UsernameToken, LocalAsUtc(36_000), 0, 2),
        (UsernameToken, LocalAsUtc(-18_000), 0, 2),
        (UsernameToken, LocalOnly, 0, 0),
        (UsernameToken, LocalOnly, years_ago_s, 0),
    ] {
        let scripted = ScriptedOnvifCamera::start(OnvifScript {
            clock_ahead_s,
            reported_time,
            ..demanding(scheme)
        });
        let camera = with_login(camera(&scripted), "pa<ss&\"w,o=rd");
        receives(&scripted, camera).await;
        let case = (scheme, reported_time, clock_ahead_s);
        assert_eq!(scripted.wrong_logins(), wrong_logins, "{case:?}");
    }
}

// Faults: O7.
#[tokio::test]
async fn missing_or_wrong_login_is_lost_with_advice() {
    for scheme in [OnvifLoginScheme::Md5(9), OnvifLoginScheme::UsernameToken] {
        let scripted = ScriptedOnvifCamera::start(demanding(scheme));
        let mut watched = Watched::start(camera(&scripted), quick());
        assert!(watched.lost().await.contains("demands a login"));
        assert_eq!(scripted.wrong_logins(), 0);
        let wrong = with_login(camera(&scripted), "canary");
        let timing = OnvifTiming {
            login_pauses: Backoff {
                first: PATIENCE,
                longest: PATIENCE,
            },
            ..quick()
        };
        let mut watched = Watched::start(wrong, timing);
        let reason = watched.lost().await;
        assert!(reason.contains("rejected the login"), "{reason}");
        assert!(!reason.contains("canary"), "{reason}");
        assert_eq!(scripted.wrong_logins(), 1, "one attempt before the pause");
    }
    let scripted = ScriptedOnvifCamera::start(demanding(OnvifLoginScheme::Basic));
    let mut watched = Watched::start(with_login(camera(&scripted), "canary"), quick());
    assert!(watched.lost().await.contains("(Basic)"));
}

/// A subscription of two seconds goes on, with `Renew` or without.
async fn goes_on(has_renew: bool) {
    let scripted = ScriptedOnvifCamera::start(OnvifScript {
        has_renew,
        lasts: Duration::from_secs(2),
        max_subscriptions: 1,
        ..OnvifScript::default()
    });
    let mut watched = Watched::start(camera(&scripted), quick());
    watched.connected().await;
    let renewal = || match has_renew {
        true => scripted.count("Renew") > 0,
        false => scripted.count("CreatePullPointSubscription") > 1,
    };
    until("the renewal", renewal).await;
    let pulls = || {
        scripted
            .requests()
            .last()
            .is_some_and(|last| last == "PullMessages")
    };
    until("a pull", pulls).await;
    scripted.motion(true);
    assert_eq!(watched.motion().await, Some(true), "it was never lost");
    assert_eq!(scripted.subscriptions(), 1);
    watched.end().await;
}

// Faults: O8.
#[tokio::test]
async fn subscription_is_renewed_or_made_again() {
    tokio::join!(goes_on(true), goes_on(false));
}

// Faults: O9.
#[tokio::test]
async fn camera_that_forgets_gets_a_new_subscription_at_once() {
    let scripted = ScriptedOnvifCamera::start(OnvifScript::default());
    let mut watched = Watched::start(camera(&scripted), quick());
    watched.connected().await;
    for is_active in [true, false] {
        scripted.forget_subscriptions();
        until("another subscription", || scripted.subscriptions() == 1).await;
        scripted.motion(is_active);
        // The state at the start of the subscription may come before.
        while watched.motion().await != Some(is_active) {}
    }
    watched.end().await;
}

// Faults: O4, O10.
#[tokio::test]
async fn broken_pulls_are_repeated_and_then_reported() {
    let scripted = ScriptedOnvifCamera::start(OnvifScript::default());
    let mut watched = Watched::start(camera(&scripted), quick());
    watched.connected().await;
    let faults = [
        PullFault::Close,
        PullFault::Babble,
        PullFault::Nested(20_000),
        PullFault::Status(503),
    ];
    for fault in faults {
        scripted.will([fault]);
        scripted.motion(true);
        assert_eq!(watched.motion().await, Some(true), "{fault:?} once");
        scripted.will([fault, fault]);
        let reason = watched.lost().await;
        assert!(reason.starts_with("127.0.0.1:"), "{reason}");
        scripted.motion(false);
        watched.connected().await;
        assert_eq!(watched.motion().await, Some(false));
    }
    assert_eq!(
        scripted.count("CreatePullPointSubscription"),
        1,
        "it is still there"
    );
    watched.end().await;
}

// Faults: O11.
#[tokio::test]
async fn camera_that_answers_at_once_is_not_flooded() {
    let scripted = ScriptedOnvifCamera::start(OnvifScript {
        answers_at_once: true,
        ..OnvifScript::default()
    });
    let timing = OnvifTiming {
        empty_gap: Duration::from_millis(200),
        ..quick()
    };
    let mut watched = Watched::start(camera(&scripted), timing);
    watched.connected().await;
    scripted.motion(true);
    assert_eq!(watched.motion().await, Some(true));
    assert!(
        scripted.count("PullMessages") <= 3,
        "{:?}",
        scripted.requests()
    );
    watched.end().await;
}

// Faults: O12.
#[tokio::test]
async fn camera_that_does_not_serve_is_lost_until_it_does() {
    type Fault = fn(&mut OnvifScript);
    let full: Fault = |script| script.max_subscriptions = 0;
    let without_events: Fault = |script| script.has_events = false;
    for (fault, reason) in [
        (full, "MaximumNumberOfSubscriptions"),
        (without_events, "has no event service"),
    ] {
        let scripted = ScriptedOnvifCamera::start(OnvifScript::default());
        scripted.set(fault);
        let mut watched = Watched::start(camera(&scripted), quick());
        let lost = watched.lost().await;
        assert!(lost.contains(reason), "{lost}");
        scripted.set(|script| *script = OnvifScript::default());
        watched.connected().await;
        watched.end().await;
    }
    let absent = OnvifCamera {
        address: device_address("http://127.0.0.1:1").unwrap(),
        login: None,
        is_insecure: false,
    };
    let lost = Watched::start(absent, quick()).lost().await;
    assert!(lost.contains("refused"), "{lost}");
}

// Faults: O5.
#[tokio::test]
async fn call_that_does_not_end_is_lost_until_it_does() {
    let scripted = ScriptedOnvifCamera::start(OnvifScript::default());
    let timing = OnvifTiming {
        pull: Duration::from_millis(100),
        answer_within: Duration::from_secs(2),
        ..quick()
    };
    let mut watched = Watched::start(camera(&scripted), timing);
    watched.connected().await;
    scripted.set(|script| script.delay = Duration::from_secs(5));
    let reason = watched.lost().await;
    assert!(reason.contains("did not answer within 2.1s"), "{reason}");
    scripted.set(|script| script.delay = Duration::ZERO);
    watched.connected().await;
    watched.end().await;
}

// Faults: O14.
#[tokio::test]
async fn certificate_of_its_own_is_accepted_by_the_setting_alone() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let script = demanding(OnvifLoginScheme::Md5(100));
    let scripted = ScriptedOnvifCamera::start_with_tls(script, tls_server(directory.path()));
    let checked = with_login(camera(&scripted), "pa<ss&\"w,o=rd");
    let mut watched = Watched::start(checked.clone(), quick());
    let reason = watched.lost().await;
    assert!(
        reason.contains("certificate") && reason.contains("insecure"),
        "{reason}"
    );
    assert_eq!(scripted.requests(), [""; 0]);
    let insecure = OnvifCamera {
        is_insecure: true,
        ..checked
    };
    // The camera names its services with http.
    scripted.set(|script| script.named_host = Some("127.0.0.1"));
    receives(&scripted, insecure).await;
}

#[tokio::test]
async fn camera_is_found_once_with_its_usable_address() {
    let scripted = ScriptedOnvifCamera::start(OnvifScript::default());
    let interfaces = [[127, 0, 0, 1], [127, 0, 0, 1], [192, 0, 2, 1]].map(Into::into);
    let wait = Duration::from_millis(200);
    let found = discover(&interfaces, wait, scripted.be_discoverable()).await;
    assert_eq!(found.cameras.len(), 1, "{found:?}");
    let camera = &found.cameras[0];
    assert_eq!(camera.address.as_str(), scripted.address());
    assert_eq!(camera.name.as_deref(), Some("Front door"));
    assert_eq!(camera.model.as_deref(), Some("SC-4"));
    let (interface, _) = &found.failures[0];
    assert_eq!(
        interface.to_string(),
        "192.0.2.1",
        "it is no address of this machine"
    );
}

fn described(scripted: &ScriptedOnvifCamera) -> Result<Vec<String>, OnvifError> {
    let clock = Arc::new(SystemClock::new());
    let camera = camera(scripted);
    let mut found = DiscoveredCamera::at(camera.address.clone());
    describe_camera(&mut found, &camera, clock, PATIENCE)?;
    assert_eq!(found.manufacturer.as_deref(), Some("Scripted & Sons"));
    let streams = found.streams.iter().flatten();
    let shown = streams.map(|OnvifStream { profile, url }| {
        let (encoding, width) = (profile.encoding.as_deref(), profile.width);
        let (encoding, width) = (encoding.unwrap(), width.unwrap());
        format!("{} {encoding} {width} {url}", profile.name)
    });
    Ok(shown.collect())
}

#[test]
fn streams_come_from_the_newest_media_service() {
    let scripted = ScriptedOnvifCamera::start(OnvifScript {
        named_host: Some("10.9.9.9"),
        ..OnvifScript::default()
    });
    let streams = described(&scripted).unwrap();
    assert_eq!(
        streams[0],
        "main H265 2560 rtsp://127.0.0.1:554/main?a=1&b=2"
    );
    assert_eq!(streams.len(), 3);
    scripted.set(|script| script.has_media2 = false);
    let streams = described(&scripted).unwrap();
    assert_eq!(streams[1], "sub H264 640 rtsp://127.0.0.1:554/sub?a=1&b=2");
    assert!(streams[0].starts_with("main H264"));
}
