//! Names of adapters in their files (docs/moondream.md section 11).

use crate::{
    model::source::TensorName,
    network::{
        TextMlp,
        spec::{LayerSpec, NetworkSpec},
    },
};

use super::names;

/// What variants have behind the name of a layer, and what we have.
const VARIANT_PARTS: [(&str, &str); 2] = [
    (".parametrizations.weight.0.A", "_a"),
    (".parametrizations.weight.0.B", "_b"),
];

/// A variant of Moondream 2 adds to all layers of the decoder's blocks, and names them as the model's file does.
pub fn with_variants(mut spec: NetworkSpec) -> NetworkSpec {
    let add = |layer: &mut LayerSpec| layer.adapter = Some(layer.name.clone());
    for block in &mut spec.layers.text.blocks {
        add(&mut block.qkv);
        add(&mut block.proj);
        if let TextMlp::Dense(mlp) = &mut block.mlp {
            add(&mut mlp.fc1);
            add(&mut mlp.fc2);
        }
    }
    spec
}

/// The name in a variant without [`VARIANT_PARTS`].
pub fn name_in_variant(name: &str) -> Option<String> {
    let (layer, end) = VARIANT_PARTS.iter().find_map(|(theirs, ours)| {
        let layer = name.strip_suffix(theirs)?;
        Some((layer, ours))
    })?;
    match names::own_name(&format!("{layer}.weight")) {
        TensorName::Own(own) => Some(format!("{}{end}", own.strip_suffix(".weight")?)),
        _ => None,
    }
}

/// An adapter of Moondream 3 adds to both layers of the MLPs alone, and counts the dense ones and those of experts apart.
pub fn with_mlp_adapters(mut spec: NetworkSpec) -> NetworkSpec {
    let [mut dense, mut moe] = [0; 2];
    for block in &mut spec.layers.text.blocks {
        let (kind, count, [up, down]) = match &mut block.mlp {
            TextMlp::Dense(mlp) => ("dense", &mut dense, [&mut mlp.fc1, &mut mlp.fc2]),
            TextMlp::Experts(experts) => ("moe", &mut moe, [&mut experts.up, &mut experts.down]),
        };
        up.adapter = Some(format!("{kind}.{count}.up"));
        down.adapter = Some(format!("{kind}.{count}.down"));
        *count += 1;
    }
    spec
}

/// What follows the first `dense.` or `moe.`: files have several words before it.
pub fn name_in_mlp_adapter(name: &str) -> Option<String> {
    let words: Vec<&str> = name.split('.').collect();
    let first = words.iter().position(|w| ["dense", "moe"].contains(w))?;
    let is_part = |part: &str| ["up_a", "up_b", "down_a", "down_b"].contains(&part);
    match words[first..] {
        [_, number, part] if number.parse::<usize>().is_ok() && is_part(part) => {
            Some(words[first..].join("."))
        }
        _ => None,
    }
}
