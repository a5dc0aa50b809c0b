//! Where frames leave GStreamer: the scaler and the appsink at the end of a pipeline.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::{AppSink, AppSinkCallbacks};
use gstreamer_video as video;
use tracing::{debug, warn};

use super::{
    PipelineProbes,
    context::FrameOmission,
    decode_queue::BROKEN,
    device, named,
    picture::{
        nvmm_colorimetry, picture_from_sample, picture_of_any_format, picture_on_device,
        scaled_size, with_colorimetry,
    },
    tail::{PictureMemory, is_in_nvmm},
};
use crate::ingest::{health::Failure, source::SourceEvent};
use spotter_core::{Frame, Picture};

impl PipelineProbes {
    /// Connects to the end of a pipeline: the scaler gets the size, and the appsink calls back.
    pub fn watch_pictures(self: &Arc<Self>, bin: &impl IsA<gst::Bin>) -> Result<(), Failure> {
        let size = named(bin, "size")?.downgrade();
        if let Some(pad) = named(bin, "scale")?.static_pad("sink") {
            self.watch_caps(&pad, move |pictures, caps| {
                if let Some(size) = size.upgrade() {
                    pictures.on_decoded_caps(caps, &size);
                }
            });
            self.watch_whole(&pad);
        }
        let pictures = Arc::downgrade(self);
        let on_sample = move |sink: &AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            if let Some(pictures) = pictures.upgrade() {
                pictures.on_sample(&sample);
            }
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = named(bin, "sink")?
            .downcast::<AppSink>()
            .map_err(|_| device("sink is no appsink".into()))?;
        sink.set_callbacks(AppSinkCallbacks::builder().new_sample(on_sample).build());
        Ok(())
    }

    /// The pictures that come to the scaler.
    fn watch_whole(self: &Arc<Self>, pad: &gst::Pad) {
        let pictures = Arc::downgrade(self);
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let (Some(pictures), Some(buffer)) = (pictures.upgrade(), info.buffer()) {
                pictures.on_decoded(pad, buffer);
            }
            gst::PadProbeReturn::Ok
        });
    }

    /// A person waits for a picture in full size. Where it cannot be read here, because it is in a Jetson's memory, that person gets the one
    /// behind the scaler.
    fn on_decoded(&self, pad: &gst::Pad, buffer: &gst::Buffer) {
        let Some(whole) = self.outlet.sink.wanted_whole() else {
            return;
        };
        let is_broken = buffer.flags().contains(gst::BufferFlags::CORRUPTED);
        let Some(caps) = pad.current_caps().filter(|_| self.is_open() && !is_broken) else {
            return;
        };
        let sample = gst::Sample::builder().buffer(buffer).caps(&caps).build();
        if is_in_nvmm(&caps) {
            return;
        }
        let on_device = self.decoder_status().place == PictureMemory::Device;
        let device = self.device.filter(|_| on_device);
        let picture = device.and_then(|device| picture_on_device(&sample, device).ok());
        match picture.map_or_else(|| picture_of_any_format(&sample), Ok) {
            Ok(picture) => whole.take_whole(picture),
            Err(text) => debug!(camera = %self.outlet.camera, "no picture in full size: {text}"),
        }
    }

    /// The camera's size is known: sets a smaller one at the scaler when the camera's is wider than wanted.
    fn on_decoded_caps(&self, caps: &gst::CapsRef, size: &gst::Element) {
        let Ok(info) = video::VideoInfo::from_caps(caps) else {
            return;
        };
        let (width, height) = (info.width(), info.height());
        let mut statistics = self.statistics();
        statistics.nvmm_colorimetry = nvmm_colorimetry(caps);
        statistics.stream.size = Some((width, height));
        let place = statistics.decoder.place;
        drop(statistics);
        let wanted_width = self.camera.frame_width().unwrap_or(u32::MAX);
        let wanted = place.caps(scaled_size(width, height, wanted_width));
        size.set_property("caps", wanted);
    }

    fn on_sample(&self, sample: &gst::Sample) {
        if !self.is_open() {
            return;
        }
        let Some(buffer) = sample.buffer() else {
            return;
        };
        let pts = buffer.pts().map(Duration::from);
        let whole = !buffer.flags().contains(gst::BufferFlags::CORRUPTED);
        let now = self.now().mono;
        if !self.statistics().pictured(pts, whole, now) {
            return self.warn_of(FrameOmission::Broken, BROKEN);
        }
        let picture = match self.picture(sample) {
            Ok(picture) => picture,
            Err(text) => {
                self.statistics().counters.frames_corrupt += 1;
                return self.warn_of(FrameOmission::Unusable, &text);
            }
        };
        let (times, key, camera_size, first) = {
            let mut statistics = self.statistics();
            let (times, key) = statistics.decoded(pts, self.now());
            let size = statistics.stream.size;
            (times, key, size, statistics.frames == 1)
        };
        let shown_size = (picture.width() as u32, picture.height() as u32);
        let frame = Frame {
            camera: self.outlet.camera.clone(),
            number: self.outlet.next_number(),
            camera_size: camera_size.unwrap_or(shown_size),
            key,
            times,
            picture,
        };
        self.outlet.sink.take(frame);
        if first {
            self.memory.transport().works();
            self.send(SourceEvent::FirstFrame);
        }
    }

    /// The sample's picture in the memory that has it, or copied to the host when its memory on the GPU cannot be taken over.
    fn picture(&self, sample: &gst::Sample) -> Result<Picture, String> {
        let on_device = self.decoder_status().place == PictureMemory::Device;
        if let (true, Some(device)) = (on_device, self.device)
            && !self.refused.load(Ordering::Relaxed)
        {
            match picture_on_device(sample, device) {
                Ok(picture) => return Ok(picture),
                Err(text) => {
                    self.refused.store(true, Ordering::Relaxed);
                    warn!(camera = %self.outlet.camera, "pictures are copied to the host instead of staying on the GPU: {text}");
                }
            }
        }
        let colorimetry = self.statistics().nvmm_colorimetry.clone();
        let named = colorimetry.and_then(|colorimetry| with_colorimetry(sample, &colorimetry));
        picture_from_sample(named.as_ref().unwrap_or(sample))
    }
}
