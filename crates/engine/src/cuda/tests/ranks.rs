//! Two GPUs as one beside one alone, in the shapes of released models with few blocks and random weights.

use std::{sync::Arc, thread};

use super::{
    adapters::random_adapter, assert_close, of_architecture, several_gpus, whole::settings,
};
use crate::{
    cuda::{CudaBackend, CudaCapacity, CudaRank, CudaSettings, library},
    model::{Formats, ModelConfig, random_weights, released_config},
    network::format::Number,
    scheduler::backend::{
        AdapterNumber, Backend, Feed, ImageJob, LoadedAdapter, Pick, PickResult, Row, Step,
    },
    testing::{
        ahead::token_pick,
        golden_adapters::Adapter,
        golden_model::{job, row, run_step, step_of, tokens},
        golden_run::Inside,
    },
};
use spotter_core::{
    GpuPrecision::{Bf16, Fp8, Int4, Int8},
    Picture, SystemClock,
};

/// What a rank has after each step: decisions, and hidden states of all its rows.
type Seen = Vec<(Vec<Vec<PickResult>>, Vec<f32>)>;

fn street() -> Picture {
    let pixel = |i: usize| ((i * 7919 + i / 3840 * 131) % 251) as u8;
    Picture::from_rgb(1280, 720, (0..1280 * 720 * 3).map(pixel).collect()).unwrap()
}

/// Prompts behind an image, then decode steps of these rows; without an adapter and with one.
fn run(backend: &mut CudaBackend, config: &ModelConfig, seen: &mut Seen) {
    run_with(backend, &None, seen);
    let weights = random_adapter(config);
    let number = AdapterNumber(3);
    run_with(
        backend,
        &Some(Arc::new(LoadedAdapter { number, weights })),
        seen,
    );
}

fn run_with(backend: &mut CudaBackend, adapter: &Adapter, seen: &mut Seen) {
    let picks = [Pick::CoordOrEnd, Pick::Coord, Pick::Size, token_pick(&[])];
    let rows = |backend: &CudaBackend, after: usize, ids: &[u32]| -> Vec<Row> {
        let rows = picks.iter().enumerate().map(|(nth, pick)| {
            let ids: Vec<_> = ids.iter().map(|id| id + nth as u32).collect();
            let inputs = Feed::Host(tokens(&ids));
            let row = row(backend, nth, after, inputs, std::slice::from_ref(pick));
            Row {
                adapter: adapter.clone(),
                ..row
            }
        });
        rows.collect()
    };
    let image = Step {
        images: vec![ImageJob {
            adapter: adapter.clone(),
            ..job(backend, street())
        }],
        rows: rows(backend, 0, &[1, 200, 300, 400, 3]),
    };
    let mut steps = vec![image];
    steps.extend((0..3).map(|t| step_of(rows(backend, 5 + t, &[500 + 10 * t as u32]))));
    for step in steps {
        let positions = step.rows.iter().map(|row| row.inputs.positions()).sum();
        let picked = run_step(backend, step).picked;
        let hidden = backend.hidden(positions);
        // Recorded, so that the next step of that shape is one launch.
        while backend.prepare_shape().unwrap() {}
        seen.push((picked, hidden));
    }
}

fn on_ranks(settings: CudaSettings<'_>, config: &ModelConfig, ranks: usize) -> Vec<Seen> {
    let _alone = several_gpus();
    let weights = random_weights(config).unwrap();
    thread::scope(|scope| {
        let started = CudaRank::all(ranks).into_iter().enumerate();
        let started = started.map(|(gpu, rank)| {
            let weights = weights.clone();
            scope.spawn(move || {
                let settings = CudaSettings {
                    gpu: gpu as u32,
                    ..settings
                };
                let clock = Arc::new(SystemClock::new());
                let rank = (ranks > 1).then_some(rank);
                let backend = CudaBackend::of_rank(settings, config, weights, clock, rank);
                let (mut backend, mut seen) = (backend.unwrap(), Vec::new());
                // The last one that is closed leaves its context to the thread, as where ranks are identified.
                (0..ranks as u32).for_each(|gpu| drop(library::open(gpu).unwrap()));
                run(&mut backend, config, &mut seen);
                seen
            })
        });
        let started: Vec<_> = started.collect();
        started
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect()
    })
}

fn few_blocks(mut config: ModelConfig) -> ModelConfig {
    (config.text.n_layers, config.vision.enc_n_layers) = (4, 3);
    if let Some(moe) = &mut config.text.moe {
        moe.start_layer = 2;
    }
    config
}

#[test]
#[ignore = "needs two GPUs; run make test-gpu"]
fn two_gpus_decide_as_one_with_equal_bits() {
    let models = [
        ModelConfig::default(),
        released_config("moondream3.1").unwrap(),
    ];
    let pictures = [street()];
    for config in models.map(few_blocks) {
        let has_experts = config.text.moe.is_some();
        let experts = has_experts.then_some(Number::E4m3);
        for precision in of_architecture(&[Bf16, Fp8, Int8, Int4]) {
            if precision == Int4 && !has_experts {
                continue;
            }
            let settings = CudaSettings {
                formats: Formats::on_gpu(precision, None, experts),
                pictures: &pictures,
                capacity: CudaCapacity {
                    adapters: 1,
                    ..settings().capacity
                },
                ..settings()
            };
            let name = format!("{} in {}", config.family.name(), precision.name());
            let alone = on_ranks(settings, &config, 1).remove(0);
            let both = on_ranks(settings, &config, 2);
            assert_eq!(both[0], both[1], "{name}: ranks differ");
            // Rounding makes some rows choose other experts, because random routers are undecided.
            let most = match precision {
                Bf16 if !has_experts => 0.02,
                _ if !has_experts => 0.06,
                _ => 0.2,
            };
            for (step, (alone, both)) in alone.iter().zip(&both[0]).enumerate() {
                assert_close(&format!("{name}, step {step}"), &both.1, &alone.1, most);
            }
        }
    }
}
