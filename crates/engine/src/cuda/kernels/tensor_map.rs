//! Tensor maps: the layout of sequences of rows in memory, for kernels that copy boxes of them (`copy_box` in `barrier.cuh`).

use std::mem::MaybeUninit;

use cudarc::driver::sys::{self, CUtensorMap};

use super::{StridedRows, require};
use crate::cuda::error::CudaError;

/// Sequences of rows, and the boxes of them that a kernel copies.
pub(super) struct TensorMapSpec {
    pub sequences: usize,
    /// Rows of a sequence.
    pub length: usize,
    /// Values of a row.
    pub width: usize,
    /// Rows of a box; those beyond the sequence are copied as zeros.
    pub box_rows: usize,
    /// Values of a row of a box.
    pub box_values: usize,
    /// Whether the 16-byte pieces of a box's rows, which then have 128 bytes, are swizzled.
    pub is_swizzled: bool,
}

impl TensorMapSpec {
    /// The map of these rows. The host computes it without the GPU.
    pub fn map(&self, from: StridedRows) -> Result<CUtensorMap, CudaError> {
        let (sequences, length, width) = (self.sequences, self.length, self.width);
        require(
            from.has_room_for(sequences * length, width),
            "boxes: a buffer is too small",
        )?;
        // Strides are in bytes; that of single values is implied.
        let row_bytes = (from.stride * size_of::<half::bf16>()) as u64;
        let strides = [row_bytes, row_bytes * length as u64];
        let sizes = [width as u64, length as u64, sequences as u64];
        let (box_sizes, steps) = ([self.box_values as u32, self.box_rows as u32, 1], [1; 3]);
        let swizzle = match self.is_swizzled {
            true => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            false => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        };
        let mut map = MaybeUninit::uninit();
        // SAFETY: the arrays have as many entries as the driver reads for three dimensions (one stride fewer), `map` has the size
        // and the alignment of a tensor map, and the address is only written into it. Kernels read the memory that it
        // describes, which was checked above.
        let encoded = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3,
                from.start.address() as *mut _,
                sizes.as_ptr(),
                strides.as_ptr(),
                box_sizes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        encoded.result().map_err(|source| CudaError::Driver {
            what: "describing rows to copy (they begin at 16 bytes, as their strides are)",
            source,
        })?;
        // SAFETY: the driver reported success, so it has written the map.
        Ok(unsafe { map.assume_init() })
    }
}
