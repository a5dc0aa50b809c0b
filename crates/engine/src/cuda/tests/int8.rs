//! int8: rows and weights to numbers, products of these numbers, and the network beside the one in bf16.

use half::bf16;

use super::{
    Random, Rig, assert_close, f32s,
    fp8::{inside, inside_of, small_models},
    gelu,
    layers::sums,
    rig,
    whole::{calibration, cuda, settings_for_one},
};
use crate::{
    cuda::{
        CudaSettings,
        kernels::{Kernels, SkinnyOutput},
        memory::Buffer,
        tensor::{
            Activations, Epilogue, GpuNorm, Int8Rows, LinearRef, MatrixShape, StridedRows,
            WeightPointer,
        },
    },
    model::Formats,
};
use spotter_core::GpuPrecision;

/// Rows in int8 on the GPU.
struct OnGpu {
    values: Buffer<i8>,
    scales: Buffer<f32>,
    width: usize,
}

impl OnGpu {
    fn zeros(rig: &Rig, MatrixShape { rows, width }: MatrixShape) -> Self {
        Self {
            values: Buffer::zeros(&rig.stream, rows * Int8Rows::stride_of(width)).unwrap(),
            scales: Buffer::zeros(&rig.stream, rows).unwrap(),
            width,
        }
    }

    fn of(rig: &Rig, x: &[bf16], width: usize) -> Self {
        let rows = x.len() / width;
        let from = rig.up(x);
        let shape = MatrixShape { rows, width };
        let to = Self::zeros(rig, shape);
        let from = StridedRows::packed(from.start(), width);
        rig.kernels.quantise_rows(from, to.rows(), shape).unwrap();
        rig.stream.synchronize().unwrap();
        to
    }

    fn rows(&self) -> Int8Rows {
        Int8Rows::new(self.values.start(), self.scales.start(), self.width)
    }

    /// A layer whose weights these are.
    fn linear(&self, bias: &Buffer<bf16>) -> LinearRef {
        LinearRef {
            weight: WeightPointer::Int8(self.rows()),
            bias: bias.start(),
            bias_f32: None,
            largest_input: None,
            outputs: self.scales.start().len(),
            inner: self.width,
        }
    }

