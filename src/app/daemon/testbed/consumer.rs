//! What a consumer at the broker makes of what it got.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use spotter_scripted::broker::codec::Publish;

/// The messages of one stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stay {
    cam: String,
    prompt: String,
    begins: u32,
    ends: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Judge {
    /// Ids of event messages.
    ids: HashSet<String>,
    stays: BTreeMap<String, Stay>,
    /// Event messages that came again under their own id.
    pub(super) again: u64,
    /// Messages by kind.
    pub(super) kinds: BTreeMap<String, u64>,
    /// The last reply to a request with this id.
    pub(super) replies: BTreeMap<String, Value>,
    /// The last figures.
    pub(super) stats: Option<Value>,
}

impl Judge {
    pub(super) fn hear(&mut self, message: &Publish) {
        let levels: Vec<&str> = message.topic.split('/').skip(2).collect();
        let kind = match levels[..] {
            ["cam", _, kind, ..] => kind,
            [kind, ..] => kind,
            [] => "other",
        };
        let home_assistant = message.topic.starts_with("homeassistant/");
        let kind = if home_assistant { "discovery" } else { kind };
        *self.kinds.entry(kind.to_owned()).or_default() += 1;
        let json = || serde_json::from_slice::<Value>(&message.payload).unwrap();
        match kind {
            "event" => self.event(&json()),
            "stats" => self.stats = Some(json()),
            "reply" => {
                let reply = json();
                // Only those that somebody waits for: there are thousands of others.
                if let Some(id) = reply["id"].as_str().filter(|id| id.starts_with("last")) {
                    self.replies.insert(id.to_owned(), reply);
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        if !self.ids.insert(text(&event["id"])) {
            self.again += 1;
            return;
        }
        let stay = self.stays.entry(text(&event["event"])).or_default();
        stay.cam = text(&event["cam"]);
        stay.prompt = text(&event["prompt"]["id"]);
        stay.begins += u32::from(event["type"] == "new");
        stay.ends += u32::from(event["type"] == "end");
    }

    /// Event messages under different ids.
    pub(super) fn events(&self) -> u64 {
        self.ids.len() as u64
    }

    /// How many stays there were.
    pub(super) fn stays(&self) -> usize {
        self.stays.len()
    }

    /// Camera and prompt of each that has not ended.
    pub(super) fn open(&self) -> Vec<(&str, &str)> {
        let open = self.stays.values().filter(|stay| stay.ends == 0);
        let mut open: Vec<_> = open.map(|stay| (&*stay.cam, &*stay.prompt)).collect();
        open.sort_unstable();
        open
    }

    /// Stays that did not begin once, or ended twice.
    pub(super) fn faults(&self) -> Vec<String> {
        let wrong = |(_, stay): &(&String, &Stay)| stay.begins != 1 || stay.ends > 1;
        let stays = self.stays.iter().filter(wrong);
        stays
            .map(|(name, stay)| format!("{name}: {stay:?}"))
            .collect()
    }
}
