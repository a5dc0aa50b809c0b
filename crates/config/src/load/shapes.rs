//! What is drawn on a camera, changed while Spotter runs: it is read by the code that reads the file's, and written as the file has it.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::prompt_keys::read_table;
use crate::{
    forms::prelude::*,
    read::prelude::*,
    tables::{area::*, camera::*, prompt::*},
};
use spotter_core::{CameraShapes, LookRate, Task, plain_text, rounded};

/// Points of a shape.
const POINTS_MAX: usize = 100;
/// Zones, lines and areas of the mask, of each.
const SHAPES_MAX: usize = 64;
/// Digits after the point of a position.
const DECIMALS: i32 = 4;
/// Characters of a mistake: a name in it may be endless.
const MISTAKE_MAX_CHARS: usize = 400;
/// Keys of a prompt that are about shapes.
const PROMPT_KEYS: [&str; 3] = ["zones", "lines", "region"];

/// All that is drawn on a camera.
pub fn shapes_of(camera: &CameraConfig) -> CameraShapes {
    let zones = camera.zones.iter().map(|zone| {
        let ZoneConfig { id, polygon, point } = zone;
        let keys = [("polygon", path(polygon)), ("point", point.word().into())];
        (id.to_string(), table(keys))
    });
    let lines = camera.lines.iter().map(|line| {
        let directions = line.directions.iter().map(|name| name.to_string());
        let reset = line
            .reset
            .as_ref()
            .map(|reset| ("reset", reset.text().into()));
        let keys = [
            ("points", path(&line.points)),
            ("directions", directions.collect::<Vec<_>>().into()),
            ("point", line.point.word().into()),
        ];
        (line.id.to_string(), table(keys.into_iter().chain(reset)))
    });
    let prompts = camera.prompts.iter().filter_map(|prompt| {
        let shapes = prompt_shapes(prompt);
        (!shapes.is_empty()).then(|| (prompt.id.to_string(), shapes.into()))
    });
    let mask = camera.mask.iter().map(|area| path(area)).collect();
    let all = [
        ("zone", Value::Table(zones.collect())),
        ("line", Value::Table(lines.collect())),
        ("mask", Value::Array(mask)),
        ("prompt", Value::Table(prompts.collect())),
    ];
    CameraShapes(
        all.map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect(),
    )
}

