use proptest::prelude::*;

use super::*;
use spotter_core::duration_from_secs;

const START_S: f64 = 1_790_000_000.0;
const START_RTP: u32 = u32::MAX - 900_000;

fn wall(seconds: f64) -> WallTime {
    WallTime::from_unix_nanos((START_S * 1e9) as i64).plus_seconds(seconds)
}

fn mono(seconds: f64) -> Mono {
    Mono::from_nanos((seconds * 1e9) as u64)
}

fn both(seconds: f64) -> ClockReading {
    reading(seconds, seconds)
}

fn reading(mono_s: f64, wall_s: f64) -> ClockReading {
    ClockReading {
        mono: mono(mono_s),
        wall: wall(wall_s),
    }
}

/// RTP time that wraps after ten seconds.
fn rtp(seconds: f64) -> u32 {
    START_RTP.wrapping_add((seconds * 90_000.0).round() as i64 as u32)
}

/// A report at `now_s` of a camera whose clock is `ahead_s` ahead.
fn report(now_s: f64, ahead_s: f64) -> SenderReport {
    SenderReport {
        ntp: wall(now_s + ahead_s),
        rtp: rtp(now_s),
        ticks_per_s: 90_000,
        arrived: mono(now_s),
    }
}

fn held_up(report: SenderReport, late_s: f64) -> SenderReport {
    SenderReport {
        arrived: report.arrived.after(duration_from_secs(late_s)),
        ..report
    }
}

fn clock(ahead_s: f64, reports: usize) -> CaptureClock {
    let mut clock = CaptureClock::default();
    for n in 0..reports {
        clock.on_report(report(n as f64 * 5.0, ahead_s));
    }
    clock
}

/// The verdict on a frame that was taken 0.1 s before `now_s`, when it came.
fn judge_at(clock: &mut CaptureClock, now_s: f64) -> (CaptureSource, Option<ClockNote>) {
    let date = clock.date(rtp(now_s - 0.1), mono(now_s));
    let capture = clock.capture(date, both(now_s));
    if capture.source == CaptureSource::Arrival {
        assert_eq!(capture.wall, wall(now_s));
    }
    (capture.source, clock.health(both(now_s)).note)
}

const BELIEVED: (CaptureSource, Option<ClockNote>) = (CaptureSource::Rtcp, None);

fn arrival(note: ClockNote) -> (CaptureSource, Option<ClockNote>) {
    (CaptureSource::Arrival, Some(note))
}

#[test]
fn rtcp_is_used_from_the_second_report_on() {
    let early = arrival(ClockNote::NoReports);
    assert_eq!(judge_at(&mut clock(0.0, 0), 20.0), early);
    assert_eq!(judge_at(&mut clock(0.0, 1), 20.0), early);
    let mut agreed = clock(0.0, 2);
    assert_eq!(judge_at(&mut agreed, 20.0), BELIEVED);
    agreed.on_report(held_up(report(20.0, 0.0), 0.3));
    assert_eq!(judge_at(&mut agreed, 20.4), BELIEVED, "held up");
    let mut torn = clock(0.0, 1);
    torn.on_report(held_up(report(5.0, 0.0), 0.3));
    assert_eq!(judge_at(&mut torn, 20.0), early);
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
        (-START_S, ClockNote::CameraBehind),
    ] {
        let verdict = judge_at(&mut clock(ahead_s, 3), 20.0);
        assert_eq!(verdict, arrival(note), "{ahead_s}");
    }
}

#[test]
fn a_capture_slightly_ahead_was_at_the_arrival() {
    let mut clock = clock(0.0, 3);
    let capture = clock.capture(Some(wall(20.03)), both(20.0));
    assert_eq!(capture.wall, wall(20.0));
    assert_eq!(capture.source, CaptureSource::Rtcp);
    assert!(capture.error_ms.unwrap() > 29.0, "{capture:?}");
    let mut source =
        |date_s, received_s| clock.capture(Some(wall(date_s)), both(received_s)).source;
    assert_eq!(source(20.2, 20.0), CaptureSource::Arrival);
    assert_eq!(source(20.9, 21.0), CaptureSource::Arrival, "still in doubt");
    assert_eq!(source(30.9, 31.0), CaptureSource::Rtcp);
}

