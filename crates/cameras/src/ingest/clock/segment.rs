//! A run of RTP time without a jump: within it, one sender report dates every frame. Pure.
//!
//! RTP time is 32 bits wide and wraps; all differences are taken modulo that.

use super::SenderReport;
use spotter_core::{Mono, WallTime};

/// The clock rate of every video payload format, until a report gives it.
const TICKS_PER_S: u32 = 90_000;
/// A report dates frames for so long. RTP time may run half a percent off, which is 1.5 s then.
const REPORT_HOLDS_S: f64 = 300.0;
/// A step of RTP time by one frame and more than this is a gap.
const GAP_S: f64 = 0.5;
/// A gap in RTP time is as long as that between the arrivals, but for this.
const GAP_SLACK_S: f64 = 0.25;
/// Pictures that are sent before their time make RTP time step back; more than this is none of their doing.
const REORDER_MAX_S: f64 = 1.0;
const BACK_SLACK_S: f64 = 0.05;
/// The share of the newest distance in the mean of them.
const NEWEST: f64 = 1.0 / 16.0;

/// One run of RTP time.
#[derive(Debug, Default)]
pub struct RtpSegment {
    since: Mono,
    /// RTP time and arrival of the last frame.
    last: Option<(u32, Mono)>,
    interval_s: f64,
    /// Frames that come before their time make it step back so far.
    reorder_s: f64,
    report: Option<SenderReport>,
}

impl RtpSegment {
    /// The next frame in the order of sending. True when RTP time jumped before it, which begins a new segment. While it
    /// `may_learn`, steps back are taken for pictures out of order from then on.
    pub fn follow(&mut self, rtp: u32, received: Mono, may_learn: bool) -> bool {
        let Some((last_rtp, last_received)) = self.last.replace((rtp, received)) else {
            return false;
        };
        let ticks_per_s = self.report.map_or(TICKS_PER_S, |report| report.ticks_per_s);
        let step_s = seconds(rtp, last_rtp, ticks_per_s);
        let passed_s = received.since(last_received).as_secs_f64();
        let back = step_s < -(self.reorder_s + BACK_SLACK_S);
        // Frames that were held up come late, but lie as near to each other as ever. Where frames are missing, the gap is in both.
        // What is neither is an encoder that began again.
        let gap = step_s > GAP_S + self.interval_s;
        let other_gap = gap && (passed_s - step_s).abs() > GAP_SLACK_S;
        if may_learn && back && -step_s < REORDER_MAX_S {
            self.reorder_s = -step_s;
        }
        let jumped = back || other_gap;
        if jumped {
            self.restart(received);
        } else if step_s > 0.0 {
            // One gap proves little, and cameras with a frame in some seconds have nothing else.
            let longest_s = 2.0 * (self.interval_s + 1.0);
            self.interval_s += (step_s.min(longest_s) - self.interval_s) * NEWEST;
        }
        jumped
    }

    /// Another run begins: what was reported before does not date what comes.
    pub fn restart(&mut self, now: Mono) {
        (self.since, self.report) = (now, None);
    }

    /// Takes a report of this run.
    pub fn on_report(&mut self, report: SenderReport) {
        if report.ticks_per_s > 0 {
            self.report = Some(report);
        }
    }

    pub fn since(&self) -> Mono {
        self.since
    }

    /// What the sender's clock showed at a frame's RTP time; `None` when no report says.
    pub fn date(&self, rtp: u32, received: Mono) -> Option<WallTime> {
        let report = self.report?;
        let fresh = received.since(report.arrived).as_secs_f64() <= REPORT_HOLDS_S;
        let after_s = seconds(rtp, report.rtp, report.ticks_per_s);
        fresh.then(|| report.ntp.plus_seconds(after_s))
    }
}

/// From one RTP time to another, whichever is later.
pub fn seconds(to: u32, from: u32, ticks_per_s: u32) -> f64 {
    f64::from(to.wrapping_sub(from) as i32) / f64::from(ticks_per_s)
}
