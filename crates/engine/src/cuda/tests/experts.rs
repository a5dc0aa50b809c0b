//! Mixture of experts against its formula in plain f32: the choice, the slots, and the products in all formats by all kernels.

use std::any::Any;

use cudarc::driver::sys::CUevent_flags;
use half::bf16;

use super::{Random, Rig, assert_close, f32s, fp8, rig};
use crate::{
    cuda::{
        kernels::{
            ExpertInputs, ExpertKernel, ExpertPart, ExpertProduct, ExpertResults, ExpertShape,
            RoutedRows, Routing,
        },
        memory::{Buffer, wait_between},
        tensor::{
            Activations, GpuNorm, Int4Rows, MatrixShape, ScaledRows, StridedRows, WeightPointer,
        },
    },
    network::format::INT4_GROUP,
    testing::e4m3::rounded_row,
};

/// Of Moondream 3.
const TRUE: ExpertShape = ExpertShape {
    experts: 64,
    active: 8,
    width: 2048,
    inner: 1024,
};
/// As many experts, and little to compute.
const NARROW: ExpertShape = ExpertShape {
    width: 512,
    inner: 192,
    ..TRUE
};
/// Sizes that do not fill a tile, nor the 64 values that are summed together.
const ODD: ExpertShape = ExpertShape {
    experts: 8,
    active: 3,
    width: 144,
    inner: 48,
};
/// Each row has one expert.
const ONE_ACTIVE: ExpertShape = ExpertShape {
    active: 1,
    ..NARROW
};
const ROWS: [usize; 7] = [1, 2, 8, 32, 92, 740, 2960];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Logits {
    Random,
    /// Few values, of both signs and both zeros, so that many are equal.
    Ties,
    /// All rows prefer the same experts.
    Alike,
    /// No row has the third expert.
    OneUnused,
}

impl Logits {
    const ALL: [Self; 4] = [Self::Random, Self::Ties, Self::Alike, Self::OneUnused];

    fn values(self, random: &mut Random, rows: usize, experts: usize) -> Vec<bf16> {
        let mut all = random.values(rows * experts);
        for row in all.chunks_exact_mut(experts) {
            for (expert, logit) in row.iter_mut().enumerate() {
                *logit = match self {
                    Self::Random => *logit,
                    Self::Ties => bf16::from_f32((logit.to_f32() * 1.5).trunc() * 0.5),
                    Self::Alike => bf16::from_f32((expert * 37 % experts) as f32 * 0.125),
                    Self::OneUnused if expert == 2 => bf16::from_f32(-100.0),
                    Self::OneUnused => *logit,
                };
            }
        }
        all
    }
}

/// The experts of a row by falling logit, the lowest among equals first, and the softmax of their logits.
fn chosen(logits: &[f32], active: usize) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
    order.truncate(active);
    let exp: Vec<f32> = order
        .iter()
        .map(|&e| (logits[e] - logits[order[0]]).exp())
        .collect();
    let sum: f32 = exp.iter().sum();
    order
        .into_iter()
        .zip(exp.into_iter().map(|p| p / sum))
        .collect()
}

/// Routed rows, and what the formula says about them; every fifth of the first `flagged` rows is a zombie.
struct Routed {
    routing: Routing,
    rows: Vec<Vec<(usize, f32)>>,
}

fn routed(
    rig: &Rig,
    random: &mut Random,
    shape: ExpertShape,
    rows: usize,
    kind: Logits,
    flagged: usize,
) -> Routed {
    let logits = kind.values(random, rows, shape.experts);
    let is_zombie: Vec<i32> = (0..flagged).map(|row| i32::from(row % 5 == 4)).collect();
    let (logits_at, is_zombie_at) = (rig.up(&logits), rig.ints(&[&is_zombie[..], &[1]].concat()));
    let routing = Routing::new(&rig.stream, shape, rows + 3).unwrap();
    let from = RoutedRows {
        logits: logits_at.start(),
        rows,
        is_zombie: is_zombie_at.start(),
        flagged,
    };
    rig.kernels.route(&routing, from).unwrap();
    rig.stream.synchronize().unwrap();
    let of_row = |(row, logits): (usize, &[f32])| match is_zombie.get(row) {
        Some(1) => Vec::new(),
        _ => chosen(logits, shape.active),
    };
    let logits = f32s(&logits);
    let rows = logits
        .chunks_exact(shape.experts)
        .enumerate()
        .map(of_row)
        .collect();
    Routed { routing, rows }
}