#[test]
fn clock_step_needs_two_new_reports_and_ignores_delayed_ones() {
    for (ahead_s, late_s) in [(-5.0, 0.0), (0.0, 3.0)] {
        let mut clock = clock(0.0, 3);
        clock.on_report(held_up(report(15.0, ahead_s), late_s));
        let stepped = judge_at(&mut clock, 15.5 + late_s);
        assert_eq!(stepped, arrival(ClockNote::Stepped));
        clock.on_report(report(20.0, ahead_s));
        assert_eq!(judge_at(&mut clock, 20.5), BELIEVED);
        let offset_ms = clock.health(both(20.5)).offset_ms.unwrap();
        assert!((offset_ms - ahead_s * 1e3).abs() < 1.0, "{offset_ms}");
    }
}

#[test]
fn rtp_time_that_jumps_dates_nothing_until_the_next_report() {
    for jump_s in [0.7, 4.0, 9.9, 11.0, 40_000.0, -0.2, -4.0, -9.9, -11.0] {
        let mut clock = clock(0.0, 3);
        let mut judge = |n: u32, jump_s: f64| {
            let now_s = 10.0 + f64::from(n) * 0.04;
            let date = clock.date(rtp(now_s - 0.1 + jump_s), mono(now_s));
            clock.capture(date, both(now_s)).source
        };
        for n in 0..50 {
            assert_eq!(judge(n, 0.0), CaptureSource::Rtcp);
        }
        for n in 50..100 {
            assert_eq!(judge(n, jump_s), CaptureSource::Arrival, "{jump_s}");
        }
        let seen = clock.health(both(14.0)).note;
        assert_eq!(seen, Some(ClockNote::Stepped), "{jump_s}");
        let mut next = report(15.0, 0.0);
        next.rtp = rtp(15.0 + jump_s);
        clock.on_report(next);
        let date = clock.date(rtp(14.9 + jump_s), mono(15.0));
        let capture = clock.capture(date, both(15.0));
        assert_eq!(capture.source, CaptureSource::Rtcp, "{jump_s}");
        assert!(capture.wall.seconds_since(wall(14.9)).abs() < 1e-3);
    }
}

#[test]
fn rtp_time_gap_is_accepted_when_arrivals_show_it() {
    // Of RTP time and of the arrivals: all held up, all lost, lost and some jitter; and an encoder that began again in a pause.
    for (gap_s, pause_s, source) in [
        (0.04, 3.0, CaptureSource::Rtcp),
        (3.0, 3.0, CaptureSource::Rtcp),
        (3.0, 3.2, CaptureSource::Rtcp),
        (0.8, 3.0, CaptureSource::Arrival),
        (2.0, 3.0, CaptureSource::Arrival),
    ] {
        let mut clock = clock(0.0, 3);
        let mut judge = |rtp_s: f64, now_s: f64| {
            let date = clock.date(rtp(rtp_s), mono(now_s));
            clock.capture(date, both(now_s)).source
        };
        for n in 0..50 {
            let now_s = 10.0 + f64::from(n) * 0.04;
            assert_eq!(judge(now_s - 0.1, now_s), CaptureSource::Rtcp);
        }
        for n in 0..10 {
            let rtp_s = 11.86 + gap_s + f64::from(n) * 0.04;
            // Delayed packets arrive at once, the others on time.
            let now_s = f64::max(11.96 + pause_s, rtp_s + 0.1);
            assert_eq!(judge(rtp_s, now_s), source, "{gap_s} in {pause_s}, {n}");
        }
    }
}

