//! Outages of a real broker: the tests kill, stop and freeze mosquitto. After each outage every state is right and every event
//! has arrived.

use std::{collections::HashMap, time::Duration};

use tokio::{
    join,
    time::{sleep, timeout},
};

use super::{
    super::rig::{Consumer, RealBroker},
    PATIENCE, away,
    delivery_audit::DeliveryAudit,
    mqtt, online, publish_states, start,
};
use crate::{BrokerState, Publisher, testing::count};

/// A new subscriber receives the current value of every state.
async fn all_is_right(broker: &RealBroker, publisher: &Publisher, count: u32) {
    let mut later = Consumer::on(broker.port, "spotter/edge1/#").await;
    let mut states = HashMap::new();
    // An empty text is any value.
    let count = count.to_string();
    let wanted = [
        ("status", "online"),
        ("cam/gate/status", "online"),
        ("cam/gate/present/person", "ON"),
        ("cam/gate/count/person", &count),
        ("info", ""),
        ("config", ""),
        ("cam/gate/health", ""),
    ];
    let is_right = |states: &HashMap<String, String>| {
        wanted.iter().all(|(topic, text)| {
            let found = states.get(&format!("spotter/edge1/{topic}"));
            found.is_some_and(|found| text.is_empty() || found == text)
        })
    };
    let reached = timeout(PATIENCE, async {
        while !is_right(&states) {
            let heard = later.next().await;
            states.insert(heard.topic, heard.payload);
        }
    });
    if reached.await.is_err() {
        panic!("{count}: {:?}, {states:?}", publisher.state().borrow());
    }
}

/// The scenarios wait most of the time, so they run at once, each with its own broker and node.
#[tokio::test]
async fn outages_leave_every_state_right_and_lose_no_event() {
    join!(
        thirty_kills_stops_and_holds(),
        a_freeze_that_is_noticed(),
        an_outage_up_to_the_longest_pause(),
        a_broker_that_is_down_at_the_start(),
    );
}

// Faults: B2, B4.
/// Events during an outage arrive after it: each one, in the order of its topic, and none under two ids.
async fn thirty_kills_stops_and_holds() {
    let mut broker = RealBroker::that_keeps();
    // A broker that ends sends a consumer of MQTT 5 a DISCONNECT, after which the consumer ends.
    let mut audit = DeliveryAudit::open(broker.port, "311").await;
    for round in 0..30 {
        // The same pauses in every run; the moments at which they meet the publisher differ.
        let pause = Duration::from_millis(u64::from(round) * 137 % 1000);
        match round % 6 {
            0 | 3 => {
                // A short stop is no outage.
                broker.signal("STOP");
                audit.publish_events(5);
                sleep(2 * pause).await;
                broker.signal("CONT");
            }
            5 => {
                broker.signal("TERM");
                audit.publish_events(5);
                away(&audit.publisher, "closed the connection").await;
                sleep(pause).await;
                broker.restart();
            }
            _ => {
                broker.kill();
                for _ in 0..5 {
                    audit.publish_event();
                    sleep(pause / 5).await;
                }
                // The publisher must find the port closed. After three quick closes it would suspect another client with its id.
                away(&audit.publisher, "cannot reach").await;
                broker.restart();
            }
        }
        audit.publisher.publish(count(round));
        audit.reconnect().await;
        all_is_right(&broker, &audit.publisher, round).await;
    }
    audit.check();
}

// Faults: B3, B5.
/// The sockets stay open and nothing arrives. The broker may still read the bytes in its socket when it continues.
async fn a_freeze_that_is_noticed() {
    let mut broker = RealBroker::that_keeps();
    let mut audit = DeliveryAudit::open(broker.port, "5").await;
    broker.signal("STOP");
    // The publisher closes the connection (no answer to a ping, or silence); then its next attempt gets no answer.
    for why in ["", "did not answer CONNECT"] {
        audit.publish_events(5);
        away(&audit.publisher, why).await;
    }
    audit.publisher.publish(count(9));
    broker.signal("CONT");
    audit.reconnect().await;
    let state = audit.publisher.state().borrow().clone();
    assert_eq!(state, BrokerState::Online { protocol: "5" });
    all_is_right(&broker, &audit.publisher, 9).await;
    audit.check();
}

// Faults: B5.
/// The pauses between attempts double up to the longest one. The node publishes an event every second of such an outage, which
/// takes two minutes with the daemon's pauses.
async fn an_outage_up_to_the_longest_pause() {
    let mut broker = RealBroker::that_keeps();
    let mut audit = DeliveryAudit::open(broker.port, "5").await;
    broker.kill();
    let mut events = 0;
    while events < 125 || !audit.rests_longest() {
        audit.publish_event();
        events += 1;
        sleep(Duration::from_millis(40)).await;
    }
    away(&audit.publisher, "cannot reach").await;
    broker.restart();
    audit.publisher.try_again();
    audit.reconnect().await;
    audit.check();
}

// Faults: B1.
async fn a_broker_that_is_down_at_the_start() {
    let mut broker = RealBroker::open();
    broker.kill();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    away(&publisher, "cannot reach").await;
    broker.restart();
    online(&publisher).await;
    all_is_right(&broker, &publisher, 2).await;
}
