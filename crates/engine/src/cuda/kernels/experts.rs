//! Mixture of experts: which experts compute a row, their products, and the sum of their results.
//!
//! ```text
//!   router logits ─▶ route, group_rows ─▶ slots: a row of one expert each, sorted by expert, then by row
//!   normed rows ───────────────────────────▶ up ─▶ gelu(h) * (g + 1) ─▶ down ─▶ add_experts ─▶ hidden rows (─▶ the next layer norm)
//!                                            [slots, inner]             [slots, width]
//! ```
//!
//! Everything stays on the GPU: the host knows the number of rows, and launches as many blocks as the least even choice of experts needs.
//! Blocks that find no work end at once. No result depends on the order of atomics, so equal steps have equal bits.
//!
//! **Many rows** (`experts_product.cu`): one launch of tiles of up to 128 slots of one expert by 128 rows of its weights, with the
//! tensor cores' bf16 (`mma.sync`, sm_80 and newer). Weights in e4m3 are converted behind shared memory, once for all rows of a tile. The tile is
//! 128 rows high because 740 positions give each of 64 experts 92: its weights are read once. Rows that an expert does not have are left
//! out, 16 at a time. **Few rows** (`experts_few.cu`): each block reads 16 outputs of one expert, straight into registers.
//!
//! Floors of a layer of Moondream 3 (64 experts of 6.3 million weights, 8 active, so 101 MFLOP a row) on an H100 of 2.8 TB/s and
//! 700 TFLOP/s, and what was measured there with random weights, without the router:
//!
//! | rows | experts read | weights in e4m3 / bf16 | reading them | FLOP | computing | measured, e4m3 / bf16 | inputs in e4m3 too |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 1 | 8 | 50 / 101 MB | 18 / 36 µs | 0.1 G | – | 31 / 44 µs | – |
//! | 8 | 42 | 264 / 528 MB | 94 / 189 µs | 0.8 G | 1 µs | 108 / 178 µs | – |
//! | 32 | 63 | 397 / 795 MB | 142 / 284 µs | 3.2 G | 5 µs | 157 / 270 µs | – |
//! | 740 | 64 | 403 / 805 MB | 144 / 288 µs | 75 G | 106 µs | 453 / 433 µs | 216 µs |
//! | 2960 | 64 | 403 / 805 MB | 144 / 288 µs | 298 G | 426 µs | 1534 / 1453 µs | 418 µs |
//!
//! Few rows read at 87 to 89 % of the memory's speed. For many rows `mma.sync` reaches 29 % of the tensor cores' rate in bf16, where half was expected:
//! the next thing to improve.
//!
//! With inputs in e4m3 too, each row with a scale of its own, the same tiles take half of the tensor cores' time on sm_89 and sm_120. The compiler
//! converts e4m3 to f16 for `mma.sync` on sm_90 (seen in its code), so an H100 has products of warpgroups (`experts_wide.cu`): at 2,960 rows 55 % of
//! the 230 µs' rate, when rows of x were copied for each slot before (another 145 MB); copies between the products are some 290 MB.
//!
//! Weights in int8 are beside inputs in int8, each row with a scale, or of few rows in bf16. Those in int4 are beside inputs in bf16. Few rows are
//! summed by group and then scaled; in a tile the weights are rounded to bf16 with their scales, once for all its rows.

use std::sync::Arc;

use cudarc::driver::{
    CudaStream,
    sys::{
        CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    },
};
use half::bf16;

use self::ExpertKernel::{Few, Tiles, Wide};
use super::{
    launch::{Address, ByValue, Kernels, launch, require},
    layers::{NORM_FEW_ROWS, NORM_FEW_WIDTH},
    tensor_map::TensorLayout,
};
use crate::{
    cuda::{
        error::CudaError,
        memory::{Buffer, Pointer},
        tensor::{
            Activations, E4m3Rows, Int4Rows, Int8Rows, MatrixShape, NormRef, ScaledRows,
            StridedRows, WeightPointer,
        },
    },
    model::TextConfig,
    network::format::{INT4_GROUP, Number},
};

