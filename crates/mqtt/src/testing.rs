//! Builders for the tests of this crate. Unless a test says otherwise, the node is `edge1`, the camera `gate` and the prompt
//! `person`.

use super::{
    CameraHealth, DaemonInfo, Identity, Info, Topics, Update, detection::tests::detection,
};
use spotter_core::{CameraId, Event, NodeId, PromptId, PromptState};

pub(crate) fn camera(id: &str) -> CameraId {
    CameraId::new(id).unwrap()
}

pub(crate) fn prompt(id: &str) -> PromptId {
    PromptId::new(id).unwrap()
}

pub(crate) fn identity() -> Identity {
    Identity::of_this_machine(NodeId::new("edge1").unwrap())
}

pub(crate) fn topics() -> Topics {
    Topics::new("spotter", &NodeId::new("edge1").unwrap())
}

/// In the fleet `hall`.
pub(crate) fn fleet_identity() -> Identity {
    identity().in_fleet(Some(NodeId::new("hall").unwrap()))
}

pub(crate) fn fleet_topics() -> Topics {
    topics().in_fleet(fleet_identity().fleet.as_ref())
}

pub(crate) fn state(state: PromptState) -> Update {
    state_of("gate", "person", state)
}

pub(crate) fn state_of(of: &str, prompt_id: &str, state: PromptState) -> Update {
    let (camera, prompt) = (camera(of), prompt(prompt_id));
    Update::State {
        camera,
        prompt,
        state,
    }
}

pub(crate) fn count(count: u32) -> Update {
    state(PromptState::Count(Some(count)))
}

pub(crate) fn camera_status(online: bool) -> Update {
    let camera = camera("gate");
    Update::CameraStatus { camera, online }
}

pub(crate) fn health_of(health: CameraHealth) -> Update {
    let (camera, health) = (camera("gate"), Box::new(health));
    Update::Health { camera, health }
}

pub(crate) fn detected(camera: &str) -> Update {
    Update::Detection(Box::new(detection(camera)))
}

pub(crate) fn happened(event: Event) -> Update {
    Update::Event(Box::new(event))
}

pub(crate) fn info() -> Info {
    Info {
        daemon: DaemonInfo {
            name: "spotter".into(),
            version: "0.1.0".into(),
        },
        boot: "b7c1".into(),
        started_ms: 0,
        host: "edge1".into(),
        gpus: Vec::new(),
        model: None,
        cams: Vec::new(),
        config_hash: "0123456789ab".into(),
        overrides: 0,
        features: Vec::new(),
    }
}
