//! The decoder in one launch on two ranks against one GPU, at true size, with random weights.

use std::{ops::Range, rc::Rc, slice, sync::Mutex};

use half::bf16;

use super::{
    CACHE, Random, assert_close,
    peers::{Rank, on_ranks},
};
use crate::{
    cuda::{
        compile::SOURCES,
        kernels::{AttentionParts, CachedAttention, Kernels, LayerCache, OneLaunchDecoder},
        memory::{Buffer, copy},
        peers::PeerPath,
        program::{self, StepCounts, StepPlace, StepTables, TableLayout},
        tensor::{
            GpuLinear, GpuNorm, GpuTextBlock, LinearRef, PAGE, Scale, TEXT_HEAD, WeightPointer,
        },
    },
    model::ModelConfig,
    network::{format::Number, shard::Shard},
    scheduler::backend::{
        BackendLimits, DecoderInput, Feed, KvTable, PageId, Pick, Row, SlotId, Step,
    },
};

const WIDTH: usize = 2048;
const INNER: usize = 8192;
const HEADS: usize = 32;
const ROWS: usize = 32;
const LAYERS: usize = 24;
/// Layers whose weights differ; more than the L2 has room for.
const DIFFERENT: usize = 4;
const IMAGES: usize = 3;
const PREFIX: usize = 730;
const PREFIX_PAGES: usize = PREFIX.div_ceil(PAGE);
const OWN_PAGES: usize = 2;
const PAGES: usize = IMAGES * PREFIX_PAGES + ROWS * OWN_PAGES;

/// `count` values of `some`, in pieces.
fn repeated<T: Copy>(some: &[T], count: usize, seed: usize) -> Vec<T> {
    let (mut all, mut at) = (Vec::with_capacity(count), seed * 977 % some.len());
    while all.len() < count {
        let piece = &some[at..];
        all.extend_from_slice(&piece[..piece.len().min(count - all.len())]);
        at = (at * 31 + 17) % some.len();
    }
    all
}

/// Columns of some rows.
fn cut<T: Copy>(
    matrix: &[T],
    width: usize,
    rows: &[Range<usize>],
    columns: &[Range<usize>],
) -> Vec<T> {
    let rows = rows.iter().cloned().flatten();
    let parts = rows.flat_map(|row| {
        columns
            .iter()
            .map(move |c| row * width + c.start..row * width + c.end)
    });
    let mut all = Vec::new();
    parts.for_each(|part| all.extend_from_slice(&matrix[part]));
    all
}

/// Values that the decoders are made of.
struct Noise {
    normal: Vec<bf16>,
    /// In e4m3, of sizes around 1.
    bytes: Vec<u8>,
}

impl Noise {
    fn new() -> Self {
        let mut random = Random::new(5);
        let normal = random.values(100_003);
        let byte = |x: &bf16| (x.to_bits() >> 8) as u8 & 0x80 | 0x20 | (x.to_bits() as u8 & 0x1f);
        let bytes = normal.iter().map(byte).collect();
        Self { normal, bytes }
    }

    fn scaled(&self, count: usize, seed: usize, by: f32) -> Vec<bf16> {
        let scaled: Vec<bf16> = (self.normal.iter())
            .map(|x| bf16::from_f32(x.to_f32() * by))
            .collect();
        repeated(&scaled, count, seed)
    }
}

/// A decoder of one rank or of a single GPU, with what it works on.
struct Decoder {
    kernels: Kernels,
    decoder: OneLaunchDecoder,
    heads: usize,
    layout: TableLayout,
    keys: Buffer<bf16>,
    values: Buffer<bf16>,
    rope: Buffer<f32>,
    queries: Buffer<bf16>,
    inner: Buffer<bf16>,
    partial: Buffer<f32>,
    max_sums: Buffer<f32>,
    given: Buffer<bf16>,
    hidden: Buffer<bf16>,
    _blocks: Vec<GpuTextBlock>,
}

/// Rows and columns of the joined layers that a rank has.
fn rows_of(shard: Shard) -> Vec<Range<usize>> {
    let behind = |range: Range<usize>, start: usize| range.start + start..range.end + start;
    let heads = shard.range(WIDTH);
    let mut rows: Vec<_> = (0..3)
        .map(|part| behind(heads.clone(), part * WIDTH))
        .collect();
    rows.push(behind(shard.range(INNER), 3 * WIDTH));
    rows
}

fn columns_of(shard: Shard) -> Vec<Range<usize>> {
    let inner = shard.range(INNER);
    vec![shard.range(WIDTH), inner.start + WIDTH..inner.end + WIDTH]
}

fn linear(rank: &Rank, weight: (Buffer<u8>, Number), bias: Vec<bf16>, inner: usize) -> GpuLinear {
    let (values, number) = weight;
    let bias = (rank.up(&bias), rank.up(&[0.0_f32]));
    let outputs = bias.0.start().len();
    let scale = |value| Scale {
        value,
        at: bias.1.start(),
    };
    let at = values.start();
    let weight = match number {
        Number::E4m3 => WeightPointer::E4m3 {
            values: at,
            scale: scale(1.0 / 64.0),
            input: scale(1.0 / 16.0),
        },
        _ => WeightPointer::Bf16(at.as_bf16()),
    };
    let at = LinearRef {
        weight,
        bias: bias.0.start(),
        bias_f32: None,
        largest_input: None,
        outputs,
        inner,
    };
    GpuLinear {
        at,
        weight: Rc::new(values),
        bias: Rc::new(bias),
        largest_input: None,
    }
}

