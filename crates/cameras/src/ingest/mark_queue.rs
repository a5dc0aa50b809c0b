//! Which mark goes on to the depayloader, which ends a frame there. Pure.
//!
//! Two units of one RTP time are one picture, so a mark between them is wrong. Marks that are not proven wait for the next packet,
//! which shows that; proven ones do not wait, so a camera that marks its frames as it should is delayed by nothing but its first
//! frame. Without headers (JPEG) only a mark ends a frame, and none waits. Of a camera that marks slices, no mark goes on.

use std::collections::VecDeque;

use super::sequence::MarkerReliability;

/// The packets on their way to the depayloader: at most one waits.
#[derive(Debug)]
pub struct MarkQueue<T> {
    waiting: VecDeque<(T, bool)>,
    /// The depayloader finds the end of a frame without a mark too.
    has_headers: bool,
}

impl<T> MarkQueue<T> {
    pub fn new(has_headers: bool) -> Self {
        Self {
            waiting: VecDeque::new(),
            has_headers,
        }
    }

    /// A packet came, with a mark or without.
    pub fn push(&mut self, packet: T, marked: bool) {
        self.waiting.push_back((packet, marked));
    }

    /// The next packet that goes on, and whether with a mark. `marks`: what is known after the last packet that came.
    pub fn pop(&mut self, marks: MarkerReliability) -> Option<(T, bool)> {
        let is_known = matches!(marks, MarkerReliability::Proven | MarkerReliability::Wrong);
        let (_, marked) = self.waiting.front()?;
        if self.has_headers && *marked && !is_known && self.waiting.len() == 1 {
            return None;
        }
        let (packet, marked) = self.waiting.pop_front()?;
        let is_shown = marks != MarkerReliability::Wrong || !self.has_headers;
        Some((packet, marked && is_shown))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::{
        gate::{FrameGate, Gap},
        sequence::{PacketHeader, PacketSequence},
    };
    use spotter_core::Mono;

    /// Where a camera sets marks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Marking {
        Pictures,
        Slices,
        /// Slices and parameter sets.
        Units,
        Nothing,
    }

