//! The kernels and cuBLASLt on one stream, with which all parts of the network run their layers.

use half::bf16;

use crate::{
    cuda::{
        error::CudaError,
        kernels::{Kernels, SkinnyOutput},
        memory::{Buffer, Pointer},
        products::Products,
        tensor::{
            Activations, Epilogue, GpuNorm, Int8Rows, LinearRef, MatrixShape, Product, StridedRows,
        },
    },
    network::format::Number,
};

/// Queues products and kernels on one stream; nothing waits.
pub struct LayerRunner {
    pub kernels: Kernels,
    products: Products,
    /// Memory for results in bf16 that become e4m3, where cuBLASLt does not write e4m3. In fp8 it has no other use.
    pub bf16_scratch: Option<Pointer<bf16>>,
    /// Where inputs of products in int8 are converted; `None` where there are none.
    int8_scratch: Option<Int8Scratch>,
}

/// Memory for rows in int8. Each conversion overwrites it.
struct Int8Scratch {
    values: Buffer<i8>,
    /// `[rows]`.
    scales: Buffer<f32>,
}

/// Values, and scales.
fn int8_lengths(inputs: &[MatrixShape]) -> [usize; 2] {
    let most = |of: fn(&MatrixShape) -> usize| inputs.iter().map(of).max().unwrap_or(0);
    [
        most(|shape| shape.rows * Int8Rows::stride_of(shape.width)),
        most(|shape| shape.rows),
    ]
}

impl LayerRunner {
    pub fn new(kernels: Kernels, products: Products) -> Self {
        Self {
            kernels,
            products,
            bf16_scratch: None,
            int8_scratch: None,
        }
    }

    /// Allocates memory for inputs of products in int8: matrices of these shapes.
    pub fn allow_int8(&mut self, inputs: &[MatrixShape]) -> Result<(), CudaError> {
        let stream = &self.kernels.stream;
        let [values, scales] = int8_lengths(inputs);
        self.int8_scratch = Some(Int8Scratch {
            values: Buffer::zeros(stream, values)?,
            scales: Buffer::zeros(stream, scales)?,
        });
        Ok(())
    }

    /// Bytes of that memory.
    pub fn int8_bytes(inputs: &[MatrixShape]) -> usize {
        let [values, scales] = int8_lengths(inputs);
        values + scales * size_of::<f32>()
    }

    /// Forgets the memory that belongs to a network.
    pub fn free_scratch(&mut self) {
        self.bf16_scratch = None;
        self.int8_scratch = None;
    }

    /// Queues the layer norm that makes the input of `product`, and returns the product with it. In int8 the norm writes int8, into
    /// memory that the next conversion to int8 overwrites.
    pub fn norm(
        &self,
        hidden: Pointer<bf16>,
        norm: &GpuNorm,
        product: Product,
    ) -> Result<Product, CudaError> {
        let Product { linear, rows, .. } = product;
        let width = linear.inner;
        let x = match Self::is_for_int8(&product) {
            true => Activations::Int8(self.int8_rows(width)?),
            false => product.x,
        };
        let shape = MatrixShape { rows, width };
        self.kernels.layer_norm(hidden, norm, x, shape)?;
        Ok(Product { x, ..product })
    }

    /// Queues a product: few rows by a kernel that reads the weights at the memory's speed, more by cuBLASLt or, with weights in
    /// int8, by a kernel in int8, before which each row of inputs in bf16 is converted with a scale of its own. With weights in e4m3,
    /// inputs in bf16 are of few rows.
    pub fn product(&self, product: &Product) -> Result<(), CudaError> {
        let &Product {
            ref linear,
            x,
            out,
            rows,
            epilogue,
        } = product;
        let shape = MatrixShape {
            rows,
            width: linear.inner,
        };
        let (x, out) = match (x, out) {
            (Activations::Bf16(x), Activations::Bf16(out)) => (x, out),
            (Activations::Int8(x), Activations::Bf16(out)) => {
                return self.kernels.int8_product(linear, x, out, rows, epilogue);
            }
            _ => return self.product_of_e4m3(product),
        };
        if let Some(largest) = linear.largest_input {
            self.kernels.abs_max(x, largest, shape)?;
        }
        if Self::is_for_int8(product) {
            let converted = self.int8_rows(shape.width)?;
            self.kernels.quantise_rows(x, converted, shape)?;
            return self
                .kernels
                .int8_product(linear, converted, out, rows, epilogue);
        }
        let is_e4m3 = linear.number() == Number::E4m3;
        if !is_e4m3 && !Kernels::is_skinny(linear, rows) {
            return self.products.run(product);
        }
        let to = match epilogue {
            Epilogue::Bias => SkinnyOutput::Bf16(out),
            Epilogue::BiasGelu => SkinnyOutput::Gelu(out),
            Epilogue::BiasAdd => SkinnyOutput::Add(out),
        };
        self.kernels.skinny_in_parts(linear, x, to, rows)
    }

    /// True for products by a kernel whose inputs are in int8: few rows stay in bf16.
    fn is_for_int8(product: &Product) -> bool {
        product.linear.number() == Number::Int8
            && !Kernels::is_skinny(&product.linear, product.rows)
    }

    /// The memory for rows in int8.
    fn int8_rows(&self, width: usize) -> Result<Int8Rows, CudaError> {
        let no_scratch = || CudaError::Shape("its layers are not in int8".into());
        let scratch = self.int8_scratch.as_ref().ok_or_else(no_scratch)?;
        let (values, scales) = (scratch.values.start(), scratch.scales.start());
        Ok(Int8Rows::new(values, scales, width))
    }

    /// Queues `out = x w^T + bias` in f32, `[rows, outputs]`.
    pub fn product_to_f32(
        &self,
        linear: &LinearRef,
        x: StridedRows,
        out: Pointer<f32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        match Kernels::is_skinny(linear, rows) {
            true => self.kernels.skinny(linear, x, SkinnyOutput::F32(out), rows),
            false => self.products.run_to_f32(linear, x, out, rows),
        }
    }

    /// Plans those of these products that cuBLASLt computes, and those in bf16 that replace them. Blocks for some seconds the first time on a GPU.
    pub fn prepare(&self, expected: &[Product]) -> Result<(), CudaError> {
        let is_planned = |product: &&Product| {
            let has_kernel = matches!(
                (product.linear.number(), product.x),
                (Number::Int8, _) | (Number::E4m3, Activations::Bf16(_))
            );
            !has_kernel
        };
        let expected: Vec<Product> = expected.iter().filter(is_planned).copied().collect();
        self.products.prepare(&expected)?;
        let mut substitutes = Vec::new();
        for product in &expected {
            if !self.products.can_run(product)? {
                let out = Activations::Bf16(self.bf16_rows(product)?);
                substitutes.push(Product { out, ..*product });
            }
        }
        self.products.prepare(&substitutes)
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
        let rows = self.bf16_rows(product)?;
        let out = Activations::Bf16(rows);
        self.products.run(&Product { out, ..*product })?;
        let shape = MatrixShape {
            rows: product.rows,
            width: product.linear.outputs,
        };
        self.kernels.quantise(rows, to, scale, shape)
    }

    /// Where the result of a product is in bf16 before it becomes e4m3.
    fn bf16_rows(&self, product: &Product) -> Result<StridedRows, CudaError> {
        let scratch = self.bf16_scratch;
        let scratch = scratch.ok_or_else(|| CudaError::Fp8("its layers are not in fp8".into()))?;
        Ok(StridedRows::packed(scratch, product.linear.outputs))
    }
}
