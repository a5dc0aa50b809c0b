//! Attention to the cache, and the kernel that writes keys and values to it.

use std::sync::Arc;

use half::bf16;

use super::{
    Random, Rig, assert_close, dense::attend, experts::gelu_erf, f32s, fp8::in_both_types, rig,
};
use crate::{
    cuda::{
        kernels::{AttentionParts, CachedAttention, LayerCache, tau_values},
        memory::Buffer,
        program::{self, StepPlace, StepTables, TableLayout},
        tensor::{GpuTau, MatrixShape, PAGE, TEXT_HEAD},
    },
    network::Tau,
    scheduler::backend::{
        BackendLimits, DecoderInput, Feed, ImageJob, KvTable, PageId, Pick, Row, SlotId, Step,
    },
};
use spotter_core::Picture;

const HEADS: usize = 3;
const WIDTH: usize = HEADS * TEXT_HEAD;
const PREFIX: usize = 37;

const LIMITS: BackendLimits = BackendLimits {
    slots: 1,
    rows: 8,
    pages: 64,
    page_tokens: PAGE,
    context: 128,
    prefix_positions: PREFIX,
    images: 2,
    positions: 256,
    tokens: 16,
    picks: 256,
    picture_pixels: 1920 * 1080,
    kept_crops: 0,
    adapters: 0,
};

/// A row of the test: its look (if any), its own pages, where it begins and how much it feeds.
struct FedRow {
    look: Option<usize>,
    own: Vec<u32>,
    from: usize,
    count: usize,
}

fn prefix_pages(look: usize) -> Arc<[PageId]> {
    // Not in order, so that only the tables give the right pages.
    [[5, 2, 9], [1, 30, 7]][look].map(PageId).into()
}

fn row(fed: &FedRow) -> Row {
    let prefix = fed.look.map(prefix_pages).unwrap_or_default();
    let prefix_positions = if fed.look.is_some() { PREFIX } else { 0 };
    Row {
        inputs: Feed::Host(vec![DecoderInput::Token(1); fed.count]),
        position: prefix_positions + fed.from,
        kv: KvTable {
            prefix,
            prefix_positions,
            own: fed.own.iter().copied().map(PageId).collect(),
        },
        picks: vec![Pick::Coord],
        adapter: None,
    }
}

/// Rotated by its position, rounded to bf16; pairs are 8 apart.
fn rotated(x: &[f32], position: usize) -> Vec<f32> {
    let mut out = x.to_vec();
    for j in 0..16 {
        let angle = position as f32 * 10_000_f32.powf(-(j as f32) / 16.0);
        let a = j / 8 * 16 + j % 8;
        let b = a + 8;
        out[a] = x[a] * angle.cos() - x[b] * angle.sin();
        out[b] = x[a] * angle.sin() + x[b] * angle.cos();
    }
    out.into_iter()
        .map(|x| bf16::from_f32(x).to_f32())
        .collect()
}

/// Contents of the cache by look or row: key and value of each position and head.
#[derive(Default, Clone)]
struct CacheContents(Vec<[(Vec<f32>, Vec<f32>); HEADS]>);

/// A step of the test.
struct FedStep<'a> {
    /// Looks whose images are new.
    images: &'a [usize],
    rows: &'a [FedRow],
    /// Splits of each prefix.
    splits: usize,
}

/// Contents of the cache before a step.
struct Past {
    looks: Vec<CacheContents>,
    own: Vec<CacheContents>,
}

/// Scales of queries and values, as the GPU has them and as numbers.
struct KnownTau {
    gpu: GpuTau,
    wq_wv: Vec<f32>,
    alpha: Vec<f32>,
}

impl KnownTau {
    fn new(rig: &Rig, random: &mut Random) -> Self {
        let size = 0.1;
        let weight = random.values(2 * HEADS * 3 * WIDTH);
        let weight: Vec<bf16> = (weight.iter())
            .map(|x| bf16::from_f32(x.to_f32() * size))
            .collect();
        let alpha = random.values(HEADS);
        Self {
            wq_wv: f32s(&weight),
            alpha: f32s(&alpha),
            gpu: Tau {
                wq_wv: rig.up(&weight),
                alpha: rig.up(&alpha),
            },
        }
    }

