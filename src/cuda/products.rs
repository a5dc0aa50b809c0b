//! Products with weights: a thin layer of plans over cuBLASLt.
//!
//! `out = epilogue(x w^T + bias)` with x `[rows, inner]`, w `[outputs, inner]`, all row-major. cuBLASLt counts by columns, so
//! it is asked for `out^T = w x^T`: w is its transposed operand A, x its operand B, and the bias runs along its rows.
//!
//! A plan (descriptors and an algorithm) is made once for each shape and kept. Rows are rounded up to a bucket, so that
//! there are few shapes; the rows behind the last are computed and never read.

use std::{cell::RefCell, collections::HashMap, ffi::c_void, ops::Range, sync::Arc};

use cudarc::{
    cublaslt::{result, sys},
    driver::CudaStream,
};
use half::bf16;

use super::{
    error::CudaError,
    kernels::Rows,
    memory::{Buffer, Pointer},
};

/// NVIDIA's advice for Hopper; smaller GPUs take what they need of it.
const WORKSPACE_BYTES: usize = 32 << 20;

/// What is done with a sum before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Plus bias.
    Bias,
    /// Plus bias, through GELU (tanh).
    BiasGelu,
    /// Plus bias, plus what is there.
    BiasAdd,
}

/// Weights and bias of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearAt {
    /// `[outputs, inner]`, rows `stride` apart.
    pub weight: Pointer<bf16>,
    /// `[outputs]`.
    pub bias: Pointer<bf16>,
    /// The same in f32, for results in f32.
    pub bias_f32: Option<Pointer<f32>>,
    /// Outputs.
    pub outputs: usize,
    /// Inputs.
    pub inner: usize,
}

