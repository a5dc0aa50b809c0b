//! The owner of a fleet's camera at a real broker: a node that is not sure follows a newer one.

use std::{process::Command, sync::Arc, time::Duration};

use rumqttc::{AsyncClient, PublishOptions};
use tokio::{
    join,
    sync::mpsc,
    time::{interval, sleep, timeout},
};

use super::{
    super::rig::{Listener, Mosquitto, Nats, PATIENCE, PersistentConsumer, ReceivedMessage},
    away, mqtt, online, scripted,
};
use crate::{
    ConfigReport, Inbound, InboundKind, Publisher, Update,
    broker::ConnectionTiming,
    event::tests::event,
    parse_inbound,
    target::ConnectionTarget,
    testing::{camera, camera_status, count, fleet_identity, fleet_topics, happened},
};
use spotter_core::{Clock, Epoch, EventStep, ManualClock, NodeId, SystemClock, WallTime};
use spotter_scripted::broker::{ScriptedBroker, codec::ClientPacket};

const OWNER: &str = "spotter/hall/cam/gate/owner";
const COUNT: &str = "spotter/hall/cam/gate/count/person";

/// The node `edge1` of the fleet `hall`, which owns `gate` with epoch 17 as far as it knows.
fn start(port: u16, clock: Arc<dyn Clock>) -> (Publisher, mpsc::Receiver<Inbound>) {
    let target = ConnectionTarget {
        timing: ConnectionTiming::quick(),
        ..ConnectionTarget::new(&mqtt(port), &fleet_identity()).unwrap()
    };
    let (publisher, _) = Publisher::start_on(target, None, clock);
    let inbox = publisher.take_inbound().unwrap();
    assert!(publisher.own_camera(&camera("gate"), Epoch(17)));
    publisher.publish(camera_status(true));
    publisher.publish(count(2));
    (publisher, inbox)
}

/// Publishes a retained message as another node.
async fn publish(client: &AsyncClient, topic: &str, payload: &str) {
    let retained = PublishOptions::at_least_once().retained();
    client.publish(topic, payload, retained).await.unwrap();
}

