//! The speeds that a GPU sustains: large products in bf16 and fp8, and copies of its own memory. No model is faster than its arithmetic
//! and its memory traffic at these speeds, so benchmarks print them beside every figure. Layers of a model are timed in each precision, of which
//! one is chosen.
//!
//! Sustained: a card at its power limit is faster in its first second than later, so only the last half of a load counts. Values are random, because multiplying zeros takes less power.

use std::{sync::Arc, time::Duration};

use cudarc::driver::{CudaEvent, CudaStream, DeviceRepr, ValidAsZeroBits, sys::CUevent_flags};
use half::bf16;

use super::{
    backend,
    error::{CudaError, tried},
    fp8::{self, GpuScales},
    kernels::Kernels,
    library,
    memory::{Buffer, copy, wait_between, wait_for_event},
    products::Products,
    tensor::{
        Activations, Epilogue, Int8Rows, LinearRef, Product, StridedRows, WeightPointer, bucket,
    },
};
use crate::{
    model::{Formats, ModelConfig},
    network::format::Number,
};
use experts::{ExpertLayer, MODEL_CROPS};
use spotter_core::{Clock, GpuPrecision, Mono};

mod experts;

/// The products whose speed is a ceiling.
const LARGE: ProductSize = ProductSize {
    rows: 8192,
    outputs: 8192,
    inner: 8192,
};
/// How long a product is timed in each precision.
const PRECISION_LOAD: Duration = Duration::from_millis(100);
/// Calls between two looks at the clock: some 20 to 30 ms of an H200.
const PRODUCTS: usize = 16;
const COPIES: usize = 64;
/// Batches of calls at least, however short the load.
const BATCHES: usize = 4;
/// Far more than the capacity of any cache.
const COPY_BYTES: usize = 512 << 20;
/// Random values; longer arrays repeat them. Odd, so that no row of a matrix is like the one before.
const RANDOM: usize = (1 << 20) + 77;

/// Speeds that a GPU sustains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Products of 8192 x 8192 x 8192 in bf16, TFLOP.
    pub bf16_tflop: SustainedSpeed,
    /// The same in fp8 (e4m3, fast accumulation, result in bf16); `None` before compute capability 8.9.
    pub fp8_tflop: Option<SustainedSpeed>,
    /// Memory to memory, bytes read and bytes written together, GB.
    pub copy_gb: SustainedSpeed,
}

/// A speed, and when it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SustainedSpeed {
    pub per_s: f64,
    /// The measured interval begins.
    pub from: Mono,
    pub to: Mono,
}

/// Measures GPU `index`, each figure over the last half of `load`. Blocks for three times `load` and some seconds; takes
/// 1.5 GB of the GPU's memory meanwhile.
pub fn measure_ceilings(
    index: u32,
    load: Duration,
    clock: &dyn Clock,
) -> Result<Ceilings, CudaError> {
    let gpu = library::open(index)?;
    let stream = gpu.context.new_stream().map_err(tried("making a stream"))?;
    let bench = CeilingBench {
        products: Products::new(&gpu, Arc::clone(&stream), &library::kernel_cache())?,
        stream,
        size: LARGE,
        load,
        clock,
    };
    let normal = normal_values();
    Ok(Ceilings {
        bf16_tflop: bench.bf16(&normal)?,
        fp8_tflop: match gpu.has_fp8() {
            true => Some(bench.fp8(&normal)?),
            false => None,
        },
        copy_gb: bench.copy(&normal)?,
    })
}

