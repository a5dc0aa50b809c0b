//! Kernels from source to machine code: NVRTC makes a cubin for the GPU of the machine, and a cache on disk keeps it.
//!
//! A cubin runs on any driver of its CUDA major version. PTX is compiled again at every start, and a driver older than NVRTC cannot
//! read it, so it is made only for the cases of [`arch`](super::arch). The cache's key is everything that the code depends on: source and headers,
//! architecture, NVRTC's version and the driver's.

use std::{
    ffi::{CString, c_int},
    fs,
    path::{Path, PathBuf},
};

use cudarc::nvrtc::{
    result::{self, NvrtcError},
    sys,
};
use xxhash_rust::xxh3::xxh3_128;

use super::{arch::Capability, error::CudaError};
use spotter_core::write_file_atomically;

/// A kernel file of `kernels/`, compiled in.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource {
    pub file: &'static str,
    pub text: &'static str,
}

macro_rules! source {
    ($file:literal) => {
        KernelSource {
            file: $file,
            text: include_str!(concat!("../../../../kernels/", $file)),
        }
    };
}

pub const SOURCES: [KernelSource; 24] = [
    source!("attend_dense.cu"),
    source!("attend_rows.cu"),
    source!("attend_wide.cu"),
    source!("choose_token.cu"),
    source!("combine.cu"),
    source!("decide.cu"),
    source!("decode_step.cu"),
    source!("decode_step_ranks.cu"),
    source!("embed.cu"),
    source!("experts_few.cu"),
    source!("experts_product.cu"),
    source!("experts_wide.cu"),
    source!("frame.cu"),
    source!("int8_product.cu"),
    source!("int8_wide.cu"),
    source!("layer_norm.cu"),
    source!("low_rank.cu"),
    source!("quantise.cu"),
    source!("quantise_experts.cu"),
    source!("rope_scatter.cu"),
    source!("route.cu"),
    source!("skinny_product.cu"),
    source!("sum_ranks.cu"),
    source!("tau.cu"),
];

const HEADERS: [KernelSource; 14] = [
    source!("attend_page.cuh"),
    source!("barrier.cuh"),
    source!("common.cuh"),
    source!("decision.cuh"),
    source!("decode_attend.cuh"),
    source!("decode_base.cuh"),
    source!("decode_few.cuh"),
    source!("decode_layers.cuh"),
    source!("decode_product.cuh"),
    source!("experts.cuh"),
    source!("int8.cuh"),
    source!("stages.cuh"),
    source!("warpgroup.cuh"),
    source!("words.cuh"),
];

const OPTIONS: [&str; 2] = ["--std=c++17", "-default-device"];

/// How a kernel declares a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    Pointer,
    Int,
    Float,
    /// A structure, by value.
    Value,
}

/// A kernel as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDeclaration {
    pub name: &'static str,
    pub parameters: Vec<ParameterKind>,
}

impl KernelSource {
    /// Its kernels. A declaration is in one line, as are the macros in it; an error is a line that cannot be read.
    pub fn kernels(&self) -> impl Iterator<Item = Result<KernelDeclaration, &'static str>> {
        let is_declaration = |line: &&str| {
            line.starts_with("extern \"C\" __global__") || line.starts_with("KERNEL ")
        };
        let lines = self.text.lines().filter(is_declaration);
        lines.map(|line| self.declaration(line).ok_or(line))
    }

    fn declaration(&self, line: &'static str) -> Option<KernelDeclaration> {
        let head = match line.split_once("__launch_bounds__(") {
            Some((_, rest)) => rest.split_once(')')?.1,
            None => line,
        };
        let (name, rest) = head.split_once('(')?;
        let (parameters, _) = rest.split_once(") {")?;
        Some(KernelDeclaration {
            name: name.split_whitespace().last()?,
            parameters: self.parameters(parameters)?,
        })
    }

    /// Kinds of parameters, some of which may be a macro of the file.
    fn parameters(&self, list: &str) -> Option<Vec<ParameterKind>> {
        let mut kinds = Vec::new();
        for parameter in list
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
        {
            match parameter.split_whitespace().count() {
                1 => kinds.extend(self.parameters(self.macro_text(parameter)?)?),
                _ => kinds.push(ParameterKind::of(parameter)),
            }
        }
        Some(kinds)
    }

    /// The text of a macro, which may have one argument.
    fn macro_text(&self, used: &str) -> Option<&'static str> {
        let name = used.split('(').next()?;
        self.text.lines().find_map(|line| {
            let rest = line.strip_prefix("#define ")?.strip_prefix(name)?;
            match rest.strip_prefix('(') {
                Some(rest) => Some(rest.split_once(") ")?.1),
                None => rest.strip_prefix(' '),
            }
        })
    }
}

impl ParameterKind {
    /// Of a declaration such as `const float* x`.
    fn of(parameter: &str) -> Self {
        let mut words = parameter.split_whitespace();
        let first = words.find(|word| !["const", "__grid_constant__"].contains(word));
        match first {
            _ if parameter.contains('*') => Self::Pointer,
            Some("int") => Self::Int,
            Some("float") => Self::Float,
            _ => Self::Value,
        }
    }
}

