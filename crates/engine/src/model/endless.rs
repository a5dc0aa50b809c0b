//! Answers that never end by themselves: for measurements of speed, where every answer has to take the same steps.

use super::{
    family::ModelConfig,
    tensor::{TensorData, WeightsError},
    weights::Weights,
};

/// Added to the end's logit: far below what a hidden state can give, and still a number in bf16.
const NEVER: f32 = -1e4;

/// Makes the end of an answer the least likely of all tokens, so that each answer ends at its bound: objects or tokens.
/// One bias changes; the arithmetic stays what it was.
pub fn without_ends(weights: &mut Weights, config: &ModelConfig) -> Result<(), WeightsError> {
    let bias = &mut weights.text.lm_head.bias;
    let mut values = bias.to_f32()?;
    if let Some(end) = values.get_mut(config.tokenizer.eos_id as usize) {
        *end = NEVER;
    }
    bias.data = TensorData::F32(values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{LoadedModel, load_model},
        testing::golden_set,
    };
    use spotter_config::ModelSource;

    #[test]
    fn endless_model_bans_the_end_token_only() {
        let set = golden_set("md2-micro");
        let LoadedModel {
            config,
            mut weights,
            ..
        } = load_model(&ModelSource::Directory(set)).unwrap();
        let before = weights.text.lm_head.bias.to_f32().unwrap();
        without_ends(&mut weights, &config).unwrap();
        let after = weights.text.lm_head.bias.to_f32().unwrap();
        let changed = |id: &usize| before[*id] != after[*id];
        let changed: Vec<usize> = (0..after.len()).filter(changed).collect();
        assert_eq!(changed, [config.tokenizer.eos_id as usize]);
        assert!(half::bf16::from_f32(after[changed[0]]).to_f32() < -9e3);
    }
}
