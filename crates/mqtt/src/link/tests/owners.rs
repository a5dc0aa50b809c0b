//! The owner of a fleet's camera at a real broker: a node reads it before it publishes, and is silent about a camera that it may not publish.

use std::{sync::Arc, time::Duration};

use tokio::{
    join,
    time::{sleep, timeout},
};

use super::{
    super::rig::{Consumer, PATIENCE, RealBroker, ReceivedMessage, publish_as_other},
    away, mqtt, online, scripted,
};
use crate::{
    ConfigReport, Publisher, Update,
    link::{ConnectionTiming, target::ConnectionTarget},
    testing::{
        TestRights, camera, camera_status, count, event, fleet_identity, happened, identity,
    },
};
use spotter_core::{
    CameraRights as _, Clock, EventStep, ManualClock, MayPublish, SystemClock, WallTime,
};
use spotter_scripted::broker::codec::ClientPacket;
use spotter_state::OpenedEvents;

const OWNER: &str = "spotter/hall/cam/gate/owner";
const COUNT: &str = "spotter/hall/cam/gate/count/person";
const NEWER_OWNER: &str = r#"{"v":1,"node":"edge2","epoch":18}"#;

/// The node `edge1` of the fleet `hall`, which owns `gate` with epoch 17 as far as it knows.
fn start(port: u16, clock: Arc<dyn Clock>) -> (Publisher, Arc<TestRights>) {
    let rights = Arc::new(TestRights::default());
    let target = ConnectionTarget {
        timing: ConnectionTiming::quick(),
        ..ConnectionTarget::new(&mqtt(port), &fleet_identity(&rights)).unwrap()
    };
    let (publisher, _) = Publisher::start_on(target, &OpenedEvents::default(), clock);
    rights.grant(&camera("gate"), 17);
    publisher.publish(Update::Owner {
        camera: camera("gate"),
        node: Some(identity().node),
    });
    publisher.publish(camera_status(true));
    publisher.publish(count(2));
    (publisher, rights)
}

fn publish_newer_owner(port: u16) {
    publish_as_other(port, OWNER, NEWER_OWNER, true);
}

