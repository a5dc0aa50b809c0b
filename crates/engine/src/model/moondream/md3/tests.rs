use std::{collections::BTreeMap, path::Path};

use safetensors::Dtype;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::{
    model::{
        Tensor, TensorData, Tokenizer, WeightsError, check_model,
        files::hex,
        load_model,
        weights::{LinearWeights, Weights},
    },
    network::{
        TextMlp,
        format::Number,
        spec::{LayerSpec, TensorSpec},
    },
    testing::{
        golden_model::{config, places, weights_in},
        golden_set, json,
        raw_tensors::{RawTensor, raw_tensors, weights_file},
        whole_golden_set,
    },
};
use spotter_config::ModelSource;

/// The file of the set in the repository, which has most that a loader has to cope with: `._orig_mod`, tau in two tensors, three formats
/// and scales of a KV cache.
const ODD: &str = "training-odd.safetensors";

fn load(config: &ModelConfig, tensors: &[RawTensor]) -> Result<Weights, WeightsError> {
    let file = weights_file(tensors)?;
    let mut file = file.renamed(&|name| config.family.own_name(name))?;
    let weights = Weights::load(config, &mut file)?;
    assert_eq!(file.unused(), <[&str; 0]>::default());
    Ok(weights)
}

fn all_tensors(weights: Weights) -> Vec<Tensor> {
    let (layers, plain) = weights.into_parts();
    let of_layer = |layer: LinearWeights| {
        let bias = Some(layer.bias).filter(|bias| !bias.is_empty());
        [Some(layer.weight), bias, layer.row_scales]
    };
    let layers = layers.into_iter().flat_map(of_layer).flatten();
    layers.chain(plain).collect()
}

/// Shape and values by the published name; both halves of tau by theirs.
fn named(weights: Weights) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let mut all = BTreeMap::new();
    for tensor in all_tensors(weights) {
        let (name, shape) = (format!("model.{}", tensor.name), tensor.shape.clone());
        let values = tensor.into_f32().unwrap();
        match name.strip_suffix("wq_wv") {
            None => {
                all.insert(name, (shape, values));
            }
            Some(tau) => {
                let halves = values.chunks_exact(values.len() / 2);
                for (half, values) in ["wq", "wv"].iter().zip(halves) {
                    let shape = vec![shape[0] / 2, shape[1]];
                    all.insert(format!("{tau}{half}"), (shape, values.to_vec()));
                }
            }
        }
    }
    all
}

fn sha256(values: &[f32]) -> String {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    hex(&Sha256::digest(bytes))
}

/// Every row of `tests.json` about what a file holds.
fn assert_is_the_network(set: &Path, file: &str) {
    let config = config(set);
    let loaded = named(load(&config, &raw_tensors(&set.join(file))).unwrap());
    let tests = json(&set.join("tests.json"));
    let rows = |key: &str| tests[key].as_array().unwrap().iter();
    assert_eq!(rows("tensors").count(), loaded.len());
    let usizes = |value: &Value| -> Vec<usize> { serde_json::from_value(value.clone()).unwrap() };
    for row in rows("tensors") {
        let name = row["name"].as_str().unwrap();
        let (shape, values) = &loaded[name];
        assert_eq!(*shape, usizes(&row["shape"]), "{file}: {name}");
        assert_eq!(row["sha256_f32"], sha256(values), "{file}: {name}");
        let first: Vec<f32> = serde_json::from_value(row["first"].clone()).unwrap();
        assert_eq!(values[..first.len()], first, "{file}: {name}");
        let last = values.last().map(|last| f64::from(*last));
        assert_eq!(row["last"].as_f64(), last, "{file}: {name}");
    }
    for row in rows("parts") {
        let (shape, values) = &loaded[row["tensor"].as_str().unwrap()];
        let [outer @ .., rows, width] = shape.as_slice() else {
            panic!("{row}");
        };
        let expert = row["expert"].as_u64().unwrap_or(0) as usize;
        assert!(expert == 0 || expert < outer[0], "{row}");
        let part = usizes(&row["rows"]);
        let range = (expert * rows + part[0]) * width..(expert * rows + part[1]) * width;
        assert_eq!(row["sha256_f32"], sha256(&values[range]), "{file}: {row}");
    }
}

