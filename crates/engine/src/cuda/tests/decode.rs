//! The decoder in one launch against the decoder kernel by kernel, at true width, in all precisions.

use std::sync::Arc;

use half::bf16;

use super::{
    Random, assert_close, of_architecture,
    whole::{cuda, settings},
};
use crate::{
    cuda::{CudaBackend, CudaCapacity, CudaSettings},
    model::{Formats, ModelConfig, Tensor, TensorData, TensorSource, Weights, WeightsError},
    network::format::Number,
    scheduler::backend::{DecoderInput, Feed, ImageJob, KvTable, PageId, Pick, Row, Step},
    testing::golden_model::{run_step, step_of},
};
use spotter_core::{GpuPrecision, Picture};

/// Noise in all tensors, biases and norms too, so that an omitted one is noticed. Weights have few enough bits for e4m3, so that weights
/// in e4m3 are equal to them.
struct Noise(Random);

/// With three bits of mantissa.
fn with_few_bits(x: bf16) -> bf16 {
    bf16::from_bits(x.to_bits() & 0xfff0)
}

impl TensorSource for Noise {
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightsError> {
        let (centre, reach) = match shape {
            [_] if name.ends_with(".weight") => (1.0, 0.2),
            [_] => (0.0, 0.2),
            shape => (0.0, (shape[shape.len() - 1] as f32).sqrt().recip()),
        };
        let values = self.0.values(shape.iter().product());
        let number = |x: bf16| match shape {
            [_] => bf16::from_f32(centre + x.to_f32() * reach),
            _ => with_few_bits(bf16::from_f32(x.to_f32() * reach)),
        };
        let bytes = values.into_iter().flat_map(|x| number(x).to_le_bytes());
        Ok(Tensor {
            name: name.to_owned(),
            shape: shape.to_owned(),
            data: TensorData::Encoded {
                format: Number::Bf16,
                bytes: bytes.collect::<Vec<_>>().into(),
            },
        })
    }
}

const IMAGES: usize = 3;

fn small() -> ModelConfig {
    let mut config = ModelConfig::default();
    config.text.n_layers = 2;
    // Large enough for the tokens of a calibration.
    config.text.vocab_size = 8192;
    config.vision.enc_n_layers = 1;
    config
}

fn backend(config: &ModelConfig, precision: GpuPrecision) -> CudaBackend {
    let weights = Weights::load(config, &mut Noise(Random::new(3))).unwrap();
    let capacity = CudaCapacity {
        slots: 1,
        rows: 32,
        images: IMAGES,
        crops_at_once: usize::MAX,
        pages: 512,
        kept_crops: 0,
        adapters: 0,
    };
    let pictures = [picture(0)];
    let settings = CudaSettings {
        capacity,
        formats: Formats::on_gpu(precision, None, None),
        pictures: &pictures,
        ..settings()
    };
    cuda(settings, config, weights)
}

fn images(prefix_positions: usize) -> Step {
    let prefix_pages = prefix_positions.div_ceil(16);
    let image = |i: usize| ImageJob {
        view: Default::default(),
        camera: None,
        picture: picture(i),
        pages: prefix(i, prefix_pages),
        crops: Vec::new(),
        adapter: None,
    };
    Step {
        images: (0..IMAGES).map(image).collect(),
        ..rows(&[(0, 0, 1)], prefix_positions)
    }
}

fn picture(number: usize) -> Picture {
    let bytes = (0..64 * 48 * 3).map(|b| (b * (7 + number) % 251) as u8);
    Picture::from_rgb(64, 48, bytes.collect()).unwrap()
}

fn prefix(image: usize, pages: usize) -> Arc<[PageId]> {
    (0..pages)
        .map(|page| PageId((image * pages + page) as u32))
        .collect()
}

