//! Outages of a real broker: the tests kill, stop and freeze mosquitto. After each outage every state is right and every event
//! has arrived.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    join,
    time::{sleep, timeout},
};

use super::{
    super::rig::{Listener, Mosquitto},
    PATIENCE, away,
    delivery_audit::DeliveryAudit,
    mqtt, online, publish_states, start, start_quick,
};
use crate::{BrokerState, Publisher, testing::count};
use spotter_core::SystemClock;

/// A new subscriber receives the current value of every state.
async fn all_is_right(broker: &Mosquitto, publisher: &Publisher, count: u32) {
    let mut later = Listener::on(broker.port, "spotter/edge1/#").await;
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

/// The scenarios wait most of the time, so they run at once, each with its own brokers and nodes.
#[tokio::test]
async fn outages_leave_every_state_right_and_lose_no_event() {
    join!(
        twenty_outages_leave_every_state_right(),
        a_frozen_broker_is_noticed(),
        a_broker_that_is_down_at_the_start(),
        twenty_outages_lose_no_event_and_double_none(),
        a_freeze_that_is_noticed_loses_no_event(),
        an_outage_up_to_the_longest_pause_loses_no_event(),
    );
}

// Faults: B4.
/// Events during an outage arrive after it: each one, in the order of its topic, and none under two ids.
async fn twenty_outages_lose_no_event_and_double_none() {
    let mut broker = Mosquitto::that_keeps();
    let mut audit = DeliveryAudit::open(broker.port, "5").await;
    for round in 0..20_u64 {
        // The consumer ends after a DISCONNECT, so the broker is killed and sends none.
        broker.kill();
        for _ in 0..5 {
            audit.publish_event();
            sleep(Duration::from_millis(40 * (round % 7))).await;
        }
        // The publisher must find the port closed. After three quick closes it would suspect another client with its id.
        audit.away("cannot reach").await;
        audit.publish_event();
        broker.restart();
        audit.reconnect().await;
    }
    audit.check();
}

// Faults: B5.
/// The broker may still read the bytes in its socket when it continues.
async fn a_freeze_that_is_noticed_loses_no_event() {
    let mut broker = Mosquitto::that_keeps();
    let mut audit = DeliveryAudit::open(broker.port, "5").await;
    broker.signal("STOP");
    // The publisher closes the connection (no answer to a ping, or silence); then its next attempt gets no answer.
    for why in ["", "did not answer CONNECT"] {
        audit.publish_events(5);
        audit.away(why).await;
    }
    audit.publish_event();
    broker.signal("CONT");
    audit.reconnect().await;
    audit.check();
}

// Faults: B5.
/// The pauses between attempts double up to the longest one. The node publishes an event every second of such an outage, which
/// takes two minutes with the daemon's pauses.
async fn an_outage_up_to_the_longest_pause_loses_no_event() {
    let mut broker = Mosquitto::that_keeps();
    let mut audit = DeliveryAudit::open(broker.port, "5").await;
    broker.kill();
    let mut events = 0;
    while events < 125 || !audit.rests_longest() {
        audit.publish_event();
        events += 1;
        sleep(Duration::from_millis(40)).await;
    }
    audit.away("cannot reach").await;
    broker.restart();
    audit.end_pause();
    audit.reconnect().await;
    audit.check();
}

// Faults: B2.
async fn twenty_outages_leave_every_state_right() {
    let mut broker = Mosquitto::open();
    let (publisher, _task) = start_quick(&mqtt(broker.port), Arc::new(SystemClock::new()));
    publish_states(&publisher);
    online(&publisher).await;
    // The pauses are the same in every run; the moments at which they meet the publisher differ.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 100..130 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let some = Duration::from_millis((random >> 32) % 1000);
        match round % 3 {
            0 => {
                broker.kill();
                // After three quick closes the publisher would suspect another client with its id.
                away(&publisher, "cannot reach").await;
                sleep(some).await;
                publisher.publish(count(round));
                broker.restart();
            }
            1 => {
                broker.signal("TERM");
                publisher.publish(count(round));
                away(&publisher, "closed the connection").await;
                sleep(some).await;
                broker.restart();
            }
            // A short stop is no outage.
            _ => {
                broker.signal("STOP");
                publisher.publish(count(round));
                sleep(2 * some).await;
                broker.signal("CONT");
            }
        }
        all_is_right(&broker, &publisher, round).await;
    }
}

// Faults: B3.
/// The sockets stay open and nothing arrives: only the publisher can notice it.
async fn a_frozen_broker_is_noticed() {
    let mut broker = Mosquitto::open();
    let (publisher, _task) = start_quick(&mqtt(broker.port), Arc::new(SystemClock::new()));
    publish_states(&publisher);
    online(&publisher).await;
    broker.signal("STOP");
    // The reason is a ping without an answer or silence, whichever the publisher notices first.
    away(&publisher, "").await;
    publisher.publish(count(9));
    broker.signal("CONT");
    let state = online(&publisher).await;
    assert_eq!(state, BrokerState::Online { protocol: "5" });
    all_is_right(&broker, &publisher, 9).await;
}

// Faults: B1.
async fn a_broker_that_is_down_at_the_start() {
    let mut broker = Mosquitto::open();
    broker.kill();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    away(&publisher, "cannot reach").await;
    broker.restart();
    online(&publisher).await;
    all_is_right(&broker, &publisher, 2).await;
}
