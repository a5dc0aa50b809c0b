//! GStreamer: one pipeline of one camera, built new for every connection.
//!
//! GStreamer's threads run the callbacks here; they check, note and hand over, and never wait. Closures hold the
//! pipeline weakly, because an element that owns its own pipeline is never freed.

mod context;
mod decode_queue;
mod decoder;
mod failure;
mod log;
mod packet;
mod packet_probe;
mod picture;
mod picture_sink;
mod sources;
mod statistics;
mod tail;

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex},
};

use gstreamer::{self as gst, prelude::*};
use tracing::error;

use self::{
    context::{CameraMemory, PipelineProbes},
    decoder::Decoders,
    statistics::SourceKind,
    tail::PictureMemory,
};
use super::{
    health::Failure,
    rtsp::register_socket_types,
    source::{Opener, Progress, Source, SourceEvent, SourceOutlet},
    transport::TransportChoice,
};
use crate::lock;
use spotter_config::{CameraConfig, SourceConfig, Transport};
use spotter_core::StreamFault;

#[cfg(any(test, feature = "testing"))]
pub use picture::picture_on_device;
pub use picture::{DeviceMap, picture_from_sample};
pub(super) use sources::file_pipeline;

#[cfg(test)]
pub(super) use decoder::DecoderChain;

/// More than a pipeline and its relay need, because others may start at the same time.
const SPARE_DESCRIPTORS: usize = 64;

const DECODEBIN: &str = include_str!("../../../../pipelines/decodebin.launch");

/// Starts GStreamer and forwards its log; any number of times.
pub fn init() -> Result<(), Failure> {
    log::forward();
    gst::init().map_err(|e| device(format!("GStreamer cannot start: {e}")))?;
    register_socket_types();
    Ok(())
}

/// Makes the pipelines of one camera.
pub struct GstOpener {
    camera: CameraConfig,
    device: Option<DeviceMap>,
    memory: Arc<CameraMemory>,
}

impl GstOpener {
    /// For the camera as configured. Does nothing yet. With a `device`, frames that are decoded on a GPU stay there.
    pub fn new(camera: CameraConfig, device: Option<DeviceMap>) -> Self {
        Self::build(camera, device, Decoders::default())
    }

    /// With the decoders of a test.
    #[cfg(test)]
    pub fn with_decoders(camera: CameraConfig, chains: &'static [DecoderChain]) -> Self {
        Self::build(camera, None, Decoders::of(chains))
    }

    /// True when the sender may report its clock.
    pub fn has_sender_reports(&self) -> bool {
        SourceKind::of(&self.camera.source) == SourceKind::Network
    }

    /// After a failure: the next source is connected in another way than the last one, for example over UDP instead of TCP.
    pub fn has_alternative(&self) -> bool {
        self.memory.transport().will_change()
    }

    fn build(camera: CameraConfig, device: Option<DeviceMap>, decoders: Decoders) -> Self {
        let transport = match &camera.source {
            SourceConfig::Rtsp(settings) => settings.transport,
            _ => Transport::Tcp,
        };
        let transport = TransportChoice::new(transport);
        Self {
            memory: Arc::new(CameraMemory::new(decoders, transport)),
            camera,
            device,
        }
    }
}

impl Opener for GstOpener {
    fn open(&self, outlet: SourceOutlet) -> Result<Arc<dyn Source>, Failure> {
        init()?;
        check_for_descriptors()?;
        let probes = PipelineProbes::new(outlet, self);
        let pipeline = sources::build(&probes)?;
        watch_bus(&pipeline, &probes);
        let source = GstSource { pipeline, probes };
        match source.pipeline.set_state(gst::State::Playing) {
            Ok(_) => Ok(Arc::new(source)),
            Err(_) => {
                source.stop();
                let name = self.camera.source.name();
                let text =
                    format!("{name} cannot be started; check that it exists and is readable");
                Err(device(text))
            }
        }
    }

    fn requested(&self) {
        lock(&self.memory.connections).begin_again();
    }
}

