//! Against a real broker (mosquitto as a child process on loopback) and against a scripted one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use rumqttc::{PublishOptions, QoS};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
    time::timeout,
};

use super::{
    BrokerState, ConnectionTiming,
    rig::{Listener, Mosquitto, PATIENCE},
};
use crate::{
    CameraHealth, ConfigReport, DaemonInfo, Identity, Info, Publisher, Update,
    detection::tests::detection, publisher::PublisherOptions,
};
use spotter_core::{
    CameraId, Clock, NodeId, PromptId, SystemClock,
    config::{MqttConfig, MqttTls, Secret},
    testing::mqtt,
};

mod again;
mod delivery_audit;
mod heard;
mod limits;
mod outages;
mod scripted;
mod second;
mod secrets;

fn identity() -> Identity {
    Identity::of_this_machine(NodeId::new("edge1").unwrap())
}

fn start(mqtt: &MqttConfig) -> (Publisher, JoinHandle<()>) {
    Publisher::start(mqtt, None, &identity(), Arc::new(SystemClock::new())).unwrap()
}

/// A publisher that makes the same decisions with shorter pauses and limits.
fn start_quick(mqtt: &MqttConfig, clock: Arc<dyn Clock>) -> (Publisher, JoinHandle<()>) {
    let options = PublisherOptions {
        mqtt,
        state_dir: None,
        identity: &identity(),
        clock,
        timing: ConnectionTiming::quick(),
    };
    Publisher::start_with(options).unwrap()
}

async fn reach(publisher: &Publisher, wanted: impl FnMut(&BrokerState) -> bool) -> BrokerState {
    let mut state = publisher.state();
    let reached = timeout(PATIENCE, state.wait_for(wanted)).await;
    match reached {
        Ok(state) => state.unwrap().clone(),
        Err(_) => panic!("the state is {:?}", publisher.state().borrow()),
    }
}

/// Waits until the publisher reports that the broker is unavailable for the reason `why`.
async fn away(publisher: &Publisher, why: &str) {
    reach(
        publisher,
        |state| matches!(state, BrokerState::Backoff { reason, .. } if reason.contains(why)),
    )
    .await;
}

fn ids() -> (CameraId, PromptId) {
    (
        CameraId::new("gate").unwrap(),
        PromptId::new("person").unwrap(),
    )
}

pub(crate) fn info() -> Info {
    Info {
        daemon: DaemonInfo {
            name: "spotter".into(),
            version: "0.1.0".into(),
        },
        boot: "b7c1".into(),
        started_ms: 0,
        host: "edge1".into(),
        gpus: vec![],
        model: None,
        cams: vec![],
        config_hash: "ab".into(),
        overrides: 0,
        features: vec![],
    }
}

fn publish_states(publisher: &Publisher) {
    let (camera, prompt) = ids();
    let at = spotter_core::WallTime::from_unix_millis(0);
    publisher.publish(Update::Info(info()));
    publisher.publish(Update::Config(ConfigReport::new("ab".into(), at, vec![])));
    publisher.publish(Update::CameraStatus {
        camera: camera.clone(),
        online: true,
    });
    publisher.publish(Update::Health {
        camera: camera.clone(),
        health: Box::new(CameraHealth::default()),
    });
    publisher.publish(Update::State {
        camera: camera.clone(),
        prompt: prompt.clone(),
        state: spotter_core::PromptState::Presence(spotter_core::Presence::On),
    });
    publisher.publish(Update::State {
        camera,
        prompt,
        state: spotter_core::PromptState::Count(Some(2)),
    });
}

