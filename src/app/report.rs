//! The summary of a run, for a terminal or the end of the log.

use std::fmt;

use spotter_core::{CameraId, FrameCounters};
use spotter_mqtt::MessageCounters;

/// Frame counters, losses and latency from start to stop.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    pub frame_counters: Vec<(CameraId, FrameCounters)>,
    pub messages: MessageCounters,
    /// Receive to publish in the last minute: median and 95th percentile, milliseconds; `None` when nothing was published.
    pub total_ms: [Option<f64>; 2],
    /// Capture to publish, the same; only of cameras whose clock is trusted.
    pub end_to_end_ms: [Option<f64>; 2],
}

impl RunReport {
    /// Every frame of every camera is accounted for.
    pub fn balanced(&self) -> bool {
        let mut all = self.frame_counters.iter();
        all.all(|(_, frame_counters)| frame_counters.balanced())
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (camera, b) in &self.frame_counters {
            let dropped = b.replaced + b.late + b.failed;
            writeln!(
                f,
                "{camera}: {} frames in, {} analysed; no prompt due {}, no motion {}; dropped {dropped} \
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
        let pair = |ms: [Option<f64>; 2]| match ms {
            [Some(p50), Some(p95)] => format!("p50 {p50:.0} ms, p95 {p95:.0} ms"),
            _ => "unknown".to_owned(),
        };
        let (total, end_to_end) = (pair(self.total_ms), pair(self.end_to_end_ms));
        write!(
            f,
            "latency in the last minute, receive to publish: {total}; capture to publish: {end_to_end}\n{}",
            match self.balanced() {
                true => "every frame is accounted for",
                false => "FRAMES ARE MISSING FROM THE COUNTERS: this is a bug",
            }
        )
    }
}
