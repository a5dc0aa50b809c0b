//! Real outages of a real broker: mosquitto is killed, stopped and frozen, and every state is right each time after.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    join,
    time::{Instant, sleep, timeout},
};

use super::{
    super::rig::{Faithful, Listener, Mosquitto},
    PATIENCE, ids, mqtt, publish_states, reach, start,
};
use crate::{
    config::Spool,
    domain::{CameraId, Clock as _, Event, EventStep, NodeId, SystemClock, TrackId},
    publish::{BrokerState, Identity, Publisher, Update, event::tests::event},
};

fn count(publisher: &Publisher, count: u64) {
    let (camera, prompt) = ids();
    publisher.publish(Update::Count {
        camera,
        prompt,
        count: Some(count),
    });
}

/// A consumer that comes now finds, or is told in a moment, that every state is true.
async fn all_is_right(broker: &Mosquitto, publisher: &Publisher, count: u64) {
    let mut later = Listener::on(broker.port, "spotter/edge1/#").await;
    let mut states = HashMap::new();
    let wanted = [
        ("status", "online".to_owned()),
        ("cam/gate/status", "online".to_owned()),
        ("cam/gate/present/person", "ON".to_owned()),
        ("cam/gate/count/person", count.to_string()),
    ];
    let is_right = |states: &HashMap<String, String>| {
        let of = |topic: &str| states.get(&format!("spotter/edge1/{topic}"));
        let values = wanted.iter().all(|(topic, text)| of(topic) == Some(text));
        values
            && ["info", "config", "cam/gate/health"]
                .iter()
                .all(|topic| of(topic).is_some())
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

#[tokio::test]
async fn twenty_outages_leave_every_state_right() {
    join!(twenty(), frozen(), down_at_start());
}

/// What is told while the broker is away arrives when it is back: each event, in the order of its topic, and none twice but
/// under its own id.
#[tokio::test]
async fn twenty_outages_lose_no_event_and_double_none() {
    const EACH: u64 = 5;
    let mut broker = Mosquitto::that_keeps();
    let state = tempfile::tempdir().unwrap();
    let identity = Identity::of_this_machine(NodeId::new("edge1").unwrap());
    let clock = Arc::new(SystemClock::new());
    let mut settings = mqtt(broker.port);
    settings.spool = Spool {
        events: 1000,
        max_age: Duration::from_secs(3600),
        max_mb: 1,
    };
    let (publisher, _task) =
        Publisher::start(&settings, Some(state.path()), &identity, clock.clone()).unwrap();
    reach(&publisher, BrokerState::is_online).await;
    let mut consumer = Faithful::on(broker.port, "spotter/edge1/cam/+/event/+");
    let mut told = 0;
    let mut tell = || {
        told += 1;
        let now = clock.wall();
        let event = Event {
            started: now,
            last_seen: now,
            ..event("gate", told, EventStep::New)
        };
        publisher.publish(Update::Event(Box::new(event)));
        told
    };
    // Its session stands when something of it comes.
    let (mut ids, mut tracks) = (HashSet::new(), Vec::new());
    while tracks.is_empty() {
        tell();
        sleep(Duration::from_millis(200)).await;
        while let Some(message) = consumer.heard_already() {
            remember(&message, &mut ids, &mut tracks);
        }
    }
    for round in 0..20_u64 {
        // Its consumer gives up after a goodbye, so the broker says none.
        match round % 2 {
            0 => broker.kill(),
            _ => broker.signal("STOP"),
        }
        for _ in 0..EACH {
            tell();
            sleep(Duration::from_millis(40 * (round % 7))).await;
        }
        match round % 2 {
            0 => {
                // Longer than we wait: a broker back at once, three times, would look like a rival with our id.
                sleep(Duration::from_millis(3200)).await;
                broker.restart();
            }
            _ => broker.signal("CONT"),
        }
        let last = TrackId::new("b7c1", &ids_camera(), tell());
        while tracks.last().map(String::as_str) != Some(last.as_str()) {
            remember(&consumer.next().await, &mut ids, &mut tracks);
        }
    }
    let first = tracks
        .first()
        .and_then(|track| track.rsplit('-').next()?.parse().ok());
    let expected = (first.unwrap()..=told).map(|n| format!("b7c1-gate-{n}"));
    assert_eq!(tracks, expected.collect::<Vec<_>>());
}

fn ids_camera() -> CameraId {
    ids().0
}

/// Notes the thing of a message that has not come before.
fn remember(message: &str, ids: &mut HashSet<String>, tracks: &mut Vec<String>) {
    let json: serde_json::Value = serde_json::from_str(message).unwrap();
    if ids.insert(json["id"].as_str().unwrap().to_owned()) {
        tracks.push(json["event"].as_str().unwrap().to_owned());
    }
}

async fn twenty() {
    let mut broker = Mosquitto::open();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    reach(&publisher, BrokerState::is_online).await;
    // The same in every run; what differs is when it hits us.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 100..120 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let some = Duration::from_millis((random >> 32) % 1000);
        match round % 3 {
            0 => {
                broker.kill();
                // Longer than we wait: a broker back at once, three times, would look like a rival with our id.
                sleep(Duration::from_millis(3000) + some).await;
                count(&publisher, round);
                broker.restart();
            }
            1 => {
                broker.signal("TERM");
                count(&publisher, round);
                sleep(some).await;
                broker.restart();
            }
            _ => {
                broker.signal("STOP");
                count(&publisher, round);
                sleep(2 * some).await;
                broker.signal("CONT");
            }
        }
        all_is_right(&broker, &publisher, round).await;
    }
}

/// The sockets stay open and nothing comes: nobody but we can notice.
async fn frozen() {
    let mut broker = Mosquitto::open();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    reach(&publisher, BrokerState::is_online).await;
    broker.signal("STOP");
    let since = Instant::now();
    let is_away = |state: &BrokerState| matches!(state, BrokerState::Backoff { .. });
    let state = reach(&publisher, is_away).await;
    assert!(
        state.trouble().unwrap().contains("said nothing"),
        "{state:?}"
    );
    let noticed = since.elapsed();
    // 25 s are promised; the rest is for a machine that is busy with other tests.
    assert!(noticed < Duration::from_secs(35), "{noticed:?}");
    count(&publisher, 9);
    broker.signal("CONT");
    let state = reach(&publisher, BrokerState::is_online).await;
    assert_eq!(state, BrokerState::Online { protocol: "5" });
    all_is_right(&broker, &publisher, 9).await;
}

async fn down_at_start() {
    let mut broker = Mosquitto::open();
    broker.kill();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    reach(&publisher, |state| {
        matches!(state, BrokerState::Backoff { .. })
    })
    .await;
    broker.restart();
    reach(&publisher, BrokerState::is_online).await;
    all_is_right(&broker, &publisher, 2).await;
}
