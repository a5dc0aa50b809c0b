//! A table of text on a terminal.

use std::fmt;

/// The cells of a row, each with the heading of its column.
pub type TableRow = Vec<(&'static str, String)>;

/// Every column is as wide as its widest cell; the first is aligned to the left, the others to the right.
pub struct TextTable(Vec<Vec<String>>);

impl TextTable {
    /// All rows have the same columns. Without rows there is no table.
    pub fn new(rows: impl IntoIterator<Item = TableRow>) -> Self {
        let mut lines: Vec<Vec<String>> = Vec::new();
        for row in rows {
            if lines.is_empty() {
                lines.push(row.iter().map(|(heading, _)| (*heading).into()).collect());
            }
            lines.push(row.into_iter().map(|(_, cell)| cell).collect());
        }
        Self(lines)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
pub fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_as_wide_as_their_cells() {
        let row = |step: &str, ms| vec![("step", step.to_owned()), ("ms", known(ms, 1))];
        let table = TextTable::new([row("4 × 378x378", Some(18.871)), row("1", None)]);
        let expected = "step           ms\n4 × 378x378  18.9\n1               -\n";
        assert_eq!(table.to_string(), expected);
    }
}
