//! The product that is measured: two square matrices, planned once.

use std::{ffi::c_void, sync::Arc};

use cudarc::{
    cublaslt::{result, sys},
    driver::CudaStream,
};
use half::bf16;

use super::SIDE;
use crate::cuda::{error::CudaError, memory::Buffer};

const WORKSPACE_BYTES: usize = 64 << 20;

/// What is multiplied; results are bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Bf16,
    /// e4m3, fast accumulation.
    Fp8,
}

/// `out = a^T b` for square matrices by columns, the only layout that fp8 supports.
pub struct SquareProduct {
    handle: sys::cublasLtHandle_t,
    operation: sys::cublasLtMatmulDesc_t,
    input: sys::cublasLtMatrixLayout_t,
    output: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
    out: Buffer<bf16>,
    workspace: Buffer<u8>,
    stream: Arc<CudaStream>,
}

impl SquareProduct {
    /// Plans it; its result has memory of its own.
    pub fn new(stream: &Arc<CudaStream>, format: Format) -> Result<Self, CudaError> {
        let failed = refused(format);
        let (kind, f32) = (
            match format {
                Format::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
                Format::Fp8 => sys::cudaDataType_t::CUDA_R_8F_E4M3,
            },
            sys::cudaDataType_t::CUDA_R_32F,
        );
        let side = SIDE as u64;
        let layout =
            |kind| result::create_matrix_layout(kind, side, side, SIDE as i64).map_err(&failed);
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let mut product = Self {
            handle: result::create_handle().map_err(&failed)?,
            operation: result::create_matmul_desc(compute, f32).map_err(&failed)?,
            input: layout(kind)?,
            output: layout(sys::cudaDataType_t::CUDA_R_16BF)?,
            // Found below, once the descriptors exist.
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            out: Buffer::zeros(stream, SIDE * SIDE)?,
            workspace: Buffer::zeros(stream, WORKSPACE_BYTES)?,
            stream: Arc::clone(stream),
        };
        product.describe(format)?;
        product.algorithm = product.heuristic().map_err(&failed)?;
        Ok(product)
    }

    fn describe(&self, format: Format) -> Result<(), CudaError> {
        use sys::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_FAST_ACCUM as FAST_ACCUM, CUBLASLT_MATMUL_DESC_TRANSA as TRANSPOSE,
        };
        // CUBLAS_OP_T, which the bindings of cuBLASLt do not have; and the accumulation that models in fp8 use.
        let (transposed, fast) = (1_i32, 1_i8);
        // SAFETY: the operation is alive, and each attribute gets a value of its own type and size, which the call copies.
        let described = unsafe {
            let set = |attribute, value: *const c_void, bytes| {
                result::set_matmul_desc_attribute(self.operation, attribute, value, bytes)
            };
            let described = set(TRANSPOSE, (&raw const transposed).cast(), 4);
            described.and_then(|()| match format {
                Format::Bf16 => Ok(()),
                Format::Fp8 => set(FAST_ACCUM, (&raw const fast).cast(), 1),
            })
        };
        described.map_err(refused(format))
    }

    fn heuristic(&self) -> Result<sys::cublasLtMatmulAlgo_t, result::CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as WORKSPACE;
        let preference = result::create_matmul_pref()?;
        let bytes = WORKSPACE_BYTES;
        // SAFETY: all handles are alive; the attribute is a size, which the call copies; the preference is destroyed once,
        // after its only use.
        unsafe {
            let set = result::set_matmul_pref_attribute(
                preference,
                WORKSPACE,
                (&raw const bytes).cast(),
                size_of::<usize>(),
            );
            let found = set.and_then(|()| {
                result::get_matmul_algo_heuristic(
                    self.handle,
                    self.operation,
                    self.input,
                    self.input,
                    self.output,
                    self.output,
                    preference,
                )
            });
            result::destroy_matmul_pref(preference).and(found)
        }
        .map(|found| found.algo)
    }

    /// # Safety
    /// `a` and `b` are addresses of whole matrices of the format, which exist until the stream has been waited for.
    pub unsafe fn queue(&self, a: u64, b: u64) -> Result<(), CudaError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let out = self.out.start().address();
        // SAFETY: the descriptors are alive; `a` and `b` are the caller's promise; result and workspace are this product's
        // own, on one stream; the scalars are read during the call.
        unsafe {
            result::matmul(
                self.handle,
                self.operation,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                a as *const c_void,
                self.input,
                b as *const c_void,
                self.input,
                out as *const c_void,
                self.output,
                out as *mut c_void,
                self.output,
                &self.algorithm,
                self.workspace.start().address() as *mut c_void,
                WORKSPACE_BYTES,
                self.stream.cu_stream().cast(),
            )
        }
        .map_err(|source| CudaError::Product {
            what: format!("a product of {SIDE} x {SIDE} x {SIDE}"),
            source,
        })
    }
}

impl Drop for SquareProduct {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure leaks some memory, which cannot be freed otherwise.
        unsafe {
            let _ = result::destroy_matmul_desc(self.operation);
            let _ = result::destroy_matrix_layout(self.input);
            let _ = result::destroy_matrix_layout(self.output);
            let _ = result::destroy_handle(self.handle);
        }
    }
}

fn refused(format: Format) -> impl Fn(result::CublasError) -> CudaError {
    move |source| CudaError::Product {
        what: format!("planning a product of {SIDE} x {SIDE} x {SIDE} in {format:?}"),
        source,
    }
}
