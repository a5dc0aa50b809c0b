//! Single operations.

use super::assert_near;
use crate::{
    cpu::{
        attention::{AttentionHeads, KvSegment, attend_past, attend_within},
        experts::routes,
        gemm::PackedLinear,
        ops::{gelu, gelu_erf},
        region::fourier,
        rope::Rope,
        vision::{FeatureMap, Patches, pool, stitch},
    },
    model::{ModelConfig, Tensor, TensorData, Tiling, VisionConfig},
    network::{Experts, Norm, Tau, spec::RopeSpec},
    testing::{self, Tensors},
};

fn golden() -> (Tensors, serde_json::Value) {
    let set = testing::golden_set("ops");
    (
        testing::tensors(&set.join("ops.safetensors")),
        testing::json(&set.join("ops.json")),
    )
}

#[test]
fn layer_norm_and_gelu() {
    let (golden, _) = golden();
    let norm = Norm {
        weight: golden["layer_norm.weight"].1.clone(),
        bias: golden["layer_norm.bias"].1.clone(),
    };
    assert_near(
        "layer norm",
        &norm.forward(&golden["layer_norm.in"].1),
        &golden["layer_norm.out"].1,
    );
    let mut values = golden["gelu.in"].1.clone();
    gelu(&mut values);
    assert_near("gelu", &values, &golden["gelu.tanh"].1);
    let mut values = golden["gelu.in"].1.clone();
    gelu_erf(&mut values);
    assert_near("gelu by erf", &values, &golden["gelu.erf"].1);
}

#[test]
fn rope_turns_halves_and_leaves_values_alone() {
    let (golden, _) = golden();
    let positions: Vec<usize> = golden["rope.positions"]
        .1
        .iter()
        .map(|&x| x as usize)
        .collect();
    let (shape, input) = &golden["rope.in"];
    let (heads, rows, dim) = (shape[0], shape[1], shape[2]);
    for (model, theta) in [("md2", 10_000.0), ("md3", 1_500_000.0)] {
        let want = &golden[&format!("rope.{model}.out_half_split")].1;
        let spec = RopeSpec { theta, dims: 32 };
        let rope = Rope::new(spec, positions.iter().max().unwrap() + 1);
        for head in 0..heads {
            // One head as q, k and v of every row.
            let head = head * rows * dim..(head + 1) * rows * dim;
            let mut qkv: Vec<f32> = input[head.clone()]
                .chunks_exact(dim)
                .flat_map(|row| row.repeat(3))
                .collect();
            rope.turn(&mut qkv, &positions, dim);
            let rows = want[head.clone()]
                .chunks_exact(dim)
                .zip(input[head].chunks_exact(dim));
            let expected: Vec<f32> = rows
                .flat_map(|(turned, plain)| [turned, turned, plain].concat())
                .collect();
            assert_near(model, &qkv, &expected);
        }
    }
}

#[test]
fn attention_to_each_other_and_to_the_past() {
    let (golden, _) = golden();
    let (shape, q) = &golden["attention.q"];
    let (k, v) = (&golden["attention.k"].1, &golden["attention.v"].1);
    let heads = AttentionHeads {
        count: shape[0],
        dim: shape[2],
    };
    let positions = shape[1];
    // Golden data is head by head, rows are position by position.
    let by_position = |values: &[f32]| -> Vec<f32> {
        (0..positions)
            .flat_map(|row| (0..heads.count).map(move |head| (head * positions + row) * heads.dim))
            .flat_map(|start| values[start..][..heads.dim].to_vec())
            .collect()
    };
    let width = heads.width();
    let (rows_q, rows_k, rows_v) = (by_position(q), by_position(k), by_position(v));
    let qkv: Vec<f32> = (0..positions)
        .flat_map(|row| {
            [&rows_q, &rows_k, &rows_v]
                .map(|part| part[row * width..][..width].to_vec())
                .concat()
        })
        .collect();
    let full = by_position(&golden["attention.full_out"].1);
    assert_near(
        "both directions",
        &attend_within(&qkv, positions, heads),
        &full,
    );
    let twice = attend_within(&[qkv.clone(), qkv].concat(), positions, heads);
    assert_near("two sequences", &twice, &full.repeat(2));

    let causal = by_position(&golden["attention.causal_out"].1);
    for (page, rows) in [(4, positions), (3, 2), (11, 1)] {
        let past = |head: usize| {
            let head = head * positions * heads.dim..(head + 1) * positions * heads.dim;
            let pairs = k[head.clone()]
                .chunks(page * heads.dim)
                .zip(v[head].chunks(page * heads.dim));
            pairs
                .map(|(keys, values)| KvSegment { keys, values })
                .collect()
        };
        let first = (positions - rows) * width;
        let out = attend_past(&rows_q[first..], positions, heads, past);
        assert_near("past", &out, &causal[first..]);
    }
}