/// What a prompt has of [`PROMPT_KEYS`].
fn prompt_shapes(prompt: &PromptConfig) -> Table {
    let names = |names: Vec<String>| (!names.is_empty()).then(|| Value::from(names));
    let zones = prompt.zones.iter().map(|id| id.to_string());
    let lines = prompt.lines.iter().map(|id| id.to_string());
    let region = prompt.place_keys.get("region").map(|region| match region {
        Value::Array(edges) => {
            let shares = edges.iter().filter_map(number).map(share);
            Value::Array(shares.collect())
        }
        word => word.clone(),
    });
    let values = [names(zones.collect()), names(lines.collect()), region];
    let keys = PROMPT_KEYS.into_iter().zip(values);
    keys.filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

fn table(keys: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
    Value::Table(keys.collect())
}

fn path(points: &[(f64, f64)]) -> Value {
    let points = points
        .iter()
        .map(|&(x, y)| Value::Array(vec![share(x), share(y)]));
    Value::Array(points.collect())
}

fn share(share: f64) -> Value {
    rounded(share, DECIMALS).into()
}

fn number(value: &Value) -> Option<f64> {
    value
        .as_float()
        .or(value.as_integer().map(|whole| whole as f64))
}

/// Of two different states of shapes, two different texts.
pub fn shapes_version(shapes: &CameraShapes) -> String {
    // A table of texts and numbers is always written.
    let text = toml::to_string(shapes).unwrap_or_default();
    let digest = Sha256::digest(text);
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The camera of the file, with these shapes in place of its own; or all mistakes, in the words of the file's.
pub fn with_shapes(
    camera: &CameraConfig,
    shapes: &CameraShapes,
) -> Result<CameraConfig, Vec<String>> {
    let mut wrong = beyond_limits(&shapes.0);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let keys = with_prompts(camera, shapes, &mut wrong);
    let read = read_table("", &keys, |mut table| {
        let DrawnAreas { mask, zones, lines } = areas(&mut table);
        let mut drawn = CameraConfig {
            mask,
            zones,
            lines,
            ..camera.clone()
        };
        // A mode or a command may have set a lower rate than a prompt has in the file.
        let any_rate = CameraConfig {
            rate: LookRate::nearest(*LookRate::RANGE.end()),
            ..drawn.clone()
        };
        let prompts = table
            .get("prompt")
            .and_then(|value| Reader::of_value(&value));
        for (name, value) in prompts.iter().flat_map(Reader::entries) {
            let known = drawn
                .prompts
                .iter_mut()
                .find(|prompt| prompt.id.as_str() == name.get_ref());
            let table = Reader::of_value(&value);
            if let Some((known, table)) = known.zip(table)
                && let Some(read) = prompt(known.id.clone(), table, any_rate.prompt_scope(None))
            {
                place(known, read);
            }
        }
        table.finish();
        wrong.extend(keep_mask(camera, &mut drawn.mask));
        Some(drawn)
    });
    match read {
        Ok(drawn) if wrong.is_empty() => Ok(drawn),
        Ok(_) => Err(wrong),
        Err(mistakes) => {
            wrong.extend(mistakes.iter().map(|text| shortened(text)));
            Err(wrong)
        }
    }
}

/// What of a prompt depends on shapes.
fn place(prompt: &mut PromptConfig, read: PromptConfig) {
    prompt.zones = read.zones;
    prompt.lines = read.lines;
    prompt.region = read.region;
    prompt.dwell = read.dwell;
    prompt.place_keys = read.place_keys;
    if let (
        Task::Query { options, .. },
        Task::Query {
            options: placed, ..
        },
    ) = (&mut prompt.task, read.task)
    {
        options.places = placed.places;
    }
}

/// The shapes with the other keys of the camera's prompts that depend on them.
fn with_prompts(camera: &CameraConfig, shapes: &CameraShapes, wrong: &mut Vec<String>) -> Table {
    let mut keys = shapes.0.clone();
    let Some(given) = keys
        .entry("prompt")
        .or_insert(Value::Table(Table::new()))
        .as_table_mut()
    else {
        return keys;
    };
    let ids: Vec<_> = camera.prompts.iter().map(|prompt| &prompt.id).collect();
    given.retain(
        |name, _| match find_id(name, "prompt of this camera", &ids) {
            Ok(_) => true,
            Err(text) => {
                wrong.push(shortened(&format!("prompt.{name:?}: {text}")));
                false
            }
        },
    );
    for prompt in &camera.prompts {
        let given = given
            .entry(prompt.id.as_str())
            .or_insert(Value::Table(Table::new()));
        let Some(given) = given.as_table_mut() else {
            continue;
        };
        given.retain(|key, _| {
            let is_known = PROMPT_KEYS.contains(&key);
            if !is_known {
                let known = PROMPT_KEYS.join(", ");
                wrong.push(shortened(&format!(
                    "prompt.{}.{key:?}: unknown key; valid keys: {known}",
                    prompt.id
                )));
            }
            is_known
        });
        let others = prompt
            .place_keys
            .iter()
            .filter(|(key, _)| !PROMPT_KEYS.contains(&key.as_str()));
        given.extend(others.map(|(key, value)| (key.clone(), value.clone())));
    }
    keys
}

/// Shapes that are too many or have too many points, before they are compared with each other.
fn beyond_limits(shapes: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |key: &str, count: usize, most: usize, what: &str| {
        if count > most {
            wrong.push(shortened(&format!(
                "{key}: has {count} {what}, limit {most}"
            )));
        }
    };
    for (key, points) in [("zone", "polygon"), ("line", "points")] {
        let tables = shapes.get(key).and_then(Value::as_table);
        check(key, tables.map_or(0, Table::len), SHAPES_MAX, "tables");
        for (name, table) in tables.into_iter().flatten() {
            let path = table.get(points).and_then(Value::as_array);
            let key = format!("{key}.{name}.{points}");
            check(&key, path.map_or(0, Vec::len), POINTS_MAX, "points");
        }
    }
    let areas = shapes.get("mask").and_then(Value::as_array);
    check("mask", areas.map_or(0, Vec::len), SHAPES_MAX, "areas");
    for area in areas.into_iter().flatten().filter_map(Value::as_array) {
        check("mask", area.len(), POINTS_MAX, "points");
    }
    wrong
}

/// The areas of the file's mask must be among the new ones, which are made as exact as in the file. Returns what is wrong.
fn keep_mask(file: &CameraConfig, mask: &mut [Vec<(f64, f64)>]) -> Option<String> {
    for (index, area) in file.mask.iter().enumerate() {
        let same = mask.iter_mut().find(|new| path(new) == path(area));
        let Some(same) = same else {
            let number = index + 1;
            return Some(format!(
                "mask: area {number} of the file is missing or has other points; further areas can be added, and those of the file are changed in the file"
            ));
        };
        same.clone_from(area);
    }
    None
}

fn shortened(text: &str) -> String {
    let mut text = plain_text(text);
    if let Some((end, _)) = text.char_indices().nth(MISTAKE_MAX_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The lines of the file that make the shapes of `now` the camera's own: keys that replace those of its tables. What the file has to lose is
/// a comment. `file`: the camera as the file has it.
pub fn shapes_toml(now: &CameraConfig, file: &CameraConfig) -> String {
    let (id, [new, old]) = (&now.id, [now, file].map(|camera| shapes_of(camera).0));
    let mut sections = Vec::new();
    if !now.mask.is_empty() {
        // The areas of the file stay as exact as they are.
        let exact = |&(x, y): &(f64, f64)| Value::from(vec![x, y]);
        let areas = now
            .mask
            .iter()
            .map(|area| Value::Array(area.iter().map(exact).collect()));
        let mask = [("mask".to_owned(), Value::Array(areas.collect()))];
        sections.push(section(
            &format!("camera.{id}"),
            &mask.into_iter().collect(),
        ));
    }
    for kind in ["zone", "line"] {
        for (name, keys) in tables_in(&new, kind) {
            sections.push(section(&format!("camera.{id}.{kind}.{name}"), keys));
        }
        let mut gone = tables_in(&old, kind);
        gone.retain(|(name, _)| tables_in(&new, kind).iter().all(|(kept, _)| kept != name));
        let gone = gone
            .iter()
            .map(|(name, _)| format!("# remove [camera.{id}.{kind}.{name}]\n"));
        sections.extend(gone);
    }
    let none = Table::new();
    let of = |shapes, name: &str| {
        let mut prompts = tables_in(shapes, "prompt").into_iter();
        prompts
            .find(|(id, _)| *id == name)
            .map_or(&none, |(_, keys)| keys)
    };
    let names: BTreeSet<&str> = [&new, &old]
        .into_iter()
        .flat_map(|shapes| tables_in(shapes, "prompt"))
        .map(|(name, _)| name)
        .collect();
    for name in names {
        let (new, old) = (of(&new, name), of(&old, name));
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        let gone: String = gone.map(|key| format!("# remove {key}\n")).collect();
        sections.push(section(&format!("camera.{id}.prompt.{name}"), new) + &gone);
    }
    sections.join("\n")
}

/// The tables below a key, by their names.
fn tables_in<'a>(shapes: &'a Table, key: &str) -> Vec<(&'a str, &'a Table)> {
    let tables = shapes
        .get(key)
        .and_then(Value::as_table)
        .into_iter()
        .flatten();
    tables
        .filter_map(|(name, keys)| Some((name.as_str(), keys.as_table()?)))
        .collect()
}

fn section(name: &str, keys: &Table) -> String {
    // A table of texts and numbers is always written.
    let lines = toml::to_string(keys).unwrap_or_default();
    format!("[{name}]\n{lines}")
}
