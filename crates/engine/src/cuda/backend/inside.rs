//! Access of tests to the inside of the backend.

use super::CudaBackend;
use crate::{
    cuda::{error::CudaError, graphs::Graphs, network::NetworkBuffer},
    model::ModelConfig,
};

impl CudaBackend {
    /// Without the decoder in one launch: it runs kernel by kernel.
    pub fn without_one_launch(mut self) -> Self {
        self.network.forget_decoder();
        self
    }

    /// True when steps of few positions run in one launch.
    pub fn has_one_launch(&self) -> bool {
        self.network.has_decoder()
    }

    /// With the first blocks only, of the encoder and of the decoder.
    pub fn with_blocks(mut self, encoder: usize, decoder: usize) -> Self {
        self.graphs = Graphs::new(self.streams.compute.clone());
        self.network.keep_blocks(encoder, decoder);
        self
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The first `len` values of a buffer after the last step. Waits for it.
    pub fn read(&self, part: NetworkBuffer, len: usize) -> Result<Vec<f32>, CudaError> {
        self.network.read(&self.streams.compute, part, 0..len)
    }

    /// Keys and values of a layer, in the layout of `kernels/common.cuh`.
    pub fn cache(&self, layer: usize) -> Result<[Vec<f32>; 2], CudaError> {
        let values = self.network.layer_values();
        let read = |part| {
            let range = layer * values..(layer + 1) * values;
            self.network.read(&self.streams.compute, part, range)
        };
        Ok([read(NetworkBuffer::Keys)?, read(NetworkBuffer::Values)?])
    }

    /// Tokens of the first image and hidden states of the first positions of the last step. Waits for it.
    pub fn inside(&self, positions: usize) -> Result<[Vec<f32>; 2], CudaError> {
        let width = self.config.text.dim;
        let tokens = self.read(NetworkBuffer::Tokens, self.config.image_tokens() * width)?;
        Ok([tokens, self.read(NetworkBuffer::Hidden, positions * width)?])
    }
}