#[test]
fn pictures_out_of_order_are_no_jump() {
    let mut clock = clock(0.0, 1);
    // I P B B: the P is sent two pictures before its time.
    let orders = [0.0, 2.0, -1.0, -1.0];
    for n in 0..400_u32 {
        if n == 20 {
            clock.on_report(report(1.0, 0.0));
        }
        let sent_s = f64::from(n) * 0.04 + 0.2;
        let at_s = (f64::from(n) + orders[n as usize % 4]) * 0.04;
        let date = clock.date(rtp(at_s), mono(sent_s));
        if n >= 20 {
            assert!(date.unwrap().seconds_since(wall(at_s)).abs() < 1e-3);
        }
    }
}

#[test]
fn drift_and_offset_are_measured() {
    let mut clock = CaptureClock::default();
    for n in 0..30 {
        let now_s = f64::from(n) * 5.0;
        clock.on_report(report(now_s, -0.04 + now_s * 100e-6));
    }
    // When our own clock is set, the camera leads by another time, and drifts no more than before.
    for (set_s, offset_ms) in [(0.0, -25.4), (3600.0, -3_600_025.4)] {
        let health = clock.health(reading(146.0, 146.0 + set_s));
        let (drift_ppm, off_ms) = (health.drift_ppm.unwrap(), health.offset_ms.unwrap());
        assert!((drift_ppm - 100.0).abs() < 1.0, "{health:?}");
        assert!((off_ms - offset_ms).abs() < 0.1, "{health:?}");
        assert_eq!(health.report_age_s, Some(1.0));
    }
}

#[test]
fn wrong_rtp_rate_is_rejected_and_a_busy_sender_accepted() {
    // Reports each second; the busy sender stamps every other one 10 ms after it read its RTP time.
    for (rate, late_ticks, note) in [(1.19, 0, Some(ClockNote::RtpRateWrong)), (1.0, 900, None)] {
        let mut clock = CaptureClock::default();
        for second in 0..30_u32 {
            let mut report = report(f64::from(second), 0.0);
            report.rtp = rtp(f64::from(second) * rate).wrapping_add(second % 2 * late_ticks);
            clock.on_report(report);
        }
        let capture = clock.capture(Some(wall(29.9)), both(30.0));
        let is_trusted = capture.source == CaptureSource::Rtcp;
        let health = clock.health(both(30.0));
        assert_eq!((health.note, health.trusted), (note, is_trusted));
        assert_eq!(is_trusted, note.is_none());
    }
    assert!(
        !rtp_rate_wrong(&report(0.0, 0.0), &report(20.0, 0.0)),
        "it wraps"
    );
}

/// What happens to a camera and to the network while it is watched.
#[derive(Debug, Clone)]
struct Fate {
    lead_s: f64,
    drift_ppm: f64,
    /// RTP time jumps at some second.
    jump: (f64, f64),
    /// The camera's clock is set at some second.
    step: (f64, f64),
    /// Our own clock is set at some second.
    our_step: (f64, f64),
    /// Everything that is sent from some second on comes after so long.
    stall: (f64, f64),
    jitter_ms: Vec<f64>,
}

fn signed(range: std::ops::Range<f64>) -> impl Strategy<Value = f64> {
    (range, any::<bool>()).prop_map(|(size, down)| if down { -size } else { size })
}

prop_compose! {
    fn fate()(
        lead_s in -0.05..0.0_f64,
        drift_ppm in -300.0..300.0_f64,
        jump in (20.0..70.0_f64, signed(0.7..9.9)),
        step in (20.0..70.0_f64, signed(1.5..4000.0)),
        our_step in (20.0..70.0_f64, signed(0.5..4000.0)),
        stall in (20.0..70.0_f64, 0.0..4.0_f64),
        jitter_ms in prop::collection::vec(0.0..60.0_f64, 64),
        together: bool,
    ) -> Fate {
        // Where an encoder begins again, the stream pauses too.
        let jump = (if together { stall.0 } else { jump.0 }, jump.1);
        Fate { lead_s, drift_ppm, jump, step, our_step, stall, jitter_ms }
    }
}