impl Routed {
    /// Each row of each expert: expert, row, place among the row's experts.
    fn slots(&self) -> Vec<(usize, usize, usize)> {
        let rows = self.rows.iter().enumerate();
        let mut slots: Vec<_> = rows
            .flat_map(|(row, experts)| {
                experts
                    .iter()
                    .enumerate()
                    .map(move |(k, &(expert, _))| (expert, row, k))
            })
            .collect();
        slots.sort_unstable();
        slots
    }

    fn assert_tables(&self, rig: &Rig, what: &str) {
        let ints = |buffer: &Buffer<i32>| -> Vec<usize> {
            let values = buffer.to_host(&rig.stream).unwrap();
            values.into_iter().map(|value| value as usize).collect()
        };
        let (shape, none) = (self.routing.shape, -1_i32 as usize);
        let (experts, slots_of) = (ints(&self.routing.expert), ints(&self.routing.slot_of));
        let weights = self.routing.weight.to_host(&rig.stream).unwrap();
        for (row, wanted) in self.rows.iter().enumerate() {
            let places = row * shape.active..(row + 1) * shape.active;
            if wanted.is_empty() {
                assert!(
                    experts[places].iter().all(|&expert| expert == none),
                    "{what}: {row}"
                );
                continue;
            }
            let ids: Vec<usize> = wanted.iter().map(|w| w.0).collect();
            assert_eq!(experts[places.clone()], ids, "{what}: row {row}");
            for (got, (_, want)) in weights[places].iter().zip(wanted) {
                assert!((got - want).abs() < 1e-6, "{what}: row {row}: {got} {want}");
            }
        }
        let slots = self.slots();
        let slot_row = ints(&self.routing.slot_row);
        for (slot, &(_, row, k)) in slots.iter().enumerate() {
            assert_eq!(
                (slot_row[slot], slots_of[row * shape.active + k]),
                (row, slot),
                "{what}"
            );
        }
        let count = |expert: usize| slots.iter().filter(|slot| slot.0 < expert).count();
        let offsets: Vec<usize> = (0..=shape.experts).map(count).collect();
        assert_eq!(ints(&self.routing.offset), offsets, "{what}");
        let mut used: Vec<usize> = (0..shape.experts)
            .filter(|&e| offsets[e + 1] > offsets[e])
            .collect();
        used.resize(shape.experts, none);
        assert_eq!(ints(&self.routing.used), used, "{what}");
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_have_the_largest_experts_and_their_slots() {
    let (rig, mut random) = (rig(), Random::new(81));
    for shape in [NARROW, ODD, ONE_ACTIVE] {
        for rows in ROWS {
            for kind in Logits::ALL {
                for flagged in [0, rows / 2] {
                    let routed = routed(&rig, &mut random, shape, rows, kind, flagged);
                    let what = format!("{shape:?}, {rows} rows, {kind:?}, {flagged} flagged");
                    routed.assert_tables(&rig, &what);
                }
            }
        }
    }
}

/// Weights and inputs of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Bf16,
    /// Beside inputs in bf16.
    E4m3,
    /// Inputs too, where products are of tiles.
    InE4m3,
    /// The same.
    Int8,
    /// Beside inputs in bf16.
    Int4,
}

impl Format {
    /// Sizes of layers that it supports, which differ in all that kernels divide.
    fn shapes(self) -> [ExpertShape; 3] {
        if self != Self::Int4 {
            return [NARROW, ODD, ONE_ACTIVE];
        }
        let inner = 2 * INT4_GROUP;
        let odd = ExpertShape {
            width: INT4_GROUP,
            inner: 3 * INT4_GROUP,
            ..ODD
        };
        [
            ExpertShape { inner, ..NARROW },
            odd,
            ExpertShape {
                inner,
                ..ONE_ACTIVE
            },
        ]
    }

