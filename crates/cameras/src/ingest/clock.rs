//! The capture clock: maps RTP timestamps to capture time, using RTCP sender reports (docs/mqtt.md section 2). Pure.
//!
//! A sender report says which NTP time belongs to which RTP time. The camera's clock may be hours off, so it is
//! trusted only when two reports agree, its RTP time runs as fast as its clock and has not jumped since the last report, and
//! the capture time is 0 to 10 s before the arrival; else the arrival counts, and [`ClockHealth::note`] says why. Frames
//! never wait for a report.
//!
//! The camera's clock is compared with our monotonic one (`line`), so that a step of our own UTC is none of the camera's.

mod line;
mod segment;

use std::{collections::VecDeque, time::Duration};

use self::{line::ClockLine, segment::RtpSegment};
use spotter_core::{Capture, CaptureSource, Mono, WallTime};

/// A capture time further back than this is not believed.
const BEHIND_MAX_S: f64 = 10.0;
/// Clocks kept by NTP differ by some milliseconds, so a capture may seem to come after its arrival by that. It is
/// believed to have been at the arrival; taking this for a wrong clock would change the verdict with every frame.
const AHEAD_MAX_S: f64 = 0.1;
/// After a frame that was not believed, none is for so long: a recorded stream with B frames sends some pictures before
/// their time and some after it, and a source that changes with every frame says nothing about latency.
const DOUBT: Duration = Duration::from_secs(10);
/// Two reports agree when their offsets differ by less.
const AGREE_S: f64 = 0.1;
/// Offsets that differ by more were made by different clocks: one of them was set. Or a report was held up.
const STEP_S: f64 = 1.0;
/// A frame's time that is further from the line has nothing to do with the reports.
const OFF_LINE_MAX_S: f64 = 10.0;
const WINDOW: Duration = Duration::from_secs(300);
const REPORTS_KEPT: usize = 256;
/// The share by which RTP time may run off the sender's own NTP time.
const RTP_RATE_LIMIT: f64 = 0.005;
/// Reports that rate is measured between are so far apart at least: a sender that is busy reads its two clocks some
/// milliseconds apart, which is the limit itself within one second.
const RTP_RATE_SPAN_S: f64 = 10.0;

/// Both clocks of this machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    pub mono: Mono,
    pub wall: WallTime,
}

/// Why the camera's time is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockNote {
    /// Capture would be after arrival.
    CameraAhead,
    /// Capture would be more than 10 s before arrival.
    CameraBehind,
    /// The offset is near a multiple of 15 minutes: the camera runs on local time.
    LooksLikeTimeZone,
    /// A clock was set, or RTP time jumped; the next reports decide.
    Stepped,
    /// No two sender reports yet (for ever, on cameras that send none).
    NoReports,
    /// RTP time runs off NTP time by more than 0.5 %.
    RtpRateWrong,
}

impl ClockNote {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CameraAhead => "camera_ahead",
            Self::CameraBehind => "camera_behind",
            Self::LooksLikeTimeZone => "looks_like_time_zone",
            Self::Stepped => "stepped",
            Self::NoReports => "no_reports",
            Self::RtpRateWrong => "rtp_rate_wrong",
        }
    }
}

/// The camera's clock in reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockHealth {
    /// The last frame's capture time came from the camera.
    pub trusted: bool,
    /// Camera minus us by the line of the quickest reports of the last five minutes, milliseconds.
    pub offset_ms: Option<f64>,
    /// Slope of the offset, parts per million, limited to ±500.
    pub drift_ppm: Option<f64>,
    /// Age of the last report, seconds.
    pub report_age_s: Option<f64>,
    pub note: Option<ClockNote>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderReport {
    pub ntp: WallTime,
    /// The RTP time that belongs to it.
    pub rtp: u32,
    /// The rate of RTP time; 0 when it is not known.
    pub ticks_per_s: u32,
    pub arrived: Mono,
}

