//! Whether what is published comes within the budget of the configuration. Pure; a slow machine is told of it, because nothing
//! else shows: what is too old is dropped, so no backlog ever forms.

use std::time::Duration;

/// Whether the 95th percentile, receive to publish, is over `model.budget`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Punctuality {
    late: bool,
}

/// It is not as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Messages come later than they may.
    Late,
    /// They come in time again, or none come.
    InTime,
}

impl Punctuality {
    /// The percentile of the last minute, `None` without a message in it: then nothing came too late.
    pub fn judge(&mut self, p95_ms: Option<f64>, budget: Duration) -> Option<Turn> {
        let late = p95_ms.is_some_and(|ms| ms > budget.as_secs_f64() * 1e3);
        let turned = late != std::mem::replace(&mut self.late, late);
        turned.then_some(if late { Turn::Late } else { Turn::InTime })
    }

    /// As it is now.
    pub fn is_late(self) -> bool {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_told_once_and_silence_is_not_late() {
        let budget = Duration::from_millis(250);
        let mut punctuality = Punctuality::default();
        let mut judge = |p95| {
            let turn = punctuality.judge(p95, budget);
            (turn, punctuality.is_late())
        };
        assert_eq!(judge(Some(250.0)), (None, false), "just in time");
        assert_eq!(judge(Some(250.1)), (Some(Turn::Late), true));
        assert_eq!(judge(Some(900.0)), (None, true));
        assert_eq!(judge(Some(40.0)), (Some(Turn::InTime), false));
        assert_eq!(judge(None), (None, false));
        assert_eq!(judge(Some(900.0)), (Some(Turn::Late), true));
        assert_eq!(judge(None), (Some(Turn::InTime), false));
    }
}
