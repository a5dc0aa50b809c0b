//! Tests with a second broker: NATS, which supports only MQTT 3.1.1 and stores topics in its own way.
//!
//! Faults: B15.

use std::{sync::Arc, time::Duration};

use rumqttc_v4::{AsyncClient, Event, MqttOptions, Packet, Publish, PublishOptions, QoS};
use tokio::{
    join,
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    super::rig::Nats, COUNT, INFO, PATIENCE, STATUS, delivery_audit::DeliveryAudit, mqtt, online,
    publish_states, start, stop,
};
use crate::{
    BrokerState,
    testing::{count, detected},
};

/// The retained message that a new subscriber receives.
async fn retained(broker: &Nats, topic: &str, payload: Option<&str>) -> Publish {
    let mut later = Consumer::on(broker.port, "finds", topic).await;
    later.until(topic, payload).await
}

/// A consumer that uses MQTT 3.1.1.
struct Consumer {
    client: AsyncClient,
    heard: mpsc::Receiver<Publish>,
    task: JoinHandle<()>,
}

impl Consumer {
    async fn on(port: u16, id: &str, filter: &str) -> Self {
        let options = MqttOptions::new(id, ("127.0.0.1", port));
        let (client, mut events) = AsyncClient::builder(options).capacity(16).build();
        client.subscribe(filter, QoS::AtLeastOnce).await.unwrap();
        let (sender, heard) = mpsc::channel(256);
        let subscribed = Arc::new(Notify::new());
        let is_subscribed = Arc::clone(&subscribed);
        let task = tokio::spawn(async move {
            let mut ready = false;
            loop {
                let event = match events.poll().await {
                    Ok(event) => event,
                    // A busy broker may need several tries.
                    Err(_) if !ready => {
                        sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                    Err(_) => return,
                };
                match event {
                    Event::Incoming(Packet::SubAck(_)) => {
                        ready = true;
                        subscribed.notify_one();
                    }
                    Event::Incoming(Packet::Publish(publish)) => _ = sender.send(publish).await,
                    _ => {}
                }
            }
        });
        timeout(PATIENCE, is_subscribed.notified()).await.unwrap();
        Self {
            client,
            heard,
            task,
        }
    }

    async fn until(&mut self, topic: &str, payload: Option<&str>) -> Publish {
        loop {
            let next = timeout(PATIENCE, self.heard.recv()).await;
            let heard = next.unwrap_or_else(|_| panic!("{topic}")).unwrap();
            let is_topic = heard.topic.ends_with(topic.as_bytes());
            if is_topic && payload.is_none_or(|wanted| heard.payload == wanted.as_bytes()) {
                return heard;
            }
        }
    }

    async fn say(&self, topic: &str, payload: &str, retained: bool) {
        let options = PublishOptions::at_least_once().retain(retained);
        self.client
            .publish(topic, payload.to_owned(), options)
            .await
            .unwrap();
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_broker_of_another_make_gets_and_gives_the_same() {
    join!(states_detections_and_commands(), events_over_its_deaths());
}

// Faults: B6.
/// The broker's retained messages and its consumer's session survive a kill.
async fn events_over_its_deaths() {
    let mut broker = Nats::start();
    let mut audit = DeliveryAudit::open(broker.port, "311").await;
    for _ in 0..3 {
        audit.publish_events(5);
        audit.receive_all().await;
        broker.kill();
        audit.publish_events(5);
        audit.away("cannot reach").await;
        audit.publish_event();
        broker.restart();
        audit.online().await;
        audit.publish_events(5);
        audit.receive_all().await;
    }
    audit.check();
}

async fn states_detections_and_commands() {
    let mut broker = Nats::start();
    let settings = mqtt(broker.port);
    let mut live = Consumer::on(broker.port, "live", "spotter/#").await;
    let (publisher, task) = start(&settings);
    let mut inbox = publisher.take_inbound().unwrap();
    publisher.listen(vec!["spotter/edge1/cam/+/+/set".into()]);
    publish_states(&publisher);
    let is_old = BrokerState::Online { protocol: "3.1.1" };
    assert_eq!(online(&publisher).await, is_old);

    // The consumer receives the birth message and the states, live and retained.
    live.until(STATUS, Some("online")).await;
    assert!(retained(&broker, INFO, None).await.retain);
    assert!(retained(&broker, COUNT, Some("2")).await.retain);
    // The consumer receives a detection, which is not retained.
    publisher.publish(detected("gate"));
    assert!(!live.until("det/person", None).await.retain);
    // The publisher receives a command that is not retained.
    let topic = "spotter/edge1/cam/gate/rate/set";
    live.say(topic, "0.5", false).await;
    let inbound = timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert_eq!(inbound.topic, topic);
    assert!(inbound.payload == b"0.5" && !inbound.retained);
    // The publisher corrects a late will.
    live.say(STATUS, "offline", true).await;
    live.until(STATUS, Some("offline")).await;
    live.until(STATUS, Some("online")).await;

    // The broker is killed and restarts without its store.
    drop(live);
    broker.lose_everything();
    publisher.publish(count(9));
    let mut later = Consumer::on(broker.port, "later", STATUS).await;
    later.until(STATUS, Some("online")).await;
    retained(&broker, INFO, None).await;
    retained(&broker, COUNT, Some("9")).await;
    later.say(topic, "1", false).await;
    let inbound = timeout(PATIENCE, inbox.recv()).await.unwrap().unwrap();
    assert_eq!(inbound.payload, b"1");

    // The broker publishes the will of a publisher that ended without DISCONNECT.
    task.abort();
    _ = task.await;
    later.until(STATUS, Some("offline")).await;
    // A publisher that stops publishes `offline` itself.
    let (publisher, task) = start(&settings);
    later.until(STATUS, Some("online")).await;
    stop(publisher, task).await;
    later.until(STATUS, Some("offline")).await;
}
