//! A product's shape as descriptors of cuBLASLt, and the algorithms that cuBLASLt offers for them.

use std::ffi::c_void;

use cudarc::{
    cublaslt::{
        result::{self, CublasError},
        sys::{
            self, cublasLtMatmulDescAttributes_t as Attribute,
            cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cudaDataType_t as Kind,
        },
    },
    driver::CudaStream,
};

use super::handle::BlasHandle;
use crate::{
    cuda::{
        error::CudaError,
        memory::Pointer,
        tensor::{Activations, Epilogue, Product, SCALE_STEP, WeightPointer, bucket},
    },
    network::format::Number,
};

/// NVIDIA's recommendation for Hopper; smaller GPUs use a part of it.
pub const WORKSPACE_BYTES: usize = 32 << 20;

/// A descriptor of cuBLASLt, destroyed when dropped.
pub(super) struct Owned<T: Copy> {
    raw: T,
    destroy: unsafe fn(T) -> Result<(), CublasError>,
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by the function that belongs to `destroy`, destroyed once. A failure leaks some memory, which cannot be freed
        // otherwise.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

type MatmulDescriptor = Owned<sys::cublasLtMatmulDesc_t>;
type MatrixLayout = Owned<sys::cublasLtMatrixLayout_t>;

impl MatmulDescriptor {
    /// Sets an attribute.
    ///
    /// # Safety
    /// `value` is of the attribute's type.
    unsafe fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CublasError> {
        let value_at = std::ptr::from_ref(value).cast();
        // SAFETY: the descriptor is alive; the call copies `size_of::<T>()` bytes, which is the caller's promise.
        unsafe { result::set_matmul_desc_attribute(self.raw, attribute, value_at, size_of::<T>()) }
    }
}

/// The layout of `rows` rows of `width` values, `stride` values apart: to cuBLASLt, rows are columns.
fn layout(
    kind: Kind,
    rows: usize,
    width: usize,
    stride: usize,
) -> Result<MatrixLayout, CublasError> {
    Ok(Owned {
        raw: result::create_matrix_layout(kind, width as u64, rows as u64, stride as i64)?,
        destroy: result::destroy_matrix_layout,
    })
}

/// An algorithm in the format of cuBLASLt; valid for one version of it and one type of GPU.
pub(super) type Algorithm = sys::cublasLtMatmulAlgo_t;

pub(super) const NOT_SUPPORTED: sys::cublasStatus_t =
    sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED;

/// Addresses with at least this alignment allow all algorithms.
pub(super) const ALIGNED_BYTES: u64 = 256;

/// cuBLASLt's name of a format.
fn kind(number: Number) -> Kind {
    match number {
        Number::F32 => Kind::CUDA_R_32F,
        Number::F16 => Kind::CUDA_R_16F,
        Number::Bf16 => Kind::CUDA_R_16BF,
        Number::E4m3 => Kind::CUDA_R_8F_E4M3,
        Number::Int8 => Kind::CUDA_R_8I,
        Number::Int4 => Kind::CUDA_R_4I,
    }
}

/// Everything that an algorithm is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductShape {
    pub rows: usize,
    pub outputs: usize,
    pub inner: usize,
    pub x_stride: usize,
    pub out_stride: usize,
    pub epilogue: Epilogue,
    /// Of x and weights.
    pub input: Number,
    /// Of the result, and of the bias where it is not e4m3: then that is in bf16.
    pub output: Number,
    /// By how many bytes x and out miss [`ALIGNED_BYTES`].
    pub skew: (u64, u64),
}

impl ProductShape {
    pub fn of(product: &Product) -> Self {
        let Product { linear, x, out, .. } = product;
        Self {
            rows: bucket(product.rows),
            outputs: linear.outputs,
            inner: linear.inner,
            x_stride: x.stride(),
            out_stride: out.stride(),
            epilogue: product.epilogue,
            // Those in int8 are not cuBLASLt's: `Operands::of` rejects them.
            input: x.number(),
            output: out.number(),
            skew: skew(x.address(), out.address()),
        }
    }