fn block_layers(
    rank: &Rank,
    noise: &Noise,
    shard: Shard,
    number: Number,
    seed: usize,
) -> [GpuLinear; 2] {
    let (all, one) = (slice::from_ref(&(0..WIDTH)), slice::from_ref(&(0..1)));
    let full = WIDTH + INNER;
    let weights = |count: usize,
                   width: usize,
                   seed: usize,
                   rows: &[Range<usize>],
                   columns: &[Range<usize>]| {
        let bytes = match number {
            Number::E4m3 => cut(&repeated(&noise.bytes, count, seed), width, rows, columns),
            _ => {
                let values = noise.scaled(count, seed, 0.02);
                let part = cut(&values, width, rows, columns);
                part.iter().flat_map(|x| x.to_le_bytes()).collect()
            }
        };
        (rank.up(&bytes), number)
    };
    let (rows, columns) = (rows_of(shard), columns_of(shard));
    let first = weights((3 * WIDTH + INNER) * WIDTH, WIDTH, seed, &rows, all);
    let second = weights(WIDTH * full, full, seed + 1, all, &columns);
    let bias = noise.scaled(3 * WIDTH + INNER, seed + 2, 0.1);
    let first_bias = cut(&bias, 1, &rows, one);
    let second_bias = match shard.is_first() {
        true => noise.scaled(WIDTH, seed + 3, 0.1),
        false => vec![bf16::ZERO; WIDTH],
    };
    let inner = full / shard.ranks;
    [
        linear(rank, first, first_bias, WIDTH),
        linear(rank, second, second_bias, inner),
    ]
}

impl Decoder {
    fn new(rank: &Rank, noise: &Noise, shard: Shard, number: Number) -> Self {
        let sources = SOURCES
            .iter()
            .filter(|source| source.file.starts_with("decode_step"));
        let sources: Vec<_> = sources.copied().collect();
        let mut kernels =
            Kernels::load_sources(&rank.gpu, rank.stream.clone(), &CACHE, &sources).unwrap();
        kernels.allow_all_shared(&rank.gpu).unwrap();
        let layers = (0..DIFFERENT).map(|i| block_layers(rank, noise, shard, number, i * 4));
        let layers = Vec::from_iter(layers);
        let norm = || GpuNorm {
            weight: rank.up(&vec![bf16::ONE; WIDTH]),
            bias: rank.up(&noise.scaled(WIDTH, 9, 0.1)),
        };
        let block = |i: usize| {
            let of_qkv = 3 * shard.range(WIDTH).len();
            GpuTextBlock::of_joined(norm(), None, layers[i % DIFFERENT].clone(), of_qkv)
        };
        let blocks: Vec<GpuTextBlock> = (0..LAYERS).map(block).collect();
        let words = match shard.ranks {
            1 => None,
            _ => Some(rank.peers.decoder_words().unwrap()),
        };
        let text = ModelConfig::default().text.of_shard(shard).unwrap();
        let decoder = OneLaunchDecoder::new(&kernels, &text, &blocks, words);
        let heads = shard.range(HEADS);
        let cache = |seed: usize| {
            let layer = noise.scaled(PAGES * HEADS * PAGE * TEXT_HEAD, seed, 1.0);
            let columns = heads.start * PAGE * TEXT_HEAD..heads.end * PAGE * TEXT_HEAD;
            let part = cut(
                &layer,
                HEADS * PAGE * TEXT_HEAD,
                slice::from_ref(&(0..PAGES)),
                &[columns],
            );
            rank.up(&part.repeat(LAYERS))
        };
        let limits = BackendLimits {
            slots: 1,
            rows: ROWS,
            pages: PAGES,
            page_tokens: PAGE,
            context: 800,
            prefix_positions: PREFIX,
            images: 0,
            positions: 64,
            tokens: 64,
            picks: 64,
            picture_pixels: 1,
            kept_crops: 0,
            adapters: 0,
        };
        let zeros = |count: usize| rank.up(&vec![bf16::ZERO; count]);
        let floats = |count: usize| rank.up(&vec![f32::NAN; count]);
        let angle = |i: usize| (i / 32) as f32 * 10_000_f32.powf(-((i / 2 % 16) as f32) / 16.0);
        let rope = (0..800 * 32).map(|i| {
            if i % 2 == 0 {
                angle(i).cos()
            } else {
                angle(i).sin()
            }
        });
        let items = ROWS * HEADS * 16;
        Self {
            kernels,
            decoder: decoder.unwrap().unwrap(),
            heads: heads.len(),
            layout: TableLayout::new(&limits),
            keys: cache(20),
            values: cache(21),
            rope: rank.up(&rope.collect::<Vec<f32>>()),
            queries: zeros(ROWS * WIDTH),
            inner: zeros(ROWS * (WIDTH + INNER)),
            partial: floats(items * 16 * TEXT_HEAD),
            max_sums: floats(items * 16 * 2),
            given: rank.up(&noise.scaled(ROWS * WIDTH, 30, 1.0)),
            hidden: zeros(ROWS * WIDTH),
            _blocks: blocks,
        }
    }