/// The most experts of a layer: a set of them is a 64-bit word.
const EXPERTS_MAX: usize = 64;
/// The most active ones: a lane of a warp each.
const ACTIVE_MAX: usize = 32;
/// Rows of a tile of `experts_product`, and its outputs.
const TILE_ROWS: usize = 128;
const TILE_OUTPUTS: usize = 128;
/// Values of one operand in shared memory: three stages of a tile's rows or outputs, 64 of each.
const STAGE_VALUES: usize = 3 * 128 * 64;
/// Threads of `experts_wide`, rows of weights of a tile, bytes of a row of its stages, and its four stages.
const WIDE_THREADS: u32 = 384;
const WIDE_OUTPUTS: usize = 256;
const WIDE_DEPTH: usize = 128;
const WIDE_SHARED_BYTES: usize = 4 * (TILE_ROWS + WIDE_OUTPUTS) * WIDE_DEPTH;
/// Up to this number of rows, reading the weights limits the speed, and one block routes all of them.
pub const EXPERTS_FEW_ROWS: usize = 32;

/// What products of experts multiply, and the kernels that do.
struct ExpertFormat {
    weight: Number,
    input: Number,
    /// What the names of its kernels end with, but for `experts_wide`.
    suffix: &'static str,
    kernels: &'static [ExpertKernel],
}

impl ExpertFormat {
    const ALL: [Self; 6] = [
        Self::new(Number::Bf16, Number::Bf16, "", &Self::ANY_ROWS),
        Self::new(Number::E4m3, Number::Bf16, "_e4m3", &Self::ANY_ROWS),
        Self::new(Number::E4m3, Number::E4m3, "_in_e4m3", &[Tiles, Wide]),
        Self::new(Number::Int8, Number::Bf16, "_int8", &[Few]),
        Self::new(Number::Int8, Number::Int8, "_in_int8", &[Tiles]),
        Self::new(Number::Int4, Number::Bf16, "_int4", &Self::ANY_ROWS),
    ];
    const ANY_ROWS: [ExpertKernel; 2] = [Few, Tiles];

    const fn new(
        weight: Number,
        input: Number,
        suffix: &'static str,
        kernels: &'static [ExpertKernel],
    ) -> Self {
        Self {
            weight,
            input,
            suffix,
            kernels,
        }
    }

    fn of(weight: Number, input: Number, kernel: ExpertKernel) -> Result<&'static Self, CudaError> {
        let mut formats = const { &Self::ALL }.iter();
        let found = formats.find(|format| {
            format.weight == weight && format.input == input && format.kernels.contains(&kernel)
        });
        found.ok_or_else(|| {
            CudaError::Shape(format!(
                "experts in {weight:?} have no kernel {kernel:?} for inputs in {input:?}"
            ))
        })
    }

    /// Of the stages of `experts_product`.
    fn tile_shared_bytes(&self) -> usize {
        (self.weight.bits() + self.input.bits()) * STAGE_VALUES / 8
    }
}

/// The kernels with dynamic shared memory, and its bytes.
pub(super) fn shared_bytes() -> impl Iterator<Item = (String, usize)> {
    let parts = ["up", "down"];
    let formats = const { &ExpertFormat::ALL }.iter();
    let with_tiles = formats.filter(|format| format.kernels.contains(&Tiles));
    let tiles = with_tiles.flat_map(move |format| {
        let name = |part| format!("experts_{part}{}", format.suffix);
        parts.map(|part| (name(part), format.tile_shared_bytes()))
    });
    let wide = ["up", "sums", "down"];
    tiles.chain(wide.map(|part| (format!("experts_wide_{part}"), WIDE_SHARED_BYTES)))
}

/// Sizes of a layer of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    pub experts: usize,
    /// Experts that compute a row.
    pub active: usize,
    /// Values of a row.
    pub width: usize,
    /// Values between the two products of an expert.
    pub inner: usize,
}

impl ExpertShape {
    /// Of a model's experts, if it has some.
    pub fn of(config: &TextConfig) -> Option<Self> {
        config.moe.map(|moe| Self {
            experts: moe.num_experts,
            active: moe.experts_per_token,
            width: config.dim,
            inner: moe.expert_inner_dim,
        })
    }

