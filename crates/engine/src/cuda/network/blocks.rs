//! What the blocks of encoder and decoder do on a GPU, or which products they would queue.

use std::cell::RefCell;

use half::bf16;

use super::{
    experts::{ExpertAdapters, ExpertBuffers, NormedMark, RowsForExperts, UnaddedExperts},
    runner::{ExpectedProducts, LayerRunner},
};
use crate::{
    cuda::{
        adapters::{AdapterSlots, BlockSlots, LayerSlots},
        error::CudaError,
        kernels::{
            AdaptedRowTable, CachedAttention, DenseAttention, Kernels, LayerCache, LowRankProduct,
        },
        memory::{Buffer, Pointer, clear},
        peers::Peers,
        tensor::{
            Activations, Epilogue, GpuLinear, GpuTextBlock, GpuVisionBlock, LinearRef, MatrixShape,
            NormRef, PAGE, Product, StridedRows, TEXT_HEAD, WeightPointer,
        },
    },
    network::{
        Experts, Mlp, Norm, TextMlp,
        format::Number,
        ops::{DecoderOps, DecoderRun, EncoderOps, Ops},
    },
};

/// Where a forward pass goes.
#[derive(Clone, Copy)]
pub enum Pass<'a> {
    /// To the GPU.
    Run(&'a LayerRunner),
    /// Nothing runs; its products are to be planned.
    Plan(&'a RefCell<ExpectedProducts>),
}

impl Pass<'_> {
    pub fn product(&self, product: Product) -> Result<(), CudaError> {
        match self {
            Self::Run(runner) => runner.product(&product)?,
            Self::Plan(expected) => expected.borrow_mut().add(product),
        }
        Ok(())
    }

    pub fn launch(
        &self,
        queue: impl FnOnce(&Kernels) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        match self {
            Self::Run(runner) => queue(&runner.kernels),
            Self::Plan(_) => Ok(()),
        }
    }

    /// Queues what all ranks do together, where there are several.
    pub fn between_ranks(
        &self,
        queue: impl FnOnce(&Peers, &Kernels) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        match self {
            Self::Run(runner) => match &runner.peers {
                Some(peers) => queue(peers, &runner.kernels),
                None => Ok(()),
            },
            Self::Plan(_) => Ok(()),
        }
    }
}

/// Memory for inputs of layers.
#[derive(Clone, Copy)]
pub struct InputPlace {
    pub in_bf16: StridedRows,
    /// The same for layers that read e4m3; `None`: they read bf16 too.
    pub in_e4m3: Option<Pointer<u8>>,
    /// Values of each row in front, which another layer reads with them.
    pub column: usize,
}

impl InputPlace {
    /// In the format that `reader` reads.
    fn of(&self, reader: &LinearRef) -> Activations {
        let rows = match (reader.weight, self.in_e4m3) {
            (WeightPointer::E4m3 { input, .. }, Some(start)) => {
                Activations::E4m3(StridedRows::packed(start, reader.inner), input)
            }
            _ => Activations::Bf16(self.in_bf16),
        };
        rows.behind(self.column)
    }
}

/// Values of `rows` of these widths in e4m3, where that is what layers read.
pub fn e4m3_values<const N: usize>(input: Number, rows: usize, widths: [usize; N]) -> [usize; N] {
    widths.map(|width| match input {
        Number::E4m3 => rows * width,
        _ => 0,
    })
}

/// Operations of blocks whose attention is `A`.
pub struct CudaOps<'a, A> {
    pub pass: Pass<'a>,
    pub normed: InputPlace,
    pub qkv: StridedRows,
    pub attended: InputPlace,
    pub inner: InputPlace,
    /// Rows are in bf16 too: adapters read that.
    pub has_adapters: bool,
    /// What is added to the hidden states by the next norm of them.
    pub unadded: Option<UnaddedExperts<'a>>,
    /// Where a rank has what its part of the present block adds to the hidden states; `None`: it is added to them.
    pub partial: Option<PartialStates>,
    pub attention: A,
}

