//! Which encoded frames lost a packet, by the sequence numbers of the packets that are there. Pure.
//!
//! Packets come here in the order of sending, each at most once. A frame is all packets of one RTP time; the last of them is
//! marked, with most cameras. Some mark the end of each slice or none at all. What a gap leaves open is taken for the worst.
//!
//! A depayloader ends a frame at each mark. So a mark is not believed before it is proven: until then a marked packet waits for
//! the next one, which shows whether the frame goes on. Where marks are wrong none is shown to the depayloader, which then ends
//! a frame where the next one begins, by the headers of slices.

use std::collections::VecDeque;

use crate::push_bounded;

/// The most changes of sender that are expected at the same time.
const CHANGES_KEPT: usize = 8;

/// A larger step is no loss: the sender counts from another number (RFC 3550 appendix A.1).
const MAX_DROPOUT: i16 = 3000;

/// What a packet shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketGap {
    /// RTP time of the frame before that of this packet, when it is not whole.
    pub before: Option<u32>,
    /// The frame of this packet is not whole, or one between it and the frame before is missing.
    pub this: bool,
    /// Another sender begins: nothing from here on builds on what was before.
    pub begins: bool,
    /// Packets that never came between this one and the one before it.
    pub lost: u16,
}

/// Follows one stream of packets.
#[derive(Debug, Default)]
pub struct PacketSequence {
    last: Option<PacketHeader>,
    marks: MarkerReliability,
    changes: VecDeque<u16>,
}

/// What is read of a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Counts packets, modulo 65536.
    pub seq: u16,
    /// RTP time, the same in all packets of a frame.
    pub rtp: u32,
    /// The last of its frame.
    pub marked: bool,
}

/// Whether marks show where frames end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkerReliability {
    #[default]
    Unseen,
    /// So far each frame ended with one, and none was within a frame.
    Right,
    /// The same, and a frame was decoded. The first one is a key frame, which has several slices if any frame has.
    Proven,
    Wrong,
}

impl PacketSequence {
    /// Another sender begins with the packet `seq`, which is still to come.
    pub fn will_change(&mut self, seq: u16) {
        push_bounded(&mut self.changes, seq, CHANGES_KEPT);
    }

    /// A whole frame goes into the decoder, and its marks were right.
    pub fn prove_marks(&mut self) {
        if self.marks == MarkerReliability::Right {
            self.marks = MarkerReliability::Proven;
        }
    }

    /// What is known of marks after the last packet.
    pub fn marks(&self) -> MarkerReliability {
        self.marks
    }

    pub fn packet(&mut self, packet: PacketHeader) -> PacketGap {
        let begins = self.changes_at(packet.seq);
        let Some(last) = self.last else {
            self.last = Some(packet);
            return PacketGap::default();
        };
        let step = packet.seq.wrapping_sub(last.seq) as i16;
        if step == 0 {
            return PacketGap::default();
        }
        self.last = Some(packet);
        let same = packet.rtp == last.rtp;
        let ended = self.marks == MarkerReliability::Proven && last.marked && !same;
        if step == 1 && !begins {
            self.learn(last.marked, same);
            return PacketGap::default();
        }
        // Of a frame that is not marked as over at least one packet is missing; it is the one.
        let of_last = step == 2
            && self.marks == MarkerReliability::Proven
            && !last.marked
            && !same
            && !begins;
        PacketGap {
            before: (!ended && !same).then_some(last.rtp),
            this: step != 1 && !of_last,
            begins,
            lost: match step {
                2..=MAX_DROPOUT if !begins => step as u16 - 1,
                _ => 0,
            },
        }
    }

    fn changes_at(&mut self, seq: u16) -> bool {
        let reached = |change: &u16| (seq.wrapping_sub(*change) as i16) >= 0;
        let waiting = self.changes.len();
        self.changes.retain(|change| !reached(change));
        self.changes.len() < waiting
    }

