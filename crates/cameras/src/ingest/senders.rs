//! Which packets belong to the stream: foreign ones are dropped. Pure: takes `now`.
//!
//! A stream has one sender at a time, named by the SSRC in its packets. Some cameras change their SSRC at every key frame;
//! some go on sending a session that ended to the next client. The first kind is to be one stream still, and the
//! second is foreign. A new name is followed at once, or its key frame would be lost; when the one before it goes on
//! sending, there are two senders, and one of them is foreign from then on.
//!
//! What follows a change of names gets the first name and sequence numbers that go on, so that the reader of the packets
//! sees one stream, with one jitter buffer and one decoder.

use std::{collections::VecDeque, time::Duration};

use crate::push_bounded;
use spotter_core::Mono;

/// The one before a change has so long to show that it goes on.
const PROBATION: Duration = Duration::from_millis(500);
/// Fewer packets of it are stragglers.
const STRAGGLERS: u32 = 3;
/// Packets of an ended session come before those of the one that just begins: in this time the newer sender is the stream's.
const BEGINNING: Duration = Duration::from_secs(1);
/// A sender that is silent for so long may have been replaced by any other.
const SILENT: Duration = Duration::from_secs(1);
const FOREIGN_KEPT: usize = 8;

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDecision {
    /// It belongs to the stream.
    Pass,
    /// It belongs to the stream, under another name.
    Rename {
        /// The name to show.
        ssrc: u32,
        /// The sequence number to show.
        seq: u16,
        /// Another sender begins with it.
        first: bool,
    },
    /// It belongs to another stream.
    Drop,
}

#[derive(Debug, Default)]
pub struct Senders {
    followed: Option<FollowedSender>,
    before: Option<PreviousSender>,
    foreign: VecDeque<u32>,
    /// The number of foreign packets.
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct FollowedSender {
    ssrc: u32,
    /// The first sender's name, which is shown for all of them, and when its first packet came.
    shown: u32,
    since: Mono,
    /// Shown sequence numbers are later by this.
    shift: u16,
    last_shown: u16,
    heard: Mono,
}

/// The one that was followed before.
#[derive(Clone, Copy, Debug)]
struct PreviousSender {
    ssrc: u32,
    until: Mono,
    heard: u32,
}

impl Senders {
    /// A packet came from the network.
    pub fn packet(&mut self, ssrc: u32, seq: u16, now: Mono) -> PacketDecision {
        let mut followed = self.followed.unwrap_or(FollowedSender {
            ssrc,
            shown: ssrc,
            since: now,
            shift: 0,
            last_shown: seq,
            heard: now,
        });
        let first = followed.ssrc != ssrc;
        if first {
            if !self.is_successor(&followed, ssrc, now) {
                self.dropped += 1;
                return PacketDecision::Drop;
            }
            self.before = Some(PreviousSender {
                ssrc: followed.ssrc,
                until: now.after(PROBATION),
                heard: 0,
            });
            followed.ssrc = ssrc;
            followed.last_shown = followed.last_shown.wrapping_add(1);
            followed.shift = followed.last_shown.wrapping_sub(seq);
        }
        followed.heard = now;
        let shown_seq = seq.wrapping_add(followed.shift);
        if (shown_seq.wrapping_sub(followed.last_shown) as i16) > 0 {
            followed.last_shown = shown_seq;
        }
        self.followed = Some(followed);
        if (followed.shown, shown_seq, first) == (ssrc, seq, false) {
            return PacketDecision::Pass;
        }
        PacketDecision::Rename {
            ssrc: followed.shown,
            seq: shown_seq,
            first,
        }
    }

    /// The name to show in a control packet of `ssrc`; `None` when its sender is not followed.
    pub fn control(&self, ssrc: u32) -> Option<u32> {
        match &self.followed {
            Some(followed) => (followed.ssrc == ssrc).then_some(followed.shown),
            None => Some(ssrc),
        }
    }