/// The encoder's: crops attend to themselves.
pub struct CropSequences {
    pub crops: usize,
    pub tokens: usize,
    pub heads: usize,
    pub head_dim: usize,
}

/// What the decoder's blocks read beside rows.
pub struct DecoderStep<'a> {
    /// Of the first layer; `None`: products can be planned only.
    pub attention: Option<CachedAttention<'a>>,
    pub experts: Option<&'a ExpertBuffers>,
    /// In a step with adapters.
    pub adapters: Option<&'a AdapterSlots>,
    /// Of the present block, where experts run beside attention.
    pub normed: Option<NormedMark>,
    /// `[positions]`: rows of the step that no one reads.
    pub is_zombie: Pointer<i32>,
    /// Values of a hidden state.
    pub width: usize,
}

/// What a rank adds to the hidden states in a block, until it is summed over all ranks.
#[derive(Clone, Copy)]
pub struct PartialStates {
    to: Pointer<bf16>,
    /// The block has put something there.
    is_begun: bool,
}

impl PartialStates {
    pub fn at(to: Pointer<bf16>) -> Self {
        let is_begun = false;
        Self { to, is_begun }
    }
}

#[derive(Clone, Copy)]
pub struct GpuHidden {
    pub start: Pointer<bf16>,
    pub rows: usize,
}

#[derive(Clone, Copy)]
pub struct GpuRows {
    x: Activations,
    rows: usize,
    /// What they are the layer norm of, if they are one.
    source: Option<(Pointer<bf16>, NormRef)>,
    /// The same rows for adapters.
    in_bf16: Option<StridedRows>,
}

impl GpuRows {
    fn new(x: Activations, rows: usize) -> Self {
        Self {
            x,
            rows,
            source: None,
            in_bf16: None,
        }
    }
}

impl<A> CudaOps<'_, A> {
    fn norm(
        &mut self,
        source: (Pointer<bf16>, NormRef),
        reader: &LinearRef,
        rows: usize,
    ) -> Result<GpuRows, CudaError> {
        let (place, width) = (self.normed.of(reader), reader.inner);
        let x = match self.pass {
            Pass::Run(runner) => runner.inputs(reader, place, rows)?,
            Pass::Plan(_) => place,
        };
        let ((hidden, norm), shape) = (source, MatrixShape { rows, width });
        let unadded = self.unadded.take();
        self.pass.launch(|kernels| match unadded {
            Some(experts) => experts.add_and_norm(kernels, hidden, norm, x),
            None => kernels.layer_norm(hidden, norm, x, shape),
        })?;
        let in_bf16 = match x {
            Activations::Bf16(x) => Some(x),
            _ if self.has_adapters => {
                let to = Activations::Bf16(self.normed.in_bf16);
                self.pass
                    .launch(|kernels| kernels.layer_norm(hidden, norm, to, shape))?;
                Some(self.normed.in_bf16)
            }
            _ => None,
        };
        Ok(GpuRows {
            x,
            rows,
            source: Some(source),
            in_bf16,
        })
    }

    /// The first `rows` rows for the first layer of an MLP: fewer may be read in another format.
    fn first(
        &mut self,
        x: &GpuRows,
        mlp: &Mlp<GpuLinear>,
        rows: usize,
    ) -> Result<GpuRows, CudaError> {
        match x.source {
            Some(source) if rows != x.rows => self.norm(source, &mlp.fc1, rows),
            _ => Ok(GpuRows { rows, ..*x }),
        }
    }

    /// Where a product is added, or what a block adds begins.
    fn added_to(&mut self, hidden: &GpuHidden) -> (Pointer<bf16>, Epilogue) {
        let Some(partial) = &mut self.partial else {
            return (hidden.start, Epilogue::BiasAdd);
        };
        let is_begun = std::mem::replace(&mut partial.is_begun, true);
        let end = if is_begun {
            Epilogue::BiasAdd
        } else {
            Epilogue::Bias
        };
        (partial.to, end)
    }

    fn queries(&self, x: &GpuRows, layer: &LinearRef) -> Result<(), CudaError> {
        let to = Activations::Bf16(self.qkv);
        self.pass
            .product(layer.product(x.x, to, x.rows, Epilogue::Bias))
    }
}

