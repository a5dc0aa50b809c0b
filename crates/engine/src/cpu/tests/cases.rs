//! Whole answers through the backend's seam: every call that the reference recorded, all calls about an image at once.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{backend, config, picture, run};
use crate::{
    model::{
        ModelConfig, SequenceOutput, Skill, SpatialRef, Tokenizer, coord_from_bin, prompt_tokens,
        query_tokens, size_from_bin, text_only_tokens,
    },
    scheduler::{
        backend::DecoderInput,
        sequence::{Bounds, Sequence},
    },
    testing::{golden_tests, json},
};
use spotter_core::{CaptionLength, Task};

golden_tests!(every_case_gives_the_same_tokens_bins_and_text);

fn every_case_gives_the_same_tokens_bins_and_text(set: &Path) {
    let config = config(set);
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let mut backend = backend(set);
    let cases = json(&set.join("expected/cases.json"));
    let mut by_image: BTreeMap<Option<&str>, Vec<(&String, &Value)>> = BTreeMap::new();
    for (name, case) in cases.as_object().unwrap() {
        by_image
            .entry(case["case"]["image"].as_str())
            .or_default()
            .push((name, case));
    }
    for (image, cases) in by_image {
        let sequences = cases
            .iter()
            .map(|(_, case)| sequence(case, &config, &tokenizer))
            .collect();
        let picture = image.map(|image| picture(set, image));
        let found = run(&mut backend, picture, sequences);
        for ((name, case), found) in cases.into_iter().zip(found) {
            compare(set, name, &case["expected"], found, &tokenizer, &config);
        }
    }
}

fn sequence(case: &Value, config: &ModelConfig, tokenizer: &Tokenizer) -> Sequence {
    let call = &case["case"];
    let word = |key: &str| call["args"][key].as_str().unwrap().to_owned();
    let reasoning = call["args"]["reasoning"].as_bool().unwrap_or(false);
    let task = |task| prompt_tokens(&task, config, tokenizer, reasoning).unwrap();
    let (skill, prompt) = match call["skill"].as_str().unwrap() {
        "detect" => (
            Skill::Detect,
            task(Task::Detect {
                object: word("object"),
            }),
        ),
        "point" => (
            Skill::Point,
            task(Task::Point {
                object: word("object"),
            }),
        ),
        "caption" => {
            let length = match word("length").as_str() {
                "short" => CaptionLength::Short,
                "normal" => CaptionLength::Normal,
                _ => CaptionLength::Long,
            };
            (
                Skill::Text { reasoning: false },
                task(Task::Caption { length }),
            )
        }
        _ => {
            let words = tokenizer.encode(&word("question")).unwrap();
            let prompt = match call["image"].as_str() {
                Some(_) => query_tokens(&words, &spatial_refs(&call["args"]), config, reasoning),
                None => text_only_tokens(&words, config, reasoning),
            };
            (Skill::Text { reasoning }, prompt)
        }
    };
    assert_ids(&case["expected"]["prompt_ids"], &prompt, config);
    let setting = |key: &str| call["settings"][key].as_u64().unwrap_or(50) as usize;
    let bounds = Bounds {
        max_objects: setting("max_objects"),
        max_tokens: setting("max_tokens"),
    };
    Sequence::new(config.grammar(skill), prompt, bounds)
}

/// The reference lists placeholder ids where coordinates and sizes stand.
fn assert_ids(expected: &Value, prompt: &[DecoderInput], config: &ModelConfig) {
    let id = |input: &DecoderInput| match input {
        DecoderInput::Token(id) => *id,
        DecoderInput::Coord(_) => config.tokenizer.coord_id,
        DecoderInput::Size(..) => config.tokenizer.size_id,
    };
    assert_eq!(
        &Value::from(prompt.iter().map(id).collect::<Vec<_>>()),
        expected
    );
}

