//! What experts make of rows, and the buffers for it.

use cudarc::driver::{CudaEvent, CudaStream};
use half::bf16;

use crate::{
    cuda::{
        error::{CudaError, tried},
        kernels::{
            AdaptedRowTable, EXPERTS_FEW_ROWS, ExpertInputs, ExpertKernel, ExpertPart,
            ExpertProduct, ExpertResults, ExpertShape, Kernels, LowRankProduct, LowRankWeights,
            RoutedRows, Routing, SkinnyOutput, slot_rank,
        },
        memory::{Buffer, Pointer, record, wait},
        tensor::{Activations, GpuLinear, MatrixShape, NormRef, ScaledRows, StridedRows, bucket},
    },
    model::ADAPTER_RANK_MAX,
    network::{Experts, format::Number},
};

/// In steps of few rows, attention and experts each leave most of a GPU idle: experts are on a stream of their own meanwhile.
struct SideStream {
    kernels: Kernels,
    /// On the network's stream: the rows that experts read are made.
    normed: CudaEvent,
    /// On this one: the results are there.
    done: CudaEvent,
}

impl SideStream {
    fn new(kernels: &Kernels) -> Result<Self, CudaError> {
        let context = kernels.stream.context();
        let stream = context.new_stream().map_err(tried("making a stream"))?;
        let event = || context.new_event(None).map_err(tried("making an event"));
        Ok(Self {
            kernels: kernels.on(stream),
            normed: event()?,
            done: event()?,
        })
    }
}

/// Rows of a block are normed, and experts may begin with them.
pub struct NormedMark(());

/// What experts made of the first rows of a step beside the network's stream, until it is added.
pub struct UnaddedExperts<'a> {
    results: ExpertResults<'a>,
    done: &'a CudaEvent,
}

impl UnaddedExperts<'_> {
    /// Adds it to rows without gaps.
    pub fn add(self, kernels: &Kernels, hidden: Pointer<bf16>) -> Result<(), CudaError> {
        wait(&kernels.stream, self.done)?;
        let to = StridedRows::packed(hidden, self.results.routing.shape.width);
        kernels.add_experts(&self.results, to)
    }

    /// The same, then norms these rows.
    pub fn add_and_norm(
        self,
        kernels: &Kernels,
        hidden: Pointer<bf16>,
        norm: NormRef,
        out: Activations,
    ) -> Result<(), CudaError> {
        wait(&kernels.stream, self.done)?;
        kernels.add_experts_and_norm(&self.results, hidden, norm, out)
    }
}

/// Between the products of a layer of experts.
pub struct ExpertBuffers {
    side: SideStream,
    routing: Routing,
    room: ExpertRoom,
    /// `[rows, experts]`
    logits: Buffer<bf16>,
    /// `[slots, inner]`
    inner: Buffer<bf16>,
    /// `[slots, width]`
    results: Buffer<bf16>,
    /// Inputs of either product in e4m3 or int8, and the scale of each; empty where they stay in bf16.
    in_8_bits: Buffer<u8>,
    scales: Buffer<f32>,
    /// `[slots, 2 * inner]`: what adapters add to. Like the next two, empty where there are none.
    sums: Buffer<bf16>,
    /// `[slots, rank]`
    narrow: Buffer<f32>,
    /// `[slots]`
    parts: Buffer<i32>,
}

/// Rows of a step, and how many of them are computed together.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRoom {
    pub shape: ExpertShape,
    pub rows: usize,
    /// More are computed in parts.
    pub rows_at_once: usize,
    /// What experts read in steps of many rows.
    pub input: Number,
    /// Rows may have adapters.
    pub has_adapters: bool,
}

/// What adapters add to a layer of experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertAdapters {
    /// `[rows]`: the slot of each row's adapter, or -1.
    pub of_rows: Pointer<i32>,
    pub up: LowRankWeights,
    pub down: LowRankWeights,
}

/// Rows that experts compute.
#[derive(Clone, Copy)]
pub struct RowsForExperts {
    /// Their layer norm.
    pub x: StridedRows,
    /// Where the results are added.
    pub hidden: Pointer<bf16>,
    /// Values of a row of either.
    pub width: usize,
    pub rows: usize,
    /// `[flagged]`: of the first rows, those that no one reads.
    pub is_zombie: Pointer<i32>,
    pub flagged: usize,
    pub adapters: Option<ExpertAdapters>,
}

/// Values of the buffers, by their names.
struct ExpertLengths {
    logits: usize,
    inner: usize,
    results: usize,
    in_8_bits: usize,
    scales: usize,
    sums: usize,
    narrow: usize,
    parts: usize,
}

