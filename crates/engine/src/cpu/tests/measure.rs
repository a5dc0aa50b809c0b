//! Measured layers, against runs of the whole network.

use std::{collections::BTreeMap, sync::Arc};

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg32;

use super::{all, capacity, config, picture, weights};
use crate::{
    cpu::{
        CpuBackend, CpuSettings,
        kv::KvCache,
        measure::{int8_error, measure_layers, spans, table},
        ops::linear,
        region::RegionModel,
        samples::{F32Rows, Samples},
        text::TextModel,
        vision::VisionModel,
    },
    model::{
        Formats, LargeLayer, LayerRange, ModelCalibration, ModelConfig, Weights,
        calibration_inputs, crops,
    },
    network::{format::Format, forward},
    scheduler::backend::{Pick, Step},
    testing::{
        golden_model::{job, prompt, run_step},
        golden_set,
        rule::Rule,
        whole_golden_set,
    },
};
use spotter_core::ManualClock;

const IMAGE: &str = "wide_320x60";

#[test]
fn largest_inputs_block_by_block_are_those_of_the_network() {
    let set = golden_set("md2-micro");
    let (config, picture) = (config(&set), picture(&set, IMAGE));
    let mut done = Vec::new();
    let measured = measure_layers(
        &config,
        weights(&set, &config),
        &[picture.clone(), picture.clone()],
        &mut |blocks| done.push((blocks.done, blocks.all)),
    );
    let measured = measured.unwrap();
    let blocks = config.vision.enc_n_layers + config.text.n_layers;
    assert_eq!((done.len(), done.last()), (blocks, Some(&(blocks, blocks))));

    let mut samples = Samples::default();
    let weights = weights(&set, &config);
    let vision = VisionModel::new(&config.vision, weights.vision, &linear).unwrap();
    let crops = crops(&picture, &config.vision);
    let mut hidden = vision.tokens(&all(&crops));
    let mut ops = vision.ops();
    ops.samples = Some(&mut samples);
    let rows = hidden.len() / config.vision.enc_dim;
    let Ok(()) = forward::encode(&mut ops, &vision.layers, &mut hidden, rows);
    let tokens = vision.image_tokens(&vision.features(&hidden), crops.tiling);

    let text = TextModel::new(&config, weights.text, &linear).unwrap();
    let region = RegionModel::new(weights.region).unwrap();
    let prompt = calibration_inputs(&config);
    let mut hidden = [text.embedding(config.tokenizer.bos_id), tokens].concat();
    crate::cpu::device::embed(&mut hidden, &text, &region, &prompt);
    let kv = table(config.prefix_positions(), prompt.len());
    let pages = kv.prefix.len() + kv.own.len();
    let mut cache = KvCache::new(text.kv_shape(pages, 16));
    let spans = spans(&kv, prompt.len());
    let mut ops = text.ops(&spans, &mut cache);
    ops.samples = Some(&mut samples);
    let positions = hidden.len() / text.width();
    forward::decode(&mut ops, &text.layers, &mut hidden, [positions; 2]).unwrap();

    let of_blocks = config
        .large_layers()
        .filter(|l| ![LargeLayer::ProjectionFc1, LargeLayer::ProjectionFc2].contains(l));
    for layer in of_blocks {
        let found = samples.0.remove(&layer).unwrap();
        assert_eq!(measured.largest_input(layer), found.largest, "{layer}");
    }
    assert!(samples.0.is_empty());
}

/// Rows of `width` values between -1 and 1.
fn rows(rows: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut random = Pcg32::seed_from_u64(seed);
    let mut value = || random.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0;
    std::iter::repeat_with(&mut value)
        .take(rows * width)
        .collect()
}

#[test]
fn outliers_make_the_error_of_a_layer_large() {
    let width = 256;
    let weights = rows(64, width, 1);
    let error = |values: Vec<f32>, weights: &[f32]| int8_error(&F32Rows { values, width }, weights);
    let plain = rows(32, width, 2);
    let small = error(plain.clone(), &weights);
    assert!((0.003..0.02).contains(&small), "{small}");

    // One row of 32 with a value that leaves the others a few steps: the other rows do not hide it.
    let mut one_row = plain.clone();
    one_row[5] = 300.0;
    let mut unused = weights.clone();
    unused.chunks_exact_mut(width).for_each(|row| row[5] = 0.0);
    let of_one_row = error(one_row, &unused);
    assert!(of_one_row > 0.1, "{of_one_row}");

    // An input that is never used, with large weights.
    let mut uneven = weights.clone();
    uneven
        .chunks_exact_mut(width)
        .for_each(|row| row[9] = 100.0);
    let mut without = plain;
    without.chunks_exact_mut(width).for_each(|row| row[9] = 0.0);
    let of_weights = error(without, &uneven);
    assert!(of_weights > 0.1, "{of_weights}");
    assert_eq!(error(vec![0.0; width], &weights), 0.0);
}

/// All layers with this error.
fn calibration(config: &ModelConfig, int8_error: f32) -> ModelCalibration {
    let range = LayerRange {
        largest_input: 1.0,
        int8_error,
    };
    let layers = config.large_layers().map(|layer| (layer, range));
    ModelCalibration::new(1, layers.collect::<BTreeMap<_, _>>())
}

#[test]
fn layers_with_large_errors_stay_in_f32() {
    let set = golden_set("md2-micro");
    let (config, picture) = (config(&set), picture(&set, IMAGE));
    let hidden = |formats| {
        let settings = CpuSettings {
            formats,
            ..capacity(&config, 16)
        };
        let (weights, clock) = (weights(&set, &config), Arc::new(ManualClock::default()));
        let mut backend = CpuBackend::new(&config, weights, settings, clock).unwrap();
        let step = Step {
            images: vec![job(&backend, picture.clone())],
            rows: vec![prompt(&backend, 0, &[1, 2, 3], Pick::CoordOrEnd)],
        };
        run_step(&mut backend, step);
        backend.inspect(|device| device.hidden.clone()).unwrap()
    };
    let (exact, good) = (calibration(&config, 0.5), calibration(&config, 0.01));
    let int8 = |measured| Formats::F32.with_large(Format::INT8, measured);
    let in_f32 = hidden(Formats::F32);
    assert_eq!(hidden(int8(Some(&exact))), in_f32);
    let in_int8 = hidden(int8(Some(&good)));
    assert_ne!(in_int8, in_f32);
    assert_eq!(in_int8, hidden(int8(None)));
}

/// With drawn scenes; prints the errors of all layers.
#[test]
#[ignore = "takes minutes of all cores and 8 GB of memory; run make test-full"]
fn whole_golden_data_has_bounded_int8_errors_at_true_widths() {
    let set = whole_golden_set("md2-full");
    let config = config(&set);
    let weights = Weights::load(&config, &mut Rule::read(&set)).unwrap();
    let pictures = [spotter_street::calibration_pictures()[0].clone()];
    let measured = measure_layers(&config, weights, &pictures, &mut |_| ()).unwrap();
    for (layer, error) in measured.by_error() {
        println!("{layer}: {:.2} %", 100.0 * error);
    }
    assert!(config.large_layers().all(|layer| !measured.is_wide(layer)));
}
