//! A camera as a device: the entities of its prompts, its health, and the values that a command may change.

use std::ops::RangeInclusive;

use serde_json::json;

use super::{DiscoveryRecord, Topics, device::Entity, node};
use crate::{
    Off,
    contract::{command::LINE_RESET, prompt_states::states_of},
};
use spotter_config::{CameraConfig, Commands, Config, LineConfig, PromptConfig};
use spotter_core::{LookRate, PROMPT_TEXT_MAX_CHARS, Phase, PromptState, Setting, Share, Task};

/// The longest state of Home Assistant, in characters.
const STATE_MAX_CHARS: usize = 255;
/// The value template of an event: its type, and the attributes for automations.
const EVENT_TEMPLATE: &str = "{{ {'event_type': value_json.type, 'reason': value_json.reason, 'event': value_json.event, \
     'zones': value_json.zones, 'entered_zones': value_json.entered_zones, 'dwell_s': value_json.dwell_s, \
     'dwelling': value_json.dwelling, 'score': value_json.score, \
     'delayed': value_json.delayed, 'start_ms': value_json.start_ms, 'last_seen_ms': value_json.last_seen_ms, \
     'description': value_json.description | default(none), 'url': value_json.url | default(none)} | tojson }}";

/// The value template of a crossing: its direction, and the attributes for automations.
const CROSSING_TEMPLATE: &str = "{{ {'event_type': value_json.direction, 'event': value_json.event, 'at_ms': value_json.at_ms, \
     'delayed': value_json.delayed, 'speed': value_json.speed, 'count': value_json.count, 'score': value_json.score} | tojson }}";

/// The attributes of a free text: all of it, of the confirmed answer.
const TEXT_TEMPLATE: &str = "{{ {'text': value if value != 'None' else none} | tojson }}";

/// The attributes of an answer with thoughts, of the detection.
const REASONING_TEMPLATE: &str = "{{ {'text': value_json.answer, \
     'reasoning': (value_json.reasoning | default({})).text | default(none)} | tojson }}";

pub(super) fn record(config: &Config, topics: &Topics, camera: &CameraConfig) -> DiscoveryRecord {
    let (node, id) = (node::id(config), &camera.id);
    let availability = [topics.status(), topics.camera_status(id)];
    let (name, model) = (title(id.as_str()), camera.source.model_name());
    // A camera of a fleet has one device, although its owner changes.
    let device_id = match topics.fleet() {
        Some(fleet) => format!("{}_{fleet}_{id}", config.mqtt.base),
        None => format!("{node}_{id}"),
    };
    let prefix = &config.mqtt.ha.prefix;
    let record = DiscoveryRecord::new(prefix, device_id, &name, model, &availability);
    let mut entities = CameraEntities {
        record: record.of_camera(id, node),
        topics,
        camera,
    };
    let is_settable = config.mqtt.commands != Commands::Off;
    entities.add_health();
    entities.add_triggers();
    if is_settable {
        entities.add_settings(None);
    }
    for prompt in &camera.prompts {
        entities.add_states(prompt);
        if prompt.task.finds_objects() {
            entities.add_events(prompt);
        }
        if is_settable {
            entities.add_settings(Some(prompt));
        }
    }
    if is_settable {
        entities.add_line_resets();
    }
    entities.record
}

/// The record of a camera while its entities are added.
struct CameraEntities<'a> {
    record: DiscoveryRecord,
    topics: &'a Topics,
    camera: &'a CameraConfig,
}

