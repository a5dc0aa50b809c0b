//! The messages of a camera's events, and which of the usual events a message is.

use crate::xml::{XmlNode, all, find, local_name, text};
use spotter_config::ONVIF_KINDS;
use spotter_core::plain_line;

/// A message of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnvifMessage {
    pub topic: OnvifTopic,
    /// The state that the message is about: `None` for what has no state, such as an object that crossed a line.
    pub is_active: Option<bool>,
    pub operation: PropertyOperation,
    /// Where it happened: a video source, a rule, an input.
    pub source: Vec<OnvifItem>,
    pub data: Vec<OnvifItem>,
}

/// A name and a value of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnvifItem {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyOperation {
    /// What is true at the start of a subscription.
    Initialized,
    Changed,
    /// The thing that had a state is not there any more.
    Deleted,
    /// The message is about no state, or does not say so.
    None,
}

/// The path of a topic without prefixes, which every camera may choose: `RuleEngine/CellMotionDetector/Motion`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnvifTopic(String);

impl OnvifTopic {
    /// `None` for a text without a name, and for one that is no plain line.
    pub fn new(text: &str) -> Option<Self> {
        if plain_line(text) != text.trim() {
            return None;
        }
        let parts = text.trim().split('/').map(|part| local_name(part.trim()));
        let parts: Vec<&str> = parts.collect();
        let is_name = |part: &&str| !part.is_empty() && !part.contains(char::is_whitespace);
        let are_names = parts.iter().all(is_name);
        are_names.then(|| Self(parts.join("/")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The usual kinds of events, as in [`ONVIF_KINDS`]: last names of topics, and of the data of topics that are about several kinds. Topics
/// of ONVIF and those of several makers.
const NAMES: [(&str, &str); ONVIF_KINDS.len()] = [
    ("motion", "Motion MotionAlarm IsMotion"),
    (
        "person",
        "People PeopleDetect HumanShapeDetect HumanDetect IsPeople",
    ),
    ("vehicle", "VehicleDetect Vehicle IsVehicle"),
    ("animal", "DogCatDetect Pet IsPet"),
    ("face", "FaceDetect Face"),
    ("visitor", "Visitor"),
    ("package", "Package"),
    (
        "area",
        "ObjectsInside Intrusion IsIntrusion Crossed LineCross IsLineCross",
    ),
    ("input", "DigitalInput"),
    ("sound", "DetectedSound IsSoundDetected"),
    (
        "tamper",
        "Tamper IsTamper GlobalSceneChange ImageTooDark ImageTooBlurry SignalLoss",
    ),
];

/// Topics whose last name is that of their service.
const SERVICE_NAMES: [&str; 3] = ["AnalyticsService", "RecordingService", "ImagingService"];

/// Names of states; other names count only with a value that can be nothing else.
const STATES: [&str; 4] = ["State", "LogicalState", "IsInside", "Active"];

/// The usual kind with this name, which cameras have different names for.
fn kind_of(name: &str) -> Option<&'static str> {
    let is_it = |names: &str| names.split(' ').any(|known| known == name);
    let found = NAMES.iter().find(|(_, names)| is_it(names));
    found.map(|(kind, _)| *kind)
}

/// Which messages are wanted: a usual kind, or one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnvifSelector {
    /// One of [`ONVIF_KINDS`].
    Kind(String),
    Topic(OnvifTopic),
}

impl OnvifSelector {
    /// Reads a word such as `motion`, or a topic such as `tns1:RuleEngine/CellMotionDetector/Motion`.
    pub fn new(text: &str) -> Option<Self> {
        if ONVIF_KINDS.contains(&text) {
            return Some(Self::Kind(text.to_owned()));
        }
        let topic = OnvifTopic::new(text).filter(|_| text.contains('/'));
        topic.map(Self::Topic)
    }

    pub fn accepts(&self, message: &OnvifMessage) -> bool {
        match self {
            Self::Kind(kind) => message.kinds().contains(&kind.as_str()),
            Self::Topic(topic) => message.topic == *topic,
        }
    }

    /// The state in a message: of a kind that the message names in its data, the value there.
    pub fn state(&self, message: &OnvifMessage) -> Option<bool> {
        if message.operation == PropertyOperation::Deleted {
            return Some(false);
        }
        let of_kind = |item: &&OnvifItem| match self {
            Self::Kind(kind) => kind_of(&item.name) == Some(kind.as_str()),
            Self::Topic(_) => false,
        };
        let named = message.data.iter().find(of_kind);
        named.and_then(truth).or(message.is_active)
    }
}

impl OnvifMessage {
    /// The usual kinds that the message is about. A topic with a name that is known is about that; otherwise its data is looked at.
    fn kinds(&self) -> Vec<&'static str> {
        let mut parts = self.topic.0.rsplit('/');
        let last = parts.find(|part| !SERVICE_NAMES.contains(part));
        match last.and_then(kind_of) {
            Some(kind) => vec![kind],
            None => {
                let names = self.data.iter();
                names.filter_map(|item| kind_of(&item.name)).collect()
            }
        }
    }
}

/// Reads a notification; `None` without a topic or a message.
pub(crate) fn message_of(notification: &XmlNode) -> Option<OnvifMessage> {
    let topic = OnvifTopic::new(text(find(notification, "Topic")?)?)?;
    // Message of WS-Notification has one of ONVIF in it.
    let message = all(notification, "Message").pop()?;
    let items = |part: &str| {
        let part = find(message, part);
        let items = part.into_iter().flat_map(|part| all(part, "SimpleItem"));
        items.filter_map(item).collect::<Vec<_>>()
    };
    let operation = match message.attribute("PropertyOperation") {
        Some("Initialized") => PropertyOperation::Initialized,
        Some("Changed") => PropertyOperation::Changed,
        Some("Deleted") => PropertyOperation::Deleted,
        _ => PropertyOperation::None,
    };
    let data = items("Data");
    Some(OnvifMessage {
        is_active: match operation {
            PropertyOperation::Deleted => Some(false),
            _ => state(&data),
        },
        topic,
        operation,
        source: items("Source"),
        data,
    })
}

fn item(node: &XmlNode) -> Option<OnvifItem> {
    Some(OnvifItem {
        name: plain_line(node.attribute("Name")?),
        value: plain_line(node.attribute("Value").unwrap_or_default()),
    })
}

/// The state that a message's data have: that of the first item with the name of a state, else of the first with a truth value.
fn state(data: &[OnvifItem]) -> Option<bool> {
    let is_state = |item: &&OnvifItem| {
        let mut names = STATES.iter();
        names.any(|name| item.name.eq_ignore_ascii_case(name)) || kind_of(&item.name).is_some()
    };
    let mut named = data.iter().filter(is_state).filter_map(truth);
    let is_word = |item: &&OnvifItem| item.value.parse::<u64>().is_err();
    let mut others = data.iter().filter(is_word).filter_map(truth);
    named.next().or_else(|| others.next())
}

fn truth(item: &OnvifItem) -> Option<bool> {
    let value = item.value.trim();
    let is = |words: [&str; 4]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    match value {
        _ if is(["true", "1", "active", "on"]) => Some(true),
        _ if is(["false", "0", "inactive", "off"]) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{answer::SubscriptionAnswer, xml::read_xml};

    /// A notification as cameras write it, with the data items that are given.
    fn notification(topic: &str, operation: &str, data: &str) -> String {
        format!(
            "<n:NotificationMessage><n:Topic Dialect='d'>{topic}</n:Topic><n:Message><o:Message {operation}>\
             <o:Source><o:SimpleItem Name='VideoSource' Value='1'/></o:Source><o:Data>{data}</o:Data>\
             </o:Message></n:Message></n:NotificationMessage>"
        )
    }

    fn item(name: &str, value: &str) -> String {
        format!("<o:SimpleItem Name='{name}' Value='{value}'/>")
    }

    fn pulled(notifications: &str) -> SubscriptionAnswer {
        let answer = format!("<e:R xmlns:e='e' xmlns:n='n' xmlns:o='o'>{notifications}</e:R>");
        SubscriptionAnswer::of(&read_xml(&answer).unwrap())
    }

    fn message(topic: &str, data: &str) -> OnvifMessage {
        let all = pulled(&notification(topic, "PropertyOperation='Changed'", data));
        all.messages.into_iter().next().unwrap()
    }

    /// Topics with the name and value of an item of their data, then the kind that they are about and its state.
    const USUAL: &str = "
        tns1:RuleEngine/CellMotionDetector/Motion IsMotion=true motion on
        x:VideoSource/y:MotionAlarm State=0 motion off
        tns1:Device/Trigger/DigitalInput LogicalState=1 input on
        tns1:RuleEngine/FieldDetector/ObjectsInside IsInside=true area on
        tns1:RuleEngine/LineDetector/Crossed ObjectId=1 area none
        tns1:RuleEngine/MyRuleDetector/PeopleDetect State=true person on
        tns1:RuleEngine/Detector/TPSmartEvent IsVehicle=true vehicle on
        tns1:VideoSource/ImageTooDark/AnalyticsService State=false tamper off
        tnsaxis:CameraApplicationPlatform/VMD/Camera1 active=1 none on";

    #[test]
    fn usual_topics_have_a_kind_and_a_state() {
        for line in USUAL.trim().lines() {
            let mut parts = line.split_whitespace();
            let [topic, data, kind, state] = [(); 4].map(|()| parts.next().unwrap());
            let (name, value) = data.split_once('=').unwrap();
            let state = ["on", "off"].contains(&state).then_some(state == "on");
            let message = message(topic, &item(name, value));
            let found = message.kinds().first().copied();
            assert_eq!(found.unwrap_or("none"), kind, "{topic}");
            assert_eq!(message.is_active, state, "{topic}");
            if let Some(selector) = found.and_then(OnvifSelector::new) {
                assert!(selector.accepts(&message), "{topic}");
                assert_eq!(selector.state(&message), state, "{topic}");
            }
            let by_topic = OnvifSelector::new(topic).unwrap();
            assert!(by_topic.accepts(&message));
        }
    }

    #[test]
    fn state_of_a_kind_is_that_of_its_data() {
        let data = item("IsPeople", "false") + &item("IsVehicle", "true");
        let message = message("tns1:RuleEngine/TPSmartEventDetector/TPSmartEvent", &data);
        for (word, state) in [("person", false), ("vehicle", true)] {
            let selector = OnvifSelector::new(word).unwrap();
            assert!(selector.accepts(&message));
            assert_eq!(selector.state(&message), Some(state));
        }
    }

    // Faults: O13.
    #[test]
    fn odd_messages_are_ignored_and_counted() {
        let odd = "<n:NotificationMessage><n:Message><o:Message/></n:Message></n:NotificationMessage>\
            <n:NotificationMessage><n:Topic> </n:Topic><n:Message/></n:NotificationMessage>\
            <n:NotificationMessage/>";
        let deleted = notification(
            "t:a/b",
            "PropertyOperation='Deleted'",
            &item("State", "true"),
        );
        let bare = "<n:NotificationMessage><n:Topic>t:a/c</n:Topic><n:Message><o:Message/></n:Message></n:NotificationMessage>";
        let all = pulled(&format!("{odd}{deleted}{bare}"));
        assert_eq!(all.ignored, 3);
        let states: Vec<_> = all.messages.iter().map(|m| m.is_active).collect();
        assert_eq!(states, [Some(false), None]);
        assert_eq!(all.messages[0].source[0].value, "1");
    }

    #[test]
    fn selector_rejects_what_is_no_word_or_topic() {
        for text in ["", "motoin", "tns1:", "a b/c", "RuleEngine//Motion"] {
            assert_eq!(OnvifSelector::new(text), None, "{text}");
        }
        let kinds = NAMES.map(|(kind, _)| kind);
        assert_eq!(kinds, ONVIF_KINDS, "each kind has names");
    }
}