    /// A parameter set, or a slice that is the first of its picture or not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Unit {
        Parameters,
        Slice { is_first: bool },
    }

    #[derive(Clone, Copy, Debug)]
    struct Packet {
        header: PacketHeader,
        picture: usize,
        unit: Unit,
        /// The first and the last of its unit.
        begins: bool,
        ends: bool,
    }

    /// Key pictures have two parameter sets and as many slices as any picture.
    fn sent(slices: &[usize], gop: usize, fragments: usize, marking: Marking) -> Vec<Packet> {
        let most = slices.iter().copied().max().unwrap_or(1);
        let mut packets = Vec::new();
        for (picture, slices) in slices.iter().enumerate() {
            let is_key = picture % gop == 0;
            let slices = if is_key { most } else { *slices };
            let parameters = vec![Unit::Parameters; if is_key { 2 } else { 0 }];
            let slices = (0..slices).map(|at| Unit::Slice { is_first: at == 0 });
            let units: Vec<Unit> = parameters.into_iter().chain(slices).collect();
            for (at, unit) in units.iter().copied().enumerate() {
                let fragments = if unit == Unit::Parameters {
                    1
                } else {
                    fragments
                };
                for fragment in 0..fragments {
                    let ends = fragment + 1 == fragments;
                    let is_marked = match marking {
                        Marking::Pictures => at + 1 == units.len(),
                        Marking::Slices => unit != Unit::Parameters,
                        Marking::Units => true,
                        Marking::Nothing => false,
                    };
                    let header = PacketHeader {
                        seq: packets.len() as u16,
                        rtp: picture as u32 * 3000,
                        marked: ends && is_marked,
                    };
                    packets.push(Packet {
                        header,
                        picture,
                        unit,
                        begins: fragment == 0,
                        ends,
                    });
                }
            }
        }
        packets
    }

    /// As GStreamer's depayloaders for H.264 and H.265 do it.
    #[derive(Default)]
    struct Depayloader {
        units: Vec<(usize, Unit)>,
        has_slice: bool,
        fragment: Option<u16>,
        last: Option<u16>,
        follows_gap: bool,
    }

    struct DepayloadedFrame {
        units: Vec<(usize, Unit)>,
        /// It is marked as following a gap.
        follows_gap: bool,
    }

    impl Depayloader {
        fn packet(&mut self, packet: Packet, marked: bool) -> Vec<DepayloadedFrame> {
            let seq = packet.header.seq;
            let goes_on = self.last.is_none_or(|last| last.wrapping_add(1) == seq);
            self.follows_gap |= !goes_on;
            self.last = Some(seq);
            let goes_on = self
                .fragment
                .is_some_and(|last| last.wrapping_add(1) == seq);
            self.fragment = (packet.begins || goes_on).then_some(seq);
            if !packet.ends || self.fragment.take().is_none() {
                return Vec::new();
            }
            let mut frames = Vec::new();
            if !marked {
                let is_next = !matches!(packet.unit, Unit::Slice { is_first: false });
                if is_next && self.has_slice {
                    frames.push(self.frame());
                }
                self.has_slice |= packet.unit != Unit::Parameters;
            }
            self.units.push((packet.picture, packet.unit));
            if marked {
                frames.push(self.frame());
            }
            frames
        }

        fn frame(&mut self) -> DepayloadedFrame {
            self.has_slice = false;
            DepayloadedFrame {
                units: std::mem::take(&mut self.units),
                follows_gap: std::mem::take(&mut self.follows_gap),
            }
        }
    }

    /// A frame that went into the decoder.
    #[derive(Debug)]
    struct Decoded {
        picture: usize,
        is_whole: bool,
        /// The packet that came last.
        after: u16,
    }

    fn decoded(sent: &[Packet], arrives: impl Fn(&Packet) -> bool, gop: usize) -> Vec<Decoded> {
        let (mut sequence, mut queue) = (PacketSequence::default(), MarkQueue::new(true));
        let (mut depayloader, mut gate) = (Depayloader::default(), FrameGate::default());
        let (mut hurt, mut decoded, mut came) = (Vec::new(), Vec::new(), 0);
        for packet in sent.iter().copied().filter(arrives) {
            let gap = sequence.packet(packet.header);
            hurt.extend(gap.before);
            hurt.extend(gap.this.then_some(packet.header.rtp));
            queue.push(packet, packet.header.marked);
            while let Some((packet_on, marked)) = queue.pop(sequence.marks()) {
                for frame in depayloader.packet(packet_on, marked) {
                    let units = frame.units;
                    let picture = units.last().unwrap().0;
                    let is_key = picture % gop == 0;
                    let first = units.iter().find(|(_, unit)| *unit != Unit::Parameters);
                    let is_begun =
                        first.is_none_or(|(_, unit)| *unit == Unit::Slice { is_first: true });
                    let rtp = picture as u32 * 3000;
                    // One that did not come hurts those that build on it.
                    let mut missing = hurt.iter().filter(|hurt| (came + 1..rtp).contains(*hurt));
                    let is_lost = !is_begun
                        || hurt.contains(&rtp)
                        || ((frame.follows_gap || missing.next().is_some()) && !is_key);
                    came = rtp;
                    let gap = is_lost.then_some(Gap::Lost);
                    if gate.pass(is_key, gap, None, Mono::default()).is_err() {
                        continue;
                    }
                    sequence.prove_marks();
                    let all = sent.iter().filter(|one| one.picture == picture && one.ends);
                    let all: Vec<_> = all.map(|one| (picture, one.unit)).collect();
                    decoded.push(Decoded {
                        picture,
                        is_whole: units == all,
                        after: packet.header.seq,
                    });
                }
            }
        }
        decoded
    }

    fn any_marking() -> impl Strategy<Value = Marking> {
        use Marking::*;
        prop::sample::select(vec![Pictures, Slices, Units, Nothing])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(2000)))]

        // Faults: C25.
        /// Wherever a camera sets its marks: all of its pictures are decoded, each whole, and those with right marks at once.
        #[test]
        fn every_picture_is_whole_wherever_the_marks_are(
            slices in prop::collection::vec(1_usize..5, 4..60),
            gop in 2_usize..12, fragments in 1_usize..4, marking in any_marking(),
        ) {
            let sent = sent(&slices, gop, fragments, marking);
            let decoded = decoded(&sent, |_| true, gop);
            let pictures: Vec<usize> = decoded.iter().map(|one| one.picture).collect();
            let last = *pictures.last().unwrap();
            prop_assert!(pictures.iter().copied().eq(0..=last) && last + 2 >= slices.len(), "{:?}", pictures);
            let at_once = marking == Marking::Pictures || slices.iter().all(|slices| *slices == 1) && marking == Marking::Slices;
            for one in &decoded {
                prop_assert!(one.is_whole, "{:?}", one);
                let mut own = sent.iter().filter(|packet| packet.picture == one.picture);
                let end = own.next_back().unwrap().header.seq;
                prop_assert!(!at_once || one.picture == 0 || one.after == end, "{:?} of {}", one, end);
            }
        }

        // Faults: C26, C35.
        /// The same with losses: what is decoded is whole, and so is what it builds on. A key picture with no loss near it is decoded.
        #[test]
        fn no_picture_that_depends_on_a_lost_packet_is_decoded(
            slices in prop::collection::vec(1_usize..5, 30..60),
            gop in 2_usize..12, fragments in 1_usize..4, marking in any_marking(),
            lost in prop::collection::hash_set(5_u16..400, 0..20),
        ) {
            let sent = sent(&slices, gop, fragments, marking);
            let decoded = decoded(&sent, |packet| !lost.contains(&packet.header.seq), gop);
            let mut last = None;
            for one in &decoded {
                let builds_on = one.picture.checked_sub(1).filter(|_| one.picture % gop > 0);
                prop_assert!(one.is_whole && (builds_on.is_none() || builds_on == last), "{:?} after {:?}", one, last);
                last = Some(one.picture);
            }
            for key in (gop..slices.len() - 2).step_by(gop) {
                let mut near = sent.iter().filter(|packet| packet.picture.abs_diff(key) <= 1);
                let is_hurt = near.any(|packet| lost.contains(&packet.header.seq));
                prop_assert!(is_hurt || decoded.iter().any(|one| one.picture == key), "{} is missing", key);
            }
        }
    }

    #[test]
    fn marks_without_headers_go_on_at_once() {
        let mut queue = MarkQueue::new(false);
        for marks in [MarkerReliability::Unseen, MarkerReliability::Wrong] {
            queue.push('a', true);
            assert_eq!(queue.pop(marks), Some(('a', true)), "{marks:?}");
        }
    }
}