    /// Bytes from the first to behind the last value of x, of the weights and of out.
    pub fn bytes(&self) -> [usize; 3] {
        let last = self.rows - 1;
        let (read, written) = (self.input.bytes(), self.output.bytes());
        [
            (last * self.x_stride + self.inner) * read,
            self.outputs * self.inner * read,
            (last * self.out_stride + self.outputs) * written,
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
    /// In e4m3: f32 that weights, x and the result are multiplied with. The last is read where the result is e4m3.
    pub scales: [u64; 3],
}

impl Operands {
    pub fn of(product: &Product) -> Result<Self, CudaError> {
        let Product { linear, x, out, .. } = product;
        let (weight, scales) = match (x, out, linear.weight) {
            (Activations::Bf16(_), Activations::Bf16(_) | Activations::F32(_), _) => {
                (linear.bf16()?.address(), [0; 3])
            }
            (Activations::E4m3(..), _, WeightPointer::E4m3 { values, scale, .. }) => {
                let scales = [scale.at.address(), scale_at(x, 0), scale_at(out, 1)];
                (values.address(), scales)
            }
            _ => {
                return Err(CudaError::Shape(format!(
                    "a product in e4m3 of what is in bf16: {:?}",
                    ProductShape::of(product)
                )));
            }
        };
        Ok(Self {
            weight,
            bias: match out {
                Activations::F32(_) => linear.bias_f32()?.address(),
                _ => linear.bias.address(),
            },
            x: x.address(),
            out: out.address(),
            scales,
        })
    }
}

/// Where cuBLASLt reads the scale of values in e4m3 (`nth` 0) or its inverse (1).
fn scale_at(values: &Activations, nth: usize) -> u64 {
    match values {
        Activations::E4m3(_, scale) => scale.at.at(nth * SCALE_STEP).address(),
        _ => 0,
    }
}

pub(super) fn skew(x: u64, out: u64) -> (u64, u64) {
    (x % ALIGNED_BYTES, out % ALIGNED_BYTES)
}

/// What products are queued with.
#[derive(Clone, Copy)]
pub(super) struct ProductQueue<'a> {
    pub handle: BlasHandle,
    /// Used by products on `stream` alone.
    pub workspace: Pointer<u8>,
    pub stream: &'a CudaStream,
}

/// The descriptors of one shape.
pub(super) struct Descriptors {
    operation: MatmulDescriptor,
    weight: MatrixLayout,
    x: MatrixLayout,
    out: MatrixLayout,
    /// The matrix that is added to the sums: `out`, perhaps with another number type.
    addend: MatrixLayout,
    /// True when that matrix is added.
    has_addend: bool,
    input: Number,
    output: Number,
}

impl Descriptors {
    /// For products of this shape.
    pub fn new(shape: &ProductShape) -> Result<Self, CublasError> {
        let sums = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let operation = Owned {
            raw: result::create_matmul_desc(sums, Kind::CUDA_R_32F)?,
            destroy: result::destroy_matmul_desc,
        };
        let epilogue = match shape.epilogue {
            Epilogue::Bias | Epilogue::BiasAdd => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Epilogue::BiasGelu => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        };
        // CUBLAS_OP_T, which the bindings of cuBLASLt do not have.
        let transposed = 1_i32;
        // The algorithm may depend on how the bias is aligned; real addresses are set before each product.
        let any_bias = ALIGNED_BYTES;
        // SAFETY: each attribute gets a value of its own type.
        unsafe {
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed)?;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any_bias)?;
        }
        if shape.input == Number::E4m3 {
            // Sums in the tensor core's own registers; the loss is small compared to the rounding to e4m3.
            let fast = 1_i8;
            let bias_kind = Kind::CUDA_R_16BF;
            set_scales(&operation, shape.output, &[ALIGNED_BYTES; 3])?;
            // SAFETY: each attribute gets a value of its own type.
            unsafe {
                operation.set(Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast)?;
                operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_kind)?;
            }
        }
        let (read, written) = (kind(shape.input), kind(shape.output));
        // cuBLASLt adds bf16 where the result is e4m3.
        let addend = match shape.output {
            Number::E4m3 => kind(Number::Bf16),
            _ => written,
        };
        Ok(Self {
            operation,
            weight: layout(read, shape.outputs, shape.inner, shape.inner)?,
            x: layout(read, shape.rows, shape.inner, shape.x_stride)?,
            out: layout(written, shape.rows, shape.outputs, shape.out_stride)?,
            addend: layout(addend, shape.rows, shape.outputs, shape.out_stride)?,
            has_addend: shape.epilogue == Epilogue::BiasAdd,
            input: shape.input,
            output: shape.output,
        })
    }

    /// Up to `most` algorithms, first the one that cuBLASLt estimates to be the fastest; at least one.
    pub fn candidates(
        &self,
        handle: BlasHandle,
        most: usize,
    ) -> Result<Vec<Algorithm>, CublasError> {
        use PreferenceAttribute::{
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as WORKSPACE,
            CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK as REDUCTION,
        };
        let preference = Owned {
            raw: result::create_matmul_pref()?,
            destroy: result::destroy_matmul_pref,
        };
        // Where an algorithm splits the inner dimension, the parts are added up in f32, not in the type of the result.
        let reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        let (reduction, bytes) = (reduction as u32, WORKSPACE_BYTES);
        let (mut found, mut count) = (vec![unsupported(Algorithm { data: [0; 8] }); most], 0);
        // SAFETY: all handles are alive, both attributes get values of their own types, and there is room for `most` results.
        unsafe {
            let set = |attribute, value: *const c_void, size| {
                result::set_matmul_pref_attribute(preference.raw, attribute, value, size)
            };
            set(WORKSPACE, (&raw const bytes).cast(), size_of::<usize>())?;
            set(REDUCTION, (&raw const reduction).cast(), size_of::<u32>())?;
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.0,
                self.operation.raw,
                self.weight.raw,
                self.x.raw,
                self.addend.raw,
                self.out.raw,
                preference.raw,
                most as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        }
        .result()?;
        found.truncate(usize::try_from(count).unwrap_or(0));
        found.retain(|found| found.state.result().is_ok());
        match found.is_empty() {
            true => Err(CublasError(NOT_SUPPORTED)),
            false => Ok(found.into_iter().map(|found| found.algo).collect()),
        }
    }

    /// True when cuBLASLt can run `algorithm`, which may be any bytes, on this.
    pub fn can_run(&self, handle: BlasHandle, algorithm: &Algorithm) -> bool {
        let mut found = unsupported(*algorithm);
        // SAFETY: all handles are alive; the call reads the algorithm and writes the result.
        let status = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                handle.0,
                self.operation.raw,
                self.weight.raw,
                self.x.raw,
                self.addend.raw,
                self.out.raw,
                algorithm,
                &mut found,
            )
        };
        status.result().is_ok() && found.workspaceSize <= WORKSPACE_BYTES
    }

    /// Queues the product.
    ///
    /// # Safety
    /// The operands reach over all values of the shape ([`ProductShape::bytes`]), the scales are f32; all live until the stream has
    /// passed the product, and are, like the workspace, used on this stream alone.
    pub unsafe fn queue(
        &self,
        queue: ProductQueue<'_>,
        algorithm: &Algorithm,
        operands: &Operands,
    ) -> Result<(), CublasError> {
        let ProductQueue {
            handle,
            workspace,
            stream,
        } = queue;
        let (one, beta) = (1.0_f32, if self.has_addend { 1.0_f32 } else { 0.0 });
        let bias = Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
        // In place only where the types are equal. A matrix that is not added is not read, but needs a valid address.
        let addend = match self.output {
            Number::E4m3 => workspace.address(),
            _ => operands.out,
        };
        if self.input == Number::E4m3 {
            set_scales(&self.operation, self.output, &operands.scales)?;
        }
        // SAFETY: the bias is an address; descriptors and algorithm are alive, `one` and `beta` are read during the call;
        // the operands are the caller's promise.
        unsafe {
            self.operation.set(bias, &operands.bias)?;
            result::matmul(
                handle.0,
                self.operation.raw,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                operands.weight as *const c_void,
                self.weight.raw,
                operands.x as *const c_void,
                self.x.raw,
                addend as *const c_void,
                self.addend.raw,
                operands.out as *mut c_void,
                self.out.raw,
                algorithm,
                workspace.address() as *mut c_void,
                workspace.len(),
                stream.cu_stream().cast(),
            )
        }
    }
}

/// Room for what cuBLASLt finds out about an algorithm.
fn unsupported(algorithm: Algorithm) -> sys::cublasLtMatmulHeuristicResult_t {
    sys::cublasLtMatmulHeuristicResult_t {
        algo: algorithm,
        workspaceSize: 0,
        state: NOT_SUPPORTED,
        wavesCount: 0.0,
        reserved: [0; 4],
    }
}

/// Sets what weights and x in e4m3, and the result where it is too, are multiplied with.
fn set_scales(
    operation: &MatmulDescriptor,
    output: Number,
    [weight, x, out]: &[u64; 3],
) -> Result<(), CublasError> {
    // SAFETY: each attribute is an address.
    unsafe {
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, weight)?;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, x)?;
        if output == Number::E4m3 {
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, out)?;
        }
    }
    Ok(())
}
