//! Tests with a second broker: NATS, which supports only MQTT 3.1.1 and stores topics in its own way.
//!
//! Faults: B15.

use tokio::{join, time::timeout};

use super::{
    super::rig::{Consumer, RealBroker, publish_as_other},
    COUNT, INFO, PATIENCE, STATUS, away,
    delivery_audit::DeliveryAudit,
    mqtt, online, publish_states, start, stop,
};
use crate::{
    BrokerState,
    testing::{count, detected},
};

/// The retained message of the topic.
async fn is_retained(broker: &RealBroker, topic: &str, payload: Option<&str>) -> bool {
    let mut later = Consumer::persistent(broker.port, topic, "311");
    later.until(topic, payload).await.retain
}

#[tokio::test]
async fn a_broker_of_another_make_gets_and_gives_the_same() {
    join!(states_detections_and_commands(), events_over_its_deaths());
}

// Faults: B6.
/// The broker's retained messages and its consumer's session survive a kill.
async fn events_over_its_deaths() {
    let mut broker = RealBroker::nats();
    let mut audit = DeliveryAudit::open(broker.port, "311").await;
    for _ in 0..3 {
        audit.publish_events(5);
        audit.receive_all().await;
        broker.kill();
        audit.publish_events(5);
        away(&audit.publisher, "cannot reach").await;
        audit.publish_event();
        broker.restart();
        online(&audit.publisher).await;
        audit.publish_events(5);
        audit.receive_all().await;
    }
    audit.check();
}

async fn states_detections_and_commands() {
    let mut broker = RealBroker::nats();
    let settings = mqtt(broker.port);
    let mut live = Consumer::persistent(broker.port, "spotter/#", "311");
    let (publisher, task) = start(&settings);
    let mut inbox = publisher.take_inbound().unwrap();
    publisher.listen(vec!["spotter/edge1/cam/+/+/set".into()]);
    publish_states(&publisher);
    let is_old = BrokerState::Online { protocol: "3.1.1" };
    assert_eq!(online(&publisher).await, is_old);

    // The consumer receives the birth message and the states, live and retained.
    live.until(STATUS, "online").await;
    assert!(is_retained(&broker, INFO, None).await);
    assert!(is_retained(&broker, COUNT, Some("2")).await);
    // The consumer receives a detection, which is not retained.
    publisher.publish(detected("gate"));
    assert!(!live.until("det/person", None).await.retain);
    // The publisher receives a command that is not retained.
    let topic = "spotter/edge1/cam/gate/rate/set";
    publish_as_other(broker.port, topic, "0.5", false);
    let inbound = timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert_eq!(inbound.topic, topic);
    assert!(inbound.payload == b"0.5" && !inbound.retained);
    // The publisher corrects a late will.
    publish_as_other(broker.port, STATUS, "offline", true);
    live.until(STATUS, "offline").await;
    live.until(STATUS, "online").await;

    // The broker is killed and restarts without its store.
    drop(live);
    broker.lose_everything();
    publisher.publish(count(9));
    let mut later = Consumer::persistent(broker.port, STATUS, "311");
    later.until(STATUS, "online").await;
    assert!(is_retained(&broker, INFO, None).await);
    assert!(is_retained(&broker, COUNT, Some("9")).await);
    publish_as_other(broker.port, topic, "1", false);
    let inbound = timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert_eq!(inbound.payload, b"1");

    // The broker publishes the will of a publisher that ended without DISCONNECT.
    task.abort();
    _ = task.await;
    later.until(STATUS, "offline").await;
    // A publisher that stops publishes `offline` itself.
    let (publisher, task) = start(&settings);
    later.until(STATUS, "online").await;
    stop(publisher, task).await;
    later.until(STATUS, "offline").await;
}
