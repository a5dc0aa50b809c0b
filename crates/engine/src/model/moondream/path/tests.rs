use serde_json::Value;

use super::*;
use crate::testing::{golden_set, json};

fn paths() -> Value {
    json(&golden_set("md3-segment-tiny").join("expected/paths.json"))
}

fn assert_polygons(name: &str, got: &[Vec<Vertex>], wanted: &Value) {
    let wanted: Vec<Vec<[f64; 2]>> = serde_json::from_value(wanted.clone()).unwrap();
    assert_eq!(got.len(), wanted.len(), "{name}: polygons");
    for (got, wanted) in got.iter().zip(&wanted) {
        assert_eq!(got.len(), wanted.len(), "{name}: vertices");
        for (got, [x, y]) in got.iter().zip(wanted) {
            let is_near = (got.x - x).abs() < 1e-9 && (got.y - y).abs() < 1e-9;
            assert!(is_near, "{name}: {got:?}, wants {x} {y}");
        }
    }
}

#[test]
fn golden_words_become_paths_and_polygons() {
    let paths = paths();
    let rows = paths["rows"].as_array().unwrap();
    assert!(rows.len() > 40);
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let words: Vec<String> = serde_json::from_value(row["path_tokens"].clone()).unwrap();
        let parsed = commands(&words);
        assert_eq!(parsed.is_err(), row.get("parse_error").is_some(), "{name}");
        let parsed = parsed.unwrap_or_default();
        let texts: Vec<String> = parsed.iter().map(PathCommand::text).collect();
        assert_eq!(texts.join(" "), row["path"], "{name}");
        assert_polygons(name, &polygons(&parsed), &row["polygons"]);
    }
}

#[test]
fn golden_ids_are_these_words() {
    let tokenizer = golden_set("md3-segment-tiny").join("tokenizer.json");
    let tokenizer = Tokenizer::open(&tokenizer).unwrap();
    let mut seen = 0;
    for row in paths()["rows"].as_array().unwrap() {
        if let Some(ids) = row["ids"].as_array() {
            let ids: Vec<u32> = serde_json::from_value(ids.clone().into()).unwrap();
            let words = words(&ids, &tokenizer).unwrap();
            assert_eq!(Value::from(words), row["path_tokens"], "{}", row["name"]);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn golden_numbers_have_three_decimals() {
    for (number, text) in paths()["numbers"].as_object().unwrap() {
        let number: f64 = number.parse().unwrap();
        assert_eq!(
            share(number).to_string(),
            text.as_str().unwrap(),
            "{number}"
        );
    }
}

/// The golden outputs with a coordinate as bin / 1024, which does not change their tokens.
#[test]
fn golden_tokens_become_boxes_paths_and_polygons() {
    let set = golden_set("md3-segment-tiny");
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let cases = json(&set.join("expected/cases.json"));
    for (name, case) in cases.as_object().unwrap() {
        let expected = &case["expected"];
        let of_1024 = &expected["variant_bin_over_1024"];
        assert_eq!(of_1024["tokens_equal"], true, "{name}");
        let bin = |value: &Value, key: &str| value[key].as_u64().map(|bin| bin as u16);
        let values = of_1024["values"].as_array().unwrap().iter().map(|value| {
            let coord = bin(value, "bin").map(ValueBins::Coord);
            let size =
                || ValueBins::Size(bin(value, "w_bin").unwrap(), bin(value, "h_bin").unwrap());
            coord.unwrap_or_else(size)
        });
        let found = SequenceOutput {
            tokens: serde_json::from_value(expected["tokens"].clone()).unwrap(),
            values: values.collect(),
            ..SequenceOutput::default()
        };
        let drawn = outline(&found, &tokenizer).unwrap();
        assert_eq!(drawn.path, of_1024["output"]["svg_path"], "{name}");
        let is_malformed = expected["output"].get("parse_error").is_some();
        assert_eq!(drawn.parse_error.is_some(), is_malformed, "{name}");
        assert_polygons(name, &drawn.polygons, &expected["polygons"]);
        let bounds = &of_1024["output"]["bbox"];
        let Some(got) = drawn.bounds else {
            assert!(bounds.is_null(), "{name}");
            continue;
        };
        let wanted = ["x_min", "y_min", "x_max", "y_max"].map(|key| bounds[key].as_f64().unwrap());
        for (got, wanted) in [got.x0, got.y0, got.x1, got.y1].into_iter().zip(wanted) {
            assert!((got - wanted).abs() < 1e-7, "{name}: {got}, wants {wanted}");
        }
    }
}
