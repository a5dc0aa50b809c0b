//! One safe function for each kernel: it checks the requirements in the kernel's header, computes the grid, and launches.
//!
//! All launches go to one stream, so a kernel sees the results of the one before it. Pointers are positions in buffers that live
//! as long as the backend (`memory`). The argument lists are those of `kernels/*.cu`, in their order.

use std::{path::Path, sync::Arc};

use cudarc::driver::CudaStream;

use super::{
    compile::{KernelSource, SOURCES},
    error::CudaError,
    library::Gpu,
};
use launch::RANKS_DECODER;

mod attention;
mod decisions;
mod decode_step;
mod dense;
mod experts;
mod frames;
mod int8;
mod launch;
mod layers;
mod low_rank;
mod quantise_experts;
mod skinny;
mod sum_ranks;
mod tensor_map;

pub use attention::{AttentionParts, CachedAttention, LayerCache, TAU_OUTPUTS_MAX, tau_values};
pub use decisions::{DecideInputs, DecisionBuffers, PickTables, TokenLogits};
pub use decode_step::{DecoderWords, ONE_LAUNCH_ROWS_MAX, OneLaunchDecoder};
pub use dense::DenseAttention;
#[cfg(test)]
pub use dense::DenseKernel;
pub use experts::{
    EXPERTS_FEW_ROWS, ExpertInputs, ExpertKernel, ExpertPart, ExpertProduct, ExpertResults,
    ExpertShape, RoutedRows, Routing,
};
pub use frames::{PatchInputs, PixelSize, PlanarFrame, ScalePass, TapTables};
pub use launch::Kernels;
pub use layers::{CombineInputs, CombineShape, EmbedInputs, ImageShape};
pub use low_rank::{AdaptedRowTable, LowRankProduct, LowRankWeights, slot_rank};
pub use skinny::SkinnyOutput;
pub use sum_ranks::{
    BLOCKS_MAX, FEW_BLOCKS_MAX, RANKS_MAX, RECEIVE_BYTES, RankAddresses, RankExchange,
};

impl Kernels {
    /// Compiles (or finds compiled) and loads all of them. Blocks for some seconds the first time.
    pub fn load(gpu: &Gpu, stream: Arc<CudaStream>, cache: &Path) -> Result<Self, CudaError> {
        Self::load_of_ranks(gpu, stream, cache, 1)
    }

    /// The same on one of so many GPUs that compute the decoder together.
    pub fn load_of_ranks(
        gpu: &Gpu,
        stream: Arc<CudaStream>,
        cache: &Path,
        ranks: usize,
    ) -> Result<Self, CudaError> {
        let is_used = |source: &KernelSource| ranks > 1 || source.file != RANKS_DECODER;
        let sources: Vec<KernelSource> = SOURCES.into_iter().filter(is_used).collect();
        let mut kernels = Self::load_sources(gpu, stream, cache, &sources)?;
        kernels.allow_all_shared(gpu)?;
        Ok(kernels)
    }

    pub(super) fn allow_all_shared(&mut self, gpu: &Gpu) -> Result<(), CudaError> {
        for (name, bytes) in dense::shared_bytes() {
            self.allow_shared(&name, bytes, gpu.shared_bytes)?;
            self.allow_shared(&format!("{name}_e4m3"), bytes, gpu.shared_bytes)?;
        }
        let others = int8::shared_bytes().chain(experts::shared_bytes());
        for (name, bytes) in others.chain(decode_step::shared_bytes()) {
            self.allow_shared(&name, bytes, gpu.shared_bytes)?;
        }
        Ok(())
    }
}
