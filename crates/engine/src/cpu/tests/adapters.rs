//! Rows with different adapters, and none, in the same steps: each is answered as it is alone, and as the reference answers.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use half::bf16;
use serde_json::Value;

use super::{
    assert_near, backend,
    cases::compare,
    config, picture,
    stages::{Expected, check_image_prefix, check_prompts},
};
use crate::{
    cpu::{CpuBackend, adapter::AdaptedRows, gemm::PackedLinear},
    model::{AdapterFile, LowRank, SequenceOutput, Tensor, TensorData, Tokenizer},
    network::{Experts, Norm, TextBlock, TextMlp},
    scheduler::{
        backend::{
            AdapterNumber, Backend, Feed, ImageJob, KvTable, LoadedAdapter, PageId, Row, Step,
        },
        sequence::Sequence,
    },
    testing::{
        golden_model::{run_step, sequence},
        golden_set, json, whole_golden_set,
    },
};

type Adapter = Option<Arc<LoadedAdapter>>;

/// The reference looks for the end of an answer when it has as many objects as it may have; an engine does not.
fn past_the_end(case: &Value) -> Value {
    let mut case = case.clone();
    let most = case["case"]["settings"]["max_objects"].as_u64();
    if let ("eos", Some(most)) = (case["expected"]["ended_by"].as_str().unwrap_or(""), most) {
        case["case"]["settings"]["max_objects"] = (most + 1).into();
    }
    case
}

/// Answers of the reference, with what gives them.
struct AdapterSet {
    /// Has network, tokenizer and pictures.
    network: PathBuf,
    /// Of each adapter, and none: the folder of its results.
    expected: Vec<(Adapter, PathBuf)>,
}

fn load(network: &Path, file: &Path, number: u32) -> Adapter {
    let opened = AdapterFile::open(file, &config(network)).unwrap();
    Some(Arc::new(LoadedAdapter {
        number: AdapterNumber(number),
        weights: opened.load().unwrap(),
    }))
}

/// A variant of the network of `md2-micro`, and the network as it is.
fn of_variant(network: PathBuf, variant: &Path, file: &str) -> AdapterSet {
    let adapter = load(&network, &variant.join(file), 1);
    AdapterSet {
        expected: vec![
            (None, network.join("expected")),
            (adapter, variant.join("expected")),
        ],
        network,
    }
}

fn of_moondream3(kind: &str) -> AdapterSet {
    let network = whole_golden_set("md3-lora-tiny");
    let file = |name: &str| network.join(format!("adapters/{name}.{kind}"));
    let folder = |name: &str| network.join("expected").join(name);
    AdapterSet {
        expected: vec![
            (None, folder("none")),
            (load(&network, &file("a"), 1), folder("a")),
            (load(&network, &file("b"), 2), folder("b")),
        ],
        network,
    }
}

/// A call of the reference.
struct Call {
    name: String,
    expected: Value,
    /// Its adapter's index in the set.
    adapter: usize,
    sequence: Sequence,
}

impl AdapterSet {
    fn calls(&self, image: &str) -> Vec<Call> {
        let config = config(&self.network);
        let mut calls = Vec::new();
        for (adapter, (_, folder)) in self.expected.iter().enumerate() {
            let cases = json(&folder.join("cases.json"));
            let cases = cases.as_object().unwrap().iter();
            let asked = cases.filter(|(_, case)| case["case"]["image"] == image);
            calls.extend(asked.map(|(name, case)| Call {
                name: format!("{}/{name}", folder.display()),
                expected: case["expected"].clone(),
                adapter,
                sequence: sequence(&past_the_end(case), &config),
            }));
        }
        calls
    }