impl ExpertRoom {
    fn lengths(&self) -> ExpertLengths {
        let (shape, rows) = (self.shape, self.rows_at_once);
        let slots = rows * shape.active;
        let [in_8_bits, scales] = match self.input {
            Number::E4m3 | Number::Int8 => [(rows * shape.width).max(slots * shape.inner), slots],
            _ => [0; 2],
        };
        let adapted = if self.has_adapters { slots } else { 0 };
        ExpertLengths {
            logits: bucket(self.rows) * shape.experts,
            inner: slots * shape.inner,
            results: slots * shape.width,
            in_8_bits,
            scales,
            sums: adapted * 2 * shape.inner,
            narrow: adapted * slot_rank(ADAPTER_RANK_MAX / shape.active),
            parts: adapted,
        }
    }

    /// Bytes of the buffers.
    pub fn bytes(&self) -> usize {
        let of = self.lengths();
        Routing::bytes(self.shape, self.rows_at_once)
            + (of.logits + of.inner + of.results + of.sums) * size_of::<bf16>()
            + of.in_8_bits
            + (of.scales + of.narrow) * size_of::<f32>()
            + of.parts * size_of::<i32>()
    }
}

impl RowsForExperts {
    /// `count` rows from `first` on.
    fn part(&self, first: usize, count: usize) -> Self {
        Self {
            x: self.x.from(first),
            hidden: self.hidden.at(first * self.width),
            rows: count,
            is_zombie: self.is_zombie.at(first),
            flagged: self.flagged.saturating_sub(first).min(count),
            adapters: self.adapters.map(|adapters| ExpertAdapters {
                of_rows: adapters.of_rows.at(first),
                ..adapters
            }),
            ..*self
        }
    }
}

impl ExpertBuffers {
    pub fn new(kernels: &Kernels, room: ExpertRoom) -> Result<Self, CudaError> {
        let stream = &kernels.stream;
        let of = room.lengths();
        Ok(Self {
            side: SideStream::new(kernels)?,
            routing: Routing::new(stream, room.shape, room.rows_at_once)?,
            room,
            logits: Buffer::zeros(stream, of.logits)?,
            inner: Buffer::zeros(stream, of.inner)?,
            results: Buffer::zeros(stream, of.results)?,
            in_8_bits: Buffer::zeros(stream, of.in_8_bits)?,
            scales: Buffer::zeros(stream, of.scales)?,
            sums: Buffer::zeros(stream, of.sums)?,
            narrow: Buffer::zeros(stream, of.narrow)?,
            parts: Buffer::zeros(stream, of.parts)?,
        })
    }

    /// Where the router's logits go.
    pub fn logits(&self) -> Activations {
        Activations::bf16(self.logits.start(), self.routing.shape.experts)
    }

    /// Marks that `rows` rows are normed; `None` when these are too many for a stream beside `stream`, or the router wants another product.
    pub fn mark_normed(
        &self,
        stream: &CudaStream,
        rows: usize,
        experts: &Experts<GpuLinear>,
    ) -> Result<Option<NormedMark>, CudaError> {
        if rows > EXPERTS_FEW_ROWS || !Kernels::is_skinny(&experts.router, 1) {
            return Ok(None);
        }
        record(&self.side.normed, stream)?;
        Ok(Some(NormedMark(())))
    }

