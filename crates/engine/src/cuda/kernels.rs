//! One safe function for each kernel: it checks the requirements in the kernel's header, computes the grid, and launches.
//!
//! All launches go to one stream, so a kernel sees the results of the one before it. Pointers are positions in buffers that live
//! as long as the backend (`memory`). The argument lists are those of `kernels/*.cu`, in their order.

use std::{collections::HashMap, ffi::c_void, path::Path, sync::Arc};

use cudarc::{
    driver::{
        CudaFunction, CudaStream, result,
        sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    },
    nvrtc::Ptx,
};

use super::{
    compile::{KernelSource, SOURCES, cached_code},
    decode,
    error::{CudaError, tried},
    library::Gpu,
    memory::Pointer,
};

/// Positions of a page of the cache (`kernels/common.cuh`).
pub const PAGE: usize = 16;
/// Values of a head of the decoder.
pub const TEXT_HEAD: usize = 64;
/// Rows of a tile of `attend_prefix`.
pub const TILE: usize = 16;

mod attention;
mod decisions;
mod dense;
mod frames;
mod int8;
mod layers;
mod skinny;
mod tensor_map;
mod values;

pub use attention::{AttentionParts, CachedAttention, LayerCache};
pub use decisions::{DecideInputs, DecisionBuffers, PickTables, TokenLogits};
pub use dense::DenseAttention;
#[cfg(test)]
pub use dense::DenseKernel;
pub use frames::{PatchInputs, PixelSize, PlanarFrame, ScalePass, ShrunkPlane, TapTables};
pub use int8::Int8Rows;
pub use layers::{CombineInputs, CombineShape, EmbedInputs, ImageShape};
pub use skinny::SkinnyOutput;
pub use values::{Activations, MatrixShape, SCALE_STEP, Scale, StridedRows};

/// All kernels that the GPU can run, loaded, with the stream that they run on.
pub struct Kernels {
    pub stream: Arc<CudaStream>,
    pub multiprocessors: usize,
    by_name: HashMap<&'static str, LoadedKernel>,
}

struct LoadedKernel {
    function: CudaFunction,
    /// Dynamic shared memory of a block.
    shared_bytes: usize,
    /// The blocks wait for each other: all run at once, or the driver rejects the launch.
    is_cooperative: bool,
}

/// An argument of a launch, in the C type of the kernel's declaration.
pub(crate) trait KernelArgument {
    type Declared;
    fn declared(self) -> Self::Declared;
}

impl<T> KernelArgument for Pointer<T> {
    type Declared = u64;
    fn declared(self) -> u64 {
        self.address()
    }
}

impl KernelArgument for Activations {
    type Declared = u64;
    fn declared(self) -> u64 {
        self.address()
    }
}

impl KernelArgument for usize {
    type Declared = i32;
    fn declared(self) -> i32 {
        self as i32
    }
}

impl KernelArgument for f32 {
    type Declared = Self;
    fn declared(self) -> Self {
        self
    }
}

/// An argument that a kernel declares as it is.
pub(crate) struct ByValue<T>(pub T);

impl<T> KernelArgument for ByValue<T> {
    type Declared = T;
    fn declared(self) -> T {
        self.0
    }
}

pub(crate) fn address<T>(argument: &T) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}

/// Queues a kernel by its name. The arguments must be those of its declaration, in order; behind them may be more, which the driver
/// does not read.
macro_rules! launch {
    ($kernels:expr, $name:expr, $grid:expr, $threads:expr, [$($argument:expr),* $(,)?]) => {
        // SAFETY: the arguments have the order and the C types of the kernel's declaration, and stay alive for the call,
        // which copies them. The memory that they point to was checked by the caller of this macro, lives as long as the
        // backend, and is only used on this stream or behind an event.
        unsafe {
            $kernels.launch($name, $grid, $threads, &mut [
                $($crate::cuda::kernels::address(&$crate::cuda::kernels::KernelArgument::declared($argument))),*
            ])
        }
    };
}

pub(crate) use launch;

