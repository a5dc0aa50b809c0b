//! Rows with adapters on a GPU: as with weights that the adapter is merged into, and as on the CPU.
//!
//! Faults: E12.

use std::{slice, sync::Arc};

use half::bf16;

use super::{
    Random,
    fp8::picture,
    of_architecture,
    whole::{cuda, is_near, on_cpu, settings, settings_for_one},
};
use crate::{
    cuda::{CudaBackend, CudaCapacity, CudaSettings, fp8::calibration_step},
    model::{
        AdapterWeights, Formats, LinearWeights, LowRank, ModelConfig, MoeConfig, TensorData,
        Weights, random_weights, released_config,
    },
    network::{
        PartMap, TextBlock, TextMlp,
        format::Number,
        spec::{LayerSpec, TensorSpec},
    },
    scheduler::backend::{
        AdapterNumber, Backend, ImageJob, KvTable, LoadedAdapter, PageId, Pick, PickResult, Row,
        Step,
    },
    testing::{
        golden_adapters::{Adapter, AdapterSet, of_moondream3, of_variant},
        golden_model::{
            UnusedPages, config, job, picture as golden_picture, prompt, run_step, step_of, weights,
        },
        golden_set, json, whole_golden_set,
    },
};
use spotter_core::{GpuPrecision, Picture};

/// Ranks of the adapter of a layer, and of an expert.
const RANK: usize = 8;
const EXPERT_RANK: usize = 3;

/// Noise for all layers that adapters may add to.
struct RandomAdapter(Random);

impl RandomAdapter {
    fn values(&mut self, count: usize, size: f32) -> Vec<bf16> {
        let values = self.0.values(count).into_iter();
        values.map(|x| bf16::from_f32(x.to_f32() * size)).collect()
    }
}

impl PartMap<LayerSpec, TensorSpec> for RandomAdapter {
    type Layer = Option<LowRank>;
    type Plain = ();
    type Error = std::convert::Infallible;

    fn layer(&mut self, layer: LayerSpec) -> Result<Option<LowRank>, Self::Error> {
        let LayerSpec {
            count,
            inner,
            outputs,
            ..
        } = layer;
        let rank = if count > 1 { EXPERT_RANK } else { RANK };
        Ok(layer.adapter.map(|_| LowRank {
            rank,
            a: self.values(count * rank * inner, (inner as f32).sqrt().recip()),
            b: self.values(count * outputs * rank, 0.5),
            inner,
            outputs,
        }))
    }

    fn plain(&mut self, _: TensorSpec) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// But for projections: what adapters have for them reads what the block reads, which no weight of a projection does.
pub(super) fn random_adapter(config: &ModelConfig) -> AdapterWeights {
    let mut random = RandomAdapter(Random::new(31));
    let block = |block: TextBlock<LayerSpec, TensorSpec>| {
        let Ok(block) = block.try_map(&mut random);
        TextBlock {
            proj: None,
            ..block
        }
    };
    let blocks = config.network().layers.text.blocks.into_iter().map(block);
    AdapterWeights {
        blocks: blocks.collect(),
    }
}

/// The layer in bf16, with what the adapter has for it in its weights.
fn merge(layer: &mut LinearWeights, adapter: Option<&LowRank>) {
    let mut values = layer.weight.to_f32().unwrap();
    let width = layer.weight.shape[layer.weight.shape.len() - 1];
    if let Some(scales) = layer.row_scales.take() {
        let scales = scales.to_f32().unwrap();
        for (row, scale) in values.chunks_exact_mut(width).zip(scales) {
            row.iter_mut().for_each(|x| *x *= scale);
        }
    }
    if let Some(LowRank {
        rank,
        a,
        b,
        outputs,
        ..
    }) = adapter
    {
        for (at, row) in values.chunks_exact_mut(width).enumerate() {
            let a = a[at / outputs * rank * width..][..rank * width].chunks_exact(width);
            for (a, b) in a.zip(&b[at * rank..][..*rank]) {
                let terms = row.iter_mut().zip(a);
                terms.for_each(|(x, a)| *x += b.to_f32() * a.to_f32());
            }
        }
    }
    let bytes = values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes());
    layer.weight.data = TensorData::Encoded {
        format: Number::Bf16,
        bytes: bytes.collect::<Vec<u8>>().into(),
    };
}

