//! Another broker or other topics while we run: goodbye here, and everything there, once.

use std::time::Duration;

use tokio::{join, time::timeout};

use super::{
    PATIENCE, mqtt, publish_states, reach,
    scripted::{identity, online},
};
use crate::{BrokerState, Place, Publisher, Update, event::tests::event};
use spotter_core::{
    EventStep, NodeId, SystemClock,
    config::{MqttConfig, SpoolConfig},
};
use spotter_scripted::broker::{Broker, Script, codec::Packet};

fn roomy(port: u16) -> MqttConfig {
    MqttConfig {
        spool: SpoolConfig {
            events: 100,
            max_age: Duration::from_secs(3600),
            max_mb: 1,
        },
        ..mqtt(port)
    }
}

fn start(broker: &Broker) -> Publisher {
    let clock = std::sync::Arc::new(SystemClock::new());
    let (publisher, _) = Publisher::start(&roomy(broker.port), None, &identity(), clock).unwrap();
    publish_states(&publisher);
    publisher
}

fn place(broker: &Broker, node: &str) -> Place {
    let identity = identity().renamed(NodeId::new(node).unwrap());
    Place::new(&roomy(broker.port), &identity).unwrap()
}

fn tell(publisher: &Publisher, number: u64) {
    publisher.publish(Update::Event(Box::new(event(
        "gate",
        number,
        EventStep::New,
    ))));
}

/// The things of the events that it got, each with its topic.
fn events(broker: &Broker) -> Vec<(String, String)> {
    let all = broker.messages().into_iter();
    let events = all.filter(|message| message.topic.contains("/event/"));
    let thing = |payload: &[u8]| {
        let json: serde_json::Value = serde_json::from_slice(payload).unwrap();
        json["event"].as_str().unwrap().to_owned()
    };
    events
        .map(|message| (message.topic.clone(), thing(&message.payload)))
        .collect()
}

fn of(node: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<(String, String)> {
    let topic = format!("spotter/{node}/cam/gate/event/person");
    let pair = |number| {
        let thing = event("gate", number, EventStep::New).track;
        (topic.clone(), thing.as_str().to_owned())
    };
    numbers.into_iter().map(pair).collect()
}

fn said_goodbye(broker: &Broker) -> bool {
    let got = broker.got();
    got.iter().any(|got| got.packet == Packet::Disconnect)
}

async fn to_another_broker_and_name() {
    let (old, new) = join!(
        Broker::start(Script::default()),
        Broker::start(Script::default())
    );
    let publisher = start(&old);
    online(&publisher).await;
    tell(&publisher, 1);
    old.until("the first event", |broker| !events(broker).is_empty())
        .await;
    old.until_retained("spotter/edge1/status", "online").await;

    publisher.move_to(place(&new, "edge2"));
    tell(&publisher, 2);
    new.until_retained("spotter/edge2/status", "online").await;
    new.until("the second event", |broker| !events(broker).is_empty())
        .await;
    old.until("a goodbye", said_goodbye).await;
    assert_eq!(
        old.retained("spotter/edge1/status").as_deref(),
        Some("offline")
    );
    assert_eq!(events(&old), of("edge1", [1]));
    assert_eq!(events(&new), of("edge2", [2]));
    let at = |broker: &Broker, topic: &str| broker.retained(topic);
    for leaf in ["info", "config", "cam/gate/count/person", "cam/gate/health"] {
        let before = at(&old, &format!("spotter/edge1/{leaf}"));
        assert!(before.is_some(), "{leaf}");
        assert_eq!(at(&new, &format!("spotter/edge2/{leaf}")), before, "{leaf}");
        assert_eq!(at(&old, &format!("spotter/edge2/{leaf}")), None, "{leaf}");
    }
    let wills = new.connects();
    assert_eq!(wills[0].will_topic, "spotter/edge2/status");
}

/// A broker that refuses us is tried seldom; another one at once, with all that waited.
async fn from_a_broker_that_does_not_want_us() {
    let refuses = Script {
        connack: 0x87,
        ..Script::default()
    };
    let (old, new) = join!(Broker::start(refuses), Broker::start(Script::default()));
    let publisher = start(&old);
    let is_refused = |state: &BrokerState| matches!(state, BrokerState::Refused { .. });
    reach(&publisher, is_refused).await;
    for number in 1..=3 {
        tell(&publisher, number);
    }
    publisher.move_to(place(&new, "edge1"));
    new.until("all events", |broker| events(broker).len() == 3)
        .await;
    assert_eq!(events(&new), of("edge1", 1..=3));
    assert!(events(&old).is_empty());
    assert_eq!(publisher.tally().spool_dropped(), 0);
}

/// Two moves at once end at the last, and a stop says goodbye there.
async fn over_a_place_that_is_left_at_once() {
    let script = Script::default;
    let (first, second) = join!(Broker::start(script()), Broker::start(script()));
    let clock = std::sync::Arc::new(SystemClock::new());
    let started = Publisher::start(&roomy(first.port), None, &identity(), clock);
    let (publisher, task) = started.unwrap();
    publish_states(&publisher);
    first.until_retained("spotter/edge1/status", "online").await;
    publisher.move_to(place(&second, "edge2"));
    publisher.move_to(place(&second, "edge3"));
    second
        .until_retained("spotter/edge3/status", "online")
        .await;
    assert_eq!(second.retained("spotter/edge2/status"), None);
    assert_eq!(
        first.retained("spotter/edge1/status").as_deref(),
        Some("offline")
    );
    publisher.stop();
    timeout(PATIENCE, task).await.unwrap().unwrap();
    assert_eq!(
        second.retained("spotter/edge3/status").as_deref(),
        Some("offline")
    );
}

#[tokio::test]
async fn a_move_takes_along_what_is_true_and_what_waits() {
    join!(
        to_another_broker_and_name(),
        from_a_broker_that_does_not_want_us(),
        over_a_place_that_is_left_at_once()
    );
}
