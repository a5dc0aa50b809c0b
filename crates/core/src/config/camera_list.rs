//! The cameras of a fleet: a list that all its nodes share, in the syntax of `[defaults]` and `[camera.NAME]`.

use std::{collections::BTreeMap, path::Path};

use super::{
    CameraConfig, ConfigProblem, ConfigProblems, Environment, Severity, camera,
    load::{ReadPurpose, Scope, check_schema},
    problem::Notes,
    reader::Reader,
    syntax,
};
use crate::CameraId;

/// A camera of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedCamera {
    pub camera: CameraConfig,
    /// A label that its node must have.
    pub label: Option<String>,
    pub priority: u8,
    /// It serves one session at a time.
    pub has_one_session: bool,
}

/// A list as one node can use it.
#[derive(Debug, Default)]
pub struct SharedCameraList {
    pub cameras: Vec<SharedCamera>,
    /// Cameras that this node cannot watch, with the first reason: a secret that it does not have, a key that its version does not know.
    pub refused: BTreeMap<CameraId, String>,
    pub warnings: Vec<ConfigProblem>,
}

/// Checks a list that is called `name` in messages. Its secrets may be absent without a word, because the nodes have them.
pub fn check_camera_list(
    name: &str,
    text: &str,
    environment: &Environment,
) -> Result<SharedCameraList, ConfigProblems> {
    let scope = Scope::new(environment, Path::new(""), ReadPurpose::CheckElsewhere);
    let (list, problems) = read(name, text, &scope);
    match problems.iter().any(is_error) {
        true => Err(ConfigProblems::new(name, problems)),
        false => Ok(SharedCameraList {
            warnings: problems,
            ..list
        }),
    }
}

/// Reads a list to watch its cameras. One that this node cannot watch does not keep it from the others; an error outside of the cameras does.
/// `has_api`: this node has an API that triggers with `http` can be called at.
pub fn camera_list(
    name: &str,
    text: &str,
    environment: &Environment,
    has_api: bool,
) -> Result<SharedCameraList, ConfigProblems> {
    let scope = Scope {
        has_api,
        ..Scope::new(environment, Path::new(""), ReadPurpose::Run)
    };
    let (mut list, problems) = read(name, text, &scope);
    let mut warnings = Vec::new();
    for problem in &problems {
        match (camera_of(&problem.key), is_error(problem)) {
            (Some(camera), true) => {
                list.cameras.retain(|listed| listed.camera.id != camera);
                let reason = problem.to_string();
                list.refused.entry(camera).or_insert(reason);
            }
            (None, true) => return Err(ConfigProblems::new(name, problems)),
            (_, false) => warnings.push(problem.clone()),
        }
    }
    Ok(SharedCameraList { warnings, ..list })
}

fn is_error(problem: &ConfigProblem) -> bool {
    problem.severity == Severity::Error
}

/// The camera that a key such as `camera.gate.rate` is about.
fn camera_of(key: &str) -> Option<CameraId> {
    let id = key.strip_prefix("camera.")?.split('.').next()?;
    CameraId::new(id).ok()
}

/// A list is for all who may read it in the store, so it has no plain secrets.
fn read(name: &str, text: &str, scope: &Scope<'_>) -> (SharedCameraList, Vec<ConfigProblem>) {
    let notes = Notes::new(name, text);
    let mut list = SharedCameraList::default();
    if let Some(document) = syntax::parse(&notes, text) {
        let mut reader = Reader::new(&notes, "", 0..0, Some(document.get_ref()));
        check_schema(&mut reader);
        list.cameras = camera::fleet_cameras(scope, &mut reader);
        reader.finish();
    }
    (list, notes.into_list())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATE: &str = "[camera.gate]\nurl = \"rtsp://192.0.2.1/a\"\n";
    const PROMPT: &str = "prompt.car.detect = \"car\"\n";

    fn environment() -> Environment {
        Environment::new("node", |_| None)
    }

    #[test]
    fn camera_of_a_list_has_label_priority_and_sessions() {
        let text = format!("{GATE}label = \"hall\"\npriority = 3\nsessions = 1\n{PROMPT}");
        let list = check_camera_list("list.toml", &text, &environment()).unwrap();
        let camera = &list.cameras[0];
        assert_eq!(camera.label.as_deref(), Some("hall"));
        assert_eq!((camera.priority, camera.has_one_session), (3, true));
    }

    #[test]
    fn camera_that_this_node_cannot_watch_leaves_the_others() {
        let yard = "[camera.yard]\nurl = \"rtsp://192.0.2.2/a\"\nuser = \"u\"\npassword = { env = \"ABSENT\" }\n";
        let door = "[camera.door]\nurl = \"rtsp://192.0.2.3/a\"\nnew_key = 1\n";
        let text = format!("{GATE}{PROMPT}{yard}{PROMPT}{door}{PROMPT}");
        let list = camera_list("list", &text, &environment(), true).unwrap();
        assert_eq!(list.cameras.len(), 1);
        let reasons: Vec<&str> = list.refused.values().map(String::as_str).collect();
        assert!(reasons[0].contains("new_key: unknown key"), "{reasons:?}");
        assert!(reasons[1].contains("ABSENT"), "{reasons:?}");
        // An operator who applies it sees the key; the secret is for the nodes.
        let problems = check_camera_list("list", &text, &environment()).unwrap_err();
        assert_eq!(problems.errors(), 1);
    }

    #[test]
    fn camera_that_is_triggered_by_calls_needs_an_api() {
        let text = format!("{GATE}{PROMPT}trigger.app.http = true\n");
        let refused = |has_api| {
            let list = camera_list("list", &text, &environment(), has_api).unwrap();
            list.refused.into_values().collect::<Vec<_>>()
        };
        assert!(refused(true).is_empty());
        assert!(refused(false)[0].contains("add [api]"));
        // An operator who applies it does not know the nodes' files.
        assert!(check_camera_list("list", &text, &environment()).is_ok());
    }

    #[test]
    fn errors_outside_of_cameras_reject_the_list() {
        for (text, said) in [
            ("[mqtt]\n", "unknown key"),
            ("[defaults]\nrate = \"fast\"\n", "needs a number"),
            ("allow_plain_secrets = true\n", "unknown key"),
            ("[camera", "not TOML"),
        ] {
            let text = format!("{text}{}", if text.ends_with('\n') { GATE } else { "" });
            let problems = camera_list("list", &text, &environment(), true).unwrap_err();
            assert!(problems.to_string().contains(said), "{problems}");
        }
    }
}
