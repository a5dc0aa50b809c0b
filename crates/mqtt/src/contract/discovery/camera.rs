//! A camera as a device: the entities of its prompts, its health, and the values that a command may change.

use serde_json::json;

use super::{
    Topics,
    device::{DiscoveryDevice, Entity},
    node,
};
use crate::{
    Off,
    contract::{command::LINE_RESET, prompt_states::states_of},
};
use spotter_config::{CameraConfig, Commands, Config, LineConfig, PromptConfig};
use spotter_core::{
    CameraId, LookRate, PROMPT_TEXT_MAX_CHARS, Phase, PromptState, Setting, Share, Task,
};

/// The longest state of Home Assistant, in characters.
const STATE_MAX_CHARS: usize = 255;
/// The value template of an event: its type, and the attributes for automations.
const EVENT_TEMPLATE: &str = "{{ {'event_type': value_json.type, 'reason': value_json.reason, 'event': value_json.event, \
     'zones': value_json.zones, 'entered_zones': value_json.entered_zones, 'dwell_s': value_json.dwell_s, \
     'dwelling': value_json.dwelling, 'score': value_json.score, \
     'delayed': value_json.delayed, 'start_ms': value_json.start_ms, 'last_seen_ms': value_json.last_seen_ms, \
     'description': value_json.description | default(none)} | tojson }}";

/// The value template of a crossing: its direction, and the attributes for automations.
const CROSSING_TEMPLATE: &str = "{{ {'event_type': value_json.direction, 'event': value_json.event, 'at_ms': value_json.at_ms, \
     'delayed': value_json.delayed, 'speed': value_json.speed, 'count': value_json.count, 'score': value_json.score} | tojson }}";

pub(super) fn device(config: &Config, topics: &Topics, camera: &CameraConfig) -> DiscoveryDevice {
    let (node, id) = (node::id(config), &camera.id);
    let availability = [topics.status(), topics.camera_status(id)];
    let (name, model) = (title(id.as_str()), camera.source.model_name());
    // A camera of a fleet has one device, although its owner changes.
    let device_id = match topics.fleet() {
        Some(fleet) => format!("{}_{fleet}_{id}", config.mqtt.base),
        None => format!("{node}_{id}"),
    };
    let mut device = DiscoveryDevice::new(&device_id, &name, model, &availability)
        .via(&node)
        .of_camera(id);
    add_health(&mut device, topics, id);
    add_triggers(&mut device, topics, camera);
    let settable = config.mqtt.commands != Commands::Off;
    if settable {
        add_settings(&mut device, topics, camera);
    }
    for prompt in &camera.prompts {
        let mut entities = CameraEntities {
            device: &mut device,
            topics,
            camera,
            prompt,
        };
        entities.add_states();
        if let Task::Detect { .. } | Task::Point { .. } = prompt.task {
            entities.add_events();
        }
        if settable {
            entities.add_settings();
        }
    }
    if settable {
        add_line_resets(&mut device, topics, camera);
    }
    device
}

/// Both are available while the node is online: they say why a camera is offline.
fn add_health(device: &mut DiscoveryDevice, topics: &Topics, camera: &CameraId) {
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
    device.add("state", of_health(state, "{{ value_json.state }}"));
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
    device.add("problem", problem);
}

/// Each trigger is on while it is active.
fn add_triggers(device: &mut DiscoveryDevice, topics: &Topics, camera: &CameraConfig) {
    for trigger in &camera.triggers {
        let id = &trigger.id;
        let name = format!("Trigger {}", lower(id.as_str()));
        let active = Entity::new("binary_sensor", &name)
            .with("state_topic", topics.trigger(&camera.id, id))
            .available_with(&topics.status())
            .diagnostic();
        device.add(&format!("trigger_{id}"), active);
    }
}

fn add_settings(device: &mut DiscoveryDevice, topics: &Topics, camera: &CameraConfig) {
    let at = |setting| topics.setting(&camera.id, &setting);
    // Available when the camera is offline: a camera that is switched off is offline.
    let enabled = Entity::new("switch", "Analysis")
        .settable(&at(Setting::Enabled(camera.enabled)))
        .available_with(&topics.status());
    device.add("enabled", enabled);
    let rate = Entity::new("number", "Frames per second")
        .settable(&at(Setting::Rate(camera.rate)))
        .with("min", *LookRate::RANGE.start())
        .with("max", *LookRate::RANGE.end())
        .with("step", 0.01)
        .with("mode", "box");
    device.add("rate", rate);
    let motion_gate = Entity::new("switch", "Only with motion")
        .settable(&at(Setting::MotionGate(camera.motion.on)));
    device.add("motion_gate", motion_gate);
}