/// How fast GPU `index` multiplies in each precision that GPU and model support: a layer of the encoder over a picture's crops and, of
/// a model whose file has `experts` in that format, some of them, each with its share of a look's work. Blocks for a second or two, for some more
/// the first time on a GPU.
pub fn measure_precisions(
    index: u32,
    config: &ModelConfig,
    experts: Option<Number>,
    clock: &dyn Clock,
) -> Result<Vec<PrecisionSpeed>, CudaError> {
    let (gpu, cache) = (library::open(index)?, library::kernel_cache());
    let stream = gpu.context.new_stream().map_err(tried("making a stream"))?;
    let bench = CeilingBench {
        products: Products::new(&gpu, Arc::clone(&stream), &cache)?,
        stream: Arc::clone(&stream),
        size: ProductSize {
            rows: MODEL_CROPS * config.image_tokens(),
            outputs: config.vision.enc_ff_dim,
            inner: config.vision.enc_dim,
        },
        load: PRECISION_LOAD,
        clock,
    };
    let normal = normal_values();
    let kernels = Kernels::load(&gpu, stream, &cache)?;
    let mut speeds = vec![(GpuPrecision::Bf16, bench.bf16(&normal)?.per_s)];
    if fp8::supported(config, &gpu).is_ok() {
        speeds.push((GpuPrecision::Fp8, bench.fp8(&normal)?.per_s));
    }
    if backend::int8_supported(config).is_ok() {
        let per_s = bench.int8(&normal, &kernels)?.per_s;
        speeds.push((GpuPrecision::Int8, per_s));
        if backend::int4_supported(config).is_ok() {
            speeds.push((GpuPrecision::Int4, per_s));
        }
    }
    let layer = ExpertLayer::of(config, &normal);
    let speed = |(precision, per_s): (GpuPrecision, f64)| {
        let tflop_per_s = match (&layer, experts) {
            (Some(layer), Some(stored)) => {
                let formats = Formats::on_gpu(precision, None, Some(stored));
                let of_experts = bench.experts(layer, &kernels, formats)?.per_s;
                let share = layer.share_of_look;
                ((1.0 - share) / per_s + share / of_experts).recip()
            }
            _ => per_s,
        };
        Ok(PrecisionSpeed {
            precision,
            tflop_per_s,
        })
    };
    speeds.into_iter().map(speed).collect()
}

/// How fast products are in a precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrecisionSpeed {
    pub precision: GpuPrecision,
    pub tflop_per_s: f64,
}

/// A product of `rows` rows with a layer.
#[derive(Clone, Copy, Debug)]
struct ProductSize {
    rows: usize,
    outputs: usize,
    inner: usize,
}

impl ProductSize {
    fn tflop(self) -> f64 {
        2e-12 * self.rows as f64 * self.outputs as f64 * self.inner as f64
    }
}

struct CeilingBench<'a> {
    products: Products,
    stream: Arc<CudaStream>,
    size: ProductSize,
    load: Duration,
    clock: &'a dyn Clock,
}