/// The other rows: each edit of a file under training names makes it unusable, and the error names the tensor.
fn assert_refuses_edits(set: &Path, file: &str) {
    let config = config(set);
    let whole = raw_tensors(&set.join(file));
    let plain = |name: &str| name.replace("._orig_mod", "");
    let tests = json(&set.join("tests.json"));
    let edits = tests["refuse"].as_array().unwrap();
    assert_eq!(edits.len(), 7);
    for edit in edits {
        let mut tensors = whole.clone();
        let target = edit["tensor"].as_str().unwrap();
        let is_target = |tensor: &RawTensor| plain(&tensor.name) == plain(target);
        let at = tensors.iter().position(is_target).unwrap();
        match edit["edit"].as_str().unwrap() {
            "remove" => drop(tensors.remove(at)),
            "transpose" => tensors[at].shape.reverse(),
            "add" => tensors.push(RawTensor {
                name: target.to_owned(),
                ..tensors[at].clone()
            }),
            other => panic!("{other}"),
        }
        let error = load(&config, &tensors).unwrap_err().to_string();
        let (TensorName::Own(own) | TensorName::Transposed(own)) = names::own_name(target) else {
            panic!("{edit}");
        };
        assert!(
            error.contains(&own) || error.contains("are the same tensor"),
            "{edit}: {error}"
        );
    }
}

#[test]
fn file_under_training_names_has_each_golden_tensor() {
    assert_is_the_network(&golden_set("md3-names"), ODD);
}

#[test]
fn edited_files_are_refused_with_the_tensors_name() {
    assert_refuses_edits(&golden_set("md3-names"), ODD);
}

#[test]
fn scales_of_a_kv_cache_may_be_left_out() {
    let set = golden_set("md3-names");
    let names = &json(&set.join("tests.json"))["optional"]["names"];
    let names: Vec<String> = serde_json::from_value(names.clone()).unwrap();
    let mut tensors = raw_tensors(&set.join(ODD));
    let with = named(load(&config(&set), &tensors).unwrap());
    tensors.retain(|tensor| !names.contains(&tensor.name.replace("._orig_mod", "")));
    let without = named(load(&config(&set), &tensors).unwrap());
    assert_eq!(with, without);
}

/// Replaces the up weights of block 1 by eight bits, with the scale of each row.
fn in_8_bits(tensors: &mut Vec<RawTensor>) {
    let is_up = |tensor: &&mut RawTensor| tensor.name.ends_with("h.1.mlp.experts.weight");
    let up = tensors.iter_mut().find(is_up).unwrap();
    let count: usize = up.shape.iter().product();
    (up.dtype, up.bytes) = (Dtype::F8_E4M3, (0..count).map(|i| i as u8).collect());
    let scales = (0..4 * 32).flat_map(|row: usize| (row as f32).to_le_bytes());
    tensors.push(RawTensor {
        name: "text_model.transformer.h.1.moe_quant.up_scale".to_owned(),
        dtype: Dtype::F32,
        shape: vec![4, 32],
        bytes: scales.collect(),
    });
}

