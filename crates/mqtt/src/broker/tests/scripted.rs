//! Against a broker with scripted faults. Scenarios wait most of the time, so several run at once.

use std::{sync::Arc, time::Duration};

use tokio::{join, time::timeout};

use super::{ConnectionTiming, PATIENCE, identity, mqtt, publish_states, reach};
use crate::{
    BrokerState, Publisher, Update,
    detection::tests::detection,
    outbox::{DeliveryOptions, Ticket},
    target::ConnectionTarget,
};
use spotter_core::{CameraId, ManualClock, PromptId, SystemClock};
use spotter_scripted::broker::{
    Acknowledges, BrokerScript, ScriptedBroker,
    codec::{self, ClientPacket, Term},
};

pub(super) const STATUS: &str = "spotter/edge1/status";
const COUNT: &str = "spotter/edge1/cam/gate/count/person";

/// A publisher with states, on real time.
pub(super) fn start(broker: &ScriptedBroker) -> Publisher {
    let clock = Arc::new(SystemClock::new());
    let (publisher, _) = Publisher::start(&mqtt(broker.port), None, &identity(), clock).unwrap();
    publish_states(&publisher);
    publisher
}

/// A publisher that is online and whose clock does not move.
pub(super) async fn start_at_rest(broker: &ScriptedBroker) -> (Publisher, ManualClock) {
    let clock = ManualClock::default();
    let shared = Arc::new(clock.clone());
    let (publisher, _) = Publisher::start(&mqtt(broker.port), None, &identity(), shared).unwrap();
    publish_states(&publisher);
    // An old broker accepts the second attempt, after a pause.
    let mut passed = 0;
    while !publisher.state().borrow().is_online() {
        passed += 1;
        assert!(passed < 600, "not online");
        clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (publisher, clock)
}

/// Advances the clock until the broker has all states.
pub(super) async fn comes_back(broker: &ScriptedBroker, clock: &ManualClock) {
    let mut passed = 0;
    while broker.retained(STATUS).as_deref() != Some("online") {
        passed += 1;
        assert!(passed < 600, "not reconnected: {:?}", broker.connects());
        clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn count(publisher: &Publisher, count: u32) {
    publisher.publish(Update::State {
        camera: CameraId::new("gate").unwrap(),
        prompt: PromptId::new("person").unwrap(),
        state: spotter_core::PromptState::Count(Some(count)),
    });
}

pub(super) async fn online(publisher: &Publisher) -> BrokerState {
    reach(publisher, BrokerState::is_online).await
}

pub(super) async fn away(publisher: &Publisher) -> String {
    let is_away = |state: &BrokerState| matches!(state, BrokerState::Backoff { .. });
    let state = reach(publisher, is_away).await;
    state.trouble().unwrap().to_owned()
}

pub(super) fn old() -> BrokerScript {
    BrokerScript {
        is_old: true,
        ..BrokerScript::default()
    }
}

#[tokio::test]
async fn announced_broker_limits_are_respected() {
    join!(
        tiny_packets(),
        few_at_a_time(),
        no_retained_messages(),
        its_keep_alive()
    );
}

async fn tiny_packets() {
    let terms = vec![Term::PacketMax(160), Term::TopicAliasMax(0)];
    let broker = ScriptedBroker::start(BrokerScript {
        terms,
        ..BrokerScript::default()
    })
    .await;
    let publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    broker.until_retained(COUNT, "2").await;
    // The birth message and the camera's health are larger than 160 bytes.
    assert_eq!(publisher.counters().states_declined, 2);
    count(&publisher, 3);
    broker.until_retained(COUNT, "3").await;
    assert_eq!(broker.connects().len(), 1, "the connection was closed");
    assert_eq!(
        publisher.counters().states_declined,
        2,
        "the publisher sent them again"
    );
}

async fn few_at_a_time() {
    let broker = ScriptedBroker::start(BrokerScript {
        terms: vec![Term::ReceiveMax(2)],
        acknowledges: Acknowledges::Late(Duration::from_millis(50)),
        ..BrokerScript::default()
    })
    .await;
    let _publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    assert_eq!(broker.unanswered_max(), 2);
}

async fn no_retained_messages() {
    let broker = ScriptedBroker::start(BrokerScript {
        terms: vec![Term::KeepsNothing],
        refuses_retained_wills: true,
        ..BrokerScript::default()
    })
    .await;
    let publisher = start(&broker);
    broker
        .until("online, not retained", |broker| {
            let messages = broker.messages();
            let last = messages.iter().find(|message| message.topic == STATUS);
            last.is_some_and(|status| !status.retain && status.qos == 1)
        })
        .await;
    let wills: Vec<_> = broker.connects();
    let wills: Vec<_> = wills.iter().map(|connect| connect.will_retained).collect();
    assert_eq!(wills, [true, false]);
    online(&publisher).await;
}

async fn its_keep_alive() {
    let broker = ScriptedBroker::start(BrokerScript {
        terms: vec![Term::KeepAlive(1)],
        ..BrokerScript::default()
    })
    .await;
    let _publisher = start(&broker);
    broker
        .until("a ping", |broker| {
            broker
                .got()
                .iter()
                .any(|got| got.packet == ClientPacket::Ping)
        })
        .await;
}

#[tokio::test]
async fn three_answers_to_a_message_have_three_meanings() {
    join!(refused(), never_answered(), answered_late());
}

async fn refused() {
    let not_authorized = BrokerScript {
        acknowledges: Acknowledges::With(0x87),
        ..BrokerScript::default()
    };
    let broker = ScriptedBroker::start(not_authorized).await;
    let publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    let mut sent = broker.messages().len();
    timeout(PATIENCE, async {
        while publisher.counters().states_declined < sent as u64 {
            tokio::task::yield_now().await;
            sent = broker.messages().len();
        }
    })
    .await
    .unwrap();
    assert_eq!((publisher.counters().states_acked, sent), (0, 7));
    broker.script(|script| script.acknowledges = Acknowledges::Always);
    count(&publisher, 3);
    broker.until_retained(COUNT, "3").await;
    assert_eq!(
        broker.messages().len(),
        8,
        "only what changed is sent again"
    );
    assert_eq!(broker.connects().len(), 1);
}

async fn never_answered() {
    for script in [BrokerScript::default(), old()] {
        let broker = ScriptedBroker::start(BrokerScript {
            acknowledges: Acknowledges::Never,
            ..script
        })
        .await;
        let (publisher, clock) = start_at_rest(&broker).await;
        broker.until_retained(STATUS, "online").await;
        // The broker answers pings. It may still not have the messages that it does not acknowledge.
        for _ in 0..3 {
            clock.advance(Duration::from_secs(10));
            broker.say_raw(vec![0xd0, 0]);
            // The publisher reads it before the clock advances again.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let reason = away(&publisher).await;
        assert!(reason.contains("has not acknowledged"), "{reason}");
        broker.script(|script| script.acknowledges = Acknowledges::Always);
        broker.forget();
        comes_back(&broker, &clock).await;
        broker.until_retained(COUNT, "2").await;
    }
}

async fn answered_late() {
    let broker = ScriptedBroker::start(BrokerScript {
        acknowledges: Acknowledges::Late(Duration::from_secs(2)),
        ..BrokerScript::default()
    })
    .await;
    let publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    timeout(PATIENCE, async {
        while publisher.counters().states_acked < 7 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(broker.messages().len(), 7, "nothing is sent twice");
}

#[tokio::test]
async fn silent_broker_is_disconnected_and_slow_reader_is_kept() {
    join!(
        silent(BrokerScript::default(), false),
        silent(old(), false),
        silent(BrokerScript::default(), true),
        slow()
    );
}

/// `stuffed`: the socket is full as well, so the client library does not reach its timer.
async fn silent(script: BrokerScript, stuffed: bool) {
    let broker = ScriptedBroker::start(script).await;
    let (publisher, clock) = start_at_rest(&broker).await;
    broker.until_retained(STATUS, "online").await;
    online(&publisher).await;
    broker.script(|script| script.is_half_open = true);
    for prompt in 0..16 {
        let text = "x".repeat(if stuffed { 480 * 1024 } else { 1 });
        publisher.publish(Update::State {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new(&format!("p{prompt}")).unwrap(),
            state: spotter_core::PromptState::Answer(Some(text)),
        });
    }
    let (mut passed, mut looks) = (0, 0);
    while publisher.state().borrow().is_online() {
        // The publisher must close 25 s after the broker's last packet, which may arrive shortly after this loop starts. After
        // 28 s the clock stops, and the loop only waits for a slow machine.
        if passed < 28 {
            clock.advance(Duration::from_secs(1));
            passed += 1;
        }
        looks += 1;
        assert!(
            looks < 3000,
            "the publisher must notice the silence after 25 s"
        );
        // A new state wakes the publisher's task.
        count(&publisher, passed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(passed >= 15, "{passed} s are too short");
    let reason = away(&publisher).await;
    assert!(reason.contains("silent for 25 s"), "{reason}");
    broker.forget();
    broker.script(|script| script.is_half_open = false);
    comes_back(&broker, &clock).await;
    broker.until_retained(COUNT, &passed.to_string()).await;
}

async fn slow() {
    let broker = ScriptedBroker::start(BrokerScript {
        reads_slowly: Some((2048, Duration::from_millis(20))),
        ..BrokerScript::default()
    })
    .await;
    let publisher = start(&broker);
    online(&publisher).await;
    // 400 KB at 100 KB/s.
    for prompt in 0..20 {
        publisher.publish(Update::State {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new(&format!("p{prompt}")).unwrap(),
            state: spotter_core::PromptState::Answer(Some("x".repeat(20 * 1024))),
        });
        publisher.publish(Update::Detection(Box::new(detection("gate"))));
    }
    count(&publisher, 9);
    broker.until_retained(COUNT, "9").await;
    broker.until_retained(STATUS, "online").await;
    assert_eq!(broker.connects().len(), 1);
}

#[tokio::test]
async fn a_cut_anywhere_ends_with_every_state_right() {
    let mut tasks = tokio::task::JoinSet::new();
    for is_old in [false, true] {
        for bytes in [1, 4, 30, 90, 140, 200, 500, 900] {
            tasks.spawn(cut(BrokerScript {
                is_old,
                cut_after_read: Some(bytes),
                ..BrokerScript::default()
            }));
        }
        for bytes in [1, 3, 4, 6, 9, 13, 20] {
            tasks.spawn(cut(BrokerScript {
                is_old,
                cut_after_written: Some(bytes),
                ..BrokerScript::default()
            }));
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn cut(script: BrokerScript) {
    let broker = ScriptedBroker::start(script).await;
    let publisher = start(&broker);
    away(&publisher).await;
    broker.forget();
    broker.script(|script| (script.cut_after_read, script.cut_after_written) = (None, None));
    broker.until_retained(STATUS, "online").await;
    broker.until_retained(COUNT, "2").await;
    assert!(broker.retained("spotter/edge1/info").is_some());
}

#[tokio::test]
async fn a_rival_is_named_and_tried_once_a_minute() {
    let says_so = ScriptedBroker::start(BrokerScript::default()).await;
    let silent = ScriptedBroker::start(old()).await;
    join!(
        taken_over(&says_so, || says_so.say_raw(codec::disconnect(0x8e)), 1),
        taken_over(&silent, || silent.cut(), 3),
    );
}

/// `kick` ends the session as if another client took it. The publisher notices the other client after `times` kicks.
async fn taken_over(broker: &ScriptedBroker, kick: impl Fn(), times: usize) {
    let (publisher, clock) = start_at_rest(broker).await;
    for time in 1..=times {
        online(&publisher).await;
        broker.until_retained(STATUS, "online").await;
        while publisher.counters().states_acked < 7 * time as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        kick();
        if time < times {
            away(&publisher).await;
            broker.forget();
            clock.advance(Duration::from_secs(8));
        }
    }
    let is_over = |state: &BrokerState| matches!(state, BrokerState::TakenOver { .. });
    let state = reach(&publisher, is_over).await;
    assert!(
        state
            .trouble()
            .unwrap()
            .contains("another client has our id")
    );
    let connects = broker.connects().len();
    clock.advance(Duration::from_secs(59));
    let moved = publisher.progress();
    // The task reads the clock at each turn.
    while publisher.progress() < moved + 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(broker.connects().len(), connects);
    clock.advance(Duration::from_secs(2));
    online(&publisher).await;
}

#[tokio::test]
async fn a_restart_that_forgets_and_a_refusal_that_passes() {
    join!(forgetful(), busy());
}

async fn forgetful() {
    for script in [BrokerScript::default(), old()] {
        let broker = ScriptedBroker::start(script).await;
        let publisher = start(&broker);
        broker.until_retained(STATUS, "online").await;
        broker.cut();
        away(&publisher).await;
        broker.forget();
        broker.until_retained(STATUS, "online").await;
        for topic in ["info", "config", "cam/gate/status", "cam/gate/health"] {
            let topic = format!("spotter/edge1/{topic}");
            assert!(broker.retained(&topic).is_some(), "{topic}");
        }
    }
}

async fn busy() {
    let broker = ScriptedBroker::start(BrokerScript {
        connack: 0x89,
        ..BrokerScript::default()
    })
    .await;
    let publisher = start(&broker);
    let reason = away(&publisher).await;
    assert!(reason.contains("ServerBusy"), "{reason}");
    broker.script(|script| script.connack = 0);
    online(&publisher).await;
}

#[tokio::test]
async fn reply_carries_the_correlation_data_of_its_request() {
    use super::super::{
        link::{self, ConnectionEvent},
        policy::Protocol,
    };
    let broker = ScriptedBroker::start(BrokerScript::default()).await;
    let timing = ConnectionTiming::default();
    let target = ConnectionTarget::new(&mqtt(broker.port), &identity(), timing).unwrap();
    let (sender, mut events) = link::open(&target, None, Protocol::V5, true);
    let delivery = DeliveryOptions {
        ticket: Some(Ticket(1)),
        correlation: Some([0, 1, 0xff].into()),
        ..DeliveryOptions::default()
    };
    let notice = sender
        .publish("answers/here", b"{}".to_vec(), &delivery)
        .unwrap();
    assert!(notice.is_some());
    while events.next().await.unwrap() != ConnectionEvent::Sent {}
    broker
        .until("an answer", |b| !b.messages().is_empty())
        .await;
    let answer = &broker.messages()[0];
    assert_eq!(
        (answer.topic.as_str(), answer.retain),
        ("answers/here", false)
    );
    assert_eq!(answer.correlation, Some(vec![0, 1, 0xff]));
}
