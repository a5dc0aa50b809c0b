//! What RTP and RTCP packets say about time.

use gstreamer as gst;

use crate::{
    domain::{Mono, WallTime},
    ingest::clock::Report,
};

/// Seconds from 1900 (NTP) to 1970 (Unix).
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

/// The time stamp in an RTP header (RFC 3550 section 5.1: bytes 4 to 7).
pub fn rtp_time(packet: &gst::BufferRef) -> Option<u32> {
    let bytes: [u8; 8] = start_of(packet)?;
    Some(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
}

/// The first bytes; `None` when the network sent fewer. The length is checked before, because the copy panics.
fn start_of<const N: usize>(packet: &gst::BufferRef) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (packet.size() >= N && packet.copy_to_slice(0, &mut bytes).is_ok()).then_some(bytes)
}

/// The sender's NTP time that rtspsrc put on a packet, once it had a sender report.
pub fn capture_time(packet: &gst::BufferRef) -> Option<WallTime> {
    packet
        .iter_meta::<gst::ReferenceTimestampMeta>()
        .find(|meta| {
            let name = meta.reference().structure(0).map(|s| s.name().as_str());
            name == Some("timestamp/x-ntp")
        })
        .and_then(|meta| {
            let since_1900_ns = meta.timestamp().nseconds();
            let unix_ns = since_1900_ns.checked_sub(NTP_TO_UNIX_S * 1_000_000_000)?;
            i64::try_from(unix_ns).ok().map(WallTime::from_unix_nanos)
        })
}

/// Reads the sender report in the jitter buffer's `handle-sync` signal (RFC 3550 section 6.4.1).
pub fn sender_report(sync: &gst::Structure, now: (Mono, WallTime)) -> Option<Report> {
    let buffer = sync.get::<gst::Buffer>("sr-buffer").ok()?;
    let packet: [u8; 20] = start_of(&buffer)?;
    let word = |at: usize| {
        u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
    };
    let seconds = u64::from(word(8)).checked_sub(NTP_TO_UNIX_S)?;
    let fraction_ns = (u64::from(word(12)) * 1_000_000_000) >> 32;
    Some(Report {
        ntp: WallTime::from_unix_nanos((seconds * 1_000_000_000 + fraction_ns) as i64),
        rtp: (word(16), sync.get::<u32>("clock-rate").unwrap_or(0)),
        arrived: now.0,
        arrived_wall: now.1,
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
        let now = (Mono::from_nanos(5), WallTime::from_unix_millis(6));
        let sync = gst::Structure::builder("application/x-rtp-sync")
            .field("sr-buffer", gst::Buffer::from_slice(packet))
            .field("clock-rate", 90_000_u32)
            .build();
        let report = sender_report(&sync, now).unwrap();
        assert_eq!(report.ntp, WallTime::from_unix_millis(1_790_000_000_500));
        assert_eq!((report.rtp, report.arrived), ((90_000, 90_000), now.0));
    }

    #[test]
    fn short_packets_have_no_time() {
        gst::init().unwrap();
        assert_eq!(
            rtp_time(&gst::Buffer::from_slice([0x80, 96, 0, 1, 0, 0])),
            None
        );
        let packet = gst::Buffer::from_slice([0x80, 96, 0, 1, 0, 0, 1, 2, 9]);
        assert_eq!(rtp_time(&packet), Some(258));
    }
}
