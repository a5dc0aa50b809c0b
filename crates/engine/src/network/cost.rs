//! Arithmetic of a look, from the network's dimensions: a lower bound of its time.
//!
//! Matrix products and attention only, a multiply-add counted as two operations; norms, activations and copies are left
//! out, so the floor is never too high. `docs/moondream.md` has the layers.
//! Where memory bounds a step and not arithmetic, the bytes that it has to read are counted here too: as bf16, but for experts.

use super::{
    Decoder, Mlp, Network, TextBlock, TextMlp, VisionBlock,
    format::Number,
    spec::{LayerSpec, NetworkSpec, TensorSpec},
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

fn bf16_mb(values: usize) -> f64 {
    values as f64 * 2e-6
}

/// Products of so many rows with layers of so many weights.
fn products_flop(rows: usize, values: usize) -> f64 {
    2.0 * rows as f64 * values as f64
}

/// `queries` positions that each see `seen` positions: scores, and the sum of the values.
fn attention_flop(queries: usize, seen: usize, width: usize) -> f64 {
    2.0 * products_flop(queries, seen * width)
}

fn mlp_values(mlp: &Mlp<LayerSpec>) -> usize {
    mlp.fc1.values() + mlp.fc2.values()
}

fn decoder_values(decoder: &Decoder<LayerSpec>) -> usize {
    decoder.layers().map(LayerSpec::values).sum()
}

/// Weights of a block, or of all blocks together.
#[derive(Clone, Copy, Debug, Default)]
struct BlockWeights {
    /// Those that each position is multiplied with.
    dense: usize,
    /// Those of all experts.
    experts: usize,
    /// The share of the experts that a position is multiplied with.
    active: f64,
}

impl BlockWeights {
    fn of(block: &TextBlock<LayerSpec, TensorSpec>) -> Self {
        let mut weights = Self::default();
        for layer in block.layers() {
            match &block.mlp {
                TextMlp::Experts(experts) if layer.count > 1 => {
                    weights.experts += layer.values();
                    weights.active = experts.active as f64 / layer.count as f64;
                }
                _ => weights.dense += layer.values(),
            }
        }
        weights
    }

    /// Those that a position is multiplied with.
    fn active(&self) -> usize {
        self.dense + (self.experts as f64 * self.active) as usize
    }
}

/// A network with the number of weights of its blocks.
#[derive(Clone, Debug)]
pub struct ModelWork {
    network: NetworkSpec,
    vision: usize,
    /// All blocks of the decoder have the same share of active experts, if they have experts.
    text: BlockWeights,
}

impl ModelWork {
    /// Counts all layers: once for a model.
    pub fn of(network: NetworkSpec) -> Self {
        let Network { text, vision, .. } = &network.layers;
        let vision = vision.blocks.iter().flat_map(VisionBlock::layers);
        let blocks = text.blocks.iter().map(BlockWeights::of);
        Self {
            vision: vision.map(LayerSpec::values).sum(),
            text: blocks.fold(BlockWeights::default(), |all, block| BlockWeights {
                dense: all.dense + block.dense,
                experts: all.experts + block.experts,
                active: all.active.max(block.active),
            }),
            network,
        }
    }

    /// The work of one look at a picture that is cut into so many crops.
    pub fn look(&self, crops: usize, prompts: &[DetectWork]) -> LookWork {
        let start = self.network.prefix;
        let sum = |work: &dyn Fn(&DetectWork) -> f64| prompts.iter().map(work).sum::<f64>() / GIGA;
        LookWork {
            vision: (crops as f64 * self.crop() + self.projection()) / GIGA,
            prefix: self.prefix(start) / GIGA,
            prompts: sum(&|p| self.rows(start, p.tokens) + self.x_or_end()),
            generate: sum(&|p| {
                // Each box is three positions: its x, its y, its size. The next x or the end follows.
                self.rows(start + p.tokens, 3 * p.boxes) + p.boxes as f64 * self.boxed()
            }),
        }
    }

    /// Weights of the decoder's blocks that a step of so many positions reads, MB: of the experts, which are stored in `experts`, as many
    /// as so many positions choose together on average. The positions of an image choose all.
    pub fn decoder_mb(&self, positions: usize, experts: Number) -> f64 {
        let chosen = 1.0 - (1.0 - self.text.active).powi(positions as i32);
        let expert_bytes = self.text.experts as f64 * chosen * experts.bits() as f64 / 8.0;
        bf16_mb(self.text.dense) + expert_bytes * 1e-6
    }

    /// Products of so many positions with the decoder's blocks, GFLOP.
    pub fn decoder_gflop(&self, positions: usize) -> f64 {
        products_flop(positions, self.text.active()) / GIGA
    }

    /// Weights of the vision encoder's blocks and its projection, MB.
    pub fn vision_mb(&self) -> f64 {
        bf16_mb(self.vision + mlp_values(&self.network.layers.vision.proj))
    }

    /// Keys and values of `positions` positions, MB.
    pub fn kv_mb(&self, positions: usize) -> f64 {
        let blocks = self.network.layers.text.blocks.len();
        bf16_mb(blocks * 2 * self.network.text_width() * positions)
    }

    fn crop(&self) -> f64 {
        let (tokens, vision) = (self.network.image_tokens(), &self.network.layers.vision);
        let attention = attention_flop(tokens, tokens, self.network.vision_width());
        products_flop(tokens, vision.patch_emb.values() + self.vision)
            + vision.blocks.len() as f64 * attention
    }

    fn projection(&self) -> f64 {
        let values = mlp_values(&self.network.layers.vision.proj);
        products_flop(self.network.image_tokens(), values)
    }

    /// Nothing reads the hidden states of the image, so its last block makes keys and values only.
    fn prefix(&self, positions: usize) -> f64 {
        let blocks = &self.network.layers.text.blocks;
        let last = blocks.last().map_or(0, |block| {
            let used = block.qkv.values() / 3 * 2;
            BlockWeights::of(block).active() - used
        });
        let attention = attention_flop(positions, positions, self.network.text_width());
        products_flop(positions, self.text.active() - last)
            + blocks.len().saturating_sub(1) as f64 * attention
    }

    /// `count` positions from `start` on, each seeing all before it and itself.
    fn rows(&self, start: usize, count: usize) -> f64 {
        let (blocks, width) = (
            self.network.layers.text.blocks.len(),
            self.network.text_width(),
        );
        let attention =
            (start..start + count).map(|position| attention_flop(1, position + 1, width));
        products_flop(count, self.text.active()) + blocks as f64 * attention.sum::<f64>()
    }

    /// x against the end: two rows of the vocabulary's head, and the bins.
    fn x_or_end(&self) -> f64 {
        let Network { text, region, .. } = &self.network.layers;
        products_flop(
            1,
            2 * text.lm_head.inner + decoder_values(&region.coord_decoder),
        )
    }

    /// What a box needs besides its positions: embeddings of x, y and size, decisions of y, size and the next x.
    fn boxed(&self) -> f64 {
        let region = &self.network.layers.region;
        let embeddings = 2 * region.coord_encoder.values() + region.size_encoder.values();
        let decoders = decoder_values(&region.coord_decoder) + decoder_values(&region.size_decoder);
        products_flop(1, embeddings + decoders) + self.x_or_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ModelConfig, released_config, tiling};

    fn close(found: f64, expected: f64) {
        let off = (found / expected - 1.0).abs();
        assert!(off < 0.005, "{found} is not {expected}");
    }

    /// The default configuration is that of the released Moondream 2.
    #[test]
    fn the_released_model_as_published() {
        let model = ModelWork::of(ModelConfig::default().network());
        close(model.crop(), 666.4e9);
        close(model.projection(), 0.052e12);
        close(model.rows(730, 10), 10.0 * 2.57e9);
        // One position of context 742: blocks and attention.
        close(model.rows(741, 1), (2.416 + 0.146) * 1e9);
        // The whole last block would bring the prefix to 1.869 TFLOP.
        let spared = products_flop(730, model.text.dense / 24 - 2048 * 2 * 2048);
        let spared = spared + attention_flop(730, 730, 2048);
        close(model.prefix(730) + spared, 1.869e12);
        // Coordinate and size decoders: 58.7 M parameters.
        let region = &model.network.layers.region;
        let values = decoder_values(&region.coord_decoder) + decoder_values(&region.size_decoder);
        close(values as f64, 58.7e6);
    }

    /// To the last digit what counting each product by hand gives.
    #[test]
    fn look_of_nine_crops_takes_known_work() {
        let released = ModelConfig::default();
        let prompt = DetectWork {
            tokens: 6,
            boxes: 3,
        };
        let tiling = tiling(1920, 1080, &released.vision);
        let work = ModelWork::of(released.network()).look(tiling.crops(), &[prompt]);
        let found = [work.vision, work.prefix, work.prompts, work.generate];
        let expected = [6050.013037056, 1802.79099392, 15.411126272, 23.570374656];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found}");
        }
    }

    #[test]
    fn one_tile_is_encoded_once_and_more_beside_the_whole() {
        let released = ModelConfig::default();
        let model = ModelWork::of(released.network());
        let vision = |width, height| {
            let tiling = tiling(width, height, &released.vision);
            model.look(tiling.crops(), &[]).vision
        };
        let (crop, projection) = (model.crop() / GIGA, model.projection() / GIGA);
        close(vision(378, 378), crop + projection);
        // 1920x1080 is two by four tiles, and the whole picture.
        close(vision(1920, 1080), 9.0 * crop + projection);
    }

    #[test]
    fn step_of_the_released_model_reads_its_weights_once() {
        let model = ModelWork::of(ModelConfig::default().network());
        close(model.decoder_mb(1, Number::Bf16), 2416.0);
        close(model.decoder_gflop(32), 32.0 * 2.416);
        close(model.vision_mb(), 820.0 + 71.0);
        close(model.kv_mb(740), 145.5);
    }

    /// Of 64 experts in e4m3, 8 to a position; four blocks have none.
    #[test]
    fn step_of_moondream_3_reads_the_chosen_experts() {
        let config = released_config("moondream3.1").unwrap();
        let model = ModelWork::of(config.network());
        for (positions, gb) in [(1, 2.08), (8, 6.36), (32, 9.02), (740, 9.13)] {
            close(model.decoder_mb(positions, Number::E4m3), gb * 1e3);
        }
        let dense = model.decoder_mb(0, Number::E4m3);
        let in_int4 = model.decoder_mb(740, Number::Int4) - dense;
        close(model.decoder_mb(740, Number::E4m3) - dense, 2.0 * in_int4);
        // A position is multiplied with eight experts, however many a step reads.
        close(model.decoder_gflop(8), 8.0 * 3.087);
    }

    #[test]
    fn prompts_add_up_and_the_picture_is_shared() {
        let model = ModelWork::of(ModelConfig::default().network());
        let prompt = DetectWork {
            tokens: 5,
            boxes: 3,
        };
        let one = model.look(1, &[prompt]);
        let two = model.look(1, &[prompt, prompt]);
        assert_eq!((one.vision, one.prefix), (two.vision, two.prefix));
        close(two.total() - one.total(), one.prompts + one.generate);
        let nothing = DetectWork { boxes: 0, ..prompt };
        assert_eq!(model.look(1, &[nothing]).generate, 0.0);
    }
}
