//! When did light hit the sensor? A pure judge of the camera's own time (mqtt-contract section 8).
//!
//! A sender report says which NTP time belongs to which RTP time. The camera's clock may be hours off, so its word is
//! taken only when two reports agree, its RTP time runs as fast as its clock, and the capture time lies 0 to 10 s before the
//! arrival; else the arrival counts, and [`ClockHealth::note`] says why. Frames never wait for a report.

use std::{collections::VecDeque, time::Duration};

use crate::domain::{Capture, CaptureSource, Mono, WallTime};

/// A capture time further back than this is not believed.
const BEHIND_MAX_S: f64 = 10.0;
/// Clocks kept by NTP differ by some milliseconds, so a capture may seem to come after its arrival by that. It is
/// believed to have been at the arrival; taking this for a wrong clock would change the verdict with every frame.
const AHEAD_MAX_S: f64 = 0.1;
/// After a frame that was not believed, none is for so long: a recorded stream with B frames sends some pictures before
/// their time and some after it, and a source that changes with every frame says nothing about latency.
const DOUBT_S: f64 = 10.0;
/// Two reports agree when their offsets differ by less.
const AGREE_S: f64 = 0.1;
/// Offsets that differ by more were made by different clocks: one of them was set.
const STEP_S: f64 = 1.0;
const WINDOW: Duration = Duration::from_secs(300);
/// A slope over less time is noise.
const DRIFT_AFTER: Duration = Duration::from_secs(30);
const DRIFT_LIMIT_PPM: f64 = 500.0;
const REPORTS_KEPT: usize = 256;
/// RTP time may run off the sender's own NTP time by so much.
const RTP_RATE_LIMIT: f64 = 0.005;
/// Reports that rate is measured between are so far apart at least: a sender that is busy reads its two clocks some
/// milliseconds apart, which is the limit itself within one second.
const RTP_RATE_SPAN_S: f64 = 10.0;

/// Why the camera's time is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockNote {
    /// Capture would be after arrival.
    CameraAhead,
    /// Capture would be more than 10 s before arrival.
    CameraBehind,
    /// The offset is near a multiple of 15 minutes: the camera runs on local time.
    LooksLikeTimeZone,
    /// A clock was set; waiting until reports agree again.
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

/// The camera's clock as it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockHealth {
    /// The last frame's capture time came from the camera.
    pub trusted: bool,
    /// Camera minus us at the quickest report of the last five minutes, milliseconds.
    pub offset_ms: Option<f64>,
    /// Slope of the offset, parts per million, limited to ±500.
    pub drift_ppm: Option<f64>,
    /// Age of the last report, seconds.
    pub report_age_s: Option<f64>,
    /// Why not trusted.
    pub note: Option<ClockNote>,
}

/// One RTCP sender report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The sender's time.
    pub ntp: WallTime,
    /// The RTP time that belongs to it, and its ticks a second.
    pub rtp: (u32, u32),
    /// When it came, monotonic.
    pub arrived: Mono,
    /// When it came, UTC.
    pub arrived_wall: WallTime,
}

impl Report {
    fn offset_s(&self) -> f64 {
        self.ntp.seconds_since(self.arrived_wall)
    }
}

/// Judges one connection's times.
#[derive(Debug, Default)]
pub struct CaptureClock {
    /// Reports of one unstepped run of the clocks, oldest first.
    reports: VecDeque<Report>,
    /// Two of them agreed. It holds until a step: a report that was held up on its way disproves nothing.
    agreed: bool,
    stepped: bool,
    rate_wrong: bool,
    verdict: Option<ClockNote>,
    /// The last frame that was not believed: why, and when it came.
    doubt: Option<(ClockNote, WallTime)>,
    trusted: bool,
}

