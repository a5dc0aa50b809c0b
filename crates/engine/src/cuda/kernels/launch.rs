//! Loads kernels and launches them by name, with arguments that are compared with the kernel's declaration.

use std::{collections::HashMap, ffi::c_void, path::Path, sync::Arc};

use cudarc::{
    driver::{
        CudaFunction, CudaStream, result,
        sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    },
    nvrtc::Ptx,
};

use crate::cuda::{
    compile::{KernelDeclaration, KernelSource, ParameterKind, cached_code},
    error::{CudaError, tried},
    library::Gpu,
    memory::Pointer,
    tensor::Activations,
};

/// All kernels that the GPU can run, loaded, with the stream that they run on.
pub struct Kernels {
    pub stream: Arc<CudaStream>,
    pub multiprocessors: usize,
    by_name: Arc<HashMap<&'static str, LoadedKernel>>,
}

struct LoadedKernel {
    function: CudaFunction,
    /// As its source declares them.
    parameters: Vec<ParameterKind>,
    /// Dynamic shared memory of a block.
    shared_bytes: usize,
    /// The blocks wait for each other: all run at once, or the driver rejects the launch.
    is_cooperative: bool,
}

/// An argument of a launch, in the C type of the kernel's declaration.
pub trait KernelArgument {
    type Declared;
    const KIND: ParameterKind;
    fn declared(self) -> Self::Declared;
}

impl<T> KernelArgument for Pointer<T> {
    type Declared = u64;
    const KIND: ParameterKind = ParameterKind::Pointer;
    fn declared(self) -> u64 {
        self.address()
    }
}

impl KernelArgument for Activations {
    type Declared = u64;
    const KIND: ParameterKind = ParameterKind::Pointer;
    fn declared(self) -> u64 {
        self.address()
    }
}

impl KernelArgument for usize {
    type Declared = i32;
    const KIND: ParameterKind = ParameterKind::Int;
    fn declared(self) -> i32 {
        self as i32
    }
}

impl KernelArgument for f32 {
    type Declared = Self;
    const KIND: ParameterKind = ParameterKind::Float;
    fn declared(self) -> Self {
        self
    }
}

/// An address that a kernel declares as a pointer.
pub struct Address(pub u64);

impl KernelArgument for Address {
    type Declared = u64;
    const KIND: ParameterKind = ParameterKind::Pointer;
    fn declared(self) -> u64 {
        self.0
    }
}

/// A structure that a kernel declares as it is.
pub struct ByValue<T>(pub T);

impl<T> KernelArgument for ByValue<T> {
    type Declared = T;
    const KIND: ParameterKind = ParameterKind::Value;
    fn declared(self) -> T {
        self.0
    }
}

/// An argument in memory, for the driver.
pub struct LaunchArgument<T> {
    kind: ParameterKind,
    value: T,
}

impl<T> LaunchArgument<T> {
    pub fn of<A: KernelArgument<Declared = T>>(argument: A) -> Self {
        Self {
            kind: A::KIND,
            value: argument.declared(),
        }
    }

    pub fn at(&self) -> ArgumentAddress {
        let address = std::ptr::from_ref(&self.value).cast_mut().cast();
        ArgumentAddress {
            kind: self.kind,
            address,
        }
    }
}

/// Where an argument is.
#[derive(Clone, Copy)]
pub struct ArgumentAddress {
    kind: ParameterKind,
    address: *mut c_void,
}

/// Kernels that only GPUs have that compute the decoder together; compiling them takes long.
pub const RANKS_DECODER: &str = "decode_step_ranks.cu";

/// The most arguments of a launch.
const ARGUMENTS_MAX: usize = 24;

/// The arguments that a kernel reads of those that are passed to it: as many as it declares, of the same kinds. Behind them may be more,
/// which the driver does not read.
fn declared_arguments(
    name: &str,
    declared: &[ParameterKind],
    passed: &[ArgumentAddress],
) -> Result<[*mut c_void; ARGUMENTS_MAX], CudaError> {
    let kinds = passed.iter().map(|argument| argument.kind);
    let is_declared = declared.len() <= passed.len().min(ARGUMENTS_MAX)
        && kinds
            .zip(declared)
            .all(|(passed, declared)| passed == *declared);
    if !is_declared {
        let passed: Vec<_> = passed.iter().map(|argument| argument.kind).collect();
        return Err(CudaError::Arguments(format!(
            "kernel {name} declares {declared:?}, the program passes {passed:?}"
        )));
    }
    let mut addresses = [std::ptr::null_mut(); ARGUMENTS_MAX];
    for (address, argument) in addresses.iter_mut().zip(passed) {
        *address = argument.address;
    }
    Ok(addresses)
}