/// More queries than one task takes, and a last task that is not full.
#[test]
fn attention_of_many_positions_is_that_of_each_query() {
    let heads = AttentionHeads { count: 2, dim: 36 };
    let (positions, width) = (101, heads.width());
    let qkv: Vec<f32> = (0..positions * 3 * width)
        .map(|i| (i as f32 * 0.7).sin())
        .collect();
    let head_rows = |third: usize, head: usize| -> Vec<f32> {
        let rows = qkv.chunks_exact(3 * width);
        let of_head = rows.map(|row| &row[third * width + head * heads.dim..][..heads.dim]);
        of_head.flatten().copied().collect()
    };
    let [keys, values] = [1, 2].map(|third| [0, 1].map(|head| head_rows(third, head)));
    let past = |head: usize| {
        vec![KvSegment {
            keys: &keys[head],
            values: &values[head],
        }]
    };
    let queries = qkv.chunks_exact(3 * width).map(|row| &row[..width]);
    let expected: Vec<f32> = queries
        .flat_map(|query| attend_past(query, positions, heads, past))
        .collect();
    let attended = attend_within(&qkv, positions, heads);
    assert_near("many positions", &attended, &expected);
}

#[test]
fn patches_stitching_and_pooling() {
    let (golden, about) = golden();
    let (shape, planes) = &golden["patches.in"];
    let size = shape[2];
    // A number for every place, so that the order shows; the golden input is arbitrary floats.
    let crop: Vec<u8> = (0..size * size * 3).map(|i| (i % 251) as u8).collect();
    let order: Vec<usize> = golden["patches.out"]
        .1
        .iter()
        .map(|x| planes.iter().position(|plane| plane == x).unwrap())
        .collect();
    let at = |place: usize| crop[place % (size * size) * 3 + place / (size * size)];
    let expected: Vec<f32> = order.into_iter().map(|place| at(place).into()).collect();
    let patches = Patches {
        side: 14,
        grid: size / 14,
        values: &std::array::from_fn(|byte| byte as f32),
    };
    let mut filled = vec![0.0; expected.len()];
    for (index, place) in filled.chunks_exact_mut(patches.len()).enumerate() {
        patches.fill(place, &crop, index);
    }
    assert_eq!(filled, expected);

    for case in about["reconstruct"].as_array().unwrap() {
        let key = case["key"].as_str().unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
        let (shape, tiles) = &golden[&format!("{key}.in")];
        let config = VisionConfig {
            enc_dim: shape[3],
            enc_patch_size: 14,
            crop_size: 14 * number(&case["grid"]),
            overlap_margin: number(&case["overlap_margin"]),
            ..ModelConfig::default().vision
        };
        let tiling = Tiling {
            rows: number(&case["tiling"][0]),
            cols: number(&case["tiling"][1]),
        };
        let (shape, want) = &golden[&format!("{key}.out")];
        let map = stitch(tiles, tiling, &config);
        assert_eq!(
            (map.height, map.width, &map.values),
            (shape[0], shape[1], want),
            "{key}"
        );
    }

    for (key, (shape, values)) in golden
        .iter()
        .filter(|(key, _)| key.starts_with("adaptive_pool") && key.ends_with(".in"))
    {
        let (out_shape, want) = &golden[&key.replace(".in", ".out")];
        let map = FeatureMap {
            height: shape[0],
            width: shape[1],
            values: values.clone(),
        };
        assert_near(key, &pool(&map, out_shape[0]), want);
    }
}

