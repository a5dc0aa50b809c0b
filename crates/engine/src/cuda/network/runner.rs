//! The kernels and cuBLASLt on one stream, with which all parts of the network run their layers.

use cudarc::driver::CudaStream;
use half::bf16;
use std::sync::Arc;

use crate::cuda::{
    error::CudaError,
    fp8::InputSizes,
    kernels::{Activations, Kernels, MatrixShape, SkinnyOutput, StridedRows},
    memory::Pointer,
    products::{Epilogue, LinearRef, Product, Products},
    weights::GpuLinear,
};

/// Queues products and kernels on one stream; nothing waits.
pub struct LayerRunner {
    pub kernels: Kernels,
    products: Products,
    /// Sizes of the layers' inputs, while fp8 is calibrated.
    input_sizes: Option<InputSizes>,
    /// Memory for results in bf16 that become e4m3, where cuBLASLt does not write e4m3. In fp8 it has no other use.
    bf16_scratch: Pointer<bf16>,
}

impl LayerRunner {
    pub fn new(kernels: Kernels, products: Products, bf16_scratch: Pointer<bf16>) -> Self {
        Self {
            kernels,
            products,
            input_sizes: None,
            bf16_scratch,
        }
    }

    /// Queues a product: few rows by a kernel that reads the weights at the memory's speed, more by cuBLASLt.
    pub fn product(&self, product: &Product) -> Result<(), CudaError> {
        self.record_input_size(product)?;
        let (Activations::Bf16(x), Activations::Bf16(out)) = (product.x, product.out) else {
            return self.product_of_e4m3(product);
        };
        let (linear, rows) = (&product.linear, product.rows);
        if !Kernels::is_skinny(linear, rows) {
            return self.products.run(product);
        }
        let to = match product.epilogue {
            Epilogue::Bias => SkinnyOutput::Bf16(out),
            Epilogue::BiasGelu => SkinnyOutput::Gelu(out),
            Epilogue::BiasAdd => SkinnyOutput::Add(out),
        };
        self.kernels.skinny(linear, x, to, rows)
    }

    /// Queues `out = x w^T + bias` in f32, `[rows, outputs]`.
    pub fn product_to_f32(
        &self,
        linear: &GpuLinear,
        x: StridedRows,
        out: Pointer<f32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let linear = linear.at();
        match Kernels::is_skinny(&linear, rows) {
            true => self
                .kernels
                .skinny(&linear, x, SkinnyOutput::F32(out), rows),
            false => self.products.run_to_f32(&linear, x, out, rows),
        }
    }

    /// Plans these products, and those in bf16 that replace them. Blocks for some seconds the first time on a GPU.
    pub fn prepare(&self, expected: &[Product]) -> Result<(), CudaError> {
        self.products.prepare(expected)?;
        self.products.prepare(&self.bf16_substitutes(expected)?)
    }

    /// Collects from now on the largest inputs of these layers.
    pub fn measure_inputs(
        &mut self,
        stream: &Arc<CudaStream>,
        layers: Vec<LinearRef>,
    ) -> Result<(), CudaError> {
        self.input_sizes = Some(InputSizes::new(stream, layers.into_iter())?);
        Ok(())
    }

    /// Ends the collection. Returns the largest input of each layer. Waits for the stream.
    pub fn largest_inputs(&mut self, stream: &Arc<CudaStream>) -> Result<Vec<f32>, CudaError> {
        match self.input_sizes.take() {
            Some(sizes) => sizes.largest(stream),
            None => Err(CudaError::Fp8("its inputs were not measured".into())),
        }
    }

    /// The largest weight of each layer. Waits for the stream.
    pub fn largest_weights(
        &self,
        stream: &Arc<CudaStream>,
        layers: &[LinearRef],
    ) -> Result<Vec<f32>, CudaError> {
        let sizes = InputSizes::new(stream, layers.iter().copied())?;
        for linear in layers {
            if let Some(into) = sizes.of(linear) {
                let rows = StridedRows::packed(linear.weight, linear.inner);
                let shape = MatrixShape {
                    rows: linear.outputs,
                    width: linear.inner,
                };
                self.kernels.abs_max(rows, into, shape)?;
            }
        }
        sizes.largest(stream)
    }

    /// While inputs are measured, measures those of a product. The MLP's first layer reads the same rows as queries, keys and
    /// values, or fewer.
    fn record_input_size(&self, product: &Product) -> Result<(), CudaError> {
        let sizes = self.input_sizes.as_ref();
        match (sizes.and_then(|s| s.of(&product.linear)), product.x) {
            (Some(into), Activations::Bf16(x)) => {
                let shape = MatrixShape {
                    rows: product.rows,
                    width: product.linear.inner,
                };
                self.kernels.abs_max(x, into, shape)
            }
            _ => Ok(()),
        }
    }

    /// Queues a product whose inputs are in e4m3. Where cuBLASLt does not write e4m3 itself, it writes bf16, and a kernel
    /// converts it.
    fn product_of_e4m3(&self, product: &Product) -> Result<(), CudaError> {
        let Activations::E4m3(to, scale) = product.out else {
            return self.products.run(product);
        };
        if self.products.can_run(product)? {
            return self.products.run(product);
        }
        let (wide, rows) = self.in_bf16(product);
        self.products.run(&wide)?;
        let shape = MatrixShape {
            rows: product.rows,
            width: product.linear.outputs,
        };
        self.kernels.quantise(rows, to, scale, shape)
    }

    /// The product with its result in bf16, and where that result is.
    fn in_bf16(&self, product: &Product) -> (Product, StridedRows) {
        let rows = StridedRows::packed(self.bf16_scratch, product.linear.outputs);
        let out = Activations::Bf16(rows);
        (Product { out, ..*product }, rows)
    }

    /// Products in bf16 that replace those of `expected` whose e4m3 results cuBLASLt does not write.
    fn bf16_substitutes(&self, expected: &[Product]) -> Result<Vec<Product>, CudaError> {
        let mut bf16_substitutes = Vec::new();
        for product in expected {
            if matches!(product.out, Activations::E4m3(..)) && !self.products.can_run(product)? {
                bf16_substitutes.push(self.in_bf16(product).0);
            }
        }
        Ok(bf16_substitutes)
    }
}
