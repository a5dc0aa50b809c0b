//! Overrides and revisions as text: of all cameras in the state database; in a fleet, of each camera in the fleet's store.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{modes::StoredMode, override_set::OverrideSet, revisions::RevisionRecord};
use spotter_core::plain_line;

/// Rises with each change that an older program could not read.
const VERSION: u32 = 1;

/// What survives a restart, of all cameras or of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoredOverrides {
    v: u32,
    pub overrides: OverrideSet,
    pub revisions: Vec<RevisionRecord>,
    /// Of a box with its own cameras.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<StoredMode>,
}

impl StoredOverrides {
    pub fn new(overrides: OverrideSet, revisions: Vec<RevisionRecord>) -> Self {
        Self {
            v: VERSION,
            overrides,
            revisions,
            mode: None,
        }
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Nothing differs from the file.
    pub fn is_empty(&self) -> bool {
        self.overrides.as_slice().is_empty() && self.revisions.is_empty()
    }
}

/// A stored text, before its records are checked.
#[derive(Deserialize)]
struct StoredText {
    v: u32,
    overrides: Vec<Value>,
    #[serde(default)]
    revisions: Vec<Value>,
    #[serde(default)]
    mode: Option<Value>,
}

/// A stored text: the records that obey the rules of the configuration file, and those that do not.
#[derive(Debug, Default, PartialEq)]
pub struct ReadOverrides {
    pub stored: StoredOverrides,
    /// Why and which. They have no effect.
    pub dropped: Vec<String>,
}

impl ReadOverrides {
    /// An error: the text is of another program or of a newer version.
    pub fn of_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        let text: StoredText = serde_json::from_slice(text)?;
        if text.v > VERSION {
            return Err(serde::de::Error::custom("written by a newer version"));
        }
        let mut dropped = Vec::new();
        let overrides = checked(text.overrides, &mut dropped);
        let revisions = checked(text.revisions, &mut dropped);
        let mode = checked(text.mode, &mut dropped).pop();
        let stored = StoredOverrides {
            v: VERSION,
            overrides: OverrideSet::of_records(overrides),
            revisions,
            mode,
        };
        Ok(Self { stored, dropped })
    }
}

