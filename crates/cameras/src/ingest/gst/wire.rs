//! Where packets are watched: as they come from the network, where those of other senders are dropped, and as they leave the
//! jitter buffer in their turn. The control packets' sender reports too.
//!
//! Here is no decision; those are pure, in `senders`, `sequence` and `clock`.

use std::sync::{Arc, atomic::Ordering};

use gstreamer::{self as gst, prelude::*};

use super::{
    frames::FrameTap,
    packet::{control_sender, rename, rename_control, rtp_header, sender_report},
};
use crate::ingest::{senders::Verdict, source::SourceEvent};

impl FrameTap {
    /// Watches rtspsrc's manager: its sinks, which it makes when a stream is set up, and its jitter buffers.
    pub fn watch_manager(self: &Arc<Self>, manager: &gst::Element) {
        let tap = Arc::downgrade(self);
        manager.connect_pad_added(move |_, pad| {
            let Some(tap) = tap.upgrade() else { return };
            if pad.name().starts_with("recv_rtp_sink_") {
                tap.sift(pad, Self::on_packet);
            } else if pad.name().starts_with("recv_rtcp_sink_") {
                tap.sift(pad, Self::on_control);
            }
        });
        let tap = Arc::downgrade(self);
        manager.connect("new-jitterbuffer", false, move |values| {
            let jitter_buffer = values.get(1)?.get::<gst::Element>().ok()?;
            tap.upgrade()?.watch_jitter_buffer(&jitter_buffer);
            None
        });
    }

    fn watch_jitter_buffer(self: &Arc<Self>, element: &gst::Element) {
        self.books().jitter_buffers.push(element.downgrade());
        let tap = Arc::downgrade(self);
        element.connect("handle-sync", false, move |values| {
            let structure = values.get(1)?.get::<gst::Structure>().ok()?;
            let tap = tap.upgrade()?;
            let report = sender_report(&structure, tap.now().0)?;
            tap.books().tracker.reported(report);
            None
        });
    }

    /// Watches the packets as they leave the jitter buffer, where they have a PTS, and sees to it that each frame has its own.
    pub fn watch_depayloader(self: &Arc<Self>, element: &gst::Element) {
        if let Some(pad) = element.static_pad("sink") {
            self.sift(&pad, Self::in_turn);
        }
    }

    /// Lets those buffers pass the pad, single or in a list, that `keep` keeps, and as it leaves them. The closure holds the tap
    /// weakly.
    pub fn sift(self: &Arc<Self>, pad: &gst::Pad, keep: fn(&Self, &mut gst::Buffer) -> bool) {
        let tap = Arc::downgrade(self);
        let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST;
        pad.add_probe(kinds, move |_, info| {
            let Some(tap) = tap.upgrade() else {
                return gst::PadProbeReturn::Ok;
            };
            let kept = match &mut info.data {
                Some(gst::PadProbeData::Buffer(buffer)) => keep(&tap, buffer),
                Some(gst::PadProbeData::BufferList(list)) => {
                    let kept = list.iter_owned().filter_map(|mut buffer| {
                        let kept = keep(&tap, &mut buffer);
                        kept.then_some(buffer)
                    });
                    *list = kept.collect();
                    !list.is_empty()
                }
                _ => true,
            };
            // Consumed, which here is the same as dropped; `Drop` makes GStreamer 1.22 complain of a buffer that is gone.
            match kept {
                true => gst::PadProbeReturn::Ok,
                false => gst::PadProbeReturn::Handled,
            }
        });
    }

    /// False for a packet of another sender. What is no RTP is left to the elements behind.
    fn on_packet(&self, packet: &mut gst::Buffer) -> bool {
        let Some((ssrc, header)) = rtp_header(packet) else {
            return true;
        };
        let now = self.now();
        match self.books().tracker.packet(ssrc, header, now) {
            Verdict::Pass => {}
            Verdict::Rename { ssrc, seq, .. } => rename(packet.make_mut(), ssrc, seq),
            Verdict::Drop => return false,
        }
        true
    }

    /// Keeps every packet.
    fn in_turn(&self, packet: &mut gst::Buffer) -> bool {
        if !self.packet_told.swap(true, Ordering::Relaxed) {
            self.tell(SourceEvent::FirstPacket);
        }
        if let (Some((_, header)), Some(pts)) = (rtp_header(packet), packet.pts()) {
            let now = self.now();
            let own_pts = self.books().tracker.in_turn(header, pts.into(), now);
            if let Ok(own_pts) = gst::ClockTime::try_from(own_pts)
                && own_pts != pts
            {
                packet.make_mut().set_pts(own_pts);
            }
        }
        true
    }

    fn on_control(&self, packet: &mut gst::Buffer) -> bool {
        let Some(ssrc) = control_sender(packet) else {
            return true;
        };
        match self.books().tracker.control(ssrc) {
            Some(shown) if shown != ssrc => rename_control(packet.make_mut(), shown),
            Some(_) => {}
            None => return false,
        }
        true
    }
}