    /// Queues the router's product and the experts beside what was queued on the network's stream since the rows were marked. The next
    /// layer norm adds their results, so that nothing waits for them before.
    pub fn run_beside(
        &self,
        _: NormedMark,
        rows: &RowsForExperts,
        experts: &Experts<GpuLinear>,
    ) -> Result<UnaddedExperts<'_>, CudaError> {
        let (side, kernels) = (&self.side, &self.side.kernels);
        wait(&kernels.stream, &side.normed)?;
        let logits = StridedRows::packed(self.logits.start(), self.routing.shape.experts);
        let to = SkinnyOutput::Bf16(logits);
        kernels.skinny_in_parts(&experts.router, rows.x, to, rows.rows)?;
        let results = self.results(kernels, rows, logits.start, experts)?;
        record(&side.done, &kernels.stream)?;
        let done = &side.done;
        Ok(UnaddedExperts { results, done })
    }

    /// Queues all that is behind the router's product.
    pub fn add(
        &self,
        kernels: &Kernels,
        all: &RowsForExperts,
        experts: &Experts<GpuLinear>,
    ) -> Result<(), CudaError> {
        let mut firsts = (0..all.rows).step_by(self.room.rows_at_once);
        firsts.try_for_each(|first| {
            let count = self.room.rows_at_once.min(all.rows - first);
            let logits = self.logits.start().at(first * self.routing.shape.experts);
            let part = all.part(first, count);
            let results = self.results(kernels, &part, logits, experts)?;
            kernels.add_experts(&results, StridedRows::packed(part.hidden, part.width))
        })
    }

    fn results(
        &self,
        kernels: &Kernels,
        rows: &RowsForExperts,
        logits: Pointer<bf16>,
        experts: &Experts<GpuLinear>,
    ) -> Result<ExpertResults<'_>, CudaError> {
        let ExpertShape { width, inner, .. } = self.routing.shape;
        let count = rows.rows;
        let from = RoutedRows {
            logits,
            rows: count,
            is_zombie: rows.is_zombie,
            flagged: rows.flagged,
        };
        kernels.route(&self.routing, from)?;
        let kernel = self.kernel(kernels, count);
        let product = |part, layer: &GpuLinear, x, out: &Buffer<bf16>| {
            let product = ExpertProduct {
                part,
                weights: layer.at.weight,
                x,
                out: out.start(),
            };
            kernels.expert_product(kernel, &self.routing, &product, count)
        };
        let x = inputs(kernels, rows.x, self.rounded(kernel, width), count, width)?;
        let gated = StridedRows::packed(self.inner.start(), inner);
        let (to, slots) = (self.rounded(kernel, inner), count * experts.active);
        match rows.adapters {
            None => product(ExpertPart::Up, &experts.up, x, &self.inner)?,
            Some(ExpertAdapters { of_rows, up, .. }) => {
                kernels.expert_parts(&self.routing, of_rows, self.parts.start(), count)?;
                product(ExpertPart::UpSums, &experts.up, x, &self.sums)?;
                let up = self.low_rank(up, rows.x, &self.sums, slots);
                let table = AdaptedRowTable {
                    x_rows: Some(self.routing.slot_row.start()),
                    ..up.table
                };
                kernels.add_low_rank(&LowRankProduct { table, ..up })?;
                let (sums, inner) = (self.sums.start(), self.inner.start());
                kernels.gate_experts(&self.routing, sums, inner, count)?;
            }
        }
        let x = inputs(kernels, gated, to, slots, inner)?;
        product(ExpertPart::Down, &experts.down, x, &self.results)?;
        if let Some(ExpertAdapters { down, .. }) = rows.adapters {
            kernels.add_low_rank(&self.low_rank(down, gated, &self.results, slots))?;
        }
        Ok(ExpertResults {
            routing: &self.routing,
            results: self.results.start(),
            rows: count,
        })
    }

    /// What adapters add to the sums of `slots` slots, each of which has its own row of x.
    fn low_rank(
        &self,
        weights: LowRankWeights,
        x: StridedRows,
        sums: &Buffer<bf16>,
        slots: usize,
    ) -> LowRankProduct {
        LowRankProduct {
            weights,
            table: AdaptedRowTable {
                parts: self.parts.start(),
                x_rows: None,
                rows: slots,
            },
            x,
            narrow: self.narrow.start(),
            sums: StridedRows::packed(sums.start(), weights.outputs),
        }
    }

    /// The fastest for so many rows.
    fn kernel(&self, kernels: &Kernels, rows: usize) -> ExpertKernel {
        let kernel = ExpertKernel::for_rows(rows);
        let inputs = self.rounded(kernel, 1);
        match matches!(inputs, Some(ExpertInputs::E4m3(_))) && kernels.has_wide_experts() {
            true => ExpertKernel::Wide,
            false => kernel,
        }
    }

    /// Where inputs of that width are in 8 bits, if that product reads them so.
    fn rounded(&self, kernel: ExpertKernel, width: usize) -> Option<ExpertInputs> {
        let (values, scales) = (self.in_8_bits.start(), self.scales.start());
        match self.room.input {
            _ if kernel == ExpertKernel::Few => None,
            Number::E4m3 => Some(ExpertInputs::E4m3(ScaledRows {
                values: StridedRows::packed(values, width),
                scales,
            })),
            Number::Int8 => Some(ExpertInputs::Int8(ScaledRows {
                values: StridedRows::packed(values.as_i8(), width),
                scales,
            })),
            _ => None,
        }
    }
}

/// Rows, rounded into `to` where that is there.
fn inputs(
    kernels: &Kernels,
    x: StridedRows,
    to: Option<ExpertInputs>,
    rows: usize,
    width: usize,
) -> Result<ExpertInputs, CudaError> {
    let shape = MatrixShape { rows, width };
    match to {
        Some(ExpertInputs::E4m3(to)) => kernels.quantise_rows_e4m3(x, to, shape)?,
        Some(ExpertInputs::Int8(to)) => kernels.quantise_rows(x, to, shape)?,
        Some(ExpertInputs::Bf16(_)) | None => {}
    }
    Ok(to.unwrap_or(ExpertInputs::Bf16(x)))
}