impl SenderReport {
    /// How far the sender's clocks of two reports are apart, less the time between their arrivals.
    fn apart_s(&self, other: &Self) -> f64 {
        let nanos = |mono: Mono| mono.as_nanos() as i64;
        let passed_ns = nanos(self.arrived) - nanos(other.arrived);
        self.ntp.seconds_since(other.ntp) - passed_ns as f64 * 1e-9
    }
}

/// Dates the frames of one connection.
#[derive(Debug, Default)]
pub struct CaptureClock {
    /// Reports of one unstepped run of the sender's clock, oldest first.
    reports: VecDeque<SenderReport>,
    line: Option<ClockLine>,
    /// A report far from the line: the next one shows whether the clock was set or this one was held up on its way.
    odd: Option<SenderReport>,
    /// Two of the reports agreed. It holds until a step: a report that was held up disproves nothing.
    agreed: bool,
    stepped: bool,
    segment: RtpSegment,
    /// RTP time jumped, and no report has dated it since.
    jumped: bool,
    rate_wrong: bool,
    verdict: Option<ClockNote>,
    /// The last frame that was not believed: why, and when it came.
    doubt: Option<(ClockNote, Mono)>,
    trusted: bool,
}

impl CaptureClock {
    pub fn on_report(&mut self, report: SenderReport) {
        let off_s = |line: ClockLine| report.ntp.seconds_since(line.sender_time(report.arrived));
        if self.line.is_some_and(|line| off_s(line).abs() > STEP_S) {
            match self.odd.take() {
                Some(odd) if report.apart_s(&odd).abs() <= STEP_S => {
                    self.begin_again();
                    self.take(odd);
                }
                _ => {
                    self.odd = Some(report);
                    return;
                }
            }
        }
        self.odd = None;
        self.take(report);
    }

    /// A frame with the RTP time `rtp` came, in the order of sending: the sender's time of its capture, as far as known.
    pub fn date(&mut self, rtp: u32, received: Mono) -> Option<WallTime> {
        self.jumped |= self.segment.follow(rtp, received, !self.agreed);
        let date = self.segment.date(rtp, received)?;
        let off_s = self
            .line
            .map_or(0.0, |line| date.seconds_since(line.sender_time(received)));
        if off_s.abs() <= OFF_LINE_MAX_S {
            return Some(date);
        }
        self.new_segment(received);
        None
    }

    /// RTP time starts again, as with another sender.
    pub fn new_segment(&mut self, now: Mono) {
        self.segment.restart(now);
        self.jumped = true;
    }

    /// The best capture time of a frame whose first packet came at `received` and that the sender dated `date`.
    pub fn capture(&mut self, date: Option<WallTime>, received: ClockReading) -> Capture {
        let ClockReading { mono: at, wall } = received;
        let believed = date.filter(|_| self.agreed && self.odd.is_none());
        self.verdict = match believed {
            Some(date) => {
                if let Some(note) = distrust(date, wall) {
                    self.doubt = Some((note, at));
                }
                let doubt = self.doubt.filter(|(_, then)| at.since(*then) < DOUBT);
                // Between two reports a frame's time is reckoned by RTP time.
                let rate = self.rate_wrong.then_some(ClockNote::RtpRateWrong);
                doubt.map(|(note, _)| note).or(rate)
            }
            None if self.stepped || self.odd.is_some() => Some(ClockNote::Stepped),
            None if self.agreed && self.jumped => Some(ClockNote::Stepped),
            None => Some(ClockNote::NoReports),
        };
        self.trusted = self.verdict.is_none();
        match believed.filter(|_| self.trusted) {
            Some(date) => Capture {
                wall: date.min(wall),
                source: CaptureSource::Rtcp,
                error_ms: self.error_ms(received, date.seconds_since(wall) * 1e3),
            },
            None => Capture {
                wall,
                source: CaptureSource::Arrival,
                error_ms: None,
            },
        }
    }

