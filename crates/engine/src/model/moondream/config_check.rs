//! What must hold in a [`ModelConfig`] before the rest of the program may trust it.

use crate::model::{
    bins::BINS,
    config::{MoeConfig, ROTARY_DIM, RegionConfig, TextConfig, TokenizerConfig, VisionConfig},
    family::ModelConfig,
};

// The largest sizes that are accepted, many times those of every Moondream. A larger one is a mistake or an attack, and memory
// would be taken for it before a tensor could disprove it. They also keep every product of three sizes far from overflow.

/// Blocks of a network; Moondream 2 has 24 and 27.
const LAYERS_MAX: usize = 1024;
/// Values of a position, anywhere in a network; Moondream 2 has up to 8192.
const WIDTH_MAX: usize = 65_536;
/// Experts of a block; Moondream 3 has 64.
const EXPERTS_MAX: usize = 1024;
/// Rows of the embedding table; Moondream 2 has 51 200.
const VOCABULARY_MAX: usize = 1 << 20;
/// Positions of a sequence; Moondream 2 has 2048.
const CONTEXT_MAX: usize = 1 << 17;
/// Pixels along the side of a crop; Moondream 2 has 378.
const CROP_MAX_PIXELS: usize = 4096;
/// Local crops of a picture; Moondream 2 has 12.
const CROPS_MAX: usize = 256;

/// One sentence for each wrong key; empty when all is well.
pub(super) fn problems(config: &ModelConfig) -> Vec<String> {
    let mut found = Problems(Vec::new());
    text(&mut found, &config.text);
    vision(&mut found, &config.vision);
    region(&mut found, &config.region);
    // What follows divides by the sizes, so it waits until they are sound.
    if found.0.is_empty() {
        together(&mut found, config);
        token_ids(&mut found, &config.tokenizer, config.text.vocab_size);
    }
    found.0
}

struct Problems(Vec<String>);

impl Problems {
    fn must(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.0.push(message());
        }
    }

    fn sizes(&mut self, max: usize, sizes: &[(&str, usize)]) {
        for &(key, size) in sizes {
            self.must((1..=max).contains(&size), || {
                format!("{key} = {size} must be from 1 to {max}")
            });
        }
    }
}

/// What heads are made of must divide among them, and turn in pairs.
fn has_even_heads(width: usize, heads: usize) -> bool {
    heads > 0 && width.is_multiple_of(heads) && (width / heads).is_multiple_of(2)
}

fn text(found: &mut Problems, text: &TextConfig) {
    found.must(text.group_size.is_none(), || {
        "text.group_size is set: int4 weights cannot be loaded, use the bf16 file".into()
    });
    found.sizes(
        WIDTH_MAX,
        &[("text.dim", text.dim), ("text.ff_dim", text.ff_dim)],
    );
    found.sizes(LAYERS_MAX, &[("text.n_layers", text.n_layers)]);
    found.sizes(VOCABULARY_MAX, &[("text.vocab_size", text.vocab_size)]);
    found.sizes(CONTEXT_MAX, &[("text.max_context", text.max_context)]);
    let (dim, heads) = (text.dim, text.n_heads);
    found.must(has_even_heads(dim, heads), || {
        format!("text.dim = {dim} must divide into text.n_heads = {heads} heads of even width")
    });
    found.must(
        text.n_heads == 0 || text.head_dim() >= ROTARY_DIM,
        || {
            format!(
                "text.dim / text.n_heads = {} must be {ROTARY_DIM} or more, the width of the rotary embedding",
                text.head_dim()
            )
        },
    );
    found.must(
        text.rope_theta.is_finite() && text.rope_theta >= 1.0,
        || format!("text.rope_theta = {} must be 1 or more", text.rope_theta),
    );
    if let Some(moe) = &text.moe {
        experts(found, moe, text.n_layers);
    }
    found.must(text.n_kv_heads == text.n_heads, || {
        format!(
            "text.n_kv_heads = {} must equal text.n_heads = {}; grouped heads are not supported",
            text.n_kv_heads, text.n_heads
        )
    });
}

fn experts(found: &mut Problems, moe: &MoeConfig, layers: usize) {
    found.sizes(
        WIDTH_MAX,
        &[("text.moe.expert_inner_dim", moe.expert_inner_dim)],
    );
    let (all, active) = (moe.num_experts, moe.experts_per_token);
    found.must((2..=EXPERTS_MAX).contains(&all), || {
        format!("text.moe.num_experts = {all} must be from 2 to {EXPERTS_MAX}")
    });
    found.must((1..=all).contains(&active), || {
        format!(
            "text.moe.experts_per_token = {active} must be from 1 to text.moe.num_experts = {all}"
        )
    });
    found.must(moe.start_layer <= layers, || {
        format!(
            "text.moe.start_layer = {} must be at most text.n_layers = {layers}",
            moe.start_layer
        )
    });
}

