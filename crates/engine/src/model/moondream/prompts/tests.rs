use super::*;
use std::path::Path;

use spotter_core::QueryOptions;

use crate::testing::{golden_model::config, golden_set, golden_tests, json};

golden_tests!(every_golden_case_has_its_prompt_ids);

/// As the golden ids write it: the reference puts placeholder ids where coordinates and sizes stand.
fn id(input: DecoderInput, config: &ModelConfig) -> u32 {
    match input {
        DecoderInput::Token(id) => id,
        DecoderInput::Coord(_) => config.tokenizer.coord_id,
        DecoderInput::Size(..) => config.tokenizer.size_id,
    }
}

fn inputs_of(
    case: &serde_json::Value,
    config: &ModelConfig,
    words: &Tokenizer,
) -> Vec<DecoderInput> {
    let args = &case["args"];
    let text = |key: &str| args[key].as_str().unwrap_or_default().to_owned();
    let (object, question, choices) = (text("object"), text("question"), Vec::new());
    let places: Vec<Vec<f64>> =
        serde_json::from_value(args["spatial_refs"].clone()).unwrap_or_default();
    let places = places
        .iter()
        .map(|place| SpatialReference::from_shares(place).unwrap());
    let places: Vec<SpatialReference> = places.collect();
    let length = match args["length"].as_str() {
        Some("short") => CaptionLength::Short,
        Some("normal") => CaptionLength::Normal,
        _ => CaptionLength::Long,
    };
    let task = match case["skill"].as_str().unwrap() {
        "detect" => Task::Detect { object },
        "point" => Task::Point { object },
        "caption" => Task::Caption { length },
        "segment" => Task::Segment { object, places },
        _ => Task::Query {
            question,
            choices,
            options: QueryOptions {
                places,
                reasoning: args["reasoning"] == true,
            },
        },
    };
    config.family.prompt(&task, config, words).unwrap().inputs
}

fn every_golden_case_has_its_prompt_ids(set: &Path) {
    let config = config(set);
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let cases = json(&set.join("expected/cases.json"));
    let cases = cases.as_object().unwrap();
    assert!(cases.len() > 10);
    for (name, case) in cases
        .iter()
        .filter(|(_, case)| !case["case"]["image"].is_null())
    {
        let inputs = inputs_of(&case["case"], &config, &tokenizer);
        let ids: Vec<u32> = inputs.iter().map(|&input| id(input, &config)).collect();
        let expected = &case["expected"]["prompt_ids"];
        assert_eq!(*expected, serde_json::json!(ids), "{name}");
    }
}

#[test]
fn golden_outlines_have_their_prompt_ids() {
    // The family's values for what the set in the repository leaves out.
    let set = golden_set("md3-segment-tiny");
    let config = config(&set);
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    for (name, case) in json(&set.join("expected/cases.json")).as_object().unwrap() {
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
fn moondream_2_draws_no_outlines() {
    let set = golden_set("md2-micro");
    let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
    let config = config(&set);
    let task = Task::Segment {
        object: "cat".into(),
        places: Vec::new(),
    };
    let error = config
        .family
        .prompt(&task, &config, &tokenizer)
        .unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("Moondream 2 draws no outlines"), "{text}");
    assert!(text.contains("spotter model list"), "{text}");
}

#[test]
fn a_template_that_the_model_lacks_is_an_error() {
    let mut config = ModelConfig::default();
    config.tokenizer.templates.caption.long.clear();
    let tokenizer = Tokenizer::open(&golden_set("md2-micro").join("tokenizer.json")).unwrap();
    let task = Task::Caption {
        length: CaptionLength::Long,
    };
    let error = config
        .family
        .prompt(&task, &config, &tokenizer)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "this model has no long caption; ask for another length"
    );

    config.tokenizer.templates.point = Template::default();
    let object = "cat".to_owned();
    let error = (config.family).prompt(&Task::Point { object }, &config, &tokenizer);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no template for point"), "{error}");
}
