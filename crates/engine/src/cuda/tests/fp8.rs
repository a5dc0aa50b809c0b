//! e4m3: kernels that write it, products of it, and the whole network in it. Only on GPUs that have it.

use half::bf16;

use super::{
    Random, Rig, assert_close, f32s, gelu,
    layers::sums,
    linear, rig,
    whole::{calibration, cuda, cuda_for_one, settings_for_one},
};
use crate::{
    cuda::{
        CudaBackend, CudaSettings,
        error::CudaError,
        fp8::{GpuScales, MARGIN, calibration_step, scale},
        kernels::SkinnyOutput,
        memory::Buffer,
        network::NetworkParts,
        tensor::{
            Activations, Epilogue, GpuLinear, LinearRef, MatrixShape, Product, StridedRows,
            WeightPointer, bucket,
        },
    },
    model::{self, Formats, ModelCalibration, ModelConfig, Weights},
    scheduler::backend::Backend as _,
    testing::golden_model::run_step,
};
use spotter_config as config;
use spotter_core::{GpuPrecision, Picture};
use spotter_street as demo;

pub(super) use crate::testing::e4m3::{rounded, value};

/// Panics where the GPU has no fp8.
fn rig_with_fp8() -> Rig {
    let rig = rig();
    assert!(rig.gpu.has_fp8(), "{} has no fp8", rig.gpu.name);
    rig
}

/// What `launch` writes in bf16, `[rows, stride]`; in e4m3 it writes the same.
#[track_caller]
pub(super) fn in_both_types(
    rig: &Rig,
    shape: MatrixShape,
    stride: usize,
    launch: impl Fn(Activations) -> Result<(), CudaError>,
) -> Vec<f32> {
    let MatrixShape { rows, width } = shape;
    let out = rig.room(rows * stride);
    launch(Activations::bf16(out.start(), stride)).unwrap();
    let wanted = rig.down(&out);
    if !rig.gpu.has_fp8() {
        return wanted;
    }
    let place = |i: usize| i / width * stride + i % width;
    let largest = (0..rows * width).fold(0.0, |most, i| f32::max(most, wanted[place(i)].abs()));
    let scales = GpuScales::new(&rig.stream, &[scale(largest, 1.1).unwrap()]).unwrap();
    let got = rig.bytes(&vec![0xaa; rows * stride]);
    let to = StridedRows::packed(got.start(), stride);
    launch(Activations::E4m3(to, scales.at(0))).unwrap();
    let got = got.to_host(&rig.stream).unwrap();
    let step = scales.at(0).value;
    for i in 0..rows * width {
        let (got, want) = (value(got[place(i)]) * step, wanted[place(i)]);
        // Half a step of e4m3, and the rounding of bf16; below 2^-6 the steps are constant.
        let most = want.abs() * (1.0 / 16.0 + 1.0 / 128.0) + step * 2.0_f32.powi(-10);
        assert!((got - want).abs() <= most, "{i}: {got}, wants {want}");
    }
    for i in (0..rows * stride).filter(|i| i % stride >= width) {
        assert_eq!(got[i], 0xaa, "written beyond a row");
    }
    wanted
}

#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn quantising_rounds_as_the_twin_does() {
    let rig = rig_with_fp8();
    let mut random = Random::new(31);
    for (rows, width, exponent) in [(1, 8, 0), (37, 1152, -6), (5, 4304, 3)] {
        let (from, to) = (width + 16, width + 32);
        let mut x = random.values(rows * from);
        // Halfway cases, the edges of the format, both zeros.
        let edges = [1.0625, 1.1875, 464.0, -480.0, 0.001, -0.0, 0.0, 0.0156];
        x[..8].copy_from_slice(&edges.map(bf16::from_f32));
        let up = rig.up(&x);
        let out = rig.bytes(&vec![0xaa; rows * to]);
        let scales = GpuScales::new(&rig.stream, &[2.0_f32.powi(exponent)]).unwrap();
        let scale = scales.at(0);
        let rows_of = StridedRows::packed(up.start(), from);
        let rows_to = StridedRows::packed(out.start(), to);
        let shape = MatrixShape { rows, width };
        rig.kernels
            .quantise(rows_of, rows_to, scale, shape)
            .unwrap();
        let got = out.to_host(&rig.stream).unwrap();
        for (i, got) in got.into_iter().enumerate() {
            let (row, column) = (i / to, i % to);
            let want = match column < width {
                true => rounded(x[row * from + column].to_f32() / scale.value),
                false => 0xaa,
            };
            assert_eq!(got, want, "row {row}, column {column}");
        }
        let into = rig.floats(&[0.25]);
        rig.kernels.abs_max(rows_of, into.start(), shape).unwrap();
        let inside = (0..rows).flat_map(|row| &x[row * from..][..width]);
        let want = inside.fold(0.25, |most: f32, x| most.max(x.to_f32().abs()));
        assert_eq!(into.to_host(&rig.stream).unwrap(), [want]);
    }
}

