//! Whole answers through the backend's seam: every call that the reference recorded, all calls about an image at once.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde_json::{Value, json};

use super::{backend, config, picture, run};
use crate::{
    model::{ModelConfig, SequenceOutput, Tokenizer, ValueBins, coord_from_bin, size_from_bin},
    scheduler::{backend::Backend, sequence::Bounds},
    service::{Engine, EngineModel},
    testing::{self, golden_model::sequence, golden_tests, whole_golden_set},
};
use spotter_core::{
    AnswerBody, AnswerPiece, GroundedSpan, Look, LookNews, ManualClock, Task, WholeLook,
};

golden_tests!(every_case_gives_the_same_tokens_bins_and_text);

/// Under training names, with the bits of its experts and the scales of their rows.
#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_with_experts_in_e4m3_gives_equal_answers() {
    every_case_gives_the_same_tokens_bins_and_text(&whole_golden_set("md3-fp8-tiny"));
}

/// Tokens of an outline, the values among them, and its end.
#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_of_outlines_gives_equal_tokens_and_values() {
    every_case_gives_the_same_tokens_bins_and_text(&whole_golden_set("md3-segment-tiny"));
}

fn every_case_gives_the_same_tokens_bins_and_text(set: &Path) {
    check_every_case(set, &mut backend(set));
}

/// Fails when `backend`, which has the network of the set, answers one of its cases otherwise than the reference.
pub(super) fn check_every_case(set: &Path, backend: &mut dyn Backend) {
    let config = config(set);
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let cases = testing::json(&set.join("expected/cases.json"));
    let mut by_image: BTreeMap<&str, Vec<(&String, &Value)>> = BTreeMap::new();
    let cases = cases.as_object().unwrap().iter();
    for (name, case) in cases.filter(|(_, case)| !case["case"]["image"].is_null()) {
        by_image
            .entry(case["case"]["image"].as_str().unwrap())
            .or_default()
            .push((name, case));
    }
    for (image, cases) in by_image {
        let sequences = cases
            .iter()
            .map(|(_, case)| sequence(case, &config))
            .collect();
        let found = run(backend, Some(picture(set, image)), sequences);
        for ((name, case), found) in cases.into_iter().zip(found) {
            let name = format!("{}/{name}", set.display());
            compare(&name, &case["expected"], found, &config, &tokenizer);
        }
    }
}

pub(super) fn compare(
    name: &str,
    expected: &Value,
    found: SequenceOutput,
    config: &ModelConfig,
    tokenizer: &Tokenizer,
) {
    if let Some(objects) = expected["objects"].as_array() {
        compare_objects(name, objects, &found);
        let by_bound = expected["ended_by"] == "max_objects";
        assert_eq!(found.truncated, by_bound, "{name}: end");
        return;
    }
    if expected.get("values").is_some() {
        compare_outline(name, expected, found);
        return;
    }
    let phases = expected["phases"].as_array().unwrap();
    let answer = &phases[phases.len() - 1];
    if phases.len() > 1 {
        let thoughts = Value::from(found.thoughts.tokens.clone());
        assert_eq!(thoughts, phases[0]["tokens"], "{name}: thoughts");
        let bins = found.thoughts.values.iter().map(bins).collect::<Vec<_>>();
        let wanted = expected["reasoning_coord_bins"].as_array();
        // The reference notes the bin behind a last token too, which it does not keep.
        let wanted = wanted.map_or(&[][..], Vec::as_slice);
        assert_eq!(bins, wanted[..bins.len()], "{name}: bins of thoughts");
        let family = config.family;
        let reasoning = family
            .reasoning(&found.thoughts, config, tokenizer)
            .unwrap();
        let span = |span: &GroundedSpan| {
            let points: Vec<[f64; 2]> = span.points.iter().map(|p| [p.x, p.y]).collect();
            json!({"start_idx": span.start, "end_idx": span.end, "points": points})
        };
        let grounding: Vec<Value> = reasoning.grounding.iter().map(span).collect();
        let reasoning = json!({"text": reasoning.text, "grounding": grounding});
        assert_eq!(reasoning, expected["output"]["reasoning"], "{name}");
    }
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
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_of_outlines_comes_out_of_the_engine() {
    let set = whole_golden_set("md3-segment-tiny");
    let cases = testing::json(&set.join("expected/cases.json"));
    let case = &cases["segment_leaf_48x55_66"];
    let model = EngineModel {
        config: config(&set),
        tokenizer: Tokenizer::open(&set.join("tokenizer.json")).unwrap(),
        explains_strips: true,
    };
    let bounds = Bounds {
        max_objects: 50,
        max_tokens: 5,
    };
    let clock = Arc::new(ManualClock::default());
    let mut engine = Engine::new(Box::new(backend(&set)), model, bounds, clock);
    let task = Task::Segment {
        object: case["case"]["args"]["object"].as_str().unwrap().into(),
        places: Vec::new(),
    };
    assert!(task.is_free_text());
    let look = Look::still(picture(&set, "leaf_48x55"), [task]).in_pieces();
    let mut whole = WholeLook::new(&look);
    let (mut box_first, mut path) = (None, Vec::new());
    engine.submit(look).unwrap();
    while whole.outcome.is_none() {
        for (_, news) in engine.turn().unwrap() {
            match news {
                LookNews::Piece { piece, .. } => match piece {
                    AnswerPiece::Bounds(bounds) => assert_eq!(box_first.replace(bounds), None),
                    AnswerPiece::Path(piece) => {
                        assert!(box_first.is_some(), "the box comes first");
                        path.push(piece);
                    }
                    other => panic!("{other:?}"),
                },
                news => whole.add(news),
            }
        }
    }
    let answer = whole.into_answers().unwrap().pop().unwrap();
    let AnswerBody::Outline(outline) = &answer.body else {
        panic!("{:?}", answer.body);
    };
    let of_1024 = &case["expected"]["variant_bin_over_1024"]["output"];
    assert_eq!(outline.path, of_1024["svg_path"]);
    assert_eq!(path.concat(), outline.path);
    assert!(path.len() > 1, "{path:?}");
    assert_eq!(outline.bounds, box_first);
    let bounds = outline.bounds.unwrap();
    for (got, key) in [(bounds.x0, "x_min"), (bounds.y1, "y_max")] {
        assert!(
            (got - of_1024["bbox"][key].as_f64().unwrap()).abs() < 1e-7,
            "{key}"
        );
    }
    assert_eq!(outline.polygons[0].len(), 4);
    assert_eq!(answer.tokens.answer, 17);
}

fn bins(values: &ValueBins) -> Value {
    match values {
        ValueBins::Coord(bin) => (*bin).into(),
        ValueBins::Size(width, height) => [*width, *height].as_slice().into(),
    }
}

/// The end is a token too there.
fn compare_outline(name: &str, expected: &Value, mut found: SequenceOutput) {
    let is_cut = expected["ended_by"] == "length";
    assert_eq!(found.truncated, is_cut, "{name}: end");
    found.tokens.extend((!is_cut).then_some(0));
    assert_eq!(Value::from(found.tokens), expected["tokens"], "{name}");
    let bins: Vec<Value> = found.values.iter().map(bins).collect();
    let wanted = expected["values"].as_array().unwrap().iter();
    let wanted = wanted.map(|value| match value.get("bin") {
        Some(bin) => bin.clone(),
        None => Value::from(vec![value["w_bin"].clone(), value["h_bin"].clone()]),
    });
    assert_eq!(bins, wanted.collect::<Vec<_>>(), "{name}: values");
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
