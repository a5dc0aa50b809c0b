//! The kernels and cuBLASLt on one stream, with which all parts of the network run their layers.

use std::collections::HashMap;

use half::bf16;

use crate::{
    cuda::{
        error::CudaError,
        kernels::{Kernels, SkinnyOutput},
        memory::{Buffer, Pointer},
        peers::Peers,
        products::{ProductShape, Products},
        tensor::{Activations, Epilogue, Int8Rows, LinearRef, MatrixShape, Product, StridedRows},
    },
    network::format::Number,
};

/// Queues products and kernels on one stream; nothing waits.
pub struct LayerRunner {
    pub kernels: Kernels,
    products: Products,
    /// Of a rank.
    pub peers: Option<Peers>,
    /// Memory for results in bf16 that become e4m3, where cuBLASLt does not write e4m3. In fp8 it has no other use.
    pub bf16_scratch: Option<Pointer<bf16>>,
    /// Where inputs of products in int8 are made: values, and a scale for each row. Each conversion overwrites it.
    int8_scratch: Option<(Buffer<i8>, Buffer<f32>)>,
}

/// Products that cuBLASLt will compute, one of each shape.
#[derive(Default)]
pub struct ExpectedProducts(HashMap<ProductShape, Product>);

impl ExpectedProducts {
    /// Adds a product, unless a kernel computes it.
    pub fn add(&mut self, product: Product) {
        let has_kernel = matches!(
            (product.linear.number(), product.x),
            (Number::Int8, _) | (Number::E4m3, Activations::Bf16(_))
        );
        if !has_kernel {
            self.0.insert(ProductShape::of(&product), product);
        }
    }
}

impl LayerRunner {
    pub fn new(kernels: Kernels, products: Products) -> Self {
        Self {
            kernels,
            products,
            peers: None,
            bf16_scratch: None,
            int8_scratch: None,
        }
    }

    /// Allocates memory for inputs of products in int8: values and scales.
    pub fn allow_int8(&mut self, [values, scales]: [usize; 2]) -> Result<(), CudaError> {
        let stream = &self.kernels.stream;
        let values = Buffer::zeros(stream, values)?;
        self.int8_scratch = Some((values, Buffer::zeros(stream, scales)?));
        Ok(())
    }

    /// Forgets the memory that belongs to a network.
    pub fn free_scratch(&mut self) {
        self.bf16_scratch = None;
        self.int8_scratch = None;
    }

    /// Where `rows` inputs of a layer are made: in `place` or, in int8, in memory that the next conversion to int8 overwrites.
    pub fn inputs(
        &self,
        layer: &LinearRef,
        place: Activations,
        rows: usize,
    ) -> Result<Activations, CudaError> {
        Ok(match Self::is_for_int8(layer, rows) {
            true => Activations::Int8(self.int8_rows(layer.inner)?),
            false => place,
        })
    }

    /// Queues a product: few rows by a kernel that reads the weights at the memory's speed, more by cuBLASLt or, with weights in
    /// int8, by a kernel in int8, before which each row of inputs in bf16 is converted with a scale of its own. With weights in e4m3,
    /// inputs in bf16 are of few rows. Results in f32 of weights in int8 are those of the vocabulary, of rows that are often few.
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
            (Activations::Bf16(x), Activations::F32(out))
                if Kernels::is_skinny(linear, rows) || linear.number() == Number::Int8 =>
            {
                let to = SkinnyOutput::F32(out.start);
                return self.kernels.skinny_in_parts(linear, x, to, rows);
            }
            _ => return self.product_by_library(product),
        };
        if let Some(largest) = linear.largest_input {
            self.kernels.abs_max(x, largest, shape)?;
        }
        if Self::is_for_int8(linear, rows) {
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
    fn is_for_int8(layer: &LinearRef, rows: usize) -> bool {
        layer.number() == Number::Int8 && !Kernels::is_skinny(layer, rows)
    }

    /// The memory for rows in int8.
    fn int8_rows(&self, width: usize) -> Result<Int8Rows, CudaError> {
        let no_scratch = || CudaError::Shape("its layers are not in int8".into());
        let (values, scales) = self.int8_scratch.as_ref().ok_or_else(no_scratch)?;
        Ok(Int8Rows::new(values.start(), scales.start(), width))
    }

    /// Plans these products, and those in bf16 that replace them. Blocks for some seconds the first time on a GPU. Nothing uses `idle`, zeros,
    /// meanwhile.
    pub fn prepare(&self, expected: ExpectedProducts, idle: Pointer<u8>) -> Result<(), CudaError> {
        let expected: Vec<Product> = expected.0.into_values().collect();
        self.products.prepare(&expected, Some(idle))?;
        let mut substitutes = Vec::new();
        for product in &expected {
            if !self.products.can_run(product)? {
                let out = Activations::Bf16(self.bf16_rows(product)?);
                substitutes.push(Product { out, ..*product });
            }
        }
        self.products.prepare(&substitutes, Some(idle))
    }

    /// Queues a product by cuBLASLt. Where that does not write e4m3 itself, it writes bf16, and a kernel
    /// converts it.
    fn product_by_library(&self, product: &Product) -> Result<(), CudaError> {
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
