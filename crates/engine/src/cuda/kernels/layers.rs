//! Norms, embeddings, the kernels between the vision encoder and the decoder, and conversion to e4m3.

use half::bf16;

use super::launch::{Kernels, launch, require};
use crate::cuda::{
    error::CudaError,
    memory::Pointer,
    record::DecisionRecord,
    tensor::{Activations, GpuEncoder, MatrixShape, NormRef, Scale, StridedRows},
};
use crate::network::Norm;

/// Up to this number of rows, each row gets a block: with a warp each, most of a large GPU would be idle.
pub(super) const NORM_FEW_ROWS: usize = 256;
/// Values of the widest row that a block takes.
pub(super) const NORM_FEW_WIDTH: usize = 4096;

/// What `embed` reads and writes.
#[derive(Clone, Copy)]
pub struct EmbedInputs {
    /// `[rows]`: token, coordinate, size or carried decision, as in `embed.cu`.
    pub kind: Pointer<i32>,
    /// `[rows]`: first and second value.
    pub values: [Pointer<i32>; 2],
    /// `[slots, rows]`: what rows in flight decided.
    pub decided: Pointer<DecisionRecord>,
    /// `[vocabulary, width]`.
    pub wte: Pointer<bf16>,
    pub coord: GpuEncoder,
    pub size: GpuEncoder,
    /// `[rows, width]`: the embedded rows.
    pub hidden: Pointer<bf16>,
    /// `[rows]`: written too.
    pub is_zombie: Pointer<i32>,
}

/// Images of a step.
#[derive(Clone, Copy, Debug)]
pub struct ImageShape {
    pub images: usize,
    /// Tokens of an image.
    pub tokens: usize,
    /// Values of a token.
    pub width: usize,
}

/// Features of crops, and which of them make an image.
#[derive(Clone, Copy, Debug)]
pub struct CombineInputs {
    /// `[crops, grid * grid, width]`: made by this step.
    pub features: Pointer<bf16>,
    /// The same of earlier steps.
    pub kept: Pointer<bf16>,
    /// `[images, 3]`: an image's first crop, rows and columns of tiles.
    pub image: Pointer<i32>,
    /// `[crops]`: a place in `features`, or -1 - a place in `kept`.
    pub source: Pointer<i32>,
}

/// How the features of an image are combined.
#[derive(Clone, Copy, Debug)]
pub struct CombineShape {
    pub images: usize,
    /// Cells along each side of a crop.
    pub grid: usize,
    /// Cells that a tile gives up where it overlaps its neighbour.
    pub margin: usize,
    /// Values of a cell.
    pub width: usize,
}

