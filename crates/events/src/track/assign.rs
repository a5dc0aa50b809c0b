//! Assignment: the cheapest way to give each row at most one column and each column at most one row.
//!
//! The method is the Hungarian one in the form of shortest augmenting paths (Jonker and Volgenant 1987): exact, and for
//! `n` rows at most `n² · columns` steps, of which few are needed when objects are apart.

/// What each pair costs; every cost is finite.
#[derive(Clone, Debug)]
pub struct CostMatrix {
    columns: usize,
    row_major: Vec<f64>,
}

impl CostMatrix {
    /// `cost(row, column)` for every pair.
    pub fn new(rows: usize, columns: usize, cost: impl Fn(usize, usize) -> f64) -> Self {
        let pairs = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self {
            columns,
            row_major: pairs.map(|(row, column)| cost(row, column)).collect(),
        }
    }

    fn rows(&self) -> usize {
        self.row_major.len().checked_div(self.columns).unwrap_or(0)
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.row_major[row * self.columns + column]
    }
}

/// Pairs (row, column) with the smallest sum, where an unpaired row or column costs half of `limit`: a pair that costs `limit` or
/// more is not made. In the order of the rows. Equal sums are decided by the order of rows and columns alone.
pub fn assign(costs: &CostMatrix, limit: f64) -> Vec<(usize, usize)> {
    let (rows, columns) = (costs.rows(), costs.columns);
    let mut pairs = if rows <= columns {
        cheapest(rows, columns, |row, column| {
            costs.at(row, column).min(limit)
        })
    } else {
        let turned = cheapest(columns, rows, |column, row| {
            costs.at(row, column).min(limit)
        });
        turned
            .into_iter()
            .map(|(column, row)| (row, column))
            .collect()
    };
    pairs.retain(|&(row, column)| costs.at(row, column) < limit);
    pairs.sort_unstable();
    pairs
}

/// A column for each row, with the smallest sum; `rows <= columns`.
///
/// Rows are added one after another, each along the shortest augmenting path, in costs that are reduced by the potentials of
/// rows and columns: every reduced cost is at least zero, that of a pair is zero. Row and column 0 mean "none".
fn cheapest(
    rows: usize,
    columns: usize,
    cost: impl Fn(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    let mut row_price = vec![0.0; rows + 1];
    let mut column_price = vec![0.0; columns + 1];
    let mut row_of = vec![0; columns + 1];
    for row in 1..=rows {
        row_of[0] = row;
        let mut shortest = vec![f64::INFINITY; columns + 1];
        let mut before = vec![0; columns + 1];
        let mut reached = vec![false; columns + 1];
        let mut here = 0;
        while row_of[here] != 0 {
            reached[here] = true;
            let from = row_of[here];
            let (mut step, mut next) = (f64::INFINITY, 0);
            for column in (1..=columns).filter(|&column| !reached[column]) {
                let length = cost(from - 1, column - 1) - row_price[from] - column_price[column];
                if length < shortest[column] {
                    (shortest[column], before[column]) = (length, here);
                }
                if shortest[column] < step {
                    (step, next) = (shortest[column], column);
                }
            }
            for column in 0..=columns {
                if reached[column] {
                    row_price[row_of[column]] += step;
                    column_price[column] -= step;
                } else {
                    shortest[column] -= step;
                }
            }
            here = next;
        }
        while here != 0 {
            row_of[here] = row_of[before[here]];
            here = before[here];
        }
    }
    let pair = |column: usize| (row_of[column] > 0).then(|| (row_of[column] - 1, column - 1));
    (1..=columns).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(table: &[Vec<f64>]) -> CostMatrix {
        let columns = table.first().map_or(0, Vec::len);
        CostMatrix::new(table.len(), columns, |row, column| table[row][column])
    }

    /// The smallest sum over all assignments. Each pair saves `limit` against a row and a column without a partner.
    fn least(table: &[Vec<f64>], limit: f64, row: usize, taken: &mut Vec<bool>) -> f64 {
        if row == table.len() {
            return 0.0;
        }
        let mut best = least(table, limit, row + 1, taken);
        for column in 0..taken.len() {
            if !taken[column] {
                taken[column] = true;
                let rest = least(table, limit, row + 1, taken);
                best = best.min(table[row][column] - limit + rest);
                taken[column] = false;
            }
        }
        best
    }

    #[test]
    fn the_nearest_is_not_always_the_right_one() {
        // Column 0 is the cheapest for the first row, but it is the only one for the second row.
        let costs = of(&[vec![1.0, 2.0], vec![1.5, 9.0]]);
        assert_eq!(assign(&costs, 5.0), [(0, 1), (1, 0)]);
        assert_eq!(
            assign(&costs, 1.2),
            [(0, 0)],
            "no pair costs more than the limit"
        );
        assert_eq!(assign(&of(&[]), 1.0), []);
    }

    #[test]
    fn equals_are_decided_by_their_order() {
        let costs = of(&vec![vec![1.0; 3]; 3]);
        assert_eq!(assign(&costs, 2.0), [(0, 0), (1, 1), (2, 2)]);
    }

    proptest! {
        #[test]
        fn no_other_choice_is_cheaper(
            rows in 0usize..6,
            columns in 0usize..6,
            numbers in prop::collection::vec(0.0f64..10.0, 36),
            limit in 0.5f64..12.0,
        ) {
            let table: Vec<Vec<f64>> =
                numbers.chunks(6).take(rows).map(|row| row[..columns].to_vec()).collect();
            let pairs = assign(&of(&table), limit);
            for pair in pairs.windows(2) {
                prop_assert!(pair[0].0 < pair[1].0, "a row occurs twice");
            }
            let mut used: Vec<usize> = pairs.iter().map(|&(_, column)| column).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), pairs.len(), "a column occurs twice");
            let sum: f64 = pairs.iter().map(|&(row, column)| table[row][column] - limit).sum();
            let best = least(&table, limit, 0, &mut vec![false; columns]);
            prop_assert!((sum - best).abs() < 1e-9, "{} instead of {}", sum, best);
        }
    }
}
