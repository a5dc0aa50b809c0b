//! Stories of a site that commands change: `stories.txt`, which explains them.

use std::{collections::BTreeMap, fmt::Write as _, mem};

use super::*;
use spotter_core::testing::check_stories;

pub(super) const SITE: &str = "camera.gate = { url = \"test://\", prompt.person.detect = \"person\", prompt.dog.detect = \"dog\" }\n\
    camera.yard = { url = \"test://\", prompt.person.detect = \"person\" }\n";

pub(super) fn site_of(lines: &str) -> Config {
    let text = format!("mqtt.url = \"mqtt://broker\"\n{lines}");
    let loaded = of_text("site.toml", &text, &Environment::new("box", |_| None));
    loaded.unwrap().config
}

fn camera_text(camera: &CameraConfig) -> String {
    let switch = |is_on: bool| if is_on { "on" } else { "off" };
    let (enabled, gate) = (switch(camera.enabled), switch(camera.motion.on));
    let mut text = format!("{} {enabled}, rate {}, gate {gate}", camera.id, camera.rate);
    for zone in &camera.zones {
        _ = write!(text, ", zone {}", zone.id);
    }
    if !camera.mask.is_empty() {
        _ = write!(text, ", masked {}", camera.mask.len());
    }
    for prompt in &camera.prompts {
        let (id, words, revision) = (&prompt.id, prompt.task.text(), prompt.revision);
        let enabled = switch(prompt.enabled);
        _ = write!(
            text,
            "; {id} {enabled}, rate {}, {words:?} {revision}",
            prompt.rate
        );
        for zone in prompt.dwell.keys() {
            _ = write!(text, ", dwells in {zone}");
        }
        for zone in &prompt.zones {
            _ = write!(text, ", of {zone}");
        }
        if let PromptRegion::Fixed(region) = prompt.region {
            let NormBox { x0, y0, x1, y1 } = region.norm_box();
            _ = write!(text, ", in {x0} {y0} {x1} {y1}");
        }
    }
    text
}

#[derive(Default)]
struct Story {
    store: Option<ConfigStore>,
    /// Of the next file.
    lines: String,
    shown: BTreeMap<CameraId, String>,
    overrides: usize,
    told: String,
}

impl Story {
    fn step(&mut self, line: &str) {
        if let Some(line) = line.strip_prefix("| ") {
            self.lines += &format!("{line}\n");
            return;
        }
        let lines = mem::take(&mut self.lines);
        if self.store.is_none() {
            let file = site_of(if lines.is_empty() { SITE } else { &lines });
            let store = ConfigStore::new(file, StoredOverrides::default(), at(0), WALL);
            self.store = Some(store);
            self.show(false);
        }
        let store = self.store.as_mut().unwrap();
        let mut words = line.splitn(3, ' ');
        let [second, verb, rest] = [(); 3].map(|()| words.next().unwrap_or_default());
        let now = at(second.parse().unwrap());
        let command = match verb {
            "sets" => {
                let (camera, setting) = rest.split_once(' ').unwrap();
                let camera = CameraId::new(camera).unwrap();
                let setting = serde_json::from_str(setting).unwrap();
                Ok(Command::Set { camera, setting })
            }
            "draws" | "overdraws" => {
                let (camera, shapes) = rest.split_once(' ').unwrap();
                let id = CameraId::new(camera).unwrap();
                let version = store.shapes(&id).map(|shapes| shapes.version());
                let seen = match verb {
                    "draws" => version.unwrap_or_default(),
                    _ => "another".to_owned(),
                };
                let shapes: serde_json::Value = serde_json::from_str(shapes).unwrap();
                let request = serde_json::json!({"op": "shapes_set", "cam": camera, "seen": seen, "shapes": shapes});
                Command::of_request(request.as_object().unwrap().clone())
            }
            "edits" => {
                store.replace_file(site_of(&lines), now, WALL);
                return self.show(true);
            }
            "does" => Command::of_request(serde_json::from_str(rest).unwrap()),
            "lists" => {
                store.replace_list(site_of(&lines).cameras, now);
                return self.show(true);
            }
            "ticks" => {
                store.tick(now, WALL);
                return self.show(true);
            }
            other => panic!("{other}"),
        };
        let executed = command.and_then(|command| store.execute(&command, now, WALL));
        if let Err(Refusal { code, text, .. }) = executed {
            _ = writeln!(self.told, "> {code:?}: {text}");
        }
        self.show(true);
    }

    /// What is different since the last step.
    fn show(&mut self, is_told: bool) {
        let store = self.store.as_ref().unwrap();
        let cameras = store.cameras().iter();
        let texts = cameras.map(|camera| (camera.id.clone(), camera_text(camera)));
        let shown = mem::replace(&mut self.shown, texts.collect());
        let overrides = mem::replace(&mut self.overrides, store.overrides().count());
        if !is_told {
            return;
        }
        for (id, text) in self
            .shown
            .iter()
            .filter(|(id, text)| shown.get(*id) != Some(*text))
        {
            let text = text.strip_prefix(id.as_str()).unwrap();
            _ = writeln!(self.told, "> {id}:{text}");
        }
        for gone in shown.keys().filter(|id| !self.shown.contains_key(*id)) {
            _ = writeln!(self.told, "> {gone}: gone");
        }
        if overrides != self.overrides {
            _ = writeln!(self.told, "> overrides: {}", self.overrides);
        }
    }
}

#[test]
fn each_story_changes_what_it_says() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/config_store/tests/stories.txt"
    );
    check_stories(path, |story: &mut Story, line| {
        story.step(line);
        mem::take(&mut story.told)
    });
}
