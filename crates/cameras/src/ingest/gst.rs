//! GStreamer: one pipeline of one camera, built new for every connection.
//!
//! GStreamer's threads run the callbacks here; they check, note and hand over, and never wait. Closures hold the
//! pipeline weakly, because an element that owns its own pipeline is never freed.

mod decoder;
mod failure;
mod frames;
mod log;
mod packet;
mod picture;
mod rtsp;
mod tail;
mod tracker;
mod wire;

use std::{path::Path, sync::Arc};

use gstreamer::{self as gst, prelude::*};
use tracing::error;

use self::{
    frames::{FrameTap, Lasting},
    tail::Place,
    tracker::Kind,
};
use super::{
    health::{Failure, Fault},
    source::{Opener, Outlet, Progress, Source, SourceEvent},
    template::{Value, fill},
};
use spotter_core::config::{CameraConfig, SourceConfig as Origin};

pub use picture::DeviceMap;
pub(super) use picture::picture_from_sample;
#[cfg(any(test, feature = "testing"))]
pub use picture::picture_on_device;

const FILE: &str = include_str!("../../../../pipelines/file.launch");
const USB: &str = include_str!("../../../../pipelines/usb.launch");
const TEST: &str = include_str!("../../../../pipelines/test.launch");

/// Starts GStreamer, with its log in ours; any number of times.
pub fn init() -> Result<(), Failure> {
    log::forward();
    gst::init().map_err(|e| device(format!("GStreamer cannot start: {e}")))
}

/// Makes the pipelines of one camera.
pub struct GstOpener {
    camera: CameraConfig,
    device: Option<DeviceMap>,
    lasting: Arc<Lasting>,
}

impl GstOpener {
    /// For the camera as configured. Does nothing yet. With a `device`, frames stay on the GPU where they are decoded there.
    pub fn new(camera: CameraConfig, device: Option<DeviceMap>) -> Self {
        Self {
            camera,
            device,
            lasting: Arc::default(),
        }
    }

    /// With decoders of one's own.
    #[cfg(test)]
    pub fn with_decoders(camera: CameraConfig, candidates: decoder::Candidates) -> Self {
        let decoders = decoder::Decoders::of(candidates);
        Self {
            lasting: Arc::new(Lasting::of(decoders)),
            ..Self::new(camera, None)
        }
    }
}

impl Opener for GstOpener {
    fn open(&self, attempt: u32, outlet: Outlet) -> Result<Arc<dyn Source>, Failure> {
        init()?;
        let kind = match self.camera.source {
            Origin::Rtsp { .. } => Kind::Network,
            Origin::File { .. } => Kind::File,
            Origin::Usb { .. } | Origin::Test => Kind::Local,
        };
        let lasting = Arc::clone(&self.lasting);
        let tap = FrameTap::new(outlet, kind, &self.camera, self.device, lasting);
        let pipeline = match &self.camera.source {
            Origin::Rtsp { .. } => rtsp::build(&self.camera, attempt, &tap)?,
            Origin::File { path, .. } => file(path, &tap)?,
            Origin::Usb { device } => usb(device, &tap)?,
            Origin::Test => test(&tap)?,
        };
        watch_bus(&pipeline, &tap, &self.camera.source);
        let source = GstSource { pipeline, tap };
        match source.pipeline.set_state(gst::State::Playing) {
            Ok(_) => Ok(Arc::new(source)),
            Err(_) => {
                source.stop();
                let text = format!(
                    "{} cannot be started; check that it exists and may be read",
                    failure::origin(&self.camera.source)
                );
                Err(device(text))
            }
        }
    }
}

struct GstSource {
    pipeline: gst::Pipeline,
    tap: Arc<FrameTap>,
}

impl Source for GstSource {
    fn progress(&self) -> Progress {
        self.tap.progress()
    }

    fn rewind(&self) -> Result<(), Failure> {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT;
        self.pipeline
            .seek_simple(flags, gst::ClockTime::ZERO)
            .map_err(|_| Failure::new(Fault::Device, "the file cannot be played from its start"))
    }

    fn stop(&self) {
        self.tap.close();
        rtsp::hurry(&self.pipeline);
        if self.pipeline.set_state(gst::State::Null).is_err() {
            error!(camera = %self.tap.camera(), "a pipeline did not stop cleanly");
        }
        if let Some(bus) = self.pipeline.bus() {
            bus.unset_sync_handler();
        }
    }
}

impl Drop for GstSource {
    /// A pipeline must never be dropped while it plays; after [`Source::stop`] this does nothing.
    fn drop(&mut self) {
        if self.pipeline.current_state() != gst::State::Null {
            self.stop();
        }
    }
}

fn device(text: String) -> Failure {
    Failure::new(Fault::Device, text)
}

/// The tail that every pipeline ends with.
fn frames_text(place: Place, sync: bool) -> Result<String, Failure> {
    let text = place.launch(sync);
    text.map_err(|e| device(format!("frames.launch: {e}")))
}

fn launch(name: &str, template: &str, sync: bool) -> Result<gst::Pipeline, Failure> {
    let frames = frames_text(Place::Host, sync)?;
    let text = fill(template, &[("frames", Value::Elements(&frames))])
        .map_err(|e| device(format!("{name}: {e}")))?;
    parse(name, &text)
}