/// All layers that may have an adapter in bf16, merged with this one.
fn merged(mut weights: Weights, adapter: Option<&AdapterWeights>) -> Weights {
    for (index, block) in weights.text.blocks.iter_mut().enumerate() {
        let of = adapter.map(|adapter| &adapter.blocks[index]);
        merge(&mut block.qkv, of.and_then(|of| of.qkv.as_ref()));
        let layers = match &mut block.mlp {
            TextMlp::Dense(mlp) => [&mut mlp.fc1, &mut mlp.fc2],
            TextMlp::Experts(experts) => [&mut experts.up, &mut experts.down],
        };
        let of = [
            of.and_then(|of| of.mlp.first()),
            of.and_then(|of| of.mlp.second()),
        ];
        layers
            .into_iter()
            .zip(of)
            .for_each(|(layer, of)| merge(layer, of));
    }
    weights
}

/// Hidden states of a row behind a picture: in a step with the picture, and in a step of its own.
fn hidden(mut backend: CudaBackend, adapter: &Adapter) -> [Vec<f32>; 2] {
    let mut step = calibration_step(&picture(5), backend.config(), &backend.limits());
    step.images[0].adapter.clone_from(adapter);
    step.rows[0].adapter.clone_from(adapter);
    let rows = step.rows.clone();
    let positions = rows[0].inputs.positions();
    run_step(&mut backend, step);
    let [_, beside_image] = backend.inside(positions).unwrap();
    run_step(&mut backend, step_of(rows));
    let [_, alone] = backend.inside(positions).unwrap();
    [beside_image, alone]
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

/// Fails when an adapter gives other hidden states than weights that it is merged into, by more than the format itself does.
fn assert_is_merged(config: &ModelConfig, precisions: &[GpuPrecision]) {
    let pictures = [3, 4].map(picture);
    let weights = random_weights(config).unwrap();
    let adapter_weights = random_adapter(config);
    let with_adapter = merged(weights.clone(), Some(&adapter_weights));
    let plain = merged(weights, None);
    let adapter = Some(Arc::new(LoadedAdapter {
        number: AdapterNumber(3),
        weights: adapter_weights,
    }));
    let run = |precision, weights: &Weights, adapter: &Adapter| {
        let settings = CudaSettings {
            formats: Formats::on_gpu(precision, None, weights.number_of_experts()),
            pictures: &pictures,
            capacity: CudaCapacity {
                adapters: 1,
                ..settings_for_one().capacity
            },
            ..settings_for_one()
        };
        hidden(cuda(settings, config, weights.clone()), adapter)
    };
    let wanted = run(GpuPrecision::Bf16, &with_adapter, &None);
    let without = run(GpuPrecision::Bf16, &plain, &None);
    for &precision in precisions {
        let found = run(precision, &plain, &adapter);
        let of_format = run(precision, &plain, &None);
        for i in 0..2 {
            let error = difference(&found[i], &wanted[i]);
            let by_format = difference(&of_format[i], &without[i]);
            let effect = difference(&without[i], &wanted[i]);
            let name = precision.name();
            println!("{name} {i}: {error:.4}, of the format {by_format:.4}, effect {effect:.3}");
            assert!(effect > 0.2, "{name} {i}: effect {effect}");
            assert!(error < 1.5 * by_format + 0.02, "{name} {i}: error {error}");
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn adapter_gives_what_merged_weights_give() {
    let mut moondream2 = ModelConfig::default();
    moondream2.text.n_layers = 2;
    moondream2.vision.enc_n_layers = 1;
    let precisions = [GpuPrecision::Bf16, GpuPrecision::Int8, GpuPrecision::Fp8];
    assert_is_merged(&moondream2, &of_architecture(&precisions));

    let mut moondream3 = released_config("moondream3.1").unwrap();
    moondream3.text.n_layers = 2;
    moondream3.vision.enc_n_layers = 1;
    moondream3.text.moe = moondream3.text.moe.map(|_| MoeConfig {
        start_layer: 1,
        num_experts: 16,
        experts_per_token: 8,
        expert_inner_dim: 256,
    });
    let precisions = [
        GpuPrecision::Bf16,
        GpuPrecision::Int8,
        GpuPrecision::Int4,
        GpuPrecision::Fp8,
    ];
    assert_is_merged(&moondream3, &of_architecture(&precisions));
}

const PICKS: [Pick; 3] = [Pick::CoordOrEnd, Pick::Coord, Pick::Size];

/// The first decisions behind a prompt with each of these adapters, all in one step.
fn decided(
    backend: &mut dyn Backend,
    adapters: &[Adapter],
    picture: &Picture,
    ids: &[u32],
) -> Vec<PickResult> {
    let mut pages = UnusedPages::of(backend);
    let mut step = Step::default();
    for adapter in adapters {
        let prefix: Arc<[PageId]> = pages.take(backend.limits().prefix_positions);
        step.images.push(ImageJob {
            pages: Arc::clone(&prefix),
            adapter: adapter.clone(),
            ..job(backend, picture.clone())
        });
        for pick in PICKS {
            let row = prompt(backend, 0, ids, pick);
            let kv = KvTable {
                prefix: Arc::clone(&prefix),
                own: pages.take(160),
                ..row.kv
            };
            step.rows.push(Row {
                kv,
                adapter: adapter.clone(),
                ..row
            });
        }
    }
    run_step(backend, step).picked.concat()
}

/// Fails when rows of all adapters together decide otherwise on a GPU than each alone on the CPU, but for near decisions.
fn assert_decides_as_on_cpu(set: &AdapterSet) {
    let config = config(&set.network);
    let weights = || weights(&set.network, &config);
    let settings = CudaSettings {
        formats: Formats::on_gpu(GpuPrecision::Bf16, None, weights().number_of_experts()),
        capacity: CudaCapacity {
            adapters: set.expected.len(),
            ..settings().capacity
        },
        ..settings()
    };
    let mut gpu = cuda(settings, &config, weights());
    let mut cpu = on_cpu(&config, weights());
    let adapters: Vec<Adapter> = set
        .expected
        .iter()
        .map(|(adapter, _)| adapter.clone())
        .collect();
    let (mut near, mut of_another, mut all) = (0, 0, 0);
    let cases = json(&set.expected[0].1.join("cases.json"));
    for case in cases.as_object().unwrap().values() {
        let Some(image) = case["case"]["image"].as_str() else {
            continue;
        };
        let ids: Vec<u32> = serde_json::from_value(case["expected"]["prompt_ids"].clone()).unwrap();
        let places = [config.tokenizer.coord_id, config.tokenizer.size_id];
        if ids.iter().any(|id| places.contains(id)) {
            continue;
        }
        let picture = golden_picture(&set.network, image);
        let alone = adapters.iter();
        let alone =
            alone.map(|adapter| decided(&mut cpu, slice::from_ref(adapter), &picture, &ids));
        let alone: Vec<Vec<PickResult>> = alone.collect();
        let together = decided(&mut gpu, &adapters, &picture, &ids);
        for (index, found) in together.into_iter().enumerate() {
            let (adapter, pick) = (index / PICKS.len(), index % PICKS.len());
            let other = (adapter + 1) % adapters.len();
            all += 1;
            near += usize::from(is_near(found, alone[adapter][pick]));
            of_another += usize::from(is_near(found, alone[other][pick]));
        }
    }
    println!("{near} of {all} decisions as on the CPU, {of_another} as with another adapter");
    assert!(near * 10 >= all * 8, "{near} of {all}");
    assert!(of_another * 10 < all * 6, "{of_another} of {all}");
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_of_a_variant_decide_as_alone_on_the_cpu() {
    let variant = golden_set("md2-lora-micro");
    assert_decides_as_on_cpu(&of_variant(golden_set("md2-micro"), &variant, "final.pt"));
}

#[test]
#[ignore = "needs a GPU and the whole golden data; run make test-gpu"]
fn whole_golden_data_of_adapters_decides_as_on_the_cpu() {
    assert_decides_as_on_cpu(&of_moondream3("safetensors"));
    let variant = whole_golden_set("md2-lora-micro");
    let network = whole_golden_set("md2-micro");
    assert_decides_as_on_cpu(&of_variant(network, &variant, "variant.safetensors"));
}