impl<A> Ops for CudaOps<'_, A> {
    type Layer = GpuLinear;
    type Plain = Buffer<bf16>;
    type Hidden = GpuHidden;
    type Rows = GpuRows;
    type Error = CudaError;

    fn normed(
        &mut self,
        hidden: &GpuHidden,
        norm: &Norm<Buffer<bf16>>,
        reader: &GpuLinear,
    ) -> Result<GpuRows, CudaError> {
        self.norm((hidden.start, norm.at()), reader, hidden.rows)
    }

    fn inner(
        &mut self,
        x: &GpuRows,
        mlp: &Mlp<GpuLinear>,
        rows: usize,
    ) -> Result<GpuRows, CudaError> {
        let x = self.first(x, mlp, rows)?.x;
        let to = self.inner.of(&mlp.fc2);
        let product = mlp.fc1.product(x, to, rows, Epilogue::BiasGelu);
        self.pass.product(product)?;
        Ok(GpuRows::new(to, rows))
    }

    fn add<const N: usize>(
        &mut self,
        hidden: &mut GpuHidden,
        terms: [(&GpuRows, &GpuLinear); N],
    ) -> Result<(), CudaError> {
        let mut last: Option<&GpuLinear> = None;
        for (x, layer) in terms {
            // Layers that are stored as one read their rows as one: the product of the first adds both.
            if !last.is_some_and(|last| last.is_stored_with(layer)) {
                let (to, end) = self.added_to(hidden);
                let to = Activations::bf16(to, layer.outputs);
                self.pass.product(layer.product(x.x, to, x.rows, end))?;
            }
            last = Some(layer);
        }
        Ok(())
    }
}

impl EncoderOps for CudaOps<'_, CropSequences> {
    fn attend(&mut self, x: &GpuRows, block: &GpuVisionBlock) -> Result<GpuRows, CudaError> {
        self.queries(x, &block.qkv)?;
        let attention = DenseAttention {
            qkv: self.qkv,
            out: self.attended.of(&block.proj),
            sequences: self.attention.crops,
            length: self.attention.tokens,
            heads: self.attention.heads,
            head_dim: self.attention.head_dim,
        };
        self.pass
            .launch(|kernels| kernels.attend_dense(&attention))?;
        Ok(GpuRows::new(attention.out, x.rows))
    }
}