    /// A row of inputs as its numbers in this format stand for it.
    fn rounded(self, row: &[f32]) -> Vec<f32> {
        if self != Self::Int8 {
            let (numbers, scale) = rounded_row(row);
            return numbers.into_iter().map(|x| fp8::value(x) * scale).collect();
        }
        let most = row.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        if most == 0.0 {
            return row.to_vec();
        }
        let number = |x: &f32| (x * (127.0 / most)).round_ties_even() * (most / 127.0);
        row.iter().map(number).collect()
    }
}

/// Weights on the GPU whose values repeat, so that the host need not have them all.
struct Weights {
    /// Of which each, but for a period, is the number times a scale.
    numbers: Vec<f32>,
    scales: Vec<f32>,
    /// Inputs that share a scale.
    group: usize,
    depth: usize,
    at: WeightPointer,
    _memory: Box<dyn Any>,
}

/// A prime, so that no two rows of weights are equal.
const PERIOD: usize = 1_000_003;

impl Weights {
    /// Of `outputs` outputs of all experts together. Results are as large as inputs.
    fn new(rig: &Rig, random: &mut Random, outputs: usize, depth: usize, format: Format) -> Self {
        let size = (depth as f32).sqrt().recip();
        let count = outputs * depth;
        let mut below = |bound| (0..PERIOD).map(|_| random.below(bound) as u8).collect();
        match format {
            Format::Bf16 => {
                let one = |x: &bf16| bf16::from_f32(x.to_f32() * size);
                let values: Vec<bf16> = random.values(PERIOD).iter().map(one).collect();
                let all: Vec<bf16> = values.iter().copied().cycle().take(count).collect();
                let memory = rig.up(&all);
                Self {
                    numbers: f32s(&values),
                    scales: vec![1.0; outputs],
                    group: depth,
                    depth,
                    at: WeightPointer::Bf16(memory.start()),
                    _memory: Box::new(memory),
                }
            }
            Format::E4m3 | Format::InE4m3 | Format::Int8 => {
                let codes: Vec<u8> = below(255);
                let is_int8 = format == Format::Int8;
                // All codes but those of NaN in e4m3, and -128; their rms is about 130 and 73.
                let (skipped, rms) = if is_int8 { (0x80, 73.0) } else { (0x7f, 130.0) };
                let kept = |code: u8| match is_int8 {
                    true => code + u8::from(code >= skipped),
                    false => code - u8::from(code & 0x7f == skipped),
                };
                let codes: Vec<u8> = codes.into_iter().map(kept).collect();
                let number = |&code: &u8| match is_int8 {
                    true => f32::from(code.cast_signed()),
                    false => fp8::value(code),
                };
                let all: Vec<u8> = codes.iter().copied().cycle().take(count).collect();
                let scale = |_| (0.5 + random.unit()) * size / rms;
                let scales: Vec<f32> = (0..outputs).map(scale).collect();
                let memory = (rig.bytes(&all), rig.floats(&scales));
                let (values, scales_at) = (memory.0.start(), memory.1.start());
                let at = match is_int8 {
                    true => WeightPointer::ExpertInt8(ScaledRows {
                        values: StridedRows::packed(values.as_i8(), depth),
                        scales: scales_at,
                    }),
                    false => WeightPointer::ExpertE4m3(ScaledRows {
                        values: StridedRows::packed(values, depth),
                        scales: scales_at,
                    }),
                };
                Self {
                    numbers: codes.iter().map(number).collect(),
                    scales,
                    group: depth,
                    depth,
                    at,
                    _memory: Box::new(memory),
                }
            }
            Format::Int4 => {
                // Plus 8; their rms is 4.6.
                let codes: Vec<u8> = below(16);
                let mut all = codes.iter().copied().cycle();
                let mut eight = || pack_int4(std::array::from_fn(|_| all.next().unwrap()));
                let packed: Vec<u32> = (0..count / Int4Rows::PACKED).map(|_| eight()).collect();
                // Some are negative.
                let scale = |_| bf16::from_f32((0.8 - random.unit()) * 2.0 * size / 4.6);
                let scales: Vec<bf16> = (0..count / INT4_GROUP).map(scale).collect();
                let packed = Buffer::from_host(&rig.stream, &packed).unwrap();
                let memory = (packed, rig.up(&scales));
                let at = Int4Rows {
                    values: memory.0.start(),
                    scales: memory.1.start(),
                    width: depth,
                };
                Self {
                    numbers: codes.iter().map(|&code| f32::from(code) - 8.0).collect(),
                    scales: f32s(&scales),
                    group: INT4_GROUP,
                    depth,
                    at: WeightPointer::ExpertInt4(at),
                    _memory: Box::new(memory),
                }
            }
        }
    }

