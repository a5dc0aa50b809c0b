//! Products of many rows in int8, and rows from bf16 to int8.

use cudarc::driver::sys::{
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
};

use super::{
    launch::{ByValue, Kernels, launch, require},
    tensor_map::TensorLayout,
};
use crate::cuda::{
    error::CudaError,
    tensor::{Epilogue, Int8Rows, LinearRef, MatrixShape, ScaledRows, StridedRows, WeightPointer},
};

/// Rows of a tile of both kernels; outputs of one of `int8_product`.
const TILE_ROWS: usize = 128;
const TILE_OUTPUTS: usize = 128;
/// Shared memory of `int8_product`: three stages of a tile's rows and outputs, 64 bytes of each.
const PRODUCT_SHARED_BYTES: usize = 3 * (TILE_ROWS + TILE_OUTPUTS) * 64;
/// Threads of `int8_wide`, and bytes of a row of its stages.
const WIDE_THREADS: u32 = 384;
const WIDE_DEPTH: usize = 128;
/// Tiles of 256 outputs read less for each sum, so a product is that much faster for the same work of a multiprocessor.
const LARGE_TILE_GAIN: f64 = 1.1;

/// The tiles of `int8_wide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WideTile {
    Small,
    Large,
}

impl WideTile {
    fn outputs(self) -> usize {
        match self {
            Self::Small => 128,
            Self::Large => 256,
        }
    }

    /// Six stages or four, 192 KiB.
    fn shared_bytes(self) -> usize {
        let stages = if self == Self::Small { 6 } else { 4 };
        stages * (TILE_ROWS + self.outputs()) * WIDE_DEPTH
    }

    /// How many of them a product has.
    fn count(self, rows: usize, outputs: usize) -> usize {
        rows.div_ceil(TILE_ROWS) * outputs.div_ceil(self.outputs())
    }

    /// The tile with which the busiest multiprocessor is done first.
    fn for_shape(rows: usize, outputs: usize, multiprocessors: usize) -> Self {
        let work = |tile: Self| {
            let tiles = tile.count(rows, outputs).div_ceil(multiprocessors);
            (tiles * tile.outputs()) as f64
        };
        match work(Self::Small) * LARGE_TILE_GAIN < work(Self::Large) {
            true => Self::Small,
            false => Self::Large,
        }
    }
}

/// The kernels with dynamic shared memory, and its bytes.
pub(super) fn shared_bytes() -> impl Iterator<Item = (String, usize)> {
    [Epilogue::Bias, Epilogue::BiasGelu, Epilogue::BiasAdd]
        .into_iter()
        .flat_map(|epilogue| {
            let name = suffix(epilogue);
            let wide = [WideTile::Small, WideTile::Large].map(|tile| {
                let name = format!("int8_wide_{}_{name}", tile.outputs());
                (name, tile.shared_bytes())
            });
            let product = (format!("int8_product_{name}"), PRODUCT_SHARED_BYTES);
            wide.into_iter().chain([product])
        })
}

fn suffix(epilogue: Epilogue) -> &'static str {
    match epilogue {
        Epilogue::Bias => "bias",
        Epilogue::BiasGelu => "gelu",
        Epilogue::BiasAdd => "add",
    }
}

impl Kernels {
    /// `quantise.cu`: rows to int8, each with the scale of its largest magnitude.
    pub fn quantise_rows(
        &self,
        x: StridedRows,
        out: Int8Rows,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            [width, x.stride, out.values.stride]
                .iter()
                .all(|n| n.is_multiple_of(8)),
            "int8: widths and strides are multiples of 8",
        )?;
        require(
            x.has_room_for(rows, width) && out.has_room_for(rows, width),
            "int8: a buffer is too small",
        )?;
        launch!(
            self,
            "quantise_rows",
            (rows, 1, 1),
            256,
            [
                x.start,
                out.values.start,
                out.scales,
                width,
                x.stride,
                out.values.stride
            ]
        )
    }

    /// `int8_wide.cu` or, without warpgroups, `int8_product.cu`: `out = epilogue(x w^T + bias)` for `rows` rows.
    pub fn int8_product(
        &self,
        linear: &LinearRef,
        x: Int8Rows,
        out: StridedRows,
        rows: usize,
        epilogue: Epilogue,
    ) -> Result<(), CudaError> {
        let WeightPointer::Int8(ScaledRows {
            values: weights,
            scales,
        }) = linear.weight
        else {
            return Err(CudaError::Shape(
                "a product in int8 of weights in bf16".into(),
            ));
        };
        let (outputs, inner) = (linear.outputs, linear.inner);
        require(
            [inner, x.values.stride, weights.stride]
                .iter()
                .all(|n| n.is_multiple_of(16))
                && outputs.is_multiple_of(8)
                && out.stride.is_multiple_of(8),
            "int8: inputs are multiples of 16, outputs and their stride of 8",
        )?;
        require(
            x.has_room_for(rows, inner)
                && out.has_room_for(rows, outputs)
                && linear.is_within_buffers()
                && linear.bias.len() >= outputs,
            "int8: a buffer is too small",
        )?;
        let suffix = suffix(epilogue);
        if !self.has("int8_wide_256_bias") {
            let tiles = rows.div_ceil(TILE_ROWS) * outputs.div_ceil(TILE_OUTPUTS);
            return launch!(
                self,
                &format!("int8_product_{suffix}"),
                (tiles, 1, 1),
                128,
                [
                    x.values.start,
                    x.scales,
                    weights.start,
                    scales,
                    linear.bias,
                    out.start,
                    rows,
                    outputs,
                    inner,
                    x.values.stride,
                    weights.stride,
                    out.stride,
                ]
            );
        }
        let tile = WideTile::for_shape(rows, outputs, self.multiprocessors);
        let (width, tiles) = (tile.outputs(), tile.count(rows, outputs));
        let map = |address, rows: usize, stride: usize, box_rows| {
            TensorLayout {
                address,
                number: CU_TENSOR_MAP_DATA_TYPE_UINT8,
                sizes: [inner, rows, 1],
                stride_bytes: [stride, stride * rows],
                box_sizes: [WIDE_DEPTH, box_rows, 1],
                swizzle: CU_TENSOR_MAP_SWIZZLE_128B,
            }
            .encode()
        };
        let x_map = map(x.values.start.address(), rows, x.values.stride, TILE_ROWS)?;
        let w_map = map(weights.start.address(), outputs, weights.stride, width)?;
        launch!(
            self,
            &format!("int8_wide_{width}_{suffix}"),
            (tiles.min(self.multiprocessors), 1, 1),
            WIDE_THREADS,
            [
                ByValue(x_map),
                ByValue(w_map),
                x.scales,
                scales,
                linear.bias,
                out.start,
                rows,
                outputs,
                inner,
                out.stride,
            ]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fill_the_multiprocessors_of_an_h100() {
        // One crop: few tiles of 256 outputs would leave most multiprocessors idle. Measured there: 7 instead of 10 us.
        assert_eq!(WideTile::for_shape(729, 1152, 132), WideTile::Small);
        // Nine crops: the same number of waves, less reading. Measured: 77 instead of 97 us.
        assert_eq!(WideTile::for_shape(6561, 1152, 132), WideTile::Large);
        // Four images in the decoder: 184 tiles of 256 outputs take two waves. Measured: 90 instead of 108 us.
        assert_eq!(WideTile::for_shape(2920, 2048, 132), WideTile::Small);
    }
}
