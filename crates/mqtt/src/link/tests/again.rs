//! Attempts that are requested or follow a pause, with certificates that were replaced meanwhile.

use std::{fs, sync::Arc, time::Duration};

use tokio::join;

use super::{
    super::rig::RealBroker,
    OURS, STATUS, TLS, away, away_by, mqtt, online, publish_states,
    scripted::{broker, comes_back, two_turns},
    start, start_at, trusting, until, with_tls,
};
use crate::{AwayCause, Publisher, testing::camera_status};
use spotter_config::{MqttTls, Secret};
use spotter_core::ManualClock;
use spotter_scripted::tls::{certificates, sign};

/// Requests an attempt and waits until it has failed.
async fn tries_in_vain(publisher: &Publisher) {
    let retry_at = || publisher.state().borrow().retry_at();
    let before = retry_at();
    publisher.try_again();
    until("an attempt", || retry_at() != before).await;
}

async fn an_authority_that_is_replaced_is_used_when_somebody_asks() {
    let broker = RealBroker::mosquitto(TLS, certificates);
    let file = |name: &str| broker.directory.path().join(name);
    let ca = file("trusted.pem");
    fs::copy(file("other.pem"), &ca).unwrap();
    let (publisher, _task) = start(&with_tls(&broker, trusting(&ca)));
    away_by(&publisher, AwayCause::Untrusted).await;

    // During the replacement the file may be missing or incomplete.
    fs::remove_file(&ca).unwrap();
    tries_in_vain(&publisher).await;
    fs::write(&ca, "-----BEGIN CERTIFICATE-----\n").unwrap();
    tries_in_vain(&publisher).await;
    away_by(&publisher, AwayCause::Untrusted).await;

    fs::copy(file("ca.pem"), &ca).unwrap();
    publisher.try_again();
    online(&publisher).await;
}

async fn a_broker_that_got_another_certificate_is_found_by_time_alone() {
    let mut broker = RealBroker::mosquitto(TLS, certificates);
    let directory = broker.directory.path().to_owned();
    let clock = ManualClock::default();
    let settings = with_tls(&broker, trusting(&directory.join("other.pem")));
    let (publisher, _task) = start_at(&settings, Arc::new(clock.clone()));
    away_by(&publisher, AwayCause::Untrusted).await;
    broker.kill();
    sign(&directory, "server", "other", "server.pem");
    broker.restart();
    clock.advance(Duration::from_secs(360));
    online(&publisher).await;
}

async fn our_own_certificate_is_shown_as_it_is_now() {
    let broker = RealBroker::mosquitto(&format!("{TLS}{OURS}"), certificates);
    let file = |name: &str| broker.directory.path().join(name);
    sign(broker.directory.path(), "client", "other", "ours.pem");
    let tls = MqttTls {
        client_cert: Some(file("ours.pem")),
        client_key: Some(Secret::new(fs::read_to_string(file("client.key")).unwrap())),
        ..trusting(&file("ca.pem"))
    };
    let (publisher, _task) = start(&with_tls(&broker, tls));
    away(&publisher, "").await;
    fs::copy(file("client.pem"), file("ours.pem")).unwrap();
    online(&publisher).await;
}

async fn who_was_refused_tries_at_once_and_a_connection_is_left_alone() {
    let broker = broker(|script| script.connack = 0x86).await;
    let clock = ManualClock::default();
    let (publisher, _task) = start_at(&mqtt(broker.port), Arc::new(clock.clone()));
    publish_states(&publisher);
    away_by(&publisher, AwayCause::Refused).await;
    broker.script(|script| script.connack = 0);
    publisher.try_again();
    online(&publisher).await;
    broker.until_retained(STATUS, "online").await;

    // A request during a connection does not shorten the pause after it.
    publisher.try_again();
    publisher.publish(camera_status(false));
    let status = "spotter/edge1/cam/gate/status";
    broker.until_retained(status, "offline").await;
    assert_eq!(broker.connections(), 2);
    broker.forget();
    broker.cut();
    away(&publisher, "").await;
    two_turns(&publisher).await;
    assert_eq!(broker.connections(), 2);
    comes_back(&broker, &clock).await;
}

// Faults: B25.
#[tokio::test]
async fn replaced_certificates_are_used_without_a_restart() {
    join!(
        an_authority_that_is_replaced_is_used_when_somebody_asks(),
        a_broker_that_got_another_certificate_is_found_by_time_alone(),
        our_own_certificate_is_shown_as_it_is_now(),
        who_was_refused_tries_at_once_and_a_connection_is_left_alone(),
    );
}
