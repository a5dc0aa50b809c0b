//! Topic names of docs/mqtt.md sections 2 and 5: pure functions from ids.

use spotter_core::{CameraId, LineId, NodeId, PromptId, PromptState, Setting, TriggerId};

/// Whose topic it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestScope {
    /// Below `<base>/<node>`.
    Node,
    /// Below `<base>/<fleet>`: every node of the fleet receives the request, and the owner of the camera answers it.
    Fleet,
}

/// A longer response topic is refused.
const TOPIC_MAX_BYTES: usize = 1024;

/// It is no filter, and not too long.
pub(crate) fn can_be_published_to(topic: &str) -> bool {
    !topic.is_empty() && topic.len() <= TOPIC_MAX_BYTES && !topic.contains(['+', '#', '\0'])
}

/// The levels below a node or a fleet that have a meaning; programs may use others.
const OWN_LEVELS: [&str; 7] = ["status", "info", "config", "stats", "cmd", "mode", "cam"];

/// The topics of one node, all below `<base>/<node>`; in a fleet, those of cameras are below `<base>/<fleet>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    base: String,
    prefix: String,
    fleet: Option<NodeId>,
    /// `None` without a fleet.
    fleet_prefix: Option<String>,
    /// Besides topics below the base.
    reply_topics: Vec<String>,
}

impl Topics {
    /// `base` is the configured first level, for example `spotter`.
    pub fn new(base: &str, node: &NodeId) -> Self {
        Self {
            base: base.to_owned(),
            prefix: format!("{base}/{node}"),
            fleet: None,
            fleet_prefix: None,
            reply_topics: Vec::new(),
        }
    }

    /// The same topics, with others to which replies may go.
    #[must_use]
    pub fn with_reply_topics(mut self, reply_topics: &[String]) -> Self {
        self.reply_topics = reply_topics.to_vec();
        self
    }

    /// The sender of a request may choose this topic for the reply: one below the base that is none of a node's or fleet's own, or one of
    /// `mqtt.reply_topics`. A client that may send commands alone must not make Spotter publish anywhere.
    pub fn allows_reply_to(&self, topic: &str) -> bool {
        let is_below = |allowed: &str| {
            let rest = topic.strip_prefix(allowed);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let below_base = topic.strip_prefix(&self.base);
        let levels = below_base.and_then(|rest| rest.strip_prefix('/'));
        let is_free = levels.is_some_and(|levels| match levels.split('/').nth(1) {
            Some(level) => !OWN_LEVELS.contains(&level),
            None => !levels.is_empty(),
        });
        can_be_published_to(topic)
            && (is_free || self.reply_topics.iter().any(|allowed| is_below(allowed)))
    }

    /// The topics of the same node as a member of `fleet`.
    #[must_use]
    pub fn in_fleet(mut self, fleet: Option<&NodeId>) -> Self {
        self.fleet_prefix = fleet.map(|fleet| format!("{}/{fleet}", self.base));
        self.fleet = fleet.cloned();
        self
    }

    /// The fleet whose cameras this node may watch.
    pub fn fleet(&self) -> Option<&NodeId> {
        self.fleet.as_ref()
    }

    /// `online` or `offline`; also the will.
    pub fn status(&self) -> String {
        self.below("status")
    }

    /// The topic of the birth message.
    pub fn info(&self) -> String {
        self.below("info")
    }

    /// The result of the last load of the configuration.
    pub fn config(&self) -> String {
        self.below("config")
    }

    /// Statistics of the node, every 10 s.
    pub fn stats(&self) -> String {
        self.below("stats")
    }

    /// The topic of requests.
    pub fn command(&self) -> String {
        self.below("cmd")
    }

    /// The active mode; the command topic has `/set` appended.
    pub fn mode(&self) -> String {
        self.below("mode")
    }

    /// Replies, unless the request names another topic.
    pub fn reply(&self) -> String {
        self.below("reply")
    }

    /// The topic of requests to the owners of the fleet's cameras.
    pub fn fleet_command(&self) -> Option<String> {
        Some(format!("{}/cmd", self.fleet_prefix.as_ref()?))
    }

    /// Replies to requests on topics of the fleet, unless the request names another topic.
    pub fn fleet_reply(&self) -> Option<String> {
        Some(format!("{}/reply", self.fleet_prefix.as_ref()?))
    }

    /// Filters for the topics that set values of cameras and of prompts, and that reset lines.
    pub(crate) fn any_set(&self) -> [String; 3] {
        ["cam/+/+", "cam/+/prompt/+/+", "cam/+/line/+"]
            .map(|levels| format!("{}/{levels}/set", self.cameras()))
    }

    /// Which node of the fleet watches the camera, and its epoch.
    pub fn camera_owner(&self, camera: &CameraId) -> String {
        self.of_camera(camera, "owner")
    }

    /// The camera whose `owner` topic this is.
    pub(crate) fn camera_of_owner(&self, topic: &str) -> Option<CameraId> {
        match self.scope_of(topic)? {
            (RequestScope::Fleet, levels) => match levels[..] {
                ["cam", camera, "owner"] => CameraId::new(camera).ok(),
                _ => None,
            },
            (RequestScope::Node, _) => None,
        }
    }

    /// A filter for the owners of all cameras of the fleet.
    pub fn any_owner(&self) -> Option<String> {
        Some(format!("{}/cam/+/owner", self.fleet_prefix.as_ref()?))
    }

    /// The state of a value that a command may change; the command topic has `/set` appended.
    pub fn setting(&self, camera: &CameraId, setting: &Setting) -> String {
        let field = setting.field();
        match setting.prompt() {
            None => self.of_camera(camera, field),
            Some(prompt) => self.of_camera(camera, &format!("prompt/{prompt}/{field}")),
        }
    }

    /// The levels of a topic below this node's or the fleet's; `None` when it is below neither. In a fleet, topics of cameras are the fleet's
    /// alone.
    pub(crate) fn scope_of<'a>(&self, topic: &'a str) -> Option<(RequestScope, Vec<&'a str>)> {
        let below = |prefix: &str| {
            let below = topic.strip_prefix(prefix)?.strip_prefix('/')?;
            Some(below.split('/').collect::<Vec<_>>())
        };
        if let Some(levels) = self.fleet_prefix.as_deref().and_then(below) {
            return Some((RequestScope::Fleet, levels));
        }
        let levels = below(&self.prefix)?;
        let is_ours = self.fleet.is_none() || levels.first() != Some(&"cam");
        is_ours.then_some((RequestScope::Node, levels))
    }

