//! Attempts that are requested or follow a pause, with certificates that were replaced meanwhile.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tokio::{
    join,
    time::{sleep, timeout},
};

use super::{
    super::rig::Mosquitto,
    PATIENCE, certificates, identity, mqtt, publish_states, reach,
    scripted::{STATUS, comes_back},
    sign, start,
};
use crate::{BrokerState, Publisher};
use spotter_core::{
    ManualClock,
    config::{MqttConfig, MqttTls, Secret},
};
use spotter_scripted::broker::{BrokerScript, ScriptedBroker};

const TLS: &str = "allow_anonymous true\ncertfile DIR/server.pem\nkeyfile DIR/server.key";

fn with(broker: &Mosquitto, tls: MqttTls) -> MqttConfig {
    MqttConfig {
        tls: Some(tls),
        host: "localhost".into(),
        ..mqtt(broker.port)
    }
}

fn trusting(ca: &Path) -> MqttTls {
    MqttTls {
        ca: Some(ca.to_owned()),
        client_cert: None,
        client_key: None,
        insecure: false,
    }
}

fn is_untrusted(state: &BrokerState) -> bool {
    matches!(state, BrokerState::Untrusted { .. })
}

/// Requests an attempt and waits until it has failed.
async fn tries_in_vain(publisher: &Publisher) {
    let retry_at = || publisher.state().borrow().retry_at();
    let before = retry_at();
    publisher.try_again();
    let over = timeout(PATIENCE, async {
        while retry_at() == before {
            sleep(Duration::from_millis(20)).await;
        }
    });
    over.await.expect("the publisher made no attempt");
}

async fn an_authority_that_is_replaced_is_used_when_somebody_asks() {
    let broker = Mosquitto::start(TLS, certificates);
    let file = |name: &str| broker.directory.path().join(name);
    let ca = file("trusted.pem");
    fs::copy(file("other.pem"), &ca).unwrap();
    let (publisher, _task) = start(&with(&broker, trusting(&ca)));
    reach(&publisher, is_untrusted).await;

    // During the replacement the file may be missing or incomplete.
    fs::remove_file(&ca).unwrap();
    tries_in_vain(&publisher).await;
    fs::write(&ca, "-----BEGIN CERTIFICATE-----\n").unwrap();
    tries_in_vain(&publisher).await;
    assert!(is_untrusted(&publisher.state().borrow()));

    fs::copy(file("ca.pem"), &ca).unwrap();
    publisher.try_again();
    reach(&publisher, BrokerState::is_online).await;
}

async fn a_broker_that_got_another_certificate_is_found_by_time_alone() {
    let mut broker = Mosquitto::start(TLS, certificates);
    let directory = broker.directory.path().to_owned();
    let clock = ManualClock::default();
    let settings = with(&broker, trusting(&directory.join("other.pem")));
    let (publisher, _task) =
        Publisher::start(&settings, None, &identity(), Arc::new(clock.clone())).unwrap();
    reach(&publisher, is_untrusted).await;
    broker.kill();
    sign(&directory, "server", "other", "server.pem");
    broker.restart();
    clock.advance(Duration::from_secs(360));
    reach(&publisher, BrokerState::is_online).await;
}

async fn our_own_certificate_is_shown_as_it_is_now() {
    let extra = "\ncafile DIR/ca.pem\nrequire_certificate true";
    let broker = Mosquitto::start(&format!("{TLS}{extra}"), certificates);
    let file = |name: &str| broker.directory.path().join(name);
    sign(broker.directory.path(), "client", "other", "ours.pem");
    let tls = MqttTls {
        client_cert: Some(file("ours.pem")),
        client_key: Some(Secret::new(fs::read_to_string(file("client.key")).unwrap())),
        ..trusting(&file("ca.pem"))
    };
    let (publisher, _task) = start(&with(&broker, tls));
    let is_away = |state: &BrokerState| matches!(state, BrokerState::Backoff { .. });
    reach(&publisher, is_away).await;
    fs::copy(file("client.pem"), file("ours.pem")).unwrap();
    reach(&publisher, BrokerState::is_online).await;
}

async fn who_was_refused_tries_at_once_and_a_connection_is_left_alone() {
    let broker = ScriptedBroker::start(BrokerScript {
        connack: 0x86,
        ..BrokerScript::default()
    })
    .await;
    let clock = ManualClock::default();
    let settings = mqtt(broker.port);
    let (publisher, _task) =
        Publisher::start(&settings, None, &identity(), Arc::new(clock.clone())).unwrap();
    publish_states(&publisher);
    let is_refused = |state: &BrokerState| matches!(state, BrokerState::Refused { .. });
    reach(&publisher, is_refused).await;
    broker.script(|script| script.connack = 0);
    publisher.try_again();
    reach(&publisher, BrokerState::is_online).await;
    broker.until_retained(STATUS, "online").await;

    // A request during a connection does not shorten the pause after it.
    publisher.try_again();
    publisher.publish(super::Update::CameraStatus {
        camera: super::ids().0,
        online: false,
    });
    let status = "spotter/edge1/cam/gate/status";
    broker.until_retained(status, "offline").await;
    assert_eq!(broker.connections(), 2);
    broker.forget();
    broker.cut();
    let is_away = |state: &BrokerState| matches!(state, BrokerState::Backoff { .. });
    reach(&publisher, is_away).await;
    let turns = publisher.progress() + 2;
    while publisher.progress() < turns {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(broker.connections(), 2);
    comes_back(&broker, &clock).await;
}

#[tokio::test]
async fn replaced_certificates_are_used_without_a_restart() {
    join!(
        an_authority_that_is_replaced_is_used_when_somebody_asks(),
        a_broker_that_got_another_certificate_is_found_by_time_alone(),
        our_own_certificate_is_shown_as_it_is_now(),
        who_was_refused_tries_at_once_and_a_connection_is_left_alone(),
    );
}