/// A button for each line at which a prompt counts.
fn add_line_resets(device: &mut DiscoveryDevice, topics: &Topics, camera: &CameraConfig) {
    let is_counted = |line: &&LineConfig| {
        let mut prompts = camera.prompts.iter();
        prompts.any(|prompt| prompt.lines.contains(&line.id))
    };
    for line in camera.lines.iter().filter(is_counted) {
        let id = &line.id;
        let button = Entity::new("button", &format!("Reset {}", lower(id.as_str())))
            .with("entity_category", "config")
            .with("command_topic", topics.line_set(&camera.id, id))
            .with("payload_press", LINE_RESET)
            .with("retain", false)
            .available_with(&topics.status());
        device.add(&format!("line_{id}_reset"), button);
    }
}

/// The entities of one prompt.
struct CameraEntities<'a> {
    device: &'a mut DiscoveryDevice,
    topics: &'a Topics,
    camera: &'a CameraConfig,
    prompt: &'a PromptConfig,
}

impl CameraEntities<'_> {
    fn add(&mut self, kind: &str, entity: Entity) {
        self.device
            .add(&format!("{}_{kind}", self.prompt.id), entity);
    }

    fn add_states(&mut self) {
        let prompt = self.prompt;
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
                PromptState::Answer(_) => answer(&name, prompt),
            };
            let topic = self.topics.state(&self.camera.id, &prompt.id, &state);
            self.add(&kind, entity.with("state_topic", topic));
        }
    }

    /// Events and pictures of objects. The types of a crossing are its directions.
    fn add_events(&mut self) {
        let (topics, camera, prompt) = (self.topics, &self.camera.id, &self.prompt.id);
        let name = title(prompt.as_str());
        for line in self.camera.lines_counted(self.prompt) {
            let id = &line.id;
            let crossing = Entity::new("event", &format!("{name} crossing {}", lower(id.as_str())))
                .with("event_types", json!(line.directions))
                .with("state_topic", topics.crossing(camera, id, prompt))
                .with("value_template", CROSSING_TEMPLATE);
            self.add(&format!("crossing_{id}"), crossing);
        }
        let event = Entity::new("event", &format!("{name} event"))
            .with("event_types", json!(["new", "update", "end"]))
            .with("state_topic", topics.event(camera, prompt))
            .with("value_template", EVENT_TEMPLATE);
        self.add("event", event);
        if self.prompt.snapshot {
            let image = Entity::new("image", &format!("Last {}", lower(prompt.as_str())))
                .with("image_topic", topics.snapshot(camera, prompt))
                .with("content_type", "image/jpeg");
            self.add("image", image);
        }
    }

    /// The values of a prompt that a command may change.
    fn add_settings(&mut self) {
        let (camera, prompt) = (&self.camera.id, self.prompt);
        let id = || prompt.id.clone();
        let at = |setting| self.topics.setting(camera, &setting);
        let name = title(prompt.id.as_str());
        let enabled = Entity::new("switch", &format!("{name} enabled"))
            .settable(&at(Setting::PromptEnabled(id(), prompt.enabled)));
        let text = prompt.text_setting().map(|setting| {
            Entity::new("text", &format!("{name} prompt"))
                .settable(&at(setting))
                .with("max", PROMPT_TEXT_MAX_CHARS)
        });
        let min_score = Entity::new("number", &format!("{name} min score"))
            .settable(&at(Setting::MinScore(id(), prompt.min_score)))
            .with("min", *Share::RANGE.start())
            .with("max", *Share::RANGE.end())
            .with("step", 0.01);
        self.add("enabled", enabled);
        if let Some(text) = text {
            self.add("prompt", text);
        }
        // An answer as text is published with any score.
        if matches!(prompt.task, Task::Detect { .. } | Task::Point { .. }) {
            self.add("min_score", min_score);
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
