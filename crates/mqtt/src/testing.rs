//! Builders for the tests of this crate. Unless a test says otherwise, the node is `edge1`, the camera `gate` and the prompt
//! `person`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::{
    CameraHealth, DaemonInfo, Identity, Info, Topics, Update, contract::detection::tests::detection,
};
use spotter_core::{
    CameraId, CameraRights, Epoch, Event, MayPublish, Mono, NodeId, PromptId, PromptState,
    PublishedText, TextPart, TextSubject,
};

pub(crate) use spotter_core::testing::detailed_event as event;

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

fn fleet() -> NodeId {
    NodeId::new("hall").unwrap()
}

/// In the fleet `hall`.
pub(crate) fn fleet_identity(rights: &Arc<TestRights>) -> Identity {
    identity().in_fleet(fleet(), Arc::clone(rights) as Arc<dyn CameraRights>)
}

pub(crate) fn fleet_topics() -> Topics {
    topics().in_fleet(Some(&fleet()))
}

/// Rights that a test sets: at first, no camera is the node's.
#[derive(Debug, Default)]
pub(crate) struct TestRights(Mutex<BTreeMap<CameraId, MayPublish>>);

impl TestRights {
    pub(crate) fn grant(&self, camera: &CameraId, epoch: u64) {
        self.set(camera, MayPublish::Publish(Epoch(epoch)));
    }

    /// The node is silent; the newest epoch that it knows is this one.
    pub(crate) fn silence(&self, camera: &CameraId, newest: u64) {
        let newest = Epoch(newest);
        self.set(camera, MayPublish::Silent { newest });
    }

    fn set(&self, camera: &CameraId, may: MayPublish) {
        self.0.lock().unwrap().insert(camera.clone(), may);
    }
}

impl CameraRights for TestRights {
    fn may(&self, camera: &CameraId, _: Mono) -> MayPublish {
        let known = self.0.lock().unwrap().get(camera).copied();
        let newest = Epoch(0);
        known.unwrap_or(MayPublish::Silent { newest })
    }

    fn seen_owner(&self, camera: &CameraId, epoch: Epoch) {
        if let MayPublish::Publish(own) = self.may(camera, Mono::default())
            && own < epoch
        {
            self.silence(camera, own.0);
        }
    }
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
    Update::Detection(Arc::new(detection(camera)))
}

pub(crate) fn text_part(of: &str, subject: TextSubject, text: &str, is_last: bool) -> TextPart {
    let of = PublishedText {
        camera: camera(of),
        prompt: prompt("scene"),
        subject,
    };
    let text = text.to_owned();
    TextPart { of, text, is_last }
}

/// A part of the answer on this frame.
pub(crate) fn part_of(of: &str, frame: u64, text: &str, is_last: bool) -> Update {
    Update::Part(text_part(of, TextSubject::Frame(frame), text, is_last))
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
        host: "edge1".into(),
        config_hash: "0123456789ab".into(),
        ..Info::default()
    }
}
