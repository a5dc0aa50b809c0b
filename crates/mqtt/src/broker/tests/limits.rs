//! Limits of a real broker, set in its configuration.

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
    PATIENCE, ids, mqtt, publish_states, reach, start,
};
use crate::{BrokerState, Publisher, Update, detection::tests::detection};

async fn online(publisher: &Publisher) {
    reach(publisher, BrokerState::is_online).await;
}

async fn declined(publisher: &Publisher, wanted: u64) {
    let reached = timeout(PATIENCE, async {
        while publisher.counters().states_declined < wanted {
            sleep(Duration::from_millis(20)).await;
        }
    });
    reached.await.unwrap();
}

fn with(line: &str) -> Mosquitto {
    Mosquitto::start(&format!("allow_anonymous true\n{line}"), |_| {})
}

#[tokio::test]
async fn mosquitto_limits_are_respected_and_other_messages_arrive() {
    join!(
        max_packet_size(),
        retain_available(),
        slow_consumer(),
        retained_command()
    );
}

async fn max_packet_size() {
    let broker = with("max_packet_size 160");
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    online(&publisher).await;
    let mut later = Listener::on(broker.port, "spotter/#").await;
    later.until("status", "online").await;
    declined(&publisher, 2).await;
    assert!(publisher.state().borrow().is_online());
}

async fn retain_available() {
    let broker = with("retain_available false");
    let mut live = Listener::on(broker.port, "spotter/#").await;
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    live.until("count/person", "2").await;
    live.until("edge1/status", "online").await;
    online(&publisher).await;
}

/// A consumer that subscribes and never reads does not disturb the publisher.
async fn slow_consumer() {
    let broker = Mosquitto::open();
    let mut sleeper = TcpStream::connect(("127.0.0.1", broker.port))
        .await
        .unwrap();
    let connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04slow";
    let subscribe = b"\x82\x06\x00\x01\x00\x01#\x01";
    sleeper.write_all(connect).await.unwrap();
    sleeper.write_all(subscribe).await.unwrap();
    let (publisher, _task) = start(&mqtt(broker.port));
    publish_states(&publisher);
    online(&publisher).await;
    let (camera, prompt) = ids();
    for round in 0..60 {
        for text in ["a", "b"] {
            publisher.publish(Update::State {
                camera: camera.clone(),
                prompt: prompt.clone(),
                state: spotter_core::PromptState::Answer(Some(format!(
                    "{round}{}",
                    text.repeat(200 * 1024)
                ))),
            });
        }
        publisher.publish(Update::Detection(Box::new(detection("gate"))));
        sleep(Duration::from_millis(20)).await;
    }
    publisher.publish(Update::State {
        camera,
        prompt,
        state: spotter_core::PromptState::Count(Some(60)),
    });
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
    let mut live = Listener::on(broker.port, "spotter/edge1/status").await;
    live.until("status", "online").await;
    other
        .client
        .publish(topic, "ON", PublishOptions::at_least_once())
        .await
        .unwrap();
    let inbound = timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert_eq!(
        (inbound.payload.as_slice(), inbound.retained),
        (&b"ON"[..], false)
    );
}
