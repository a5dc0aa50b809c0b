//! Whole answers through the backend's seam: every call that the reference recorded, all calls about an image at once.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{backend, config, picture, run};
use crate::{
    model::{SequenceOutput, Tokenizer, coord_from_bin, size_from_bin},
    testing::{golden_model::sequence, golden_tests, is_asked, json, whole_golden_set},
};

golden_tests!(every_case_gives_the_same_tokens_bins_and_text);

/// Under training names, with the bits of its experts and the scales of their rows.
#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_with_experts_in_e4m3_gives_equal_answers() {
    every_case_gives_the_same_tokens_bins_and_text(&whole_golden_set("md3-fp8-tiny"));
}

fn every_case_gives_the_same_tokens_bins_and_text(set: &Path) {
    let config = config(set);
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let mut backend = backend(set);
    let cases = json(&set.join("expected/cases.json"));
    let mut by_image: BTreeMap<&str, Vec<(&String, &Value)>> = BTreeMap::new();
    let cases = cases.as_object().unwrap().iter();
    for (name, case) in cases.filter(|(_, case)| is_asked(&case["case"])) {
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
        let found = run(&mut backend, Some(picture(set, image)), sequences);
        for ((name, case), found) in cases.into_iter().zip(found) {
            let name = format!("{}/{name}", set.display());
            compare(&name, &case["expected"], found, &tokenizer);
        }
    }
}

fn compare(name: &str, expected: &Value, found: SequenceOutput, tokenizer: &Tokenizer) {
    if let Some(objects) = expected["objects"].as_array() {
        compare_objects(name, objects, &found);
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