/// Machine code for `sm_…`, PTX for `compute_…`. Blocks for up to a second; needs NVRTC, but neither a driver nor a GPU.
pub fn compile(source: &KernelSource, arch: &str) -> Result<Vec<u8>, CudaError> {
    let failed = |error, log| CudaError::Compile {
        file: source.file,
        arch: arch.to_owned(),
        source: error,
        log,
    };
    let program = NvrtcProgram::new(source).map_err(|error| failed(error, String::new()))?;
    let arch_option = format!("--gpu-architecture={arch}");
    let options: Vec<&str> = OPTIONS.into_iter().chain([&*arch_option]).collect();
    // SAFETY: the program is alive until the end of this function.
    let compiled = unsafe { result::compile_program(program.0, &options) };
    compiled.map_err(|error| failed(error, program.log()))?;
    let code = match arch.starts_with("compute_") {
        true => program.ptx(),
        false => program.cubin(),
    };
    code.map_err(|error| failed(error, String::new()))
}

/// The same through the cache in `folder`. A file that is missing or damaged is compiled again; one that cannot be written is
/// logged, and compiled again at the next start.
pub fn cached_code(
    source: &KernelSource,
    arch: &str,
    driver_version: i32,
    folder: &Path,
) -> Result<Vec<u8>, CudaError> {
    let path = folder.join(cache_name(source, arch, driver_version));
    let hash = |code: &[u8]| xxh3_128(code).to_le_bytes();
    // The hash is behind the code.
    let cached = fs::read(&path).unwrap_or_default();
    if let Some((code, kept)) = cached.split_last_chunk()
        && hash(code) == *kept
    {
        return Ok(code.to_vec());
    }
    let code = compile(source, arch)?;
    let file = [&code[..], &hash(&code)].concat();
    if let Err(error) = write_file_atomically(&path, &file) {
        let path = path.display();
        tracing::warn!(
            "{path}: not written, so the next start compiles this kernel again: {error}"
        );
    }
    Ok(code)
}

fn cache_name(source: &KernelSource, arch: &str, driver_version: i32) -> PathBuf {
    let nvrtc = version();
    let mut key = format!(
        "{arch} {driver_version} {nvrtc:?} {OPTIONS:?} {}",
        source.text
    );
    HEADERS.iter().for_each(|header| key.push_str(header.text));
    let stem = source.file.trim_end_matches(".cu");
    PathBuf::from(format!(
        "{stem}-{arch}-{:032x}.cubin",
        xxh3_128(key.as_bytes())
    ))
}

fn version() -> (c_int, c_int) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to locals that outlive the call. After a failure the version is 0.0, which is a valid part of the key.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (major, minor)
}

/// What NVRTC compiles for, in ascending order; empty when it does not say.
pub fn architectures() -> Vec<Capability> {
    let mut count = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    let counted = unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) };
    let mut all: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or_default()];
    // SAFETY: the vector has as many values as NVRTC reported.
    let listed = unsafe { sys::nvrtcGetSupportedArchs(all.as_mut_ptr()) };
    match counted.result().and_then(|()| listed.result()) {
        Ok(()) => all
            .into_iter()
            .map(|arch| Capability(arch as u32))
            .collect(),
        Err(_) => Vec::new(),
    }
}

/// A program in NVRTC, destroyed when dropped.
struct NvrtcProgram(sys::nvrtcProgram);

impl NvrtcProgram {
    fn new(source: &KernelSource) -> Result<Self, NvrtcError> {
        // A kernel has no zero byte; if one had, its text would end there and not compile.
        let c_text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let headers = HEADERS.map(|header| (c_text(header.text), c_text(header.file)));
        let texts = headers.each_ref().map(|(text, _)| text.as_ptr());
        let names = headers.each_ref().map(|(_, name)| name.as_ptr());
        let (text, file) = (c_text(source.text), c_text(source.file));
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings end with a zero and outlive the call, which copies them; the counts are those of the arrays.
        let status = unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                text.as_ptr(),
                file.as_ptr(),
                texts.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        status.result()?;
        Ok(Self(program))
    }

    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.into_iter().map(|byte| byte as u8).collect();
        String::from_utf8_lossy(&bytes)
            .trim_end_matches('\0')
            .to_owned()
    }

    /// With the zero at its end that the driver needs.
    fn ptx(&self) -> Result<Vec<u8>, NvrtcError> {
        // SAFETY: the program is alive and compiled.
        let text = unsafe { result::get_ptx(self.0) }?;
        Ok(text.into_iter().map(|byte| byte as u8).collect())
    }

    fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut bytes = 0;
        // SAFETY: the program is alive and compiled, and the pointer is to a local.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut bytes) }.result()?;
        let mut code = vec![0_u8; bytes];
        // SAFETY: the vector has as many bytes as NVRTC reported.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }.result()?;
        Ok(code)
    }
}

impl Drop for NvrtcProgram {
    fn drop(&mut self) {
        // SAFETY: created by `new` and destroyed once. A failure leaks some memory, which cannot be freed otherwise.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

#[cfg(test)]
mod tests;