/// Without descriptors, GLib ends the process when it makes a main context, and threads of GStreamer try again without a pause:
/// a pipeline is begun only when there are enough. One camera looks at a time: two would take the spare ones from each other.
fn check_for_descriptors() -> Result<(), Failure> {
    static LOOKING: Mutex<()> = Mutex::new(());
    let _looking = lock(&LOOKING);
    let spare = (0..SPARE_DESCRIPTORS).map(|_| File::open("/dev/null"));
    let spare: io::Result<Vec<File>> = spare.collect();
    spare.map(drop).map_err(|e| {
        device(format!("{e}: this process has too few free descriptors for a camera; raise its limit (LimitNOFILE of the service)"))
    })
}

struct GstSource {
    pipeline: gst::Pipeline,
    probes: Arc<PipelineProbes>,
}

impl Source for GstSource {
    fn progress(&self) -> Progress {
        let now = self.probes.now();
        self.probes.check_for_stuck_decoder(now.mono);
        self.probes.statistics().progress(now)
    }

    fn rewind(&self) -> Result<(), Failure> {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT;
        self.pipeline
            .seek_simple(flags, gst::ClockTime::ZERO)
            .map_err(|_| device("the file cannot be played from its start".into()))
    }

    fn stop(&self) {
        self.probes.close();
        sources::rtsp::limit_teardown(&self.pipeline);
        if self.pipeline.set_state(gst::State::Null).is_err() {
            error!(camera = %self.probes.outlet.camera, "a pipeline did not stop cleanly");
        }
        if let Some(bus) = self.pipeline.bus() {
            bus.unset_sync_handler();
        }
        self.probes.keep_relay(None);
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
    Failure::new(StreamFault::Device, text)
}

/// Whether GStreamer has the element.
fn exists(element: &str) -> bool {
    gst::ElementFactory::find(element).is_some()
}

/// Fills the `{name}` placeholders of a launch text in `pipelines`, whose comment lines are left out. URLs, paths and logins are
/// never filled in, because their text could become an element: they are set as properties of the element named `source`.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let lines = template.lines().filter(|line| !line.starts_with('#'));
    let text = lines.collect::<Vec<_>>().join(" ");
    values.iter().fold(text, |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

/// What the `source` element gives, decoded by decodebin. With `sync`, frames come at the speed of their times.
fn decodebin(source: &str, sync: bool) -> Result<gst::Pipeline, Failure> {
    let frames = PictureMemory::Host.launch(None, sync);
    let text = fill(DECODEBIN, &[("source", source), ("frames", &frames)]);
    let pipeline = parse("decodebin.launch", &text)?;
    link_decoded(&pipeline)?;
    Ok(pipeline)
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

/// Links decodebin's first video pad to the tail when it appears. Sound is not decoded and left unlinked, which
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
fn watch_bus(pipeline: &gst::Pipeline, probes: &Arc<PipelineProbes>) {
    let Some(bus) = pipeline.bus() else { return };
    let probes = Arc::downgrade(probes);
    bus.set_sync_handler(move |_, message| {
        let Some(probes) = probes.upgrade() else {
            return gst::BusSyncReply::Drop;
        };
        match message.view() {
            gst::MessageView::Error(message) => {
                let of_decoder = is_of_decoder(message.src());
                let of_streaming = message.error().kind::<gst::ResourceError>().is_none();
                let failure = match probes.give_up_decoder(of_decoder, of_streaming) {
                    Some(text) => device(text.into()),
                    None => {
                        if probes.suspected_codec().is_some() {
                            // Packets came: another transport would change nothing.
                            probes.memory.transport().works();
                        }
                        failure::of_stream(sources::failure_of(message, &probes), &probes)
                    }
                };
                probes.fail(failure);
            }
            gst::MessageView::Warning(message) if is_of_decoder(message.src()) => {
                probes.decoder_warned();
            }
            gst::MessageView::Eos(_) if probes.kind == SourceKind::File => {
                probes.send(SourceEvent::Ended);
            }
            // A live source has no end: the camera or a box on the way closed the connection.
            gst::MessageView::Eos(_) => probes.fail(Failure::ended()),
            _ => {}
        }
        gst::BusSyncReply::Drop
    });
}

fn is_of_decoder(element: Option<&gst::Object>) -> bool {
    element.is_some_and(|element| element.name() == "decoder")
}
