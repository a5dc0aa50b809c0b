//! Tensor maps: how the copies of `kernels/barrier.cuh` (TMA) find boxes of a matrix in global memory.

use std::mem::MaybeUninit;

use cudarc::driver::sys::{self, CUtensorMap, CUtensorMapDataType, CUtensorMapSwizzle};

use crate::cuda::error::{CudaError, tried};

/// A tensor of three dimensions, and the boxes that are copied (`copy_box`). Values beyond the tensor are copied as zeros.
pub struct TensorLayout {
    pub address: u64,
    pub number: CUtensorMapDataType,
    /// Values of each dimension, adjacent ones first.
    pub sizes: [usize; 3],
    /// From row to row and from matrix to matrix, multiples of 16.
    pub stride_bytes: [usize; 2],
    /// Values of a box in each dimension, up to 256.
    pub box_sizes: [usize; 3],
    /// The order of the 16-byte pieces of a box's rows, which then have 128 bytes.
    pub swizzle: CUtensorMapSwizzle,
}

impl TensorLayout {
    /// Computed by the host, without the GPU.
    pub fn encode(&self) -> Result<CUtensorMap, CudaError> {
        let (sizes, strides) = (
            self.sizes.map(|size| size as u64),
            self.stride_bytes.map(|bytes| bytes as u64),
        );
        let (box_sizes, steps) = (self.box_sizes.map(|size| size as u32), [1; 3]);
        let mut map = MaybeUninit::uninit();
        // SAFETY: the arrays have as many entries as the driver reads for three dimensions (one stride fewer: that of single values
        // is implied), `map` has the size and the alignment of a tensor map, and the address is only written into it. Kernels
        // read the memory that it describes, which the caller has checked.
        let encoded = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                self.number,
                3,
                self.address as *mut _,
                sizes.as_ptr(),
                strides.as_ptr(),
                box_sizes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                self.swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        let failed =
            tried("describing rows to copy (they begin at 16 bytes, as their strides are)");
        encoded.result().map_err(failed)?;
        // SAFETY: the driver reported success, so it has written the map.
        Ok(unsafe { map.assume_init() })
    }
}