impl CaptureClock {
    /// Takes a sender report.
    pub fn on_report(&mut self, report: Report) {
        if let Some(last) = self.reports.back() {
            if (report.offset_s() - last.offset_s()).abs() > STEP_S {
                self.reports.clear();
                (self.stepped, self.agreed, self.doubt) = (true, false, None);
            } else {
                self.agreed |= (report.offset_s() - last.offset_s()).abs() < AGREE_S;
                let far =
                    |before: &&Report| report.ntp.seconds_since(before.ntp) >= RTP_RATE_SPAN_S;
                if let Some(before) = self.reports.iter().rev().find(far) {
                    self.rate_wrong = rtp_rate_wrong(before, &report);
                }
            }
        }
        self.reports.push_back(report);
        while self.reports.len() > REPORTS_KEPT
            || self
                .reports
                .front()
                .is_some_and(|first| report.arrived.since(first.arrived) > WINDOW)
        {
            self.reports.pop_front();
        }
        self.stepped &= !self.agreed;
    }

    /// The best capture time of a frame whose first packet came at `received` and that the sender stamped `ntp`.
    pub fn capture(&mut self, ntp: Option<WallTime>, received: WallTime) -> Capture {
        self.verdict = match ntp {
            Some(ntp) if self.agreed => {
                if let Some(note) = distrust(ntp, received) {
                    self.doubt = Some((note, received));
                }
                // Without a sign, so that a clock of ours that was set back does not doubt for ever.
                let lasts = |at| received.seconds_since(at).abs() < DOUBT_S;
                let doubt = self.doubt.filter(|(_, at)| lasts(*at));
                // Between two reports a frame's time is reckoned by RTP time.
                let rate = self.rate_wrong.then_some(ClockNote::RtpRateWrong);
                doubt.map(|(note, _)| note).or(rate)
            }
            _ if self.stepped => Some(ClockNote::Stepped),
            _ => Some(ClockNote::NoReports),
        };
        self.trusted = self.verdict.is_none();
        match ntp {
            Some(wall) if self.trusted => Capture {
                wall: wall.min(received),
                source: CaptureSource::Rtcp,
                error_ms: self.error_ms(wall.seconds_since(received) * 1e3),
            },
            _ => Capture {
                wall: received,
                source: CaptureSource::Arrival,
                error_ms: None,
            },
        }
    }

    /// The state to report.
    pub fn health(&self, now: Mono) -> ClockHealth {
        let silent = self.reports.is_empty().then_some(ClockNote::NoReports);
        let note = self.verdict.or(silent);
        ClockHealth {
            trusted: self.trusted,
            offset_ms: self.best_offset_s().map(|offset_s| offset_s * 1e3),
            drift_ppm: self.drift_ppm(),
            report_age_s: self
                .reports
                .back()
                .map(|last| now.since(last.arrived).as_secs_f64()),
            note,
        }
    }

    /// A report that travelled longer seems older, so the quickest one has the largest offset.
    fn best_offset_s(&self) -> Option<f64> {
        self.reports
            .iter()
            .map(Report::offset_s)
            .max_by(f64::total_cmp)
    }

    /// If the clocks agreed, the best offset would be the shortest network delay alone. Delay and disagreement cannot
    /// be told apart from here, so half of it is the estimate, at least a millisecond.
    /// A frame that is `ahead_ms` of its arrival shows an error of at least that.
    fn error_ms(&self, ahead_ms: f64) -> Option<f64> {
        self.best_offset_s()
            .map(|offset_s| (offset_s.abs() * 500.0).max(ahead_ms).max(1.0))
    }