fn spatial_refs(args: &Value) -> Vec<SpatialRef> {
    let refs: Vec<Vec<f32>> =
        serde_json::from_value(args["spatial_refs"].clone()).unwrap_or_default();
    let place = |place: Vec<f32>| match place[..] {
        [x, y] => SpatialRef::Point(x, y),
        [x0, y0, x1, y1] => SpatialRef::Box(x0, y0, x1, y1),
        _ => panic!("a reference of {} numbers", place.len()),
    };
    refs.into_iter().map(place).collect()
}

fn compare(
    set: &Path,
    name: &str,
    expected: &Value,
    found: SequenceOutput,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
) {
    let name = format!("{}/{name}", set.display());
    if let Some(objects) = expected["objects"].as_array() {
        compare_objects(&name, objects, &found);
        let by_bound = expected["ended_by"] == "max_objects";
        assert_eq!(found.truncated, by_bound, "{name}: end");
        return;
    }
    let phases = expected["phases"].as_array().unwrap();
    let answer = &phases[phases.len() - 1];
    assert_eq!(
        Value::from(found.tokens.clone()),
        answer["tokens"],
        "{name}: answer"
    );
    assert_eq!(
        found.truncated,
        answer["ended_by"] == "max_tokens",
        "{name}: end"
    );
    let output = &expected["output"];
    let text = output.get("answer").or(output.get("caption")).unwrap();
    assert_eq!(
        tokenizer.decode(&found.tokens).unwrap(),
        text.as_str().unwrap(),
        "{name}: text"
    );
    if let Some(reasoning) = output.get("reasoning") {
        compare_thoughts(&name, &phases[0], reasoning, &found, tokenizer, config);
    }
}

pub(super) fn compare_objects(name: &str, expected: &[Value], found: &SequenceOutput) {
    assert_eq!(found.objects.len(), expected.len(), "{name}: objects");
    for (found, expected) in found.objects.iter().zip(expected) {
        assert_eq!(
            (&expected["x_bin"], &expected["y_bin"]),
            (&found.x_bin.into(), &found.y_bin.into()),
            "{name}"
        );
        assert_eq!(expected["x"], coord_from_bin(found.x_bin), "{name}");
        if let Some((width, height)) = found.size_bins {
            assert_eq!(
                (&expected["w_bin"], &expected["h_bin"]),
                (&width.into(), &height.into()),
                "{name}"
            );
            let close = (expected["w"].as_f64().unwrap() - size_from_bin(width)).abs() < 1e-6;
            assert!(close, "{name}: width");
        }
    }
}

fn compare_thoughts(
    name: &str,
    phase: &Value,
    expected: &Value,
    found: &SequenceOutput,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
) {
    let ids = &config.tokenizer;
    let silent = [ids.coord_id, ids.start_ground_points_id, ids.end_ground_id];
    let mut tokens: Vec<u32> = serde_json::from_value(phase["tokens"].clone()).unwrap();
    tokens.retain(|id| !silent.contains(id));
    let thought: Vec<u32> = found
        .thoughts
        .iter()
        .flat_map(|thought| thought.tokens.clone())
        .collect();
    assert_eq!(thought, tokens, "{name}: thinking");
    let texts = found
        .thoughts
        .iter()
        .map(|thought| tokenizer.decode(&thought.tokens).unwrap());
    assert_eq!(
        texts.collect::<String>(),
        expected["text"].as_str().unwrap(),
        "{name}: text of the thinking"
    );
    let points = found
        .thoughts
        .iter()
        .flat_map(|thought| thought.coord_bins.chunks_exact(2));
    let points: Vec<Vec<f64>> = points
        .map(|point| point.iter().map(|&bin| coord_from_bin(bin)).collect())
        .collect();
    let grounding = expected["grounding"].as_array().unwrap();
    let wanted: Vec<Vec<f64>> = grounding
        .iter()
        .flat_map(|part| serde_json::from_value::<Vec<Vec<f64>>>(part["points"].clone()).unwrap())
        .collect();
    assert_eq!(points, wanted, "{name}: points of the thinking");
}