    pub fn check(&self) -> Result<(), CudaError> {
        require(
            (1..=EXPERTS_MAX).contains(&self.experts)
                && (1..=self.experts.min(ACTIVE_MAX)).contains(&self.active)
                && self.width.is_multiple_of(16)
                && self.inner.is_multiple_of(16),
            "experts: up to 64, up to 32 of them active, widths are multiples of 16",
        )
    }
}

/// One of the two products of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertPart {
    /// `gelu(h) * (g + 1)` of `[h | g] = x w^T`: `2 * inner` outputs of `width` inputs become `inner` values.
    Up,
    /// `[h | g]` alone, `2 * inner` sums of `width` inputs: adapters add to them.
    UpSums,
    /// `width` outputs of `inner` inputs.
    Down,
}

/// A kernel for products of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertKernel {
    /// `experts_few.cu`
    Few,
    /// `experts_product.cu`
    Tiles,
    /// `experts_wide.cu`: both operands in e4m3, products of warpgroups (sm_90a).
    Wide,
}

impl ExpertKernel {
    /// The faster one for inputs in bf16.
    pub fn for_rows(rows: usize) -> Self {
        match rows {
            0..=EXPERTS_FEW_ROWS => Self::Few,
            _ => Self::Tiles,
        }
    }
}

/// Inputs of a product of experts.
#[derive(Clone, Copy, Debug)]
pub enum ExpertInputs {
    Bf16(StridedRows),
    /// Beside weights in e4m3, for many rows, on GPUs that have it.
    E4m3(E4m3Rows),
    /// Beside weights in int8, for many rows.
    Int8(Int8Rows),
}

/// A product of experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertProduct {
    pub part: ExpertPart,
    /// Of all experts, `[experts, outputs, inputs]`.
    pub weights: WeightPointer,
    /// Up: `[rows, width]`; down: `[slots, inner]`.
    pub x: ExpertInputs,
    /// Up: `[slots, inner]`, its sums `[slots, 2 * inner]`; down: `[slots, width]`.
    pub out: Pointer<bf16>,
}

/// What the experts of rows made of them.
#[derive(Clone, Copy)]
pub struct ExpertResults<'a> {
    pub routing: &'a Routing,
    /// `[slots, width]`
    pub results: Pointer<bf16>,
    pub rows: usize,
}

/// Rows to be routed.
#[derive(Clone, Copy, Debug)]
pub struct RoutedRows {
    /// `[rows, experts]`
    pub logits: Pointer<bf16>,
    pub rows: usize,
    /// `[flagged]`: those of the first rows that have no expert, because they are zombies or padding.
    pub is_zombie: Pointer<i32>,
    pub flagged: usize,
}

/// The experts of each row, and the rows of each expert.
pub struct Routing {
    pub shape: ExpertShape,
    /// `[rows, active]`: by falling logit; -1 where the row has none.
    pub expert: Buffer<i32>,
    /// `[rows, active]`
    pub weight: Buffer<f32>,
    /// `[rows]`: the row's experts as a set; not of few rows.
    chosen: Buffer<u64>,
    /// `[experts + 1]`: the first slot of each expert.
    pub offset: Buffer<i32>,
    /// `[experts]`: those with rows, then -1.
    pub used: Buffer<i32>,
    /// `[slots]`: the row of each slot.
    pub slot_row: Buffer<i32>,
    /// `[rows, active]`: the slot of each row and expert.
    pub slot_of: Buffer<i32>,
}

impl Routing {
    /// For up to `rows` rows.
    pub fn new(
        stream: &Arc<CudaStream>,
        shape: ExpertShape,
        rows: usize,
    ) -> Result<Self, CudaError> {
        shape.check()?;
        let slots = rows * shape.active;
        let ints = |len| Buffer::zeros(stream, len);
        Ok(Self {
            shape,
            expert: ints(slots)?,
            weight: Buffer::zeros(stream, slots)?,
            chosen: Buffer::zeros(stream, rows)?,
            offset: ints(shape.experts + 1)?,
            used: ints(shape.experts)?,
            slot_row: ints(slots)?,
            slot_of: ints(slots)?,
        })
    }

