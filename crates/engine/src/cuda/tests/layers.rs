//! Norms, products, features between encoder and decoder, embeddings.

use std::f32::consts::TAU;

use half::bf16;

use super::{Random, Rig, assert_close, f32s, fp8::in_both_types, gelu, linear, normed, rig};
use crate::cuda::{
    kernels::{CombineInputs, CombineShape, EmbedInputs, ImageShape, Kernels, SkinnyOutput},
    memory::Buffer,
    record::DecisionRecord,
    tensor::{
        Activations, Epilogue, GpuEncoder, GpuNorm, LinearRef, MatrixShape, Product, StridedRows,
        bucket,
    },
};

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn layer_norms_are_those_of_the_formula() {
    let rig = rig();
    let mut random = Random::new(1);
    for (rows, width) in [(1, 64), (37, 1152), (3, 2048), (740, 2048)] {
        let (x, w, b) = (
            random.values(rows * width),
            random.values(width),
            random.values(width),
        );
        let xs = rig.up(&x);
        let norm = GpuNorm {
            weight: rig.up(&w),
            bias: rig.up(&b),
        };
        let shape = MatrixShape { rows, width };
        let got = in_both_types(&rig, shape, width, |to| {
            rig.kernels.layer_norm(xs.start(), norm.at(), to, shape)
        });
        let (x, w, b) = (f32s(&x), f32s(&w), f32s(&b));
        let rows = x.chunks_exact(width);
        let want: Vec<f32> = rows.flat_map(|row| normed(row, &w, &b)).collect();
        assert_close("layer norm", &got, &want, 4e-3);
    }
}

