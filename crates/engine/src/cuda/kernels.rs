//! One safe function for each kernel: it checks the requirements in the kernel's header, computes the grid, and launches.
//!
//! All launches go to one stream, so a kernel sees the results of the one before it. Pointers are positions in buffers that live
//! as long as the backend (`memory`). The argument lists are those of `kernels/*.cu`, in their order.

use std::{ffi::c_void, path::Path, sync::Arc};

use cudarc::{
    driver::{
        CudaFunction, CudaStream, result,
        sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    },
    nvrtc::Ptx,
};

use super::{
    compile::{SOURCES, cached_cubin},
    error::{CudaError, tried},
    library::Gpu,
};

/// Positions of a page of the cache (`kernels/common.cuh`).
pub const PAGE: usize = 16;
/// Values of a head of the decoder.
pub const TEXT_HEAD: usize = 64;
/// Rows of a tile of `attend_prefix`.
pub const TILE: usize = 16;

mod attention;
mod decisions;
mod decode;
mod dense;
mod frames;
mod layers;
mod quantise;
mod skinny;
mod tensor_map;
mod values;

use decode::DecodeKernels;
use dense::DenseKernels;

pub use attention::{
    AttentionParts, CachedAttention, LayerCache, OwnTables, PrefixTables, RopeInputs,
};
pub use decisions::{DecideInputs, DecisionBuffers, PickTables, TokenLogits};
pub use decode::{
    DecodeArguments, DecodeLayers, DecodeScratch, DecodeShape, DecodeStates, DecodeTables, GATES,
    LAYER_WORDS, ROWS_MAX, UNIT, WIDTH,
};
pub use dense::DenseAttention;
#[cfg(test)]
pub use dense::DenseKernel;
pub use frames::{Coefficients, PatchInputs, PixelSize, PlanarFrame, ScalePass, TapsRef};
pub use layers::{
    CombineInputs, CombineShape, EmbedInputs, EmbeddedRows, EncoderRef, ImageShape, InputTables,
    NormRef,
};
pub use skinny::SkinnyOutput;
pub use values::{Activations, MatrixShape, SCALE_STEP, Scale, StridedRows};

/// All kernels, loaded, with the stream that they run on.
pub struct Kernels {
    stream: Arc<CudaStream>,
    dense: DenseKernels,
    attend_prefix: CudaFunction,
    attend_own: CudaFunction,
    attend_own_e4m3: CudaFunction,
    choose_token: CudaFunction,
    combine: CudaFunction,
    add_places: CudaFunction,
    decide: CudaFunction,
    embed: CudaFunction,
    place_images: CudaFunction,
    gather_rows: CudaFunction,
    rgb_from_planes: CudaFunction,
    scale_across: CudaFunction,
    scale_down: CudaFunction,
    patches: CudaFunction,
    layer_norm: CudaFunction,
    layer_norm_few: CudaFunction,
    layer_norm_e4m3: CudaFunction,
    layer_norm_few_e4m3: CudaFunction,
    quantise: CudaFunction,
    abs_max: CudaFunction,
    rope_scatter: CudaFunction,
    /// By rows (up to 8, up to 16), then by epilogue.
    skinny: [[CudaFunction; 4]; 2],
    /// `None` where the GPU cannot run them.
    decode_step: Option<DecodeKernels>,
}

fn address<T>(argument: &T) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}

/// Launches `$function`; the arguments must be those of the kernel, in order and type.
macro_rules! launch {
    (@push $arguments:ident, $pointers:ident, [] [$($rest:tt)*]) => {};
    (@push $arguments:ident, $pointers:ident, [$head:expr $(, $tail:expr)*] [$index:tt $($rest:tt)*]) => {
        $pointers.push($crate::cuda::kernels::address(&$arguments.$index));
        launch!(@push $arguments, $pointers, [$($tail),*] [$($rest)*]);
    };
    ($kernels:expr, $function:ident, $grid:expr, $threads:expr, $shared:expr, [$($argument:expr),* $(,)?]) => {
        launch!(@on $kernels, &$kernels.$function, stringify!($function), $grid, $threads, $shared, [$($argument),*])
    };
    (@on $kernels:expr, $($rest:tt)*) => {
        launch!(@by false, $kernels, $($rest)*)
    };
    (@cooperative $kernels:expr, $($rest:tt)*) => {
        launch!(@by true, $kernels, $($rest)*)
    };
    (@by $cooperative:literal, $kernels:expr, $function:expr, $name:expr, $grid:expr, $threads:expr, $shared:expr, [$($argument:expr),* $(,)?]) => {{
        let arguments = ($($argument,)*);
        let mut pointers: Vec<*mut std::ffi::c_void> = Vec::with_capacity(20);
        launch!(@push arguments, pointers, [$($argument),*] [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]);
        let blocks = $crate::cuda::kernels::LaunchGrid {
            grid: $grid,
            threads: $threads,
            shared_bytes: $shared,
            is_cooperative: $cooperative,
        };
        // SAFETY: the arguments have the order and the C types of the kernel's declaration, and stay alive for the call,
        // which copies them. The memory that they point to was checked by the caller of this macro, lives as long as the
        // backend, and is only used on this stream or behind an event.
        unsafe { $kernels.launch($function, $name, blocks, &mut pointers) }
    }};
}

