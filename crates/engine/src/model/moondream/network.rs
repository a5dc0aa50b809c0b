//! The network of a Moondream: its layers with their names and shapes (docs/moondream.md section 2).

use crate::{
    model::{
        config::{DecoderArch, LAYER_NORM_EPS, MoeConfig, ROTARY_DIM},
        family::ModelConfig,
    },
    network::{
        Decoder, Experts, Mlp, Network, Norm, Region, Tau, Text, TextBlock, TextMlp, Vision,
        VisionBlock,
        layers::LargeLayer,
        spec::{LayerSpec, NetworkSpec, RopeSpec, TensorSpec},
    },
};

pub fn network(config: &ModelConfig) -> NetworkSpec {
    NetworkSpec {
        layers: Network {
            text: text(config),
            vision: vision(config),
            region: region(config),
        },
        text_heads: config.text.n_heads,
        vision_heads: config.vision.enc_n_heads,
        rope: RopeSpec {
            theta: config.text.rope_theta,
            dims: ROTARY_DIM,
        },
        norm_eps: LAYER_NORM_EPS,
        prefix: config.prefix_positions(),
        context: config.context(),
    }
}

fn text(config: &ModelConfig) -> Text<LayerSpec, TensorSpec> {
    let (dim, ff, vocab) = (config.text.dim, config.text.ff_dim, config.text.vocab_size);
    let attended = config.text.attended_width();
    let block = |nth: usize| {
        let at = |part: &str| format!("text.blocks.{nth}.{part}");
        let [qkv_fc1, proj_fc2] = LargeLayer::of_decoder(nth);
        let moe = config.text.moe.filter(|moe| nth >= moe.start_layer);
        TextBlock {
            ln: norm(&at("ln"), dim),
            qkv: linear(&at("attn.qkv"), 3 * attended, dim).large(qkv_fc1),
            tau: config.text.tau_attn.then(|| tau(&at("attn.tau"), config)),
            proj: linear(&at("attn.proj"), dim, attended).large(proj_fc2),
            mlp: match moe {
                None => TextMlp::Dense(Mlp {
                    fc1: linear(&at("mlp.fc1"), ff, dim).large(qkv_fc1),
                    fc2: linear(&at("mlp.fc2"), dim, ff).large(proj_fc2),
                }),
                Some(moe) => TextMlp::Experts(experts(&at("mlp"), dim, moe)),
            },
        }
    };
    Text {
        wte: tensor("text.wte", &[vocab, dim]),
        blocks: (0..config.text.n_layers).map(block).collect(),
        post_ln: norm("text.post_ln", dim),
        lm_head: linear("text.lm_head", vocab, dim),
    }
}

fn tau(name: &str, config: &ModelConfig) -> Tau<TensorSpec> {
    let (heads, features) = (config.text.n_heads, 3 * config.text.attended_width());
    let halves = ["wq", "wv"].map(|half| format!("{name}.{half}"));
    Tau {
        wq_wv: TensorSpec {
            halves: Some(halves),
            ..tensor(
                &format!("{name}.wq_wv"),
                &[2 * config.text.all_heads(), features],
            )
        },
        alpha: tensor(&format!("{name}.alpha"), &[heads]),
    }
}

fn experts(name: &str, dim: usize, moe: MoeConfig) -> Experts<LayerSpec> {
    let of_each = |part: &str, outputs, inner| LayerSpec {
        count: moe.num_experts,
        has_bias: false,
        ..linear(&format!("{name}.{part}"), outputs, inner)
    };
    Experts {
        router: linear(&format!("{name}.router"), moe.num_experts, dim),
        up: of_each("fc1", 2 * moe.expert_inner_dim, dim),
        down: of_each("fc2", dim, moe.expert_inner_dim),
        active: moe.experts_per_token,
    }
}

fn vision(config: &ModelConfig) -> Vision<LayerSpec, TensorSpec> {
    let vision = &config.vision;
    let (dim, ff, inner) = (vision.enc_dim, vision.enc_ff_dim, vision.proj_inner_dim);
    let block = |nth: usize| {
        let at = |part: &str| format!("vision.blocks.{nth}.{part}");
        let [qkv, proj, fc1, fc2] = LargeLayer::of_encoder(nth);
        VisionBlock {
            ln1: norm(&at("ln1"), dim),
            qkv: linear(&at("attn.qkv"), 3 * dim, dim).large(qkv),
            proj: linear(&at("attn.proj"), dim, dim).large(proj),
            ln2: norm(&at("ln2"), dim),
            mlp: Mlp {
                fc1: linear(&at("mlp.fc1"), ff, dim).large(fc1),
                fc2: linear(&at("mlp.fc2"), dim, ff).large(fc2),
            },
        }
    };
    Vision {
        patch_emb: linear("vision.patch_emb", dim, vision.patch_values()),
        pos_emb: tensor("vision.pos_emb", &[1, config.image_tokens(), dim]),
        blocks: (0..vision.enc_n_layers).map(block).collect(),
        post_ln: norm("vision.post_ln", dim),
        proj: Mlp {
            fc1: linear("vision.proj_mlp.fc1", inner, 2 * dim).large(LargeLayer::ProjectionFc1),
            fc2: linear("vision.proj_mlp.fc2", vision.proj_out_dim, inner)
                .large(LargeLayer::ProjectionFc2),
        },
    }
}

fn region(config: &ModelConfig) -> Region<LayerSpec, TensorSpec> {
    let region = &config.region;
    let (dim, inner) = (region.dim, region.inner_dim);
    let (coord, size) = (region.coord_feat_dim, region.size_feat_dim);
    let decoder = |name: &str, bins| match region.decoder_arch {
        DecoderArch::Linear => Decoder::Linear(linear(name, bins, dim)),
        DecoderArch::Mlp => Decoder::Mlp(Mlp {
            fc1: linear(&format!("{name}.fc1"), inner, dim),
            fc2: linear(&format!("{name}.fc2"), bins, inner),
        }),
    };
    Region {
        ln: region.use_ln.then(|| norm("region.ln", dim)),
        coord_features: tensor("region.coord_features", &[1, coord / 2]),
        size_features: tensor("region.size_features", &[2, size / 2]),
        coord_encoder: linear("region.coord_encoder", dim, coord),
        coord_decoder: decoder("region.coord_decoder", region.coord_out_dim),
        size_encoder: linear("region.size_encoder", dim, size),
        size_decoder: decoder("region.size_decoder", region.size_out_dim),
    }
}

fn linear(name: &str, outputs: usize, inner: usize) -> LayerSpec {
    LayerSpec {
        name: name.to_owned(),
        outputs,
        inner,
        count: 1,
        has_bias: true,
        large: None,
        adapter: None,
    }
}

fn norm(name: &str, width: usize) -> Norm<TensorSpec> {
    Norm {
        weight: tensor(&format!("{name}.weight"), &[width]),
        bias: tensor(&format!("{name}.bias"), &[width]),
    }
}

fn tensor(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        shape: shape.to_vec(),
        halves: None,
    }
}
