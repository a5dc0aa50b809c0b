//! Attention to the cache, and what puts keys and values there.

use half::bf16;

use super::{Random, Rig, assert_close, dense::attend, f32s, rig};
use crate::{
    cuda::{
        kernels::{LayerCache, OwnTables, PAGE, Parts, PrefixTables, Rows, TEXT_HEAD, Values},
        memory::Buffer,
        program::{self, Layout, Table},
    },
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
};

/// A row of the test: its look (if any), its own pages, where it begins and how much it feeds.
struct Fed {
    look: Option<usize>,
    own: Vec<u32>,
    from: usize,
    count: usize,
}

fn prefix_pages(look: usize) -> Vec<PageId> {
    // In no order, so that tables are read.
    [[5, 2, 9], [1, 30, 7]][look].map(PageId).to_vec()
}

fn row(fed: &Fed) -> Row {
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
    }
}

/// Turned by its position, rounded to bf16; pairs lie eight apart.
fn turned(x: &[f32], position: usize) -> Vec<f32> {
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

/// What is in the cache, by look or row: (position, key, value) of each head.
#[derive(Default, Clone)]
struct Known(Vec<[(Vec<f32>, Vec<f32>); HEADS]>);

struct Bench {
    rig: Rig,
    layout: Layout,
    rope_cos_sin: Buffer<f32>,
    keys: Buffer<bf16>,
    values: Buffer<bf16>,
}

impl Bench {
    /// Runs a step over random values and compares every row with the plain formula.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a step is fed and what is known before it"
    )]
    fn step(
        &self,
        random: &mut Random,
        images: &[usize],
        rows: &[Fed],
        looks: &mut [Known],
        own: &mut [Known],
        splits: usize,
    ) {
        let (rig, layout) = (&self.rig, &self.layout);
        let picture = Picture::from_rgb(1, 1, vec![0; 3]).unwrap();
        let image = |look: &usize| ImageJob {
            picture: picture.clone(),
            pages: prefix_pages(*look),
            camera: None,
        };
        let step = Step {
            images: images.iter().map(image).collect(),
            rows: rows.iter().map(row).collect(),
        };
        let mut block = vec![0; layout.words];
        let counts = program::write(&step, SlotId(0), &LIMITS, layout, &mut block).unwrap();
        let block = rig.ints(&block);
        let at = |table: Table| block.start().at(table.start);
        let all = counts.row_positions + images.len() * PREFIX;
        let qkv = random.values(all * 3 * WIDTH);
        let up = rig.up(&qkv);
        let cache = LayerCache {
            keys: self.keys.start(),
            values: self.values.start(),
        };
        let places = (at(layout.position), at(layout.slot));
        rig.kernels
            .rope_scatter(
                up.start(),
                places,
                self.rope_cos_sin.start(),
                cache,
                (all, HEADS),
            )
            .unwrap();
        let parts_values = rig.floats(&vec![
            f32::NAN;
            counts.tiles.max(1) * HEADS * splits * 16 * TEXT_HEAD
        ]);
        let parts_masses = rig.floats(&vec![
            f32::NAN;
            counts.tiles.max(1) * HEADS * splits * 16 * 2
        ]);
        let parts = Parts {
            values: parts_values.start(),
            masses: parts_masses.start(),
            splits,
        };
        let prefix = PrefixTables {
            pages: at(layout.pages),
            tile_row: at(layout.tile_row),
            tile_table: at(layout.tile_table),
            tile_length: at(layout.tile_length),
        };
        if counts.tiles > 0 {
            rig.kernels
                .attend_prefix(up.start(), cache, &prefix, parts, (counts.tiles, HEADS))
                .unwrap();
        }
        let out = rig.room(counts.row_positions * (WIDTH + 8));
        let to = Rows {
            start: out.start(),
            stride: WIDTH + 8,
        };
        let tables = OwnTables {
            pages: at(layout.pages),
            own_table: at(layout.own_table),
            own_length: at(layout.own_length),
            place: at(layout.place),
        };
        rig.kernels
            .attend_own(
                up.start(),
                cache,
                &tables,
                parts,
                Values::Bf16(to),
                (counts.row_positions, HEADS),
            )
            .unwrap();
        let shape = (counts.row_positions, HEADS);
        super::fp8::assert_e4m3_too(rig, &out, WIDTH + 8, (shape.0, WIDTH), |to| {
            let qkv = up.start();
            rig.kernels
                .attend_own(qkv, cache, &tables, parts, to, shape)
        });
        let got = rig.down(&out);

        let qkv = f32s(&qkv);
        let part = |at: usize, part: usize, head: usize| {
            &qkv[at * 3 * WIDTH + part * WIDTH + head * TEXT_HEAD..][..TEXT_HEAD]
        };
        let entry = |at: usize, position: usize| {
            std::array::from_fn(|head| {
                (
                    turned(part(at, 1, head), position),
                    part(at, 2, head).to_vec(),
                )
            })
        };
        for (i, &look) in images.iter().enumerate() {
            let first = counts.row_positions + i * PREFIX;
            looks[look] = Known((0..PREFIX).map(|p| entry(first + p, p)).collect());
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
                    wanted.extend(attend(
                        &turned(part(first + j, 0, head), position),
                        &keys,
                        &values,
                    ));
                    found.extend(&got[(first + j) * (WIDTH + 8) + head * TEXT_HEAD..][..TEXT_HEAD]);
                }
            }
            first += fed.count;
        }
        assert_close(&format!("rows, {splits} splits"), &found, &wanted, 1e-2);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_see_their_prefix_and_their_own_past() {
    let rig = rig();
    let rope_cos_sin = (0..LIMITS.context).flat_map(|position| {
        (0..16).flat_map(move |j| {
            let angle = position as f32 * 10_000_f32.powf(-(j as f32) / 16.0);
            [angle.cos(), angle.sin()]
        })
    });
    // Whoever reads a position that was never written gets no number.
    let nan = vec![bf16::NAN; LIMITS.pages * HEADS * PAGE * TEXT_HEAD];
    let bench = Bench {
        layout: Layout::new(&LIMITS, LIMITS.positions),
        rope_cos_sin: rig.floats(&rope_cos_sin.collect::<Vec<_>>()),
        keys: rig.up(&nan),
        values: rig.up(&nan),
        rig,
    };
    let mut random = Random::new(6);
    for splits in [1, 12] {
        let (mut looks, mut own) = (vec![Known::default(); 2], vec![Known::default(); 5]);
        let fed = |look, own: &[u32], from, count| Fed {
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
        bench.step(&mut random, &[0, 1], &first, &mut looks, &mut own, splits);
        let then = [
            fed(Some(0), &[10, 11], 5, 1),
            fed(Some(0), &[12, 13], 20, 1),
            fed(Some(1), &[14], 9, 4),
            fed(None, &[20, 21, 22], 33, 1),
            fed(Some(0), &[15], 1, 1),
        ];
        bench.step(&mut random, &[], &then, &mut looks, &mut own, splits);
        // A new picture in the pages of an old one.
        let again = [fed(Some(1), &[14], 0, 2), fed(Some(1), &[16, 17], 0, 17)];
        bench.step(&mut random, &[1], &again, &mut looks, &mut own, splits);
    }
}
