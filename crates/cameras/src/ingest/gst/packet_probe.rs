//! Where packets are watched: as they come from the network, where those of other senders are dropped, and as they leave the
//! jitter buffer in their turn. The control packets' sender reports too.
//!
//! Here is no decision; those are pure, in `senders`, `sequence` and `clock`.

use std::sync::Arc;

use gstreamer::{self as gst, glib::WeakRef, prelude::*};

use super::{
    PipelineProbes,
    packet::{control_sender, rename, rename_control, rtp_header, sender_report},
};
use crate::{ingest::senders::PacketDecision, lock};

impl PipelineProbes {
    /// Watches rtspsrc's manager: its sinks, which it makes when a stream is set up, and its jitter buffers.
    pub fn watch_manager(self: &Arc<Self>, manager: &gst::Element) {
        let probe = Arc::downgrade(self);
        manager.connect_pad_added(move |_, pad| {
            let Some(probe) = probe.upgrade() else { return };
            if pad.name().starts_with("recv_rtp_sink_") {
                sift(&probe, pad, Self::on_packet);
            } else if pad.name().starts_with("recv_rtcp_sink_") {
                sift(&probe, pad, Self::on_control);
            }
        });
        let probe = Arc::downgrade(self);
        manager.connect("new-jitterbuffer", false, move |values| {
            let jitter_buffer = values.get(1)?.get::<gst::Element>().ok()?;
            probe.upgrade()?.watch_jitter_buffer(&jitter_buffer);
            None
        });
    }

    fn watch_jitter_buffer(self: &Arc<Self>, element: &gst::Element) {
        lock(&self.jitter_buffers).push(element.downgrade());
        let probe = Arc::downgrade(self);
        element.connect("handle-sync", false, move |values| {
            let structure = values.get(1)?.get::<gst::Structure>().ok()?;
            let probe = probe.upgrade()?;
            let report = sender_report(&structure, probe.now().mono)?;
            probe.statistics().reported(report);
            None
        });
    }

    /// Watches the packets as they leave the jitter buffer, where they have a PTS, and sees to it that each frame has its own.
    pub fn watch_depayloader(self: &Arc<Self>, element: &gst::Element) {
        if let Some(pad) = element.static_pad("sink") {
            sift(self, &pad, Self::in_turn);
        }
    }

    /// RTP packets that never came, as the jitter buffers count them.
    pub fn packets_lost(&self) -> u64 {
        // Read without our lock: the element takes one of its own, and its thread may be waiting for ours.
        let buffers = lock(&self.jitter_buffers).clone();
        let lost = |buffer: &WeakRef<gst::Element>| {
            let stats = buffer.upgrade()?.property::<gst::Structure>("stats");
            stats.get::<u64>("num-lost").ok()
        };
        buffers.iter().filter_map(lost).sum()
    }

    /// False for a packet of another sender. What is no RTP is left to the elements behind.
    fn on_packet(&self, packet: &mut gst::Buffer) -> bool {
        let Some((ssrc, header)) = rtp_header(packet) else {
            return true;
        };
        let now = self.now();
        match self.statistics().packet(ssrc, header, now) {
            PacketDecision::Pass => {}
            PacketDecision::Rename { ssrc, seq, .. } => rename(packet.make_mut(), ssrc, seq),
            PacketDecision::Drop => return false,
        }
        true
    }

    /// Sets the PTS of the packet's own frame; always returns true, because every packet is kept.
    fn in_turn(&self, packet: &mut gst::Buffer) -> bool {
        self.packet_came();
        if let (Some((_, header)), Some(pts)) = (rtp_header(packet), packet.pts()) {
            let now = self.now();
            let own_pts = self.statistics().in_turn(header, pts.into(), now);
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
        match self.statistics().control(ssrc) {
            Some(shown) if shown != ssrc => rename_control(packet.make_mut(), shown),
            Some(_) => {}
            None => return false,
        }
        true
    }
}

/// Lets those buffers pass the pad, single or in a list, that `keep` keeps, and as it leaves them. The closure holds `probe`
/// weakly.
pub fn sift(
    probe: &Arc<PipelineProbes>,
    pad: &gst::Pad,
    keep: fn(&PipelineProbes, &mut gst::Buffer) -> bool,
) {
    let probe = Arc::downgrade(probe);
    let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST;
    pad.add_probe(kinds, move |_, info| {
        let Some(probe) = probe.upgrade() else {
            return gst::PadProbeReturn::Ok;
        };
        let kept = match &mut info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => keep(&probe, buffer),
            Some(gst::PadProbeData::BufferList(list)) => {
                let kept = list.iter_owned().filter_map(|mut buffer| {
                    let kept = keep(&probe, &mut buffer);
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
