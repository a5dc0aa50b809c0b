//! What adapters add to products, against the formula.

use half::bf16;

use super::{Random, Rig, assert_close, f32s, rig};
use crate::cuda::{
    kernels::{AdaptedRowTable, LowRankProduct, LowRankWeights},
    tensor::StridedRows,
};

/// A layer with low-rank weights of several parts, and rows that have them.
struct Case {
    rank: usize,
    inner: usize,
    outputs: usize,
    a: Vec<bf16>,
    b: Vec<bf16>,
    x: Vec<bf16>,
    before: Vec<bf16>,
    parts: Vec<i32>,
    x_rows: Option<Vec<i32>>,
}

const PARTS: usize = 3;

impl Case {
    /// Rows in runs of one part, as prefills are, and single ones; `reads`: rows of x that are read in any order.
    fn new(
        random: &mut Random,
        [rank, inner, outputs]: [usize; 3],
        rows: usize,
        reads: bool,
    ) -> Self {
        let part = |row: usize| (row / 5 % (PARTS + 1)) as i32 - 1;
        let x_rows = reads.then(|| (0..rows).map(|_| random.below(rows) as i32).collect());
        Self {
            a: random.values(PARTS * rank * inner),
            b: random.values(PARTS * outputs * rank),
            x: random.values(rows * inner),
            before: random.values(rows * outputs),
            parts: (0..rows).map(part).collect(),
            x_rows,
            rank,
            inner,
            outputs,
        }
    }

    fn wanted(&self) -> Vec<f32> {
        let Self {
            rank,
            inner,
            outputs,
            ..
        } = *self;
        let (a, b, x) = (f32s(&self.a), f32s(&self.b), f32s(&self.x));
        let mut sums = f32s(&self.before);
        for (row, sums) in sums.chunks_exact_mut(outputs).enumerate() {
            let Ok(part) = usize::try_from(self.parts[row]) else {
                continue;
            };
            let from = self.x_rows.as_ref().map_or(row, |rows| rows[row] as usize);
            let x = &x[from * inner..][..inner];
            let dot = |w: &[f32], x: &[f32]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
            let a = a[part * rank * inner..][..rank * inner].chunks_exact(inner);
            let narrow: Vec<f32> = a.map(|a| dot(a, x)).collect();
            let b = b[part * outputs * rank..][..outputs * rank].chunks_exact(rank);
            sums.iter_mut()
                .zip(b)
                .for_each(|(sum, b)| *sum += dot(b, &narrow));
        }
        sums
    }

    fn found(&self, rig: &Rig) -> Vec<f32> {
        let rows = self.parts.len();
        let [a, b, x, out] = [&self.a, &self.b, &self.x, &self.before].map(|values| rig.up(values));
        // Not zeros, so that values that are not written are noticed.
        let narrow = rig.floats(&vec![f32::NAN; rows * self.rank]);
        let parts = rig.ints(&self.parts);
        let x_rows = self.x_rows.as_ref().map(|rows| rig.ints(rows));
        let weights = LowRankWeights {
            a: a.start(),
            b: b.start(),
            rank: self.rank,
            inner: self.inner,
            outputs: self.outputs,
        };
        let table = AdaptedRowTable {
            parts: parts.start(),
            x_rows: x_rows.as_ref().map(|rows| rows.start()),
            rows,
        };
        let x = StridedRows::packed(x.start(), self.inner);
        let product = LowRankProduct {
            weights,
            table,
            x,
            narrow: narrow.start(),
            sums: StridedRows::packed(out.start(), self.outputs),
        };
        rig.kernels.add_low_rank(&product).unwrap();
        rig.down(&out)
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn low_rank_sums_of_mixed_rows_follow_the_formula() {
    let rig = rig();
    let mut random = Random::new(37);
    for (shape, rows) in [
        ([32, 2048, 8192], 740),
        ([32, 8192, 2048], 33),
        ([32, 2048, 6144], 1),
        ([4, 2048, 2048], 740),
        ([4, 1024, 2048], 16),
        ([32, 72, 200], 19),
    ] {
        for reads in [false, true] {
            let case = Case::new(&mut random, shape, rows, reads);
            let wanted = case.wanted();
            let found = case.found(&rig);
            let what = format!("adapter {shape:?} {rows} {reads}");
            assert_close(&what, &found, &wanted, 4e-3);
            // A row without an adapter keeps its bits.
            for (row, _) in case.parts.iter().enumerate().filter(|(_, part)| **part < 0) {
                let of_row = |values: &[f32]| values[row * shape[2]..][..shape[2]].to_vec();
                assert_eq!(of_row(&found), of_row(&f32s(&case.before)));
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn low_rank_sums_of_a_row_ignore_other_rows() {
    let rig = rig();
    let mut random = Random::new(41);
    let together = Case::new(&mut random, [32, 2048, 2048], 40, false);
    let all = together.found(&rig);
    for row in [5, 12, 19, 38] {
        let alone = Case {
            a: together.a.clone(),
            b: together.b.clone(),
            x: together.x[row * 2048..][..2048].to_vec(),
            before: together.before[row * 2048..][..2048].to_vec(),
            parts: vec![together.parts[row]],
            x_rows: None,
            ..together
        };
        let found = alone.found(&rig);
        assert_eq!(found, all[row * 2048..][..2048], "row {row}");
    }
}
