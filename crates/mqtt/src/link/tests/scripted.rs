//! Against a broker with scripted faults. Scenarios wait most of the time, so several run at once.
//!
//! Faults: B13.

use std::{sync::Arc, time::Duration};

use tokio::{
    join,
    time::{sleep, timeout},
};

use super::{
    COUNT, INFO, PATIENCE, STATUS, away, away_by, mqtt, online, publish_states, start_at,
    start_quick, until,
};
use crate::{
    AwayCause, BrokerState, Publisher,
    testing::{count, detected, state_of},
};
use spotter_core::{ManualClock, PromptState, SystemClock};
use spotter_scripted::broker::{
    Acknowledges, BrokerScript, OldAnswer, ScriptedBroker,
    codec::{self, ClientPacket, Term},
};

/// The default script, changed by `change`.
pub(super) fn script(change: impl FnOnce(&mut BrokerScript)) -> BrokerScript {
    let mut script = BrokerScript::default();
    change(&mut script);
    script
}

/// A broker with the default script, changed by `change`.
pub(super) async fn broker(change: impl FnOnce(&mut BrokerScript)) -> ScriptedBroker {
    ScriptedBroker::start(script(change)).await
}

/// A publisher with states, on real time.
pub(super) fn start(broker: &ScriptedBroker) -> Publisher {
    let (publisher, _) = super::start(&mqtt(broker.port));
    publish_states(&publisher);
    publisher
}

/// A publisher that is online and whose clock does not move.
async fn start_at_rest(broker: &ScriptedBroker) -> (Publisher, ManualClock) {
    let clock = ManualClock::default();
    let (publisher, _) = start_at(&mqtt(broker.port), Arc::new(clock.clone()));
    publish_states(&publisher);
    // An old broker accepts the second attempt, after a pause.
    advance_until(&clock, || publisher.state().borrow().is_online()).await;
    (publisher, clock)
}

/// Advances the clock in steps until `is_so` returns true.
async fn advance_until(clock: &ManualClock, is_so: impl Fn() -> bool) {
    let mut steps = 0;
    while !is_so() {
        steps += 1;
        assert!(steps < 600, "not online");
        clock.advance(Duration::from_millis(100));
        sleep(Duration::from_millis(50)).await;
    }
}

/// Advances the clock until the broker has all states.
pub(super) async fn comes_back(broker: &ScriptedBroker, clock: &ManualClock) {
    advance_until(clock, || {
        broker.retained(STATUS).as_deref() == Some("online")
    })
    .await;
}

// Faults: B11.
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
    let terms = vec![Term::PacketMax(240), Term::TopicAliasMax(0)];
    let broker = broker(|script| script.terms = terms).await;
    let publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    broker.until_retained(COUNT, "2").await;
    // The birth message and the camera's health are larger than that.
    assert_eq!(publisher.counters().states_declined, 2);
    publisher.publish(count(3));
    broker.until_retained(COUNT, "3").await;
    assert_eq!(broker.connects().len(), 1, "the connection was closed");
    // The publisher did not send them again.
    assert_eq!(publisher.counters().states_declined, 2);
}

async fn few_at_a_time() {
    let broker = broker(|script| {
        script.terms = vec![Term::ReceiveMax(2)];
        script.acknowledges = Acknowledges::Late(Duration::from_millis(50));
    })
    .await;
    let _publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    assert_eq!(broker.unanswered_max(), 2);
}

