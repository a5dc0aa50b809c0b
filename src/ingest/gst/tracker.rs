//! The books of one connection: times of each frame, measured rate, key-frame distance, losses. Pure: takes `now`.

use std::{collections::VecDeque, time::Duration};

use crate::{
    domain::{Capture, CaptureSource, FrameTimes, Mono, WallTime},
    ingest::{
        arrivals::{Arrival, Arrivals},
        clock::CaptureClock,
        health::StreamInfo,
        source::Progress,
    },
};

/// The measured rate is the mean over the last so many frames.
const RATE_FRAMES: usize = 100;
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// A rate over less time says more about the first frames, which come in a burst, than about the camera.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// So many frames are kept from the decoder for want of a key frame; cameras that refresh bit by bit send none.
const KEY_WAIT_MAX: u32 = 250;

/// What a frame's times can be known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RTP: packets have an arrival, perhaps a capture time.
    Network,
    /// A file: a frame is received when it is due.
    File,
    /// A device or generator of this machine: frames arrive whole.
    Local,
}

/// One connection's books.
#[derive(Debug)]
pub struct Tracker {
    kind: Kind,
    /// Frames on their way to the decoder.
    pub arrivals: Arrivals,
    /// The sender's clock.
    pub clock: CaptureClock,
    /// What is known of the stream.
    pub stream: StreamInfo,
    /// Good frames.
    pub frames: u64,
    /// Broken frames.
    pub corrupt: u64,
    recent: VecDeque<Mono>,
    last_frame: Option<Mono>,
    last_key: Option<Duration>,
    /// Frames since something was lost (or since the start), until a key frame mends it.
    broken_for: Option<u32>,
    seen_key: bool,
}