impl LinearAt {
    /// Some of its outputs, as a layer of its own.
    pub fn outputs_in(&self, range: Range<usize>) -> Self {
        Self {
            weight: self.weight.at(range.start * self.inner),
            bias: self.bias.at(range.start),
            bias_f32: self.bias_f32.map(|bias| bias.at(range.start)),
            outputs: range.len(),
            inner: self.inner,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    rows: usize,
    outputs: usize,
    inner: usize,
    x_stride: usize,
    out_stride: usize,
    epilogue: Epilogue,
    to_f32: bool,
}

/// Descriptors and the algorithm for one shape.
struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    weight: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// All plans, with the stream that products run on.
pub struct Products {
    handle: sys::cublasLtHandle_t,
    stream: Arc<CudaStream>,
    workspace: Buffer<u8>,
    plans: RefCell<HashMap<Shape, Plan>>,
}

/// Rows that are computed for `rows` wanted ones.
pub fn bucket(rows: usize) -> usize {
    match rows {
        0..=64 => rows.next_multiple_of(8),
        65..=256 => rows.next_multiple_of(32),
        257..=1024 => rows.next_multiple_of(64),
        _ => rows.next_multiple_of(128),
    }
}

impl Products {
    /// For products on `stream`, which owns the workspace: no other stream may use this.
    pub fn new(stream: Arc<CudaStream>) -> Result<Self, CudaError> {
        let handle = result::create_handle().map_err(refused("starting cuBLASLt"))?;
        Ok(Self {
            handle,
            workspace: Buffer::zeros(&stream, WORKSPACE_BYTES)?,
            stream,
            plans: RefCell::default(),
        })
    }

    /// `out = epilogue(x w^T + bias)` for `rows` rows, in bf16. `x` and `out` have room for [`bucket`] rows.
    pub fn run(
        &self,
        linear: &LinearAt,
        x: Rows,
        out: Rows,
        rows: usize,
        epilogue: Epilogue,
    ) -> Result<(), CudaError> {
        let shape = Shape {
            rows: bucket(rows),
            outputs: linear.outputs,
            inner: linear.inner,
            x_stride: x.stride,
            out_stride: out.stride,
            epilogue,
            to_f32: false,
        };
        self.go(shape, linear, x, out.start.address(), out.start.len())
    }

    /// The same with a result in f32, `[rows, outputs]`. The layer has its bias in f32 too.
    pub fn run_to_f32(
        &self,
        linear: &LinearAt,
        x: Rows,
        out: Pointer<f32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let shape = Shape {
            rows: bucket(rows),
            outputs: linear.outputs,
            inner: linear.inner,
            x_stride: x.stride,
            out_stride: linear.outputs,
            epilogue: Epilogue::Bias,
            to_f32: true,
        };
        self.go(shape, linear, x, out.address(), out.len())
    }

    fn go(
        &self,
        shape: Shape,
        linear: &LinearAt,
        x: Rows,
        out: u64,
        out_len: usize,
    ) -> Result<(), CudaError> {
        let last = shape.rows - 1;
        let fits = x.start.len() >= last * shape.x_stride + shape.inner
            && out_len >= last * shape.out_stride + shape.outputs
            && linear.weight.len() >= shape.outputs * shape.inner;
        if !fits {
            return Err(CudaError::Shape(format!(
                "a product of {shape:?} reaches beyond a buffer"
            )));
        }
        let mut plans = self.plans.borrow_mut();
        let plan = match plans.entry(shape) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(self.plan(shape)?),
        };
        let bias = match (shape.to_f32, linear.bias_f32) {
            (true, Some(bias)) => bias.address(),
            _ => linear.bias.address(),
        };
        let (one, beta) = (
            1.0_f32,
            if shape.epilogue == Epilogue::BiasAdd {
                1.0_f32
            } else {
                0.0
            },
        );
        // SAFETY: the descriptors are alive in the plan; the operands were checked above to reach over all rows, live as long
        // as the backend and are used on this stream alone, as is the workspace; `one` and `beta` are read during the call.
        unsafe {
            set(plan.operation, BIAS_POINTER, &bias).map_err(refused("setting a bias"))?;
            result::matmul(
                self.handle,
                plan.operation,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                linear.weight.address() as *const c_void,
                plan.weight,
                x.start.address() as *const c_void,
                plan.x,
                out as *const c_void,
                plan.out,
                out as *mut c_void,
                plan.out,
                &plan.algorithm,
                self.workspace.start().address() as *mut c_void,
                WORKSPACE_BYTES,
                self.stream.cu_stream().cast(),
            )
        }
        .map_err(refused(&format!("a product of {shape:?}")))
    }

    fn plan(&self, shape: Shape) -> Result<Plan, CudaError> {
        let what = format!("planning a product of {shape:?}");
        let (bf16, f32) = (
            sys::cudaDataType_t::CUDA_R_16BF,
            sys::cudaDataType_t::CUDA_R_32F,
        );
        let out_type = if shape.to_f32 { f32 } else { bf16 };
        let layout = |kind, rows: usize, columns: usize, stride: usize| {
            result::create_matrix_layout(kind, rows as u64, columns as u64, stride as i64)
                .map_err(refused(&what))
        };
        let operation =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, f32)
                .map_err(refused(&what))?;
        let epilogue = match shape.epilogue {
            Epilogue::Bias | Epilogue::BiasAdd => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Epilogue::BiasGelu => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        };
        // CUBLAS_OP_T, which the bindings of cuBLASLt do not name.
        let transposed = 1_i32;
        // The algorithm may depend on how the bias is aligned; a real one is set before each product.
        let any_bias = self.workspace.start().address();
        // SAFETY: `operation` is alive, and each attribute gets a value of its own type.
        unsafe {
            set(operation, TRANSPOSE_A, &transposed)
                .and_then(|()| set(operation, EPILOGUE, &epilogue))
                .and_then(|()| set(operation, BIAS_POINTER, &any_bias))
                .map_err(refused(&what))?;
        }
        let weight = layout(bf16, shape.inner, shape.outputs, shape.inner)?;
        let x = layout(bf16, shape.inner, shape.rows, shape.x_stride)?;
        let out = layout(out_type, shape.outputs, shape.rows, shape.out_stride)?;
        let preference = result::create_matmul_pref().map_err(refused(&what))?;
        let workspace_bytes = WORKSPACE_BYTES;
        // SAFETY: all handles are alive; the preference is destroyed once, after its only use.
        let found = unsafe {
            let set = result::set_matmul_pref_attribute(
                preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace_bytes).cast(),
                size_of::<usize>(),
            );
            let found = set.and_then(|()| {
                result::get_matmul_algo_heuristic(
                    self.handle,
                    operation,
                    weight,
                    x,
                    out,
                    out,
                    preference,
                )
            });
            result::destroy_matmul_pref(preference).and(found)
        };
        Ok(Plan {
            operation,
            weight,
            x,
            out,
            algorithm: found.map_err(refused(&what))?.algo,
        })
    }
}

use sys::cublasLtMatmulDescAttributes_t::{
    CUBLASLT_MATMUL_DESC_BIAS_POINTER as BIAS_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE as EPILOGUE,
    CUBLASLT_MATMUL_DESC_TRANSA as TRANSPOSE_A,
};

/// # Safety
/// The operation is alive, and `value` is of the attribute's type.
unsafe fn set<T>(
    operation: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), result::CublasError> {
    // SAFETY: the caller's promise; the call copies `size_of::<T>()` bytes.
    unsafe {
        result::set_matmul_desc_attribute(
            operation,
            attribute,
            std::ptr::from_ref(value).cast(),
            size_of::<T>(),
        )
    }
}

fn refused(what: &str) -> impl Fn(result::CublasError) -> CudaError + use<> {
    let what = what.to_owned();
    move |source| CudaError::Product {
        what: what.clone(),
        source,
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        for plan in self.plans.get_mut().values() {
            // SAFETY: made by `plan`, destroyed once. A failure would leak some memory, which nobody can mend here.
            unsafe {
                let _ = result::destroy_matmul_desc(plan.operation);
                for layout in [plan.weight, plan.x, plan.out] {
                    let _ = result::destroy_matrix_layout(layout);
                }
            }
        }
        // SAFETY: made by `new`, destroyed once, after the plans.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_rows_and_waste_little() {
        for rows in 1..5000 {
            let padded = bucket(rows);
            assert!(padded >= rows && bucket(padded) == padded);
            assert!(padded - rows < 8 || (padded - rows) * 2 < rows, "{rows}");
        }
    }
}
