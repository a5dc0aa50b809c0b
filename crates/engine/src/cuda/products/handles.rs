//! Handles and descriptors of cuBLASLt, destroyed when dropped.

use cudarc::cublaslt::{
    result::{self, CublasError},
    sys::{
        self, cublasLtMatmulDescAttributes_t as Attribute,
        cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cudaDataType_t as Kind,
    },
};

pub(super) struct BlasHandle(pub sys::cublasLtHandle_t);

impl BlasHandle {
    pub fn new() -> Result<Self, CublasError> {
        result::create_handle().map(Self)
    }
}

impl Drop for BlasHandle {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure leaks some memory, which cannot be freed otherwise.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

pub(super) struct MatmulDescriptor(pub sys::cublasLtMatmulDesc_t);

impl MatmulDescriptor {
    /// Sums in f32.
    pub fn new() -> Result<Self, CublasError> {
        let sums = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        result::create_matmul_desc(sums, Kind::CUDA_R_32F).map(Self)
    }

    /// Sets an attribute.
    ///
    /// # Safety
    /// `value` is of the attribute's type.
    pub unsafe fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CublasError> {
        let value_at = std::ptr::from_ref(value).cast();
        // SAFETY: the descriptor is alive; the call copies `size_of::<T>()` bytes, which is the caller's promise.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, value_at, size_of::<T>()) }
    }
}

impl Drop for MatmulDescriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure leaks some memory, which cannot be freed otherwise.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// The layout of a matrix in memory.
pub(super) struct MatrixLayout(pub sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    /// `rows` rows of `width` values, `stride` values apart: to cuBLASLt, rows are columns.
    pub fn new(kind: Kind, rows: usize, width: usize, stride: usize) -> Result<Self, CublasError> {
        result::create_matrix_layout(kind, width as u64, rows as u64, stride as i64).map(Self)
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure leaks some memory, which cannot be freed otherwise.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// What algorithms must satisfy.
pub(super) struct MatmulPreference(pub sys::cublasLtMatmulPreference_t);

impl MatmulPreference {
    /// Without conditions.
    pub fn new() -> Result<Self, CublasError> {
        result::create_matmul_pref().map(Self)
    }

    /// Sets an attribute.
    ///
    /// # Safety
    /// `value` is of the attribute's type.
    pub unsafe fn set<T>(
        &self,
        attribute: PreferenceAttribute,
        value: &T,
    ) -> Result<(), CublasError> {
        let value_at = std::ptr::from_ref(value).cast();
        // SAFETY: the preference is alive; the call copies `size_of::<T>()` bytes, which is the caller's promise.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value_at, size_of::<T>()) }
    }
}

impl Drop for MatmulPreference {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. A failure leaks some memory, which cannot be freed otherwise.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
