//! Arithmetic of a look, from the network's dimensions: a lower bound of its time.
//!
//! Matrix products and attention only, a multiply-add counted as two operations; norms, activations and copies are left
//! out, so the floor is never too high. `docs/moondream.md` has the layers.
//! Where memory bounds a step and not arithmetic, the bytes that it has to read are counted here too, as bf16.

use super::{
    Decoder, Mlp, Network, TextBlock, TextMlp, VisionBlock,
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

/// Weights that a position is multiplied with: of the experts, those of the active ones.
fn active_values(block: &TextBlock<LayerSpec, TensorSpec>) -> usize {
    let active = match &block.mlp {
        TextMlp::Dense(_) => 1,
        TextMlp::Experts(experts) => experts.active,
    };
    let values = block.layers().map(|layer| match layer.count {
        1 => layer.values(),
        count => layer.values() / count * active,
    });
    values.sum()
}

/// A network with the number of weights of its blocks.
#[derive(Clone, Debug)]
pub struct ModelWork {
    network: NetworkSpec,
    vision: usize,
    /// Those that a position is multiplied with.
    text: usize,
    text_stored: usize,
}

impl ModelWork {
    /// Counts all layers: once for a model.
    pub fn of(network: NetworkSpec) -> Self {
        let Network { text, vision, .. } = &network.layers;
        let vision = vision.blocks.iter().flat_map(VisionBlock::layers);
        let stored = text.blocks.iter().flat_map(TextBlock::layers);
        Self {
            vision: vision.map(LayerSpec::values).sum(),
            text: text.blocks.iter().map(active_values).sum(),
            text_stored: stored.map(LayerSpec::values).sum(),
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

    /// Weights of the decoder's blocks, MB; those of all experts, of which the positions of an image need each.
    pub fn decoder_mb(&self) -> f64 {
        bf16_mb(self.text_stored)
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
            active_values(block) - used
        });
        let attention = attention_flop(positions, positions, self.network.text_width());
        products_flop(positions, self.text - last)
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
        products_flop(count, self.text) + blocks as f64 * attention.sum::<f64>()
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
    use crate::model::{ModelConfig, tiling};

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
        let spared = products_flop(730, model.text / 24 - 2048 * 2 * 2048);
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
        close(model.decoder_mb(), 2416.0);
        close(model.vision_mb(), 820.0 + 71.0);
        close(model.kv_mb(740), 145.5);
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