impl CeilingBench<'_> {
    fn bf16(&self, normal: &[f32]) -> Result<SustainedSpeed, CudaError> {
        let values: Vec<bf16> = normal.iter().map(|&x| bf16::from_f32(x)).collect();
        let (x, weight) = self.operands(&values)?;
        let weight = WeightPointer::Bf16(weight.start());
        self.tflop_by_library(Activations::bf16(x.start(), self.size.inner), weight)
    }

    fn fp8(&self, normal: &[f32]) -> Result<SustainedSpeed, CudaError> {
        let values: Vec<u8> = normal.iter().map(|&x| e4m3(x)).collect();
        let (x, weight) = self.operands(&values)?;
        let scales = GpuScales::new(&self.stream, &[1.0])?;
        let rows = StridedRows::packed(x.start(), self.size.inner);
        let weight = WeightPointer::E4m3 {
            values: weight.start(),
            scale: scales.at(0),
            input: scales.at(0),
        };
        self.tflop_by_library(Activations::E4m3(rows, scales.at(0)), weight)
    }

    /// By the kernels of this crate.
    fn int8(&self, normal: &[f32], kernels: &Kernels) -> Result<SustainedSpeed, CudaError> {
        let ProductSize {
            rows,
            outputs,
            inner,
        } = self.size;
        let values: Vec<i8> = normal.iter().map(|x| (x * 32.0) as i8).collect();
        let (stride, ones) = (Int8Rows::stride_of(inner), vec![1.0_f32; rows.max(outputs)]);
        let ones = Buffer::from_host(&self.stream, &ones)?;
        let filled = |rows: usize, first| self.filled(&values, first, rows * stride);
        let (x, weight) = (filled(rows, 0)?, filled(outputs, RANDOM / 2)?);
        let in_rows = |values: &Buffer<i8>| Int8Rows::new(values.start(), ones.start(), inner);
        let (x, weight) = (in_rows(&x), WeightPointer::Int8(in_rows(&weight)));
        self.tflop(Activations::Int8(x), weight, |product, out| {
            kernels.int8_product(&product.linear, x, out, rows, Epilogue::Bias)
        })
    }

    fn experts(
        &self,
        layer: &ExpertLayer,
        kernels: &Kernels,
        formats: Formats<'_>,
    ) -> Result<SustainedSpeed, CudaError> {
        let ready = layer.on_gpu(kernels, formats)?;
        self.sustained(PRODUCTS, layer.tflop(), || ready.run(kernels))
    }

    /// Inputs and weights, packed.
    fn operands<T>(&self, values: &[T]) -> Result<(Buffer<T>, Buffer<T>), CudaError>
    where
        T: Copy + DeviceRepr + ValidAsZeroBits,
    {
        let ProductSize {
            rows,
            outputs,
            inner,
        } = self.size;
        Ok((
            self.filled(values, 0, bucket(rows) * inner)?,
            self.filled(values, RANDOM / 2, outputs * inner)?,
        ))
    }

    fn tflop_by_library(
        &self,
        x: Activations,
        weight: WeightPointer,
    ) -> Result<SustainedSpeed, CudaError> {
        self.tflop(x, weight, |product, _| self.products.run(product))
    }

    /// `multiply` queues the product; its results go to the rows.
    fn tflop(
        &self,
        x: Activations,
        weight: WeightPointer,
        multiply: impl Fn(&Product, StridedRows) -> Result<(), CudaError>,
    ) -> Result<SustainedSpeed, CudaError> {
        let ProductSize {
            rows,
            outputs,
            inner,
        } = self.size;
        let bias = Buffer::zeros(&self.stream, outputs)?;
        let out = Buffer::zeros(&self.stream, bucket(rows) * outputs)?;
        let linear = LinearRef {
            weight,
            bias: bias.start(),
            bias_f32: None,
            largest_input: None,
            outputs,
            inner,
        };
        let to = StridedRows::packed(out.start(), outputs);
        let product = linear.product(x, Activations::Bf16(to), rows, Epilogue::Bias);
        if linear.number() != Number::Int8 {
            self.products.prepare(&[product], None)?;
        }
        self.sustained(PRODUCTS, self.size.tflop(), || multiply(&product, to))
    }

    fn copy(&self, normal: &[f32]) -> Result<SustainedSpeed, CudaError> {
        let bytes: Vec<u8> = normal.iter().map(|&x| e4m3(x)).collect();
        let bytes: Vec<u8> = bytes.into_iter().cycle().take(COPY_BYTES).collect();
        let from = Buffer::from_host(&self.stream, &bytes)?;
        let to = Buffer::<u8>::zeros(&self.stream, COPY_BYTES)?;
        let call = || copy(&self.stream, from.start(), to.start(), COPY_BYTES);
        let gb = (2 * COPY_BYTES) as f64 * 1e-9;
        self.sustained(COPIES, gb, call)
    }

    /// `count` of the values, from number `first` on, again and again.
    fn filled<T>(&self, values: &[T], first: usize, count: usize) -> Result<Buffer<T>, CudaError>
    where
        T: Copy + DeviceRepr + ValidAsZeroBits,
    {
        let values = values.iter().copied().cycle().skip(first);
        let values: Vec<T> = values.take(count).collect();
        Buffer::from_host(&self.stream, &values)
    }

    /// Work a second over the last half of the load, by the GPU's own time. `call` queues `work` on the stream.
    fn sustained(
        &self,
        batch: usize,
        work: f64,
        call: impl Fn() -> Result<(), CudaError>,
    ) -> Result<SustainedSpeed, CudaError> {
        let began = self.clock.now();
        let mut marks = vec![self.mark()?];
        let mut moments = vec![began];
        while marks.len() <= BATCHES || self.clock.now().since(began) < self.load {
            for _ in 0..batch {
                call()?;
            }
            marks.push(self.mark()?);
            // One batch stays queued, so that the GPU never waits for the host.
            let before_last = &marks[marks.len() - 2];
            wait_for_event(before_last, "waiting for the GPU")?;
            moments.push(self.clock.now());
        }
        let (half, last) = (marks.len() / 2, marks.len() - 1);
        let ms = wait_between(&marks[half], &marks[last], "measuring the GPU")?;
        Ok(SustainedSpeed {
            per_s: ((last - half) * batch) as f64 * work / (f64::from(ms) * 1e-3),
            from: moments[half],
            to: self.clock.now(),
        })
    }

    fn mark(&self) -> Result<CudaEvent, CudaError> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let event = self.stream.record_event(flags);
        event.map_err(tried("recording an event"))
    }
}