#[tokio::test]
async fn states_are_retained_and_a_clean_stop_publishes_offline() {
    let broker = Mosquitto::open();
    let mut live = Listener::on(broker.port, "spotter/#").await;
    let (publisher, task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    // The test has one thread and the connection's task has not run yet, so it sends all these states after it connects.
    let mut order = Vec::new();
    while order.last().is_none_or(|topic| topic != "status") {
        let heard = live.next().await;
        order.push(heard.topic.trim_start_matches("spotter/edge1/").to_owned());
    }
    let expected = [
        "info",
        "config",
        "cam/gate/status",
        "cam/gate/health",
        "cam/gate/present/person",
        "cam/gate/count/person",
        "status",
    ];
    order[1..6].sort_unstable();
    let mut sorted = expected;
    sorted[1..6].sort_unstable();
    assert_eq!(order, sorted);
    let (camera, prompt) = ids();
    publisher.publish(Update::State {
        camera,
        prompt,
        state: spotter_core::PromptState::Count(Some(3)),
    });
    let heard = live.until("cam/gate/count/person", "3").await;
    assert_eq!(
        (heard.qos, heard.retain),
        (QoS::AtLeastOnce, false),
        "a live message has no retain flag"
    );

    let mut later = Listener::on(broker.port, "spotter/edge1/cam/#").await;
    let heard = later.until("cam/gate/count/person", "3").await;
    assert!(heard.retain && heard.qos == QoS::AtLeastOnce);
    assert_eq!(heard.content_type, None);

    publisher.publish(Update::Detection(Box::new(detection("gate"))));
    let found = loop {
        let heard = live.next().await;
        if heard.topic.ends_with("det/person") {
            break heard;
        }
    };
    assert_eq!((found.qos, found.retain), (QoS::AtMostOnce, false));
    assert!(found.expiry_s.is_some_and(|seconds| seconds <= 5));
    assert_eq!(found.content_type.as_deref(), Some("application/json"));

    publisher.stop();
    live.until("edge1/status", "offline").await;
    timeout(PATIENCE, task).await.unwrap().unwrap();
    assert_eq!(*publisher.state().borrow(), BrokerState::Stopped);
    assert!(publisher.counters().states_acked >= 7);
}

#[tokio::test]
async fn the_will_speaks_for_a_client_that_died() {
    let broker = Mosquitto::open();
    let mut live = Listener::on(broker.port, "spotter/edge1/status").await;
    let (_publisher, task) = start(&mqtt(broker.port));
    live.until("status", "online").await;
    task.abort();
    live.until("status", "offline").await;
    let mut later = Listener::on(broker.port, "spotter/edge1/status").await;
    assert!(later.next().await.retain);
}

#[tokio::test]
async fn a_broker_that_lost_everything_gets_everything_again() {
    let mut broker = Mosquitto::open();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    reach(&publisher, BrokerState::is_online).await;
    broker.kill();
    reach(&publisher, |state| {
        matches!(state, BrokerState::Backoff { .. })
    })
    .await;
    let (camera, prompt) = ids();
    publisher.publish(Update::State {
        camera,
        prompt,
        state: spotter_core::PromptState::Count(Some(9)),
    });
    publisher.publish(Update::Detection(Box::new(detection("gate"))));
    broker.restart();
    reach(&publisher, BrokerState::is_online).await;
    let mut later = Listener::on(broker.port, "spotter/#").await;
    later.until("count/person", "9").await;
    later.until("status", "online").await;
    assert_eq!(
        publisher.counters().dropped_offline,
        1,
        "a detection waited for the broker"
    );
}

#[tokio::test]
async fn a_late_will_is_corrected() {
    let broker = Mosquitto::open();
    let (publisher, _task) = start(&mqtt(broker.port));
    reach(&publisher, BrokerState::is_online).await;
    let mut live = Listener::on(broker.port, "spotter/edge1/status").await;
    live.until("status", "online").await;
    let will = PublishOptions::at_least_once().retained();
    live.client
        .publish("spotter/edge1/status", "offline", will)
        .await
        .unwrap();
    live.until("status", "offline").await;
    live.until("status", "online").await;
}

#[tokio::test]
async fn another_client_with_our_id_is_named_and_not_fought() {
    let broker = Mosquitto::open();
    let (first, _task) = start(&mqtt(broker.port));
    reach(&first, BrokerState::is_online).await;
    let (second, _other) = start(&mqtt(broker.port));
    reach(&second, BrokerState::is_online).await;
    // mosquitto 2.0 gives no reason when it closes, so one of the two clients gives up only after three closes.
    let is_over = |state: &BrokerState| matches!(state, BrokerState::TakenOver { .. });
    let (yielded, stays) = tokio::select! {
        state = reach(&first, is_over) => (state, &second),
        state = reach(&second, is_over) => (state, &first),
    };
    assert!(is_over(&yielded));
    reach(stays, BrokerState::is_online).await;
}

#[tokio::test]
async fn rejected_login_is_reported_and_a_correct_one_connects() {
    let broker = Mosquitto::start(
        "allow_anonymous false\npassword_file DIR/users",
        |directory| {
            let file = directory.join("users");
            let done = Command::new("mosquitto_passwd")
                .args(["-b", "-c"])
                .arg(file)
                .args(["edge", "right"])
                .status();
            assert!(done.expect("tests need mosquitto_passwd").success());
        },
    );
    let mut settings = mqtt(broker.port);
    settings.user = Some("edge".into());
    settings.password = Some(Secret::new("wrong".into()));
    let (refused, _task) = start(&settings);
    let state = reach(&refused, |state| {
        matches!(state, BrokerState::Refused { .. })
    })
    .await;
    let BrokerState::Refused { reason, .. } = state else {
        panic!()
    };
    assert!(
        reason.contains("rejected the login") && !reason.contains("wrong"),
        "{reason}"
    );
    settings.password = Some(Secret::new("right".into()));
    let (accepted, _task) = start(&settings);
    reach(&accepted, BrokerState::is_online).await;
}

fn openssl(directory: &Path, arguments: &str) {
    let done = Command::new("openssl")
        .current_dir(directory)
        .args(arguments.split_whitespace())
        .stderr(Stdio::null())
        .status();
    assert!(
        done.expect("tests need openssl").success(),
        "openssl {arguments}"
    );
}

/// A certificate of `who` (`server`, `client`), signed by an authority (`ca`, `other`).
fn sign(directory: &Path, who: &str, authority: &str, certificate: &str) {
    openssl(
        directory,
        &format!(
            "x509 -req -in {who}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {certificate} -days 2 -extfile names"
        ),
    );
}

/// Two authorities, and certificates of the first for localhost, made by the openssl command.
fn certificates(directory: &Path) {
    let run = |arguments: &str| openssl(directory, arguments);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for ca in ["ca", "other"] {
        run(&format!(
            "req -x509 {key} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}"
        ));
    }
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n";
    fs::write(directory.join("names"), names).unwrap();
    for who in ["server", "client"] {
        run(&format!(
            "req {key} -keyout {who}.key -out {who}.csr -subj /CN={who}"
        ));
        sign(directory, who, "ca", &format!("{who}.pem"));
    }
}

#[tokio::test]
async fn tls_accepts_its_authority_only_and_never_falls_back() {
    let config = "allow_anonymous true\ncertfile DIR/server.pem\nkeyfile DIR/server.key";
    let broker = Mosquitto::start(config, certificates);
    let with = |ca: Option<PathBuf>, insecure| {
        let tls = MqttTls {
            ca,
            client_cert: None,
            client_key: None,
            insecure,
        };
        MqttConfig {
            tls: Some(tls),
            host: "localhost".into(),
            ..mqtt(broker.port)
        }
    };
    let file = |name| Some(broker.directory.path().join(name));
    let (right, task) = start(&with(file("ca.pem"), false));
    reach(&right, BrokerState::is_online).await;
    right.stop();
    timeout(PATIENCE, task).await.unwrap().unwrap();

    let (wrong, task) = start(&with(file("other.pem"), false));
    let state = reach(&wrong, |state| {
        matches!(state, BrokerState::Untrusted { .. })
    })
    .await;
    assert!(format!("{state:?}").contains("not trusted"));
    wrong.stop();
    timeout(PATIENCE, task).await.unwrap().unwrap();

    let (unchecked, _task) = start(&with(file("other.pem"), true));
    reach(&unchecked, BrokerState::is_online).await;
    let missing = with(file("nowhere.pem"), false);
    let refused = Publisher::start(&missing, None, &identity(), Arc::new(SystemClock::new()));
    assert!(refused.is_err_and(|error| error.to_string().contains("nowhere.pem")));
}

#[tokio::test]
async fn a_broker_that_wants_our_certificate_gets_it() {
    let config = "allow_anonymous true\ncertfile DIR/server.pem\nkeyfile DIR/server.key\ncafile DIR/ca.pem\nrequire_certificate true";
    let broker = Mosquitto::start(config, certificates);
    let file = |name| broker.directory.path().join(name);
    let key = fs::read_to_string(file("client.key")).unwrap();
    let mut tls = MqttTls {
        ca: Some(file("ca.pem")),
        client_cert: Some(file("client.pem")),
        client_key: Some(Secret::new(key)),
        insecure: false,
    };
    let with = |tls: &MqttTls| MqttConfig {
        tls: Some(tls.clone()),
        host: "localhost".into(),
        ..mqtt(broker.port)
    };
    let (known, _task) = start(&with(&tls));
    reach(&known, BrokerState::is_online).await;
    (tls.client_cert, tls.client_key) = (None, None);
    let (unknown, _task) = start(&with(&tls));
    reach(&unknown, |state| {
        matches!(state, BrokerState::Backoff { .. })
    })
    .await;
}

/// A broker that supports only MQTT 3.1.1. It rejects MQTT 5 in its own format, or does not answer it.
async fn old_broker(refuses_politely: bool) -> (u16, JoinHandle<Vec<u8>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let mut levels = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut packet = [0u8; 256];
            let length = socket.read(&mut packet).await.unwrap();
            assert!(length > 9 && packet[0] == 0x10 && &packet[4..8] == b"MQTT");
            levels.push(packet[8]);
            if packet[8] == 4 {
                socket.write_all(&[0x20, 2, 0, 0]).await.unwrap();
                // The connection stays open for the rest of the test.
                tokio::spawn(async move {
                    while socket.read(&mut packet).await.is_ok_and(|n| n > 0) {}
                });
                return levels;
            }
            if refuses_politely {
                socket.write_all(&[0x20, 2, 0, 1]).await.unwrap();
            }
        }
    });
    (port, task)
}

#[tokio::test]
async fn broker_without_mqtt_5_gets_mqtt_3_1_1() {
    for refuses_politely in [true, false] {
        let (port, broker) = old_broker(refuses_politely).await;
        let (publisher, _task) = start(&mqtt(port));
        let state = reach(&publisher, BrokerState::is_online).await;
        assert_eq!(state, BrokerState::Online { protocol: "3.1.1" });
        assert_eq!(broker.await.unwrap(), [5, 4]);
    }
}
