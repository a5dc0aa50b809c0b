//! The stages of the network against the small golden sets, tensor by tensor.

use std::{path::Path, sync::Arc};

use super::{GoldenImage, TOLERANCE, all, assert_near, config, images, picture, stored, weights};
use crate::{
    cpu::{
        device::embed,
        kv::KvCache,
        ops::linear,
        region::RegionModel,
        span::{PositionSpan, Sees},
        text::TextModel,
        vision::{VisionModel, stitch},
    },
    model::{AdapterWeights, Crops, ModelConfig, Tiling, coord_from_bin, crops, size_from_bin},
    network::{
        forward::{text_block, vision_block},
        ops::DecoderRun,
    },
    scheduler::backend::{DecoderInput, KvTable, PageId},
    testing::{golden_tests, json, tensors},
};

golden_tests!(
    vision,
    a_single_tile_may_be_encoded_once,
    image_prefix,
    prompts_and_first_decisions,
    region_values,
    inputs_of_every_kind_become_embeddings,
    token_embeddings_have_the_bits_of_the_file,
);

struct Network {
    config: ModelConfig,
    vision: VisionModel,
    text: TextModel,
    region: RegionModel,
}

fn network(set: &Path) -> Network {
    let config = config(set);
    let weights = weights(set, &config);
    Network {
        vision: VisionModel::new(&config.vision, weights.vision, &linear).unwrap(),
        text: TextModel::new(&config, weights.text, &linear).unwrap(),
        region: RegionModel::new(weights.region).unwrap(),
        config,
    }
}

impl Network {
    /// A cache of `page_tokens` whose pages are handed out from the last to the first, and a table of all of them.
    fn cache(&self, page_tokens: usize) -> (KvCache, KvTable) {
        let prefix_positions = self.config.prefix_positions();
        let prefix = prefix_positions.div_ceil(page_tokens) as u32;
        let own = 160_usize.div_ceil(page_tokens) as u32;
        let shape = self.text.kv_shape((prefix + own) as usize, page_tokens);
        let kv = KvTable {
            prefix: (own..own + prefix).rev().map(PageId).collect(),
            prefix_positions,
            own: (0..own).rev().map(PageId).collect(),
        };
        (KvCache::new(shape), kv)
    }

    fn image_hidden(&self, set: &Path, image: &str) -> Vec<f32> {
        let mut hidden = self.text.embedding(self.config.tokenizer.bos_id);
        let crops = crops(&picture(set, image), &self.config.vision);
        let features = self.vision.encode(&all(&crops));
        hidden.extend(self.vision.image_tokens(&features, crops.tiling));
        hidden
    }

    fn block(
        &self,
        layer: usize,
        hidden: &mut Vec<f32>,
        span: &PositionSpan<'_>,
        cache: &mut KvCache,
    ) {
        let mut ops = self.text.ops(std::slice::from_ref(span), cache);
        let positions = span.positions.len();
        let run = DecoderRun {
            layer,
            outputs: positions,
        };
        text_block(&mut ops, &self.text.layers.blocks[layer], hidden, run).unwrap();
    }

    fn prefill(&self, mut hidden: Vec<f32>, span: &PositionSpan<'_>, cache: &mut KvCache) {
        let spans = std::slice::from_ref(span);
        let ops = self.text.ops(spans, cache);
        self.text.forward(&mut hidden, ops, 0).unwrap();
    }
}

fn image_span<'a>(kv: &'a KvTable, adapter: Option<&'a AdapterWeights>) -> PositionSpan<'a> {
    PositionSpan {
        positions: 0..kv.prefix_positions,
        kv,
        sees: Sees::EachOther,
        adapter,
    }
}

/// Where the results of a set are, and what they were computed with.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub folder: &'a Path,
    pub adapter: Option<&'a AdapterWeights>,
}