    pub fn bytes(shape: ExpertShape, rows: usize) -> usize {
        let of_slot = 3 * size_of::<i32>() + size_of::<f32>();
        rows * (shape.active * of_slot + size_of::<u64>())
            + (2 * shape.experts + 1) * size_of::<i32>()
    }

    pub fn has_room_for(&self, rows: usize) -> bool {
        self.chosen.start().len() >= rows
    }
}

impl Kernels {
    /// Those of [`ExpertKernel::Wide`].
    pub fn has_wide_experts(&self) -> bool {
        self.has("experts_wide_up")
    }

    /// `route.cu`: the experts of each row, and the rows of each expert.
    pub fn route(&self, routing: &Routing, from: RoutedRows) -> Result<(), CudaError> {
        let RoutedRows {
            logits,
            rows,
            is_zombie,
            flagged,
        } = from;
        let ExpertShape {
            experts, active, ..
        } = routing.shape;
        require(
            routing.has_room_for(rows)
                && logits.len() >= rows * experts
                && is_zombie.len() >= flagged,
            "routing: a buffer is too small",
        )?;
        if rows == 0 {
            return Ok(());
        }
        let (expert, chosen) = (routing.expert.start(), routing.chosen.start());
        if rows <= EXPERTS_FEW_ROWS {
            return launch!(
                self,
                "route_few",
                (1, 1, 1),
                1024,
                [
                    logits,
                    is_zombie,
                    expert,
                    routing.weight.start(),
                    routing.offset.start(),
                    routing.used.start(),
                    routing.slot_row.start(),
                    routing.slot_of.start(),
                    rows,
                    flagged,
                    experts,
                    active
                ]
            );
        }
        launch!(
            self,
            "route",
            (rows.div_ceil(4), 1, 1),
            128,
            [
                logits,
                is_zombie,
                expert,
                routing.weight.start(),
                chosen,
                rows,
                flagged,
                experts,
                active
            ]
        )?;
        launch!(
            self,
            "group_rows",
            (experts, 1, 1),
            1024,
            [
                expert,
                chosen,
                routing.offset.start(),
                routing.used.start(),
                routing.slot_row.start(),
                routing.slot_of.start(),
                rows,
                experts,
                active
            ]
        )
    }

    /// A product of the experts of `rows` routed rows.
    pub fn expert_product(
        &self,
        kernel: ExpertKernel,
        routing: &Routing,
        product: &ExpertProduct,
        rows: usize,
    ) -> Result<(), CudaError> {
        let (weights, x) = (Operand::of_weights(product.weights)?, product.x.operand());
        let format = ExpertFormat::of(weights.number, x.number, kernel)?;
        let size = ExpertSizes::new(routing.shape, product.part, rows);
        require(
            x.starts_at_units() && x.has_room_for(size.x_rows, size.depth),
            "experts: rows begin at multiples of 16 bytes and are within their buffer",
        )?;
        let w_rows = routing.shape.experts * size.w_rows;
        require(
            routing.has_room_for(rows)
                && product.out.len() >= size.slots * size.outputs
                && weights.has_room_for(w_rows, size.depth),
            "experts: a buffer is too small",
        )?;
        if rows == 0 {
            return Ok(());
        }
        let launch = ExpertLaunch {
            kernels: self,
            routing,
            part: product.part,
            suffix: format.suffix,
            weights,
            x,
            out: product.out,
            size,
        };
        match kernel {
            Few => launch.few(),
            Tiles => launch.tiles(),
            Wide => launch.wide(),
        }
    }

    /// `quantise.cu`: rows to e4m3, each with the scale of its largest magnitude.
    pub fn quantise_rows_e4m3(
        &self,
        x: StridedRows,
        to: E4m3Rows,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let (MatrixShape { rows, width }, out) = (shape, to.values);
        require(
            [width, x.stride, out.stride]
                .iter()
                .all(|n| n.is_multiple_of(8)),
            "quantising rows: widths and strides are multiples of 8",
        )?;
        require(
            x.has_room_for(rows, width) && to.has_room_for(rows, width),
            "quantising rows: a buffer is too small",
        )?;
        launch!(
            self,
            "quantise_rows_e4m3",
            (rows.div_ceil(8), 1, 1),
            256,
            [
                x.start, out.start, to.scales, rows, width, x.stride, out.stride
            ]
        )
    }