impl CameraEntities<'_> {
    /// Both are available while the node is online: they say why a camera is offline.
    fn add_health(&mut self) {
        let (topics, camera) = (self.topics, &self.camera.id);
        let of_health = |entity: Entity, template: &str| {
            entity
                .with("state_topic", topics.camera_health(camera))
                .with("value_template", template)
                .available_with(&topics.status())
                .diagnostic()
        };
        let state = Entity::new("sensor", "State")
            .with("device_class", "enum")
            .with("options", json!(Phase::PUBLISHED));
        let state = of_health(state, "{{ value_json.state }}");
        self.record.add("state", state);
        let problem = Entity::new("binary_sensor", "Problem").with("device_class", "problem");
        // A camera that is off as configured is no problem.
        let fine: Vec<String> = Off::ALL.map(|off| format!("'{}'", off.code())).into();
        let problem_template = format!(
            "{{{{ 'OFF' if (value_json.reason or '').split(':')[0] in ['', {}] else 'ON' }}}}",
            fine.join(", ")
        );
        let problem = of_health(problem, &problem_template)
            .with("json_attributes_topic", topics.camera_health(camera))
            .with(
                "json_attributes_template",
                "{{ {'reason': value_json.reason, 'attempts': value_json.attempts} | tojson }}",
            );
        self.record.add("problem", problem);
    }

    /// Each trigger is on while it is active.
    fn add_triggers(&mut self) {
        for trigger in &self.camera.triggers {
            let id = &trigger.id;
            let name = format!("Trigger {}", lower(id.as_str()));
            let active = Entity::new("binary_sensor", &name)
                .with("state_topic", self.topics.trigger(&self.camera.id, id))
                .available_with(&self.topics.status())
                .diagnostic();
            self.record.add(&format!("trigger_{id}"), active);
        }
    }

    /// The values of a prompt, or of the camera itself, that a command may change.
    fn add_settings(&mut self, prompt: Option<&PromptConfig>) {
        let of_prompt = prompt.map(|prompt| title(prompt.id.as_str()));
        for setting in self.camera.changeable_settings() {
            if setting.prompt() != prompt.map(|prompt| &prompt.id) {
                continue;
            }
            let entity = |platform, what: &str| match &of_prompt {
                Some(prompt) => Entity::new(platform, &format!("{prompt} {what}")),
                None => Entity::new(platform, what),
            };
            let number = |what, range: RangeInclusive<f64>| {
                let number = entity("number", what).with("min", *range.start());
                number.with("max", *range.end()).with("step", 0.01)
            };
            let (key, entity) = match &setting {
                // Available when the camera is offline: a camera that is switched off is offline.
                Setting::Enabled(_) => {
                    let switch = entity("switch", "Analysis");
                    ("enabled", switch.available_with(&self.topics.status()))
                }
                Setting::Rate(_) => {
                    let rate = number("Frames per second", LookRate::RANGE);
                    ("rate", rate.with("mode", "box"))
                }
                Setting::MotionGate(_) => ("motion_gate", entity("switch", "Only with motion")),
                Setting::PromptEnabled(..) => ("enabled", entity("switch", "enabled")),
                Setting::Text(..) => {
                    let text = entity("text", "prompt");
                    ("prompt", text.with("max", PROMPT_TEXT_MAX_CHARS))
                }
                // An answer as text is published with any score.
                Setting::MinScore(..)
                    if !prompt.is_some_and(|prompt| prompt.task.finds_objects()) =>
                {
                    continue;
                }
                Setting::Shapes(_) => continue,
                Setting::MinScore(..) => ("min_score", number("min score", Share::RANGE)),
            };
            let key = match setting.prompt() {
                Some(prompt) => format!("{prompt}_{key}"),
                None => key.to_owned(),
            };
            let topic = self.topics.setting(&self.camera.id, &setting);
            self.record.add(&key, entity.settable(&topic));
        }
    }

    /// A button for each line at which a prompt counts.
    fn add_line_resets(&mut self) {
        let is_counted = |line: &&LineConfig| {
            let mut prompts = self.camera.prompts.iter();
            prompts.any(|prompt| prompt.lines.contains(&line.id))
        };
        for line in self.camera.lines.iter().filter(is_counted) {
            let id = &line.id;
            let button = Entity::new("button", &format!("Reset {}", lower(id.as_str())))
                .with("entity_category", "config")
                .with("command_topic", self.topics.line_set(&self.camera.id, id))
                .with("payload_press", LINE_RESET)
                .with("retain", false)
                .available_with(&self.topics.status());
            self.record.add(&format!("line_{id}_reset"), button);
        }
    }

    fn add_states(&mut self, prompt: &PromptConfig) {
        let name = title(prompt.id.as_str());
        let sensor = |name: String| Entity::new("sensor", &name);
        let counted = |name| sensor(name).with("state_class", "measurement");
        let occupied =
            |name: String| Entity::new("binary_sensor", &name).with("device_class", "occupancy");
        for state in states_of(self.camera, prompt) {
            let (kind, entity) = match &state {
                PromptState::Presence(_) => ("present".to_owned(), occupied(name.clone())),
                PromptState::Count(_) => ("count".to_owned(), counted(format!("{name} count"))),
                PromptState::ZoneCount { zone, .. } => {
                    let name = format!("{name} count in {}", lower(zone.as_str()));
                    (format!("zone_{zone}"), counted(name))
                }
                PromptState::Dwell { zone, .. } => {
                    let name = format!("{name} dwells in {}", lower(zone.as_str()));
                    (format!("dwell_{zone}"), occupied(name))
                }
                PromptState::LineCount {
                    line, direction, ..
                } => {
                    let (way, at) = (lower(direction.as_str()), lower(line.as_str()));
                    let count = sensor(format!("{name} {way} at {at}"));
                    let count = count.with("state_class", "total_increasing");
                    (format!("line_{line}_{direction}"), count)
                }
                PromptState::Answer(_) => {
                    let (kind, answer) = answer(&name, prompt);
                    (kind, self.with_text_attributes(answer, prompt))
                }
            };
            let topic = self.topics.state(&self.camera.id, &prompt.id, &state);
            let key = format!("{}_{kind}", prompt.id);
            self.record.add(&key, entity.with("state_topic", topic));
        }
    }

    /// A state of Home Assistant has few characters, so a text is an attribute too. With thoughts, both are those of the newest answer: the
    /// state has no thoughts.
    fn with_text_attributes(&self, answer: Entity, prompt: &PromptConfig) -> Entity {
        let (topics, camera, id) = (self.topics, &self.camera.id, &prompt.id);
        let (topic, template) = match &prompt.task {
            Task::Query { options, .. } if options.reasoning => {
                (topics.detections(camera, id), REASONING_TEMPLATE)
            }
            task if task.is_free_text() => {
                let state = PromptState::Answer(None);
                (topics.state(camera, id, &state), TEXT_TEMPLATE)
            }
            _ => return answer,
        };
        answer
            .with("json_attributes_topic", topic)
            .with("json_attributes_template", template)
    }

    /// Events and pictures of objects. The types of a crossing are its directions.
    fn add_events(&mut self, prompt: &PromptConfig) {
        let (topics, camera, snapshot) = (self.topics, &self.camera.id, prompt.snapshot);
        let lines = self.camera.lines_counted(prompt);
        let prompt = &prompt.id;
        let name = title(prompt.as_str());
        for line in lines {
            let id = &line.id;
            let crossing = Entity::new("event", &format!("{name} crossing {}", lower(id.as_str())))
                .with("event_types", json!(line.directions))
                .with("state_topic", topics.crossing(camera, id, prompt))
                .with("value_template", CROSSING_TEMPLATE);
            self.record
                .add(&format!("{prompt}_crossing_{id}"), crossing);
        }
        let event = Entity::new("event", &format!("{name} event"))
            .with("event_types", json!(["new", "update", "end"]))
            .with("state_topic", topics.event(camera, prompt))
            .with("value_template", EVENT_TEMPLATE);
        self.record.add(&format!("{prompt}_event"), event);
        if snapshot {
            let image = Entity::new("image", &format!("Last {}", lower(prompt.as_str())))
                .with("image_topic", topics.snapshot(camera, prompt))
                .with("content_type", "image/jpeg");
            self.record.add(&format!("{prompt}_image"), image);
        }
    }
}

