//! Against a real broker (mosquitto as a child process on loopback) and against a scripted one.

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    AwayCause, BrokerState, ConnectionTiming,
    rig::{Consumer, PATIENCE, RealBroker},
};
use crate::{
    CameraHealth, ConfigReport, Publisher, Update,
    link::target::ConnectionTarget,
    testing::{camera_status, count, detected, health_of, identity, info, state},
};
use spotter_config::{MqttConfig, MqttTls, MqttVersion, Secret, testing::mqtt};
use spotter_core::{Clock, Presence, PromptState, SystemClock, WallTime};
use spotter_scripted::tls::certificates;
use spotter_state::OpenedEvents;

mod again;
mod delivery_audit;
mod heard;
mod outages;
mod owners;
mod reading;
mod scripted;
mod second;
mod secrets;

const STATUS: &str = "spotter/edge1/status";
const INFO: &str = "spotter/edge1/info";
const COUNT: &str = "spotter/edge1/cam/gate/count/person";

/// Waits until `is_so` returns true.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let reached = timeout(PATIENCE, async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(reached.await.is_ok(), "{what}");
}

fn start(mqtt: &MqttConfig) -> (Publisher, JoinHandle<()>) {
    start_at(mqtt, Arc::new(SystemClock::new()))
}

fn start_at(mqtt: &MqttConfig, clock: Arc<dyn Clock>) -> (Publisher, JoinHandle<()>) {
    Publisher::start(mqtt, &OpenedEvents::default(), &identity(), clock).unwrap()
}

/// The connection of a publisher that makes the same decisions with shorter pauses and limits.
fn quick(mqtt: &MqttConfig) -> ConnectionTarget {
    ConnectionTarget {
        timing: ConnectionTiming::quick(),
        ..ConnectionTarget::new(mqtt, &identity()).unwrap()
    }
}

fn start_quick(mqtt: &MqttConfig, clock: Arc<dyn Clock>) -> (Publisher, JoinHandle<()>) {
    Publisher::start_on(quick(mqtt), &OpenedEvents::default(), clock)
}

async fn reach(publisher: &Publisher, wanted: impl FnMut(&BrokerState) -> bool) -> BrokerState {
    let mut state = publisher.state();
    let reached = timeout(PATIENCE, state.wait_for(wanted)).await;
    match reached {
        Ok(state) => state.unwrap().clone(),
        Err(_) => panic!("the state is {:?}", publisher.state().borrow()),
    }
}

async fn online(publisher: &Publisher) -> BrokerState {
    reach(publisher, BrokerState::is_online).await
}

/// Waits until the publisher reports that the broker is unavailable for the reason `why`.
async fn away(publisher: &Publisher, why: &str) {
    let is_away = |state: &BrokerState| matches!(state, BrokerState::Away { reason, .. } if reason.contains(why));
    reach(publisher, is_away).await;
}

/// Waits until the broker is unavailable for this cause, and returns the reason.
async fn away_by(publisher: &Publisher, wanted: AwayCause) -> String {
    let is_away =
        |state: &BrokerState| matches!(state, BrokerState::Away { cause, .. } if *cause == wanted);
    let state = reach(publisher, is_away).await;
    state.trouble().unwrap().to_owned()
}

/// Stops the publisher and waits for its end.
async fn stop(publisher: Publisher, task: JoinHandle<()>) {
    publisher.stop();
    timeout(PATIENCE, task).await.unwrap().unwrap();
}

fn publish_states(publisher: &Publisher) {
    let at = WallTime::from_unix_millis(0);
    for update in [
        Update::Info(info()),
        Update::Config(ConfigReport::new("ab".into(), at, vec![])),
        camera_status(true),
        health_of(CameraHealth::default()),
        state(PromptState::Presence(Presence::On)),
        count(2),
    ] {
        publisher.publish(update);
    }
}

