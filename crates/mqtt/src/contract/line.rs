//! A message as a line of JSON, for programs that read the standard output (docs/mqtt.md section 8).

use std::{fmt, sync::Arc};

use serde_json::Value;

/// A message with the same JSON payload as on the broker.
#[derive(Clone, Debug)]
pub struct JsonLine {
    topic: Arc<str>,
    payload: Arc<[u8]>,
}

impl JsonLine {
    /// `payload` is JSON in one line.
    pub fn new(topic: &str, payload: &[u8]) -> Self {
        Self {
            topic: topic.into(),
            payload: payload.into(),
        }
    }
}

impl fmt::Display for JsonLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = Value::from(&*self.topic);
        // Serialised by Spotter, without a line break: those in texts are escaped.
        let payload = String::from_utf8_lossy(&self.payload);
        write!(f, r#"{{"topic":{topic},"payload":{payload}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_one_line_with_topic_and_payload() {
        let payload = json!({"v": 1, "text": "two\nlines \"quoted\""});
        let line = JsonLine::new(
            "spotter/edge1/cam/gate/det/a\"b",
            payload.to_string().as_bytes(),
        );
        let text = line.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        let topic = "spotter/edge1/cam/gate/det/a\"b";
        assert_eq!(read, json!({"topic": topic, "payload": payload}));
    }
}