impl<'a> DecoderOps for CudaOps<'a, DecoderStep<'a>> {
    fn qkv(
        &mut self,
        x: &GpuRows,
        layer: usize,
        block: &GpuTextBlock,
    ) -> Result<GpuRows, CudaError> {
        if let (Pass::Run(runner), Some(buffers), Activations::Bf16(_), TextMlp::Experts(experts)) =
            (self.pass, self.attention.experts, x.x, &block.mlp)
        {
            let stream = &runner.kernels.stream;
            self.attention.normed = buffers.mark_normed(stream, x.rows, experts)?;
        }
        self.queries(x, &block.qkv)?;
        if let Some(slots) = self.slots_of(layer).and_then(|block| block.qkv.as_ref()) {
            self.add_low_rank(slots, x, self.qkv, x.rows)?;
        }
        if let Some(attention) = self.attention.attention {
            let (attention, tau) = (of_layer(attention, layer), block.tau.as_ref());
            if let Some(tau) = tau {
                let queue = |kernels: &Kernels| kernels.tau_parts(&attention, tau, x.rows);
                self.pass.launch(queue)?;
                let values = attention.tau_values(x.rows);
                self.pass.between_ranks(|peers, kernels| {
                    peers.sum_f32(kernels, attention.tau, values)
                })?;
            }
            self.pass
                .launch(|kernels| kernels.rope_scatter(&attention, tau, x.rows))?;
        }
        Ok(GpuRows::new(Activations::Bf16(self.qkv), x.rows))
    }

    fn attend(
        &mut self,
        _: GpuRows,
        layer: usize,
        reader: &GpuLinear,
        rows: usize,
    ) -> Result<GpuRows, CudaError> {
        let to = GpuRows::new(self.attended.of(reader), rows);
        if let Some(attention) = self.attention.attention {
            let attention = of_layer(attention, layer);
            self.pass
                .launch(|kernels| attend_step(kernels, &attention, self.qkv, &to))?;
        }
        Ok(to)
    }

    fn adapted_inner(
        &mut self,
        x: &GpuRows,
        mlp: &Mlp<GpuLinear>,
        run: DecoderRun,
    ) -> Result<GpuRows, CudaError> {
        let rows = run.outputs;
        let Some(slots) = self.slots_of(run.layer).and_then(|b| b.mlp.first()) else {
            return self.inner(x, mlp, rows);
        };
        // The GELU is behind what adapters add.
        let x = self.first(x, mlp, rows)?;
        let sums = self.inner.in_bf16.behind(self.inner.column);
        let to = Activations::Bf16(sums);
        self.pass
            .product(mlp.fc1.product(x.x, to, rows, Epilogue::Bias))?;
        self.add_low_rank(slots, &x, sums, rows)?;
        let (to, width) = (self.inner.of(&mlp.fc2), mlp.fc1.outputs);
        let shape = MatrixShape { rows, width };
        self.pass.launch(|kernels| {
            kernels.gelu_rows(sums, shape)?;
            match to {
                Activations::E4m3(to, scale) => kernels.quantise(sums, to, scale, shape),
                _ => Ok(()),
            }
        })?;
        Ok(GpuRows {
            in_bf16: Some(sums),
            ..GpuRows::new(to, rows)
        })
    }

    fn add_adapters(
        &mut self,
        hidden: &mut GpuHidden,
        [x, inner]: [&GpuRows; 2],
        run: DecoderRun,
    ) -> Result<(), CudaError> {
        let Some(block) = self.slots_of(run.layer) else {
            return Ok(());
        };
        for (slots, x) in [(block.proj.as_ref(), x), (block.mlp.second(), inner)] {
            if let Some(slots) = slots {
                let (to, _) = self.added_to(hidden);
                let to = StridedRows::packed(to, slots.weights().outputs);
                self.add_low_rank(slots, x, to, run.outputs)?;
            }
        }
        Ok(())
    }

    fn add_experts(
        &mut self,
        hidden: &mut GpuHidden,
        x: &GpuRows,
        experts: &Experts<GpuLinear>,
        run: DecoderRun,
    ) -> Result<(), CudaError> {
        let rows = run.outputs;
        let adapters = self.adapted_experts(run.layer);
        let missing = || CudaError::Shape("it has experts and no buffers for them".into());
        let buffers = self.attention.experts.ok_or_else(missing)?;
        let normed = self.attention.normed.take();
        let (counts, is_zombie) = (
            self.attention.attention.map(|of| of.tables.counts),
            self.attention.is_zombie,
        );
        let to = self.partial.map_or(hidden.start, |partial| partial.to);
        let rows_of = |x| RowsForExperts {
            x,
            hidden: to,
            width: experts.router.inner,
            rows,
            is_zombie,
            flagged: counts.map_or(0, |counts| rows.min(counts.row_positions)),
            adapters,
        };
        if let (Some(normed), Activations::Bf16(x)) = (normed, x.x) {
            self.unadded = Some(buffers.run_beside(normed, &rows_of(x), experts)?);
            return Ok(());
        }
        // The router reads bf16, and what it chose is not found again in rounder numbers.
        let x = match (x.x, x.source) {
            (Activations::Bf16(_), _) | (_, None) => x.x,
            (_, Some(source)) => self.norm(source, &experts.router, rows)?.x,
        };
        let logits = experts
            .router
            .product(x, buffers.logits(), rows, Epilogue::Bias);
        self.pass.product(logits)?;
        let Activations::Bf16(x) = x else {
            return Ok(());
        };
        if let Some(partial) = &mut self.partial {
            partial.is_begun = true;
            let (to, values) = (partial.to, rows * experts.router.inner);
            self.pass
                .launch(|kernels| clear(&kernels.stream, to, values))?;
        }
        self.pass
            .launch(|kernels| buffers.add(kernels, &rows_of(x), experts))
    }

    fn sum_ranks(&mut self, hidden: &mut GpuHidden, run: DecoderRun) -> Result<(), CudaError> {
        let Some(partial) = &mut self.partial else {
            return Ok(());
        };
        partial.is_begun = false;
        if let Some(experts) = self.unadded.take() {
            let to = partial.to;
            self.pass.launch(|kernels| experts.add(kernels, to))?;
        }
        let shape = MatrixShape {
            rows: run.outputs,
            width: self.attention.width,
        };
        self.pass
            .between_ranks(|peers, kernels| peers.sum(kernels, hidden.start, shape))
    }

    fn finish(&mut self, hidden: &mut GpuHidden) -> Result<(), CudaError> {
        let unadded = self.unadded.take();
        unadded.map_or(Ok(()), |experts| {
            self.pass
                .launch(|kernels| experts.add(kernels, hidden.start))
        })
    }
}

