//! A table of text.

use std::fmt;

/// Every column is as wide as its widest cell; the first is aligned to the left, the others to the right.
pub(crate) struct TextTable(Vec<Vec<String>>);

impl TextTable {
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        Self(vec![headings.into_iter().map(Into::into).collect()])
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |column: usize| self.0.iter().filter_map(move |row| row.get(column));
        let widest = |column| cells(column).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..).map_while(widest).collect();
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A dash for what was not measured.
pub(crate) fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_as_wide_as_their_cells() {
        let mut table = TextTable::new(["step", "ms"]);
        table.row(["4 × 378x378".into(), known(Some(18.871), 1)]);
        table.row(["1".into(), known(None, 1)]);
        let expected = "step           ms\n4 × 378x378  18.9\n1               -\n";
        assert_eq!(table.to_string(), expected);
    }
}