/// `x w^T + bias`, `[rows, outputs]`.
pub(super) fn sums(x: &[f32], w: &[f32], bias: &[f32], inner: usize) -> Vec<f32> {
    let sum = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
    x.chunks_exact(inner)
        .flat_map(|x| {
            let outputs = w.chunks_exact(inner).zip(bias);
            outputs.map(move |(w, bias)| sum(x, w) + bias)
        })
        .collect()
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn products_with_every_epilogue_are_those_of_the_formula() {
    let rig = rig();
    let mut random = Random::new(2);
    for (rows, outputs, inner) in [(1, 96, 64), (8, 1152, 592), (13, 208, 192), (100, 144, 72)] {
        let (x, w) = (random.values(rows * inner), random.values(outputs * inner));
        let (b, before) = (random.values(outputs), random.values(rows * (outputs + 8)));
        let mut padded = x.clone();
        padded.resize(bucket(rows) * inner, bf16::ZERO);
        let (xs, ws, bs) = (rig.up(&padded), rig.up(&w), rig.up(&b));
        let bias_f32 = rig.floats(&f32s(&b));
        let linear = LinearRef {
            bias_f32: Some(bias_f32.start()),
            ..linear(&ws, &bs, outputs, inner)
        };
        let (x, w, b, before) = (f32s(&x), f32s(&w), f32s(&b), f32s(&before));
        let sums = sums(&x, &w, &b, inner);
        let stride = outputs + 8;
        let place = |i: usize| i / outputs * stride + i % outputs;
        for epilogue in [Epilogue::Bias, Epilogue::BiasGelu, Epilogue::BiasAdd] {
            let mut room: Vec<bf16> = before.iter().map(|&x| bf16::from_f32(x)).collect();
            room.resize(bucket(rows) * stride, bf16::ZERO);
            let out = rig.up(&room);
            let product = Product {
                linear,
                x: Activations::bf16(xs.start(), inner),
                out: Activations::bf16(out.start(), stride),
                rows,
                epilogue,
            };
            rig.products.run(&product).unwrap();
            let got = rig.down(&out);
            let found: Vec<f32> = (0..sums.len()).map(|i| got[place(i)]).collect();
            let wanted = sums.iter().enumerate().map(|(i, &sum)| match epilogue {
                Epilogue::Bias => sum,
                Epilogue::BiasGelu => gelu(sum),
                Epilogue::BiasAdd => sum + before[place(i)],
            });
            let what = format!("{epilogue:?} {rows} {outputs} {inner}");
            assert_close(&what, &found, &wanted.collect::<Vec<_>>(), 4e-3);
        }
        let out = rig.floats(&vec![77.0; bucket(rows) * outputs]);
        let (x, to) = (
            Activations::bf16(xs.start(), inner),
            Activations::f32(out.start(), outputs),
        );
        let product = linear.product(x, to, rows, Epilogue::Bias);
        rig.products.run(&product).unwrap();
        let got = out.to_host(&rig.stream).unwrap();
        assert_close("to f32", &got[..rows * outputs], &sums, 1e-5);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn products_of_few_rows_are_those_of_the_formula() {
    let rig = rig();
    let mut random = Random::new(11);
    for (rows, outputs, inner) in [
        (1, 96, 64),
        (3, 2048, 10_240),
        (8, 6144, 2048),
        (9, 1024, 8192),
        (16, 144, 192),
    ] {
        let (x, w) = (
            random.values(rows * (inner + 8)),
            random.values(outputs * inner),
        );
        let (b, before) = (random.values(outputs), random.values(rows * (outputs + 8)));
        let (xs, ws, bs) = (rig.up(&x), rig.up(&w), rig.up(&b));
        let linear = linear(&ws, &bs, outputs, inner);
        assert!(Kernels::is_skinny(&linear, rows));
        let x_rows = StridedRows::packed(xs.start(), inner + 8);
        let x: Vec<f32> = f32s(&x)
            .chunks_exact(inner + 8)
            .flat_map(|row| row[..inner].to_vec())
            .collect();
        let sums = sums(&x, &f32s(&w), &f32s(&b), inner);
        let stride = outputs + 8;
        let place = |i: usize| i / outputs * stride + i % outputs;
        for which in 0..3 {
            let out = rig.up(&before);
            let to = StridedRows::packed(out.start(), stride);
            let to = [
                SkinnyOutput::Bf16(to),
                SkinnyOutput::Gelu(to),
                SkinnyOutput::Add(to),
            ][which];
            rig.kernels.skinny(&linear, x_rows, to, rows).unwrap();
            let got = rig.down(&out);
            let found: Vec<f32> = (0..sums.len()).map(|i| got[place(i)]).collect();
            let want = sums.iter().enumerate().map(|(i, &sum)| match which {
                0 => sum,
                1 => gelu(sum),
                _ => sum + before[place(i)].to_f32(),
            });
            let what = format!("few rows {which} {rows} {outputs} {inner}");
            assert_close(&what, &found, &want.collect::<Vec<_>>(), 4e-3);
        }
        let out = rig.floats(&vec![77.0; rows * outputs]);
        rig.kernels
            .skinny(&linear, x_rows, SkinnyOutput::F32(out.start()), rows)
            .unwrap();
        let got = out.to_host(&rig.stream).unwrap();
        assert_close("few rows to f32", &got, &sums, 1e-5);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn tiles_are_stitched_and_pooled() {
    let rig = rig();
    let mut random = Random::new(3);
    for (grid, margin, width) in [(6, 1, 64), (27, 4, 1152)] {
        let tokens = grid * grid;
        for (down, across) in [(1, 1), (2, 4), (3, 1)] {
            let crops = match down * across {
                1 => 1,
                tiles => 1 + tiles,
            };
            // The first crop is of another image, and every second crop was kept from another step.
            let features = random.values((1 + crops) * tokens * width);
            let source = |crop: i32| if crop % 2 == 1 { -1 - crop } else { crop };
            let source: Vec<i32> = (0..=crops as i32).map(source).collect();
            let split = |kept: bool| {
                let mut part = features.clone();
                for (crop, values) in part.chunks_exact_mut(tokens * width).enumerate() {
                    if (crop % 2 == 1) != kept {
                        values.fill(bf16::NAN);
                    }
                }
                rig.up(&part)
            };
            let (up, kept) = (split(false), split(true));
            let source = rig.ints(&source);
            let image = rig.ints(&[1, down as i32, across as i32]);
            let out = rig.room(tokens * 2 * width);
            let inputs = CombineInputs {
                features: up.start(),
                kept: kept.start(),
                image: image.start(),
                source: source.start(),
            };
            let shape = CombineShape {
                images: 1,
                grid,
                margin,
                width,
            };
            rig.kernels.combine(&inputs, out.start(), shape).unwrap();
            let features = f32s(&features);
            let at = |crop: usize, y: usize, x: usize, f: usize| {
                features[((1 + crop) * tokens + y * grid + x) * width + f]
            };
            let step = grid - 2 * margin;
            let (height, length) = (down * step + 2 * margin, across * step + 2 * margin);
            let tile =
                |place: usize, count: usize| (place.saturating_sub(margin) / step).min(count - 1);
            let mut wanted = Vec::new();
            for cell in 0..tokens {
                wanted.extend((0..width).map(|f| at(0, cell / grid, cell % grid, f)));
                let window = |i: usize, n: usize| i * n / grid..((i + 1) * n).div_ceil(grid);
                let (ys, xs) = (window(cell / grid, height), window(cell % grid, length));
                let count = (ys.len() * xs.len()) as f32;
                wanted.extend((0..width).map(|f| {
                    let sum = ys
                        .clone()
                        .flat_map(|y| xs.clone().map(move |x| (y, x)))
                        .map(|(y, x)| {
                            let (ty, tx) = (tile(y, down), tile(x, across));
                            let crop = if crops == 1 { 0 } else { 1 + ty * across + tx };
                            at(crop, y - ty * step, x - tx * step, f)
                        });
                    sum.sum::<f32>() / count
                }));
            }
            assert_close("combine", &rig.down(&out), &wanted, 4e-3);
        }
    }
}

/// What embeds a coordinate or a size: frequencies, then a layer with bias.
struct Encoder {
    frequencies: Vec<f32>,
    weight: Vec<bf16>,
    bias: Vec<bf16>,
    half: usize,
}

impl Encoder {
    fn new(random: &mut Random, half: usize, inputs: usize, width: usize) -> Self {
        Self {
            frequencies: (0..half * inputs).map(|_| random.unit() * 3.0).collect(),
            weight: random.values(width * half * 2),
            bias: random.values(width),
            half,
        }
    }

    fn up(&self, rig: &Rig) -> (Buffer<f32>, [Buffer<bf16>; 2]) {
        let layer = [&self.weight, &self.bias].map(|values| rig.up(values));
        (rig.floats(&self.frequencies), layer)
    }

    fn at(&self, (frequencies, [weight, bias]): &(Buffer<f32>, [Buffer<bf16>; 2])) -> GpuEncoder {
        GpuEncoder {
            frequencies: frequencies.start(),
            linear: linear(weight, bias, self.bias.len(), 2 * self.half),
        }
    }

    fn encode(&self, x: &[f32]) -> Vec<f32> {
        let part = |i: usize, j: usize| x[j] * self.frequencies[j * self.half + i];
        let angle = |i: usize| TAU * (0..x.len()).map(|j| part(i, j)).sum::<f32>();
        let angles: Vec<f32> = (0..self.half).map(angle).collect();
        let cosines = angles.iter().map(|angle| angle.cos());
        let features: Vec<f32> = cosines.chain(angles.iter().map(|a| a.sin())).collect();
        let (weight, bias) = (f32s(&self.weight), f32s(&self.bias));
        sums(&features, &weight, &bias, features.len())
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn inputs_are_embedded_by_their_kind_and_zombies_are_marked() {
    let rig = rig();
    let mut random = Random::new(4);
    let (width, vocab, coord_half, size_half) = (192, 10, 8, 12);
    let wte = random.values(vocab * width);
    let coord = Encoder::new(&mut random, coord_half, 1, width);
    let size = Encoder::new(&mut random, size_half, 2, width);
    let bits = |x: f32| x.to_bits() as i32;
    let kinds = [0, 1, 2, 3, 3, 3, 3];
    let a = [7, bits(0.3), bits(0.25), 0, 1, 2, 3];
    let b = [0, 0, bits(0.7), 0, 0, 0, 0];
    let record = |kind, first, second| DecisionRecord {
        kind,
        first,
        second,
        ..DecisionRecord::default()
    };
    let decided = [
        record(3, 4, 0),
        record(1, 512, 0),
        record(2, 1023, 0),
        record(0, 0, 0),
    ];
    let (kind, a, b) = (rig.ints(&kinds), rig.ints(&a), rig.ints(&b));
    let decided = Buffer::from_host(&rig.stream, &decided).unwrap();
    let table = rig.up(&wte);
    let (coord_up, size_up) = (coord.up(&rig), size.up(&rig));
    let (out, is_zombie) = (rig.room(7 * width), rig.ints(&[9; 7]));
    let inputs = EmbedInputs {
        kind: kind.start(),
        values: [a.start(), b.start()],
        decided: decided.start(),
        wte: table.start(),
        coord: coord.at(&coord_up),
        size: size.at(&size_up),
        hidden: out.start(),
        is_zombie: is_zombie.start(),
    };
    rig.kernels
        .embed(&inputs, MatrixShape { rows: 7, width })
        .unwrap();
    assert_eq!(
        is_zombie.to_host(&rig.stream).unwrap(),
        [0, 0, 0, 0, 0, 0, 1]
    );
    let token = |id: usize| f32s(&wte[id * width..][..width]);
    let want = [
        token(7),
        coord.encode(&[0.3]),
        size.encode(&[0.25, 0.7]),
        token(4),
        coord.encode(&[0.5]),
        size.encode(&[1.0, 1.0 / 1024.0]),
        vec![0.0; width],
    ];
    assert_close("embed", &rig.down(&out), &want.concat(), 4e-3);
    places(&rig, &mut random);
}

fn places(rig: &Rig, random: &mut Random) {
    let (images, tokens, width) = (2, 5, 64);
    let (x, bos) = (random.values(images * tokens * width), random.values(width));
    let (xs, bs, out) = (
        rig.up(&x),
        rig.up(&bos),
        rig.room(images * (tokens + 1) * width),
    );
    let shape = ImageShape {
        images,
        tokens,
        width,
    };
    rig.kernels
        .place_images(xs.start(), bs.start(), out.start(), shape)
        .unwrap();
    let want = x
        .chunks_exact(tokens * width)
        .flat_map(|image| [&bos[..], image].concat());
    assert_eq!(rig.down(&out), f32s(&want.collect::<Vec<_>>()));
    let index = rig.ints(&[3, 0, 3]);
    let gathered = rig.room(3 * width);
    let shape = MatrixShape { rows: 3, width };
    rig.kernels
        .gather_rows(xs.start(), index.start(), gathered.start(), shape)
        .unwrap();
    let want = [3, 0, 3]
        .map(|i: usize| f32s(&x[i * width..][..width]))
        .concat();
    assert_eq!(rig.down(&gathered), want);
}
