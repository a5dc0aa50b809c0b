//! Weights of true shape without a checkpoint: for measuring speed where there is none. What such a model says is noise.

use half::bf16;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    family::ModelConfig,
    source::TensorSource,
    tensor::{F32_FROM_E4M3, Tensor, TensorData, WeightsError},
    weights::Weights,
};
use crate::network::format::Number;

/// Values that a thread makes at a time.
const CHUNK: usize = 1 << 16;

/// All weights of a model, the same at every call: norms that change nothing, no biases, and layers whose outputs are about
/// as large as their inputs. Takes two bytes a value, of experts one, which are in e4m3 as in released files; uses all cores for some
/// seconds.
pub fn random_weights(config: &ModelConfig) -> Result<Weights, WeightsError> {
    Weights::load(config, &mut Random::default())
}

#[derive(Default)]
struct Random {
    /// Inputs of the experts that were made last; their scales are asked for next.
    inner: usize,
}

impl TensorSource for Random {
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, WeightsError> {
        let tensor = |format, bytes: Vec<u8>| {
            let (name, shape) = (name.to_owned(), expected.to_vec());
            let bytes = bytes.into();
            let data = TensorData::Encoded { format, bytes };
            Ok(Tensor { name, shape, data })
        };
        let count: usize = expected.iter().product();
        let key = xxh3_64(name.as_bytes());
        if let ([_, _, inner], true) = (expected, name.ends_with(".weight")) {
            self.inner = *inner;
            let mut bytes = vec![0; count];
            let chunks = bytes.par_chunks_mut(CHUNK).enumerate();
            chunks.for_each(|(i, chunk)| fill_e4m3(chunk, key ^ (i as u64) << 40));
            return tensor(Number::E4m3, bytes);
        }
        let (centre, reach) = match expected {
            [_] if name.ends_with(".weight") => (1.0, 0.0),
            [_] => (0.0, 0.0),
            _ if name.ends_with(".row_scales") => {
                let scale = (self.inner as f32).sqrt().recip() / e4m3_rms();
                return tensor(Number::F32, scale.to_le_bytes().repeat(count));
            }
            // Uniform in -r..r has variance r²/3; a sum of `inner` products then has that of its inputs.
            shape => (0.0, (3.0 / shape[shape.len() - 1] as f32).sqrt()),
        };
        let mut bytes = vec![0; 2 * count];
        let chunks = bytes.par_chunks_mut(2 * CHUNK).enumerate();
        chunks.for_each(|(i, chunk)| fill(chunk, key ^ (i as u64) << 40, centre, reach));
        tensor(Number::Bf16, bytes)
    }
}

/// All numbers of the format, each as often.
fn fill_e4m3(bytes: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for byte in bytes {
        state = next(state);
        *byte = number((state >> 40) as u8);
    }
}

/// The largest number in place of one that is none.
fn number(byte: u8) -> u8 {
    if byte & 0x7f == 0x7f { byte - 1 } else { byte }
}

fn e4m3_rms() -> f32 {
    let squares = (0..=255).map(|byte| F32_FROM_E4M3[usize::from(number(byte))].powi(2));
    (squares.sum::<f32>() / 256.0).sqrt()
}

fn fill(bytes: &mut [u8], seed: u64, centre: f32, reach: f32) {
    let mut state = seed | 1;
    for pair in bytes.as_chunks_mut::<2>().0 {
        state = next(state);
        let unit = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        *pair = bf16::from_f32(centre + unit * reach).to_le_bytes();
    }
}

/// Xorshift (Marsaglia 2003), which is enough for noise.
fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{golden_model, golden_set};

    #[test]
    fn random_layers_keep_activation_size_and_norms_are_neutral() {
        let mut random = Random::default();
        let layer = random
            .tensor("text.blocks.3.mlp.fc1.weight", &[300, 400])
            .unwrap();
        let values = layer.into_f32().unwrap();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        assert!(
            mean.abs() < 1e-3 && (variance * 400.0 - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
        let norm = random.tensor("text.post_ln.weight", &[8]).unwrap();
        assert_eq!(norm.into_f32().unwrap(), [1.0; 8]);
        let again = random
            .tensor("text.blocks.3.mlp.fc1.weight", &[300, 400])
            .unwrap();
        assert_eq!(again.into_f32().unwrap(), values);
    }

    #[test]
    fn random_experts_in_8_bits_keep_activation_size() {
        let mut random = Random::default();
        let name = "text.blocks.4.mlp.fc1";
        let mut values = |part: &str, shape: &[usize]| {
            let tensor = random.tensor(&format!("{name}.{part}"), shape).unwrap();
            tensor.into_f32().unwrap()
        };
        let weights = values("weight", &[2, 100, 400]);
        let scales = values("row_scales", &[2, 100]);
        let scaled = weights.iter().map(|weight| (weight * scales[0]).powi(2));
        let variance = scaled.sum::<f32>() / weights.len() as f32;
        assert!((variance * 400.0 - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn random_weights_are_those_of_each_family() {
        for set in ["md2-micro", "md3-ln-tiny"] {
            let config = golden_model::config(&golden_set(set));
            let weights = random_weights(&config).unwrap();
            let mut in_8_bits = weights
                .into_parts()
                .0
                .into_iter()
                .filter(|l| l.row_scales.is_some());
            assert!(in_8_bits.all(|layer| layer.is_experts()), "{set}");
        }
    }
}
