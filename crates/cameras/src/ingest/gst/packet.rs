//! Reads the headers of RTP and RTCP packets (RFC 3550 sections 5.1 and 6.4.1), and writes SSRCs into them.

use gstreamer as gst;

use crate::ingest::{clock::SenderReport, sequence::PacketHeader};
use spotter_core::{Mono, WallTime};

/// Seconds from 1900 (NTP) to 1970 (Unix).
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

/// Bytes of an RTP header that are always there.
const HEADER: usize = 12;

/// The SSRC, and the rest of the header.
pub fn rtp_header(packet: &gst::BufferRef) -> Option<(u32, PacketHeader)> {
    let bytes: [u8; HEADER] = start_of(packet)?;
    let header = PacketHeader {
        seq: u16::from_be_bytes([bytes[2], bytes[3]]),
        rtp: word(&bytes, 4),
        marked: bytes[1] & 0x80 != 0,
    };
    Some((word(&bytes, 8), header))
}

/// The bytes behind the header, which may name other sources and have an extension (RFC 3550 section 5.1).
pub fn rtp_payload(packet: &[u8]) -> Option<&[u8]> {
    let flags = *packet.first()?;
    let behind = packet.get(HEADER + 4 * usize::from(flags & 0x0f)..)?;
    if flags & 0x10 == 0 {
        return Some(behind);
    }
    let [_, _, high, low, rest @ ..] = behind else {
        return None;
    };
    rest.get(4 * usize::from(u16::from_be_bytes([*high, *low]))..)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The packet under another sender's name, with another sequence number. Only its header is copied when it is shared.
pub fn rename(packet: &mut gst::BufferRef, ssrc: u32, seq: u16) {
    if let Ok(mut bytes) = packet.map_writable()
        && bytes.len() >= HEADER
    {
        bytes[2..4].copy_from_slice(&seq.to_be_bytes());
        bytes[8..12].copy_from_slice(&ssrc.to_be_bytes());
    }
}

/// Takes the mark from the packet. Copies nothing of one without a mark.
pub fn clear_mark(packet: &mut gst::Buffer) {
    if rtp_header(packet).is_some_and(|(_, header)| header.marked)
        && let Ok(mut bytes) = packet.make_mut().map_writable()
    {
        bytes[1] &= 0x7f;
    }
}

/// The sender of a control packet, which may be several in one.
pub fn control_sender(packet: &gst::BufferRef) -> Option<u32> {
    let bytes: [u8; 8] = start_of(packet)?;
    Some(word(&bytes, 4))
}

/// The control packet under another sender's name, in all of its parts.
pub fn rename_control(packet: &mut gst::BufferRef, ssrc: u32) {
    let Ok(mut bytes) = packet.map_writable() else {
        return;
    };
    let mut at = 0;
    while let Some(part) = bytes.get_mut(at..).filter(|part| part.len() >= 8) {
        let words = usize::from(u16::from_be_bytes([part[2], part[3]]));
        part[4..8].copy_from_slice(&ssrc.to_be_bytes());
        at += 4 * (words + 1);
    }
}

/// The first bytes; `None` when the network sent fewer. The length is checked before, because the copy panics.
fn start_of<const N: usize>(packet: &gst::BufferRef) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (packet.size() >= N && packet.copy_to_slice(0, &mut bytes).is_ok()).then_some(bytes)
}

/// Reads the sender report in the jitter buffer's `handle-sync` signal (RFC 3550 section 6.4.1).
pub fn sender_report(sync: &gst::Structure, now: Mono) -> Option<SenderReport> {
    let buffer = sync.get::<gst::Buffer>("sr-buffer").ok()?;
    let packet: [u8; 20] = start_of(&buffer)?;
    let seconds = u64::from(word(&packet, 8)).checked_sub(NTP_TO_UNIX_S)?;
    let fraction_ns = (u64::from(word(&packet, 12)) * 1_000_000_000) >> 32;
    Some(SenderReport {
        ntp: WallTime::from_unix_nanos((seconds * 1_000_000_000 + fraction_ns) as i64),
        rtp: word(&packet, 16),
        ticks_per_s: sync.get::<u32>("clock-rate").unwrap_or(0),
        arrived: now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_report_is_read() {
        gst::init().unwrap();
        let mut packet = vec![0x80, 200, 0, 6, 1, 2, 3, 4];
        for word in [NTP_TO_UNIX_S as u32 + 1_790_000_000, 1 << 31, 90_000, 7, 8] {
            packet.extend(word.to_be_bytes());
        }
        let now = Mono::from_nanos(5);
        let sync = gst::Structure::builder("application/x-rtp-sync")
            .field("sr-buffer", gst::Buffer::from_slice(packet))
            .field("clock-rate", 90_000_u32)
            .build();
        let report = sender_report(&sync, now).unwrap();
        assert_eq!(report.ntp, WallTime::from_unix_millis(1_790_000_000_500));
        assert_eq!((report.rtp, report.ticks_per_s), (90_000, 90_000));
        assert_eq!(report.arrived, now);
    }

    #[test]
    fn headers_are_read_and_short_packets_have_none() {
        gst::init().unwrap();
        let short = gst::Buffer::from_slice([0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rtp_header(&short), None);
        assert_eq!(control_sender(&short), Some(0));
        let bytes = [0x80, 0x80 | 96, 1, 2, 0, 0, 1, 2, 0, 0, 0, 7, 99];
        let mut packet = gst::Buffer::from_slice(bytes);
        let mut header = PacketHeader {
            seq: 258,
            rtp: 258,
            marked: true,
        };
        assert_eq!(rtp_header(&packet), Some((7, header)));
        rename(packet.make_mut(), 9, 5);
        header.seq = 5;
        assert_eq!(rtp_header(&packet), Some((9, header)));
        assert_eq!(packet.map_readable().unwrap()[12], 99);
        clear_mark(&mut packet);
        header.marked = false;
        assert_eq!(rtp_header(&packet), Some((9, header)));
    }

    #[test]
    fn payload_is_behind_sources_and_extension() {
        let header = |flags| [&[flags, 96][..], &[0; 10]].concat();
        let plain = [header(0x80), vec![7, 8]].concat();
        assert_eq!(rtp_payload(&plain), Some(&[7, 8][..]));
        let sources = [header(0x81), vec![0; 4], vec![7]].concat();
        assert_eq!(rtp_payload(&sources), Some(&[7][..]));
        let extended = [header(0x90), vec![0xbe, 0xde, 0, 1, 1, 2, 3, 4, 7]].concat();
        assert_eq!(rtp_payload(&extended), Some(&[7][..]));
        for cut in [12, 15, 16, 19] {
            assert!(rtp_payload(&extended[..cut]).is_none_or(<[u8]>::is_empty));
        }
    }

    #[test]
    fn control_packets_are_renamed_in_all_of_their_parts() {
        gst::init().unwrap();
        // A receiver report without blocks, then the end of a description that claims to be longer than it is.
        let bytes = [
            0x80, 201, 0, 1, 0, 0, 0, 7, 0x81, 202, 0, 9, 0, 0, 0, 7, 1, 0,
        ];
        let mut packet = gst::Buffer::from_slice(bytes);
        assert_eq!(control_sender(&packet), Some(7));
        rename_control(packet.make_mut(), 0x0102_0304);
        let renamed = packet.map_readable().unwrap();
        assert_eq!(renamed[4..8], [1, 2, 3, 4]);
        assert_eq!(renamed[12..16], [1, 2, 3, 4]);
        assert_eq!(&renamed[8..12], [0x81, 202, 0, 9]);
    }
}