impl Fate {
    /// How long what is sent at a second is held up.
    fn held_s(&self, sent_s: f64) -> f64 {
        let (from_s, after_s) = self.stall;
        let left_s = (from_s + after_s - sent_s).max(0.0);
        if sent_s < from_s { 0.0 } else { left_s }
    }

    /// RTP time jumps ahead during a pause of the same length. The clock cannot distinguish this from lost frames.
    fn hides_its_jump(&self) -> bool {
        let frames = (self.jump.0 / 0.1 - 0.5).ceil();
        (self.held_s(frames * 0.1 + 0.05) - self.jump.1).abs() < 0.45
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(256)))]

    // Faults: C37.
    /// 200 s of a camera at 10 frames/s with a report every 5 s, over a network that keeps the order. Each capture time that
    /// the clock trusts equals the camera's clock at the capture, and the clock trusts the camera again at the end.
    #[test]
    fn accepted_clock_maps_to_the_true_capture_time(fate in fate()) {
        let mut clock = CaptureClock::default();
        let (mut last_arrival_s, mut believed) = (0.0_f64, 0);
        for n in 0..2000_u32 {
            let sent_s = f64::from(n) * 0.1 + 0.05;
            let after = |event: (f64, f64)| if sent_s >= event.0 { event.1 } else { 0.0 };
            let set_right = sent_s >= 100.0;
            let lead_before_s = fate.lead_s + sent_s * fate.drift_ppm * 1e-6;
            let lead_s = lead_before_s + if set_right { 0.0 } else { after(fate.step) };
            let jitter_s = fate.jitter_ms[n as usize % 64] * 1e-3;
            let arrival_s = (sent_s + 0.005 + jitter_s + fate.held_s(sent_s)).max(last_arrival_s);
            last_arrival_s = arrival_s;
            let shown_rtp = rtp(sent_s + after(fate.jump));
            if n % 50 == 0 {
                clock.on_report(SenderReport {
                    ntp: wall(sent_s + lead_s),
                    rtp: shown_rtp,
                    ticks_per_s: 90_000,
                    arrived: mono(arrival_s),
                });
            }
            let our_step_s = if set_right { 0.0 } else { after(fate.our_step) };
            let received = reading(arrival_s, arrival_s + our_step_s);
            let date = clock.date(shown_rtp, mono(arrival_s));
            let capture = clock.capture(date, received);
            if capture.source == CaptureSource::Rtcp {
                believed += 1;
                // Between a step of its clock and the next report the camera is taken to go on as before.
                let hidden_s = if fate.hides_its_jump() { after(fate.jump) } else { 0.0 };
                let truths = [lead_s, lead_before_s, lead_before_s + fate.step.1];
                let off_s = |lead_s: f64| {
                    let truth = wall(sent_s + lead_s).min(received.wall);
                    capture.wall.seconds_since(truth).abs()
                };
                let off_s = truths.map(|lead_s| off_s(lead_s).min(off_s(lead_s + hidden_s)));
                prop_assert!(off_s.iter().any(|off_s| *off_s < 0.01), "{sent_s}: {off_s:?}");
                prop_assert!(capture.wall <= received.wall);
            }
        }
        prop_assert!(believed > 900, "{believed} of 2000");
        let health = clock.health(both(200.0));
        prop_assert!(health.trusted && health.note.is_none(), "{health:?}");
        let lead_ms = (fate.lead_s + 200.0 * fate.drift_ppm * 1e-6) * 1e3;
        let off_ms = health.offset_ms.unwrap() - lead_ms;
        prop_assert!(off_ms.abs() < 90.0, "{off_ms}");
    }
}
