//! Inbound messages, from a scripted broker.
//!
//! Faults: B28.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{join, sync::mpsc, time::timeout};

use super::{
    PATIENCE, STATUS, away, mqtt,
    scripted::{broker, start},
    start_quick, until,
};
use crate::{AwayCause, BrokerState, Inbound, ReplyTo};
use spotter_core::ManualClock;
use spotter_scripted::broker::{
    ScriptedBroker,
    codec::{self, ClientPacket, Publish},
};

const COMMANDS: &str = "spotter/edge1/cam/+/+/set";

fn command(payload: &str) -> Publish {
    Publish {
        topic: "spotter/edge1/cam/gate/rate/set".into(),
        payload: payload.into(),
        qos: 1,
        id: 7,
        ..Publish::default()
    }
}

async fn next(inbox: &mut mpsc::Receiver<Inbound>) -> Inbound {
    timeout(PATIENCE, inbox.recv())
        .await
        .expect("a command")
        .unwrap()
}

fn subscriptions(broker: &ScriptedBroker, connection: usize) -> Vec<(String, u8)> {
    let mut found = Vec::new();
    for got in broker.got() {
        if let ClientPacket::Subscribe { filters, .. } = got.packet
            && got.connection == connection
        {
            assert!(filters.iter().all(|filter| filter.qos == 1));
            found.extend(filters.into_iter().map(|f| (f.name, f.retain_handling)));
        }
    }
    found
}

#[tokio::test]
async fn commands_come_in_and_nothing_that_comes_in_ends_us() {
    join!(
        commands(false),
        commands(true),
        too_many_commands(),
        oversized(false),
        oversized(true),
        malformed(),
        topics_of_triggers(false),
        topics_of_triggers(true),
    );
}

/// Of the last connection, with the options of the subscription.
async fn until_subscribed(broker: &ScriptedBroker, connection: usize, expected: &[(&str, u8)]) {
    let expected: Vec<(String, u8)> = expected
        .iter()
        .map(|(f, h)| ((*f).to_owned(), *h))
        .collect();
    broker
        .until("subscriptions", |b| {
            subscriptions(b, connection) == expected
        })
        .await;
}

async fn topics_of_triggers(is_old: bool) {
    let (bell, pir) = ("zigbee2mqtt/bell", "zigbee2mqtt/pir");
    let broker = broker(|script| {
        script.is_old = is_old;
        script.refused_filters = vec![pir.into()];
    })
    .await;
    let publisher = start(&broker);
    let mut inbox = publisher.take_inbound().unwrap();
    publisher.listen(vec![COMMANDS.into()]);
    let none = BTreeSet::new();
    publisher.listen_to_triggers(vec![bell.into(), pir.into()], &none);
    broker.until_retained(STATUS, "online").await;
    let commands = if is_old { 0 } else { 2 };
    let mut all = vec![
        (STATUS, commands),
        (COMMANDS, commands),
        (bell, 0),
        (pir, 0),
    ];
    let connection = broker.got().last().unwrap().connection;
    until_subscribed(&broker, connection, &all).await;
    until("the rejected topic is known", || {
        publisher.rejected_filters().iter().eq([pir])
    })
    .await;
    let ring = Publish {
        topic: bell.into(),
        ..command("ring")
    };
    broker.say(&ring);
    assert_eq!(next(&mut inbox).await.topic, bell);

    // The commands stay as they are.
    publisher.listen_to_triggers(vec![bell.into()], &none);
    until("no topic is rejected", || {
        publisher.rejected_filters().is_empty()
    })
    .await;
    // A repeated subscription, for the retained message.
    publisher.listen_to_triggers(vec![bell.into()], &none);
    publisher.listen_to_triggers(vec![bell.into()], &[bell.to_owned()].into());
    let mut with_repeated = all.clone();
    with_repeated.push((bell, 0));
    until_subscribed(&broker, connection, &with_repeated).await;
    broker.cut();
    away(&publisher, "").await;
    broker.forget();
    broker.until_retained(STATUS, "online").await;
    all.pop();
    let last = broker.got().last().unwrap().connection;
    until_subscribed(&broker, last, &all).await;
}