async fn publish_newer_owner(client: &AsyncClient) {
    publish(client, OWNER, r#"{"v":1,"node":"edge2","epoch":18}"#).await;
}

/// The node has handed the newer owner to its membership. It attempts to connect until then: with a clock that does not move, it would wait.
async fn is_lost(publisher: &Publisher, inbox: &mut mpsc::Receiver<Inbound>) {
    let mut attempts = interval(Duration::from_millis(200));
    let inbound = timeout(PATIENCE, async {
        loop {
            tokio::select! {
                inbound = inbox.recv() => return inbound,
                _ = attempts.tick() => publisher.try_again(),
            }
        }
    });
    let inbound = inbound.await.unwrap_or_else(|_| {
        let (state, counters) = (publisher.state().borrow().clone(), publisher.counters());
        panic!("no newer owner: {state:?}, {counters:?}")
    });
    let inbound = inbound.unwrap();
    let expected = InboundKind::Owner {
        camera: camera("gate"),
        node: Some(NodeId::new("edge2").unwrap()),
        epoch: Epoch(18),
    };
    assert_eq!(parse_inbound(&fleet_topics(), None, &inbound), expected);
}

/// Publishes of the camera, then of the node, and returns what arrives before the latter.
async fn heard_until_marker(publisher: &Publisher, live: &mut Listener) -> Vec<ReceivedMessage> {
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

#[tokio::test]
async fn node_that_is_uncertain_follows_a_newer_owner() {
    join!(
        newer_owner_arrives_while_it_publishes(),
        newer_owner_follows_a_cut(),
        newer_owner_is_one_of_many(),
        newer_owner_at_a_broker_of_another_make(),
        broker_is_asked_when_ownership_becomes_uncertain(),
    );
}

/// The store is down from the start. The broker knows no owner, so the node publishes, until another one appears.
async fn newer_owner_arrives_while_it_publishes() {
    let broker = Mosquitto::open();
    let mut live = Listener::on(broker.port, "spotter/#").await;
    let (publisher, mut inbox) = start(broker.port, Arc::new(SystemClock::new()));
    let first = loop {
        let heard = live.next().await;
        if heard.epoch.is_some() {
            break heard;
        }
    };
    let owner = r#"{"v":1,"node":"edge1","epoch":17}"#;
    assert_eq!(
        (first.topic.as_str(), first.payload.as_str()),
        (OWNER, owner)
    );
    assert!(is_older(&live.until("count/person", "2").await));

    publish_newer_owner(&live.client).await;
    is_lost(&publisher, &mut inbox).await;
    live.until("owner", r#"{"v":1,"node":"edge2","epoch":18}"#)
        .await;
    let heard = heard_until_marker(&publisher, &mut live).await;
    assert!(!heard.iter().any(is_older), "{heard:?}");
    assert_eq!(publisher.counters().not_owned, 2);
}

/// The node is cut off from the broker and the store, and another node owns the camera meanwhile.
async fn newer_owner_follows_a_cut() {
    let mut broker = Mosquitto::that_keeps();
    let clock = ManualClock::default();
    let (publisher, mut inbox) = start(broker.port, Arc::new(clock.clone()));
    publisher.confirm_ownership(clock.now().after(Duration::from_secs(10)));
    online(&publisher).await;
    let mut live = Listener::on(broker.port, "spotter/hall/#").await;
    live.until("count/person", "2").await;
    broker.kill();
    away(&publisher, "").await;
    publisher.publish(count(3));
    // Uncertain from here on, so it sends nothing of the camera, whenever it connects: the clock does not move on.
    clock.advance(Duration::from_secs(11));
    broker.restart();
    let mut live = Listener::on(broker.port, "spotter/#").await;
    publish_newer_owner(&live.client).await;
    publish(&live.client, COUNT, "5").await;
    live.until("count/person", "5").await;
    is_lost(&publisher, &mut inbox).await;
    for _ in 0..20 {
        clock.advance(Duration::from_millis(100));
        sleep(Duration::from_millis(10)).await;
    }
    let heard = heard_until_marker(&publisher, &mut live).await;
    assert!(!heard.iter().any(is_older), "{heard:?}");
    let mut later = Listener::on(broker.port, "spotter/hall/cam/gate/+").await;
    assert!(later.next().await.payload.contains("edge2"));
}

/// A large fleet: the retained owners are more than a broker queues for a client with QoS 1.
async fn newer_owner_is_one_of_many() {
    const CAMERAS: usize = 3000;
    let broker = Mosquitto::open();
    let other = Listener::on(broker.port, "nothing").await;
    for number in 0..CAMERAS {
        let topic = format!("spotter/hall/cam/cam{number}/owner");
        publish(&other.client, &topic, r#"{"v":1,"node":"edge2","epoch":7}"#).await;
    }
    publish_newer_owner(&other.client).await;
    let mut counted = Listener::on(broker.port, "spotter/hall/cam/gate/owner").await;
    counted.next().await;
    let (publisher, mut inbox) = start(broker.port, Arc::new(SystemClock::new()));
    is_lost(&publisher, &mut inbox).await;
    let mut live = Listener::on(broker.port, "spotter/edge1/#").await;
    live.until("status", "online").await;
    let mut of_camera = Listener::on(broker.port, "spotter/hall/cam/gate/#").await;
    publisher.publish(count(9));
    assert!(of_camera.next().await.payload.contains("edge2"));
    let counters = publisher.counters();
    assert_eq!((counters.inbound_dropped, counters.not_owned), (0, 1));
}

/// With MQTT 3.1.1: the newer owner is retained before the node connects, or published later.
async fn newer_owner_at_a_broker_of_another_make() {
    let publish = |port: u16| {
        let owner = r#"{"v":1,"node":"edge2","epoch":18}"#;
        let done = Command::new("mosquitto_pub")
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-V", "311"])
            .args(["-q", "1", "-r", "-t", OWNER, "-m", owner])
            .status();
        assert!(done.expect("tests need mosquitto-clients").success());
    };
    for is_retained_before in [true, false] {
        let broker = Nats::start();
        let mut counts = PersistentConsumer::on(broker.port, COUNT, "311");
        if is_retained_before {
            publish(broker.port);
        }
        let (publisher, mut inbox) = start(broker.port, Arc::new(SystemClock::new()));
        if !is_retained_before {
            assert_eq!(counts.next().await, "2");
            publish(broker.port);
        }
        is_lost(&publisher, &mut inbox).await;
        publisher.publish(count(9));
        online(&publisher).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(counts.received_already(), None);
    }
}

/// On the same connection: the filter is subscribed once more, with the retained messages, and the camera is held until the answer.
async fn broker_is_asked_when_ownership_becomes_uncertain() {
    let broker = scripted::broker(|_| {}).await;
    let clock = ManualClock::default();
    let (publisher, _inbox) = start(broker.port, Arc::new(clock.clone()));
    publisher.confirm_ownership(clock.now().after(Duration::from_secs(1)));
    broker.until_retained(COUNT, "2").await;
    let questions = |broker: &ScriptedBroker| {
        let got = broker.got().into_iter();
        let filters = got.filter_map(|got| match got.packet {
            ClientPacket::Subscribe { filters, .. } => Some(filters),
            _ => None,
        });
        let owners = filters
            .flatten()
            .filter(|filter| filter.name == "spotter/hall/cam/+/owner");
        // With the retained messages, and not with QoS 1, of which brokers queue few.
        owners
            .filter(|filter| filter.retain_handling == 0 && filter.qos == 0)
            .count()
    };
    assert_eq!(questions(&broker), 1);
    clock.advance(Duration::from_millis(1001));
    publisher.publish(count(3));
    broker
        .until("the question", |broker| questions(broker) == 2)
        .await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(broker.retained(COUNT).as_deref(), Some("2"), "it is held");
    while broker.retained(COUNT).as_deref() != Some("3") {
        clock.advance(Duration::from_millis(100));
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((questions(&broker), broker.connects().len()), (2, 1));
    let messages = broker.messages();
    let last = messages.last().unwrap();
    assert_eq!(last.user_properties, [("epoch".into(), "17".into())]);
}

/// A high epoch that no store gave, while the store confirms this node: retained before the node connects, or published later.
#[tokio::test]
async fn owner_that_the_store_does_not_have_silences_no_camera() {
    const FORGED: &str = r#"{"v":1,"node":"edge2","epoch":9007199254740992}"#;
    const OWN: &str = r#"{"v":1,"node":"edge1","epoch":17}"#;
    for is_retained_before in [true, false] {
        let broker = Mosquitto::open();
        let mut live = Listener::on(broker.port, "spotter/#").await;
        if is_retained_before {
            publish(&live.client, OWNER, FORGED).await;
            live.until("owner", FORGED).await;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (publisher, mut inbox) = start(broker.port, Arc::clone(&clock));
        publisher.confirm_ownership(clock.now().after(Duration::from_secs(3600)));
        live.until("count/person", "2").await;
        // What was retained before is replaced at the connect; of a later one the daemon asks the store, which says that it is wrong.
        if !is_retained_before {
            publish(&live.client, OWNER, FORGED).await;
            live.until("owner", FORGED).await;
            until_disputed(&mut inbox).await;
            publisher.publish_owner_again(&camera("gate"));
            live.until("owner", OWN).await;
        }
        publisher.publish(count(9));
        live.until("count/person", "9").await;
        let mut later = Listener::on(broker.port, OWNER).await;
        assert_eq!(later.next().await.payload, OWN, "retained");
        assert_eq!(publisher.counters().not_owned, 0);
    }
}

/// The node has handed the disputed owner to its membership.
async fn until_disputed(inbox: &mut mpsc::Receiver<Inbound>) {
    let disputed = async {
        loop {
            let inbound = inbox.recv().await.unwrap();
            let read = parse_inbound(&fleet_topics(), None, &inbound);
            if matches!(
                read,
                InboundKind::Owner {
                    epoch: Epoch::MAX,
                    ..
                }
            ) {
                return;
            }
        }
    };
    timeout(PATIENCE, disputed).await.unwrap();
}
