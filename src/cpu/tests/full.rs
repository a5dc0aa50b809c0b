//! Moondream 2 at its true size, with weights made by a rule. About 9 GB of memory and some minutes.

use std::{collections::HashMap, path::Path, sync::Arc};

use half::bf16;
use rayon::prelude::*;
use serde_json::Value;

use super::{
    HEAD_DIM, assert_near, cases::compare_objects, config, pages, picture, run_with, stored,
};
use crate::{
    cpu::{Capacity, CpuBackend},
    domain::ManualClock,
    engine::{
        backend::{Backend, Feed, Input, KvTable, Pick, Picked, Row, SlotId, Step},
        sequence::{Bounds, Sequence, Skill},
    },
    model::{
        FloatFormat, Found, ModelConfig, Tensor, TensorData, TensorSource, TokenIds, Weights,
        WeightsError,
    },
    testing::{Tensors, golden_set, json, tensors},
};

/// Tensors by the rule of the golden set's README.
struct Rule {
    seed: String,
    tensors: HashMap<String, Value>,
}

impl Rule {
    fn read(set: &Path) -> Self {
        let rule = json(&set.join("weights_rule.json"));
        let tensors = rule["tensors"].as_array().unwrap().iter();
        Self {
            seed: rule["seed"].as_str().unwrap().to_owned(),
            tensors: tensors
                .map(|tensor| (tensor["name"].as_str().unwrap().to_owned(), tensor.clone()))
                .collect(),
        }
    }
}

impl TensorSource for Rule {
    fn tensor(&mut self, name: &str) -> Result<Tensor, WeightsError> {
        let full_name = format!("model.{name}");
        let rule = &self.tensors[&full_name];
        let shape: Vec<usize> = serde_json::from_value(rule["shape"].clone()).unwrap();
        let count: usize = shape.iter().product();
        let bits = rule["bits"].as_u64().unwrap();
        let offset = rule["offset"].as_f64().unwrap();
        let step = (-rule["e"].as_f64().unwrap()).exp2();
        let key = fnv(&format!("{}/{full_name}", self.seed));
        let value = |i: usize| {
            let k = mix(key, i as u64) >> (64 - bits);
            (offset + (2.0 * k as f64 - ((1_u64 << bits) - 1) as f64) * step) as f32
        };
        check(&full_name, rule, count, value);
        let mut bytes = vec![0; 2 * count];
        bytes
            .par_chunks_exact_mut(2)
            .enumerate()
            .for_each(|(i, bytes)| {
                bytes.copy_from_slice(&bf16::from_f32(value(i)).to_le_bytes());
            });
        Ok(Tensor {
            name: name.to_owned(),
            shape,
            data: TensorData::Encoded {
                format: FloatFormat::Bf16,
                bytes: bytes.into(),
            },
        })
    }
}

/// The rule's own samples: the first values and the last.
fn check(name: &str, rule: &Value, count: usize, value: impl Fn(usize) -> f32) {
    let first: Vec<f32> = serde_json::from_value(rule["check"]["first"].clone()).unwrap();
    let got: Vec<f32> = (0..first.len()).map(&value).collect();
    assert_eq!(got, first, "{name}");
    assert_eq!(
        f64::from(value(count - 1)),
        rule["check"]["last"].as_f64().unwrap(),
        "{name}"
    );
}

/// FNV-1a, 64 bits.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(14_695_981_039_346_656_037, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    })
}

