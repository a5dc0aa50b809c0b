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
use crate::{Inbound, ReplyTo, Update};
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
        commands_and_triggers(false),
        commands_and_triggers(true),
        too_many_commands(),
        oversized(false),
        oversized(true),
        malformed(),
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

async fn commands_and_triggers(is_old: bool) {
    let (bell, pir, cmd) = ("zigbee2mqtt/bell", "zigbee2mqtt/pir", "spotter/edge1/cmd");
    let broker = broker(|script| {
        script.is_old = is_old;
        script.refused_filters = vec![pir.into(), cmd.into()];
    })
    .await;
    let publisher = start(&broker);
    let mut inbox = publisher.take_inbound().unwrap();
    assert!(publisher.take_inbound().is_none());
    let none = BTreeSet::new();
    publisher.listen(vec![COMMANDS.into(), cmd.into()]);
    publisher.listen_to_triggers(vec![bell.into(), pir.into()], &none);
    broker.until_retained(STATUS, "online").await;
    let handling = if is_old { 0 } else { 2 };
    let commands = [STATUS, COMMANDS, cmd].map(|filter| (filter, handling));
    let mut all = commands.to_vec();
    all.extend([(bell, 0), (pir, 0)]);
    let connection = broker.got().last().unwrap().connection;
    until_subscribed(&broker, connection, &all).await;
    until("the rejected topics are known", || {
        publisher.rejected_filters().iter().eq([cmd, pir])
    })
    .await;

    let ring = Publish {
        topic: bell.into(),
        ..command("ring")
    };
    broker.say(&ring);
    assert_eq!(next(&mut inbox).await.topic, bell);
    let reply_to = ReplyTo {
        topic: "answers/here".into(),
        correlation: Some(vec![0, 1, 0xff]),
    };
    broker.say(&Publish {
        response_topic: Some(reply_to.topic.clone()),
        correlation: reply_to.correlation.clone(),
        ..command("0.5")
    });
    let inbound = next(&mut inbox).await;
    assert_eq!(inbound.reply_to, (!is_old).then(|| reply_to.clone()));
    assert!(inbound.payload == b"0.5" && !inbound.retained);
    let (to, payload) = (Some(reply_to.clone()), b"{}".to_vec());
    publisher.publish(Update::Reply { to, payload });
    let is_reply = |message: &&Publish| message.topic == reply_to.topic;
    broker
        .until("a reply", |b| b.messages().iter().any(|m| is_reply(&m)))
        .await;
    let messages = broker.messages();
    let reply = messages.iter().find(is_reply).unwrap();
    let correlation = reply_to.correlation.filter(|_| !is_old);
    assert_eq!((reply.retain, &reply.correlation), (false, &correlation));
    broker.say(&Publish {
        retain: true,
        ..command("2")
    });
    assert!(next(&mut inbox).await.retained);

    // A repeated subscription, for the retained message; the others stay as they are, and two are given up.
    let ha = "homeassistant/status";
    publisher.listen(vec![COMMANDS.into(), ha.into()]);
    publisher.listen_to_triggers(vec![bell.into()], &none);
    publisher.listen_to_triggers(vec![bell.into()], &[bell.to_owned()].into());
    let more = [(ha, handling), (bell, 0)];
    until_subscribed(&broker, connection, &[&all[..], &more].concat()).await;
    until("no topic is rejected", || {
        publisher.rejected_filters().is_empty()
    })
    .await;
    let given_up = |filter: &str| {
        let got = broker.got();
        got.iter().any(|got| {
            matches!(&got.packet, ClientPacket::Unsubscribe { filters, .. } if filters == &[filter])
        })
    };
    until("two are given up", || given_up(cmd) && given_up(pir)).await;
    broker.cut();
    away(&publisher, "").await;
    broker.forget();
    broker.until_retained(STATUS, "online").await;
    let last = broker.got().last().unwrap().connection;
    let wanted = [
        (STATUS, handling),
        (ha, handling),
        (COMMANDS, handling),
        (bell, 0),
    ];
    until_subscribed(&broker, last, &wanted).await;
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
        let is_rival = state.trouble().is_some_and(|why| why.contains("our id"));
        assert!(!is_rival, "{packet:?}");
        broker.script(|script| script.greeting.clear());
        clock.advance(Duration::from_secs(70));
        broker.until_retained(STATUS, "online").await;
    }
}
