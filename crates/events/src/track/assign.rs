//! Assignment: the cheapest way to give each row at most one column and each column at most one row.
//!
//! The method is the Hungarian one in the form of shortest augmenting paths (Jonker and Volgenant 1987): exact, and for
//! `n` rows at most `n² · columns` steps, of which few are needed when objects are apart.

/// Pairs (row, column) with the smallest sum of `costs[row][column]`, which are finite; only pairs that cost less than zero are
/// made. In the order of the rows. Equal sums are decided by the order of rows and columns alone.
///
/// Rows are added one after another, each along the shortest augmenting path, in costs that are reduced by the potentials of
/// rows and columns: every reduced cost is at least zero, that of a pair is zero. Row and column 0 mean "none".
pub fn assign(costs: &[Vec<f64>]) -> Vec<(usize, usize)> {
    let (rows, partners) = (costs.len(), costs.first().map_or(0, Vec::len));
    // A row without a partner has one of the last columns, which cost nothing.
    let columns = partners + rows;
    let cost = |row: usize, column: usize| costs[row].get(column).map_or(0.0, |cost| cost.min(0.0));
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
    let mut pairs: Vec<_> = (1..=partners).filter_map(pair).collect();
    pairs.retain(|&(row, column)| costs[row][column] < 0.0);
    pairs.sort_unstable();
    pairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The smallest sum over all assignments.
    fn least(table: &[Vec<f64>], row: usize, taken: &mut Vec<bool>) -> f64 {
        if row == table.len() {
            return 0.0;
        }
        let mut best = least(table, row + 1, taken);
        for column in 0..taken.len() {
            if !taken[column] {
                taken[column] = true;
                let rest = least(table, row + 1, taken);
                best = best.min(table[row][column] + rest);
                taken[column] = false;
            }
        }
        best
    }

    #[test]
    fn nearest_pair_is_not_always_chosen() {
        // Column 0 is the cheapest for the first row, but it is the only one for the second row.
        let costs = [vec![-4.0, -3.0], vec![-3.5, 4.0]];
        assert_eq!(assign(&costs), [(0, 1), (1, 0)]);
        let costs = [vec![-0.2, 0.8], vec![0.3, 7.8]];
        assert_eq!(assign(&costs), [(0, 0)], "every pair costs less than zero");
        assert_eq!(assign(&[]), []);
    }

    #[test]
    fn equal_sums_are_decided_by_the_order() {
        let costs = vec![vec![-1.0; 3]; 3];
        assert_eq!(assign(&costs), [(0, 0), (1, 1), (2, 2)]);
    }

    proptest! {
        #[test]
        fn no_other_choice_is_cheaper(
            rows in 0usize..6,
            columns in 0usize..6,
            numbers in prop::collection::vec(-6.0f64..4.0, 36),
        ) {
            let table: Vec<Vec<f64>> =
                numbers.chunks(6).take(rows).map(|row| row[..columns].to_vec()).collect();
            let pairs = assign(&table);
            for pair in pairs.windows(2) {
                prop_assert!(pair[0].0 < pair[1].0, "a row occurs twice");
            }
            let mut used: Vec<usize> = pairs.iter().map(|&(_, column)| column).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), pairs.len(), "a column occurs twice");
            let sum: f64 = pairs.iter().map(|&(row, column)| table[row][column]).sum();
            let best = least(&table, 0, &mut vec![false; columns]);
            prop_assert!((sum - best).abs() < 1e-9, "{} instead of {}", sum, best);
        }
    }
}