fn vision(found: &mut Problems, vision: &VisionConfig) {
    found.sizes(
        WIDTH_MAX,
        &[
            ("vision.enc_dim", vision.enc_dim),
            ("vision.enc_ff_dim", vision.enc_ff_dim),
            ("vision.proj_out_dim", vision.proj_out_dim),
            ("vision.proj_inner_dim", vision.proj_inner_dim),
        ],
    );
    found.sizes(LAYERS_MAX, &[("vision.enc_n_layers", vision.enc_n_layers)]);
    found.sizes(
        CROP_MAX_PIXELS,
        &[
            ("vision.enc_patch_size", vision.enc_patch_size),
            ("vision.crop_size", vision.crop_size),
        ],
    );
    found.sizes(CROPS_MAX, &[("vision.max_crops", vision.max_crops)]);
    let (dim, heads) = (vision.enc_dim, vision.enc_n_heads);
    found.must(has_even_heads(dim, heads), || {
        format!("vision.enc_dim = {dim} must divide into vision.enc_n_heads = {heads} heads of even width")
    });
    found.must(vision.in_channels == 3, || {
        format!("vision.in_channels = {} must be 3", vision.in_channels)
    });
    let (crop, patch) = (vision.crop_size, vision.enc_patch_size);
    found.must(patch > 0 && crop.is_multiple_of(patch), || {
        format!("vision.crop_size = {crop} must be a multiple of vision.enc_patch_size = {patch}")
    });
    let margin = vision
        .overlap_margin
        .saturating_mul(2)
        .saturating_mul(patch);
    found.must(margin < crop, || {
        format!(
            "vision.overlap_margin = {} patches must leave some of vision.crop_size = {crop} between two margins",
            vision.overlap_margin
        )
    });
}

fn region(found: &mut Problems, region: &RegionConfig) {
    found.must(region.group_size.is_none(), || {
        "region.group_size is set: int4 weights cannot be loaded, use the bf16 file".into()
    });
    found.sizes(
        WIDTH_MAX,
        &[
            ("region.coord_feat_dim", region.coord_feat_dim),
            ("region.size_feat_dim", region.size_feat_dim),
            ("region.inner_dim", region.inner_dim),
        ],
    );
    for (key, features) in [
        ("region.coord_feat_dim", region.coord_feat_dim),
        ("region.size_feat_dim", region.size_feat_dim),
    ] {
        found.must(features.is_multiple_of(2), || {
            format!("{key} = {features} must be even: cosines, then as many sines")
        });
    }
    for (key, size, bins) in [
        ("region.coord_out_dim", region.coord_out_dim, BINS),
        ("region.size_out_dim", region.size_out_dim, 2 * BINS),
    ] {
        found.must(size == bins, || format!("{key} = {size} must be {bins}"));
    }
}

fn together(found: &mut Problems, config: &ModelConfig) {
    let dim = config.text.dim;
    for (key, width) in [
        ("vision.proj_out_dim", config.vision.proj_out_dim),
        ("region.dim", config.region.dim),
    ] {
        found.must(width == dim, || {
            format!("{key} = {width} must equal text.dim = {dim}")
        });
    }
    let prefix = config.prefix_positions();
    found.must(config.text.prefix_attn == prefix, || {
        format!(
            "text.prefix_attn = {} must be {prefix}: BOS and {} image tokens",
            config.text.prefix_attn,
            config.image_tokens()
        )
    });
    found.must(config.text.max_context > prefix, || {
        format!(
            "text.max_context = {} must exceed the {prefix} positions of an image",
            config.text.max_context
        )
    });
}

fn token_ids(found: &mut Problems, tokenizer: &TokenizerConfig, vocab_size: usize) {
    let templates = &tokenizer.templates;
    let single = [
        ("bos_id", tokenizer.bos_id),
        ("eos_id", tokenizer.eos_id),
        ("answer_id", tokenizer.answer_id),
        ("coord_id", tokenizer.coord_id),
        ("size_id", tokenizer.size_id),
    ];
    let lists = [
        ("templates.caption.short", &templates.caption.short),
        ("templates.caption.normal", &templates.caption.normal),
        ("templates.caption.long", &templates.caption.long),
        ("templates.query.prefix", &templates.query.prefix),
        ("templates.query.suffix", &templates.query.suffix),
        ("templates.detect.prefix", &templates.detect.prefix),
        ("templates.detect.suffix", &templates.detect.suffix),
        ("templates.point.prefix", &templates.point.prefix),
        ("templates.point.suffix", &templates.point.suffix),
    ];
    let segment = templates.segment.iter().flat_map(|segment| {
        [
            ("templates.segment.prefix", &segment.prefix),
            ("templates.segment.suffix", &segment.suffix),
        ]
    });
    let listed = lists
        .into_iter()
        .chain(segment)
        .flat_map(|(key, ids)| ids.iter().map(move |&id| (key, id)));
    let thoughts = [
        ("thinking_id", tokenizer.thinking_id),
        ("start_ground_points_id", tokenizer.start_ground_points_id),
        ("end_ground_id", tokenizer.end_ground_id),
    ];
    for (key, id) in single.into_iter().chain(listed).chain(thoughts) {
        found.must((id as usize) < vocab_size, || {
            format!("tokenizer.{key} has id {id}, but text.vocab_size is {vocab_size}")
        });
    }
}
