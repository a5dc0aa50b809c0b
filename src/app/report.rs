//! What a run amounted to, in words for a terminal or the log's last line.

use std::fmt;

use spotter_core::{CameraId, FrameCounters};
use spotter_mqtt::Tally;

/// Books, losses and latency from start to stop.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of each camera.
    pub books: Vec<(CameraId, FrameCounters)>,
    /// Of the messages.
    pub messages: Tally,
    /// Receive to publish: median and 95th percentile, milliseconds; `None` when nothing was published.
    pub total_ms: [Option<f64>; 2],
    /// Capture to publish, the same; only of cameras whose clock is trusted.
    pub end_to_end_ms: [Option<f64>; 2],
}

impl Report {
    /// Every frame of every camera is accounted for.
    pub fn balanced(&self) -> bool {
        self.books.iter().all(|(_, books)| books.balanced())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (camera, b) in &self.books {
            let dropped = b.replaced + b.late + b.failed;
            writeln!(
                f,
                "{camera}: {} frames in, {} looked at; not due {}, without motion {}; dropped {dropped} \
                 (replaced by a newer one {}, late {}, failed {})",
                b.arrived, b.looked, b.skipped, b.gated, b.replaced, b.late, b.failed,
            )?;
        }
        let m = &self.messages;
        writeln!(
            f,
            "mqtt: {} messages, {} states confirmed, {} dropped",
            m.streams_sent,
            m.states_acked,
            m.dropped()
        )?;
        write!(f, "latency, receive to publish: {}", Pair(self.total_ms))?;
        write!(f, "; capture to publish: {}", Pair(self.end_to_end_ms))?;
        let verdict = if self.balanced() {
            "the books balance"
        } else {
            "THE BOOKS DO NOT BALANCE: this is a bug"
        };
        write!(f, "\n{verdict}")
    }
}

struct Pair([Option<f64>; 2]);

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [Some(p50), Some(p95)] => write!(f, "p50 {p50:.0} ms, p95 {p95:.0} ms"),
            _ => f.write_str("unknown"),
        }
    }
}