/// Rows (by number, fed from, how many), row i behind image i modulo 3.
fn rows(rows: &[(usize, usize, usize)], prefix_positions: usize) -> Step {
    let pages = prefix_positions.div_ceil(16);
    let row = |&(i, from, count): &(usize, usize, usize)| Row {
        inputs: Feed::Host(
            (0..count)
                .map(|p| DecoderInput::Token(((i * 31 + from + p) % 1000) as u32))
                .collect(),
        ),
        position: prefix_positions + from,
        kv: KvTable {
            prefix: prefix(i % IMAGES, pages),
            prefix_positions,
            own: (0..4)
                .map(|page| PageId((IMAGES * pages + i * 4 + page) as u32))
                .collect(),
        },
        picks: vec![Pick::Coord],
        adapter: None,
    };
    step_of(rows.iter().map(row).collect())
}

fn hidden(backend: &mut CudaBackend, step: &Step) -> Vec<f32> {
    let positions = step.rows.iter().map(|row| row.inputs.positions()).sum();
    run_step(backend, step.clone());
    let [_, hidden] = backend.inside(positions).unwrap();
    hidden
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn one_launch_gives_what_the_kernels_one_by_one_give() {
    one_launch_is_as_kernels(GpuPrecision::Bf16, 1e-2);
}

/// Kernel by kernel the inputs of such steps are in bf16, beside the same weights; prefills are in fp8 in both backends.
#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn fused_decode_with_e4m3_weights_equals_bf16_weights() {
    one_launch_is_as_kernels(GpuPrecision::Fp8, 1e-2);
}

/// Kernel by kernel, the inputs of steps of more than 16 positions are in int8.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn one_launch_with_int8_weights_is_close_to_int8_kernels() {
    one_launch_is_as_kernels(GpuPrecision::Int8, 4e-2);
}

fn one_launch_is_as_kernels(precision: GpuPrecision, bound: f32) {
    let config = small();
    let mut whole = backend(&config, precision);
    let mut parts = backend(&config, precision).without_one_launch();
    assert!(whole.has_one_launch());
    let prefix = config.prefix_positions();
    // Prompts first, whose keys and values the later steps read; own pages are full, half full and just begun.
    let prompts: Vec<_> = (0..32).map(|i| (i, 0, 1 + i % 3 * 16)).collect();
    let one_each = |n: usize| -> Vec<_> {
        prompts[..n]
            .iter()
            .map(|&(i, _, fed)| (i, fed, 1))
            .collect()
    };
    let mut steps = vec![images(prefix)];
    for few in prompts.chunks(2) {
        steps.push(rows(few, prefix));
    }
    steps.push(rows(&one_each(32), prefix));
    for n in [1, 2, 7, 9, 16, 17, 31] {
        steps.push(rows(&one_each(n), prefix));
    }
    steps.push(rows(&[(0, 2, 6), (4, 17, 1), (2, 34, 9)], prefix));
    for step in &steps {
        let (got, want) = (hidden(&mut whole, step), hidden(&mut parts, step));
        if !step.rows.is_empty() {
            let what = format!("{} rows, {} positions", step.rows.len(), got.len() / 2048);
            assert_close(&what, &got, &want, bound);
            assert_eq!(hidden(&mut whole, step), got, "{what}: the same again");
        }
    }
}

/// Steps of 7, 9, 17 and 31 rows are padded to 8, 12, 24 and 32 positions.
#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn padded_steps_give_the_bits_of_full_ones() {
    let config = small();
    let prefix = config.prefix_positions();
    let prompts: Vec<_> = (0..32).map(|i| (i, 0, 1 + i % 3 * 16)).collect();
    for precision in of_architecture(&[GpuPrecision::Bf16, GpuPrecision::Fp8, GpuPrecision::Int8]) {
        let mut backend = backend(&config, precision).without_one_launch();
        run_step(&mut backend, images(prefix));
        for few in prompts.chunks(2) {
            run_step(&mut backend, rows(few, prefix));
        }
        let one_each: Vec<_> = prompts.iter().map(|&(i, _, fed)| (i, fed, 1)).collect();
        for (few, all) in [(7, 8), (9, 12), (17, 24), (31, 32)] {
            let [padded, full] =
                [few, all].map(|n| hidden(&mut backend, &rows(&one_each[..n], prefix)));
            assert!(padded.iter().all(|x| x.is_finite()));
            assert!(padded == full[..padded.len()], "{few} rows, {precision:?}");
        }
    }
}
