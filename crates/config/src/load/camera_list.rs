//! The cameras of a fleet: a list that all its nodes share, in the syntax of `[defaults]` and `[camera.NAME]`.
//!
//! Faults: F18.

use std::{collections::BTreeMap, path::Path};

use super::file::check_schema;
use crate::{
    forms::{environment::Environment, prelude::*, rights::ListRights, scope::ReadPurpose},
    read::{prelude::*, problem::*, syntax},
    tables::{camera::cameras, shared_camera::*},
};
use spotter_core::{AdapterId, CameraId};

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
    let rights = ListRights::default();
    let scope = Scope {
        list: Some(&rights),
        ..Scope::new(environment, Path::new(""), ReadPurpose::CheckElsewhere)
    };
    let (list, notes) = read(name, text, &scope);
    let warnings = notes.into_result()?;
    Ok(SharedCameraList { warnings, ..list })
}

/// The node that a list is read for.
pub struct ListReader<'a> {
    pub environment: &'a Environment,
    /// It has an API that triggers with `http` can be called at.
    pub has_api: bool,
    /// That its prompts may name.
    pub adapters: &'a [AdapterId],
    pub rights: &'a ListRights,
}

/// Reads a list to watch its cameras. One that this node cannot watch does not keep it from the others; an error outside of the cameras does.
pub fn camera_list(
    name: &str,
    text: &str,
    reader: &ListReader<'_>,
) -> Result<SharedCameraList, ConfigProblems> {
    let scope = Scope {
        has_api: reader.has_api,
        adapters: Some(reader.adapters.to_vec()),
        list: Some(reader.rights),
        ..Scope::new(reader.environment, Path::new(""), ReadPurpose::Run)
    };
    let (mut list, notes) = read(name, text, &scope);
    let problems = notes.into_list();
    for problem in &problems {
        match (camera_of(&problem.key), problem.severity) {
            (Some(camera), Severity::Error) => {
                list.cameras.retain(|listed| listed.camera.id != camera);
                let reason = problem.to_string();
                list.refused.entry(camera).or_insert(reason);
            }
            (None, Severity::Error) => return Err(ConfigProblems::new(name, problems)),
            (_, Severity::Warning) => list.warnings.push(problem.clone()),
        }
    }
    Ok(list)
}

/// The camera that a key such as `camera.gate.rate` is about.
fn camera_of(key: &str) -> Option<CameraId> {
    let id = key.strip_prefix("camera.")?.split('.').next()?;
    CameraId::new(id).ok()
}

/// A list is for all who may read it in the store, so it has no plain secrets.
fn read(name: &str, text: &str, scope: &Scope<'_>) -> (SharedCameraList, Notes) {
    let notes = Notes::new(name, text);
    let mut list = SharedCameraList::default();
    if let Some(document) = syntax::parse(&notes, text) {
        let reader = Reader::new(&notes, "", 0..0, Some(document.get_ref()));
        list.cameras = read_cameras(scope, reader);
    }
    (list, notes)
}