fn vision(set: &Path) {
    let golden = tensors(&set.join("expected/vision.safetensors"));
    let network = network(set);
    let (vision, config) = (&network.vision, &network.config.vision);
    let tokens = config.grid() * config.grid();
    for image in images(set) {
        let crops = crops(&picture(set, &image), config);
        // The reference encodes a single tile twice.
        let twice = |features: &[f32]| features.repeat(if crops.encoded == 1 { 2 } else { 1 });
        let mut hidden = vision.tokens(&all(&crops));
        let golden = GoldenImage {
            tensors: &golden,
            name: &image,
        };
        golden.check("tokens_in", &twice(&hidden), tokens);
        for (layer, block) in vision.layers.blocks.iter().enumerate() {
            let rows = hidden.len() / config.enc_dim;
            let Ok(()) = vision_block(&mut vision.ops(), block, &mut hidden, rows);
            golden.check_if_held(&format!("block{layer}.out"), &twice(&hidden), tokens);
        }
        let features = vision.features(&hidden);
        golden.check("enc_out", &twice(&features), tokens);
        let combined = vision.combine(&features, crops.tiling);
        let pooled: Vec<f32> = combined
            .chunks_exact(2 * config.enc_dim)
            .flat_map(|pair| pair[config.enc_dim..].to_vec())
            .collect();
        golden.check("pooled", &pooled, tokens);
        let tiles = &twice(&features)[tokens * config.enc_dim..];
        let map = stitch(tiles, crops.tiling, config);
        golden.check_if_held("reconstructed", &map.values, map.height * map.width);
        golden.check("img_emb", &vision.project(&combined), tokens);
    }
}

fn a_single_tile_may_be_encoded_once(set: &Path) {
    let network = network(set);
    let config = &network.config.vision;
    let single =
        |image: &String| crops(&picture(set, image), config).tiling == Tiling { rows: 1, cols: 1 };
    let image = images(set).into_iter().find(single).unwrap();
    let once = crops(&picture(set, &image), config);
    let mut twice = once.clone();
    twice.bytes.extend_from_within(..);
    twice.encoded = 2;
    let tokens = |crops: &Crops| {
        let features = network.vision.encode(&all(crops));
        network.vision.image_tokens(&features, crops.tiling)
    };
    assert_eq!(tokens(&once), tokens(&twice), "{image}");
}

fn image_prefix(set: &Path) {
    let folder = &set.join("expected");
    check_image_prefix(
        set,
        Expected {
            folder,
            adapter: None,
        },
    );
}

/// The prefixes of the images whose results the folder has.
pub(super) fn check_image_prefix(set: &Path, expected: Expected<'_>) {
    let golden = tensors(&expected.folder.join("text.safetensors"));
    let network = network(set);
    let (text, positions) = (&network.text, network.config.prefix_positions());
    let is_held = |image: &String| {
        golden
            .keys()
            .any(|key| key.starts_with(&format!("{image}.")))
    };
    for image in images(set).into_iter().filter(is_held) {
        let (mut cache, kv) = network.cache(7);
        let mut hidden = network.image_hidden(set, &image);
        let golden = GoldenImage {
            tensors: &golden,
            name: &image,
        };
        for layer in 0..text.blocks() {
            let span = image_span(&kv, expected.adapter);
            network.block(layer, &mut hidden, &span, &mut cache);
            golden.check_if_held(&format!("block{layer}.out"), &hidden, positions);
        }
        for layer in [0, text.blocks() - 1] {
            let (keys, values) = stored(&cache, &kv, layer, 0..network.config.text.n_heads);
            golden.check(&format!("k{layer}"), &keys, positions);
            golden.check(&format!("v{layer}"), &values, positions);
        }
    }
}

fn prompts_and_first_decisions(set: &Path) {
    let folder = &set.join("expected");
    check_prompts(
        set,
        Expected {
            folder,
            adapter: None,
        },
    );
}