/// The records that their types allow.
fn checked<T: DeserializeOwned>(
    records: impl IntoIterator<Item = Value>,
    dropped: &mut Vec<String>,
) -> Vec<T> {
    let check = |record: Value| match T::deserialize(&record) {
        Ok(allowed) => Some(allowed),
        Err(error) => {
            dropped.push(plain_line(&format!("{error}: {record}")));
            None
        }
    };
    records.into_iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::config_store::tests::restarted;
    use spotter_config::testing::{camera, prompt};
    use spotter_core::{
        CameraId, LookRate, Mono, PROMPT_TEXT_MAX_CHARS, QueryOptions, Setting, Share, Task,
        testing::{cases, rate},
    };

    fn override_of(now: Value) -> Value {
        let file = match now.as_object().and_then(|now| now.keys().next()) {
            Some(key) if key == "rate_hz" => json!({"rate_hz": 1.0}),
            Some(key) if key == "text" => json!({"text": ["person", "person"]}),
            _ => json!({"min_score": ["person", 0.0]}),
        };
        json!({"camera": "gate", "file": file, "now": now})
    }

    fn stored(overrides: &[Value], revisions: &[Value]) -> Vec<u8> {
        let text = json!({"v": 1, "overrides": overrides, "revisions": revisions});
        text.to_string().into_bytes()
    }

    // Faults: F10.
    #[test]
    fn stored_setting_out_of_range_is_dropped_and_others_apply() {
        let good = override_of(json!({"min_score": ["person", 0.5]}));
        let rate = |value: f64| json!({"rate_hz": value});
        let text = |id: &str, text: &str| json!({"text": [id, text]});
        let long = "x".repeat(550_000);
        for (now, key, reason) in [
            (rate(0.0), "rate_hz", "0 is not within 0.01 to 30"),
            (rate(1e300), "rate_hz", "is not within 0.01 to 30"),
            (json!({"rate_hz": null}), "rate_hz", "expected f64"),
            (
                json!({"min_score": ["person", 7]}),
                "min_score",
                "7 is not within 0 to 1",
            ),
            (
                text("person", &long),
                "text",
                "550000 characters, limit 200",
            ),
            (text("person", " "), "text", "empty"),
            (text("Per son", "dog"), "text", "ids use a-z"),
            (json!({"url": "rtsp://192.0.2.1"}), "url", "unknown variant"),
        ] {
            let bytes = stored(&[override_of(now.clone()), good.clone()], &[]);
            let ReadOverrides { stored, dropped } = ReadOverrides::of_json(&bytes).unwrap();
            let [dropped] = &dropped[..] else {
                panic!("{now}: {dropped:?}")
            };
            let has = |part: &str| dropped.contains(part);
            assert!(has("gate") && has(key) && has(reason), "{dropped}");
            let site = vec![camera("gate", vec![prompt("person")])];
            let cameras = restarted(site, stored).stored_cameras();
            assert_eq!(cameras[0].prompts[0].min_score.get(), 0.5);
            assert_eq!(cameras[0].rate.hz(), 1.0);
        }
    }

    #[test]
    fn stored_revision_that_no_program_writes_is_dropped() {
        let record = |object: Value, revision: u64| json!({"camera": "gate", "prompt": "person", "task": {"Detect": {"object": object}}, "revision": revision});
        let dropped = |record| {
            let read = ReadOverrides::of_json(&stored(&[], &[record]));
            read.unwrap().dropped
        };
        for wrong in [
            record(json!("person"), 0),
            record(json!("person"), u64::MAX),
            record(json!(7), 2),
        ] {
            let dropped = dropped(wrong);
            assert!(dropped.len() == 1 && dropped[0].contains("revision"));
        }
        assert_eq!(dropped(record(json!("person"), 2)), [""; 0]);
    }

    #[test]
    fn question_that_an_older_release_stored_keeps_its_revision() {
        let task = json!({"Query": {"question": "Open?", "choices": ["yes", "no"]}});
        let record = json!({"camera": "gate", "prompt": "door", "task": task, "revision": 3});
        let read = ReadOverrides::of_json(&stored(&[], &[record])).unwrap();
        assert_eq!(read.dropped, [""; 0]);
        let mut door = prompt("door");
        door.task = Task::Query {
            question: "Open?".into(),
            choices: vec!["yes".into(), "no".into()],
            options: QueryOptions::default(),
        };
        let store = restarted(vec![camera("gate", vec![door])], read.stored);
        assert_eq!(store.cameras()[0].prompts[0].revision, 3);
    }

    #[test]
    fn last_of_several_overrides_of_one_value_counts() {
        let slow = override_of(json!({"rate_hz": 0.5}));
        let fast = override_of(json!({"rate_hz": 5.0}));
        let read = ReadOverrides::of_json(&stored(&[slow, fast], &[])).unwrap();
        let [only] = read.stored.overrides.as_slice() else {
            panic!("{read:?}")
        };
        assert_eq!(only.now, Setting::Rate(rate(5.0)));
    }

    /// JSON as a program that means harm writes it, with names that a reader knows.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(|bits| json!(f64::from_bits(bits))),
            (0.0f64..40.0).prop_map(Value::from),
            ".{0,20}".prop_map(Value::from),
            (1usize..2000).prop_map(|length| Value::from("x".repeat(length))),
            prop::sample::select(vec!["gate", "person", "dog"]).prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let keys = "rate_hz text min_score enabled prompt_enabled motion_gate camera file now prompt task revision Detect \
                object Query question choices active choice mode at";
            let key = prop::sample::select(keys.split(' ').collect::<Vec<_>>());
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn setting() -> impl Strategy<Value = Value> {
        prop_oneof![
            value(),
            value().prop_map(|value| json!({"rate_hz": value})),
            value().prop_map(|value| json!({"text": ["person", value]})),
            value().prop_map(|value| json!({"min_score": ["person", value]})),
            value().prop_map(|value| json!({"enabled": value})),
            value().prop_map(|value| json!({"shapes": value})),
            value().prop_map(|value| json!({"shapes": {"mask": [], "zone": {}, "line": {}, "prompt": {"person": value}}})),
        ]
    }

    fn record() -> impl Strategy<Value = Value> {
        let of = |(file, now)| json!({"camera": "gate", "file": file, "now": now});
        prop_oneof![
            value(),
            (setting(), setting()).prop_map(of),
            setting().prop_map(move |setting| of((setting.clone(), setting))),
            setting().prop_map(override_of),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(256)))]

        // Faults: F10.
        #[test]
        fn accepted_overrides_obey_the_rules_of_the_file(
            overrides in prop::collection::vec(record(), 0..6),
            revisions in prop::collection::vec(value(), 0..3),
            mode in value(),
        ) {
            let text = json!({"v": 1, "overrides": overrides, "revisions": revisions, "mode": mode});
            let read = ReadOverrides::of_json(text.to_string().as_bytes()).unwrap();
            for accepted in read.stored.overrides.as_slice().iter() {
                for setting in [&accepted.file, &accepted.now] {
                    match setting {
                        Setting::Rate(rate) => prop_assert!(LookRate::RANGE.contains(&rate.hz())),
                        Setting::MinScore(_, score) => prop_assert!(Share::RANGE.contains(&score.get())),
                        Setting::Text(_, text) => prop_assert!(text.as_str().chars().count() <= PROMPT_TEXT_MAX_CHARS),
                        // Checked with the camera.
                        Setting::Shapes(_) => {}
                        Setting::Enabled(_) | Setting::MotionGate(_) | Setting::PromptEnabled(..) => {}
                    }
                }
            }
            let gate = CameraId::new("gate").unwrap();
            let site = vec![camera("gate", vec![prompt("person"), prompt("dog")])];
            let mut effective = restarted(site.clone(), StoredOverrides::default());
            effective.set_stored_of(&gate, read.stored.clone(), Mono::default());
            for camera in effective.cameras() {
                prop_assert!(LookRate::RANGE.contains(&camera.rate.hz()));
                prop_assert!(camera.prompts.iter().all(|prompt| prompt.revision > 0));
            }
            // A second write and read lose nothing.
            let again = restarted(site, read.stored);
            let again = again.stored().unwrap().to_json().unwrap();
            prop_assert_eq!(ReadOverrides::of_json(again.as_bytes()).unwrap().dropped, [""; 0]);
        }

        #[test]
        fn no_bytes_panic_the_reader_of_overrides(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = ReadOverrides::of_json(&bytes);
        }
    }
}