    /// Marks are right when every frame ends with one and none is within a frame.
    fn learn(&mut self, marked: bool, same: bool) {
        self.marks = match self.marks {
            MarkerReliability::Wrong => MarkerReliability::Wrong,
            _ if marked == same => MarkerReliability::Wrong,
            MarkerReliability::Unseen if !same => MarkerReliability::Right,
            as_before => as_before,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of the packets shows, after two whole frames. Packets are `(number, frame, marked)`.
    fn shown(packets: &[(u16, u32, bool)]) -> Vec<(bool, bool)> {
        let mut sequence = PacketSequence::default();
        let start = 65_533_u16;
        let before = [(0, 0, false), (1, 0, true), (2, 1, true)];
        let damage = before.iter().chain(packets).map(|&(number, rtp, marked)| {
            let seq = start.wrapping_add(number);
            sequence.prove_marks();
            let damage = sequence.packet(PacketHeader { seq, rtp, marked });
            (damage.before.is_some(), damage.this)
        });
        damage.skip(before.len()).collect()
    }

    #[test]
    fn a_gap_hurts_the_frames_it_may_have_taken_from() {
        let whole = (false, false);
        let (this, both, before) = ((false, true), (true, true), (true, false));
        let no_gap = [(3, 2, false), (4, 2, true), (5, 3, true)];
        assert_eq!(shown(&no_gap), [whole; 3]);
        let first = [(4, 2, false), (5, 2, true)];
        assert_eq!(shown(&first), [this, whole]);
        let middle = [(3, 2, false), (5, 2, true), (6, 3, true)];
        assert_eq!(shown(&middle), [whole, this, whole]);
        let last = [(3, 2, false), (5, 3, true)];
        assert_eq!(shown(&last), [whole, before], "the mark alone is missing");
        let last_and_first = [(3, 2, false), (6, 3, true)];
        assert_eq!(shown(&last_and_first), [whole, both]);
        let frame = [(5, 4, true)];
        assert_eq!(shown(&frame), [this]);
    }

    #[test]
    fn marks_are_proven_by_a_decoded_frame() {
        use MarkerReliability::*;
        let mut sequence = PacketSequence::default();
        let mut marks = |seq, rtp, marked, decoded| {
            sequence.packet(PacketHeader { seq, rtp, marked });
            if decoded {
                sequence.prove_marks();
            }
            sequence.marks()
        };
        assert_eq!(marks(0, 0, false, true), Unseen);
        assert_eq!(marks(1, 0, true, true), Unseen);
        assert_eq!(marks(2, 1, true, false), Right);
        assert_eq!(marks(3, 2, true, true), Proven);
        assert_eq!(marks(4, 3, true, false), Proven);
        assert_eq!(marks(5, 3, true, true), Wrong, "a second slice");
        assert_eq!(marks(6, 4, true, true), Wrong);
    }

    #[test]
    fn lost_packets_are_counted_between_those_of_one_sender() {
        let mut sequence = PacketSequence::default();
        let mut lost = |seq| {
            let (rtp, marked) = (u32::from(seq), true);
            sequence.packet(PacketHeader { seq, rtp, marked }).lost
        };
        // Nothing was lost before the first number.
        assert_eq!([1000, 1001, 1004, 1005].map(&mut lost), [0, 0, 2, 0]);
        assert_eq!(lost(9000), 0, "the camera counts from another number");
        assert_eq!(lost(9003), 2);
        sequence.will_change(9006);
        let (seq, rtp, marked) = (9006, 0, true);
        let gap = sequence.packet(PacketHeader { seq, rtp, marked });
        assert_eq!((gap.begins, gap.lost), (true, 0));
    }

    #[test]
    fn new_sender_starts_at_its_announced_sequence_number() {
        let mut sequence = PacketSequence::default();
        sequence.will_change(12);
        let mut packet = |seq, rtp, marked| {
            sequence.prove_marks();
            sequence.packet(PacketHeader { seq, rtp, marked })
        };
        assert_eq!(packet(10, 0, true), PacketGap::default());
        assert_eq!(packet(11, 1, true), PacketGap::default());
        let begins = PacketGap {
            begins: true,
            ..PacketGap::default()
        };
        assert_eq!(packet(12, 77, false), begins);
        assert_eq!(packet(13, 77, true), PacketGap::default());
    }
}