/// An error that names the requirement when it is not met.
pub(crate) fn require(met: bool, what: &'static str) -> Result<(), CudaError> {
    match met {
        true => Ok(()),
        false => Err(CudaError::Shape(what.into())),
    }
}

impl Kernels {
    /// # Safety
    /// `arguments` are the kernel's, in their order and types, and the memory that they point to is large enough for it.
    pub(crate) unsafe fn launch(
        &self,
        name: &str,
        grid: (usize, usize, usize),
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let Some((name, kernel)) = self.by_name.get_key_value(name) else {
            return Err(CudaError::Shape(format!("this GPU has no kernel {name}")));
        };
        let launch = match kernel.is_cooperative {
            true => result::launch_cooperative_kernel,
            false => result::launch_kernel,
        };
        // SAFETY: the function belongs to a module that is loaded as long as it is; the rest is the caller's promise.
        unsafe {
            launch(
                kernel.function.cu_function(),
                (grid.0 as u32, grid.1 as u32, grid.2 as u32),
                (threads, 1, 1),
                kernel.shared_bytes as u32,
                self.stream.cu_stream(),
                arguments,
            )
        }
        .map_err(tried(name))
    }

    /// Compiles (or finds compiled) and loads all of them. Blocks for some seconds the first time.
    pub fn load(gpu: &Gpu, stream: Arc<CudaStream>, cache: &Path) -> Result<Self, CudaError> {
        Self::load_sources(gpu, stream, cache, &SOURCES)
    }

    /// The same with the kernels of one file.
    pub fn load_file(
        gpu: &Gpu,
        stream: Arc<CudaStream>,
        cache: &Path,
        file: &str,
    ) -> Result<Self, CudaError> {
        let source = SOURCES.iter().position(|source| source.file == file);
        let sources = source.map_or(&[][..], |index| &SOURCES[index..=index]);
        Self::load_sources(gpu, stream, cache, sources)
    }

    fn load_sources(
        gpu: &Gpu,
        stream: Arc<CudaStream>,
        cache: &Path,
        sources: &[KernelSource],
    ) -> Result<Self, CudaError> {
        let mut by_name = HashMap::new();
        for source in sources {
            let is_supported = match source.file {
                "attend_wide.cu" | "int8_wide.cu" => gpu.arch == "sm_90a",
                _ => true,
            };
            if !is_supported {
                continue;
            }
            let code = cached_code(source, &gpu.arch, gpu.driver_version, cache)?;
            let module = gpu.context.load_module(Ptx::from_binary(code));
            let module = module.map_err(tried("loading a kernel into the GPU"))?;
            for name in source.kernels() {
                let function = module.load_function(name);
                let kernel = LoadedKernel {
                    function: function.map_err(tried("looking for a kernel in its module"))?,
                    shared_bytes: 0,
                    is_cooperative: source.file == "decode_step.cu",
                };
                by_name.insert(name, kernel);
            }
        }
        let mut kernels = Self {
            stream,
            multiprocessors: gpu.multiprocessors,
            by_name,
        };
        for (name, bytes) in dense::shared_bytes() {
            kernels.allow_shared(&name, bytes, gpu.shared_bytes)?;
            kernels.allow_shared(&format!("{name}_e4m3"), bytes, gpu.shared_bytes)?;
        }
        for (name, bytes) in int8::shared_bytes().chain(decode::shared_bytes()) {
            kernels.allow_shared(&name, bytes, gpu.shared_bytes)?;
        }
        Ok(kernels)
    }

    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Allows blocks of the kernel, if it is loaded, `bytes` of dynamic shared memory; more than 48 KB requires this.
    /// An error beyond `most`, which is less than the GPU has where the limits of an older one are wanted.
    fn allow_shared(&mut self, name: &str, bytes: usize, most: usize) -> Result<(), CudaError> {
        let Some(kernel) = self.by_name.get_mut(name) else {
            return Ok(());
        };
        require(
            bytes <= most,
            "a kernel needs more shared memory than the architecture has",
        )?;
        kernel.shared_bytes = bytes;
        let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let allowed = kernel.function.set_attribute(attribute, bytes as i32);
        allowed.map_err(tried("requesting shared memory"))
    }
}