/// Bytes and their values.
fn quantised(x: &[f32], scale: f32) -> (Vec<u8>, Vec<f32>) {
    let bytes: Vec<u8> = x.iter().map(|x| rounded(x / scale)).collect();
    let values = bytes.iter().map(|&byte| value(byte) * scale).collect();
    (bytes, values)
}

#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn products_of_e4m3_are_those_of_the_formula() {
    let rig = rig_with_fp8();
    let mut random = Random::new(32);
    for (rows, outputs, inner) in [(17, 256, 256), (100, 1152, 592), (740, 384, 4304)] {
        let x = f32s(&random.values(rows * inner));
        let w = f32s(&random.values(outputs * inner));
        // Sums of about 1, as layers give.
        let w: Vec<f32> = w.iter().map(|w| w / (inner as f32).sqrt()).collect();
        let bias = random.values(outputs);
        let scales = GpuScales::new(&rig.stream, &[1.0 / 128.0, 2.0_f32.powi(-10), 1.0 / 64.0]);
        let scales = scales.unwrap();
        let [x_scale, w_scale, out_scale] = [0, 1, 2].map(|i| scales.at(i));
        let (mut x_bytes, x8) = quantised(&x, x_scale.value);
        let (w_bytes, w8) = quantised(&w, w_scale.value);
        x_bytes.resize(bucket(rows) * inner, 0);
        let plain: Vec<bf16> = w.iter().map(|&w| bf16::from_f32(w)).collect();
        let (weight, bias_up) = (rig.up(&plain), rig.up(&bias));
        let (xs, ws) = (rig.bytes(&x_bytes), rig.bytes(&w_bytes));
        let linear = LinearRef {
            weight: WeightPointer::E4m3 {
                values: ws.start(),
                scale: w_scale,
                input: x_scale,
            },
            ..linear(&weight, &bias_up, outputs, inner)
        };
        let product = |out, epilogue| Product {
            linear,
            x: Activations::E4m3(StridedRows::packed(xs.start(), inner), x_scale),
            out,
            rows,
            epilogue,
        };
        // The host computes some rows only, to save time.
        let some = || (0..rows).step_by(rows.div_ceil(8));
        let all = || some().flat_map(|row| row * outputs..(row + 1) * outputs);
        let bias = f32s(&bias);
        let sums = |x: &[f32], w: &[f32]| -> Vec<f32> {
            some()
                .flat_map(|row| sums(&x[row * inner..][..inner], w, &bias, inner))
                .collect()
        };
        let (near, exact) = (sums(&x8, &w8), sums(&x, &w));
        let name = format!("{rows} {outputs} {inner}");
        for epilogue in [Epilogue::Bias, Epilogue::BiasAdd, Epilogue::BiasGelu] {
            let out = rig.up(&vec![bf16::ONE; bucket(rows) * outputs]);
            let to = Activations::bf16(out.start(), outputs);
            rig.products.run(&product(to, epilogue)).unwrap();
            let got = rig.down(&out);
            let got: Vec<f32> = all().map(|place| got[place]).collect();
            let after = |sum: &f32| match epilogue {
                Epilogue::Bias => *sum,
                Epilogue::BiasAdd => sum + 1.0,
                Epilogue::BiasGelu => gelu(*sum),
            };
            let [near, exact] = [&near, &exact].map(|s| s.iter().map(after).collect::<Vec<_>>());
            // Of the same numbers: bf16 rounds, and fast sums lose some of their last bits.
            assert_close(&format!("fp8 {epilogue:?} {name}"), &got, &near, 1e-2);
            // Both factors are off by at most 2^-4 of their size, all of them with signs of their own.
            let what = format!("fp8 rounding {epilogue:?} {name}");
            assert_close(&what, &got, &exact, 0.09);
        }
        let out = Buffer::<u8>::zeros(&rig.stream, bucket(rows) * outputs).unwrap();
        let to = Activations::E4m3(StridedRows::packed(out.start(), outputs), out_scale);
        let product = product(to, Epilogue::BiasGelu);
        if !rig.products.can_run(&product).unwrap() {
            println!("cuBLASLt does not write e4m3 behind GELU for {name}");
            continue;
        }
        rig.products.run(&product).unwrap();
        let got = out.to_host(&rig.stream).unwrap();
        let read = |place: usize| value(got[place]) * out_scale.value;
        let got: Vec<f32> = all().map(read).collect();
        let want: Vec<f32> = near.iter().map(|&sum| gelu(sum)).collect();
        assert_close(&format!("fp8 to fp8 {name}"), &got, &want, 1.0 / 16.0);
    }
}

