//! Stream statistics: times of each frame, measured rate, key-frame distance, losses. Pure: takes `now`.

use std::{collections::VecDeque, time::Duration};

use super::decoder::DecoderStatus;
use crate::ingest::{
    arrivals::{Arrivals, FrameArrival},
    backlog::Backlog,
    clock::{CaptureClock, ClockReading},
    gate::{FrameGate, Gap, PictureGate},
    health::{FAST_FOR, StreamInfo},
    nal::{CodecCheck, NalLayout},
    senders::{PacketDecision, Senders},
    sequence::{PacketHeader, PacketSequence},
    source::Progress,
};
use crate::push_bounded;
use spotter_core::{Capture, CaptureSource, FrameTimes, Mono, StreamCounters, duration_from_secs};

/// The measured rate is the mean over this many frames, the last ones.
const RATE_FRAMES: usize = 100;
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// A rate over less time says more about the first frames, which come in a burst, than about the camera.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// No camera gives more frames a second; the time base of some streams declares a thousand million.
const FASTEST: f64 = 480.0;

/// A decoder that gives nothing for so long, while it is fed, is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Decoders may keep some frames back until more of them come.
const STUCK_AFTER_GOPS: u32 = 3;

/// What a frame's times can be known from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// RTP: packets have an arrival, perhaps a capture time.
    #[default]
    Network,
    /// A file: a frame is received when it is due.
    File,
    /// A device or generator of this machine: frames arrive whole.
    Local,
}

/// A frame before the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedFrame {
    pub pts: Option<Duration>,
    /// It can be decoded alone.
    pub key: bool,
    /// The elements before the decoder say that something before it was lost.
    pub lost: bool,
    /// It has the beginning of its picture, as far as its bytes show.
    pub is_begun: bool,
}

fn is_rate(fps: f64) -> bool {
    fps > 0.0 && fps <= FASTEST
}

/// The statistics of one connection: of its packets, encoded frames and pictures. One object, because each of its decisions
/// needs the arrivals of a frame.
#[derive(Debug, Default)]
pub struct StreamStatistics {
    kind: SourceKind,
    /// Frames on their way to the decoder.
    pub arrivals: Arrivals,
    pub clock: CaptureClock,
    /// What is known of the stream.
    pub stream: StreamInfo,
    pub frames: u64,
    /// Lost packets, broken frames, and whole ones that were not decoded, to catch up.
    pub counters: StreamCounters,
    pub senders: Senders,
    pub sequence: PacketSequence,
    /// Of a codec that consists of NAL units.
    pub codec_check: Option<CodecCheck>,
    pub decoder: DecoderStatus,
    /// A video codec that cannot be decoded, which GStreamer's error does not name.
    pub rejected_codec: Option<String>,
    /// How the decoder's input is laid out, once its caps are known.
    pub layout: Option<NalLayout>,
    /// Of a Jetson decoder's pictures.
    pub nvmm_colorimetry: Option<String>,
    /// Frames a second by the SDP.
    announced_fps: Option<f64>,
    /// It seems to send more frames than it declares since.
    fast_since: Option<Mono>,
    backlog: Backlog,
    to_decode: FrameGate,
    pub to_show: PictureGate,
    recent: VecDeque<Mono>,
    last_packet: Option<Mono>,
    last_frame: Option<Mono>,
    last_key: Option<Duration>,
    /// The first frame since the decoder gave a picture went into it.
    fed_since: Option<Mono>,
    seen_key: bool,
}

