//! Weights of true shape that are made by a rule (the golden data's README).

use std::{collections::HashMap, path::Path};

use half::bf16;
use rayon::prelude::*;
use serde_json::Value;

use super::json;
use crate::{
    model::{Tensor, TensorData, TensorSource, WeightsError},
    network::format::Number,
};

/// Tensors by the rule of the golden set's README.
pub struct Rule {
    seed: String,
    tensors: HashMap<String, Value>,
}

impl Rule {
    /// Of the set in this folder.
    pub fn read(set: &Path) -> Self {
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
    fn tensor(&mut self, name: &str, _: &[usize]) -> Result<Tensor, WeightsError> {
        let full_name = format!("model.{name}");
        let not_found = || WeightsError::NotFound(name.to_owned());
        let rule = self.tensors.get(&full_name).ok_or_else(not_found)?;
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
                format: Number::Bf16,
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
