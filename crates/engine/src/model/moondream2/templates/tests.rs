use super::*;
use std::path::Path;

use crate::testing::{bytes, golden_set, golden_tests, json};

golden_tests!(every_golden_case_has_its_prompt_ids);

/// As the golden ids write it: the reference puts placeholder ids where coordinates and sizes stand.
fn id(input: DecoderInput, config: &ModelConfig) -> u32 {
    match input {
        DecoderInput::Token(id) => id,
        DecoderInput::Coord(_) => config.tokenizer.coord_id,
        DecoderInput::Size(..) => config.tokenizer.size_id,
    }
}

fn spatial_ref(value: &serde_json::Value) -> SpatialRef {
    let numbers: Vec<f32> = serde_json::from_value(value.clone()).unwrap();
    match numbers[..] {
        [x, y] => SpatialRef::Point(x, y),
        [x0, y0, x1, y1] => SpatialRef::Box(x0, y0, x1, y1),
        _ => panic!("{value}"),
    }
}

fn inputs_of(
    case: &serde_json::Value,
    config: &ModelConfig,
    words: &Tokenizer,
) -> Vec<DecoderInput> {
    let args = &case["args"];
    let text = |key: &str| args[key].as_str().unwrap().to_owned();
    let reasoning = args["reasoning"].as_bool().unwrap_or(false);
    let task = match case["skill"].as_str().unwrap() {
        "detect" => Task::Detect {
            object: text("object"),
        },
        "point" => Task::Point {
            object: text("object"),
        },
        "caption" => Task::Caption {
            length: match args["length"].as_str().unwrap() {
                "short" => CaptionLength::Short,
                "normal" => CaptionLength::Normal,
                _ => CaptionLength::Long,
            },
        },
        _ => Task::Query {
            question: text("question"),
            choices: Vec::new(),
        },
    };
    if case["image"].is_null() {
        return text_only_tokens(&words.encode(task.text()).unwrap(), config, reasoning);
    }
    if let Some(refs) = args["spatial_refs"].as_array() {
        let refs: Vec<_> = refs.iter().map(spatial_ref).collect();
        return query_tokens(
            &words.encode(task.text()).unwrap(),
            &refs,
            config,
            reasoning,
        );
    }
    prompt_tokens(&task, config, words, reasoning).unwrap()
}

fn every_golden_case_has_its_prompt_ids(set: &Path) {
    let text = String::from_utf8(bytes(&set.join("config.json"))).unwrap();
    let config = ModelConfig::from_json(&text, "config.json").unwrap();
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let cases = json(&set.join("expected/cases.json"));
    let cases = cases.as_object().unwrap();
    assert!(cases.len() > 20);
    for (name, case) in cases {
        let inputs = inputs_of(&case["case"], &config, &tokenizer);
        let ids: Vec<u32> = inputs.iter().map(|&input| id(input, &config)).collect();
        assert_eq!(
            case["expected"]["prompt_ids"],
            serde_json::json!(ids),
            "{name}"
        );
    }
}

#[test]
fn boxes_become_centre_and_size() {
    let config = ModelConfig::default();
    let refs = [
        SpatialRef::Point(0.25, 0.625),
        SpatialRef::Box(0.125, 0.25, 0.5, 0.8125),
    ];
    assert_eq!(
        query_tokens(&[77], &refs, &config, true),
        [
            DecoderInput::Token(1),
            DecoderInput::Token(15381),
            DecoderInput::Token(2),
            DecoderInput::Coord(0.25),
            DecoderInput::Coord(0.625),
            DecoderInput::Coord(0.3125),
            DecoderInput::Coord(0.53125),
            DecoderInput::Size(0.375, 0.5625),
            DecoderInput::Token(77),
            DecoderInput::Token(3),
            DecoderInput::Token(4),
        ]
    );
}

#[test]
fn a_caption_that_the_model_lacks_is_an_error() {
    let mut config = ModelConfig::default();
    config.tokenizer.templates.caption.long.clear();
    let tokenizer = Tokenizer::open(&golden_set("md2-micro").join("tokenizer.json")).unwrap();
    let task = Task::Caption {
        length: CaptionLength::Long,
    };
    let error = prompt_tokens(&task, &config, &tokenizer, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this model has no long caption; ask for another length"
    );
}
