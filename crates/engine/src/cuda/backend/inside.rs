//! What tests see of the backend behind its contract.

use super::CudaBackend;
use crate::{
    cuda::{error::CudaError, graphs::Graphs, network::NetworkBuffer},
    model::ModelConfig,
};

impl CudaBackend {
    /// Without the decoder in one launch.
    pub fn without_one_launch(mut self) -> Self {
        self.network.forget_decoder();
        self
    }

    /// True with it.
    pub fn has_one_launch(&self) -> bool {
        self.network.has_decoder()
    }

    /// With the first blocks only, of the encoder and of the decoder.
    pub fn with_blocks(mut self, encoder: usize, decoder: usize) -> Self {
        self.graphs = Graphs::new(self.streams.compute.clone());
        self.network.keep_blocks(encoder, decoder);
        self
    }

    /// The model's dimensions.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The first `len` values of a part, as the last step left them. Waits for it.
    pub fn read(&self, part: NetworkBuffer, len: usize) -> Result<Vec<f32>, CudaError> {
        self.network.read(&self.streams.compute, part, 0..len)
    }

    /// Keys and values of a layer, laid out as in `kernels/common.cuh`.
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
