//! A consumer at the broker: counts messages and checks that every event begins once and ends once.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use spotter_scripted::broker::codec::Publish;

/// The messages of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReceivedEvent {
    cam: String,
    prompt: String,
    begins: u32,
    ends: u32,
}

#[derive(Default)]
pub(super) struct Consumer {
    message_ids: HashSet<String>,
    by_id: BTreeMap<String, ReceivedEvent>,
    /// The last reply to a request with this id.
    pub(super) replies: BTreeMap<String, Value>,
    pub(super) stats: Option<Value>,
}

impl Consumer {
    pub(super) fn receive(&mut self, message: &Publish) {
        let levels: Vec<&str> = message.topic.split('/').skip(2).collect();
        let kind = match levels[..] {
            ["cam", _, kind, ..] => kind,
            [kind, ..] => kind,
            [] => "other",
        };
        let json = || serde_json::from_slice::<Value>(&message.payload).unwrap();
        match kind {
            "event" => self.event(&json()),
            "stats" => self.stats = Some(json()),
            "reply" => {
                let reply = json();
                // Only those that a test waits for: there are thousands of others.
                if let Some(id) = reply["id"].as_str().filter(|id| id.starts_with("last")) {
                    self.replies.insert(id.to_owned(), reply);
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        if !self.message_ids.insert(text(&event["id"])) {
            return;
        }
        let received = self.by_id.entry(text(&event["event"])).or_default();
        received.cam = text(&event["cam"]);
        received.prompt = text(&event["prompt"]["id"]);
        received.begins += u32::from(event["type"] == "new");
        received.ends += u32::from(event["type"] == "end");
    }

    /// Event messages with different ids.
    pub(super) fn message_count(&self) -> u64 {
        self.message_ids.len() as u64
    }

    pub(super) fn event_count(&self) -> usize {
        self.by_id.len()
    }

    /// Camera and prompt of each event that has not ended.
    pub(super) fn open(&self) -> Vec<(&str, &str)> {
        let open = self.by_id.values().filter(|event| event.ends == 0);
        let mut open: Vec<_> = open.map(|event| (&*event.cam, &*event.prompt)).collect();
        open.sort_unstable();
        open
    }

    /// Events that did not begin exactly once, or ended twice.
    pub(super) fn faults(&self) -> Vec<String> {
        let wrong = |(_, event): &(&String, &ReceivedEvent)| event.begins != 1 || event.ends > 1;
        let events = self.by_id.iter().filter(wrong);
        events
            .map(|(name, event)| format!("{name}: {event:?}"))
            .collect()
    }
}