    /// Its payload is `online` or `offline`.
    pub fn camera_status(&self, camera: &CameraId) -> String {
        self.of_camera(camera, "status")
    }

    /// The state of a camera, with the reason.
    pub fn camera_health(&self, camera: &CameraId) -> String {
        self.of_camera(camera, "health")
    }

    /// How right the alarms of a camera are.
    pub fn camera_quality(&self, camera: &CameraId) -> String {
        self.of_camera(camera, "quality")
    }

    /// `ON` while the trigger is active, else `OFF`.
    pub fn trigger(&self, camera: &CameraId, trigger: &TriggerId) -> String {
        self.of_camera(camera, &format!("trigger/{trigger}"))
    }

    /// Detections, one message per frame and prompt.
    pub fn detections(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "det", prompt)
    }

    /// A state of a prompt.
    pub fn state(&self, camera: &CameraId, prompt: &PromptId, state: &PromptState) -> String {
        let leaf = match state {
            PromptState::Presence(_) => "present".to_owned(),
            PromptState::Count(_) => "count".to_owned(),
            PromptState::ZoneCount { zone, .. } => format!("zone/{zone}"),
            PromptState::Dwell { zone, .. } => format!("dwell/{zone}"),
            PromptState::LineCount {
                line, direction, ..
            } => format!("line/{line}/{direction}"),
            PromptState::Answer(_) => "answer".to_owned(),
        };
        self.of_prompt(camera, &leaf, prompt)
    }

    /// Resets the counts at a line.
    pub fn line_set(&self, camera: &CameraId, line: &LineId) -> String {
        self.of_camera(camera, &format!("line/{line}/set"))
    }

    /// Objects that crossed a line.
    pub fn crossing(&self, camera: &CameraId, line: &LineId, prompt: &PromptId) -> String {
        self.of_prompt(camera, &format!("crossing/{line}"), prompt)
    }

    /// The topic of an event's message.
    pub(crate) fn of_event(
        &self,
        camera: &CameraId,
        crossed: Option<&LineId>,
        prompt: &PromptId,
    ) -> String {
        match crossed {
            Some(line) => self.crossing(camera, line, prompt),
            None => self.event(camera, prompt),
        }
    }

    /// Starts, changes and ends of tracks.
    pub fn event(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "event", prompt)
    }

    /// Texts while the model writes them: answers to the prompt, descriptions of what it has found.
    pub(crate) fn text_parts(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_camera(camera, &format!("answer/{prompt}/part"))
    }

    /// The best picture of an event.
    pub fn snapshot(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "snapshot", prompt)
    }

    fn below(&self, leaf: &str) -> String {
        format!("{}/{leaf}", self.prefix)
    }

    /// Below which cameras are.
    fn cameras(&self) -> &str {
        self.fleet_prefix.as_deref().unwrap_or(&self.prefix)
    }

    fn of_camera(&self, camera: &CameraId, leaf: &str) -> String {
        format!("{}/cam/{camera}/{leaf}", self.cameras())
    }

    fn of_prompt(&self, camera: &CameraId, kind: &str, prompt: &PromptId) -> String {
        self.of_camera(camera, &format!("{kind}/{prompt}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: B21.
    #[test]
    fn reply_goes_below_the_base_or_to_allowed_topics() -> Result<(), Box<dyn std::error::Error>> {
        let allowed = ["desk/answers".to_owned()];
        let topics = Topics::new("spotter", &NodeId::new("edge1")?).with_reply_topics(&allowed);
        for topic in [
            "spotter/edge1/reply",
            "spotter/edge1/reply/desk",
            "spotter/desk/answers",
            "spotter/desk",
            "desk/answers",
            "desk/answers/7",
        ] {
            assert!(topics.allows_reply_to(topic), "{topic}");
        }
        for topic in [
            "homeassistant/device/x/config",
            "zigbee2mqtt/lock/set",
            "desk/answersx",
            "desk",
            "spotter",
            "spotter/",
            "spotterx/edge1/reply",
            "spotter/edge1/status",
            "spotter/edge2/cmd",
            "spotter/edge2/mode/set",
            "spotter/hall/cam/gate/owner",
            "spotter/desk/#",
            "",
        ] {
            assert!(!topics.allows_reply_to(topic), "{topic}");
        }
        let long = format!("desk/answers/{}", "x".repeat(1024));
        assert!(!topics.allows_reply_to(&long));
        Ok(())
    }
}
