//! What cuBLASLt is told of a product: its shape as descriptors, and the algorithms that it offers for them.

use std::ffi::c_void;

use cudarc::{
    cublaslt::{
        result::{self, CublasError},
        sys::{
            self, cublasLtMatmulDescAttributes_t as Attribute,
            cublasLtMatmulPreferenceAttributes_t as Wish, cudaDataType_t as Numbers,
        },
    },
    driver::CudaStream,
};

use super::Epilogue;
use crate::cuda::memory::Pointer;

/// An algorithm, as cuBLASLt keeps it; good for one version of it and one kind of GPU.
pub(super) type Algorithm = sys::cublasLtMatmulAlgo_t;

/// Addresses are as good as cuBLASLt asks for when they are multiples of this.
pub(super) const ALIGNED_BYTES: u64 = 256;

/// Everything that an algorithm is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub rows: usize,
    pub outputs: usize,
    pub inner: usize,
    pub x_stride: usize,
    pub out_stride: usize,
    pub epilogue: Epilogue,
    pub to_f32: bool,
    /// By how many bytes x and out miss [`ALIGNED_BYTES`].
    pub skew: (u64, u64),
}

impl Shape {
    /// Bytes from the first to behind the last value of x, of the weights and of out.
    pub fn bytes(&self) -> [usize; 3] {
        let last = self.rows - 1;
        let out_value = if self.to_f32 { 4 } else { 2 };
        [
            (last * self.x_stride + self.inner) * 2,
            self.outputs * self.inner * 2,
            (last * self.out_stride + self.outputs) * out_value,
        ]
    }
}

/// Addresses of one product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    pub weight: u64,
    pub bias: u64,
    pub x: u64,
    pub out: u64,
}

/// cuBLASLt, started.
pub(super) struct Handle(sys::cublasLtHandle_t);