    /// What the numbers stand for.
    fn read(&self, rig: &Rig) -> Vec<f32> {
        let (values, scales) = (
            self.values.to_host(&rig.stream).unwrap(),
            self.scales.to_host(&rig.stream).unwrap(),
        );
        let rows = values
            .chunks_exact(Int8Rows::stride_of(self.width))
            .zip(scales);
        let values = rows.flat_map(|(row, scale)| {
            let row = row[..self.width].iter();
            row.map(move |&value| f32::from(value) * scale)
        });
        values.collect()
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_in_int8_are_off_by_half_a_step() {
    let (rig, mut random) = (rig(), Random::new(71));
    let width = 1152;
    let mut x = random.values(37 * width);
    // A row of zeros, and a row with one large value.
    x[width..2 * width].fill(bf16::ZERO);
    x[2 * width + 5] = bf16::from_f32(-300.0);
    let got = OnGpu::of(&rig, &x, width).read(&rig);
    for (x, got) in f32s(&x).chunks_exact(width).zip(got.chunks_exact(width)) {
        let most = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        for (x, got) in x.iter().zip(got) {
            assert!((x - got).abs() <= most / 127.0 * 0.5001, "{x} became {got}");
        }
    }
    x[7] = bf16::NAN;
    assert!(OnGpu::of(&rig, &x, width).read(&rig)[7].is_nan());
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn norm_in_int8_is_that_in_bf16_converted() {
    let (rig, mut random) = (rig(), Random::new(74));
    for (rows, width) in [(1, 64), (37, 1152), (300, 2048)] {
        let (x, shape) = (
            rig.up(&random.values(rows * width)),
            MatrixShape { rows, width },
        );
        let norm = GpuNorm {
            weight: rig.up(&random.values(width)),
            bias: rig.up(&random.values(width)),
        };
        let wide = rig.room(rows * width);
        let narrow = OnGpu::zeros(&rig, shape);
        for out in [
            Activations::bf16(wide.start(), width),
            Activations::Int8(narrow.rows()),
        ] {
            rig.kernels
                .layer_norm(x.start(), norm.at(), out, shape)
                .unwrap();
        }
        let (wide, narrow) = (rig.down(&wide), narrow.read(&rig));
        for (wide, narrow) in wide.chunks_exact(width).zip(narrow.chunks_exact(width)) {
            let most = wide.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (wide, narrow) in wide.iter().zip(narrow) {
                // Half a step, and half of one of bf16.
                let bound = most / 127.0 * 0.5001 + wide.abs() / 256.0;
                assert!((wide - narrow).abs() <= bound, "{wide} became {narrow}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn int8_products_are_those_of_their_numbers() {
    let (rig, mut random) = (rig(), Random::new(72));
    for (rows, outputs, inner) in [
        (1, 128, 64),
        (37, 48, 80),
        (100, 144, 1152),
        (130, 208, 4304),
        (300, 1152, 128),
        // On an H100 a block computes several tiles, of 256 and of 128 outputs.
        (1500, 4096, 64),
        (2900, 2048, 64),
    ] {
        let (x, w) = (random.values(rows * inner), random.values(outputs * inner));
        let (bias, before) = (random.values(outputs), random.values(rows * (outputs + 8)));
        let (x, w, bias_at) = (
            OnGpu::of(&rig, &x, inner),
            OnGpu::of(&rig, &w, inner),
            rig.up(&bias),
        );
        let linear = w.linear(&bias_at);
        let sums = sums(&x.read(&rig), &w.read(&rig), &f32s(&bias), inner);
        let stride = outputs + 8;
        let place = |i: usize| i / outputs * stride + i % outputs;
        for epilogue in [Epilogue::Bias, Epilogue::BiasGelu, Epilogue::BiasAdd] {
            let out = rig.up(&before);
            let to = StridedRows::packed(out.start(), stride);
            let product = (rig.kernels).int8_product(&linear, x.rows(), to, rows, epilogue);
            product.unwrap();
            let got = rig.down(&out);
            let before = f32s(&before);
            let found: Vec<f32> = (0..sums.len()).map(|i| got[place(i)]).collect();
            let wanted = sums.iter().enumerate().map(|(i, &sum)| match epilogue {
                Epilogue::Bias => sum,
                Epilogue::BiasGelu => gelu(sum),
                Epilogue::BiasAdd => sum + before[place(i)],
            });
            let what = format!("int8 {epilogue:?} {rows} {outputs} {inner}");
            assert_close(&what, &found, &wanted.collect::<Vec<_>>(), 4e-3);
            // Nothing is written behind a row.
            let behind = |row: usize| row * stride + outputs..(row + 1) * stride;
            assert!((0..rows).all(|row| got[behind(row)] == before[behind(row)]));
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn few_rows_read_weights_in_int8_exactly() {
    let (rig, mut random) = (rig(), Random::new(73));
    for (rows, outputs, inner) in [(1, 64, 64), (7, 96, 192), (16, 2048, 10240)] {
        let (x, w) = (random.values(rows * inner), random.values(outputs * inner));
        let bias = random.values(outputs);
        let (x_at, w, bias_at) = (rig.up(&x), OnGpu::of(&rig, &w, inner), rig.up(&bias));
        let linear = w.linear(&bias_at);
        assert!(Kernels::is_skinny(&linear, rows));
        let out = rig.room(rows * outputs);
        let to = SkinnyOutput::Bf16(StridedRows::packed(out.start(), outputs));
        let x_rows = StridedRows::packed(x_at.start(), inner);
        rig.kernels.skinny(&linear, x_rows, to, rows).unwrap();
        let sums = sums(&f32s(&x), &w.read(&rig), &f32s(&bias), inner);
        assert_close("few rows, int8", &rig.down(&out), &sums, 4e-3);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn the_network_in_int8_is_near_the_one_in_bf16() {
    for (name, config, weights) in small_models() {
        let wide = inside(&config, weights.clone(), Formats::BF16);
        let narrow = inside(
            &config,
            weights,
            Formats::on_gpu(GpuPrecision::Int8, None, None),
        );
        for (what, i) in [("tokens", 0), ("hidden states", 1)] {
            assert_close(&format!("int8, {name}: {what}"), &narrow[i], &wide[i], 0.1);
            // Equal numbers would mean that the backend does not use int8.
            assert_ne!(narrow[i], wide[i], "{name}: {what} are not in int8");
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn layers_with_large_errors_are_in_bf16() {
    for (name, config, weights) in small_models() {
        let in_int8 = |errors: &[f32]| {
            let measured = calibration(&config, errors, 1.0);
            let settings = CudaSettings {
                formats: Formats::on_gpu(GpuPrecision::Int8, Some(&measured), None),
                ..settings_for_one()
            };
            inside_of(cuda(settings, &config, weights.clone()), &config)
        };
        let wide = inside(&config, weights.clone(), Formats::BF16);
        let narrow = inside(
            &config,
            weights.clone(),
            Formats::on_gpu(GpuPrecision::Int8, None, None),
        );
        assert_eq!(in_int8(&[1.0]), wide, "{name}: all layers");
        assert_eq!(in_int8(&[0.0]), narrow, "{name}: no layer");
        // Each kind of layer is in both formats in some block.
        let mixed = in_int8(&[0.0, 1.0, 0.0]);
        for (what, i) in [("tokens", 0), ("hidden states", 1)] {
            assert_close(&format!("{name}: {what}"), &mixed[i], &wide[i], 0.1);
            assert!(mixed[i] != wide[i] && mixed[i] != narrow[i], "{name}");
        }
    }
}