pub(crate) use launch;

/// The blocks of a launch.
pub(crate) struct LaunchGrid {
    pub grid: (usize, usize, usize),
    pub threads: u32,
    pub shared_bytes: u32,
    /// The blocks wait for each other: all run at once, or the driver rejects the launch.
    pub is_cooperative: bool,
}

/// An error that names the requirement when it is not met.
fn require(met: bool, what: &'static str) -> Result<(), CudaError> {
    match met {
        true => Ok(()),
        false => Err(CudaError::Shape(what.into())),
    }
}

impl Kernels {
    /// # Safety
    /// `arguments` are the function's, in their order and types, and the memory that they point to is large enough for it.
    unsafe fn launch(
        &self,
        function: &CudaFunction,
        name: &'static str,
        blocks: LaunchGrid,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let (x, y, z) = blocks.grid;
        let launch = match blocks.is_cooperative {
            true => result::launch_cooperative_kernel,
            false => result::launch_kernel,
        };
        // SAFETY: the function belongs to a module that is loaded as long as it is; the rest is the caller's promise.
        unsafe {
            launch(
                function.cu_function(),
                (x as u32, y as u32, z as u32),
                (blocks.threads, 1, 1),
                blocks.shared_bytes,
                self.stream.cu_stream(),
                arguments,
            )
        }
        .map_err(tried(name))
    }

    /// Compiles (or finds compiled) and loads all of them. Blocks for some seconds the first time.
    pub fn load(gpu: &Gpu, stream: Arc<CudaStream>, cache: &Path) -> Result<Self, CudaError> {
        let mut modules = Vec::with_capacity(SOURCES.len());
        for source in &SOURCES {
            let code = cached_cubin(source, &gpu.arch, gpu.driver_version, cache)?;
            let module = gpu.context.load_module(Ptx::from_binary(code));
            modules.push(module.map_err(tried("loading a kernel into the GPU"))?);
        }
        // Looked for in the sources first: a failed lookup in a module is a driver error, which memory checkers report.
        let function = |name: &str| {
            let head = format!(" {name}(");
            let mut files = SOURCES.iter().zip(&modules);
            let (_, module) = files
                .find(|(source, _)| source.text.contains(&head))
                .ok_or_else(|| CudaError::Shape(format!("kernel {name} is in no file")))?;
            let found = module.load_function(name);
            found.map_err(tried("looking for a kernel in its module"))
        };
        let skinny = |rows: usize| -> Result<[CudaFunction; 4], CudaError> {
            let named = |epilogue| function(&format!("skinny_{rows}_{epilogue}"));
            Ok([
                named("to_bf16")?,
                named("to_f32")?,
                named("add_to")?,
                named("gelu_from")?,
            ])
        };
        Ok(Self {
            stream,
            dense: DenseKernels::find(gpu, function)?,
            attend_prefix: function("attend_prefix")?,
            attend_own: function("attend_own")?,
            attend_own_e4m3: function("attend_own_e4m3")?,
            choose_token: function("choose_token")?,
            combine: function("combine")?,
            add_places: function("add_places")?,
            decide: function("decide")?,
            embed: function("embed")?,
            place_images: function("place_images")?,
            gather_rows: function("gather_rows")?,
            rgb_from_planes: function("rgb_from_planes")?,
            scale_across: function("scale_across")?,
            scale_down: function("scale_down")?,
            patches: function("patches")?,
            layer_norm: function("layer_norm")?,
            layer_norm_few: function("layer_norm_few")?,
            layer_norm_e4m3: function("layer_norm_e4m3")?,
            layer_norm_few_e4m3: function("layer_norm_few_e4m3")?,
            quantise: function("quantise")?,
            abs_max: function("abs_max")?,
            rope_scatter: function("rope_scatter")?,
            skinny: [skinny(8)?, skinny(16)?],
            decode_step: DecodeKernels::find(gpu, function)?,
        })
    }
}

/// Allows blocks `bytes` of dynamic shared memory; more than 48 KB requires this.
fn with_shared(function: CudaFunction, bytes: usize) -> Result<CudaFunction, CudaError> {
    let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function
        .set_attribute(attribute, bytes as i32)
        .map_err(tried("requesting shared memory"))?;
    Ok(function)
}
