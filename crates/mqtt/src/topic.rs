//! Topic names of docs/mqtt.md sections 2 and 5: pure functions from ids.

use spotter_core::{CameraId, NodeId, PromptId, Setting, ZoneId};

/// The topics of one node, all below `<base>/<node>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    prefix: String,
}

impl Topics {
    /// `base` is the configured first level, for example `spotter`.
    pub fn new(base: &str, node: &NodeId) -> Self {
        Self {
            prefix: format!("{base}/{node}"),
        }
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

    /// Replies, unless the request names another topic.
    pub fn reply(&self) -> String {
        self.below("reply")
    }

    /// A filter for the topics that set a camera's values.
    pub fn any_camera_set(&self) -> String {
        self.below("cam/+/+/set")
    }

    /// A filter for the topics that set a prompt's values.
    pub fn any_prompt_set(&self) -> String {
        self.below("cam/+/prompt/+/+/set")
    }

    /// The state of a value that a command may change; the command topic has `/set` appended.
    pub fn setting(&self, camera: &CameraId, setting: &Setting) -> String {
        let field = setting.field();
        match setting.prompt() {
            None => self.of_camera(camera, field),
            Some(prompt) => self.of_camera(camera, &format!("prompt/{prompt}/{field}")),
        }
    }

    /// The levels of a topic below this node's; `None` when it is not below it.
    pub fn levels_of<'a>(&self, topic: &'a str) -> Option<Vec<&'a str>> {
        let below = topic.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        Some(below.split('/').collect())
    }

    /// Its payload is `online` or `offline`.
    pub fn camera_status(&self, camera: &CameraId) -> String {
        self.of_camera(camera, "status")
    }

    /// The state of a camera, with the reason.
    pub fn camera_health(&self, camera: &CameraId) -> String {
        self.of_camera(camera, "health")
    }

    /// Detections, one message per frame and prompt.
    pub fn detections(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "det", prompt)
    }

    /// `ON`, `OFF` or `None`.
    pub fn present(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "present", prompt)
    }

    /// The number of objects in a zone, or `None`.
    pub fn zone(&self, camera: &CameraId, zone: &ZoneId, prompt: &PromptId) -> String {
        format!("{}/cam/{camera}/zone/{zone}/{prompt}", self.prefix)
    }

    /// The answer to a question, as text, or `None`.
    pub fn answer(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "answer", prompt)
    }

    /// Starts, changes and ends of tracks.
    pub fn event(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "event", prompt)
    }

    /// The best picture of an event.
    pub fn snapshot(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "snapshot", prompt)
    }

    /// The number of objects, or `None`.
    pub fn count(&self, camera: &CameraId, prompt: &PromptId) -> String {
        self.of_prompt(camera, "count", prompt)
    }

    fn below(&self, leaf: &str) -> String {
        format!("{}/{leaf}", self.prefix)
    }

    fn of_camera(&self, camera: &CameraId, leaf: &str) -> String {
        format!("{}/cam/{camera}/{leaf}", self.prefix)
    }

    fn of_prompt(&self, camera: &CameraId, kind: &str, prompt: &PromptId) -> String {
        format!("{}/cam/{camera}/{kind}/{prompt}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_camera_and_prompt_keep_their_levels() -> Result<(), spotter_core::IdError> {
        let topics = Topics::new("spotter", &NodeId::new("edge1")?);
        let (camera, prompt) = (CameraId::new("gate")?, PromptId::new("person")?);
        let zone = ZoneId::new("drive")?;
        assert_eq!(topics.status(), "spotter/edge1/status");
        for (topic, below) in [
            (topics.camera_health(&camera), "health"),
            (topics.detections(&camera, &prompt), "det/person"),
            (topics.count(&camera, &prompt), "count/person"),
            (topics.zone(&camera, &zone, &prompt), "zone/drive/person"),
        ] {
            assert_eq!(topic, format!("spotter/edge1/cam/gate/{below}"));
        }
        Ok(())
    }
}