    /// `route.cu`, last kernel: adds the results to each row of `to`, weighted.
    pub fn add_experts(&self, from: &ExpertResults<'_>, to: StridedRows) -> Result<(), CudaError> {
        let ExpertShape { active, width, .. } = from.routing.shape;
        require(
            to.stride.is_multiple_of(8),
            "experts: rows begin at multiples of 16 bytes",
        )?;
        require(
            from.are_within_buffers() && to.has_room_for(from.rows, width),
            "experts: a buffer is too small",
        )?;
        if from.rows == 0 {
            return Ok(());
        }
        launch!(
            self,
            "add_experts",
            (from.rows, 1, 1),
            256,
            [
                from.results,
                from.routing.expert.start(),
                from.routing.weight.start(),
                from.routing.slot_of.start(),
                to.start,
                width,
                to.stride,
                active
            ]
        )
    }

    /// The same to rows without gaps, and their layer norm, which is in bf16 or made by a kernel of its own.
    pub fn add_experts_and_norm(
        &self,
        from: &ExpertResults<'_>,
        to: Pointer<bf16>,
        norm: NormRef,
        out: Activations,
    ) -> Result<(), CudaError> {
        let (rows, ExpertShape { active, width, .. }) = (from.rows, from.routing.shape);
        let is_one_launch = matches!(out, Activations::Bf16(_))
            && out.stride() == width
            && (1..=NORM_FEW_ROWS).contains(&rows)
            && width <= NORM_FEW_WIDTH;
        if !is_one_launch {
            self.add_experts(from, StridedRows::packed(to, width))?;
            return self.layer_norm(to, norm, out, MatrixShape { rows, width });
        }
        require(
            from.are_within_buffers() && to.len() >= rows * width && out.has_room_for(rows, width),
            "experts: a buffer is too small",
        )?;
        launch!(
            self,
            "layer_norm_few_experts",
            (rows, 1, 1),
            256,
            [
                to,
                norm.weight,
                norm.bias,
                out,
                width,
                from.results,
                from.routing.expert.start(),
                from.routing.weight.start(),
                from.routing.slot_of.start(),
                active
            ]
        )
    }
}

impl ExpertResults<'_> {
    fn are_within_buffers(&self) -> bool {
        let ExpertShape { active, width, .. } = self.routing.shape;
        self.routing.has_room_for(self.rows) && self.results.len() >= self.rows * active * width
    }
}

/// A matrix that a product reads.
struct Operand {
    number: Number,
    values: u64,
    /// Values that its buffer has, and those from row to row.
    len: usize,
    stride: usize,
    /// Numbers without scales have none.
    scales: Option<Scaling>,
}

/// Scales of a row, each of so many values.
struct Scaling {
    at: u64,
    len: usize,
    values: usize,
}

impl Scaling {
    /// One for a row.
    const OF_ROW: usize = usize::MAX;

    fn has_room_for(&self, rows: usize, depth: usize) -> bool {
        let is_whole = self.values == Self::OF_ROW || depth.is_multiple_of(self.values);
        is_whole && self.len >= rows * depth.div_ceil(self.values)
    }
}

impl Operand {
    fn plain(rows: StridedRows) -> Self {
        Self {
            number: Number::Bf16,
            values: rows.start.address(),
            len: rows.start.len(),
            stride: rows.stride,
            scales: None,
        }
    }

    fn scaled<T: Copy>(number: Number, rows: ScaledRows<T>) -> Self {
        let ScaledRows { values, scales } = rows;
        Self {
            number,
            values: values.start.address(),
            len: values.start.len(),
            stride: values.stride,
            scales: Some(Scaling {
                at: scales.address(),
                len: scales.len(),
                values: Scaling::OF_ROW,
            }),
        }
    }

