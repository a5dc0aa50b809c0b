//! Rows with different adapters, and none, in the same steps: each is answered as it is alone, and as the reference answers.
//!
//! Faults: E12.

use half::bf16;

use super::{
    assert_near, backend,
    cases::compare,
    config,
    stages::{Expected, check_image_prefix, check_prompts},
};
use crate::{
    cpu::{adapter::AdaptedRows, gemm::PackedLinear},
    model::{LowRank, Tensor, TensorData, Tokenizer},
    network::{Experts, Norm, TextBlock, TextMlp},
    scheduler::backend::Backend,
    testing::{
        golden_adapters::{AdapterSet, of_moondream3, of_variant},
        golden_set, whole_golden_set,
    },
};

/// Fails when a call is answered otherwise than in the reference, or alone otherwise than among all others.
fn check(set: &AdapterSet, images: &[&str]) {
    check_on(&mut backend(&set.network), set, images);
}

/// The same on a backend that has the network of the set.
pub(super) fn check_on(backend: &mut dyn Backend, set: &AdapterSet, images: &[&str]) {
    let tokenizer = Tokenizer::open(&set.network.join("tokenizer.json")).unwrap();
    let config = config(&set.network);
    for image in images {
        let calls = set.calls(image);
        let of_adapter = |adapter| calls.iter().any(|call| call.adapter == adapter);
        assert!((0..set.expected.len()).all(of_adapter), "{image}");
        let together = set.run(backend, image, &calls.iter().collect::<Vec<_>>());
        for (call, found) in calls.iter().zip(together) {
            let alone = set.run(backend, image, &[call]);
            assert_eq!(found, alone[0], "{}", call.name);
            compare(&call.name, &call.expected, found, &config, &tokenizer);
        }
    }
}

const VARIANT_IMAGES: [&str; 2] = ["exact_84x84", "gray_200x200"];

#[test]
fn rows_with_and_without_a_variant_are_answered_as_alone() {
    let variant = golden_set("md2-lora-micro");
    check(
        &of_variant(golden_set("md2-micro"), &variant, "final.pt"),
        &VARIANT_IMAGES,
    );
}

mod whole_golden_data {
    use super::*;

    #[test]
    #[ignore = "needs the whole golden data; run make test-full"]
    fn rows_of_three_adapters_are_answered_as_alone() {
        for kind in ["safetensors", "pt"] {
            check(&of_moondream3(kind), &["card_44x50", "hall_150x90"]);
        }
        let variant = whole_golden_set("md2-lora-micro");
        let network = whole_golden_set("md2-micro");
        check(
            &of_variant(network, &variant, "variant.safetensors"),
            &VARIANT_IMAGES,
        );
    }

    #[test]
    #[ignore = "needs the whole golden data; run make test-full"]
    fn prefixes_and_prompts_with_adapters_are_the_reference() {
        let variant = whole_golden_set("md2-lora-micro");
        let network = whole_golden_set("md2-micro");
        let of_variant = of_variant(network, &variant, "variant.safetensors");
        for set in [of_moondream3("pt"), of_variant] {
            for (adapter, folder) in &set.expected {
                let expected = Expected {
                    folder,
                    adapter: adapter.as_ref().map(|adapter| &adapter.weights),
                };
                check_image_prefix(&set.network, expected);
                check_prompts(&set.network, expected);
            }
        }
    }
}

/// Numbers from -1 to 1 that look random, the same in each run.
fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as f32 / 32768.0 - 1.0
    };
    (0..count).map(next).collect()
}

fn stored(name: &str, shape: [usize; 3], values: Vec<f32>) -> PackedLinear {
    let weight = Tensor {
        name: name.into(),
        shape: shape.to_vec(),
        data: TensorData::F32(values),
    };
    PackedLinear::stored(weight, None, vec![0.0; shape[1]]).unwrap()
}

/// `W + B · A` of each expert.
fn merged(weights: &[f32], adapter: &LowRank) -> Vec<f32> {
    let LowRank {
        rank,
        a,
        b,
        inner,
        outputs,
    } = adapter;
    let value = |(at, weight): (usize, &f32)| {
        let (expert, output, input) = (at / inner / outputs, at / inner % outputs, at % inner);
        let terms = (0..*rank).map(|r| {
            let a = a[(expert * rank + r) * inner + input].to_f32();
            a * b[(expert * outputs + output) * rank + r].to_f32()
        });
        weight + terms.sum::<f32>()
    };
    weights.iter().enumerate().map(value).collect()
}

#[test]
fn experts_with_an_adapter_are_those_with_merged_weights() {
    const EXPERTS: usize = 5;
    const WIDTH: usize = 24;
    const INNER: usize = 16;
    const RANK: usize = 2;
    const ROWS: usize = 7;
    let low_rank = |seed, inner, outputs| LowRank {
        rank: RANK,
        a: noise(seed, EXPERTS * RANK * inner)
            .into_iter()
            .map(bf16::from_f32)
            .collect(),
        b: noise(seed + 1, EXPERTS * outputs * RANK)
            .into_iter()
            .map(bf16::from_f32)
            .collect(),
        inner,
        outputs,
    };
    let up = (
        noise(1, EXPERTS * 2 * INNER * WIDTH),
        low_rank(2, WIDTH, 2 * INNER),
    );
    let down = (noise(4, EXPERTS * WIDTH * INNER), low_rank(5, INNER, WIDTH));
    let experts = |up: Vec<f32>, down: Vec<f32>| Experts {
        router: PackedLinear::new(&noise(7, EXPERTS * WIDTH), vec![0.0; EXPERTS]),
        up: stored("up", [EXPERTS, 2 * INNER, WIDTH], up),
        down: stored("down", [EXPERTS, WIDTH, INNER], down),
        active: 3,
    };
    let plain = experts(up.0.clone(), down.0.clone());
    let with_merged = experts(merged(&up.0, &up.1), merged(&down.0, &down.1));
    let none = Norm {
        weight: (),
        bias: (),
    };
    let adapter = TextBlock {
        ln: none,
        qkv: None,
        tau: None,
        proj: None,
        mlp: TextMlp::Experts(Experts {
            router: None,
            up: Some(up.1),
            down: Some(down.1),
            active: 3,
        }),
    };
    let x = noise(9, ROWS * WIDTH);
    let adapted = AdaptedRows {
        rows: 2..5,
        adapter: &adapter,
    };
    let found = plain.forward(&x, &[adapted]);
    let [without, with] = [&plain, &with_merged].map(|experts| experts.forward(&x, &[]));
    let row = |values: &[f32], row: usize| values[row * WIDTH..][..WIDTH].to_vec();
    for nth in 0..ROWS {
        match (2..5).contains(&nth) {
            true => assert_near(&format!("row {nth}"), &row(&found, nth), &row(&with, nth)),
            false => assert_eq!(row(&found, nth), row(&without, nth), "row {nth}"),
        }
        assert_ne!(row(&with, nth), row(&without, nth));
    }
}