/// Output `index` of the SplitMix64 generator that starts at `key`.
fn mix(key: u64, index: u64) -> u64 {
    let z = key.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn true_widths() {
    let Some(set) = golden_set("md2-full") else {
        return;
    };
    let config = config(&set);
    let weights = Weights::load(&config, &mut Rule::read(&set)).unwrap();
    let capacity = Capacity {
        slots: 1,
        rows: 4,
        images: 1,
        pages: 23 + 4 * 5,
        page_tokens: 32,
    };
    let mut backend =
        CpuBackend::new(&config, weights, capacity, Arc::new(ManualClock::default())).unwrap();
    let golden = tensors(&set.join("expected/full.safetensors"));
    let full = json(&set.join("expected/full.json"));
    for (image, about) in full["images"].as_object().unwrap() {
        let cases = about["cases"].as_object().unwrap();
        let sequences = cases.values().map(|case| sequence(case, &config)).collect();
        // The reference goes on when a third token beats the end, so its bins are compared with the end left out.
        let go_on = |pick| match pick {
            Pick::CoordOrEnd => Pick::Coord,
            other => other,
        };
        let found = run_with(&mut backend, Some(picture(&set, image)), sequences, go_on);
        for ((name, case), found) in cases.iter().zip(found) {
            compare(&format!("{image} {name}"), &case["expected"], &found);
        }
        for name in ["detect", "point"] {
            check_first_decision(&mut backend, name, &cases[name]["expected"]);
        }
        let positions: Vec<usize> = serde_json::from_value(full["text_positions"].clone()).unwrap();
        compare_prefix(&mut backend, image, &positions, &golden);
    }
}

/// The set has ids instead of words.
fn sequence(case: &Value, config: &ModelConfig) -> Sequence {
    let skill = match case["case"]["skill"].as_str().unwrap() {
        "detect" => Skill::Detect,
        "point" => Skill::Point,
        _ => Skill::Text { reasoning: false },
    };
    let ids: Vec<u32> = serde_json::from_value(case["expected"]["prompt_ids"].clone()).unwrap();
    let setting = |key: &str| case["case"]["settings"][key].as_u64().unwrap_or(50) as usize;
    let bounds = Bounds {
        max_objects: setting("max_objects"),
        max_tokens: setting("max_tokens"),
    };
    let prompt = ids.into_iter().map(Input::Token).collect();
    Sequence::new(skill, prompt, TokenIds::of(config), bounds)
}

fn compare(name: &str, expected: &Value, found: &Found) {
    match expected["objects"].as_array() {
        Some(objects) => compare_objects(name, objects, found),
        None => assert_eq!(
            Value::from(found.tokens.clone()),
            expected["phases"][0]["tokens"],
            "{name}"
        ),
    }
}

/// The end against the coordinate after the prompt, from the prefix that is still in the cache.
fn check_first_decision(backend: &mut CpuBackend, name: &str, expected: &Value) {
    let ids: Vec<u32> = serde_json::from_value(expected["prompt_ids"].clone()).unwrap();
    let (prefix, own) = pages(backend, 0);
    let row = Row {
        inputs: Feed::Host(ids.into_iter().map(Input::Token).collect()),
        position: 730,
        kv: KvTable {
            prefix,
            prefix_positions: 730,
            own,
        },
        picks: vec![Pick::CoordOrEnd],
    };
    let step = Step {
        images: Vec::new(),
        rows: vec![row],
    };
    backend.launch(SlotId(0), step).unwrap();
    let picked = backend.commit(SlotId(0)).unwrap().picked[0][0];
    let decision = &expected["decisions"][0];
    let on = decision["coord_minus_eos"].as_f64().unwrap();
    let (ended, on_found) = match picked {
        Picked::End { probability } => (true, 1.0 - f64::from(probability)),
        Picked::Coord { probability, .. } => (false, f64::from(probability)),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(decision["stop_if_restricted"], ended, "{name}");
    let on_wanted = 1.0 / (1.0 + (-on).exp());
    assert!(
        (on_found - on_wanted).abs() < 1e-4,
        "{name}: {on_found}, wants {on_wanted}"
    );
}

/// Keys and values of the first and the last layer, first and last head, at some positions.
fn compare_prefix(backend: &mut CpuBackend, image: &str, positions: &[usize], golden: &Tensors) {
    let kv = KvTable {
        prefix: pages(backend, 0).0,
        prefix_positions: 730,
        own: Vec::new(),
    };
    for layer in [0, 23] {
        let table = kv.clone();
        let (keys, values) = backend
            .inspect(move |device| stored(&device.cache, &table, layer, [0, 31]))
            .unwrap();
        for (part, got) in [("k", keys), ("v", values)] {
            let heads = got.chunks_exact(kv.prefix_positions * HEAD_DIM);
            let rows = heads.flat_map(|head| {
                positions
                    .iter()
                    .flat_map(|&row| &head[row * HEAD_DIM..][..HEAD_DIM])
            });
            let name = format!("{image}.{part}{layer}.head0_head31");
            assert_near(&name, &rows.copied().collect::<Vec<_>>(), &golden[&name].1);
        }
    }
}