    fn grouped(rows: Int4Rows) -> Self {
        Self {
            number: Number::Int4,
            values: rows.values.address(),
            len: rows.values.len() * Int4Rows::PACKED,
            stride: rows.width,
            scales: Some(Scaling {
                at: rows.scales.address(),
                len: rows.scales.len(),
                values: INT4_GROUP,
            }),
        }
    }

    fn of_weights(weights: WeightPointer) -> Result<Self, CudaError> {
        match weights {
            WeightPointer::Bf16(values) => Ok(Self::plain(StridedRows::packed(values, 0))),
            WeightPointer::ExpertE4m3(rows) => Ok(Self::scaled(Number::E4m3, rows)),
            WeightPointer::ExpertInt8(rows) => Ok(Self::scaled(Number::Int8, rows)),
            WeightPointer::ExpertInt4(rows) => Ok(Self::grouped(rows)),
            _ => Err(CudaError::Shape(
                "weights of one layer are where those of experts must be".into(),
            )),
        }
    }

    /// True when each row begins at a multiple of 16 bytes.
    fn starts_at_units(&self) -> bool {
        (self.stride * self.number.bits()).is_multiple_of(128)
    }

    fn has_room_for(&self, rows: usize, depth: usize) -> bool {
        let values = rows.saturating_sub(1) * self.stride.max(depth) + depth;
        let scales = self.scales.as_ref();
        let has_scales = scales.is_none_or(|scales| scales.has_room_for(rows, depth));
        rows == 0 || self.len >= values && has_scales
    }

    fn scales(&self) -> Address {
        Address(self.scales.as_ref().map_or(0, |scales| scales.at))
    }
}

impl ExpertInputs {
    fn operand(self) -> Operand {
        match self {
            Self::Bf16(rows) => Operand::plain(rows),
            Self::E4m3(rows) => Operand::scaled(Number::E4m3, rows),
            Self::Int8(rows) => Operand::scaled(Number::Int8, rows),
        }
    }
}

impl ExpertPart {
    /// Of kernels: where rows of x are named, sums are what `down` makes.
    fn name(self, kernel: ExpertKernel) -> &'static str {
        match (self, kernel) {
            (Self::Up, _) => "up",
            (Self::UpSums, Wide) => "sums",
            (Self::UpSums | Self::Down, _) => "down",
        }
    }

    /// True where a row is the input of several slots.
    fn reads_rows(self) -> bool {
        self != Self::Down
    }
}

/// Sizes of a product.
struct ExpertSizes {
    experts: usize,
    slots: usize,
    /// Rows of w of an expert.
    w_rows: usize,
    x_rows: usize,
    /// Values of a result.
    outputs: usize,
    /// Summed values.
    depth: usize,
    /// Outputs of a block of `experts_few`, and of a tile. Of up, both have as many of h and of g.
    unit: usize,
    tile_outputs: usize,
}

impl ExpertSizes {
    fn new(shape: ExpertShape, part: ExpertPart, rows: usize) -> Self {
        let ExpertShape {
            experts,
            active,
            width,
            inner,
        } = shape;
        let slots = rows * active;
        let (half, outputs, depth) = match part {
            ExpertPart::Up => (2, inner, width),
            ExpertPart::UpSums => (1, 2 * inner, width),
            ExpertPart::Down => (1, width, inner),
        };
        Self {
            experts,
            slots,
            w_rows: half * outputs,
            x_rows: match part.reads_rows() {
                true => rows,
                false => slots,
            },
            outputs,
            depth,
            unit: 16 / half,
            tile_outputs: TILE_OUTPUTS / half,
        }
    }

    /// The most tiles.
    fn tiles(&self) -> usize {
        row_tiles_max(self.experts, self.slots) * self.outputs.div_ceil(self.tile_outputs)
    }
}

/// A product with all that its kernel reads, checked.
struct ExpertLaunch<'a> {
    kernels: &'a Kernels,
    routing: &'a Routing,
    part: ExpertPart,
    suffix: &'static str,
    weights: Operand,
    x: Operand,
    out: Pointer<bf16>,
    size: ExpertSizes,
}

