//! The driver with a GPU, NVRTC and cuBLASLt. Nothing is linked; they are found at run time.

use std::{path::PathBuf, sync::Arc};

use cudarc::{
    cublaslt,
    driver::{self, CudaContext, sys::CUdevice_attribute as Attribute},
    nvrtc,
};

use super::{
    arch::{ARCH_VARIABLE, Capability, CodeArch},
    compile,
    error::{CudaError, tried},
};

/// A GPU that kernels can be compiled for.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// The driver's context; one for the whole process.
    pub context: Arc<CudaContext>,
    pub name: String,
    /// Whose code paths and limits are used: its own, but for the cases of [`CodeArch`].
    pub capability: Capability,
    /// As in `nvidia-smi`, independent of the order and visibility of GPUs in this process: `GPU-` and 16 bytes in hex.
    pub uuid: String,
    /// What NVRTC compiles for: `sm_90a`, or `compute_80` for PTX.
    pub arch: String,
    /// Of CUDA, as the driver supports it: 13000 is 13.0.
    pub driver_version: i32,
    pub multiprocessors: usize,
    /// Shared memory that a block may have, bytes.
    pub shared_bytes: usize,
    /// Bytes of its memory.
    pub memory_bytes: usize,
}

impl Gpu {
    /// True when its tensor cores support fp8.
    pub fn has_fp8(&self) -> bool {
        self.capability >= Capability::FP8
    }

    /// Bytes of its memory that are free now.
    pub fn free_bytes(&self) -> Result<usize, CudaError> {
        let info = self.context.mem_get_info();
        info.map(|(free, _)| free)
            .map_err(tried("reading the free memory of the GPU"))
    }
}

/// Opens GPU `index`; an error names what is missing and what to do.
pub fn open(index: u32) -> Result<Gpu, CudaError> {
    libraries()?;
    let count = CudaContext::device_count().map_err(tried("counting the GPUs"))?;
    if i64::from(index) >= i64::from(count) {
        return Err(CudaError::Absent { index, count });
    }
    let context = CudaContext::new(index as usize).map_err(tried("opening the GPU"))?;
    // SAFETY: nothing was allocated in the context yet. Without tracking, cudarc does not order streams; `slot` orders
    // them with events.
    unsafe { context.disable_event_tracking() };
    let (major, minor) = context
        .compute_capability()
        .map_err(tried("reading the compute capability of the GPU"))?;
    let own = Capability((major * 10 + minor) as u32);
    if own < Capability::OLDEST {
        return Err(CudaError::TooOld {
            name: context.name().unwrap_or_default(),
            capability: own,
        });
    }
    let wanted = std::env::var(ARCH_VARIABLE).ok();
    let code = CodeArch::choose(own, wanted.as_deref(), &compile::architectures());
    let code = code.map_err(CudaError::Arch)?;
    let attribute = |which| context.attribute(which).unwrap_or_default();
    Ok(Gpu {
        name: context.name().unwrap_or_default(),
        capability: code.capability,
        uuid: context.uuid().map_or_else(
            |_| String::new(),
            |id| uuid(id.bytes.map(|byte| byte as u8)),
        ),
        arch: code.option,
        driver_version: driver_version(),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) as usize,
        shared_bytes: match code.capability == own {
            true => {
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) as usize
            }
            false => code.capability.shared_bytes(),
        },
        memory_bytes: context.total_mem().unwrap_or_default(),
        context,
    })
}

/// Where compiled kernels and chosen algorithms are kept: the user's cache folder, which systemd's unit names too.
pub fn kernel_cache() -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
    cache.join("spotter/kernels")
}

/// cudarc panics when it calls into a missing library, so each is looked for first.
fn libraries() -> Result<(), CudaError> {
    // SAFETY: these only try to load the library; loading has no preconditions.
    let found = unsafe {
        [
            (
                driver::sys::is_culib_present(),
                "libcuda.so.1",
                "the NVIDIA driver",
            ),
            (
                nvrtc::sys::is_culib_present(),
                "libnvrtc.so",
                "NVRTC (package cuda-nvrtc or nvidia-cuda-nvrtc)",
            ),
            (
                cublaslt::sys::is_culib_present(),
                "libcublasLt.so",
                "cuBLAS (package libcublas or nvidia-cublas)",
            ),
        ]
    };
    match found.into_iter().find(|(there, ..)| !there) {
        Some((_, library, package)) => Err(CudaError::Missing { library, package }),
        None => Ok(()),
    }
}

fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: the driver is loaded, and the pointer is to a local that outlives the call.
    let status = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
    status.result().map_or(0, |()| version)
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_as_nvidia_smi_writes_it() {
        let bytes = std::array::from_fn(|i| i as u8 * 17);
        assert_eq!(
            super::uuid(bytes),
            "GPU-00112233-4455-6677-8899-aabbccddeeff"
        );
    }
}