    /// Of queries (0) or values (1) of a head, by the row that they are in.
    fn scale(&self, row: &[f32], part: usize, head: usize, position: usize) -> f32 {
        let weight = &self.wq_wv[(part * HEADS + head) * 3 * WIDTH..][..3 * WIDTH];
        let sum: f32 = row.iter().zip(weight).map(|(x, w)| gelu_erf(*x) * w).sum();
        let log = (position as f32 + 1.0).ln();
        sum.tanh() + 0.5 + (1.0 + (-self.alpha[head] * log).exp()).recip()
    }
}

struct Bench {
    rig: Rig,
    tau: Option<KnownTau>,
    layout: TableLayout,
    rope_cos_sin: Buffer<f32>,
    keys: Buffer<bf16>,
    values: Buffer<bf16>,
}

impl Bench {
    /// Runs a step over random values and compares every row with the plain formula.
    fn step(&self, random: &mut Random, fed: &FedStep<'_>, past: &mut Past) {
        let (rig, layout) = (&self.rig, &self.layout);
        let &FedStep {
            images,
            rows,
            splits,
        } = fed;
        let Past { looks, own } = past;
        let picture = Picture::from_rgb(1, 1, vec![0; 3]).unwrap();
        let image = |look: &usize| ImageJob {
            view: Default::default(),
            camera: None,
            picture: picture.clone(),
            pages: prefix_pages(*look),
            crops: Vec::new(),
            adapter: None,
        };
        let step = Step {
            images: images.iter().map(image).collect(),
            rows: rows.iter().map(row).collect(),
        };
        let mut block = vec![0; layout.words];
        let place = StepPlace {
            slot: SlotId(0),
            adapters: None,
        };
        let mut counts = program::write(&step, place, layout, &mut block).unwrap();
        program::pad(&mut counts, layout, &mut block);
        let block = rig.ints(&block);
        let all = counts.row_positions + images.len() * PREFIX;
        let qkv = random.values(all * 3 * WIDTH);
        let up = rig.up(&qkv);
        let cache = LayerCache {
            keys: self.keys.start(),
            values: self.values.start(),
        };
        let partial_rows = counts.tiles.max(1) * HEADS * splits * 16;
        let partial_values = rig.floats(&vec![f32::NAN; partial_rows * TEXT_HEAD]);
        let partial_max_sums = rig.floats(&vec![f32::NAN; partial_rows * 2]);
        let tau_parts = rig.floats(&vec![f32::NAN; tau_values(all, HEADS)]);
        let attention = CachedAttention {
            tables: StepTables {
                layout,
                block: block.start(),
                counts: &counts,
            },
            qkv: up.start(),
            rope_cos_sin: self.rope_cos_sin.start(),
            cache,
            parts: AttentionParts {
                values: partial_values.start(),
                max_sums: partial_max_sums.start(),
                splits,
            },
            tau: tau_parts.start(),
            heads: HEADS,
            all_heads: HEADS,
            first_head: 0,
        };
        let tau = self.tau.as_ref();
        let of_gpu = tau.map(|tau| &tau.gpu);
        if let Some(tau) = of_gpu {
            rig.kernels.tau_parts(&attention, tau, all).unwrap();
        }
        rig.kernels.rope_scatter(&attention, of_gpu, all).unwrap();
        if counts.tiles > 0 {
            rig.kernels.attend_prefix(&attention).unwrap();
        }
        let shape = MatrixShape {
            rows: counts.row_positions,
            width: WIDTH,
        };
        let got = in_both_types(rig, shape, WIDTH + 8, |to| {
            rig.kernels.attend_own(&attention, to, shape.rows)
        });

        let qkv = f32s(&qkv);
        let part = |at: usize, part: usize, head: usize, position: usize| -> Vec<f32> {
            let row = &qkv[at * 3 * WIDTH..][..3 * WIDTH];
            let values = &row[part * WIDTH + head * TEXT_HEAD..][..TEXT_HEAD];
            match tau {
                Some(tau) if part != 1 => {
                    let scale = tau.scale(row, part / 2, head, position);
                    values.iter().map(|x| x * scale).collect()
                }
                _ => values.to_vec(),
            }
        };
        let entry = |at: usize, position: usize| {
            std::array::from_fn(|head| {
                (
                    rotated(&part(at, 1, head, position), position),
                    part(at, 2, head, position),
                )
            })
        };
        for (i, &look) in images.iter().enumerate() {
            let first = counts.row_positions + i * PREFIX;
            looks[look] = CacheContents((0..PREFIX).map(|p| entry(first + p, p)).collect());
        }
        let (mut wanted, mut found, mut first) = (Vec::new(), Vec::new(), 0);
        for (i, fed) in rows.iter().enumerate() {
            let prefix = fed.look.map(|look| looks[look].clone()).unwrap_or_default();
            for j in 0..fed.count {
                let position = prefix.0.len() + fed.from + j;
                own[i].0.truncate(fed.from + j);
                own[i].0.push(entry(first + j, position));
                let seen: Vec<_> = prefix.0.iter().chain(&own[i].0).collect();
                for head in 0..HEADS {
                    let keys: Vec<&[f32]> = seen.iter().map(|e| &e[head].0[..]).collect();
                    let values: Vec<&[f32]> = seen.iter().map(|e| &e[head].1[..]).collect();
                    let query = rotated(&part(first + j, 0, head, position), position);
                    wanted.extend(attend(&query, &keys, &values));
                    found.extend(&got[(first + j) * (WIDTH + 8) + head * TEXT_HEAD..][..TEXT_HEAD]);
                }
            }
            first += fed.count;
        }
        assert_close(&format!("rows, {splits} splits"), &found, &wanted, 1e-2);
        for padding in first..counts.row_positions {
            let row = &got[padding * (WIDTH + 8)..][..WIDTH];
            assert!(row.iter().all(|&x| x == 0.0), "padding is not zeros");
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_see_their_prefix_and_their_own_past() {
    rows_see_what_they_should(false);
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_with_scaled_queries_and_values_see_the_same() {
    rows_see_what_they_should(true);
}

fn rows_see_what_they_should(has_tau: bool) {
    let rig = rig();
    let tau = has_tau.then(|| KnownTau::new(&rig, &mut Random::new(7)));
    let rope_cos_sin = (0..LIMITS.context).flat_map(|position| {
        (0..16).flat_map(move |j| {
            let angle = position as f32 * 10_000_f32.powf(-(j as f32) / 16.0);
            [angle.cos(), angle.sin()]
        })
    });
    // A read of a position that was never written gives NaN.
    let nan = vec![bf16::NAN; LIMITS.pages * HEADS * PAGE * TEXT_HEAD];
    let bench = Bench {
        layout: TableLayout::new(&LIMITS),
        rope_cos_sin: rig.floats(&rope_cos_sin.collect::<Vec<_>>()),
        keys: rig.up(&nan),
        values: rig.up(&nan),
        tau,
        rig,
    };
    let mut random = Random::new(6);
    for splits in [1, 12] {
        let mut past = Past {
            looks: vec![CacheContents::default(); 2],
            own: vec![CacheContents::default(); 5],
        };
        let fed = |look, own: &[u32], from, count| FedRow {
            look,
            own: own.to_vec(),
            from,
            count,
        };
        let first = [
            fed(Some(0), &[10, 11], 0, 5),
            fed(Some(0), &[12, 13], 0, 20),
            fed(Some(1), &[14], 0, 9),
            fed(None, &[20, 21, 22], 0, 33),
            fed(Some(0), &[15], 0, 1),
        ];
        let mut step = |images: &[usize], rows: &[FedRow]| {
            let step = FedStep {
                images,
                rows,
                splits,
            };
            bench.step(&mut random, &step, &mut past);
        };
        step(&[0, 1], &first);
        let then = [
            fed(Some(0), &[10, 11], 5, 1),
            fed(Some(0), &[12, 13], 20, 1),
            fed(Some(1), &[14], 9, 4),
            fed(None, &[20, 21, 22], 33, 1),
            fed(Some(0), &[15], 1, 1),
        ];
        step(&[], &then);
        // A new picture in the pages of an old one.
        let again = [fed(Some(1), &[14], 0, 2), fed(Some(1), &[16, 17], 0, 17)];
        step(&[1], &again);
    }
}
