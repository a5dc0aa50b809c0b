//! What is known of a frame before it is decoded, kept until its picture comes out of the decoder: when its first
//! packet arrived, its RTP and capture time, whether it is a key frame. Pure; memory is bounded.
//!
//! A packet is seen before the jitter buffer under its RTP time, then after it, where its RTP time gets a presentation
//! time (PTS), and the picture carries the PTS alone. So no two frames may have the same.

use std::{collections::VecDeque, time::Duration};

use super::clock::ClockReading;
use crate::push_bounded;
use spotter_core::{Mono, WallTime};

/// The most encoded frames between the network and the decoder's end; the oldest is forgotten, one that did not go into the
/// decoder first.
const KEPT: usize = 128;
/// A depacketizer, and the parser behind it, may hold a frame back until they see that the next one begins.
const HELD_BACK: usize = 2;
/// Depacketizers and parsers may move a PTS by less than this.
const PTS_SLACK: Duration = Duration::from_millis(20);
/// The distance between the PTS of frames that had the same PTS: a hundred times it is less than between two frames of a camera.
const APART: Duration = Duration::from_micros(50);

/// A frame that was not decoded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameArrival {
    /// When its first packet came.
    pub received: ClockReading,
    /// Its RTP time stamp.
    pub rtp: Option<u32>,
    /// What the sender's clock showed at its capture.
    pub date: Option<WallTime>,
    /// It can be decoded alone.
    pub key: bool,
    /// A packet of it is missing, or one before it that belongs to no other frame.
    pub hurt: bool,
    /// Another sender begins with it.
    pub begins: bool,
    pts: Option<Duration>,
    /// It came out of the elements before the decoder.
    has_come: bool,
    in_decoder: bool,
}

impl FrameArrival {
    /// Of which nothing is known but when it came.
    pub fn at(now: ClockReading) -> Self {
        Self {
            received: now,
            ..Self::default()
        }
    }
}

/// Frames between the network and the decoder's end.
#[derive(Debug, Default)]
pub struct Arrivals {
    packets: VecDeque<ReceivedPacket>,
    frames: VecDeque<FrameArrival>,
    /// The PTS of the last frame that was forgotten: those near it are not mistaken for it.
    forgotten: Option<Duration>,
    timed: Option<TimedPacket>,
}

/// The first packet of a frame, as it came from the network.
#[derive(Clone, Copy, Debug)]
struct ReceivedPacket {
    rtp: u32,
    received: ClockReading,
}

/// The last packet that left the jitter buffer.
#[derive(Clone, Copy, Debug)]
struct TimedPacket {
    rtp: u32,
    /// The PTS that the jitter buffer gave.
    pts: Duration,
    own_pts: Duration,
}

impl Arrivals {
    /// A packet with the RTP time `rtp` came from the network.
    pub fn packet(&mut self, rtp: u32, now: ClockReading) {
        // Most packets belong to the frame of the one before.
        if !self.packets.iter().rev().any(|packet| packet.rtp == rtp) {
            let packet = ReceivedPacket { rtp, received: now };
            push_bounded(&mut self.packets, packet, KEPT);
        }
    }

    /// A packet left the jitter buffer with the PTS `pts`: that of its frame alone, with which it must go on.
    ///
    /// Where packets were held up for a second or more and come at once, the jitter buffer finds that time runs backwards, and
    /// gives one PTS to all frames until it is over. Parsers take what has the PTS of the frame before for a part of that frame,
    /// and leave it without any; a decoder then makes one up.
    pub fn own_pts(&mut self, rtp: u32, pts: Duration) -> Duration {
        let own_pts = match self.timed {
            Some(last) if last.rtp == rtp => last.own_pts.max(pts),
            Some(last) if (last.pts..=last.own_pts).contains(&pts) => last.own_pts + APART,
            _ => pts,
        };
        self.timed = Some(TimedPacket { rtp, pts, own_pts });
        own_pts
    }