#[tokio::test]
async fn states_are_retained_and_a_clean_stop_publishes_offline() {
    let broker = RealBroker::open();
    let mut live = Consumer::on(broker.port, "spotter/#").await;
    let (publisher, task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    // The test has one thread and the connection's task has not run yet, so it sends all these states after it connects.
    let mut order = Vec::new();
    while order.last().is_none_or(|topic| topic != "status") {
        let heard = live.next().await;
        order.push(heard.topic.trim_start_matches("spotter/edge1/").to_owned());
    }
    order[1..6].sort_unstable();
    let expected = [
        "info",
        "cam/gate/count/person",
        "cam/gate/health",
        "cam/gate/present/person",
        "cam/gate/status",
        "config",
        "status",
    ];
    assert_eq!(order, expected);
    publisher.publish(count(3));
    let heard = live.until("cam/gate/count/person", "3").await;
    // A live message has no retain flag.
    assert_eq!((heard.qos, heard.retain), (1, false));

    let mut later = Consumer::on(broker.port, "spotter/edge1/cam/#").await;
    let heard = later.until("cam/gate/count/person", "3").await;
    assert!(heard.retain && heard.qos == 1);
    assert_eq!(heard.content_type, None);

    publisher.publish(detected("gate"));
    let found = loop {
        let heard = live.next().await;
        if heard.topic.ends_with("det/person") {
            break heard;
        }
    };
    assert_eq!((found.qos, found.retain), (0, false));
    assert!(found.expiry_s.is_some_and(|seconds| seconds <= 5));
    assert_eq!(found.content_type.as_deref(), Some("application/json"));

    stop(publisher.clone(), task).await;
    live.until("edge1/status", "offline").await;
    assert_eq!(*publisher.state().borrow(), BrokerState::Stopped);
    assert!(publisher.counters().states_acked >= 7);
}

#[tokio::test]
async fn the_will_speaks_for_a_client_that_died() {
    let broker = RealBroker::open();
    let mut live = Consumer::on(broker.port, STATUS).await;
    let (_publisher, task) = start(&mqtt(broker.port));
    live.until("status", "online").await;
    task.abort();
    live.until("status", "offline").await;
    let mut later = Consumer::on(broker.port, STATUS).await;
    assert!(later.next().await.retain);
}

// Faults: B23.
#[tokio::test]
async fn rejected_login_is_reported_and_a_correct_one_connects() {
    let broker = RealBroker::mosquitto(
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
    settings.broker.user = Some("edge".into());
    settings.broker.password = Some(Secret::new("wrong".into()));
    let (refused, _task) = start(&settings);
    let reason = away_by(&refused, AwayCause::Refused).await;
    assert!(reason.contains("rejected the login") && !reason.contains("wrong"));
    settings.broker.password = Some(Secret::new("right".into()));
    let (accepted, _task) = start(&settings);
    online(&accepted).await;
}

const TLS: &str = "allow_anonymous true\ncertfile DIR/server.pem\nkeyfile DIR/server.key";
/// The broker accepts only clients with a certificate.
const OURS: &str = "\ncafile DIR/ca.pem\nrequire_certificate true";

fn with_tls(broker: &RealBroker, tls: MqttTls) -> MqttConfig {
    let mut mqtt = mqtt(broker.port);
    mqtt.broker.tls = Some(tls);
    mqtt.broker.host = "localhost".into();
    mqtt
}

fn trusting(ca: &Path) -> MqttTls {
    MqttTls {
        ca: Some(ca.to_owned()),
        client_cert: None,
        client_key: None,
        insecure: false,
    }
}

// Faults: B24.
#[tokio::test]
async fn tls_accepts_its_authority_only_and_never_falls_back() {
    let broker = RealBroker::mosquitto(TLS, certificates);
    let file = |name: &str| broker.directory.path().join(name);
    let with = |ca: &str, insecure| {
        let tls = MqttTls {
            insecure,
            ..trusting(&file(ca))
        };
        with_tls(&broker, tls)
    };
    let (right, task) = start(&with("ca.pem", false));
    online(&right).await;
    stop(right, task).await;

    let (wrong, task) = start(&with("other.pem", false));
    let reason = away_by(&wrong, AwayCause::Untrusted).await;
    assert!(reason.contains("not trusted"), "{reason}");
    stop(wrong, task).await;

    let (unchecked, _task) = start(&with("other.pem", true));
    online(&unchecked).await;
    let missing = with("nowhere.pem", false);
    let refused = Publisher::start(
        &missing,
        &OpenedEvents::default(),
        &identity(),
        Arc::new(SystemClock::new()),
    );
    assert!(refused.is_err_and(|error| error.to_string().contains("nowhere.pem")));
}

/// A broker with a certificate of X.509 version 1, as old scripts make them.
fn with_version_1(directory: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key";
    let openssl = |arguments: &str| {
        let done = Command::new("openssl")
            .current_dir(directory)
            .args(arguments.split_whitespace())
            .output();
        done.expect("tests need openssl").status.success()
    };
    // From OpenSSL 3.4 on, version 1 is an option.
    if !openssl(&format!(
        "req -x509 -x509v1 {key} -out server.pem -days 2 -subj /CN=localhost"
    )) {
        assert!(openssl(&format!(
            "req {key} -out server.csr -subj /CN=localhost"
        )));
        assert!(openssl(
            "x509 -req -in server.csr -signkey server.key -out server.pem -days 2"
        ));
    }
}

/// A broker whose certificate is that of an authority.
fn with_authority(directory: &Path) {
    certificates(directory);
    for kind in ["pem", "key"] {
        let from = directory.join(format!("ca.{kind}"));
        fs::copy(from, directory.join(format!("server.{kind}"))).unwrap();
    }
}

async fn odd_certificate(prepare: fn(&Path), cause: &str) {
    let broker = RealBroker::mosquitto(TLS, prepare);
    let tls = trusting(&broker.directory.path().join("server.pem"));
    let (checked, task) = start(&with_tls(&broker, tls.clone()));
    let reason = away_by(&checked, AwayCause::Untrusted).await;
    assert!(
        reason.contains(cause) && reason.contains("tls = { insecure = true }"),
        "{reason}"
    );
    stop(checked, task).await;
    let insecure = MqttTls {
        insecure: true,
        ..tls
    };
    let (unchecked, _task) = start(&with_tls(&broker, insecure));
    online(&unchecked).await;
}

// Faults: B19.
#[tokio::test]
async fn odd_certificate_is_named_and_accepted_by_the_setting_alone() {
    tokio::join!(
        odd_certificate(with_version_1, "X.509 version 1"),
        odd_certificate(with_authority, "CA:TRUE"),
    );
}

// Faults: B18.
#[tokio::test]
async fn broker_with_qos_0_alone_works_by_setting() {
    let broker = RealBroker::mosquitto("allow_anonymous true\nmax_qos 0", |_| {});
    let mut settings = mqtt(broker.port);
    let (refused, task) = start(&settings);
    let reason = away_by(&refused, AwayCause::Refused).await;
    assert!(reason.contains("set mqtt.max_qos = 0"), "{reason}");
    stop(refused, task).await;

    for version in [MqttVersion::V5, MqttVersion::V311] {
        settings.broker.max_qos = 0;
        settings.broker.version = version;
        let (publisher, task) = start(&settings);
        publish_states(&publisher);
        online(&publisher).await;
        until("all states are sent", || {
            publisher.counters().states_acked >= 7
        })
        .await;
        let mut later = Consumer::on(broker.port, COUNT).await;
        let heard = later.until("cam/gate/count/person", "2").await;
        assert!(heard.retain && heard.qos == 0);
        stop(publisher, task).await;
    }
}

// Faults: B13.
#[tokio::test]
async fn consumer_that_never_reads_does_not_disturb_the_publisher() {
    let broker = RealBroker::open();
    let address = ("127.0.0.1", broker.port);
    let mut sleeper = TcpStream::connect(address).await.unwrap();
    let connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04slow";
    let subscribe = b"\x82\x06\x00\x01\x00\x01#\x01";
    sleeper.write_all(connect).await.unwrap();
    sleeper.write_all(subscribe).await.unwrap();
    let (publisher, _task) = start(&mqtt(broker.port));
    online(&publisher).await;
    for round in 0..60 {
        for text in ["a", "b"] {
            let answer = format!("{round}{}", text.repeat(200 * 1024));
            publisher.publish(state(PromptState::Answer(Some(answer))));
        }
        publisher.publish(detected("gate"));
        sleep(Duration::from_millis(20)).await;
    }
    publisher.publish(count(60));
    let mut later = Consumer::on(broker.port, COUNT).await;
    later.until("count/person", "60").await;
    assert!(publisher.state().borrow().is_online());
    assert_eq!(publisher.counters().dropped_offline, 0);
}
