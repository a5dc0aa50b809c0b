//! What the blocks of encoder and decoder do, in f32.

use std::{convert::Infallible, mem};

use super::{
    adapter::RowAdapters,
    attention::{AttentionHeads, attend_past, attend_within},
    gemm::PackedLinear,
    kv::KvCache,
    ops::gelu,
    rank::RankPart,
    rope::Rope,
    samples::Samples,
    span::{PositionSpan, Sees},
};
use crate::{
    network::{
        Experts, Mlp, Norm, TextBlock, VisionBlock,
        ops::{DecoderOps, DecoderRun, EncoderOps, Ops},
    },
    ranks::RankLeft,
};

/// Operations of blocks whose attention is `A`.
pub(super) struct CpuOps<'a, A> {
    /// Those of the shard.
    pub heads: AttentionHeads,
    pub attention: A,
    /// `None` where one backend has the whole network.
    pub part: Option<RankPart<'a>>,
    /// Set where inputs of large layers are measured.
    pub samples: Option<&'a mut Samples>,
}

pub(super) trait CpuAttention {
    type Error;
}

impl CpuAttention for CropAttention {
    type Error = Infallible;
}

impl CpuAttention for SpanAttention<'_> {
    type Error = RankLeft;
}

/// The encoder's: sequences of so many rows see themselves.
pub(super) struct CropAttention {
    pub tokens: usize,
}

/// The decoder's.
pub(super) struct SpanAttention<'a> {
    pub rope: &'a Rope,
    /// Of all positions, in their order.
    pub spans: &'a [PositionSpan<'a>],
    pub cache: &'a mut KvCache,
    pub adapters: RowAdapters<'a>,
    /// Values of a hidden state.
    pub width: usize,
}

impl<A: CpuAttention> Ops for CpuOps<'_, A> {
    type Layer = PackedLinear;
    type Plain = Vec<f32>;
    type Hidden = Vec<f32>;
    type Rows = Vec<f32>;
    type Error = A::Error;

    fn normed(
        &mut self,
        hidden: &Vec<f32>,
        norm: &Norm<Vec<f32>>,
        reader: &PackedLinear,
    ) -> Result<Vec<f32>, A::Error> {
        let normed = norm.forward(hidden);
        self.see([(&normed, reader)]);
        Ok(normed)
    }

    fn inner(
        &mut self,
        x: &Vec<f32>,
        mlp: &Mlp<PackedLinear>,
        rows: usize,
    ) -> Result<Vec<f32>, A::Error> {
        Ok(mlp.inner(&x[..rows * mlp.fc1.inputs()]))
    }

    fn add<const N: usize>(
        &mut self,
        hidden: &mut Vec<f32>,
        terms: [(&Vec<f32>, &PackedLinear); N],
    ) -> Result<(), A::Error> {
        self.see(terms);
        let sums = added_to(&mut self.part, hidden);
        for (x, layer) in terms {
            layer.add_to(sums, x);
        }
        Ok(())
    }
}

impl<A> CpuOps<'_, A> {
    /// Shows the inputs of layers whose results are added up.
    fn see<const N: usize>(&mut self, terms: [(&Vec<f32>, &PackedLinear); N]) {
        if let (Some(samples), Some((_, layer))) = (&mut self.samples, terms.first()) {
            samples.see(layer, &terms.map(|(x, layer)| (&x[..], layer.inputs())));
        }
    }
}

/// What a block adds to: the hidden states, or what ranks add up.
fn added_to<'a>(part: &'a mut Option<RankPart<'_>>, hidden: &'a mut Vec<f32>) -> &'a mut Vec<f32> {
    match part {
        Some(part) => {
            part.sums.resize(hidden.len(), 0.0);
            &mut part.sums
        }
        None => hidden,
    }
}

impl EncoderOps for CpuOps<'_, CropAttention> {
    fn attend(
        &mut self,
        x: &Vec<f32>,
        block: &VisionBlock<PackedLinear, Vec<f32>>,
    ) -> Result<Vec<f32>, Infallible> {
        let qkv = block.qkv.forward(x);
        Ok(attend_within(&qkv, self.attention.tokens, self.heads))
    }
}

