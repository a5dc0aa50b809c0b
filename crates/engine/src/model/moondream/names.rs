//! Names of tensors in files: those of Hugging Face's releases, which are ours, and those of training, which the vendor's own files have.

use crate::model::source::TensorName;

/// Begins of training names and of ours; what follows stays, or is in [`BLOCK_PARTS`].
const BEGINS: &[(&str, &str)] = &[
    ("text_model.transformer.embd.wte.weight", "text.wte"),
    ("text_model.transformer.h.", "text.blocks."),
    ("text_model.lm_head.ln.", "text.post_ln."),
    ("text_model.lm_head.linear.", "text.lm_head."),
    (
        "vision_encoder.encoder.model.visual.patch_embed.linear.",
        "vision.patch_emb.",
    ),
    (
        "vision_encoder.encoder.model.visual.pos_embed",
        "vision.pos_emb",
    ),
    (
        "vision_encoder.encoder.model.visual.blocks.",
        "vision.blocks.",
    ),
    (
        "vision_encoder.encoder.model.visual.norm.",
        "vision.post_ln.",
    ),
    ("vision_encoder.projection.mlp.", "vision.proj_mlp."),
    ("region_model.coordinate_encoder.", "region.coord_encoder."),
    ("region_model.size_encoder.", "region.size_encoder."),
    // Of one layer, and of two.
    ("region_model.coordinate_head.", "region.coord_decoder."),
    ("region_model.coordinate_decoder.", "region.coord_decoder."),
    ("region_model.size_head.", "region.size_decoder."),
    ("region_model.size_decoder.", "region.size_decoder."),
    ("region_model.ln.", "region.ln."),
];

/// Parts of a block behind its number.
const BLOCK_PARTS: &[(&str, &str)] = &[
    ("mixer.Wqkv.", "attn.qkv."),
    ("mixer.out_proj.", "attn.proj."),
    ("gate.", "mlp.router."),
    ("mlp.experts.weight", "mlp.fc1.weight"),
    ("mlp.output_experts.weight", "mlp.fc2.weight"),
    ("moe_quant.up_scale", "mlp.fc1.row_scales"),
    ("moe_quant.down_scale", "mlp.fc2.row_scales"),
    ("tau_wqwv", "attn.tau.wq_wv"),
    ("tau_wq", "attn.tau.wq"),
    ("tau_wv", "attn.tau.wv"),
    ("tau_alpha", "attn.tau.alpha"),
    ("norm1.", "ln1."),
    ("norm2.", "ln2."),
];

/// What a tensor with this name in a file is. Names that are not known stay.
pub fn own_name(name: &str) -> TensorName {
    for (theirs, ours) in [
        (
            "region_model.coordinate_features.weight",
            "region.coord_features",
        ),
        ("region_model.size_features.weight", "region.size_features"),
    ] {
        if name == theirs {
            return TensorName::Transposed(ours.to_owned());
        }
    }
    // Scales of a KV cache in 8 bits.
    if name.contains(".kv_quantizer.") {
        return TensorName::Ignored;
    }
    let begin = BEGINS.iter().find_map(|(theirs, ours)| {
        let rest = name.strip_prefix(theirs)?;
        Some((ours, rest))
    });
    TensorName::Own(match begin {
        None => name.to_owned(),
        Some((ours, rest)) if ours.ends_with("blocks.") => format!("{ours}{}", of_block(rest)),
        Some((ours, rest)) => format!("{ours}{rest}"),
    })
}

/// `7.gate.weight` is `7.mlp.router.weight`.
fn of_block(name: &str) -> String {
    let Some((number, part)) = name.split_once('.') else {
        return name.to_owned();
    };
    let begin = BLOCK_PARTS.iter().find_map(|(theirs, ours)| {
        let rest = part.strip_prefix(theirs)?;
        Some((ours, rest))
    });
    match begin {
        None => name.to_owned(),
        Some((ours, rest)) => format!("{number}.{ours}{rest}"),
    }
}