    pub fn health(&self, now: ClockReading) -> ClockHealth {
        let silent = self.reports.is_empty().then_some(ClockNote::NoReports);
        let slope = self.line.and_then(|line| line.slope());
        let last = self.odd.as_ref().or(self.reports.back());
        ClockHealth {
            trusted: self.trusted,
            offset_ms: self.offset_s(now).map(|offset_s| offset_s * 1e3),
            drift_ppm: slope.map(|slope| slope * 1e6),
            report_age_s: last.map(|last| now.mono.since(last.arrived).as_secs_f64()),
            note: self.verdict.or(silent),
        }
    }

    /// The sender's clock was set, as two reports show.
    fn begin_again(&mut self) {
        self.reports.clear();
        (self.stepped, self.agreed, self.doubt) = (true, false, None);
    }

    fn take(&mut self, report: SenderReport) {
        if let Some(last) = self.reports.back() {
            self.agreed |= report.apart_s(last).abs() < AGREE_S;
        }
        let far = |before: &&SenderReport| {
            before.arrived >= self.segment.since()
                && report.ntp.seconds_since(before.ntp) >= RTP_RATE_SPAN_S
        };
        if let Some(before) = self.reports.iter().rev().find(far) {
            self.rate_wrong = rtp_rate_wrong(before, &report);
        }
        self.segment.on_report(report);
        self.reports.push_back(report);
        let old = |first: &SenderReport| report.arrived.since(first.arrived) > WINDOW;
        while self.reports.len() > REPORTS_KEPT || self.reports.front().is_some_and(old) {
            self.reports.pop_front();
        }
        self.line = ClockLine::above(self.reports.iter().map(|r| (r.ntp, r.arrived)));
        self.stepped &= !self.agreed;
        self.jumped = false;
    }

    /// The camera's clock minus ours, in seconds; `None` while it is unknown.
    fn offset_s(&self, now: ClockReading) -> Option<f64> {
        let line = self.line?;
        Some(line.sender_time(now.mono).seconds_since(now.wall))
    }

    /// If the clocks agreed, the offset would be the shortest network delay alone. Delay and disagreement cannot be
    /// distinguished here, so half of it is the estimate, at least a millisecond.
    /// A frame that is `ahead_ms` of its arrival shows an error of at least that.
    fn error_ms(&self, received: ClockReading, ahead_ms: f64) -> Option<f64> {
        self.offset_s(received)
            .map(|offset_s| (offset_s.abs() * 500.0).max(ahead_ms).max(1.0))
    }
}

/// Why a capture at `ntp` of a frame that came at `received` is not believed.
fn distrust(ntp: WallTime, received: WallTime) -> Option<ClockNote> {
    let age_s = received.seconds_since(ntp);
    if (-AHEAD_MAX_S..=BEHIND_MAX_S).contains(&age_s) {
        return None;
    }
    let quarter_s = 15.0 * 60.0;
    let from_quarter_s = (age_s / quarter_s).round() * quarter_s - age_s;
    Some(
        if age_s.abs() > 14.0 * 60.0 && from_quarter_s.abs() <= 60.0 {
            ClockNote::LooksLikeTimeZone
        } else if age_s < 0.0 {
            ClockNote::CameraAhead
        } else {
            ClockNote::CameraBehind
        },
    )
}

fn rtp_rate_wrong(before: &SenderReport, after: &SenderReport) -> bool {
    let ntp_s = after.ntp.seconds_since(before.ntp);
    // Longer spans may have wrapped.
    if !(RTP_RATE_SPAN_S..=600.0).contains(&ntp_s) || after.ticks_per_s == 0 {
        return false;
    }
    let rtp_s = segment::seconds(after.rtp, before.rtp, after.ticks_per_s);
    (rtp_s / ntp_s - 1.0).abs() > RTP_RATE_LIMIT
}

#[cfg(test)]
mod tests;
