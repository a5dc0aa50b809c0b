//! The decoder in one launch against the same kernel by kernel, at true width.

use std::sync::Arc;

use super::{Random, assert_close};
use crate::{
    cuda::{Capacity, CudaBackend, Precision, library},
    domain::{Picture, SystemClock},
    engine::backend::{Backend, Feed, ImageJob, Input, KvTable, PageId, Pick, Row, SlotId, Step},
    model::{FloatFormat, ModelConfig, Tensor, TensorData, TensorSource, Weights, WeightsError},
};

/// Noise everywhere, biases and norms included, so that whatever is left out shows.
struct Noise(Random);

impl TensorSource for Noise {
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightsError> {
        let (centre, reach) = match shape {
            [_] if name.ends_with(".weight") => (1.0, 0.2),
            [_] => (0.0, 0.2),
            shape => (0.0, (shape[shape.len() - 1] as f32).sqrt().recip()),
        };
        let values = self.0.values(shape.iter().product());
        let bytes = values
            .iter()
            .flat_map(|x| half::bf16::from_f32(centre + x.to_f32() * reach).to_le_bytes());
        Ok(Tensor {
            name: name.to_owned(),
            shape: shape.to_owned(),
            data: TensorData::Encoded {
                format: FloatFormat::Bf16,
                bytes: bytes.collect::<Vec<_>>().into(),
            },
        })
    }
}

const IMAGES: usize = 3;

fn small() -> ModelConfig {
    let mut config = ModelConfig::default();
    config.text.n_layers = 2;
    config.text.vocab_size = 1024;
    config.vision.enc_n_layers = 1;
    config
}

fn backend(config: &ModelConfig) -> CudaBackend {
    let weights = Weights::load(config, &mut Noise(Random::new(3))).unwrap();
    let capacity = Capacity {
        slots: 1,
        rows: 32,
        images: IMAGES,
        pages: 512,
        cameras: 0,
        tile_difference: 0,
    };
    let cache = std::env::temp_dir().join("spotter-test-kernels");
    let clock = Arc::new(SystemClock::new());
    CudaBackend::new(
        (0, &cache),
        config,
        weights,
        (capacity, Precision::Bf16),
        clock,
    )
    .unwrap()
}

fn images(prefix_positions: usize) -> Step {
    let prefix_pages = prefix_positions.div_ceil(16);
    let image = |i: usize| {
        let bytes = (0..64 * 48 * 3).map(|b| (b * (7 + i) % 251) as u8);
        ImageJob {
            picture: Picture::from_rgb(64, 48, bytes.collect()).unwrap(),
            pages: prefix(i, prefix_pages),
            camera: None,
        }
    };
    Step {
        images: (0..IMAGES).map(image).collect(),
        ..rows(&[(0, 0, 1)], prefix_positions)
    }
}

fn prefix(image: usize, pages: usize) -> Vec<PageId> {
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
                .map(|p| Input::Token(((i * 31 + from + p) % 1000) as u32))
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
    };
    Step {
        images: Vec::new(),
        rows: rows.iter().map(row).collect(),
    }
}

fn hidden(backend: &mut CudaBackend, step: &Step) -> Vec<f32> {
    let positions = step.rows.iter().map(|row| row.inputs.positions()).sum();
    backend.launch(SlotId(0), step.clone()).unwrap();
    backend.commit(SlotId(0)).unwrap();
    let [_, hidden] = backend.inside(positions).unwrap();
    hidden
}

#[test]
fn one_launch_gives_what_the_kernels_one_by_one_give() {
    if let Err(error) = library::open(0) {
        return println!("left out: {error}");
    }
    let config = small();
    let (mut whole, mut parts) = (backend(&config), backend(&config).without_one_launch());
    if !whole.has_one_launch() {
        return println!("left out: this GPU has too little shared memory");
    }
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
            assert_close(&what, &got, &want, 1e-2);
            assert_eq!(hidden(&mut whole, step), got, "{what}: the same again");
        }
    }
}
