//! A tape as packets: numbers, times and damage. Pure.

use std::{sync::Arc, time::Duration};

use super::{
    script::{CameraScript, Damage, Marks, Reports, Stamps},
    tape::{CameraTape, EncodedPicture, EndedUnit, TapeCodec, ended_unit},
};

/// RTP ticks a second.
pub const CLOCK_RATE: u32 = 90_000;
/// Seconds from 1900 (NTP) to 1970 (Unix).
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

#[derive(Clone, Debug)]
pub struct Player {
    reel: Arc<[Arc<CameraTape>]>,
    ticks: u32,
    stamps: Stamps,
    damage: Damage,
    marks: Marks,
    picture: usize,
    sent: u64,
    delayed: Option<(u64, Vec<u8>)>,
}

impl Player {
    /// Plays the tapes of the reel one after the other, in a loop.
    pub fn new(script: &CameraScript, stamps: Stamps) -> Self {
        Self {
            reel: Arc::clone(&script.reel),
            ticks: ticks(script.every),
            stamps,
            damage: script.damage,
            marks: script.marks,
            picture: 0,
            sent: 0,
            delayed: None,
        }
    }

    /// Number of played pictures.
    pub fn pictures(&self) -> usize {
        self.picture
    }

    /// A packet is held back until others have overtaken it.
    pub fn holds_one(&self) -> bool {
        self.delayed.is_some()
    }

    /// The packets of the next picture, with damage.
    pub fn next_picture(&mut self) -> Vec<Vec<u8>> {
        let (payload_type, codec, mut picture) = self.current();
        if self.damage == Damage::Behead(self.picture) {
            behead(codec, &mut picture.payloads);
        }
        let rtp = self.rtp(self.picture);
        if self.damage == Damage::Renamed && picture.key {
            self.stamps.ssrc = self.stamps.ssrc.wrapping_add(1);
            self.stamps.sequence = self.stamps.sequence.wrapping_add(7777);
        }
        let last = picture.payloads.len() - 1;
        let mut packets = Vec::new();
        if self.damage == Damage::Foreign {
            let (marked, count) = (0x80 | payload_type, self.picture as u16);
            let mut foreign = header(marked, count, rtp ^ 0x5555_5555, !self.stamps.ssrc);
            foreign.extend(&picture.payloads[0]);
            packets.push(foreign);
        }
        for (at, payload) in picture.payloads.iter().enumerate() {
            let is_marked = match self.marks {
                Marks::Pictures => at == last,
                Marks::Slices => ended_unit(codec, payload) == Some(EndedUnit::Slice),
                Marks::Units => ended_unit(codec, payload).is_some(),
                Marks::Nothing => false,
            };
            let marked = u8::from(is_marked) << 7 | payload_type;
            let mut packet = header(marked, self.stamps.sequence, rtp, self.stamps.ssrc);
            packet.extend(payload);
            self.stamps.sequence = self.stamps.sequence.wrapping_add(1);
            self.sent += 1;
            self.pass(packet, &mut packets);
        }
        self.picture += 1;
        packets
    }

    /// A sender report about the picture that was played last (RFC 3550 section 6.4.1), made at `unix` by a correct clock.
    pub fn report(&self, reports: Reports, number: i64, unix: Duration) -> Option<Vec<u8>> {
        let off_s = match reports {
            Reports::Missing => return None,
            Reports::Off(off_s) => off_s,
            Reports::Stepping(step_s) => step_s * number,
        };
        let seconds = (unix.as_secs() + NTP_TO_UNIX_S).saturating_add_signed(off_s) as u32;
        let fraction = (u64::from(unix.subsec_nanos()) << 32) / 1_000_000_000;
        let rtp = self.rtp(self.picture.saturating_sub(1));
        let mut packet = vec![0x80, 200, 0, 6];
        for word in [self.stamps.ssrc, seconds, fraction as u32, rtp, 1, 1] {
            packet.extend(word.to_be_bytes());
        }
        // Each report needs a CNAME (section 6.1).
        packet.extend([0x81, 202, 0, 2]);
        packet.extend(self.stamps.ssrc.to_be_bytes());
        packet.extend([1, 1, b'c', 0]);
        Some(packet)
    }