/// The cameras of a list.
pub(super) fn read_cameras(scope: &Scope<'_>, mut root: Reader<'_>) -> Vec<SharedCamera> {
    check_schema(&mut root);
    let cameras = cameras(&mut root, |id, table, defaults| {
        shared_camera(scope, id, table, defaults)
    });
    root.finish();
    cameras
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};

    use super::*;
    use crate::SourceConfig;
    use spotter_core::{LookRate, NodeId, testing::cases};

    const GATE: &str = "[camera.gate]\nurl = \"rtsp://192.0.2.1/a\"\n";
    const PROMPT: &str = "prompt.car.detect = \"car\"\n";

    fn environment() -> Environment {
        Environment::new("node", |_| None)
    }

    /// A list as a node with these rights reads it.
    fn read_with(text: &str, rights: &ListRights) -> Result<SharedCameraList, ConfigProblems> {
        let reader = ListReader {
            environment: &environment(),
            has_api: true,
            adapters: &[],
            rights,
        };
        camera_list("list", text, &reader)
    }

    #[test]
    fn camera_of_a_list_has_label_and_priority() {
        let text = format!("{GATE}label = \"hall\"\npriority = 3\nsessions = 1\n{PROMPT}");
        let list = check_camera_list("list.toml", &text, &environment()).unwrap();
        let camera = &list.cameras[0];
        assert_eq!(camera.label.as_deref(), Some("hall"));
        assert_eq!(camera.priority, 3);
        // Of earlier versions.
        let warning = list.warnings[0].to_string();
        assert!(warning.contains("sessions: warning: removed"), "{warning}");
    }

    #[test]
    fn camera_that_is_triggered_by_calls_needs_an_api() {
        let text = format!("{GATE}{PROMPT}trigger.app.http = true\n");
        let rights = ListRights::default();
        assert!(read_with(&text, &rights).unwrap().refused.is_empty());
        let without_api = ListReader {
            environment: &environment(),
            has_api: false,
            adapters: &[],
            rights: &rights,
        };
        let list = camera_list("list", &text, &without_api).unwrap();
        let refused = list.refused.into_values().next();
        assert!(refused.unwrap().contains("add [api]"));
        // An operator who applies it does not know the nodes' files.
        assert!(check_camera_list("list", &text, &environment()).is_ok());
    }

    #[test]
    fn camera_with_an_adapter_that_the_box_lacks_is_refused() {
        let text = format!(
            "{GATE}{PROMPT}prompt.plate = {{ detect = \"plate\", adapter = \"plates\" }}\n"
        );
        let plates = [AdapterId::new("plates").unwrap()];
        let read = |adapters| {
            let reader = ListReader {
                environment: &environment(),
                has_api: true,
                adapters,
                rights: &ListRights::default(),
            };
            camera_list("list", &text, &reader).unwrap()
        };
        assert_eq!(read(&plates).cameras.len(), 1);
        let refused = read(&[]).refused.into_values().next().unwrap();
        let expected = "camera.gate.prompt.plate.adapter: \"plates\" is not a configured adapter";
        assert!(refused.contains(expected), "{refused}");
        assert!(check_camera_list("list", &text, &environment()).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(128)))]

        #[test]
        fn accepted_entries_of_a_list_obey_the_rules(
            values in prop::collection::vec((select(KEYS.split(' ').collect::<Vec<_>>()), value()), 0..6),
        ) {
            let lines: Vec<String> = values.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            let text = format!("[camera.gate]\n{}", lines.concat());
            let Ok(list) = read_with(&text, &ListRights::default()) else {
                return Ok(());
            };
            for SharedCamera { camera, label, priority, .. } in list.cameras {
                prop_assert!(LookRate::RANGE.contains(&camera.rate.hz()));
                let is_local = matches!(camera.source, SourceConfig::File { .. } | SourceConfig::Usb { .. });
                prop_assert!(!is_local);
                prop_assert!(camera.source.login().is_none(), "no credential is there");
                prop_assert!(priority <= 9 && label.is_none_or(|label| NodeId::new(&label).is_ok()));
                for prompt in camera.prompts {
                    prop_assert!(prompt.rate <= camera.rate);
                }
            }
        }
    }

    const KEYS: &str = "url user password rate width label priority onvif_url stall motion prompt.car.detect \
        prompt.car.rate prompt.car.min_score";

    /// A value as TOML has it.
    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("\"rtsp://192.0.2.1/a\"".to_owned()),
            Just("\"car\"".to_owned()),
            any::<f64>().prop_map(|number| format!("{number:?}").replace("NaN", "nan")),
            (0.0f64..40.0).prop_map(|number| format!("{number:?}")),
            any::<i64>().prop_map(|number| number.to_string()),
            (0i64..12).prop_map(|number| number.to_string()),
            "[a-z0-9:/. ]{0,30}".prop_map(|text| format!("{text:?}")),
            (1usize..2000).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
            select(vec!["file", "env", "cred", "insecure", "on"])
                .prop_map(|key| format!("{{ {key} = \"PATH\" }}")),
            Just("true".to_owned()),
        ]
    }
}
