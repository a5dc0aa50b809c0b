//! Errors on the way to a GPU and on it.

use cudarc::{cublaslt::result::CublasError, driver::DriverError, nvrtc::result::NvrtcError};

use super::arch::Capability;
use crate::{model::WeightsError, ranks::RankLeft, scheduler::backend::BackendError};

/// An error of the CUDA backend.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// A library is not on this machine.
    #[error("no GPU: {library} was not found; install {package}")]
    Missing {
        library: &'static str,
        package: &'static str,
    },
    /// A GPU that the machine does not have.
    #[error(
        "no GPU {index}: the machine shows {count}, counted from 0; `nvidia-smi -L` lists them"
    )]
    Absent { index: u32, count: i32 },
    /// No tensor cores for bf16.
    #[error(
        "the GPU {name} has compute capability {capability}, 8.0 or newer is needed; use device = \"cpu\""
    )]
    TooOld {
        name: String,
        capability: Capability,
    },
    /// An architecture that was asked for cannot be used.
    #[error("{0}")]
    Arch(String),
    /// The GPU or the model does not support fp8.
    #[error("this model does not run in fp8: {0}; set precision = \"bf16\"")]
    Fp8(String),
    /// The model does not support int8.
    #[error("this model does not run in int8: {0}; set precision = \"bf16\"")]
    Int8(String),
    /// The model does not support int4.
    #[error("this model does not run in int4: {0}; set precision = \"int8\"")]
    Int4(String),
    /// The file of the weights cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A call of the driver failed.
    #[error("{what}: {source}")]
    Driver {
        what: &'static str,
        source: DriverError,
    },
    /// A call of cuBLASLt failed.
    #[error("{what}: {source}")]
    Product { what: String, source: CublasError },
    /// A kernel does not compile.
    #[error("compiling kernel {file} for {arch}: {source}\n{log}")]
    Compile {
        file: &'static str,
        arch: String,
        source: NvrtcError,
        log: String,
    },
    /// A GPU that can access the memory of another one, and may not.
    #[error(
        "GPU {gpu} cannot be given access to the memory of GPU {peer}: {source}; set SPOTTER_NO_PEER=1, and they exchange through memory of the host"
    )]
    Peer {
        gpu: usize,
        peer: usize,
        source: DriverError,
    },
    #[error(transparent)]
    RankLeft(#[from] RankLeft),
    /// A frame that a decoder left on a GPU.
    #[error("a frame cannot be read from the memory of a GPU: {0}")]
    Frame(&'static str),
    /// A step or a picture is larger than the buffers that were planned.
    #[error("{0}")]
    TooLarge(String),
    /// A kernel and the program disagree about the kernel's arguments.
    #[error("{0}; the program is wrong, report this")]
    Arguments(String),
    /// The kernels do not support the shape of the model.
    #[error("this model does not run on the GPU: {0}; use device = \"cpu\"")]
    Shape(String),
}

impl From<CudaError> for BackendError {
    /// The message has what was tried, the answer of the driver, and what to do. After most errors of the driver the process cannot use
    /// that GPU any more; [`CudaBackend`](super::CudaBackend) finds out where that is not certain.
    fn from(error: CudaError) -> Self {
        use cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        match &error {
            CudaError::Driver { source, .. } if source.0 == CUDA_ERROR_OUT_OF_MEMORY => {
                Self::Step(format!(
                    "{error}; end other programs that use the GPU's memory, or lower model.memory and restart Spotter"
                ))
            }
            CudaError::Driver { .. } | CudaError::Product { .. } => Self::Device(format!(
                "{error}; restart Spotter, and if the error repeats, look for \"Xid\" in the kernel's log (dmesg)"
            )),
            _ => Self::Step(error.to_string()),
        }
    }
}

/// An error that names the first of a model's widths that is no multiple of `factor`.
pub fn require_multiples(widths: &[(&str, usize)], factor: usize) -> Result<(), String> {
    match widths
        .iter()
        .find(|(_, width)| !width.is_multiple_of(factor))
    {
        Some((name, width)) => Err(format!("{name} is {width}, must be a multiple of {factor}")),
        None => Ok(()),
    }
}

/// For `map_err`: names what was tried.
pub fn tried(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |source| CudaError::Driver { what, source }
}
