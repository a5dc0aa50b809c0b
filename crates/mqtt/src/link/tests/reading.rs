//! A client that only reads.

use spotter_scripted::broker::codec::{ClientPacket, Publish};

use super::{mqtt, scripted::broker};
use crate::{NodeTopic, ReadError, TopicReader};

#[tokio::test]
async fn reader_has_no_will_and_receives_in_both_protocols() {
    for is_old in [false, true] {
        let broker = broker(|script| script.is_old = is_old).await;
        let filters = NodeTopic::filters("spotter");
        let mut reader = TopicReader::open(&mqtt(broker.port).broker, &filters)
            .await
            .unwrap();
        for (payload, retain) in [("online", true), ("offline", false)] {
            broker.say(&Publish {
                topic: "spotter/edge1/status".into(),
                payload: payload.into(),
                retain,
                ..Publish::default()
            });
            let message = reader.next().await.unwrap();
            assert_eq!(message.payload, payload.as_bytes());
            assert_eq!(message.retained, retain);
        }
        let connects = broker.connects();
        let connect = connects.last().unwrap();
        assert_eq!(
            (connect.level, connect.will_topic.as_str()),
            (if is_old { 4 } else { 5 }, "")
        );
        let subscribed: Vec<_> = broker
            .got()
            .into_iter()
            .filter_map(|got| match got.packet {
                ClientPacket::Subscribe { filters, .. } => Some(filters),
                _ => None,
            })
            .flatten()
            .collect();
        let names: Vec<_> = subscribed
            .iter()
            .map(|filter| filter.name.as_str())
            .collect();
        assert_eq!(names, filters);
        // With retained messages, and without a queue at the broker.
        assert!(
            subscribed
                .iter()
                .all(|filter| (filter.qos, filter.retain_handling) == (0, 0))
        );
        broker.leave();
        assert!(matches!(reader.next().await, Err(ReadError::Broker(_))));
    }
}

#[tokio::test]
async fn rejected_login_and_filter_are_errors_with_a_reason() {
    let broker = broker(|script| script.connack = 0x86).await;
    let access = mqtt(broker.port).broker;
    let filters = ["spotter/+/info".to_owned()];
    let login = TopicReader::open(&access, &filters).await.err().unwrap();
    assert!(login.to_string().contains("rejected the login"), "{login}");
    broker.script(|script| {
        script.connack = 0;
        script.refused_filters = filters.to_vec();
    });
    let filter = TopicReader::open(&access, &filters).await.err().unwrap();
    assert!(
        filter
            .to_string()
            .contains("subscription to spotter/+/info"),
        "{filter}"
    );
}