impl<'a> CudaOps<'_, DecoderStep<'a>> {
    /// What adapters have for a block.
    fn slots_of(&self, layer: usize) -> Option<&'a BlockSlots> {
        self.attention.adapters?.blocks.get(layer)
    }

    /// The slot of each row's adapter.
    fn row_adapters(&self) -> Option<Pointer<i32>> {
        let tables = self.attention.attention?.tables;
        Some(tables.at(tables.layout.adapter))
    }

    /// Adds what the adapters of the first `rows` rows have for a layer to its products of `x`.
    fn add_low_rank(
        &self,
        layer: &LayerSlots,
        x: &GpuRows,
        sums: StridedRows,
        rows: usize,
    ) -> Result<(), CudaError> {
        let (Some(slots), Some(parts)) = (self.attention.adapters, self.row_adapters()) else {
            return Ok(());
        };
        let missing = || CudaError::Shape("rows that adapters read are not in bf16".into());
        let product = LowRankProduct {
            weights: layer.weights(),
            table: AdaptedRowTable {
                parts,
                x_rows: None,
                rows,
            },
            x: x.in_bf16.ok_or_else(missing)?,
            narrow: slots.narrow.start(),
            sums,
        };
        self.pass.launch(|kernels| kernels.add_low_rank(&product))
    }

    /// What adapters add to the experts of a block.
    fn adapted_experts(&self, layer: usize) -> Option<ExpertAdapters> {
        let block = self.slots_of(layer)?;
        Some(ExpertAdapters {
            of_rows: self.row_adapters()?,
            up: block.mlp.first()?.weights(),
            down: block.mlp.second()?.weights(),
        })
    }
}

/// The same of another layer.
fn of_layer(attention: CachedAttention<'_>, layer: usize) -> CachedAttention<'_> {
    let LayerCache { keys, values } = attention.cache;
    let pages = attention.tables.layout.limits.pages;
    let first = layer * pages * attention.heads * PAGE * TEXT_HEAD;
    CachedAttention {
        cache: LayerCache {
            keys: keys.at(first),
            values: values.at(first),
        },
        ..attention
    }
}

/// The step's rows attend to the cache, first to their images' prefixes, then to themselves. Its images, where `to` has them, attend to
/// themselves.
fn attend_step(
    kernels: &Kernels,
    attention: &CachedAttention<'_>,
    qkv: StridedRows,
    to: &GpuRows,
) -> Result<(), CudaError> {
    let (layout, counts) = (attention.tables.layout, attention.tables.counts);
    let rows = counts.row_positions;
    if to.rows > rows {
        kernels.attend_dense(&DenseAttention {
            qkv: qkv.from(rows),
            out: to.x.from(rows),
            sequences: counts.images,
            length: layout.limits.prefix_positions,
            heads: attention.heads,
            head_dim: TEXT_HEAD,
        })?;
    }
    if rows == 0 {
        return Ok(());
    }
    if counts.tiles > 0 {
        kernels.attend_prefix(attention)?;
    }
    kernels.attend_own(attention, to.x, rows)
}
