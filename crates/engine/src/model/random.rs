//! Weights of true shape without a checkpoint: for measuring speed where there is none. What such a model says is noise.

use half::bf16;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    family::ModelConfig,
    source::TensorSource,
    tensor::{Tensor, TensorData, WeightsError},
    weights::Weights,
};
use crate::network::format::Number;

/// Values that a thread makes at a time.
const CHUNK: usize = 1 << 16;

/// All weights of a model, the same at every call: norms that change nothing, no biases, and layers whose outputs are about
/// as large as their inputs. Takes two bytes a value; uses all cores for some seconds.
pub fn random_weights(config: &ModelConfig) -> Result<Weights, WeightsError> {
    Weights::load(config, &mut Random)
}

struct Random;

impl TensorSource for Random {
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, WeightsError> {
        let count: usize = expected.iter().product();
        let (centre, reach) = match expected {
            [_] if name.ends_with(".weight") => (1.0, 0.0),
            [_] => (0.0, 0.0),
            // Uniform in -r..r has variance r²/3; a sum of `inner` products then has that of its inputs.
            shape => (0.0, (3.0 / shape[shape.len() - 1] as f32).sqrt()),
        };
        let key = xxh3_64(name.as_bytes());
        let mut bytes = vec![0; 2 * count];
        let chunks = bytes.par_chunks_mut(2 * CHUNK).enumerate();
        chunks.for_each(|(i, chunk)| fill(chunk, key ^ (i as u64) << 40, centre, reach));
        Ok(Tensor {
            name: name.to_owned(),
            shape: expected.to_vec(),
            data: TensorData::Encoded {
                format: Number::Bf16,
                bytes: bytes.into(),
            },
        })
    }
}

/// Xorshift (Marsaglia 2003), which is enough for noise.
fn fill(bytes: &mut [u8], seed: u64, centre: f32, reach: f32) {
    let mut state = seed | 1;
    for pair in bytes.as_chunks_mut::<2>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        *pair = bf16::from_f32(centre + unit * reach).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_layers_keep_activation_size_and_norms_are_neutral() {
        let mut random = Random;
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
}