    /// A packet of another sender than the followed one came. True when the stream changes to it.
    fn is_successor(&mut self, followed: &FollowedSender, ssrc: u32, now: Mono) -> bool {
        if now.since(followed.heard) >= SILENT {
            self.foreign.retain(|foreign| *foreign != ssrc);
            return true;
        }
        if self.foreign.contains(&ssrc) {
            return false;
        }
        let before = self.before.as_mut();
        let Some(before) = before.filter(|before| before.ssrc == ssrc && now <= before.until)
        else {
            return true;
        };
        before.heard += 1;
        if before.heard < STRAGGLERS {
            return false;
        }
        // Both are sending.
        let beginning = now.since(followed.since) < BEGINNING;
        let foreign = if beginning { ssrc } else { followed.ssrc };
        push_bounded(&mut self.foreign, foreign, FOREIGN_KEPT);
        !beginning
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    /// The sequence number that is shown; `None` of a packet that is dropped.
    fn shown(senders: &mut Senders, ssrc: u32, seq: u16, ms: u64) -> Option<u16> {
        match senders.packet(ssrc, seq, at(ms)) {
            PacketDecision::Pass => Some(seq),
            PacketDecision::Rename { seq, ssrc, .. } => {
                assert_eq!(Some(ssrc), senders.followed.map(|followed| followed.shown));
                Some(seq)
            }
            PacketDecision::Drop => None,
        }
    }

    proptest! {

        /// Packets of an ended session between ours, from some time on: all but the first few are dropped, and none of ours
        /// for long.
        #[test]
        fn packets_of_an_ended_session_are_dropped(from in 300_u64..600, foreign_seq: u16) {
            let mut senders = Senders::default();
            let (mut ours, mut others) = (0, 0);
            for n in 0..1000_u64 {
                let ms = n * 10;
                ours += u64::from(shown(&mut senders, 7, n as u16, ms).is_some());
                if n >= from {
                    let seq = foreign_seq.wrapping_add(n as u16);
                    others += u64::from(shown(&mut senders, 9, seq, ms + 5).is_some());
                }
            }
            prop_assert!(ours >= 997, "{ours} of ours");
            prop_assert!(others <= 3, "{others} of others");
            prop_assert_eq!(senders.dropped, 2000 - from - ours - others);
        }
    }

    #[test]
    fn packets_from_before_the_session_are_foreign() {
        let mut senders = Senders::default();
        for n in 0..5 {
            assert!(shown(&mut senders, 9, 100 + n, u64::from(n) * 10).is_some());
        }
        for n in 0..500_u16 {
            let ms = 50 + u64::from(n) * 10;
            let foreign = shown(&mut senders, 9, 105 + n, ms);
            let ours = shown(&mut senders, 7, n, ms + 5);
            let only_ours = foreign.is_none() && ours.is_some();
            assert!(n == 0 || only_ours, "packet {n}");
        }
    }

    #[test]
    fn stragglers_change_nothing_and_silence_lets_anybody_in() {
        let mut senders = Senders::default();
        assert_eq!(shown(&mut senders, 7, 10, 0), Some(10));
        assert_eq!(shown(&mut senders, 9, 500, 2_000), Some(11));
        assert_eq!(shown(&mut senders, 7, 11, 2_010), None);
        assert_eq!(shown(&mut senders, 7, 12, 2_020), None);
        assert_eq!(shown(&mut senders, 9, 501, 2_030), Some(12));
        // Three are more than stragglers: the newcomer was foreign.
        assert_eq!(shown(&mut senders, 7, 13, 2_040), Some(13));
        assert_eq!(shown(&mut senders, 9, 502, 2_050), None);
        assert_eq!(senders.dropped, 3);
        assert_eq!(shown(&mut senders, 9, 503, 3_041), Some(14));
        assert_eq!((senders.control(9), senders.control(7)), (Some(7), None));
    }
}
