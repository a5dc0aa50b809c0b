//! Progress of long work on stderr: one line that is rewritten on a terminal, a line for every tenth elsewhere.

use std::io::{self, IsTerminal, Write};

/// Reports progress.
#[derive(Debug)]
pub struct ProgressLine {
    what: &'static str,
    total: u64,
    done: u64,
    shown: ProgressStyle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressStyle {
    /// Every step, over the last line.
    Rewritten,
    /// Every tenth, line by line.
    Tenths,
    Never,
}

impl ProgressLine {
    /// For `total` steps, called `what` in the plural.
    pub fn on_stderr(what: &'static str, total: u64) -> Self {
        let shown = if io::stderr().is_terminal() {
            ProgressStyle::Rewritten
        } else {
            ProgressStyle::Tenths
        };
        Self::new(what, total, shown)
    }

    /// Writes nothing.
    pub fn silent() -> Self {
        Self::new("", 0, ProgressStyle::Never)
    }

    fn new(what: &'static str, total: u64, shown: ProgressStyle) -> Self {
        Self {
            what,
            total,
            done: 0,
            shown,
        }
    }

    /// One more step is done. Blocks as long as stderr does.
    pub fn step(&mut self) {
        self.done += 1;
        if let Some(text) = self.text() {
            // The work continues if its progress cannot be written.
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }

    /// What to write now.
    fn text(&self) -> Option<String> {
        let (done, total, what) = (self.done, self.total, self.what);
        let last = done == total;
        match self.shown {
            ProgressStyle::Rewritten if last => Some(format!("\r{done} of {total} {what}\n")),
            ProgressStyle::Rewritten => Some(format!("\r{done} of {total} {what}")),
            ProgressStyle::Tenths => {
                let tenths = |steps: u64| steps * 10 / total.max(1);
                let passed = tenths(done) > tenths(done.saturating_sub(1));
                passed.then(|| format!("{done} of {total} {what}\n"))
            }
            ProgressStyle::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(total: u64, shown: ProgressStyle) -> Vec<String> {
        let mut progress = ProgressLine::new("scenes", total, shown);
        let step = |_| {
            progress.done += 1;
            progress.text()
        };
        (0..total).filter_map(step).collect()
    }

    #[test]
    fn ten_lines_at_most_without_a_terminal() {
        let all = lines(500, ProgressStyle::Tenths);
        assert_eq!(all.len(), 10);
        assert_eq!(
            (all[0].as_str(), all[9].as_str()),
            ("50 of 500 scenes\n", "500 of 500 scenes\n")
        );
        assert_eq!(
            lines(3, ProgressStyle::Tenths).last().map(String::as_str),
            Some("3 of 3 scenes\n")
        );
    }

    #[test]
    fn one_line_on_a_terminal() {
        assert_eq!(
            lines(2, ProgressStyle::Rewritten),
            ["\r1 of 2 scenes", "\r2 of 2 scenes\n"]
        );
    }
}
