//! Access of tests to the network: its buffers after the last step, and a network with fewer blocks.
//!
//! A step without rows leaves the states of its images in front of the last block of the decoder, which makes only keys and
//! values of them. With the blocks behind some block cut off, the states behind every block can be seen.

use std::{ops::Range, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::Network;
use crate::cuda::{error::CudaError, memory::Buffer};

/// A buffer of the network. Rows of the step are at its start, without gaps; the rows behind them are of earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkBuffer {
    /// Patches behind the last block of the encoder, `[crops * image tokens, encoder's width]`.
    Patches,
    /// The same behind the last norm.
    Features,
    /// Tokens of images, `[images * image tokens, width]`.
    Tokens,
    /// Positions behind the last block of the decoder, `[positions, width]`: rows, then images. Those of images are one block
    /// behind.
    Hidden,
    /// `[layers][layer_values]`, a layer as in `kernels/common.cuh`.
    Keys,
    /// The same.
    Values,
    /// Logits of coordinates, `[decisions, 1024]`.
    Coords,
    /// Logits of sizes, `[decisions, 2048]`.
    Sizes,
    /// Logits of tokens, `[decisions, vocabulary]`.
    Logits,
}

impl Network {
    /// Some values of a buffer. Waits for the stream.
    pub fn read(
        &self,
        stream: &Arc<CudaStream>,
        part: NetworkBuffer,
        range: Range<usize>,
    ) -> Result<Vec<f32>, CudaError> {
        let narrow = |buffer: &Buffer<bf16>| {
            let values = buffer.to_host(stream)?;
            Ok(values[range.clone()].iter().map(|x| x.to_f32()).collect())
        };
        let wide = |buffer: &Buffer<f32>| Ok(buffer.to_host(stream)?[range.clone()].to_vec());
        match part {
            NetworkBuffer::Patches => narrow(&self.vision.hidden),
            NetworkBuffer::Features => narrow(&self.vision.normed),
            NetworkBuffer::Tokens => narrow(&self.vision.tokens),
            NetworkBuffer::Hidden => narrow(&self.text.hidden),
            NetworkBuffer::Keys => narrow(&self.text.keys),
            NetworkBuffer::Values => narrow(&self.text.values),
            NetworkBuffer::Coords => wide(&self.heads.coords),
            NetworkBuffer::Sizes => wide(&self.heads.sizes),
            NetworkBuffer::Logits => wide(&self.heads.logits),
        }
    }

    /// Values of a layer of the cache.
    pub fn layer_values(&self) -> usize {
        self.text.layer_values
    }

    /// Forgets all blocks but the first, of the encoder and of the decoder. Recorded graphs become invalid.
    pub fn keep_blocks(&mut self, encoder: usize, decoder: usize) {
        self.text.forget_one_launch();
        self.vision.keep_blocks(encoder);
        self.text.keep_blocks(decoder);
    }

    pub fn forget_decoder(&mut self) {
        self.text.forget_one_launch();
    }

    pub fn has_decoder(&self) -> bool {
        self.text.has_one_launch()
    }
}
