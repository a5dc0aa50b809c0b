//! Norms, embeddings, and the kernels between the vision encoder and the decoder.

use half::bf16;

use super::{Activations, Kernels, MatrixShape, launch, require};
use crate::cuda::{error::CudaError, memory::Pointer, record::DecisionRecord};

/// Up to this number of rows, each row gets a block: with a warp each, most of a large GPU would be idle.
const FEW_ROWS: usize = 256;
/// Values of the widest row that a block takes.
const FEW_WIDTH: usize = 4096;

/// Scale and shift.
#[derive(Clone, Copy, Debug)]
pub struct NormRef {
    /// `[width]`.
    pub weight: Pointer<bf16>,
    /// `[width]`.
    pub bias: Pointer<bf16>,
}

/// An encoder of coordinates or sizes.
#[derive(Clone, Copy, Debug)]
pub struct EncoderRef {
    pub frequencies: Pointer<f32>,
    /// `[width, 2 * half]`.
    pub weight: Pointer<bf16>,
    /// `[width]`.
    pub bias: Pointer<bf16>,
    /// Number of frequencies of one value.
    pub half: usize,
}

/// Tables of `embed`.
#[derive(Clone, Copy, Debug)]
pub struct InputTables {
    /// Token, coordinate, size or carried decision, as in `embed.cu`.
    pub kind: Pointer<i32>,
    /// First value.
    pub a: Pointer<i32>,
    /// Second value.
    pub b: Pointer<i32>,
}

/// What rows are embedded from.
#[derive(Clone, Copy, Debug)]
pub struct EmbedInputs {
    pub tables: InputTables,
    /// `[slots, rows]`: what rows in flight decided.
    pub decided: Pointer<DecisionRecord>,
    /// `[vocabulary, width]`.
    pub wte: Pointer<bf16>,
    pub coord: EncoderRef,
    pub size: EncoderRef,
}

/// Where embedded rows go.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedRows {
    /// `[rows, width]`.
    pub hidden: Pointer<bf16>,
    /// `[rows]`.
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
            width.is_multiple_of(8) && out.stride() == width,
            "layer norm: widths are multiples of 8, rows have no gaps",
        )?;
        require(
            x.len() >= rows * width && out.has_room_for(rows, width),
            "layer norm: a buffer is too small",
        )?;
        let few = rows <= FEW_ROWS && width <= FEW_WIDTH;
        let grid = (if few { rows } else { rows.div_ceil(8) }, 1, 1);
        let (x, to) = (x.address(), out.address());
        let (weight, bias) = (norm.weight.address(), norm.bias.address());
        let (count, wide) = (rows as i32, width as i32);
        match out {
            Activations::Bf16(_) => {
                let function = match few {
                    true => &self.layer_norm_few,
                    false => &self.layer_norm,
                };
                launch!(@on self, function, "launching layer_norm", grid, 256, 0,
                    [x, weight, bias, to, count, wide])
            }
            Activations::E4m3(_, scale) => {
                let function = match few {
                    true => &self.layer_norm_few_e4m3,
                    false => &self.layer_norm_e4m3,
                };
                launch!(@on self, function, "launching layer_norm_e4m3", grid, 256, 0,
                    [x, weight, bias, to, count, wide, scale.value.recip()])
            }
        }
    }

    /// `embed.cu`: rows.
    pub fn embed(
        &self,
        inputs: &EmbedInputs,
        out: EmbeddedRows,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let &EmbedInputs {
            tables,
            decided,
            wte,
            coord,
            size,
        } = inputs;
        let MatrixShape { rows, width } = shape;
        require(
            coord.half <= 256 && size.half <= 256,
            "embedding: up to 256 frequencies of a coordinate or size",
        )?;
        require(
            out.hidden.len() >= rows * width && out.is_zombie.len() >= rows,
            "embedding: a buffer is too small",
        )?;
        launch!(
            self,
            embed,
            (rows, width.div_ceil(64), 1),
            256,
            0,
            [
                tables.kind.address(),
                tables.a.address(),
                tables.b.address(),
                decided.address(),
                wte.address(),
                coord.frequencies.address(),
                coord.weight.address(),
                coord.bias.address(),
                coord.half as i32,
                size.frequencies.address(),
                size.weight.address(),
                size.bias.address(),
                size.half as i32,
                out.hidden.address(),
                out.is_zombie.address(),
                width as i32,
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
        launch!(
            self,
            place_images,
            (images * (tokens + 1), 1, 1),
            256,
            0,
            [
                tokens_in.address(),
                bos.address(),
                out.address(),
                tokens as i32,
                width as i32,
            ]
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
            gather_rows,
            (rows, 1, 1),
            256,
            0,
            [x.address(), index.address(), out.address(), width as i32,]
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
        require(
            out.len() >= images * grid * grid * 2 * width,
            "combining: a buffer is too small",
        )?;
        launch!(
            self,
            combine,
            (images * grid * grid, 1, 1),
            128,
            0,
            [
                inputs.features.address(),
                inputs.kept.address(),
                inputs.image.address(),
                inputs.source.address(),
                out.address(),
                grid as i32,
                margin as i32,
                width as i32,
            ]
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
            add_places,
            (rows, 1, 1),
            128,
            0,
            [x.address(), places.address(), tokens as i32, width as i32,]
        )
    }
}
