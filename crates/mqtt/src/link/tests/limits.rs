//! A real broker with a consumer that never reads, and with a retained command.
//!
//! Faults: B13.

use std::time::Duration;

use rumqttc::PublishOptions;
use tokio::{
    io::AsyncWriteExt,
    join,
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    super::rig::{Listener, Mosquitto},
    PATIENCE, STATUS, mqtt, online, publish_states, start,
};
use crate::testing::{count, detected, state};
use spotter_core::PromptState;

#[tokio::test]
async fn slow_consumer_and_retained_command_do_not_disturb_the_publisher() {
    join!(slow_consumer(), retained_command());
}

/// A consumer that subscribes and never reads does not disturb the publisher.
async fn slow_consumer() {
    let broker = Mosquitto::open();
    let address = ("127.0.0.1", broker.port);
    let mut sleeper = TcpStream::connect(address).await.unwrap();
    let connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04slow";
    let subscribe = b"\x82\x06\x00\x01\x00\x01#\x01";
    sleeper.write_all(connect).await.unwrap();
    sleeper.write_all(subscribe).await.unwrap();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    online(&publisher).await;
    for round in 0..60 {
        for text in ["a", "b"] {
            let answer = format!("{round}{}", text.repeat(200 * 1024));
            publisher.publish(state(PromptState::Answer(Some(answer))));
        }
        publisher.publish(detected("gate"));
        sleep(Duration::from_millis(20)).await;
    }
    publisher.publish(count(60));
    let mut later = Listener::on(broker.port, "spotter/edge1/cam/gate/count/#").await;
    later.until("count/person", "60").await;
    assert!(publisher.state().borrow().is_online());
    assert_eq!(publisher.counters().dropped_offline, 0);
}

/// With MQTT 5 the broker does not send messages that are retained on a command topic.
async fn retained_command() {
    let broker = Mosquitto::open();
    let topic = "spotter/edge1/cam/gate/enabled/set";
    let other = Listener::on(broker.port, "nothing").await;
    let retained = PublishOptions::at_least_once().retained();
    other.client.publish(topic, "OFF", retained).await.unwrap();
    let (publisher, _task) = start(&mqtt(broker.port));
    let mut inbox = publisher.take_inbound().unwrap();
    publisher.listen(vec!["spotter/edge1/cam/+/+/set".into()]);
    let mut live = Listener::on(broker.port, STATUS).await;
    live.until("status", "online").await;
    let live = PublishOptions::at_least_once();
    other.client.publish(topic, "ON", live).await.unwrap();
    let inbound = timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert!(inbound.payload == b"ON" && !inbound.retained);
}