fn parse(name: &str, text: &str) -> Result<gst::Pipeline, Failure> {
    let element = gst::parse::launch(text).map_err(|e| {
        device(format!(
            "{name} cannot be built: {e}; are all GStreamer plugins installed?"
        ))
    })?;
    element
        .downcast()
        .or_else(|element: gst::Element| {
            // A template with a single element gives that element alone.
            let pipeline = gst::Pipeline::new();
            pipeline.add(&element).map(|()| pipeline)
        })
        .map_err(|_| device(format!("{name} gives no pipeline")))
}

fn named(bin: &impl IsA<gst::Bin>, name: &str) -> Result<gst::Element, Failure> {
    bin.by_name(name)
        .ok_or_else(|| device(format!("the pipeline has no element named {name}")))
}

/// A file in its container. Also the pipeline for stills, so it is shared with [`super::still`].
pub(super) fn file_pipeline(path: &Path, sync: bool) -> Result<gst::Pipeline, Failure> {
    let shown = path.display();
    if let Err(e) = std::fs::File::open(path) {
        let text = format!("file {shown} cannot be read: {e}");
        return Err(Failure::new(Fault::NotFound, text));
    }
    let pipeline = launch("file.launch", FILE, sync)?;
    named(&pipeline, "source")?.set_property("location", path);
    link_decoded(&pipeline)?;
    Ok(pipeline)
}

fn file(path: &Path, tap: &Arc<FrameTap>) -> Result<gst::Pipeline, Failure> {
    let pipeline = file_pipeline(path, true)?;
    tap.watch_decodebin(&named(&pipeline, "decode")?);
    tap.attach(&pipeline)?;
    Ok(pipeline)
}

fn usb(device: &Path, tap: &Arc<FrameTap>) -> Result<gst::Pipeline, Failure> {
    let pipeline = launch("usb.launch", USB, false)?;
    let source = named(&pipeline, "source")?;
    source.set_property("device", device.to_string_lossy().as_ref());
    link_decoded(&pipeline)?;
    tap.watch_decodebin(&named(&pipeline, "decode")?);
    tap.watch_local(&source);
    tap.attach(&pipeline)?;
    Ok(pipeline)
}

fn test(tap: &Arc<FrameTap>) -> Result<gst::Pipeline, Failure> {
    let pipeline = launch("test.launch", TEST, false)?;
    tap.watch_local(&named(&pipeline, "source")?);
    tap.attach(&pipeline)?;
    Ok(pipeline)
}

/// Links decodebin's first video pad to the tail when it appears. Sound is taken as it is and left unlinked, which
/// costs nothing and ends nothing while the video is linked.
fn link_decoded(pipeline: &gst::Pipeline) -> Result<(), Failure> {
    let scale = named(pipeline, "scale")?.downgrade();
    let decode = named(pipeline, "decode")?;
    decode.connect("autoplug-continue", false, |values| {
        let caps = values.get(2)?.get::<gst::Caps>().ok()?;
        Some((!media_type(&caps).starts_with("audio/")).to_value())
    });
    decode.connect_pad_added(move |_, pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        let sink = scale.upgrade().and_then(|scale| scale.static_pad("sink"));
        if media_type(&caps) == "video/x-raw"
            && let Some(sink) = sink.filter(|sink| !sink.is_linked())
            && let Err(e) = pad.link(&sink)
        {
            error!("decoded video cannot be linked: {e}");
        }
    });
    Ok(())
}

fn media_type(caps: &gst::Caps) -> &str {
    caps.structure(0).map_or("", |first| first.name().as_str())
}

/// Turns the pipeline's messages into events, in the thread that posts them. Nothing is left on the bus.
fn watch_bus(pipeline: &gst::Pipeline, tap: &Arc<FrameTap>, origin: &Origin) {
    let Some(bus) = pipeline.bus() else { return };
    let (tap, origin) = (Arc::downgrade(tap), origin.clone());
    bus.set_sync_handler(move |_, message| {
        let Some(tap) = tap.upgrade() else {
            return gst::BusSyncReply::Drop;
        };
        match message.view() {
            gst::MessageView::Error(message) => {
                let of_decoder = is_of_decoder(message.src());
                let of_streaming = message.error().kind::<gst::ResourceError>().is_none();
                let failure = match tap.blame(of_decoder, of_streaming) {
                    Some(text) => device(format!("{}: {text}", failure::origin(&origin))),
                    None => failure::from_message(message, &origin, &tap.rejected()),
                };
                tap.fail(failure);
            }
            gst::MessageView::Warning(message) if is_of_decoder(message.src()) => {
                tap.decoder_complained();
            }
            gst::MessageView::Eos(_) if tap.kind() == Kind::File => tap.tell(SourceEvent::Ended),
            // A live source has no end: the camera or a box on the way closed the connection.
            gst::MessageView::Eos(_) => tap.fail(failure::ended(&origin)),
            // The same before anything was there that could come to its end.
            gst::MessageView::Warning(message)
                if message.error().matches(gst::ResourceError::Read)
                    && tap.travels_inside()
                    && !tap.decoding().seen =>
            {
                tap.fail(failure::ended(&origin));
            }
            _ => {}
        }
        gst::BusSyncReply::Drop
    });
}

fn is_of_decoder(element: Option<&gst::Object>) -> bool {
    element.is_some_and(|element| element.name() == "decoder")
}

#[cfg(test)]
mod tests;
