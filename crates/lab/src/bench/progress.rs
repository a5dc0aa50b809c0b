//! Progress of long work.

use spotter::cli::out::remark;

/// Writes a line to stderr after every tenth of the work; writes nothing by default.
#[derive(Debug, Default)]
pub struct ProgressLine {
    what: &'static str,
    total: u64,
    done: u64,
}

impl ProgressLine {
    /// For `total` steps, called `what` in the plural.
    pub fn new(what: &'static str, total: u64) -> Self {
        Self {
            what,
            total,
            done: 0,
        }
    }

    /// One more step is done.
    pub fn step(&mut self) {
        let tenths = |steps: u64| (steps * 10).checked_div(self.total);
        let before = tenths(self.done);
        self.done += 1;
        if tenths(self.done) > before {
            remark(format_args!(
                "{} of {} {}",
                self.done, self.total, self.what
            ));
        }
    }
}