#[test]
fn fourier_features() {
    let (golden, _) = golden();
    for (key, values) in [("fourier1", 1), ("fourier2", 2)] {
        let part = |name: &str| &golden[&format!("{key}.{name}")].1;
        assert_near(key, &fourier(part("x"), part("w"), values), part("out"));
    }
}

#[test]
fn experts_are_chosen_and_added_up_as_in_the_reference() {
    let (golden, about) = golden();
    let tensor = |name: &str| {
        let (shape, values) = golden[name].clone();
        Tensor {
            name: name.into(),
            shape,
            data: TensorData::F32(values),
        }
    };
    let layer = |name: &str| {
        let weight = tensor(name);
        let bias = vec![0.0; weight.shape[1]];
        PackedLinear::stored(weight, None, bias).unwrap()
    };
    let router = &golden["moe.router.weight"].1;
    let active = about["moe"]["experts_per_token"].as_u64().unwrap() as usize;
    let experts = Experts {
        router: PackedLinear::new(router, golden["moe.router.bias"].1.clone()),
        up: layer("moe.fc1.weight"),
        down: layer("moe.fc2.weight"),
        active,
    };
    let x = &golden["moe.in"].1;
    let logits = experts.router.forward(x);
    let routes = logits.chunks_exact(6).flat_map(|row| routes(row, active));
    let (chosen, shares): (Vec<f32>, Vec<f32>) = routes
        .map(|route| (route.expert as f32, route.share))
        .unzip();
    assert_eq!(chosen, golden["moe.topk_idx"].1);
    assert_near("shares", &shares, &golden["moe.topk_weight"].1);
    let sums = experts.forward(x, &[]);
    assert_near("sums", &sums, &golden["moe.out"].1);
    // A row alone gives the bits that it gives beside others.
    let alone: Vec<f32> = x
        .chunks_exact(24)
        .flat_map(|row| experts.forward(row, &[]))
        .collect();
    assert_eq!(alone, sums);
}

#[test]
fn equal_logits_choose_the_lower_expert() {
    let chosen = |logits: &[f32]| -> Vec<usize> {
        routes(logits, 3).iter().map(|route| route.expert).collect()
    };
    assert_eq!(chosen(&[1.0, 2.0, 1.0, 2.0, 1.0]), [1, 3, 0]);
    assert_eq!(chosen(&[-0.0, 0.0, 0.0, -1.0]), [0, 1, 2]);
}

#[test]
fn tau_scales_queries_and_values_alone() {
    let (golden, about) = golden();
    let tensor = |name: &str| golden[name].1.clone();
    let tau = Tau {
        wq_wv: [tensor("tau.wq"), tensor("tau.wv")].concat(),
        alpha: tensor("tau.alpha"),
    };
    let qkv = PackedLinear::new(&tensor("tau.qkv.weight"), tensor("tau.qkv.bias"));
    let before = qkv.forward(&tensor("tau.in"));
    let first = about["tau"]["first_position"].as_u64().unwrap() as usize;
    let positions: Vec<usize> = (first..first + 9).collect();
    let mut after = before.clone();
    tau.scale(&mut after, &positions, 64, None).unwrap();
    // Scales are stored head by head, rows of one head together.
    let scales = [
        Some(tensor("tau.q_scale")),
        None,
        Some(tensor("tau.v_scale")),
    ];
    for (row, (after, before)) in after.chunks(384).zip(before.chunks(384)).enumerate() {
        for (head, (after, before)) in after.chunks(64).zip(before.chunks(64)).enumerate() {
            let scale = scales[head / 2]
                .as_ref()
                .map_or(1.0, |s| s[head % 2 * 9 + row]);
            let want: Vec<f32> = before.iter().map(|x| x * scale).collect();
            assert_near(&format!("row {row} head {head}"), after, &want);
        }
    }
}
