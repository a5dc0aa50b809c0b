//! The network in fp8: what is watched before, how it begins, and products that write e4m3.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::Network;
use crate::cuda::{
    error::CudaError,
    fp8::{Fp8, Watch},
    kernels::{ROWS_MAX, Rows, Values},
    products::{LinearAt, Product},
};

/// Kernel by kernel, steps of up to so many positions are in bf16: they are bound by reading weights, and where a GPU can do that
/// well, they are one launch (`decode`), in fp8 too.
const POSITIONS_IN_BF16: usize = ROWS_MAX;

impl Network {
    /// Collects from now on how large the inputs of the layers get that can be in fp8.
    pub fn watch(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        self.watch = Some(Watch::new(stream, self.quantised().into_iter())?);
        Ok(())
    }

    /// Runs these layers in fp8 from now on, with scales from what was watched. Waits for the stream.
    pub fn quantise(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let Some(watch) = self.watch.take() else {
            return Err(CudaError::Fp8("nothing was watched".into()));
        };
        let inputs = watch.largest(stream)?;
        // Of the weights themselves.
        let weights = Watch::new(stream, self.quantised().into_iter())?;
        for linear in self.quantised() {
            if let Some(into) = weights.of(&linear) {
                let rows = Rows::packed(linear.weight, linear.inner);
                let shape = (linear.outputs, linear.inner);
                self.kernels.largest(rows, into, shape)?;
            }
        }
        let mut largest = weights.largest(stream)?.into_iter();
        for linear in self.weights.blocks_mut() {
            let largest = largest.next().unwrap_or_default();
            linear.quantise(stream, &self.kernels, largest)?;
        }
        let (vision, text) = inputs.split_at(self.weights.vision.len() * 4);
        let rows = (
            self.vision.crops * self.config.image_tokens(),
            self.text.hidden.start().len() / self.config.text.dim,
        );
        let fp8 = Fp8::new(stream, &self.config, rows, (vision, text))?;
        if let Some(decoder) = &mut self.decoder {
            decoder.quantise(stream, &self.weights.text, |block| fp8.text_scales(block))?;
        }
        self.fp8 = Some(fp8);
        Ok(())
    }

    /// The layers that can be in fp8: of each block, the vision encoder's first.
    fn quantised(&self) -> Vec<LinearAt> {
        let vision = self.weights.vision.iter().flat_map(|b| b.linears());
        let text = self.weights.text.iter().flat_map(|b| b.linears());
        vision.chain(text).map(|linear| linear.at()).collect()
    }

    /// Inputs of the four layers of a block of the vision encoder.
    pub(super) fn vision_inputs(&self, block: usize) -> [Values; 4] {
        let (config, scratch) = (&self.config.vision, &self.vision);
        match &self.fp8 {
            Some(fp8) => fp8.vision(block),
            None => {
                let normed = Values::bf16(scratch.normed.start(), config.enc_dim);
                let attended = Values::bf16(scratch.attended.start(), config.enc_dim);
                let inner = Values::bf16(scratch.inner.start(), config.enc_ff_dim);
                [normed, attended, normed, inner]
            }
        }
    }

    /// Inputs of a block of the decoder in a step of `positions`: normed, and attention's result beside the MLP's inner
    /// values.
    pub(super) fn text_inputs(&self, block: usize, positions: usize) -> [Values; 2] {
        let (config, scratch) = (&self.config.text, &self.text);
        match &self.fp8 {
            Some(fp8) if positions > POSITIONS_IN_BF16 => fp8.text(block),
            _ => [
                Values::bf16(scratch.normed.start(), config.dim),
                Values::bf16(scratch.mix.start(), config.dim + config.ff_dim),
            ],
        }
    }

    /// Notes how large the inputs of a product are, while that is watched. What goes into the MLP reads the same as queries, keys
    /// and values, and less of it.
    pub(super) fn note(&self, product: &Product) -> Result<(), CudaError> {
        let into = self.watch.as_ref().and_then(|w| w.of(&product.linear));
        match (into, product.x) {
            (Some(into), Values::Bf16(x)) => {
                let shape = (product.rows, product.linear.inner);
                self.kernels.largest(x, into, shape)
            }
            _ => Ok(()),
        }
    }

    /// Queues a product whose inputs are in e4m3. Where cuBLASLt does not write e4m3 itself, it writes bf16, and a kernel
    /// makes e4m3 of it.
    pub(super) fn product_of_e4m3(&self, product: &Product) -> Result<(), CudaError> {
        let Values::E4m3(to, scale) = product.out else {
            return self.products.run(product);
        };
        if self.products.takes(product)? {
            return self.products.run(product);
        }
        let (wide, rows) = self.in_bf16(product);
        self.products.run(&wide)?;
        let shape = (product.rows, product.linear.outputs);
        self.kernels.quantise(rows, (to, scale), shape)
    }

    /// The product with its result in bf16, and where that is: room that fp8 does not use.
    fn in_bf16(&self, product: &Product) -> (Product, Rows) {
        let rooms = [self.vision.inner.start(), self.text.mix.start()];
        let [a, b] = rooms;
        let room = if a.len() > b.len() { a } else { b };
        let rows = Rows::packed(room, product.linear.outputs);
        let out = Values::Bf16(rows);
        (Product { out, ..*product }, rows)
    }

    /// What these products need beside themselves: where cuBLASLt does not write e4m3, the products in bf16.
    pub(super) fn detours(&self, expected: &[Product]) -> Result<Vec<Product>, CudaError> {
        let mut detours = Vec::new();
        for product in expected {
            if matches!(product.out, Values::E4m3(..)) && !self.products.takes(product)? {
                detours.push(self.in_bf16(product).0);
            }
        }
        Ok(detours)
    }
}