    /// A packet left the jitter buffer; its frame's own PTS is `pts`. When a frame begins with it: its arrival, to be completed.
    /// `now` counts as the arrival when it was never seen.
    pub fn timed(
        &mut self,
        rtp: u32,
        pts: Duration,
        now: ClockReading,
    ) -> Option<&mut FrameArrival> {
        if self.frames.back().is_some_and(|last| last.rtp == Some(rtp)) {
            return None;
        }
        let seen = self.packets.iter().find(|packet| packet.rtp == rtp);
        // What is not known any more came before all that is.
        let is_before = |first: &&ReceivedPacket| (first.rtp.wrapping_sub(rtp) as i32) > 0;
        let seen = seen.or_else(|| self.packets.front().filter(is_before));
        let arrival = FrameArrival {
            received: seen.map_or(now, |packet| packet.received),
            rtp: Some(rtp),
            pts: Some(pts),
            ..FrameArrival::default()
        };
        self.push(arrival);
        self.frames.back_mut()
    }

    /// Something of the frame with the RTP time `rtp` is missing, if it did not go into the decoder long ago.
    pub fn hurt(&mut self, rtp: u32) {
        let mut newest_first = self.frames.iter_mut().rev();
        if let Some(frame) = newest_first.find(|frame| frame.rtp == Some(rtp)) {
            frame.hurt = true;
        }
    }

    /// The frame with the PTS `pts` is not whole.
    pub fn hurt_at(&mut self, pts: Option<Duration>) {
        if let Some(frame) = self.near_mut(pts) {
            frame.hurt = true;
        }
    }

    /// A whole frame of a source without packets (a local camera) came with the PTS `pts`.
    pub fn whole(&mut self, pts: Duration, now: ClockReading) {
        let arrival = FrameArrival {
            pts: Some(pts),
            ..FrameArrival::at(now)
        };
        self.push(arrival);
    }

    /// The frame with the PTS `pts` turned out, before the decoder, to be a key frame or not. What is known of it: it is hurt too
    /// when it builds on one that lost a packet and did not come.
    pub fn mark_key(&mut self, pts: Option<Duration>, key: bool) -> Option<FrameArrival> {
        let at = self.near(pts)?;
        let before = self.frames.iter().take(at).rev();
        let is_hurt = before
            .take_while(|frame| !frame.has_come)
            .any(|frame| frame.hurt);
        let frame = self.frames.get_mut(at)?;
        (frame.key, frame.has_come) = (key, true);
        frame.hurt |= !key && is_hurt;
        Some(*frame)
    }

    /// The frame with the PTS `pts` went into the decoder.
    pub fn fed(&mut self, pts: Option<Duration>) {
        if let Some(frame) = self.near_mut(pts) {
            frame.in_decoder = true;
        }
    }

    /// How long a frame has been waiting for us alone, at least: so long ago those behind it began to arrive. How long the frame
    /// itself took on its way, and how rare frames are, does not count.
    pub fn waited(&self, arrival: &FrameArrival, now: Mono) -> Duration {
        let own = |packet: &ReceivedPacket| Some(packet.rtp) == arrival.rtp;
        // What is not known any more came before all that is.
        let next = self.packets.iter().position(own).map_or(0, |at| at + 1);
        let behind = self.packets.get(next + HELD_BACK - 1);
        behind.map_or(Duration::ZERO, |packet| now.since(packet.received.mono))
    }

    /// The frame with the PTS `pts`, which stays.
    pub fn find(&self, pts: Option<Duration>) -> Option<&FrameArrival> {
        self.frames.get(self.near(pts)?)
    }

    /// The picture with the PTS `pts` came out of the decoder. `None` when nothing is known of it.
    pub fn take(&mut self, pts: Option<Duration>) -> Option<FrameArrival> {
        let arrival = *self.find(pts)?;
        // Pictures come out in the order of their PTS, so everything before this one is over.
        self.frames.retain(|frame| frame.pts > pts);
        let is_later = |packet: &ReceivedPacket| packet.received.mono > arrival.received.mono;
        self.packets.retain(is_later);
        Some(arrival)
    }