/// The confirmed answer to a question. Its choices decide about the platform. A key has one platform: with another, Home Assistant would not find
/// the entity to remove.
fn answer(name: &str, prompt: &PromptConfig) -> (String, Entity) {
    let choices = match &prompt.task {
        Task::Query { choices, .. } => choices.as_slice(),
        _ => &[],
    };
    let sensor = Entity::new("sensor", name);
    let answer = match (yes_and_no(choices), choices) {
        (Some((yes, no)), _) => {
            let switch = Entity::new("binary_sensor", name);
            let switch = switch.with("payload_on", yes).with("payload_off", no);
            return ("yes".to_owned(), switch);
        }
        (None, []) => {
            let template = format!("{{{{ value[:{STATE_MAX_CHARS}] }}}}");
            sensor.with("value_template", template)
        }
        (None, choices) => sensor
            .with("device_class", "enum")
            .with("options", json!(choices)),
    };
    ("answer".to_owned(), answer)
}

/// The texts for yes and for no, when a question has these two answers.
fn yes_and_no(choices: &[String]) -> Option<(&str, &str)> {
    let [a, b] = choices else {
        return None;
    };
    let is = |text: &str, word| text.eq_ignore_ascii_case(word);
    match (a.as_str(), b.as_str()) {
        (yes, no) | (no, yes) if is(yes, "yes") && is(no, "no") => Some((yes, no)),
        _ => None,
    }
}

/// An id as a name: `front_door` is "Front door".
fn title(id: &str) -> String {
    let words = lower(id);
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_ascii_uppercase().to_string() + letters.as_str(),
        None => words,
    }
}

/// An id in the middle of a name.
fn lower(id: &str) -> String {
    let words: Vec<&str> = id
        .split(['_', '-'])
        .filter(|word| !word.is_empty())
        .collect();
    // An id of `_` and `-` only stays as it is.
    if words.is_empty() {
        id.to_owned()
    } else {
        words.join(" ")
    }
}