impl DecoderOps for CpuOps<'_, SpanAttention<'_>> {
    fn qkv(
        &mut self,
        x: &Vec<f32>,
        layer: usize,
        block: &TextBlock<PackedLinear, Vec<f32>>,
    ) -> Result<Vec<f32>, RankLeft> {
        let SpanAttention {
            rope,
            spans,
            cache,
            adapters,
            ..
        } = &mut self.attention;
        let mut qkv = block.qkv.forward(x);
        adapters.add(layer, |block| block.qkv.as_ref(), &mut qkv, x);
        let positions = spans.iter().flat_map(|span| span.positions.clone());
        let positions: Vec<usize> = positions.collect();
        if let Some(tau) = &block.tau {
            let rank = self.part.as_ref().map(|part| part.rank);
            tau.scale(&mut qkv, &positions, self.heads.dim, rank)?;
        }
        rope.turn(&mut qkv, &positions, self.heads.dim);
        let width = self.heads.width();
        let mut rows = qkv.chunks_exact(3 * width);
        for span in *spans {
            let rows = rows.by_ref().take(span.positions.len());
            let rows = rows.map(|row| row[width..].split_at(width));
            cache.write(layer, span.kv, span.positions.start, rows);
        }
        Ok(qkv)
    }

    fn attend(
        &mut self,
        qkv: Vec<f32>,
        layer: usize,
        _: &PackedLinear,
        rows: usize,
    ) -> Result<Vec<f32>, RankLeft> {
        let width = self.heads.width();
        let mut attended = Vec::with_capacity(rows * width);
        let mut qkv = &qkv[..rows * 3 * width];
        for span in self.attention.spans {
            if qkv.is_empty() {
                break;
            }
            let (of_span, behind) = qkv.split_at(span.positions.len() * 3 * width);
            attended.extend(self.attend_span(layer, of_span, span));
            qkv = behind;
        }
        Ok(attended)
    }

    fn adapted_inner(
        &mut self,
        x: &Vec<f32>,
        mlp: &Mlp<PackedLinear>,
        run: DecoderRun,
    ) -> Result<Vec<f32>, RankLeft> {
        let x = &x[..run.outputs * mlp.fc1.inputs()];
        let mut inner = mlp.fc1.forward(x);
        let adapters = &self.attention.adapters;
        adapters.add(run.layer, |block| block.mlp.first(), &mut inner, x);
        gelu(&mut inner);
        Ok(inner)
    }

    fn add_adapters(
        &mut self,
        hidden: &mut Vec<f32>,
        [x, inner]: [&Vec<f32>; 2],
        run: DecoderRun,
    ) -> Result<(), RankLeft> {
        let SpanAttention {
            adapters, width, ..
        } = &self.attention;
        let sums = &mut added_to(&mut self.part, hidden)[..run.outputs * width];
        adapters.add(run.layer, |block| block.proj.as_ref(), sums, x);
        adapters.add(run.layer, |block| block.mlp.second(), sums, inner);
        Ok(())
    }

    fn add_experts(
        &mut self,
        hidden: &mut Vec<f32>,
        x: &Vec<f32>,
        experts: &Experts<PackedLinear>,
        run: DecoderRun,
    ) -> Result<(), RankLeft> {
        let x = &x[..run.outputs * experts.up.inputs()];
        let results = experts.forward(x, &self.attention.adapters.of_block(run.layer));
        let sums = added_to(&mut self.part, hidden).iter_mut().zip(results);
        sums.for_each(|(sum, result)| *sum += result);
        Ok(())
    }

    fn sum_ranks(&mut self, hidden: &mut Vec<f32>, _: DecoderRun) -> Result<(), RankLeft> {
        match &mut self.part {
            Some(part) => part.rank.sum(hidden, mem::take(&mut part.sums)),
            None => Ok(()),
        }
    }
}

impl CpuOps<'_, SpanAttention<'_>> {
    fn attend_span(&self, layer: usize, qkv: &[f32], span: &PositionSpan<'_>) -> Vec<f32> {
        match span.sees {
            Sees::EachOther => attend_within(qkv, span.positions.len(), self.heads),
            Sees::Past => {
                let width = self.heads.width();
                let rows = qkv.chunks_exact(3 * width);
                let queries: Vec<f32> = rows.flat_map(|row| &row[..width]).copied().collect();
                let seen = span.positions.end;
                let past = |head| self.attention.cache.segments(layer, head, span.kv, seen);
                attend_past(&queries, seen, self.heads, past)
            }
        }
    }
}