impl ExpertLaunch<'_> {
    /// The row of x of each slot, where they are not the same.
    fn slot_row(&self) -> Address {
        let slot_row = self.routing.slot_row.start();
        Address(match self.part.reads_rows() {
            true => slot_row.address(),
            false => 0,
        })
    }

    fn few(&self) -> Result<(), CudaError> {
        let (size, routing) = (&self.size, self.routing);
        launch!(
            self.kernels,
            &format!("experts_few_{}{}", self.part.name(Few), self.suffix),
            (size.outputs / size.unit, size.experts.min(size.slots), 1),
            256,
            [
                Address(self.x.values),
                Address(self.weights.values),
                self.weights.scales(),
                routing.offset.start(),
                self.slot_row(),
                routing.used.start(),
                self.out,
                size.outputs,
                size.depth,
                self.x.stride
            ]
        )
    }

    fn tiles(&self) -> Result<(), CudaError> {
        let (size, routing) = (&self.size, self.routing);
        launch!(
            self.kernels,
            &format!("experts_{}{}", self.part.name(Tiles), self.suffix),
            (size.tiles(), 1, 1),
            128,
            [
                Address(self.x.values),
                Address(self.weights.values),
                self.weights.scales(),
                routing.offset.start(),
                self.slot_row(),
                self.out,
                size.outputs,
                size.depth,
                self.x.stride,
                size.experts,
                self.x.scales()
            ]
        )
    }

    fn wide(&self) -> Result<(), CudaError> {
        let size = &self.size;
        let map = |address, sizes: [usize; 3], stride: usize, box_rows| {
            TensorLayout {
                address,
                number: CU_TENSOR_MAP_DATA_TYPE_UINT8,
                sizes,
                stride_bytes: [stride, stride * sizes[1]],
                box_sizes: [WIDE_DEPTH, box_rows, 1],
                swizzle: CU_TENSOR_MAP_SWIZZLE_128B,
            }
            .encode()
        };
        let (x_sizes, w_sizes) = (
            [size.depth, size.x_rows, 1],
            [size.depth, size.w_rows, size.experts],
        );
        let x_map = map(self.x.values, x_sizes, self.x.stride, TILE_ROWS)?;
        let w_map = map(self.weights.values, w_sizes, size.depth, WIDE_OUTPUTS / 2)?;
        launch!(
            self.kernels,
            &format!("experts_wide_{}", self.part.name(Wide)),
            (size.tiles().min(self.kernels.multiprocessors), 1, 1),
            WIDE_THREADS,
            [
                ByValue(x_map),
                ByValue(w_map),
                Address(self.x.values),
                self.x.scales(),
                self.weights.scales(),
                self.routing.offset.start(),
                self.routing.slot_row.start(),
                self.out,
                size.outputs,
                size.depth,
                self.x.stride,
                size.experts
            ]
        )
    }
}

/// The most tiles of rows that `slots` slots have, however they are divided among the experts: each expert's last one is not full.
fn row_tiles_max(experts: usize, slots: usize) -> usize {
    experts.min(slots) + slots / TILE_ROWS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_rows_are_enough_for_every_choice() {
        let tiles =
            |counts: &[usize]| -> usize { counts.iter().map(|n| n.div_ceil(TILE_ROWS)).sum() };
        for counts in [
            vec![5920, 0, 0],
            vec![1; 64],
            vec![129; 46],
            vec![257, 1, 1, 127, 128],
        ] {
            let most = row_tiles_max(64, counts.iter().sum());
            assert!(tiles(&counts) <= most, "{counts:?}: {most}");
        }
        // 740 positions: 64 tiles with work, 46 blocks of each output tile without.
        assert_eq!(row_tiles_max(64, 740 * 8), 110);
    }

    #[test]
    fn stages_fit_twice_on_h100_and_once_on_small_gpu() {
        let bytes: Vec<usize> = shared_bytes()
            .filter(|(name, _)| !name.contains("wide"))
            .map(|(_, bytes)| bytes)
            .collect();
        // Shared memory of a multiprocessor of sm_90, and of a block of sm_86; some is static.
        assert!(bytes.iter().all(|bytes| 2 * bytes <= 226 << 10));
        assert!(bytes.iter().all(|bytes| *bytes <= 98 << 10));
    }
}