impl Handle {
    pub fn new() -> Result<Self, CublasError> {
        result::create_handle().map(Self)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure would leak some memory, which nobody can mend here.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

struct Operation(sys::cublasLtMatmulDesc_t);

impl Operation {
    fn new() -> Result<Self, CublasError> {
        let sums = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        result::create_matmul_desc(sums, Numbers::CUDA_R_32F).map(Self)
    }

    /// # Safety
    /// `value` is of the attribute's type.
    unsafe fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CublasError> {
        let value_at = std::ptr::from_ref(value).cast();
        // SAFETY: the descriptor is alive; the call copies `size_of::<T>()` bytes, which is the caller's promise.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, value_at, size_of::<T>()) }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure would leak some memory, which nobody can mend here.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// `rows` rows of `width` values, `stride` values apart: to cuBLASLt, that many columns.
    fn new(
        numbers: Numbers,
        rows: usize,
        width: usize,
        stride: usize,
    ) -> Result<Self, CublasError> {
        result::create_matrix_layout(numbers, width as u64, rows as u64, stride as i64).map(Self)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure would leak some memory, which nobody can mend here.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Self, CublasError> {
        result::create_matmul_pref().map(Self)
    }

    /// # Safety
    /// `value` is of the attribute's type.
    unsafe fn set<T>(&self, wish: Wish, value: &T) -> Result<(), CublasError> {
        let value_at = std::ptr::from_ref(value).cast();
        // SAFETY: the preference is alive; the call copies `size_of::<T>()` bytes, which is the caller's promise.
        unsafe { result::set_matmul_pref_attribute(self.0, wish, value_at, size_of::<T>()) }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure would leak some memory, which nobody can mend here.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

/// The descriptors of one shape.
pub(super) struct Descriptors {
    operation: Operation,
    weight: Layout,
    x: Layout,
    out: Layout,
    /// What is there is added to the sums.
    adds: bool,
}

impl Descriptors {
    pub fn new(shape: &Shape) -> Result<Self, CublasError> {
        let operation = Operation::new()?;
        let epilogue = match shape.epilogue {
            Epilogue::Bias | Epilogue::BiasAdd => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Epilogue::BiasGelu => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        };
        // CUBLAS_OP_T, which the bindings of cuBLASLt do not name.
        let transposed = 1_i32;
        // The algorithm may depend on how the bias is aligned; a real one is set before each product.
        let any_bias = ALIGNED_BYTES;
        // SAFETY: each attribute gets a value of its own type.
        unsafe {
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed)?;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any_bias)?;
        }
        let bf16 = Numbers::CUDA_R_16BF;
        let sums = if shape.to_f32 {
            Numbers::CUDA_R_32F
        } else {
            bf16
        };
        Ok(Self {
            operation,
            weight: Layout::new(bf16, shape.outputs, shape.inner, shape.inner)?,
            x: Layout::new(bf16, shape.rows, shape.inner, shape.x_stride)?,
            out: Layout::new(sums, shape.rows, shape.outputs, shape.out_stride)?,
            adds: shape.epilogue == Epilogue::BiasAdd,
        })
    }

    /// Up to `most` algorithms that need at most `workspace` bytes, the one first that cuBLASLt takes for the fastest;
    /// at least one.
    pub fn candidates(
        &self,
        handle: &Handle,
        most: usize,
        workspace: usize,
    ) -> Result<Vec<Algorithm>, CublasError> {
        let preference = Preference::new()?;
        // Where an algorithm splits the inner dimension, the parts are added up in f32, not in what is written.
        let reductions = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        let none = sys::cublasLtMatmulHeuristicResult_t {
            algo: Algorithm { data: [0; 8] },
            workspaceSize: 0,
            state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
            wavesCount: 0.0,
            reserved: [0; 4],
        };
        let (mut found, mut count) = (vec![none; most], 0);
        // SAFETY: all handles are alive, both wishes get values of their own types, and there is room for `most` results.
        unsafe {
            preference.set(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace)?;
            preference.set(
                Wish::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                &(reductions as u32),
            )?;
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.0,
                self.operation.0,
                self.weight.0,
                self.x.0,
                self.out.0,
                self.out.0,
                preference.0,
                most as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        }
        .result()?;
        let good = found.iter().take(usize::try_from(count).unwrap_or(0));
        let good = good.filter(|found| found.state.result().is_ok());
        let good: Vec<Algorithm> = good.map(|found| found.algo).collect();
        match good.is_empty() {
            true => Err(CublasError(
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
            )),
            false => Ok(good),
        }
    }

    /// True when cuBLASLt can run `algorithm`, which may be any bytes, on this within `workspace` bytes.
    pub fn admits(&self, handle: &Handle, algorithm: &Algorithm, workspace: usize) -> bool {
        let mut found = sys::cublasLtMatmulHeuristicResult_t {
            algo: *algorithm,
            workspaceSize: 0,
            state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
            wavesCount: 0.0,
            reserved: [0; 4],
        };
        // SAFETY: all handles are alive; the call reads the algorithm and writes the result.
        let status = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                handle.0,
                self.operation.0,
                self.weight.0,
                self.x.0,
                self.out.0,
                self.out.0,
                algorithm,
                &mut found,
            )
        };
        status.result().is_ok() && found.workspaceSize <= workspace
    }

    /// Queues the product.
    ///
    /// # Safety
    /// The operands reach over all values of the shape ([`Shape::bytes`]), live until the stream has passed the product, and
    /// are, like the workspace, used on this stream alone.
    pub unsafe fn queue(
        &self,
        handle: &Handle,
        algorithm: &Algorithm,
        operands: &Operands,
        workspace: Pointer<u8>,
        stream: &CudaStream,
    ) -> Result<(), CublasError> {
        let (one, beta) = (1.0_f32, if self.adds { 1.0_f32 } else { 0.0 });
        let bias = Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
        // SAFETY: the bias is an address; descriptors and algorithm are alive, `one` and `beta` are read during the call;
        // the operands are the caller's promise.
        unsafe {
            self.operation.set(bias, &operands.bias)?;
            result::matmul(
                handle.0,
                self.operation.0,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                operands.weight as *const c_void,
                self.weight.0,
                operands.x as *const c_void,
                self.x.0,
                operands.out as *const c_void,
                self.out.0,
                operands.out as *mut c_void,
                self.out.0,
                algorithm,
                workspace.address() as *mut c_void,
                workspace.len(),
                stream.cu_stream().cast(),
            )
        }
    }
}