    /// A decoder may hold pictures back until it gets more, while any number of frames is left out in between.
    fn push(&mut self, arrival: FrameArrival) {
        if self.frames.len() == KEPT {
            let mut old = self.frames.iter().take(KEPT - HELD_BACK);
            let at = old.position(|frame| !frame.in_decoder).unwrap_or(0);
            self.forgotten = self.frames.remove(at).and_then(|frame| frame.pts);
        }
        self.frames.push_back(arrival);
    }

    fn near_mut(&mut self, pts: Option<Duration>) -> Option<&mut FrameArrival> {
        let at = self.near(pts)?;
        self.frames.get_mut(at)
    }

    fn near(&self, pts: Option<Duration>) -> Option<usize> {
        let pts = pts?;
        let frames = self.frames.iter().enumerate();
        let distances = frames.filter_map(|(at, frame)| Some((at, frame.pts?.abs_diff(pts))));
        let (at, distance) = distances.min_by_key(|(_, distance)| *distance)?;
        let is_nearer = |forgotten: Duration| forgotten.abs_diff(pts) < distance;
        (distance <= PTS_SLACK && !self.forgotten.is_some_and(is_nearer)).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> ClockReading {
        ClockReading {
            mono: Mono::from_nanos(ms * 1_000_000),
            wall: WallTime::from_unix_millis(1_790_000_000_000 + ms as i64),
        }
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn frames_with_one_pts_get_one_each() {
        let mut arrivals = Arrivals::default();
        // Two packets a frame. Five frames are given the same, then time catches up, and a later frame is shown earlier.
        let ms = [0, 40, 1000, 1000, 1000, 1000, 1000, 1000, 1040, 1120, 1080];
        let frames = ms.iter().enumerate().map(|(rtp, ms)| {
            let own = [(); 2].map(|()| arrivals.own_pts(rtp as u32, MS(*ms)));
            assert_eq!(own[0], own[1], "a frame's packets stay together");
            own[0]
        });
        let own: Vec<Duration> = frames.collect();
        for (own, ms) in own.iter().zip(ms) {
            assert!(own.abs_diff(MS(ms)) < MS(1), "{own:?} for {ms}");
        }
        assert!(own[..10].is_sorted_by(|a, b| a < b), "{own:?}");
        assert_eq!(own[8..], [MS(1040), MS(1120), MS(1080)]);
        // Those that come within what was given to others go behind them.
        let mut last = MS(2000);
        for rtp in 100..300_u32 {
            let pts = MS(2000) + Duration::from_micros(u64::from(rtp / 200) * 20);
            let own = arrivals.own_pts(rtp, pts);
            assert!(own >= last && (rtp == 100 || own > last), "{own:?}");
            last = own;
        }
    }

    #[test]
    fn packets_that_never_leave_the_decoder_are_removed() {
        let mut arrivals = Arrivals::default();
        for n in 0..10_000_u32 {
            arrivals.packet(n, at(u64::from(n)));
            let _ = arrivals.timed(n, MS(u64::from(n) * 40), at(u64::from(n)));
        }
        let kept = (arrivals.packets.len(), arrivals.frames.len());
        assert_eq!(kept, (KEPT, KEPT));
        assert_eq!(arrivals.take(Some(MS(0))), None);
        assert_eq!(arrivals.take(None), None);
        // When its time of arrival is forgotten, it is taken to be older than all known ones.
        let now = at(10_000);
        let old = *arrivals.timed(5000, MS(999_999), now).unwrap();
        let oldest = 10_000 - KEPT as u64;
        assert_eq!(old.received, at(oldest));
        assert_eq!(arrivals.waited(&old, now.mono), MS(KEPT as u64 - 1));
        // Of the newest nothing is known that would have been behind it.
        let newest = *arrivals.timed(9999, MS(0), now).unwrap();
        assert_eq!(arrivals.waited(&newest, now.mono), MS(0));
    }
}