    fn current(&self) -> (u8, TapeCodec, EncodedPicture) {
        let mut at = self.picture % self.reel_length();
        for tape in self.reel.iter() {
            match tape.pictures.get(at) {
                Some(picture) => return (tape.payload_type, tape.codec, picture.clone()),
                None => at -= tape.pictures.len(),
            }
        }
        unreachable!("a reel with pictures")
    }

    /// Pictures of the reel.
    fn reel_length(&self) -> usize {
        self.reel.iter().map(|tape| tape.pictures.len()).sum()
    }

    fn rtp(&self, picture: usize) -> u32 {
        self.stamps
            .rtp
            .wrapping_add((picture as u32).wrapping_mul(self.ticks))
    }

    fn pass(&mut self, mut packet: Vec<u8>, out: &mut Vec<Vec<u8>>) {
        // The first pictures are undamaged: a stream that never starts tests nothing.
        let due = |of: u64| self.picture >= 10 && mixed(self.sent).is_multiple_of(of);
        match self.damage {
            Damage::LoseOneOf(of) if due(of) => {}
            Damage::LosePicture(number) if self.picture % self.reel_length() == number => {}
            Damage::DelayOneOf(of) if self.delayed.is_none() && due(of) => {
                self.delayed = Some((self.sent + 3, packet));
            }
            Damage::FlipOneOf(of) if due(of) => {
                // Not in the RTP header.
                let at = 12 + mixed(self.sent ^ 0xff) as usize % (packet.len() - 12);
                packet[at] ^= 1 << (self.sent % 8);
                out.push(packet);
            }
            _ => out.push(packet),
        }
        if let Some((_, late)) = self.delayed.take_if(|(due, _)| *due <= self.sent) {
            out.push(late);
        }
    }
}

/// Removes the packets of the first slice.
fn behead(codec: TapeCodec, payloads: &mut Vec<Vec<u8>>) {
    let (mut is_before, mut is_over) = (true, false);
    payloads.retain(|payload| {
        let ended = ended_unit(codec, payload);
        is_before &= ended == Some(EndedUnit::Other);
        let kept = is_before || is_over;
        is_over |= ended == Some(EndedUnit::Slice);
        kept
    });
}

/// The number of the picture at an RTP time, counted from the connection's first.
pub fn picture_at(rtp: u32, first: u32, every: Duration) -> usize {
    (rtp.wrapping_sub(first) / ticks(every)) as usize
}

fn ticks(every: Duration) -> u32 {
    (every.as_secs_f64() * f64::from(CLOCK_RATE)).round() as u32
}

fn header(marked: u8, sequence: u16, rtp: u32, ssrc: u32) -> Vec<u8> {
    let mut packet = vec![0x80, marked];
    packet.extend(sequence.to_be_bytes());
    packet.extend(rtp.to_be_bytes());
    packet.extend(ssrc.to_be_bytes());
    packet
}

/// Numbers without a pattern (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn player(damage: Damage) -> Player {
        let picture = |key| EncodedPicture {
            key,
            payloads: vec![vec![1, 2, 3], vec![4, 5, 6]],
        };
        let tape = CameraTape {
            codec: TapeCodec::H264,
            pictures: vec![picture(true), picture(false)],
            payload_type: 96,
            rtpmap: "H264/90000".into(),
            fmtp: String::new(),
        };
        let stamps = Stamps {
            sequence: u16::MAX,
            rtp: u32::MAX - 10,
            ssrc: 5,
        };
        let script = CameraScript {
            damage,
            ..CameraScript::good(&Arc::new(tape))
        };
        Player::new(&script, stamps)
    }

    fn sequences(damage: Damage) -> Vec<u16> {
        let mut player = player(damage);
        let packets = (0..500).flat_map(|_| player.next_picture());
        let sequence = |packet: Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
        packets.map(sequence).collect()
    }

    #[test]
    fn delayed_and_renamed_packets_are_as_named() {
        let whole = sequences(Damage::None);
        let mut late = sequences(Damage::DelayOneOf(20));
        assert_ne!(late, whole);
        late.sort_unstable_by_key(|sequence| sequence.wrapping_add(1));
        assert_eq!(late[..990], whole[..990]);
        let renamed = sequences(Damage::Renamed);
        let step = |at: usize| renamed[at].wrapping_sub(renamed[at - 1]);
        assert_eq!([2, 3, 4, 5].map(step), [1, 1, 7778, 1]);
    }
}