impl Tracker {
    /// Nothing seen yet.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            arrivals: Arrivals::default(),
            clock: CaptureClock::default(),
            stream: StreamInfo::default(),
            frames: 0,
            corrupt: 0,
            recent: VecDeque::new(),
            last_frame: None,
            last_key: None,
            broken_for: Some(0),
            seen_key: false,
        }
    }

    /// An encoded frame came; something was `lost` before it or not. False when it builds on pictures that are not
    /// there: decoded, it would be smeared.
    pub fn encoded(&mut self, pts: Option<Duration>, key: bool, lost: bool) -> bool {
        if key && let Some(pts) = pts {
            let distance = self.last_key.and_then(|last| pts.checked_sub(last));
            if let Some(distance) = distance.filter(|distance| !distance.is_zero()) {
                self.stream.gop_s = Some(distance.as_secs_f64());
            }
            self.last_key = Some(pts);
        }
        if self.kind == Kind::File {
            self.arrivals
                .whole(pts.unwrap_or_default(), Default::default());
        }
        self.arrivals.mark_key(pts, key);
        self.is_whole(key, lost)
    }

    fn is_whole(&mut self, key: bool, lost: bool) -> bool {
        if key {
            (self.broken_for, self.seen_key) = (None, true);
            return true;
        }
        if lost && self.broken_for.is_none() {
            self.broken_for = Some(0);
        }
        match &mut self.broken_for {
            Some(waited) if *waited < KEY_WAIT_MAX => {
                *waited += 1;
                // Joining a stream in the middle breaks nothing.
                self.corrupt += u64::from(self.seen_key);
                false
            }
            _ => {
                self.broken_for = None;
                true
            }
        }
    }

    /// A picture came out of the decoder and is good: its times, and whether it is a key frame.
    pub fn decoded(&mut self, pts: Option<Duration>, now: (Mono, WallTime)) -> (FrameTimes, bool) {
        self.frames += 1;
        self.last_frame = Some(now.0);
        self.measure_rate(now.0);
        let found = self.arrivals.take(pts);
        let key = found.is_some_and(|arrival| arrival.key)
            || (self.kind == Kind::Local && self.stream.codec == Some("raw"));
        // What cannot be found (a PTS that a decoder made up) arrived now, as far as anybody knows.
        let arrival = found
            .filter(|_| self.kind != Kind::File)
            .unwrap_or_else(|| Arrival::at(now));
        let received_wall = arrival.received_wall;
        let capture = match self.kind {
            Kind::Network => self.clock.capture(arrival.ntp, received_wall),
            Kind::File => Capture {
                wall: received_wall,
                source: CaptureSource::File,
                error_ms: None,
            },
            Kind::Local => Capture {
                wall: received_wall,
                source: CaptureSource::Arrival,
                error_ms: None,
            },
        };
        let times = FrameTimes {
            received: arrival.received,
            received_wall,
            decoded: now.0,
            capture: Some(capture),
            rtp: arrival.rtp,
        };
        (times, key)
    }

    /// The books so far; lost packets are counted elsewhere.
    pub fn progress(&self, now: Mono) -> Progress {
        Progress {
            frames: self.frames,
            corrupt: self.corrupt,
            rtp_lost: 0,
            last_frame: self.last_frame,
            stream: self.stream.clone(),
            clock: self.clock.health(now),
        }
    }

    fn measure_rate(&mut self, now: Mono) {
        self.recent.push_back(now);
        while self.recent.len() > RATE_FRAMES
            || self
                .recent
                .front()
                .is_some_and(|first| now.since(*first) > RATE_WINDOW)
        {
            self.recent.pop_front();
        }
        let span = self.recent.front().map(|first| now.since(*first));
        if let Some(span) = span.filter(|span| *span >= RATE_AFTER) {
            self.stream.fps_measured = Some((self.recent.len() - 1) as f64 / span.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_key_distance_are_measured_and_not_believed() {
        let mut tracker = Tracker::new(Kind::Network);
        tracker.stream.fps_declared = Some(25.0);
        for n in 0..43_u64 {
            let pts = Duration::from_millis(n * 50);
            let now = Mono::from_nanos(n * 50_000_000);
            tracker
                .arrivals
                .timed(n as u32, pts, None, (now, WallTime::default()));
            assert!(tracker.encoded(Some(pts), n % 40 == 0, false));
            let (times, key) = tracker.decoded(Some(pts), (now, WallTime::default()));
            assert_eq!((times.rtp, key), (Some(n as u32), n % 40 == 0));
        }
        let progress = tracker.progress(Mono::default());
        assert!((progress.stream.fps_measured.unwrap() - 20.0).abs() < 0.01);
        assert_eq!(progress.stream.gop_s, Some(2.0));
        assert_eq!(progress.frames, 43);
    }

    #[test]
    fn after_a_loss_nothing_is_decoded_until_the_next_key_frame() {
        let mut tracker = Tracker::new(Kind::Network);
        let mut encoded = |key, lost| tracker.encoded(None, key, lost);
        assert!(!encoded(false, false), "joined in the middle");
        assert!(encoded(true, true));
        assert!(encoded(false, false));
        assert!(!encoded(false, true));
        assert!(!encoded(false, false));
        assert!(encoded(true, false));
        assert!(!encoded(false, true));
        let waited = (0..1000).take_while(|_| !encoded(false, false)).count();
        assert_eq!(
            waited + 1,
            KEY_WAIT_MAX as usize,
            "a camera without key frames"
        );
        assert_eq!(tracker.corrupt, 2 + u64::from(KEY_WAIT_MAX));
    }

    #[test]
    fn a_file_frame_is_received_when_it_is_due() {
        let mut tracker = Tracker::new(Kind::File);
        let now = (Mono::from_nanos(7), WallTime::from_unix_millis(9));
        assert!(tracker.encoded(Some(Duration::ZERO), true, true));
        let (times, key) = tracker.decoded(Some(Duration::ZERO), now);
        assert_eq!((times.received, times.decoded, key), (now.0, now.0, true));
        assert_eq!(times.capture.unwrap().source, CaptureSource::File);
    }
}