#[test]
fn experts_in_8_bits_keep_their_bytes_and_scales() {
    let set = golden_set("md3-names");
    let mut tensors = raw_tensors(&set.join(ODD));
    in_8_bits(&mut tensors);
    let weights = load(&config(&set), &tensors).unwrap();
    let TextMlp::Experts(experts) = &weights.text.blocks[1].mlp else {
        panic!("block 1 has experts");
    };
    let is_8_bits = |tensor: &Tensor| {
        let TensorData::Encoded { format, .. } = tensor.data else {
            return false;
        };
        format == Number::E4m3
    };
    assert!(is_8_bits(&experts.up.weight) && !is_8_bits(&experts.down.weight));
    assert!(experts.down.row_scales.is_none());
    let values = experts.up.weight.to_f32().unwrap();
    assert_eq!(values[0x38..0x3a], [1.0, 1.125]);
    let scales = experts.up.row_scales.as_ref().unwrap().to_f32().unwrap();
    assert!(scales.into_iter().eq((0..128).map(|row| row as f32)));

    let error = |tensors: &[RawTensor]| load(&config(&set), tensors).unwrap_err().to_string();
    let without_scales = &tensors[..tensors.len() - 1];
    let expected = "lacks 1 tensors that its config.json needs: text.blocks.1.mlp.fc1.row_scales";
    assert!(error(without_scales).contains(expected));
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_has_one_network_under_all_names() {
    let set = whole_golden_set("md3-names");
    for file in ["hf.safetensors", "training.safetensors", ODD] {
        assert_is_the_network(&set, file);
    }
    for file in ["training.safetensors", ODD] {
        assert_refuses_edits(&set, file);
    }
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_is_equal_in_safetensors_and_pickle() {
    let set = whole_golden_set("md3-fp8-tiny");
    let config = config(&set);
    let tensors = |file| {
        let tensors = all_tensors(weights_in(&set.join(file), &config).unwrap());
        tensors.into_iter().map(|tensor| {
            let TensorData::Encoded { format, .. } = tensor.data else {
                panic!("{}", tensor.name);
            };
            let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
            let bits = tensor.into_f32().unwrap().into_iter().map(f32::to_bits);
            (name, format, shape, bits.collect::<Vec<u32>>())
        })
    };
    assert!(tensors("model.safetensors").eq(tensors("model_fp8.pt")));
    let in_8_bits = tensors("model_fp8.pt").filter(|tensor| tensor.1 == Number::E4m3);
    assert_eq!(in_8_bits.count(), 4);
    let scales = tensors("model_fp8.pt").filter(|tensor| tensor.0.ends_with(".row_scales"));
    assert_eq!(scales.count(), 4);
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_loads_as_moondream_3() {
    for (name, has_ln) in [
        ("md3-tiny", false),
        ("md3-ln-tiny", true),
        ("md3-fp8-tiny", true),
        ("md3-segment-tiny", true),
        ("md3-lora-tiny", true),
    ] {
        let source = ModelSource::Directory(whole_golden_set(name));
        check_model(&source).unwrap();
        let model = load_model(&source).unwrap();
        assert_eq!(model.config.family.name(), "Moondream 3", "{name}");
        assert_eq!(model.weights.region.ln.is_some(), has_ln, "{name}");
    }
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_has_these_questions_and_segments() {
    let mut seen = 0;
    for name in ["md2-micro", "md3-tiny", "md3-fp8-tiny", "md3-segment-tiny"] {
        let set = whole_golden_set(name);
        let config = config(&set);
        let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
        let cases = json(&set.join("expected/cases.json"));
        for (name, case) in cases.as_object().unwrap() {
            let (args, expected) = (&case["case"]["args"], &case["expected"]);
            let words = |key: &str| {
                tokenizer
                    .encode(args[key].as_str().unwrap().trim())
                    .unwrap()
            };
            let places = places(args);
            let inputs = match case["case"]["skill"].as_str().unwrap() {
                "query" if !case["case"]["image"].is_null() => {
                    let query = QueryWords {
                        places: &places,
                        words: &words("question"),
                        is_reasoned: args["reasoning"] == true,
                    };
                    config.family.query_prompt(query, &config)
                }
                "segment" => {
                    let segment = config
                        .family
                        .segment_prompt(&places, &words("object"), &config);
                    segment.unwrap()
                }
                _ => continue,
            };
            let id = |input| match input {
                DecoderInput::Token(id) => id,
                DecoderInput::Coord(_) => config.tokenizer.coord_id,
                DecoderInput::Size(..) => config.tokenizer.size_id,
            };
            let ids: Vec<u32> = inputs.into_iter().map(id).collect();
            assert_eq!(expected["prompt_ids"], serde_json::json!(ids), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn released_values_make_the_published_network() {
    let network = Moondream3.released().network();
    let dense = |nth: usize| matches!(network.layers.text.blocks[nth].mlp, TextMlp::Dense(_));
    assert!(dense(3) && !dense(4));
    let (layers, plain) = network.layers.clone().into_parts();
    let values =
        |layer: &LayerSpec| layer.values() + if layer.has_bias { layer.outputs } else { 0 };
    let count: usize = layers.iter().map(values).sum();
    let count = count + plain.iter().map(TensorSpec::values).sum::<usize>();
    assert_eq!(count, 9_268_626_928);
    assert_eq!((network.rope.theta, network.text_heads), (1_500_000.0, 32));
}