async fn commands(is_old: bool) {
    let broker = broker(|script| {
        script.is_old = is_old;
        script.refused_filters = vec!["spotter/edge1/cmd".into()];
    })
    .await;
    let publisher = start(&broker);
    let mut inbox = publisher.take_inbound().unwrap();
    assert!(publisher.take_inbound().is_none());
    publisher.listen(vec![COMMANDS.into(), "spotter/edge1/cmd".into()]);
    broker.until_retained(STATUS, "online").await;
    let handling = if is_old { 0 } else { 2 };
    let expected = [STATUS, COMMANDS, "spotter/edge1/cmd"].map(|f| (f.to_owned(), handling));
    let connection = broker.got().last().unwrap().connection;
    broker
        .until("subscriptions", |b| subscriptions(b, connection).len() == 3)
        .await;
    assert_eq!(subscriptions(&broker, connection), expected);

    let asked = Publish {
        response_topic: Some("answers/here".into()),
        correlation: Some(vec![0, 1, 0xff]),
        ..command("0.5")
    };
    broker.say(&asked);
    let reply_to = ReplyTo {
        topic: "answers/here".into(),
        correlation: Some(vec![0, 1, 0xff]),
    };
    let inbound = next(&mut inbox).await;
    assert_eq!(inbound.reply_to, (!is_old).then_some(reply_to));
    assert!(inbound.payload == b"0.5" && !inbound.retained);
    broker.say(&Publish {
        retain: true,
        ..command("2")
    });
    assert!(next(&mut inbox).await.retained);

    publisher.listen(vec![COMMANDS.into(), "homeassistant/status".into()]);
    broker
        .until("a filter given up", |broker| {
            let given_up = |packet: &ClientPacket| {
                matches!(packet, ClientPacket::Unsubscribe { filters, .. } if filters == &["spotter/edge1/cmd"])
            };
            broker.got().iter().any(|got| given_up(&got.packet))
                && subscriptions(broker, connection).len() == 4
        })
        .await;
    broker.cut();
    away(&publisher, "").await;
    broker.forget();
    broker.until_retained(STATUS, "online").await;
    let last = broker.got().last().unwrap().connection;
    let expected = [STATUS, "homeassistant/status", COMMANDS].map(|f| (f.to_owned(), handling));
    assert_eq!(subscriptions(&broker, last), expected);
}

async fn too_many_commands() {
    let broker = broker(|_| {}).await;
    let publisher = start(&broker);
    let mut inbox = publisher.take_inbound().unwrap();
    publisher.listen(vec![COMMANDS.into()]);
    broker.until_retained(STATUS, "online").await;
    for number in 0..100 {
        broker.say(&Publish {
            qos: 0,
            ..command(&number.to_string())
        });
        // The scripted broker receives its orders through a bounded channel.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until("36 are dropped", || {
        publisher.counters().inbound_dropped >= 36
    })
    .await;
    for number in 0..64 {
        let inbound = next(&mut inbox).await;
        assert_eq!(inbound.payload, number.to_string().into_bytes());
    }
    broker.say(&command("last"));
    assert_eq!(next(&mut inbox).await.payload, b"last");
    assert_eq!(broker.connects().len(), 1);
}

async fn oversized(is_old: bool) {
    let broker = broker(|script| script.is_old = is_old).await;
    let publisher = start(&broker);
    publisher.listen(vec![COMMANDS.into()]);
    broker.until_retained(STATUS, "online").await;
    // The message is retained, so an old broker would send it after every subscription.
    broker.say(&Publish {
        retain: true,
        ..command(&"x".repeat(600 * 1024))
    });
    away(&publisher, "larger than 512 KiB").await;
    // The scripted broker does not retain it: the next connection subscribes to all topics again.
    broker.forget();
    broker.until_retained(STATUS, "online").await;
    let last = broker.got().last().unwrap().connection;
    broker
        .until("both subscriptions", |b| subscriptions(b, last).len() == 2)
        .await;
}

async fn malformed() {
    // A packet type that does not exist, a length without end, a topic that is no text, a message id of 0.
    let packets = [
        vec![0xf7, 0],
        vec![0x30, 0xff, 0xff, 0xff, 0xff, 0xff],
        codec::packet(0x30, vec![0, 2, 0xff, 0xfe, 0, b'x']),
        codec::packet(0x32, vec![0, 1, b'a', 0, 0, 0, b'x']),
    ];
    for packet in packets {
        let broker = broker(|script| script.greeting = packet.clone()).await;
        let clock = ManualClock::default();
        let (publisher, _task) = start_quick(&mqtt(broker.port), Arc::new(clock.clone()));
        // More connections than the three quick closes after which the publisher suspects another client with its id.
        while broker.connects().len() < 5 {
            clock.advance(Duration::from_millis(50));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let state = publisher.state().borrow().clone();
        let is_over = matches!(
            state,
            BrokerState::Away {
                cause: AwayCause::TakenOver,
                ..
            }
        );
        assert!(!is_over, "{packet:?}");
        broker.script(|script| script.greeting.clear());
        clock.advance(Duration::from_secs(70));
        broker.until_retained(STATUS, "online").await;
    }
}