    /// The tables of a step of one position of each row.
    fn tables(&self, rank: &Rank, rows: usize) -> (Buffer<i32>, StepCounts) {
        let pages =
            |first: usize, count: usize| (first..first + count).map(|page| PageId(page as u32));
        let row = |i: usize| Row {
            inputs: Feed::Host(vec![DecoderInput::Token(1)]),
            position: PREFIX + 3 + i % 20,
            kv: KvTable {
                prefix: pages(i % IMAGES * PREFIX_PAGES, PREFIX_PAGES).collect(),
                prefix_positions: PREFIX,
                own: pages(IMAGES * PREFIX_PAGES + i * OWN_PAGES, OWN_PAGES).collect(),
            },
            picks: vec![Pick::Coord],
            adapter: None,
        };
        let step = Step {
            images: Vec::new(),
            rows: (0..rows).map(row).collect(),
        };
        let mut block = vec![0; self.layout.words];
        let place = StepPlace {
            slot: SlotId(0),
            adapters: None,
        };
        let counts = program::write(&step, place, &self.layout, &mut block).unwrap();
        (rank.up(&block), counts)
    }

    fn queue(&self, tables: &(Buffer<i32>, StepCounts)) {
        let (block, counts) = tables;
        let attention = CachedAttention {
            tables: StepTables {
                layout: &self.layout,
                block: block.start(),
                counts,
            },
            qkv: self.queries.start(),
            rope_cos_sin: self.rope.start(),
            cache: LayerCache {
                keys: self.keys.start(),
                values: self.values.start(),
            },
            parts: AttentionParts {
                values: self.partial.start(),
                max_sums: self.max_sums.start(),
                splits: 1,
            },
            tau: self.max_sums.start(),
            heads: self.heads,
            all_heads: HEADS,
            first_head: 0,
        };
        let (hidden, inner) = (self.hidden.start(), self.inner.start());
        self.decoder
            .run(&self.kernels, &attention, hidden, inner)
            .unwrap();
    }

    /// Hidden states behind the decoder, as bits.
    fn run(&self, rank: &Rank, rows: usize) -> Vec<u16> {
        let tables = self.tables(rank, rows);
        copy(
            &rank.stream,
            self.given.start(),
            self.hidden.start(),
            ROWS * WIDTH,
        )
        .unwrap();
        self.queue(&tables);
        let mut bits = rank.down(&self.hidden);
        bits.truncate(rows * WIDTH);
        bits
    }
}

fn two_ranks_are_as_one(number: Number, most: f32) {
    let noise = Noise::new();
    let steps = [1, 2, 1, 5, 2, 8, 13, 32, 1];
    let results = Mutex::new(vec![Vec::new(); 3]);
    on_ranks(2, PeerPath::Gpu, 8, |rank| {
        let of = |shard: Shard| Decoder::new(rank, &noise, shard, number);
        if rank.number == 0 {
            let single = of(Shard { rank: 0, ranks: 1 });
            results.lock().unwrap()[2] = steps.map(|rows| single.run(rank, rows)).to_vec();
        }
        let decoder = of(Shard {
            rank: rank.number,
            ranks: 2,
        });
        rank.prepared.wait();
        let mut own = Vec::new();
        for repetition in 0..20 {
            let all = steps.map(|rows| decoder.run(rank, rows)).to_vec();
            assert!(
                repetition == 0 || own == all,
                "the same steps give the same bits"
            );
            own = all;
        }
        results.lock().unwrap()[rank.number] = own;
    });
    let results = results.into_inner().unwrap();
    let given = noise.scaled(ROWS * WIDTH, 30, 1.0);
    let given: Vec<u16> = given.iter().map(|x| x.to_bits()).collect();
    let floats = |bits: &[u16]| Vec::from_iter(bits.iter().map(|&x| bf16::from_bits(x).to_f32()));
    for (step, rows) in steps.iter().enumerate() {
        let [first, second, single] = [0, 1, 2].map(|rank| &results[rank][step]);
        assert!(first == second, "{rows} rows: the ranks differ");
        let is_changed = first[..] != given[..first.len()];
        assert!(is_changed, "{rows} rows: nothing is added");
        let what = format!("{number:?}, {rows} rows");
        assert_close(&what, &floats(first), &floats(single), most);
    }
}

#[test]
#[ignore = "needs two GPUs; run make test-gpu"]
fn decoder_of_two_ranks_is_near_one_gpu() {
    two_ranks_are_as_one(Number::Bf16, 2e-2);
}

#[test]
#[ignore = "needs two GPUs with fp8; run make test-gpu"]
fn fp8_decoder_of_two_ranks_is_near_one_gpu() {
    two_ranks_are_as_one(Number::E4m3, 2e-2);
}