/// The node has received the newer owner. It attempts to connect until then: with a clock that does not move, it would wait.
async fn is_lost(publisher: &Publisher, rights: &TestRights) {
    let lost = async {
        while let MayPublish::Publish(_) = rights.may(&camera("gate"), SystemClock::new().now()) {
            publisher.try_again();
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(PATIENCE, lost).await.is_err() {
        let (state, counters) = (publisher.state().borrow().clone(), publisher.counters());
        panic!("no newer owner: {state:?}, {counters:?}")
    }
}

/// Publishes of the camera, then of the node, and returns what arrives before the latter.
async fn heard_until_marker(publisher: &Publisher, live: &mut Consumer) -> Vec<ReceivedMessage> {
    publisher.publish(count(9));
    publisher.publish(happened(event("gate", 1, EventStep::New)));
    let at = WallTime::from_unix_millis(0);
    let report = ConfigReport::new("marker".into(), at, vec![]);
    publisher.publish(Update::Config(report));
    let mut heard = Vec::new();
    loop {
        let message = live.next().await;
        if message.payload.contains("marker") {
            return heard;
        }
        heard.push(message);
    }
}

fn is_older(message: &ReceivedMessage) -> bool {
    message.epoch.as_deref() == Some("17")
}

// Faults: F5.
#[tokio::test]
async fn node_follows_a_newer_owner_of_the_broker() {
    join!(
        newer_owner_arrives_while_it_publishes(),
        newer_owner_follows_a_cut(),
        newer_owner_at_a_broker_of_another_make(),
        connection_reads_the_owners_first(),
    );
}

/// The store is down from the start. The broker knows no owner, so the node publishes, until another one appears.
async fn newer_owner_arrives_while_it_publishes() {
    let broker = RealBroker::open();
    let mut live = Consumer::on(broker.port, "spotter/#").await;
    let (publisher, rights) = start(broker.port, Arc::new(SystemClock::new()));
    let first = loop {
        let heard = live.next().await;
        if heard.epoch.is_some() {
            break heard;
        }
    };
    let owner = r#"{"epoch":17,"node":"edge1","v":1}"#;
    assert_eq!(
        (first.topic.as_str(), first.payload.as_str()),
        (OWNER, owner)
    );
    assert!(is_older(&live.until("count/person", "2").await));

    publish_newer_owner(broker.port);
    is_lost(&publisher, &rights).await;
    live.until("owner", NEWER_OWNER).await;
    let heard = heard_until_marker(&publisher, &mut live).await;
    assert!(!heard.iter().any(is_older), "{heard:?}");
    assert_eq!(publisher.counters().not_owned, 2);
}

// Faults: F6.
/// The node is cut off from the broker and the store, and another node owns the camera meanwhile.
async fn newer_owner_follows_a_cut() {
    let mut broker = RealBroker::that_keeps();
    let clock = ManualClock::default();
    let (publisher, rights) = start(broker.port, Arc::new(clock.clone()));
    online(&publisher).await;
    let mut live = Consumer::on(broker.port, "spotter/hall/#").await;
    while publisher.counters().states_acked < 4 {
        clock.advance(Duration::from_millis(100));
        sleep(Duration::from_millis(10)).await;
    }
    live.until("count/person", "2").await;
    broker.kill();
    away(&publisher, "").await;
    publisher.publish(count(3));
    // It sends nothing of the camera, whenever it connects: the clock does not move on.
    broker.restart();
    let mut live = Consumer::on(broker.port, "spotter/#").await;
    publish_newer_owner(broker.port);
    publish_as_other(broker.port, COUNT, "5", true);
    live.until("count/person", "5").await;
    is_lost(&publisher, &rights).await;
    for _ in 0..20 {
        clock.advance(Duration::from_millis(100));
        sleep(Duration::from_millis(10)).await;
    }
    let heard = heard_until_marker(&publisher, &mut live).await;
    assert!(!heard.iter().any(is_older), "{heard:?}");
    let mut later = Consumer::on(broker.port, "spotter/hall/cam/gate/+").await;
    assert!(later.next().await.payload.contains("edge2"));
}

/// With MQTT 3.1.1: the newer owner is retained before the node connects, or published later.
async fn newer_owner_at_a_broker_of_another_make() {
    for is_retained_before in [true, false] {
        let broker = RealBroker::nats();
        let mut counts = Consumer::persistent(broker.port, COUNT, "311");
        if is_retained_before {
            publish_newer_owner(broker.port);
        }
        let (publisher, rights) = start(broker.port, Arc::new(SystemClock::new()));
        if !is_retained_before {
            assert_eq!(counts.next().await.payload, "2");
            publish_newer_owner(broker.port);
        }
        is_lost(&publisher, &rights).await;
        publisher.publish(count(9));
        online(&publisher).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(counts.received_already(), None);
    }
}

/// The filter is subscribed with the retained messages, and the camera waits for the answer, on each connection once.
async fn connection_reads_the_owners_first() {
    let broker = scripted::broker(|_| {}).await;
    let clock = ManualClock::default();
    let (_publisher, _rights) = start(broker.port, Arc::new(clock.clone()));
    broker
        .until_retained("spotter/edge1/status", "online")
        .await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(broker.retained(COUNT), None, "it waits");
    while broker.retained(COUNT).as_deref() != Some("2") {
        clock.advance(Duration::from_millis(100));
        sleep(Duration::from_millis(50)).await;
    }
    let got = broker.got().into_iter();
    let filters = got.filter_map(|got| match got.packet {
        ClientPacket::Subscribe { filters, .. } => Some(filters),
        _ => None,
    });
    let owners = filters
        .flatten()
        .filter(|filter| filter.name == "spotter/hall/cam/+/owner");
    // Not with QoS 1: brokers queue fewer messages for a client than a large fleet has owners.
    let asked: Vec<_> = owners
        .map(|filter| (filter.retain_handling, filter.qos))
        .collect();
    assert_eq!((asked, broker.connects().len()), (vec![(0, 0)], 1));
    let messages = broker.messages();
    let last = messages.last().unwrap();
    assert_eq!(last.user_properties, [("epoch".into(), "17".into())]);
}