    fn product(&self, x: &[f32], output: usize) -> f32 {
        let first = output * self.depth;
        let groups = x.chunks(self.group).enumerate();
        let of_group = |(group, x): (usize, &[f32])| {
            let first = first + group * self.group;
            let numbers = (first..).map(|i| self.numbers[i % PERIOD]);
            numbers.zip(x).map(|(w, x)| w * x).sum::<f32>() * self.scales[first / self.group]
        };
        groups.map(of_group).sum()
    }
}

/// As `s4x8` of `kernels/common.cuh` has them: values plus 8.
fn pack_int4(codes: [u8; 8]) -> u32 {
    let place = |i: usize| i / 2 * 4 + i % 2 * 16;
    let codes = codes.into_iter().enumerate();
    codes.fold(0, |packed, (i, code)| packed | u32::from(code) << place(i))
}

#[test]
fn int4_values_of_a_pair_are_in_both_halves() {
    let packed = pack_int4([0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(packed, 0x7531_6420);
}

/// A layer on the GPU.
struct Layer {
    shape: ExpertShape,
    format: Format,
    up: Weights,
    down: Weights,
}

/// The reference's GELU, in the erf form (Abramowitz and Stegun 7.1.26, off by up to 1.5e-7).
pub(super) fn gelu_erf(x: f32) -> f32 {
    let z = f64::from(x).abs() * 0.5_f64.sqrt();
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let factors = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let series = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let erf = (1.0 - series * (-z * z).exp()).copysign(f64::from(x));
    (0.5 * f64::from(x) * (1.0 + erf)) as f32
}

impl Layer {
    fn new(rig: &Rig, random: &mut Random, shape: ExpertShape, format: Format) -> Self {
        let ExpertShape {
            experts,
            width,
            inner,
            ..
        } = shape;
        Self {
            shape,
            format,
            up: Weights::new(rig, random, experts * 2 * inner, width, format),
            down: Weights::new(rig, random, experts * width, inner, format),
        }
    }

    /// The experts' part of a row.
    fn row(&self, kernel: ExpertKernel, x: &[f32], experts: &[(usize, f32)]) -> Vec<f32> {
        let input = |row: &[f32]| match self.is_rounded(kernel) {
            true => self.format.rounded(row),
            false => row.to_vec(),
        };
        let x = &input(x);
        let ExpertShape { width, inner, .. } = self.shape;
        let mut sum = vec![0.0; width];
        for &(expert, weight) in experts {
            let value = |i: usize| {
                let [h, g] = [i, inner + i].map(|i| self.up.product(x, expert * 2 * inner + i));
                bf16::from_f32(gelu_erf(h) * (g + 1.0)).to_f32()
            };
            let values = input(&(0..inner).map(value).collect::<Vec<f32>>());
            for (i, sum) in sum.iter_mut().enumerate() {
                *sum += weight * self.down.product(&values, expert * width + i);
            }
        }
        sum
    }

    fn is_rounded(&self, kernel: ExpertKernel) -> bool {
        let is_for_tiles = matches!(self.format, Format::InE4m3 | Format::Int8);
        is_for_tiles && kernel != ExpertKernel::Few
    }

    fn queue(&self, rig: &Rig, kernel: ExpertKernel, routing: &Routing, at: &LayerRows) {
        let ExpertShape {
            width,
            inner,
            active,
            ..
        } = self.shape;
        let scaled = |width| ScaledRows {
            values: StridedRows::packed(at.numbers.start(), width),
            scales: at.scales.start(),
        };
        // Rows of inputs, in 8 bits where the product wants it.
        let inputs = |x: StridedRows, rows, width| {
            let shape = MatrixShape { rows, width };
            match (self.is_rounded(kernel), self.format) {
                (false, _) => ExpertInputs::Bf16(x),
                (true, Format::Int8) => {
                    let to = ScaledRows {
                        values: StridedRows::packed(at.numbers.start().as_i8(), width),
                        scales: at.scales.start(),
                    };
                    rig.kernels.quantise_rows(x, to, shape).unwrap();
                    ExpertInputs::Int8(to)
                }
                (true, _) => {
                    let to = scaled(width);
                    rig.kernels.quantise_rows_e4m3(x, to, shape).unwrap();
                    ExpertInputs::E4m3(to)
                }
            }
        };
        let run = |part, weights, x, out| {
            let product = ExpertProduct {
                part,
                weights,
                x,
                out,
            };
            let queued = rig
                .kernels
                .expert_product(kernel, routing, &product, at.rows);
            queued.unwrap();
        };
        let x = StridedRows::packed(at.x.start(), width + 8);
        let x = inputs(x, at.rows, width);
        run(ExpertPart::Up, self.up.at, x, at.values.start());
        let values = StridedRows::packed(at.values.start(), inner);
        let values = inputs(values, at.rows * active, inner);
        run(ExpertPart::Down, self.down.at, values, at.results.start());
        let to = StridedRows::packed(at.hidden.start(), width + 8);
        let results = ExpertResults {
            routing,
            results: at.results.start(),
            rows: at.rows,
        };
        rig.kernels.add_experts(&results, to).unwrap();
    }
}

/// Inputs and results of a layer; rows of x and of the hidden states are 8 values apart.
struct LayerRows {
    rows: usize,
    x: Buffer<bf16>,
    values: Buffer<bf16>,
    results: Buffer<bf16>,
    hidden: Buffer<bf16>,
    /// Inputs of either product in 8 bits.
    numbers: Buffer<u8>,
    scales: Buffer<f32>,
}

impl LayerRows {
    fn new(rig: &Rig, shape: ExpertShape, rows: usize, x: &[bf16], hidden: &[bf16]) -> Self {
        let slots = rows * shape.active;
        Self {
            rows,
            x: rig.up(x),
            // One slot more, which is not written.
            values: rig.room((slots + 1) * shape.inner),
            results: rig.room((slots + 1) * shape.width),
            hidden: rig.up(hidden),
            numbers: Buffer::zeros(&rig.stream, slots * shape.width.max(shape.inner)).unwrap(),
            scales: Buffer::zeros(&rig.stream, slots).unwrap(),
        }
    }
}

/// Compares up to 8 rows, which are spread over all, of each kernel with the formula.
fn layer_is_that_of_the_formula(
    rig: &Rig,
    random: &mut Random,
    layer: &Layer,
    rows: usize,
    kind: Logits,
) {
    let (shape, stride) = (layer.shape, layer.shape.width + 8);
    let flagged = if kind == Logits::Ties { rows } else { 0 };
    let routed = routed(rig, random, shape, rows, kind, flagged);
    let (x, hidden) = (random.values(rows * stride), random.values(rows * stride));
    for kernel in [ExpertKernel::Few, ExpertKernel::Tiles, ExpertKernel::Wide] {
        // For many rows it is correct, and slow.
        let is_slow = kernel == ExpertKernel::Few && rows > 92;
        let is_missing = kernel == ExpertKernel::Wide
            && (layer.format != Format::InE4m3 || !rig.kernels.has("experts_wide_up"));
        if is_slow || is_missing {
            continue;
        }
        let run = || {
            let at = LayerRows::new(rig, shape, rows, &x, &hidden);
            layer.queue(rig, kernel, &routed.routing, &at);
            let used = routed.slots().len();
            let (values, results) = (rig.down(&at.values), rig.down(&at.results));
            assert!(values[used * shape.inner..].iter().all(|&x| x == 77.0));
            assert!(results[used * shape.width..].iter().all(|&x| x == 77.0));
            (rig.down(&at.hidden), results)
        };
        let (got, results) = run();
        let what = format!(
            "{shape:?}, {rows} rows, {kind:?}, {kernel:?}, {:?}",
            layer.format
        );
        assert!(run() == (got.clone(), results), "{what}: the same again");
        let (mut found, mut wanted) = (Vec::new(), Vec::new());
        let (x, before) = (f32s(&x), f32s(&hidden));
        for row in (0..rows).step_by(rows.div_ceil(8)) {
            let (start, end) = (row * stride, row * stride + shape.width);
            let sum = layer.row(kernel, &x[start..end], &routed.rows[row]);
            // What the experts added, and a rest of what the row was.
            found.extend_from_slice(&got[start..end]);
            wanted.extend(
                sum.iter()
                    .zip(&before[start..end])
                    .map(|(sum, before)| sum + before),
            );
            assert_eq!(
                got[end..start + stride],
                before[end..start + stride],
                "{what}"
            );
        }
        // A value near the middle of two numbers may become either.
        let most = if layer.is_rounded(kernel) { 2e-2 } else { 5e-3 };
        assert_close(&what, &found, &wanted, most);
    }
}

fn layers_are_those_of_the_formula(formats: &[Format]) {
    let (rig, mut random) = (rig(), Random::new(82));
    for &format in formats {
        for shape in format.shapes() {
            let layer = Layer::new(&rig, &mut random, shape, format);
            for rows in ROWS {
                for kind in Logits::ALL {
                    layer_is_that_of_the_formula(&rig, &mut random, &layer, rows, kind);
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn experts_in_all_formats_are_those_of_the_formula() {
    let formats = [Format::Bf16, Format::E4m3, Format::Int8, Format::Int4];
    layers_are_those_of_the_formula(&formats);
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn results_added_by_a_norm_are_those_of_two_kernels() {
    let (rig, mut random) = (rig(), Random::new(86));
    for shape in [TRUE, NARROW, ODD, ONE_ACTIVE] {
        let width = shape.width;
        let norm = GpuNorm {
            weight: rig.up(&random.values(width)),
            bias: rig.up(&random.values(width)),
        };
        for rows in [1, 2, 8, 32] {
            let routed = routed(&rig, &mut random, shape, rows, Logits::Random, rows);
            let results = rig.up(&random.values(rows * shape.active * width));
            let results = ExpertResults {
                routing: &routed.routing,
                results: results.start(),
                rows,
            };
            let before = random.values(rows * width);
            let [one, two] = [(); 2].map(|()| (rig.up(&before), rig.room(rows * width)));
            let to = |out: &Buffer<bf16>| Activations::bf16(out.start(), width);
            let kernels = &rig.kernels;
            let queued =
                kernels.add_experts_and_norm(&results, one.0.start(), norm.at(), to(&one.1));
            queued.unwrap();
            let packed = StridedRows::packed(two.0.start(), width);
            kernels.add_experts(&results, packed).unwrap();
            let shape = MatrixShape { rows, width };
            let queued = kernels.layer_norm(two.0.start(), norm.at(), to(&two.1), shape);
            queued.unwrap();
            let what = format!("{rows} rows of {width}");
            assert_close(&what, &rig.down(&one.0), &rig.down(&two.0), 1e-4);
            assert_close(&what, &rig.down(&one.1), &rig.down(&two.1), 1e-3);
            assert_ne!(rig.down(&one.0), f32s(&before), "{what}");
        }
    }
}

/// The error of a group is no larger than with the scale by which its largest value becomes 7.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn weights_in_int4_are_near_those_of_the_file() {
    let (rig, mut random) = (rig(), Random::new(85));
    for (rows, width) in [(192, 1024), (64, 3 * INT4_GROUP)] {
        let mut x = random.values(rows * width);
        x[..INT4_GROUP].fill(bf16::ZERO);
        let row_scales: Vec<f32> = (0..rows).map(|_| 0.01 + random.unit()).collect();
        let (x_at, scales_at) = (rig.up(&x), rig.floats(&row_scales));
        let values = Buffer::zeros(&rig.stream, rows * width / Int4Rows::PACKED).unwrap();
        let scales = rig.room(rows * width / INT4_GROUP);
        let to = Int4Rows {
            values: values.start(),
            scales: scales.start(),
            width,
        };
        let shape = MatrixShape { rows, width };
        let kernels = &rig.kernels;
        let queued = kernels.quantise_groups(x_at.start(), Some(scales_at.start()), to, shape);
        queued.unwrap();
        let (packed, scales) = (values.to_host(&rig.stream).unwrap(), rig.down(&scales));
        let number = |i: usize| {
            let (word, i) = (packed[i / 8], i % 8);
            (word >> (i / 2 * 4 + i % 2 * 16) & 15) as f32 - 8.0
        };
        let wanted = |i: usize| x[i].to_f32() * row_scales[i / width];
        let (mut off, mut all) = (0.0, 0.0);
        for (group, &scale) in scales.iter().enumerate() {
            let group = group * INT4_GROUP..(group + 1) * INT4_GROUP;
            let most = group
                .clone()
                .fold(0.0_f32, |most, i| most.max(wanted(i).abs()));
            let plain = bf16::from_f32(most / 7.0).to_f32();
            let error = |of: &dyn Fn(usize) -> f32| -> f32 {
                let off = |i: usize| (of(i) - wanted(i)).powi(2);
                group.clone().map(off).sum()
            };
            let of_plain = error(&|i| match plain {
                0.0 => 0.0,
                _ => (wanted(i) / plain).round_ties_even().clamp(-8.0, 7.0) * plain,
            });
            let found = error(&|i| number(i) * scale);
            assert!(found <= of_plain * 1.001, "{found} {of_plain}");
            (off, all) = (off + found, all + error(&|_| 0.0));
        }
        let share = (off / all).sqrt();
        println!("int4, {rows} x {width}: error {share:.2e}");
        assert!(share < 0.1, "{share}");
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn experts_in_e4m3_are_unpacked_exactly() {
    let rig = rig();
    let codes: Vec<u8> = (0..255).filter(|code| code & 0x7f != 0x7f).collect();
    let codes: Vec<u8> = codes.into_iter().cycle().take(16 * 300).collect();
    let (from, to) = (rig.bytes(&codes), rig.room(codes.len()));
    let unpacked = rig
        .kernels
        .e4m3_to_bf16(from.start(), to.start(), codes.len());
    unpacked.unwrap();
    let wanted: Vec<f32> = codes.iter().map(|&code| fp8::value(code)).collect();
    assert_eq!(rig.down(&to), wanted);
}

#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn experts_with_inputs_in_e4m3_are_those_of_the_formula() {
    layers_are_those_of_the_formula(&[Format::InE4m3]);
}

/// Prints what each number of rows takes. The experts of few rows differ from run to run, so that their weights are not in the L2.
#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn experts_of_true_width_are_those_of_the_formula() {
    let (rig, mut random) = (rig(), Random::new(83));
    for format in [
        Format::Bf16,
        Format::E4m3,
        Format::InE4m3,
        Format::Int8,
        Format::Int4,
    ] {
        if format == Format::InE4m3 && !rig.gpu.has_fp8() {
            continue;
        }
        let layer = Layer::new(&rig, &mut random, TRUE, format);
        for rows in ROWS {
            if [8, 740].contains(&rows) {
                layer_is_that_of_the_formula(&rig, &mut random, &layer, rows, Logits::Random);
            }
            let mut kernels = vec![ExpertKernel::for_rows(rows)];
            if format == Format::InE4m3 && rig.kernels.has("experts_wide_up") {
                kernels.push(ExpertKernel::Wide);
            }
            for kernel in kernels {
                let us = microseconds(&rig, &layer, kernel, rows);
                println!(
                    "experts, {rows} rows, {format:?}, {kernel:?}: {us:.0} us without routing"
                );
            }
        }
    }
}

/// Of the products and the sum for rows that are routed in eight ways.
fn microseconds(rig: &Rig, layer: &Layer, kernel: ExpertKernel, rows: usize) -> f32 {
    let mut random = Random::new(84);
    let routings: Vec<Routing> = (0..8)
        .map(|_| routed(rig, &mut random, TRUE, rows, Logits::Random, 0).routing)
        .collect();
    let values = random.values(rows * (TRUE.width + 8));
    let at = LayerRows::new(rig, TRUE, rows, &values, &values);
    let event = || {
        let context = rig.stream.context();
        let event = context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let event = event.unwrap();
        event.record(&rig.stream).unwrap();
        event
    };
    let round = || {
        for routing in &routings {
            layer.queue(rig, kernel, routing, &at);
        }
    };
    round();
    let (begun, rounds) = (event(), 4);
    (0..rounds).for_each(|_| round());
    let ms = wait_between(&begun, &event(), "timing experts").unwrap();
    ms * 1e3 / (rounds * routings.len()) as f32
}