impl StreamStatistics {
    pub fn new(kind: SourceKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// The stream declares its rate as a fraction, or none.
    pub fn declared(&mut self, rate: Option<(i32, i32)>) {
        let frames_a_second = |(frames, seconds)| f64::from(frames) / f64::from(seconds);
        let rate = rate.filter(|(_, seconds)| *seconds > 0);
        let rate = rate.map(frames_a_second).filter(|rate| is_rate(*rate));
        self.stream.fps_declared = rate.or(self.announced_fps);
    }

    /// The SDP declares the rate (`a=framerate`), or does not. What the stream itself declares counts more.
    pub fn announced_rate(&mut self, rate: Option<&str>) {
        let rate = rate.and_then(|text| text.trim().parse().ok());
        self.announced_fps = rate.filter(|rate| is_rate(*rate));
        self.stream.fps_declared = self.stream.fps_declared.or(self.announced_fps);
    }

    /// A packet came from the network.
    pub fn packet(&mut self, ssrc: u32, header: PacketHeader, now: ClockReading) -> PacketDecision {
        let verdict = self.senders.packet(ssrc, header.seq, now.mono);
        if verdict != PacketDecision::Drop {
            self.last_packet = Some(now.mono);
            self.arrivals.packet(header.rtp, now);
        }
        if let PacketDecision::Rename {
            seq, first: true, ..
        } = verdict
        {
            self.sequence.will_change(seq);
        }
        verdict
    }

    /// A packet leaves the jitter buffer with a PTS. Returns the PTS with which it goes on.
    pub fn in_turn(&mut self, header: PacketHeader, pts: Duration, now: ClockReading) -> Duration {
        let pts = self.arrivals.own_pts(header.rtp, pts);
        let damage = self.sequence.packet(header);
        if let Some(before) = damage.before {
            self.arrivals.hurt(before);
        }
        self.counters.rtp_lost += u64::from(damage.lost);
        if damage.begins {
            self.clock.new_segment(now.mono);
        }
        if let Some(frame) = self.arrivals.timed(header.rtp, pts, now) {
            frame.date = self.clock.date(header.rtp, frame.received.mono);
            frame.begins = damage.begins;
        }
        if damage.this {
            self.arrivals.hurt(header.rtp);
        }
        pts
    }

    /// An encoded frame came.
    ///
    /// # Errors
    ///
    /// It is not to be decoded. It is not whole or builds on what is not there: decoded, it would be smeared. Or the decoder is
    /// not fast enough for all of them. `None` before the first key frame: joining a stream in the middle breaks nothing.
    pub fn encoded(&mut self, frame: EncodedFrame, now: Mono) -> Result<(), Option<Gap>> {
        let (pts, key) = (frame.pts, frame.key);
        if key && let Some(pts) = pts {
            let distance = self.last_key.and_then(|last| pts.checked_sub(last));
            if let Some(distance) = distance.filter(|distance| !distance.is_zero()) {
                self.stream.gop_s = Some(distance.as_secs_f64());
            }
            self.last_key = Some(pts);
        }
        if self.kind == SourceKind::File {
            self.arrivals
                .whole(pts.unwrap_or_default(), Default::default());
        }
        let found = self.arrivals.mark_key(pts, key);
        // What is marked as following a gap may be a key frame that is whole, if its packets were seen.
        let lost = frame.lost && !(key && found.is_some());
        let found = found.unwrap_or_default();
        if !frame.is_begun {
            // Its beginning came as a frame of its own, of which this is the rest.
            self.arrivals.hurt_at(pts);
        }
        if found.begins {
            self.to_decode.close(now);
        }
        let waited = self.arrivals.waited(&found, now);
        let late = self.backlog.is_late(key, waited, self.gop(), now);
        let gap = (lost || found.hurt || !frame.is_begun)
            .then_some(Gap::Lost)
            .or(late.then_some(Gap::Late));
        let passes = self.to_decode.pass(key, gap, self.gop(), now);
        if passes.is_ok() {
            self.sequence.prove_marks();
        }
        self.seen_key |= key;
        let joined = self.seen_key;
        match passes {
            Err(Gap::Lost) if joined => self.counters.frames_corrupt += 1,
            Err(Gap::Late) if joined => self.counters.frames_late += 1,
            _ => {}
        }
        passes.map_err(|gap| joined.then_some(gap))
    }

    /// A frame went into the decoder.
    pub fn fed(&mut self, pts: Option<Duration>, now: Mono) {
        self.arrivals.fed(pts);
        self.fed_since = self.fed_since.or(Some(now));
    }

    /// A picture came out of the decoder, which finds it `whole` or not. False when it is not to be shown.
    pub fn pictured(&mut self, pts: Option<Duration>, whole: bool, now: Mono) -> bool {
        self.fed_since = None;
        let found = self.arrivals.find(pts);
        let key = found.is_some_and(|arrival| arrival.key) || self.is_raw();
        let whole = whole && !found.is_some_and(|arrival| arrival.hurt);
        let shown = self.to_show.pass(key, whole, &self.to_decode, now);
        self.counters.frames_corrupt += u64::from(!shown);
        shown
    }

    /// The decoder takes frames and gives no pictures, although the network delivers. With `keyframes_only`, frames are as
    /// rare as key frames.
    pub fn is_decoder_stuck(&self, keyframes_only: bool, now: Mono) -> bool {
        let gops = self.gop().filter(|_| keyframes_only);
        let limit = gops.map_or(STUCK_AFTER, |gop| STUCK_AFTER.max(gop * STUCK_AFTER_GOPS));
        let over = |since| now.since(since) >= limit;
        let delivers = self.last_packet.is_some_and(|packet| {
            let fed = self.fed_since.unwrap_or(packet);
            packet.since(fed) >= limit / 2
        });
        self.fed_since.is_some_and(over) && delivers
    }

    fn gop(&self) -> Option<Duration> {
        self.stream.gop_s.map(duration_from_secs)
    }

    fn is_raw(&self) -> bool {
        self.kind == SourceKind::Local && self.stream.codec == Some("raw")
    }

    /// A picture came out of the decoder and is good: its times, and whether it is a key frame.
    pub fn decoded(&mut self, pts: Option<Duration>, now: ClockReading) -> (FrameTimes, bool) {
        self.frames += 1;
        self.last_frame = Some(now.mono);
        self.measure_rate(now.mono);
        let found = self.arrivals.take(pts);
        let key = found.is_some_and(|arrival| arrival.key) || self.is_raw();
        // What cannot be found (a PTS that a decoder made up) counts as arrived now.
        let arrival = found
            .filter(|_| self.kind != SourceKind::File)
            .unwrap_or_else(|| FrameArrival::at(now));
        let received_wall = arrival.received.wall;
        let at_arrival = |source| Capture {
            wall: received_wall,
            source,
            error_ms: None,
        };
        let capture = match self.kind {
            SourceKind::Network => self.clock.capture(arrival.date, arrival.received),
            SourceKind::File => at_arrival(CaptureSource::File),
            SourceKind::Local => at_arrival(CaptureSource::Arrival),
        };
        let times = FrameTimes {
            received: arrival.received.mono,
            received_wall,
            decoded: now.mono,
            capture: Some(capture),
            rtp: arrival.rtp,
        };
        (times, key)
    }

    /// The figures so far.
    pub fn progress(&self, now: ClockReading) -> Progress {
        Progress {
            frames: self.frames,
            counters: StreamCounters {
                rtp_foreign: self.senders.dropped,
                ..self.counters
            },
            last_packet: self.last_packet,
            last_frame: self.last_frame,
            stream: self.stream.clone(),
            clock: self.clock.health(now),
        }
    }

    fn measure_rate(&mut self, now: Mono) {
        self.recent.retain(|at| now.since(*at) <= RATE_WINDOW);
        push_bounded(&mut self.recent, now, RATE_FRAMES);
        let span = now.since(self.recent[0]);
        if span >= RATE_AFTER {
            self.stream.fps_measured = Some((self.recent.len() - 1) as f64 / span.as_secs_f64());
        }
        self.fast_since = (self.stream.seems_fast()).then(|| self.fast_since.unwrap_or(now));
        let lasts = self.fast_since.map(|since| now.since(since));
        self.stream.is_faster_than_declared = lasts.is_some_and(|lasts| lasts >= FAST_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::WallTime;

    fn at(ms: u64) -> ClockReading {
        ClockReading {
            mono: Mono::from_nanos(ms * 1_000_000),
            wall: WallTime::default(),
        }
    }

    fn whole(pts: Duration, key: bool) -> EncodedFrame {
        EncodedFrame {
            pts: Some(pts),
            key,
            lost: false,
            is_begun: true,
        }
    }

    /// Frame `n` of 20 a second comes whole, as one packet. Whether it goes into the decoder.
    fn take(statistics: &mut StreamStatistics, n: u64, key: bool, seq: u16) -> bool {
        let (pts, now) = (Duration::from_millis(n * 50), at(n * 50));
        let header = PacketHeader {
            seq,
            rtp: n as u32 * 4500,
            marked: true,
        };
        statistics.packet(7, header, now);
        statistics.in_turn(header, pts, now);
        statistics.encoded(whole(pts, key), now.mono).is_ok()
    }

    #[test]
    fn rate_and_key_distance_are_measured_and_not_believed() {
        let mut statistics = StreamStatistics::new(SourceKind::Network);
        statistics.stream.fps_declared = Some(25.0);
        for n in 0..43_u64 {
            let (pts, now) = (Duration::from_millis(n * 50), at(n * 50));
            assert!(take(&mut statistics, n, n % 40 == 0, n as u16));
            assert!(statistics.pictured(Some(pts), true, now.mono));
            let (times, key) = statistics.decoded(Some(pts), now);
            assert_eq!((times.rtp, key), (Some(n as u32 * 4500), n % 40 == 0));
        }
        let progress = statistics.progress(at(0));
        assert!((progress.stream.fps_measured.unwrap() - 20.0).abs() < 0.01);
        assert_eq!(progress.stream.gop_s, Some(2.0));
        assert_eq!((progress.frames, progress.counters.frames_corrupt), (43, 0));
        assert_eq!(progress.last_packet, Some(at(42 * 50).mono));
    }

    // Faults: C33.
    #[test]
    fn more_than_twice_the_declared_rate_is_noted() {
        let noted_after = |declared, fps: f64| {
            let mut statistics = StreamStatistics::new(SourceKind::Network);
            statistics.stream.fps_declared = declared;
            let is_noted = |n: &u32| {
                statistics.measure_rate(at((f64::from(*n) / fps * 1e3) as u64).mono);
                statistics.stream.is_faster_than_declared
            };
            (0..2000).find(is_noted).map(|n| f64::from(n) / fps)
        };
        assert_eq!(noted_after(Some(5.0), 20.0), Some(31.0));
        assert_eq!(noted_after(Some(25.0), 50.02), None, "fields");
        assert_eq!(noted_after(Some(25.0), 2.0), None, "slower never is");
        assert_eq!(noted_after(None, 60.0), None);
    }

    #[test]
    fn a_declared_rate_that_cannot_be_is_none() {
        let mut statistics = StreamStatistics::new(SourceKind::Network);
        for (rate, fps) in [
            (Some((25, 1)), Some(25.0)),
            (Some((30_000, 1_001)), Some(30_000.0 / 1_001.0)),
            (Some((1_000_000_000, 1)), None),
            (Some((0, 1)), None),
            (Some((25, 0)), None),
            (Some((-25, 1)), None),
            (None, None),
        ] {
            statistics.declared(rate);
            assert_eq!(statistics.stream.fps_declared, fps, "{rate:?}");
        }
        // What the SDP says counts where the stream declares none.
        for (text, fps) in [("29.97", Some(29.97)), ("NaN", None), ("0", None)] {
            statistics.announced_rate(Some(text));
            statistics.declared(Some((0, 1)));
            assert_eq!(statistics.stream.fps_declared, fps, "{text}");
        }
    }

    // Faults: C40.
    #[test]
    fn picture_in_decoder_keeps_its_times_over_long_gap() {
        let mut statistics = StreamStatistics::new(SourceKind::Network);
        // A key frame in 200. Frame 40 is lost, and the decoder gives the two before it when it gets the next key frame.
        let sent = (0..=200_u64).filter(|n| *n != 40);
        for n in sent {
            let is_key = n % 200 == 0;
            let passes = take(&mut statistics, n, is_key, n as u16);
            assert_eq!(passes, n < 40 || is_key, "{n}");
            if passes {
                statistics.fed(Some(Duration::from_millis(n * 50)), at(n * 50).mono);
            }
            if n < 38 {
                let pts = Duration::from_millis(n * 50);
                statistics.decoded(Some(pts), at(n * 50));
            }
        }
        for n in [38, 39, 200] {
            let pts = Duration::from_millis(n * 50);
            let (times, key) = statistics.decoded(Some(pts), at(10_000));
            assert_eq!((times.rtp, key), (Some(n as u32 * 4500), n == 200));
            assert_eq!(times.received, at(n * 50).mono);
        }
        assert_eq!(statistics.progress(at(0)).counters.frames_corrupt, 159);
    }

    #[test]
    fn rest_of_a_picture_hides_its_beginning() {
        let mut statistics = StreamStatistics::new(SourceKind::Network);
        assert!(take(&mut statistics, 0, true, 0));
        assert!(take(&mut statistics, 1, false, 1));
        // The rest of the frame comes as a frame of its own, before the picture of its beginning.
        let (pts, now) = (Duration::from_millis(50), at(60).mono);
        let rest = EncodedFrame {
            is_begun: false,
            ..whole(pts, false)
        };
        assert_eq!(statistics.encoded(rest, now), Err(Some(Gap::Lost)));
        assert!(statistics.pictured(Some(Duration::ZERO), true, now));
        assert!(!statistics.pictured(Some(pts), true, now));
        assert!(!take(&mut statistics, 2, false, 2));
        assert!(take(&mut statistics, 3, true, 3));
        assert!(statistics.pictured(Some(Duration::from_millis(150)), true, now));
        assert_eq!(statistics.counters.frames_corrupt, 3);
    }

    // Faults: C26.
    #[test]
    fn picture_that_never_came_hides_what_builds_on_it() {
        let mut statistics = StreamStatistics::new(SourceKind::Network);
        assert!(take(&mut statistics, 0, true, 0));
        assert!(take(&mut statistics, 1, false, 1));
        // What is left of the next picture makes none.
        let header = PacketHeader {
            seq: 3,
            rtp: 9000,
            marked: true,
        };
        statistics.packet(7, header, at(100));
        statistics.in_turn(header, Duration::from_millis(100), at(100));
        assert!(!take(&mut statistics, 3, false, 4));
        assert!(take(&mut statistics, 4, true, 5));
    }

    #[test]
    fn decoder_with_input_but_no_output_is_stuck() {
        let mut statistics = StreamStatistics::new(SourceKind::Network);
        let mut stuck_at = None;
        for n in 0..400 {
            take(&mut statistics, n, n % 200 == 0, n as u16);
            statistics.fed(None, at(n * 50).mono);
            if n < 100 {
                statistics.pictured(None, true, at(n * 50).mono);
            }
            if stuck_at.is_none() && statistics.is_decoder_stuck(false, at(n * 50).mono) {
                stuck_at = Some(n);
            }
        }
        assert_eq!(stuck_at, Some(200));
        assert!(!statistics.is_decoder_stuck(true, at(399 * 50).mono));
        // The network is what delivers nothing.
        let mut silent = StreamStatistics::new(SourceKind::Network);
        take(&mut silent, 0, true, 0);
        silent.fed(None, at(0).mono);
        assert!(!silent.is_decoder_stuck(false, at(60_000).mono));
    }

    #[test]
    fn a_file_frame_is_received_when_it_is_due() {
        let mut statistics = StreamStatistics::new(SourceKind::File);
        let now = ClockReading {
            mono: Mono::from_nanos(7),
            wall: WallTime::from_unix_millis(9),
        };
        let passed = statistics.encoded(whole(Duration::ZERO, true), now.mono);
        assert_eq!(passed, Ok(()));
        assert!(statistics.pictured(Some(Duration::ZERO), true, now.mono));
        let (times, key) = statistics.decoded(Some(Duration::ZERO), now);
        assert_eq!((times.received, times.decoded), (now.mono, now.mono));
        assert!(key);
        assert_eq!(times.capture.unwrap().source, CaptureSource::File);
    }
}
