//! Arithmetic of a look, from the model's dimensions: a lower bound of its time.
//!
//! Matrix products and attention only, a multiply-add counted as two operations; norms, activations and copies are left
//! out, so the floor is never too high. `docs/moondream.md` has the layers.
//! Where memory bounds a step and not arithmetic, the bytes that it has to read are counted here too, as bf16.

use super::{
    config::{ModelConfig, TextConfig},
    region::BINS,
    tiling::Tiling,
};

const GIGA: f64 = 1e9;

/// Arithmetic of the stages of a look, GFLOP.
#[derive(Clone, Copy, Debug)]
pub struct LookWork {
    /// Vision encoder and projection.
    pub vision: f64,
    /// The image's positions in the decoder.
    pub prefix: f64,
    /// All prompts with their first decisions.
    pub prompts: f64,
    /// Everything after the first decisions.
    pub generate: f64,
}

impl LookWork {
    pub fn total(&self) -> f64 {
        self.vision + self.prefix + self.prompts + self.generate
    }
}

/// One detect prompt with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectWork {
    /// Positions of the prompt.
    pub tokens: usize,
    /// Boxes in the answer.
    pub boxes: usize,
}

/// The work of one look at a picture that is cut so.
pub fn look_work(config: &ModelConfig, tiling: Tiling, prompts: &[DetectWork]) -> LookWork {
    let crops = tiling.crops();
    let start = config.prefix_positions();
    let sum = |work: &dyn Fn(&DetectWork) -> f64| prompts.iter().map(work).sum::<f64>() / GIGA;
    LookWork {
        vision: (crops as f64 * crop_flop(config) + projection_flop(config)) / GIGA,
        prefix: prefix_flop(&config.text, start) / GIGA,
        prompts: sum(&|p| rows_flop(&config.text, start, p.tokens) + x_or_end_flop(config)),
        generate: sum(&|p| {
            // Each box is three positions: its x, its y, its size. The next x or the end follows.
            let positions = rows_flop(&config.text, start + p.tokens, 3 * p.boxes);
            positions + p.boxes as f64 * box_flop(config)
        }),
    }
}

/// Weights of the decoder's blocks, MB.
pub fn decoder_mb(config: &ModelConfig) -> f64 {
    let text = &config.text;
    let block = 4 * text.dim * text.dim + 2 * text.dim * text.ff_dim;
    bf16_mb(text.n_layers * block)
}

/// Weights of the vision encoder and its projection, MB.
pub fn vision_mb(config: &ModelConfig) -> f64 {
    let vision = &config.vision;
    let block = 4 * vision.enc_dim * vision.enc_dim + 2 * vision.enc_dim * vision.enc_ff_dim;
    let projection = vision.proj_inner_dim * (2 * vision.enc_dim + vision.proj_out_dim);
    bf16_mb(vision.enc_n_layers * block + projection)
}

/// Keys and values of `positions` positions, MB.
pub fn kv_mb(config: &ModelConfig, positions: usize) -> f64 {
    bf16_mb(config.text.n_layers * 2 * config.text.dim * positions)
}

fn bf16_mb(values: usize) -> f64 {
    values as f64 * 2e-6
}

/// A product of `[rows, inner]` and `[inner, columns]`.
fn product_flop(rows: usize, inner: usize, columns: usize) -> f64 {
    2.0 * rows as f64 * inner as f64 * columns as f64
}

/// `queries` positions that each see `seen` positions: scores, and the sum of the values.
fn attention_flop(queries: usize, seen: usize, width: usize) -> f64 {
    2.0 * product_flop(queries, width, seen)
}

fn crop_flop(config: &ModelConfig) -> f64 {
    let vision = &config.vision;
    let (tokens, width) = (vision.grid() * vision.grid(), vision.enc_dim);
    let linears = product_flop(tokens, width, 4 * width + 2 * vision.enc_ff_dim);
    let block = linears + attention_flop(tokens, tokens, width);
    product_flop(tokens, vision.patch_values(), width) + vision.enc_n_layers as f64 * block
}

fn projection_flop(config: &ModelConfig) -> f64 {
    let vision = &config.vision;
    let (tokens, inner) = (config.image_tokens(), vision.proj_inner_dim);
    product_flop(tokens, 2 * vision.enc_dim, inner)
        + product_flop(tokens, inner, vision.proj_out_dim)
}