    /// Runs all calls at an image to their ends, all that have not ended in every step. The image is encoded for each adapter that they
    /// have.
    fn run(&self, backend: &mut CpuBackend, image: &str, calls: &[&Call]) -> Vec<SequenceOutput> {
        let limits = backend.limits();
        let mut next_page = 0;
        let mut pages = |positions: usize| -> Vec<PageId> {
            let first = next_page;
            next_page += positions.div_ceil(limits.page_tokens) as u32;
            (first..next_page).map(PageId).collect()
        };
        let prefixes: Vec<Arc<[PageId]>> = (self.expected.iter())
            .map(|_| pages(limits.prefix_positions).into())
            .collect();
        let tables: Vec<KvTable> = calls
            .iter()
            .map(|call| KvTable {
                prefix: Arc::clone(&prefixes[call.adapter]),
                prefix_positions: limits.prefix_positions,
                own: pages(160),
            })
            .collect();
        let wanted = |adapter: usize| calls.iter().any(|call| call.adapter == adapter);
        let jobs = self.expected.iter().enumerate();
        let jobs = jobs.filter(|(index, _)| wanted(*index));
        let mut images: Vec<ImageJob> = jobs
            .map(|(index, (adapter, _))| ImageJob {
                picture: picture(&self.network, image),
                view: Default::default(),
                camera: None,
                pages: Arc::clone(&prefixes[index]),
                crops: Vec::new(),
                adapter: adapter.clone(),
            })
            .collect();
        let mut sequences: Vec<Sequence> = calls.iter().map(|call| call.sequence.clone()).collect();
        let mut positions = vec![limits.prefix_positions; calls.len()];
        loop {
            let mut running = Vec::new();
            let mut rows = Vec::new();
            for (i, sequence) in sequences.iter().enumerate() {
                let Some(feed) = sequence.feed() else {
                    continue;
                };
                running.push((i, feed.inputs.len()));
                rows.push(Row {
                    inputs: Feed::Host(feed.inputs),
                    position: positions[i],
                    kv: tables[i].clone(),
                    picks: vec![feed.pick],
                    adapter: self.expected[calls[i].adapter].0.clone(),
                });
            }
            if rows.is_empty() {
                return sequences.into_iter().map(Sequence::into_found).collect();
            }
            let images = std::mem::take(&mut images);
            let picked = run_step(backend, Step { images, rows }).picked;
            for ((i, fed), picked) in running.into_iter().zip(picked.concat()) {
                positions[i] += fed;
                sequences[i].advance(picked).unwrap();
            }
        }
    }

    /// Fails when a call is answered otherwise than in the reference, or alone otherwise than among all others.
    fn check(&self, images: &[&str]) {
        let tokenizer = Tokenizer::open(&self.network.join("tokenizer.json")).unwrap();
        let config = config(&self.network);
        let mut backend = backend(&self.network);
        for image in images {
            let calls = self.calls(image);
            let of_adapter = |adapter| calls.iter().any(|call| call.adapter == adapter);
            assert!((0..self.expected.len()).all(of_adapter), "{image}");
            let together = self.run(&mut backend, image, &calls.iter().collect::<Vec<_>>());
            for (call, found) in calls.iter().zip(together) {
                let alone = self.run(&mut backend, image, &[call]);
                assert_eq!(found, alone[0], "{}", call.name);
                compare(&call.name, &call.expected, found, &config, &tokenizer);
            }
        }
    }
}

const VARIANT_IMAGES: [&str; 2] = ["exact_84x84", "gray_200x200"];

#[test]
fn rows_with_and_without_a_variant_are_answered_as_alone() {
    let variant = golden_set("md2-lora-micro");
    of_variant(golden_set("md2-micro"), &variant, "final.pt").check(&VARIANT_IMAGES);
}

mod whole_golden_data {
    use super::*;

    #[test]
    #[ignore = "needs the whole golden data; run make test-full"]
    fn rows_of_three_adapters_are_answered_as_alone() {
        for kind in ["safetensors", "pt"] {
            of_moondream3(kind).check(&["card_44x50", "hall_150x90"]);
        }
        let variant = whole_golden_set("md2-lora-micro");
        let network = whole_golden_set("md2-micro");
        of_variant(network, &variant, "variant.safetensors").check(&VARIANT_IMAGES);
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