#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn few_rows_read_weights_in_e4m3_exactly() {
    let (rig, mut random) = (rig_with_fp8(), Random::new(33));
    for (rows, outputs, inner) in [(1, 64, 64), (7, 96, 192), (16, 2048, 10240), (31, 64, 128)] {
        let x = random.values(rows * inner);
        let w = f32s(&random.values(outputs * inner));
        // Some of them are below the least normal number.
        let scales = GpuScales::new(&rig.stream, &[1.0 / 8.0]).unwrap();
        let (w_bytes, w) = quantised(&w, scales.at(0).value);
        let bias = random.values(outputs);
        let (x_at, bytes, bias_at) = (rig.up(&x), rig.bytes(&w_bytes), rig.up(&bias));
        let linear = LinearRef {
            weight: WeightPointer::E4m3 {
                values: bytes.start(),
                scale: scales.at(0),
                input: scales.at(0),
            },
            ..linear(&x_at, &bias_at, outputs, inner)
        };
        let out = rig.room(rows * outputs);
        let to = SkinnyOutput::Bf16(StridedRows::packed(out.start(), outputs));
        let x_rows = StridedRows::packed(x_at.start(), inner);
        rig.kernels
            .skinny_in_parts(&linear, x_rows, to, rows)
            .unwrap();
        let sums = sums(&f32s(&x), &w, &f32s(&bias), inner);
        assert_close("few rows, e4m3", &rig.down(&out), &sums, 4e-3);
    }
}

/// Of a network on a picture: tokens of the image and hidden states of the row behind it.
pub(super) fn inside(
    config: &ModelConfig,
    weights: Weights,
    formats: Formats<'_>,
) -> [Vec<f32>; 2] {
    inside_of(cuda_for_one(formats, config, weights), config)
}

/// The same of a backend for one row.
pub(super) fn inside_of(mut backend: CudaBackend, config: &ModelConfig) -> [Vec<f32>; 2] {
    // Not one of the calibration pictures.
    let step = calibration_step(&picture(5), config, &backend.limits());
    let positions: usize = step.rows.iter().map(|row| row.inputs.positions()).sum();
    run_step(&mut backend, step);
    backend.inside(positions).unwrap()
}

/// The embedded model, and noise of Moondream 2's widths with few layers.
pub(super) fn small_models() -> [(&'static str, ModelConfig, Weights); 2] {
    let embedded = model::load_model(&config::ModelSource::Embedded).unwrap();
    let mut few_layers = ModelConfig::default();
    few_layers.text.n_layers = 2;
    few_layers.vision.enc_n_layers = 3;
    let noise = model::random_weights(&few_layers).unwrap();
    [
        ("embedded", embedded.config, embedded.weights),
        ("Moondream 2's widths", few_layers, noise),
    ]
}

pub(super) fn picture(seed: u64) -> Picture {
    let rgb = demo::draw(&demo::random(seed), 640, 360);
    Picture::from_rgb(640, 360, rgb).unwrap()
}

#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn the_network_in_fp8_is_near_the_one_in_bf16() {
    rig_with_fp8();
    let pictures = [3, 4].map(picture);
    for (name, config, weights) in small_models() {
        let wide = inside(&config, weights.clone(), Formats::BF16);
        let settings = CudaSettings {
            formats: Formats::on_gpu(GpuPrecision::Fp8, None, None),
            pictures: &pictures,
            ..settings_for_one()
        };
        let narrow = inside_of(cuda(settings, &config, weights), &config);
        // A layer's results are off by some 4 % (see above), part by part of what adds up in the hidden states.
        for (what, i) in [("tokens", 0), ("hidden states", 1)] {
            assert_close(&format!("fp8, {name}: {what}"), &narrow[i], &wide[i], 0.15);
            // Equal numbers would mean that the backend does not use fp8.
            assert_ne!(narrow[i], wide[i], "{name}: {what} are not in fp8");
        }
    }
}

#[test]
#[ignore = "needs a GPU with fp8; run make test-gpu"]
fn scales_have_room_for_the_larger_of_both_inputs() {
    rig_with_fp8();
    let pictures = [3].map(picture);
    let [(_, config, weights), _] = small_models();
    let scales = |measured: Option<&ModelCalibration>| {
        let settings = CudaSettings {
            formats: Formats::on_gpu(GpuPrecision::Fp8, measured, None),
            pictures: &pictures,
            ..settings_for_one()
        };
        let NetworkParts { weights, .. } = cuda(settings, &config, weights.clone())
            .network
            .into_parts();
        let input = |layer: &GpuLinear| match layer.at.weight {
            WeightPointer::E4m3 { input, .. } => Some(input.value),
            _ => None,
        };
        weights
            .large_layers()
            .filter_map(input)
            .collect::<Vec<f32>>()
    };
    let drawn = scales(None);
    assert!(drawn.len() > 4, "{drawn:?}");
    // Some layers of the drawn scenes have larger inputs, some have smaller ones.
    let (users, of_users) = (
        calibration(&config, &[0.0], 5.0),
        scale(5.0, MARGIN).unwrap(),
    );
    let joined: Vec<f32> = drawn.iter().map(|scale| scale.max(of_users)).collect();
    assert_eq!(scales(Some(&users)), joined);
    assert!(joined != drawn && joined.iter().any(|scale| *scale > of_users));
}