async fn no_retained_messages() {
    let broker = broker(|script| {
        script.terms = vec![Term::KeepsNothing];
        script.refuses_retained_wills = true;
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
    let connects = broker.connects();
    let wills: Vec<_> = connects.iter().map(|c| c.will_retained).collect();
    assert_eq!(wills, [true, false]);
    online(&publisher).await;
}

async fn its_keep_alive() {
    let broker = broker(|script| script.terms = vec![Term::KeepAlive(1)]).await;
    let _publisher = start(&broker);
    let has_ping = |broker: &ScriptedBroker| {
        let got = broker.got();
        got.iter().any(|got| got.packet == ClientPacket::Ping)
    };
    broker.until("a ping", has_ping).await;
}

// Faults: B12.
#[tokio::test]
async fn three_answers_to_a_message_have_three_meanings() {
    join!(refused(), never_answered(), answered_late());
}

async fn refused() {
    let not_authorized = Acknowledges::With(0x87);
    let broker = broker(|script| script.acknowledges = not_authorized).await;
    let publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    until("all are declined", || {
        publisher.counters().states_declined == 7
    })
    .await;
    let sent = broker.messages().len();
    assert_eq!((publisher.counters().states_acked, sent), (0, 7));
    broker.script(|script| script.acknowledges = Acknowledges::Always);
    publisher.publish(count(3));
    broker.until_retained(COUNT, "3").await;
    // Only what changed is sent again.
    assert_eq!(broker.messages().len(), 8);
    assert_eq!(broker.connects().len(), 1);
}

async fn never_answered() {
    for is_old in [false, true] {
        let broker = broker(|script| {
            script.acknowledges = Acknowledges::Never;
            script.is_old = is_old;
        })
        .await;
        let (publisher, clock) = start_at_rest(&broker).await;
        broker.until_retained(STATUS, "online").await;
        let mut inbox = publisher.take_inbound().unwrap();
        // The broker sends messages. It may still not have those that it does not acknowledge.
        for _ in 0..3 {
            clock.advance(Duration::from_secs(10));
            broker.say(&codec::Publish {
                topic: "spotter/edge1/cam/gate/rate/set".into(),
                payload: "1".into(),
                ..codec::Publish::default()
            });
            // The publisher reads it before the clock advances again.
            timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
        }
        away(&publisher, "has not acknowledged").await;
        broker.script(|script| script.acknowledges = Acknowledges::Always);
        broker.forget();
        comes_back(&broker, &clock).await;
        broker.until_retained(COUNT, "2").await;
    }
}

async fn answered_late() {
    let late = Acknowledges::Late(Duration::from_secs(2));
    let broker = broker(|script| script.acknowledges = late).await;
    let publisher = start(&broker);
    broker.until_retained(STATUS, "online").await;
    until("all are acknowledged", || {
        publisher.counters().states_acked >= 7
    })
    .await;
    assert_eq!(broker.messages().len(), 7, "nothing is sent twice");
}

// Faults: B3.
#[tokio::test]
async fn silent_broker_is_disconnected_and_slow_reader_is_kept() {
    join!(
        silent(false, false),
        silent(true, false),
        silent(false, true),
        slow()
    );
}

/// `stuffed`: the socket is full as well, so the client library does not reach its timer.
async fn silent(is_old: bool, stuffed: bool) {
    let broker = broker(|script| script.is_old = is_old).await;
    let (publisher, clock) = start_at_rest(&broker).await;
    broker.until_retained(STATUS, "online").await;
    online(&publisher).await;
    broker.script(|script| script.is_half_open = true);
    for prompt in 0..16 {
        answer(&publisher, prompt, if stuffed { 480 * 1024 } else { 1 });
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
        assert!(looks < 3000, "the silence is noticed after 25 s");
        // A new state wakes the publisher's task.
        publisher.publish(count(passed));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(passed >= 15, "{passed} s are too short");
    away(&publisher, "silent for 25 s").await;
    broker.forget();
    broker.script(|script| script.is_half_open = false);
    comes_back(&broker, &clock).await;
    broker.until_retained(COUNT, &passed.to_string()).await;
}

async fn slow() {
    let slowly = (2048, Duration::from_millis(20));
    let broker = broker(|script| script.reads_slowly = Some(slowly)).await;
    let publisher = start(&broker);
    online(&publisher).await;
    // 400 KB at 100 KB/s.
    for prompt in 0..20 {
        answer(&publisher, prompt, 20 * 1024);
        publisher.publish(detected("gate"));
    }
    publisher.publish(count(9));
    broker.until_retained(COUNT, "9").await;
    broker.until_retained(STATUS, "online").await;
    assert_eq!(broker.connects().len(), 1);
}

fn answer(publisher: &Publisher, prompt: usize, bytes: usize) {
    let text = PromptState::Answer(Some("x".repeat(bytes)));
    publisher.publish(state_of("gate", &format!("p{prompt}"), text));
}

// Faults: B14.
#[tokio::test]
async fn a_cut_anywhere_ends_with_every_state_right() {
    let mut tasks = tokio::task::JoinSet::new();
    let read = [1, 4, 30, 90, 140, 200, 500, 900].map(|bytes| (Some(bytes), None));
    let written = [1, 3, 4, 6, 9, 13, 20].map(|bytes| (None, Some(bytes)));
    for is_old in [false, true] {
        for (cut_after_read, cut_after_written) in read.into_iter().chain(written) {
            tasks.spawn(cut(BrokerScript {
                is_old,
                cut_after_read,
                cut_after_written,
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
    away(&publisher, "").await;
    broker.forget();
    broker.script(|script| (script.cut_after_read, script.cut_after_written) = (None, None));
    broker.until_retained(STATUS, "online").await;
    broker.until_retained(COUNT, "2").await;
    assert!(broker.retained(INFO).is_some());
}

async fn old(old_answer: OldAnswer) {
    let broker = broker(|script| {
        script.is_old = true;
        script.old_answer = old_answer;
    })
    .await;
    let (publisher, _task) = start_quick(&mqtt(broker.port), Arc::new(SystemClock::new()));
    let state = online(&publisher).await;
    assert_eq!(state, BrokerState::Online { protocol: "3.1.1" });
    let levels: Vec<u8> = broker.connects().iter().map(|one| one.level).collect();
    assert_eq!(levels, [5, 4], "{old_answer:?}");
}

// Faults: B17.
#[tokio::test]
async fn old_broker_is_found_however_it_answers_mqtt_5() {
    join!(
        old(OldAnswer::Refusal),
        old(OldAnswer::RefusalOf5),
        old(OldAnswer::Acceptance),
        old(OldAnswer::Nothing)
    );
}

// Faults: B16.
#[tokio::test]
async fn a_rival_is_named_and_tried_once_a_minute() {
    let says_so = broker(|_| {}).await;
    let silent = broker(|script| script.is_old = true).await;
    join!(
        taken_over(&says_so, || says_so.say_raw(codec::disconnect(0x8e)), 1),
        taken_over(&silent, || silent.cut(), 3),
    );
}

/// `kick` ends the session as if another client took it. The publisher notices the other client after `times` kicks.
async fn taken_over(broker: &ScriptedBroker, kick: impl Fn(), times: u64) {
    let (publisher, clock) = start_at_rest(broker).await;
    for time in 1..=times {
        online(&publisher).await;
        broker.until_retained(STATUS, "online").await;
        until("all are acknowledged", || {
            publisher.counters().states_acked >= 7 * time
        })
        .await;
        kick();
        if time < times {
            away(&publisher, "").await;
            broker.forget();
            clock.advance(Duration::from_secs(8));
        }
    }
    let reason = away_by(&publisher, AwayCause::TakenOver).await;
    assert!(reason.contains("another client has our id"));
    let connects = broker.connects().len();
    clock.advance(Duration::from_secs(59));
    two_turns(&publisher).await;
    assert_eq!(broker.connects().len(), connects);
    clock.advance(Duration::from_secs(2));
    online(&publisher).await;
}

/// The publisher's task reads the clock at each turn.
pub(super) async fn two_turns(publisher: &Publisher) {
    let turns = publisher.progress() + 2;
    until("two turns", || publisher.progress() >= turns).await;
}

// Faults: B15.
#[tokio::test]
async fn a_restart_that_forgets_and_a_refusal_that_passes() {
    join!(forgetful(), busy());
}

async fn forgetful() {
    for is_old in [false, true] {
        let broker = broker(|script| script.is_old = is_old).await;
        let publisher = start(&broker);
        broker.until_retained(STATUS, "online").await;
        broker.cut();
        away(&publisher, "").await;
        broker.forget();
        broker.until_retained(STATUS, "online").await;
        for topic in ["info", "config", "cam/gate/status", "cam/gate/health"] {
            let topic = format!("spotter/edge1/{topic}");
            assert!(broker.retained(&topic).is_some(), "{topic}");
        }
    }
}

async fn busy() {
    let broker = broker(|script| script.connack = 0x89).await;
    let publisher = start(&broker);
    away(&publisher, "ServerBusy").await;
    broker.script(|script| script.connack = 0);
    online(&publisher).await;
}
