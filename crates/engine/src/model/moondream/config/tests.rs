use super::*;
use std::path::Path;

use crate::{
    model::{ModelFamily, moondream::Moondream3, parse_config},
    testing::{bytes, golden_model, golden_set, golden_tests},
};

fn problems(json: &str) -> Vec<String> {
    let problems = config_check::problems(&read(json, &ModelConfig::default()).unwrap());
    let error = parse_config(json, "m/config.json").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("m/config.json: {}", problems.join("; "))
    );
    problems
}

golden_tests!(plain_and_nested_files_are_equal);

fn plain_and_nested_files_are_equal(set: &Path) {
    let read = |file: &str| {
        let text = String::from_utf8(bytes(&set.join(file))).unwrap();
        parse_config(&text, file).unwrap()
    };
    assert_eq!(read("config.json"), read("config_hf.json"));
    assert_ne!(read("config.json"), ModelConfig::default());
}

#[test]
fn empty_files_are_the_released_model() {
    let released = r#"{"model_type": "moondream1", "config": {}}"#;
    for json in ["{}", released] {
        let config = parse_config(json, "config.json").unwrap();
        assert_eq!(config, ModelConfig::default());
    }
}

#[test]
fn defaults_are_the_released_model() {
    let config = golden_model::config(&golden_set("md2-full"));
    assert_eq!(config, ModelConfig::default());
    assert_eq!((config.vision.grid(), config.image_tokens()), (27, 729));
    assert_eq!(
        (config.prefix_positions(), config.text.head_dim()),
        (730, 64)
    );
    assert_eq!(
        (config.vision.head_dim(), config.vision.patch_values()),
        (72, 588)
    );
    let pixels = (config.vision.margin_pixels(), config.vision.window_pixels());
    assert_eq!(pixels, (56, 266));
}

#[test]
fn context_is_what_an_image_prompt_and_answer_need() {
    let context = |max_context| {
        let mut config = ModelConfig::default();
        config.text.max_context = max_context;
        config.context()
    };
    assert_eq!([1000, 2048, 32_768].map(context), [1000, 2048, 2048]);
}

#[test]
fn all_wrong_values_are_named_together() {
    let json = r#"{"text": {"dim": 0, "n_heads": 0}, "vision": {"crop_size": 380}}"#;
    assert_eq!(
        problems(json),
        [
            "text.dim = 0 must be from 1 to 65536",
            "text.dim = 0 must divide into text.n_heads = 0 heads of even width",
            "text.n_kv_heads = 32 must equal text.n_heads = 0; grouped heads are not supported",
            "vision.crop_size = 380 must be a multiple of vision.enc_patch_size = 14",
        ]
    );
    let json = r#"{"text": {"vocab_size": 8}, "region": {"dim": 64}}"#;
    let found = problems(json);
    assert_eq!(found[0], "region.dim = 64 must equal text.dim = 2048");
    assert_eq!(
        found[1],
        "tokenizer.templates.caption.short has id 32708, but text.vocab_size is 8"
    );
}

#[test]
fn impossible_sizes_are_rejected_before_allocation() {
    for (section, key, max) in [
        ("text", "n_layers", 1024),
        ("text", "dim", 65_536),
        ("text", "ff_dim", 65_536),
        ("text", "vocab_size", 1 << 20),
        ("text", "max_context", 1 << 17),
        ("vision", "enc_n_layers", 1024),
        ("vision", "enc_dim", 65_536),
        ("vision", "enc_ff_dim", 65_536),
        ("vision", "proj_out_dim", 65_536),
        ("vision", "proj_inner_dim", 65_536),
        ("vision", "enc_patch_size", 4096),
        ("vision", "crop_size", 4096),
        ("vision", "max_crops", 256),
        ("region", "coord_feat_dim", 65_536),
        ("region", "size_feat_dim", 65_536),
        ("region", "inner_dim", 65_536),
    ] {
        for size in [0, max + 1, 1 << 24, u64::MAX] {
            let found = problems(&format!(r#"{{"{section}": {{"{key}": {size}}}}}"#));
            let expected = format!("{section}.{key} = {size} must be from 1 to {max}");
            assert!(found.contains(&expected), "{found:?}");
        }
        // At the limit, something else may not fit, but the size itself is believed.
        let json = format!(r#"{{"{section}": {{"{key}": {max}}}}}"#);
        if let Err(error) = parse_config(&json, "m/config.json") {
            assert!(!error.to_string().contains("must be from 1"), "{error}");
        }
    }
}

#[test]
fn other_models_are_refused_by_name() {
    for (json, word) in [
        (r#"{"text": {"group_size": 128}}"#, "int4"),
        (
            r#"{"text": {"n_heads": 128, "n_kv_heads": 128}}"#,
            "32 or more",
        ),
        (
            r#"{"vision": {"overlap_margin": 14}}"#,
            "between two margins",
        ),
    ] {
        let found = problems(json);
        assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
    }
}

#[test]
fn broken_config_error_names_the_position() {
    let text = parse_config("{\n\"text\": 3}", "m/config.json")
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("cannot read m/config.json as a model configuration: "),
        "{text}"
    );
    assert!(text.contains("line 2"), "{text}");
}

#[test]
fn moondream_3_takes_released_values_for_missing_keys() {
    let released = Moondream3.released();
    let parse = |json| parse_config(json, "m/config.json").unwrap();
    let nested = r#"{"model_type": "moondream3", "config": {}}"#;
    assert_eq!(parse(nested), released);
    let config = parse(r#"{"text": {"moe": {"num_experts": 8}, "max_context": 4096}}"#);
    let moe = config.text.moe.unwrap();
    assert_eq!((moe.num_experts, moe.start_layer), (8, 4));
    assert_eq!(
        (config.text.max_context, config.text.tau_attn),
        (4096, true)
    );
    assert_eq!(config.region, released.region);
    assert_eq!(config.tokenizer, released.tokenizer);
}

#[test]
fn templates_of_a_file_replace_all_released_ones() {
    let json = r#"{"tokenizer": {"templates": {"detect": {"prefix": [8], "suffix": [9]}}}}"#;
    let config = parse_config(json, "m/config.json").unwrap();
    let Templates {
        caption,
        detect,
        segment,
        ..
    } = config.tokenizer.templates;
    assert_eq!((detect.prefix, detect.suffix), (vec![8], vec![9]));
    assert!(caption.long.is_empty() && segment.is_none());
}

#[test]
fn impossible_experts_are_named() {
    let moe = |keys: &str| {
        let json = format!(r#"{{"text": {{"moe": {{{keys}}}}}}}"#);
        parse_config(&json, "m/config.json")
            .unwrap_err()
            .to_string()
    };
    for (keys, expected) in [
        (
            r#""num_experts": 1"#,
            "num_experts = 1 must be from 2 to 1024",
        ),
        (
            r#""experts_per_token": 65"#,
            "experts_per_token = 65 must be from 1 to text.moe.num_experts = 64",
        ),
        (
            r#""start_layer": 25"#,
            "start_layer = 25 must be at most text.n_layers = 24",
        ),
        (
            r#""expert_inner_dim": 0"#,
            "expert_inner_dim = 0 must be from 1 to 65536",
        ),
    ] {
        assert!(moe(keys).contains(expected), "{}", moe(keys));
    }
}