/// Similar to a normal distribution of width 1 (the sum of four uniform values), the same at every call.
fn normal_values() -> Vec<f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut uniform = || {
        // Xorshift (Marsaglia 2003), which is enough for noise.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let scale = 3.0_f32.sqrt();
    let value = |_| (0..4).map(|_| uniform()).sum::<f32>() * scale;
    (0..RANDOM).map(value).collect()
}

/// The nearest number of the format: sign, 4 bits of exponent with bias 7, 3 of mantissa; the largest is 448.
fn e4m3(value: f32) -> u8 {
    let sign = u8::from(value.is_sign_negative()) << 7;
    let magnitude = value.abs().min(448.0);
    // Below 2^-6 the spacing of the numbers is constant.
    let exponent = magnitude.log2().floor().clamp(-6.0, 8.0);
    let steps = (magnitude / (exponent - 3.0).exp2()).round() as u8;
    sign | ((exponent as i32 + 6) as u8 * 8 + steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::released_config;
    use spotter_core::SystemClock;

    #[test]
    fn e4m3_values_equal_the_format_definition() {
        let known = [
            (0.0, 0x00),
            (1.0, 0x38),
            (-2.0, 0xC0),
            (448.0, 0x7E),
            (1e9, 0x7E),
            (0.015_625, 0x08),
            (0.001_953_125, 0x01),
            (1.06, 0x38),
            (1.07, 0x39),
            (1.99, 0x40),
        ];
        for (value, bits) in known {
            assert_eq!(e4m3(value), bits, "{value}");
        }
    }

    #[test]
    fn values_are_spread_like_a_normal_distribution() {
        let values = normal_values();
        let count = values.len() as f32;
        let mean = values.iter().sum::<f32>() / count;
        let variance = values.iter().map(|x| x * x).sum::<f32>() / count;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01);
    }

    #[test]
    #[ignore = "needs a GPU; run make test-gpu"]
    fn precisions_of_a_model_with_experts_are_timed() {
        let config = released_config("moondream3.1").unwrap();
        let clock = SystemClock::new();
        let speeds = measure_precisions(0, &config, Some(Number::E4m3), &clock).unwrap();
        println!("{speeds:?}");
        for precision in [GpuPrecision::Bf16, GpuPrecision::Int8, GpuPrecision::Int4] {
            let found = speeds.iter().find(|speed| speed.precision == precision);
            let rate = found.unwrap().tflop_per_s;
            assert!(rate.is_finite() && rate > 0.0, "{precision:?}: {rate}");
        }
    }

    #[test]
    #[ignore = "needs a GPU; run make test-gpu"]
    fn a_gpu_has_ceilings() {
        let found = measure_ceilings(0, Duration::ZERO, &SystemClock::new()).unwrap();
        for speed in [found.bf16_tflop, found.copy_gb] {
            assert!(speed.per_s.is_finite() && speed.per_s > 0.0);
            assert!(speed.from < speed.to);
        }
    }
}