/// Queues a kernel by its name. The arguments must be those of its declaration, in order; behind them may be more, which the driver
/// does not read. Their number and kinds are compared with the declaration.
macro_rules! launch {
    ($kernels:expr, $name:expr, $grid:expr, $threads:expr, [$($argument:expr),* $(,)?]) => {
        // SAFETY: the arguments have the order and the C types of the kernel's declaration, of which `launch` compares number and
        // kinds, and stay alive for the call, which copies them. The memory that they point to was checked by the caller of this macro, lives as long as the
        // backend, and is only used on this stream or behind an event.
        unsafe {
            $kernels.launch($name, $grid, $threads, &[
                $($crate::cuda::kernels::launch::LaunchArgument::of($argument).at()),*
            ])
        }
    };
}

pub(crate) use launch;

/// An error that names the requirement when it is not met.
pub fn require(met: bool, what: &'static str) -> Result<(), CudaError> {
    match met {
        true => Ok(()),
        false => Err(CudaError::Shape(what.into())),
    }
}

/// The error of a kernel that has weights of experts where it takes one layer's.
pub fn not_of_experts() -> CudaError {
    CudaError::Shape("weights of experts are where one layer's must be".into())
}

impl Kernels {
    /// # Safety
    /// `arguments` are the kernel's, in their order and types, and the memory that they point to is large enough for it.
    pub unsafe fn launch(
        &self,
        name: &str,
        grid: (usize, usize, usize),
        threads: u32,
        arguments: &[ArgumentAddress],
    ) -> Result<(), CudaError> {
        let Some((name, kernel)) = self.by_name.get_key_value(name) else {
            return Err(CudaError::Shape(format!("this GPU has no kernel {name}")));
        };
        let mut arguments = declared_arguments(name, &kernel.parameters, arguments)?;
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
                &mut arguments,
            )
        }
        .map_err(tried(name))
    }

    /// Compiles (or finds compiled) and loads the kernels of these files.
    pub fn load_sources(
        gpu: &Gpu,
        stream: Arc<CudaStream>,
        cache: &Path,
        sources: &[KernelSource],
    ) -> Result<Self, CudaError> {
        let mut by_name = HashMap::new();
        for source in sources {
            let is_supported = match source.file {
                "attend_wide.cu" | "experts_wide.cu" | "int8_wide.cu" => gpu.arch == "sm_90a",
                _ => true,
            };
            if !is_supported {
                continue;
            }
            let code = cached_code(source, &gpu.arch, gpu.driver_version, cache)?;
            let module = gpu.context.load_module(Ptx::from_binary(code));
            let module = module.map_err(tried("loading a kernel into the GPU"))?;
            for declaration in source.kernels() {
                let KernelDeclaration { name, parameters } = declaration.map_err(|line| {
                    CudaError::Arguments(format!("{}: not a declaration: {line}", source.file))
                })?;
                let function = module.load_function(name);
                let kernel = LoadedKernel {
                    function: function.map_err(tried("looking for a kernel in its module"))?,
                    parameters,
                    shared_bytes: 0,
                    is_cooperative: ["decode_step.cu", RANKS_DECODER].contains(&source.file),
                };
                by_name.insert(name, kernel);
            }
        }
        Ok(Self {
            stream,
            multiprocessors: gpu.multiprocessors,
            by_name: Arc::new(by_name),
        })
    }

    /// The same kernels on another stream.
    pub fn on(&self, stream: Arc<CudaStream>) -> Self {
        Self {
            stream,
            multiprocessors: self.multiprocessors,
            by_name: Arc::clone(&self.by_name),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Before they are on a second stream: allows blocks of the kernel, if it is loaded, `bytes` of dynamic shared memory; more than 48 KB requires this.
    /// An error beyond `most`, which is less than the GPU has where the limits of an older one are wanted.
    pub fn allow_shared(&mut self, name: &str, bytes: usize, most: usize) -> Result<(), CudaError> {
        let by_name = Arc::get_mut(&mut self.by_name);
        let Some(kernel) = by_name.and_then(|by_name| by_name.get_mut(name)) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: E9.
    #[test]
    fn arguments_that_are_not_the_declared_ones_are_refused() {
        use ParameterKind::{Float, Int, Pointer};
        let (rows, scale) = (LaunchArgument::of(3_usize), LaunchArgument::of(0.5_f32));
        let x = LaunchArgument::of(Address(16));
        let passed = [x.at(), rows.at(), scale.at()];
        for declared in [&[Pointer, Int, Float][..], &[Pointer, Int], &[]] {
            let read = declared_arguments("right", declared, &passed).unwrap();
            assert_eq!(read[..3], passed.map(|argument| argument.address));
        }
        for declared in [&[Pointer, Float][..], &[Int], &[Pointer, Int, Float, Int]] {
            let error = declared_arguments("wrong", declared, &passed).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("kernel wrong declares ["), "{text}");
        }
    }
}