/// Nothing reads the hidden states of the image, so its last block makes keys and values only.
fn prefix_flop(text: &TextConfig, positions: usize) -> f64 {
    let whole_block =
        linears_flop(text, positions) + attention_flop(positions, positions, text.dim);
    (text.n_layers - 1) as f64 * whole_block + product_flop(positions, text.dim, 2 * text.dim)
}

/// `count` positions from `start` on, each seeing all before it and itself.
fn rows_flop(text: &TextConfig, start: usize, count: usize) -> f64 {
    let attention =
        (start..start + count).map(|position| attention_flop(1, position + 1, text.dim));
    text.n_layers as f64 * (linears_flop(text, count) + attention.sum::<f64>())
}

/// Queries, keys, values, their projection and the MLP of one block.
fn linears_flop(text: &TextConfig, positions: usize) -> f64 {
    product_flop(positions, text.dim, 4 * text.dim + 2 * text.ff_dim)
}

fn decoder_flop(config: &ModelConfig, outputs: usize) -> f64 {
    let region = &config.region;
    product_flop(1, region.dim, region.inner_dim) + product_flop(1, region.inner_dim, outputs)
}

/// x against the end: two rows of the vocabulary's head, and the bins.
fn x_or_end_flop(config: &ModelConfig) -> f64 {
    product_flop(1, config.text.dim, 2) + decoder_flop(config, BINS)
}

/// What a box needs besides its positions: embeddings of x, y and size, decisions of y, size and the next x.
fn box_flop(config: &ModelConfig) -> f64 {
    let region = &config.region;
    let embeddings = product_flop(2, region.coord_feat_dim, region.dim)
        + product_flop(1, region.size_feat_dim, region.dim);
    embeddings + decoder_flop(config, BINS) + decoder_flop(config, 2 * BINS) + x_or_end_flop(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::moondream2::tiling;

    fn close(found: f64, expected: f64) {
        let off = (found / expected - 1.0).abs();
        assert!(off < 0.005, "{found} is not {expected}");
    }

    /// The default configuration is that of the released Moondream 2.
    #[test]
    fn the_released_model_as_published() {
        let released = ModelConfig::default();
        close(crop_flop(&released), 666.4e9);
        close(projection_flop(&released), 0.052e12);
        close(rows_flop(&released.text, 730, 10), 10.0 * 2.57e9);
        // One position of context 742: blocks and attention.
        close(rows_flop(&released.text, 741, 1), (2.416 + 0.146) * 1e9);
        // The whole last block would bring the prefix to 1.869 TFLOP.
        let spared = linears_flop(&released.text, 730) + attention_flop(730, 730, 2048)
            - product_flop(730, 2048, 2 * 2048);
        close(prefix_flop(&released.text, 730) + spared, 1.869e12);
        // Coordinate and size decoders: 58.7 M parameters.
        close(
            decoder_flop(&released, BINS) + decoder_flop(&released, 2 * BINS),
            2.0 * 58.7e6,
        );
    }

    #[test]
    fn one_tile_is_encoded_once_and_more_beside_the_whole() {
        let released = ModelConfig::default();
        let vision = |width, height| {
            look_work(&released, tiling(width, height, &released.vision), &[]).vision
        };
        let (crop, projection) = (
            crop_flop(&released) / GIGA,
            projection_flop(&released) / GIGA,
        );
        close(vision(378, 378), crop + projection);
        // 1920x1080 is two by four tiles, and the whole picture.
        close(vision(1920, 1080), 9.0 * crop + projection);
    }

    #[test]
    fn step_of_the_released_model_reads_its_weights_once() {
        let released = ModelConfig::default();
        close(decoder_mb(&released), 2416.0);
        close(vision_mb(&released), 820.0 + 71.0);
        close(kv_mb(&released, 740), 145.5);
    }

    #[test]
    fn prompts_add_up_and_the_picture_is_shared() {
        let released = ModelConfig::default();
        let prompt = DetectWork {
            tokens: 5,
            boxes: 3,
        };
        let single = tiling(640, 360, &released.vision);
        let one = look_work(&released, single, &[prompt]);
        let two = look_work(&released, single, &[prompt, prompt]);
        assert_eq!((one.vision, one.prefix), (two.vision, two.prefix));
        close(two.total() - one.total(), one.prompts + one.generate);
        let nothing = DetectWork { boxes: 0, ..prompt };
        assert_eq!(look_work(&released, single, &[nothing]).generate, 0.0);
    }
}
