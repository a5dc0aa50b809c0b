//! Where packets are watched: as they come from the network, where those of other senders are dropped, and as they leave the
//! jitter buffer in their turn. The control packets' sender reports too.
//!
//! Here is no decision; those are pure, in `senders`, `sequence`, `mark_queue`, `nal` and `clock`.

use std::sync::{Arc, Mutex, Weak};

use gstreamer::{self as gst, prelude::*};

use super::{
    PipelineProbes,
    decoder::Codec,
    failure,
    packet::{
        clear_mark, control_sender, rename, rename_control, rtp_header, rtp_payload, sender_report,
    },
};
use crate::{
    ingest::{mark_queue::MarkQueue, senders::PacketDecision},
    lock,
};

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

    /// Calls back with each kind of buffers that comes to the pad.
    pub fn watch_caps(
        self: &Arc<Self>,
        pad: &gst::Pad,
        on_caps: impl Fn(&Self, &gst::CapsRef) + Send + Sync + 'static,
    ) {
        let probe = Arc::downgrade(self);
        pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
            if let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view())
                && let Some(probe) = probe.upgrade()
            {
                on_caps(&probe, caps.caps());
            }
            gst::PadProbeReturn::Ok
        });
    }

    fn watch_jitter_buffer(self: &Arc<Self>, element: &gst::Element) {
        let probe = Arc::downgrade(self);
        element.connect("handle-sync", false, move |values| {
            let structure = values.get(1)?.get::<gst::Structure>().ok()?;
            let probe = probe.upgrade()?;
            let report = sender_report(&structure, probe.now().mono)?;
            probe.statistics().clock.on_report(report);
            None
        });
    }

    /// The sink of a depayloader of this codec, behind the jitter buffer, where packets have a PTS: each frame gets its own, and a
    /// mark goes on only where it ends a frame.
    pub fn depayloader_sink(
        self: &Arc<Self>,
        depayloader: &gst::Element,
        codec: &Codec,
    ) -> Option<gst::GhostPad> {
        let queue = Mutex::new(MarkQueue::new(codec.nal.is_some()));
        let turn = Arc::new(PacketTurn {
            probes: Arc::downgrade(self),
            queue,
        });
        let of_list = Arc::clone(&turn);
        let sink = depayloader.static_pad("sink")?;
        gst::GhostPad::builder_with_target(&sink)
            .ok()?
            .name("sink")
            .chain_function(move |pad, parent, packet| turn.packet(pad, parent, packet))
            .chain_list_function(move |pad, parent, list| {
                let mut packets = list.iter_owned();
                packets.try_fold(gst::FlowSuccess::Ok, |_, packet| {
                    of_list.packet(pad, parent, packet)
                })
            })
            .build()
            .into()
    }

    /// False for a packet of another sender. What is no RTP is left to the elements behind.
    fn on_packet(&self, packet: &mut gst::Buffer) -> bool {
        let Some((ssrc, header)) = rtp_header(packet) else {
            return true;
        };
        let decision = self.statistics().packet(ssrc, header, self.now());
        if let PacketDecision::Rename { ssrc, seq, .. } = decision {
            rename(packet.make_mut(), ssrc, seq);
        }
        decision != PacketDecision::Drop
    }

    /// Sets the PTS of the packet's own frame. True when the packet has a mark.
    fn in_turn(&self, packet: &mut gst::Buffer) -> bool {
        self.packet_came();
        let Some((_, header)) = rtp_header(packet) else {
            return false;
        };
        if let Some(pts) = packet.pts() {
            let now = self.now();
            let own_pts = self.statistics().in_turn(header, pts.into(), now);
            if let Ok(own_pts) = gst::ClockTime::try_from(own_pts)
                && own_pts != pts
            {
                packet.make_mut().set_pts(own_pts);
            }
        }
        header.marked
    }

    /// Fails the pipeline of a camera that does not send the codec that it announced.
    fn check_codec(&self, packet: &gst::BufferRef) {
        let Ok(bytes) = packet.map_readable() else {
            return;
        };
        let payload = rtp_payload(&bytes).unwrap_or_default();
        let mut statistics = self.statistics();
        let check = statistics.codec_check.as_mut();
        let found = check.and_then(|check| check.packet(payload));
        drop(statistics);
        if let Some((announced, sent)) = found {
            self.memory.transport().works();
            self.fail(failure::other_codec(self, announced, sent));
        }
    }

    fn on_control(&self, packet: &mut gst::Buffer) -> bool {
        let Some(ssrc) = control_sender(packet) else {
            return true;
        };
        match self.statistics().senders.control(ssrc) {
            Some(shown) if shown != ssrc => rename_control(packet.make_mut(), shown),
            Some(_) => {}
            None => return false,
        }
        true
    }
}

/// What is between the jitter buffer and a depayloader.
struct PacketTurn {
    probes: Weak<PipelineProbes>,
    queue: Mutex<MarkQueue<gst::Buffer>>,
}

impl PacketTurn {
    fn packet(
        &self,
        pad: &gst::GhostPad,
        parent: Option<&gst::Object>,
        mut packet: gst::Buffer,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        let Some(probes) = self.probes.upgrade() else {
            return Err(gst::FlowError::Flushing);
        };
        probes.check_codec(&packet);
        let marked = probes.in_turn(&mut packet);
        lock(&self.queue).push(packet, marked);
        let next = || {
            // What is known of marks may change with each packet that goes on.
            let marks = probes.statistics().sequence.marks();
            lock(&self.queue).pop(marks)
        };
        while let Some((mut packet, shows_mark)) = next() {
            if !shows_mark {
                clear_mark(&mut packet);
            }
            gst::ProxyPad::chain_default(pad, parent, packet)?;
        }
        Ok(gst::FlowSuccess::Ok)
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