    /// Least squares through the reports' offsets.
    fn drift_ppm(&self) -> Option<f64> {
        let (first, last) = (self.reports.front()?, self.reports.back()?);
        if last.arrived.since(first.arrived) < DRIFT_AFTER {
            return None;
        }
        let points: Vec<(f64, f64)> = self
            .reports
            .iter()
            .map(|r| (r.arrived.since(first.arrived).as_secs_f64(), r.offset_s()))
            .collect();
        let n = points.len() as f64;
        let (mean_x, mean_y) = points
            .iter()
            .fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
        let (xy, xx) = points.iter().fold((0.0, 0.0), |(xy, xx), p| {
            let dx = p.0 - mean_x;
            (xy + dx * (p.1 - mean_y), xx + dx * dx)
        });
        (xx > 0.0).then(|| (xy / xx * 1e6).clamp(-DRIFT_LIMIT_PPM, DRIFT_LIMIT_PPM))
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

fn rtp_rate_wrong(before: &Report, after: &Report) -> bool {
    let ntp_s = after.ntp.seconds_since(before.ntp);
    let ticks = f64::from(after.rtp.0.wrapping_sub(before.rtp.0) as i32);
    // Longer spans may have wrapped.
    if !(RTP_RATE_SPAN_S..=600.0).contains(&ntp_s) || after.rtp.1 == 0 {
        return false;
    }
    let rtp_s = ticks / f64::from(after.rtp.1);
    (rtp_s / ntp_s - 1.0).abs() > RTP_RATE_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_S: f64 = 1_790_000_000.0;

    fn wall(seconds: f64) -> WallTime {
        WallTime::from_unix_nanos(((START_S + seconds) * 1e9) as i64)
    }

    /// A report at `now_s` of a camera whose clock is `ahead_s` ahead, and whose RTP time runs at `rate`.
    fn report(now_s: f64, ahead_s: f64, rate: f64) -> Report {
        Report {
            ntp: wall(now_s + ahead_s),
            rtp: ((now_s * 90_000.0 * rate) as u32, 90_000),
            arrived: Mono::from_nanos((now_s * 1e9) as u64),
            arrived_wall: wall(now_s),
        }
    }

    /// The report, 0.3 s late.
    fn held_up(report: Report) -> Report {
        let late = Duration::from_millis(300);
        Report {
            arrived: report.arrived.after(late),
            arrived_wall: WallTime::from_unix_nanos(report.arrived_wall.unix_nanos() + 300_000_000),
            ..report
        }
    }

    fn clock(ahead_s: f64, reports: usize) -> CaptureClock {
        let mut clock = CaptureClock::default();
        for n in 0..reports {
            clock.on_report(report(n as f64 * 5.0, ahead_s, 1.0));
        }
        clock
    }

    /// The verdict on a frame taken 0.1 s before it arrived, by a clock that is `ahead_s` ahead.
    fn judge(clock: &mut CaptureClock, ahead_s: f64) -> (CaptureSource, Option<ClockNote>) {
        let capture = clock.capture(Some(wall(20.0 + ahead_s - 0.1)), wall(20.0));
        let note = clock.health(Mono::from_nanos(20_000_000_000)).note;
        if capture.source == CaptureSource::Arrival {
            assert_eq!(capture.wall, wall(20.0));
        }
        (capture.source, note)
    }

    #[test]
    fn rtcp_is_used_from_the_second_report_on() {
        let arrival = (CaptureSource::Arrival, Some(ClockNote::NoReports));
        assert_eq!(judge(&mut clock(0.0, 0), 0.0), arrival);
        assert_eq!(judge(&mut clock(0.0, 1), 0.0), arrival);
        let mut agreed = clock(0.0, 2);
        assert_eq!(judge(&mut agreed, 0.0), (CaptureSource::Rtcp, None));
        agreed.on_report(held_up(report(10.0, 0.0, 1.0)));
        assert_eq!(
            judge(&mut agreed, 0.0),
            (CaptureSource::Rtcp, None),
            "held up"
        );
        let mut torn = clock(0.0, 1);
        torn.on_report(held_up(report(5.0, 0.0, 1.0)));
        assert_eq!(judge(&mut torn, 0.0), arrival);
    }

    #[test]
    fn wrong_clocks_fall_back_to_arrival_and_say_why() {
        for (ahead_s, note) in [
            (3.0, ClockNote::CameraAhead),
            (-11.0, ClockNote::CameraBehind),
            (3600.0, ClockNote::LooksLikeTimeZone),
            (-7200.0 + 20.0, ClockNote::LooksLikeTimeZone),
            (19_800.0, ClockNote::LooksLikeTimeZone),
            (-4000.0, ClockNote::CameraBehind),
        ] {
            let verdict = judge(&mut clock(ahead_s, 3), ahead_s);
            assert_eq!(verdict, (CaptureSource::Arrival, Some(note)), "{ahead_s}");
        }
    }

    #[test]
    fn a_capture_slightly_ahead_was_at_the_arrival() {
        let mut clock = clock(0.0, 3);
        let capture = clock.capture(Some(wall(20.03)), wall(20.0));
        assert_eq!(
            (capture.wall, capture.source),
            (wall(20.0), CaptureSource::Rtcp)
        );
        assert!(capture.error_ms.unwrap() > 29.0, "{capture:?}");
        let mut source = |ntp_s, received_s| {
            let (ntp, received) = (wall(ntp_s), wall(received_s));
            clock.capture(Some(ntp), received).source
        };
        assert_eq!(source(20.2, 20.0), CaptureSource::Arrival);
        assert_eq!(source(20.9, 21.0), CaptureSource::Arrival, "still in doubt");
        assert_eq!(source(30.9, 31.0), CaptureSource::Rtcp);
    }

    #[test]
    fn a_step_needs_two_new_reports() {
        let mut stepped = clock(0.0, 3);
        stepped.on_report(report(15.0, -5.0, 1.0));
        let note = (CaptureSource::Arrival, Some(ClockNote::Stepped));
        assert_eq!(judge(&mut stepped, -5.0), note);
        stepped.on_report(report(20.0, -5.0, 1.0));
        assert_eq!(judge(&mut stepped, -5.0), (CaptureSource::Rtcp, None));
    }

    #[test]
    fn drift_and_offset_are_measured() {
        let mut clock = CaptureClock::default();
        for n in 0..30 {
            let now_s = f64::from(n) * 5.0;
            clock.on_report(report(now_s, -0.04 + now_s * 100e-6, 1.0));
        }
        let health = clock.health(Mono::from_nanos(146_000_000_000));
        assert!(
            (health.drift_ppm.unwrap() - 100.0).abs() < 1.0,
            "{health:?}"
        );
        assert!((health.offset_ms.unwrap() + 25.5).abs() < 0.1, "{health:?}");
        assert_eq!(health.report_age_s, Some(1.0));
    }

    #[test]
    fn a_wrong_rtp_rate_is_not_trusted_and_wraps_are_none() {
        let mut fast = CaptureClock::default();
        for at_s in [0.0, 5.0, 10.0] {
            fast.on_report(report(at_s, 0.0, 1.19));
        }
        let capture = fast.capture(Some(wall(10.0)), wall(10.1));
        assert_eq!(
            (capture.source, capture.wall),
            (CaptureSource::Arrival, wall(10.1))
        );
        let health = fast.health(Mono::default());
        let said = (health.trusted, health.note);
        assert_eq!(said, (false, Some(ClockNote::RtpRateWrong)));
        let (mut before, mut after) = (report(0.0, 0.0, 1.0), report(10.0, 0.0, 1.0));
        (before.rtp.0, after.rtp.0) = (u32::MAX - 100_000, 799_999);
        assert!(!rtp_rate_wrong(&before, &after));
    }

    #[test]
    fn a_busy_sender_s_clocks_are_not_called_wrong() {
        let mut clock = CaptureClock::default();
        for second in 0..30_u32 {
            let mut report = report(f64::from(second), 0.0, 1.0);
            // Every other report was stamped 10 ms after its RTP time was read.
            report.rtp.0 += second % 2 * 900;
            clock.on_report(report);
        }
        let _ = clock.capture(Some(wall(29.9)), wall(30.0));
        assert_eq!(clock.health(Mono::default()).note, None);
    }
}