pub(super) fn check_prompts(set: &Path, expected: Expected<'_>) {
    let network = network(set);
    let (text, region) = (&network.text, &network.region);
    let cases = json(&expected.folder.join("cases.json"));
    let mut compared = 0;
    for (name, case) in cases.as_object().unwrap() {
        let path = expected.folder.join(format!("cases/{name}.safetensors"));
        let refs = case["case"]["args"].get("spatial_refs").is_some();
        // A part of the set has fewer tensors. Prompts with references are compared as answers.
        if !path.is_file() || refs {
            continue;
        }
        let golden = tensors(&path);
        let (mut cache, mut kv) = network.cache(16);
        match case["case"]["image"].as_str() {
            Some(image) => {
                let span = image_span(&kv, expected.adapter);
                network.prefill(network.image_hidden(set, image), &span, &mut cache);
            }
            None => {
                kv.prefix_positions = 0;
                kv.prefix = Arc::default();
            }
        }
        let ids = &golden["prompt_ids"].1;
        let mut hidden: Vec<f32> = ids
            .iter()
            .flat_map(|&id| text.embedding(id as u32))
            .collect();
        let span = PositionSpan {
            positions: kv.prefix_positions..kv.prefix_positions + ids.len(),
            kv: &kv,
            sees: Sees::Past,
            adapter: expected.adapter,
        };
        assert_near("prompt_embeds", &hidden, &golden["prompt_embeds"].1);
        for layer in 0..text.blocks() {
            network.block(layer, &mut hidden, &span, &mut cache);
            if let Some((_, want)) = golden.get(&format!("prompt_block{layer}.out")) {
                assert_near(&format!("{name} block {layer}"), &hidden, want);
            }
        }
        let last = &hidden[hidden.len() - text.width()..];
        let logits = text.logits(&text.head_inputs(last));
        let is_reasoning = golden.contains_key("reasoning.logits");
        for key in ["answer.logits", "decision_logits"] {
            if let (Some((_, want)), false) = (golden.get(key), is_reasoning) {
                assert_near(&format!("{name} {key}"), &logits, &want[..logits.len()]);
            }
        }
        if let Some((_, want)) = golden.get("x_logits") {
            let x_logits = region.decode_coords(last);
            assert_near(&format!("{name} x"), &x_logits, &want[..x_logits.len()]);
        }
        compared += 1;
    }
    let set = set.display();
    assert!(compared > 5, "{compared} cases of {set} have tensors");
}

fn region_values(set: &Path) {
    let golden = tensors(&set.join("expected/region.safetensors"));
    let region = network(set).region;
    let want = |key: &str| &golden[key].1;
    let hidden = want("hidden");
    for (key, got) in [
        ("coord_embed", region.encode_coords(want("coord_value"))),
        ("size_embed", region.encode_sizes(want("size_value"))),
        ("coord_logits", region.decode_coords(hidden)),
        ("size_logits", region.decode_sizes(hidden)),
    ] {
        assert_near(key, &got, want(key));
    }
    for (bin, value) in want("size_bins").iter().zip(want("size_value")) {
        assert!((size_from_bin(*bin as u16) as f32 - value).abs() <= TOLERANCE * value);
    }
}

fn inputs_of_every_kind_become_embeddings(set: &Path) {
    let network = network(set);
    let bin = 451;
    let coord = coord_from_bin(bin) as f32;
    let inputs = [
        DecoderInput::Token(5),
        DecoderInput::Size(0.5, 0.25),
        DecoderInput::Coord(coord),
    ];
    let mut embedded = Vec::new();
    embed(&mut embedded, &network.text, &network.region, &inputs);
    let expected = [
        network.text.embedding(5),
        network.region.encode_sizes(&[0.5, 0.25]),
        network.region.encode_coords(&[coord]),
    ];
    assert_eq!(embedded, expected.concat());
}

/// No copy in f32 is beside them.
fn token_embeddings_have_the_bits_of_the_file(set: &Path) {
    let Network { config, text, .. } = network(set);
    let wte = weights(set, &config).text.wte.to_f32().unwrap();
    let ids = 0..config.text.vocab_size as u32;
    let embedded: Vec<f32> = ids.flat_map(|id| text.embedding(id)).collect();
    assert!(
        embedded
            .iter()
            .map(|v| v.to_bits())
            .eq(wte.iter().map(|v| v.to_bits()))
    );
    assert!(text.layers.wte.is_empty());
}