impl Kernels {
    /// `layer_norm.cu`; rows without gaps.
    pub fn layer_norm(
        &self,
        x: Pointer<bf16>,
        norm: NormRef,
        out: Activations,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            width.is_multiple_of(8)
                && (out.stride() == width || matches!(out, Activations::Int8(_))),
            "layer norm: widths are multiples of 8, rows have no gaps",
        )?;
        require(
            x.len() >= rows * width && out.has_room_for(rows, width),
            "layer norm: a buffer is too small",
        )?;
        let Norm { weight, bias } = norm;
        if let Activations::Int8(out) = out {
            return launch!(
                self,
                "layer_norm_int8",
                (rows.div_ceil(8), 1, 1),
                256,
                [
                    x,
                    weight,
                    bias,
                    out.values.start,
                    out.scales,
                    rows,
                    width,
                    out.values.stride
                ]
            );
        }
        let (kernel, blocks) = match rows <= NORM_FEW_ROWS && width <= NORM_FEW_WIDTH {
            true => ("layer_norm_few", rows),
            false => ("layer_norm", rows.div_ceil(8)),
        };
        let (name, scale) = out.writer(kernel);
        launch!(
            self,
            &name,
            (blocks, 1, 1),
            256,
            [x, weight, bias, out, rows, width, scale]
        )
    }

    /// `embed.cu`: rows.
    pub fn embed(&self, inputs: &EmbedInputs, shape: MatrixShape) -> Result<(), CudaError> {
        let (hidden, is_zombie) = (inputs.hidden, inputs.is_zombie);
        let (coord, size, [a, b]) = (inputs.coord, inputs.size, inputs.values);
        let [coord_half, size_half] = [coord, size].map(|encoder| encoder.linear.inner / 2);
        let MatrixShape { rows, width } = shape;
        require(
            coord_half <= 256 && size_half <= 256,
            "embedding: up to 256 frequencies of a coordinate or size",
        )?;
        require(
            hidden.len() >= rows * width && is_zombie.len() >= rows,
            "embedding: a buffer is too small",
        )?;
        launch!(
            self,
            "embed",
            (rows, width.div_ceil(64), 1),
            256,
            [
                inputs.kind,
                a,
                b,
                inputs.decided,
                inputs.wte,
                coord.frequencies,
                coord.linear.bf16()?,
                coord.linear.bias,
                coord_half,
                size.frequencies,
                size.linear.bf16()?,
                size.linear.bias,
                size_half,
                hidden,
                is_zombie,
                width
            ]
        )
    }

    /// `embed.cu`: images.
    pub fn place_images(
        &self,
        tokens_in: Pointer<bf16>,
        bos: Pointer<bf16>,
        out: Pointer<bf16>,
        shape: ImageShape,
    ) -> Result<(), CudaError> {
        let ImageShape {
            images,
            tokens,
            width,
        } = shape;
        require(
            tokens_in.len() >= images * tokens * width
                && out.len() >= images * (tokens + 1) * width,
            "images: a buffer is too small",
        )?;
        let grid = (images * (tokens + 1), 1, 1);
        launch!(
            self,
            "place_images",
            grid,
            256,
            [tokens_in, bos, out, tokens, width]
        )
    }

    /// `embed.cu`: rows by index.
    pub fn gather_rows(
        &self,
        x: Pointer<bf16>,
        index: Pointer<i32>,
        out: Pointer<bf16>,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            out.len() >= rows * width && index.len() >= rows,
            "rows: a buffer is too small",
        )?;
        launch!(
            self,
            "gather_rows",
            (rows, 1, 1),
            256,
            [x, index, out, width]
        )
    }

    /// `combine.cu`: features, of this step and kept ones, to the projection's input. The backend checks the two tables when it
    /// writes them.
    pub fn combine(
        &self,
        inputs: &CombineInputs,
        out: Pointer<bf16>,
        shape: CombineShape,
    ) -> Result<(), CudaError> {
        let &CombineInputs {
            features,
            kept,
            image,
            source,
        } = inputs;
        let CombineShape {
            images,
            grid,
            margin,
            width,
        } = shape;
        require(
            width.is_multiple_of(8),
            "combining: widths are multiples of 8",
        )?;
        let cells = images * grid * grid;
        require(
            out.len() >= cells * 2 * width,
            "combining: a buffer is too small",
        )?;
        launch!(
            self,
            "combine",
            (cells, 1, 1),
            128,
            [features, kept, image, source, out, grid, margin, width]
        )
    }

    /// `combine.cu`: position embeddings of the patches, `[tokens, width]`, again for each crop.
    pub fn add_places(
        &self,
        x: Pointer<bf16>,
        places: Pointer<bf16>,
        shape: MatrixShape,
        tokens: usize,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            x.len() >= rows * width && places.len() >= tokens * width,
            "places: a buffer is too small",
        )?;
        launch!(
            self,
            "add_places",
            (rows, 1, 1),
            128,
            [x, places, tokens, width]
        )
    }

    /// `quantise.cu`: `out = x / scale` in e4m3.
    pub fn quantise(
        &self,
        x: StridedRows,
        out: StridedRows<u8>,
        scale: Scale,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            [width, x.stride, out.stride]
                .iter()
                .all(|n| n.is_multiple_of(8)),
            "quantising: widths and strides are multiples of 8",
        )?;
        require(
            x.has_room_for(rows, width) && out.has_room_for(rows, width),
            "quantising: a buffer is too small",
        )?;
        let factor = scale.value.recip();
        launch!(
            self,
            "quantise",
            (rows, 1, 1),
            256,
            [x.start, out.start, width, x.stride, out.stride, factor]
        )
    }

    /// `quantise.cu`: `into = max(into, |x|)` over all values.
    pub fn abs_max(
        &self,
        x: StridedRows,
        into: Pointer<f32>,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            width.is_multiple_of(8) && x.stride.is_multiple_of(8),
            "largest magnitude: widths and strides are multiples of 8",
        )?;
        require(
            x.has_room_for(rows, width) && into.len() > 0,
            "largest magnitude: a buffer is too small",
        )?;
        launch!(
            self,
            "abs_max",
            (rows, 1, 1),
            256,
            [x.start, into, width, x.stride]
        )
    }
}
