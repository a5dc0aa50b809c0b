//! Where frames leave GStreamer: the probes along a pipeline and the appsink at its end.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::{AppSink, AppSinkCallbacks};
use gstreamer_video as video;
use tracing::{info, warn};

use super::{
    decoder::{Choice, Codec, Decoders, Decoding, bound_threads},
    device, named,
    picture::{DeviceMap, picture_from_sample, picture_on_device, scaled_size},
    tail::Place,
    tracker::{Kind, Tracker},
};
use crate::ingest::{
    gate::Gap,
    health::Failure,
    source::{Outlet, Progress, SourceEvent},
};
use spotter_core::{
    CameraId, Frame, LogThrottle, Mono, Picture, WallTime,
    config::{CameraConfig, Decode},
};

/// Watches one pipeline from the network to its end and hands its frames over.
pub struct FrameTap {
    outlet: Outlet,
    kind: Kind,
    width: u32,
    keyframes_only: bool,
    open: AtomicBool,
    pub(super) packet_told: AtomicBool,
    failed: AtomicBool,
    device: Option<DeviceMap>,
    lasting: Arc<Lasting>,
    books: Mutex<Books>,
}

/// What is remembered of a camera from one pipeline to the next.
#[derive(Default)]
pub struct Lasting {
    /// Its decoders.
    pub decoders: Decoders,
    told: Mutex<LogThrottle<Harm>>,
}

impl Lasting {
    /// With decoders of one's own.
    #[cfg(test)]
    pub fn of(decoders: Decoders) -> Self {
        Self {
            decoders,
            ..Self::default()
        }
    }
}

const BROKEN: &str = "the decoder found one broken, and no key frame came since";

const LATE: &str = "decoding fell behind, and no key frame came since; this machine has too much to do, so give the camera a \
                    smaller stream or decode = \"keyframes\"";

/// Why pictures are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    NotDecoded(Gap),
    Broken,
    Unusable,
}

pub(super) struct Books {
    pub(super) tracker: Tracker,
    decoding: Decoding,
    /// The pictures' memory on the GPU could not be taken over.
    refused: bool,
    pub(super) jitter_buffers: Vec<gst::glib::WeakRef<gst::Element>>,
    rejected: Rejected,
}

/// What was refused while connecting, because GStreamer's error that follows does not say.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    /// A video codec that cannot be decoded.
    pub codec: Option<String>,
    /// The certificate.
    pub certificate: bool,
    /// Nothing of the video: one stream was chosen to be set up.
    pub chosen: bool,
}

impl FrameTap {
    /// For one pipeline of the camera.
    pub fn new(
        outlet: Outlet,
        kind: Kind,
        camera: &CameraConfig,
        device: Option<DeviceMap>,
        lasting: Arc<Lasting>,
    ) -> Arc<Self> {
        Arc::new(Self {
            outlet,
            kind,
            width: camera.width,
            keyframes_only: camera.decode == Decode::KeyFrames,
            open: AtomicBool::new(true),
            packet_told: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            device,
            lasting,
            books: Mutex::new(Books {
                tracker: Tracker::new(kind),
                decoding: Decoding::default(),
                refused: false,
                jitter_buffers: Vec::new(),
                rejected: Rejected::default(),
            }),
        })
    }

    /// Whose frames.
    pub fn camera(&self) -> &CameraId {
        &self.outlet.camera
    }

    /// What the frames' times are known from.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Tells an event while the pipeline is wanted.
    pub fn tell(&self, event: SourceEvent) {
        if self.open.load(Ordering::Acquire) {
            self.outlet.tell(event);
        }
    }

    /// Tells the first failure; what follows from it is not told.
    pub fn fail(&self, failure: Failure) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.tell(SourceEvent::Failed(failure));
        }
    }

    /// Nothing is told and no frame handed over from now on.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Notes which decoder works.
    pub fn decoding_with(&self, codec: Codec, choice: &Choice) {
        let mut books = self.books();
        (books.decoding.hardware, books.decoding.place) = (choice.hardware, choice.place);
        books.tracker.stream.codec = Some(codec.as_str());
        books.tracker.stream.decoder = Some(choice.element.to_owned());
    }

    /// How pictures are decoded, and whether any came.
    pub fn decoding(&self) -> Decoding {
        let books = self.books();
        Decoding {
            seen: books.tracker.frames > 0,
            ..books.decoding
        }
    }

    /// Pictures in a GPU's memory can be handed over.
    pub fn may_stay_on_device(&self) -> bool {
        self.device.is_some()
    }

    /// Notes how RTP travels.
    pub fn travelling_by(&self, transport: &'static str) {
        self.books().tracker.stream.transport = Some(transport);
    }

    /// RTP comes inside of the RTSP connection, so both end together.
    pub fn travels_inside(&self) -> bool {
        self.books().tracker.stream.transport == Some("tcp")
    }

    /// Notes a video codec that cannot be decoded, for the message that follows.
    pub fn reject_codec(&self, name: &str) {
        self.books().rejected.codec = Some(name.to_owned());
    }

    /// Notes that the certificate was not accepted, for the message that follows.
    pub fn reject_certificate(&self) {
        self.books().rejected.certificate = true;
    }

    /// Notes that a video stream is to be set up.
    pub fn choose_stream(&self) {
        self.books().rejected.chosen = true;
    }

    /// What was refused.
    pub fn rejected(&self) -> Rejected {
        self.books().rejected.clone()
    }

    /// Which decoders this camera has.
    pub fn decoders(&self) -> &Decoders {
        &self.lasting.decoders
    }

    /// Gives up the decoder if an error is its own, and says so.
    pub fn blame(&self, of_decoder: bool, of_streaming: bool) -> Option<&'static str> {
        let (decoding, now) = (self.decoding(), self.now().0);
        let blamed = self
            .decoders()
            .blame(&decoding, of_decoder, of_streaming, now);
        if let Some(text) = blamed {
            info!(camera = %self.camera(), "{text}");
        }
        blamed
    }

    /// The decoder complained without failing.
    pub fn decoder_complained(&self) {
        let now = self.now().0;
        self.books().tracker.complained(now);
        self.tell_harm(Harm::Broken, BROKEN);
    }

    /// A decoder in hardware may hang without a word.
    fn watch_for_stuck_decoder(&self, now: Mono) {
        let stuck = {
            let books = self.books();
            let stuck = books.tracker.is_decoder_stuck(self.keyframes_only, now);
            stuck.then_some(books.decoding)
        };
        let blamed = stuck.and_then(|decoding| self.decoders().blame_stuck(&decoding, now));
        if let Some(text) = blamed {
            info!(camera = %self.camera(), "{text}");
            self.fail(device(text.into()));
        }
    }

    /// What was done so far.
    pub fn progress(&self) -> Progress {
        let now = self.now();
        self.watch_for_stuck_decoder(now.0);
        let (progress, buffers) = {
            let books = self.books();
            let progress = books.tracker.progress(now);
            (progress, books.jitter_buffers.clone())
        };
        // Asked outside of our lock: the element takes one of its own, and its thread may be waiting for ours.
        let lost = |buffer: &gst::glib::WeakRef<gst::Element>| {
            let stats = buffer.upgrade()?.property::<gst::Structure>("stats");
            stats.get::<u64>("num-lost").ok()
        };
        Progress {
            rtp_lost: buffers.iter().filter_map(lost).sum(),
            ..progress
        }
    }

    /// Takes the end of a pipeline: its scaler learns the size, and its appsink calls us.
    pub fn attach(self: &Arc<Self>, bin: &impl IsA<gst::Bin>) -> Result<(), Failure> {
        let size = named(bin, "size")?.downgrade();
        let tap = Arc::downgrade(self);
        if let Some(pad) = named(bin, "scale")?.static_pad("sink") {
            pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
                if let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view())
                    && let (Some(tap), Some(size)) = (tap.upgrade(), size.upgrade())
                {
                    tap.on_decoded_caps(caps.caps(), &size);
                }
                gst::PadProbeReturn::Ok
            });
        }
        let tap = Arc::downgrade(self);
        let on_sample = move |sink: &AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            if let Some(tap) = tap.upgrade() {
                tap.on_sample(&sample);
            }
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = named(bin, "sink")?
            .downcast::<AppSink>()
            .map_err(|_| device("sink is no appsink".into()))?;
        sink.set_callbacks(AppSinkCallbacks::builder().new_sample(on_sample).build());
        Ok(())
    }

    /// Bounds a decoder's threads, and watches what goes into it: key frames, codec, declared rate. With
    /// `decode = "keyframes"` the rest stays out.
    pub fn watch_decoder(self: &Arc<Self>, decoder: &gst::Element) {
        bound_threads(decoder);
        let Some(pad) = decoder.static_pad("sink") else {
            return;
        };
        let tap = Arc::downgrade(self);
        let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM;
        pad.add_probe(kinds, move |_, info| {
            let Some(tap) = tap.upgrade() else {
                return gst::PadProbeReturn::Ok;
            };
            if let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view()) {
                tap.on_encoded_caps(caps.caps());
            }
            match info.buffer() {
                Some(buffer) if tap.on_encoded(buffer) => gst::PadProbeReturn::Ok,
                // Consumed, which here is the same as dropped; `Drop` makes GStreamer 1.22 complain of a buffer that is gone.
                Some(_) => gst::PadProbeReturn::Handled,
                None => gst::PadProbeReturn::Ok,
            }
        });
    }

    /// Watches the decoder that decodebin chooses.
    pub fn watch_decodebin(self: &Arc<Self>, decodebin: &gst::Element) {
        let Some(bin) = decodebin.downcast_ref::<gst::Bin>() else {
            return;
        };
        let tap = Arc::downgrade(self);
        bin.connect_deep_element_added(move |_, _, element| {
            let Some(factory) = element.factory() else {
                return;
            };
            let class = factory.metadata("klass").unwrap_or_default();
            if class.contains("Decoder")
                && (class.contains("Video") || class.contains("Image"))
                && let Some(tap) = tap.upgrade()
            {
                tap.books().tracker.stream.decoder = Some(factory.name().into());
                tap.watch_decoder(element);
            }
        });
    }

    /// Watches a source of this machine, whose frames come whole.
    pub fn watch_local(self: &Arc<Self>, source: &gst::Element) {
        self.books().tracker.stream.codec = Some("raw");
        if let Some(pad) = source.static_pad("src") {
            self.sift(&pad, Self::on_whole);
        }
    }

    /// Keeps every frame.
    fn on_whole(&self, frame: &mut gst::Buffer) -> bool {
        if let Some(pts) = frame.pts() {
            let now = self.now();
            self.books().tracker.arrivals.whole(pts.into(), now);
        }
        true
    }

    /// False for a frame that is not to be decoded.
    fn on_encoded(&self, buffer: &gst::BufferRef) -> bool {
        if !self.packet_told.swap(true, Ordering::Relaxed) {
            self.tell(SourceEvent::FirstPacket);
        }
        let key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        let lost = buffer.flags().contains(gst::BufferFlags::DISCONT);
        let (pts, now) = (buffer.pts().map(Duration::from), self.now().0);
        let mut books = self.books();
        let harm = |tracker: &Tracker| tracker.corrupt + tracker.late;
        let harmed = harm(&books.tracker);
        let passes = books.tracker.encoded(pts, key, lost, now);
        let harmed = harm(&books.tracker) > harmed;
        let wanted = passes.is_ok() && (key || !self.keyframes_only);
        if wanted {
            books.tracker.fed(now);
        }
        drop(books);
        if let (Err(gap), true) = (passes, harmed) {
            let why = match gap {
                Gap::Lost => "packets were lost, and no key frame came since",
                Gap::Late => LATE,
            };
            self.tell_harm(Harm::NotDecoded(gap), why);
        }
        wanted
    }

    /// Once a minute and kind.
    fn tell_harm(&self, harm: Harm, why: &str) {
        let told = &self.lasting.told;
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(untold) = told.admit(harm, self.now().0) else {
            return;
        };
        let (camera, untold) = (self.camera(), (untold > 0).then_some(untold));
        warn!(%camera, untold, "pictures are left out: {why}");
    }

    fn on_encoded_caps(&self, caps: &gst::CapsRef) {
        let Some(structure) = caps.structure(0) else {
            return;
        };
        let rate = structure.get::<gst::Fraction>("framerate").ok();
        let tracker = &mut self.books().tracker;
        if let Some(codec) = Codec::from_media_type(structure.name()) {
            tracker.stream.codec = Some(codec.as_str());
        }
        tracker.declared(rate.map(|rate| (rate.numer(), rate.denom())));
    }

    /// The camera's size is known: asks for a smaller one when it is wider than wanted.
    fn on_decoded_caps(&self, caps: &gst::CapsRef, size: &gst::Element) {
        let Ok(info) = video::VideoInfo::from_caps(caps) else {
            return;
        };
        let camera_size = (info.width(), info.height());
        let place = {
            let mut books = self.books();
            books.tracker.stream.size = Some(camera_size);
            books.decoding.place
        };
        let wanted = place.caps(scaled_size(camera_size, self.width));
        size.set_property("caps", wanted);
    }

    fn on_sample(&self, sample: &gst::Sample) {
        if !self.open.load(Ordering::Acquire) {
            return;
        }
        let Some(buffer) = sample.buffer() else {
            return;
        };
        let pts = buffer.pts().map(Duration::from);
        let whole = !buffer.flags().contains(gst::BufferFlags::CORRUPTED);
        let now = self.now();
        if !self.books().tracker.pictured(pts, whole, now.0) {
            return self.tell_harm(Harm::Broken, BROKEN);
        }
        let picture = match self.picture(sample) {
            Ok(picture) => picture,
            Err(text) => {
                self.books().tracker.corrupt += 1;
                return self.tell_harm(Harm::Unusable, &text);
            }
        };
        let (times, key, camera_size, first) = {
            let mut books = self.books();
            let (times, key) = books.tracker.decoded(pts, self.now());
            let size = books.tracker.stream.size;
            (times, key, size, books.tracker.frames == 1)
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
        (self.outlet.sink)(frame);
        if first {
            self.tell(SourceEvent::FirstFrame);
        }
    }

    /// The sample's picture where it lies, or by way of the host when its memory on the GPU cannot be taken over.
    fn picture(&self, sample: &gst::Sample) -> Result<Picture, String> {
        let wanted = {
            let books = self.books();
            books.decoding.place == Place::Device && !books.refused
        };
        if let (true, Some(device)) = (wanted, self.device) {
            match picture_on_device(sample, device) {
                Ok(picture) => return Ok(picture),
                Err(text) => {
                    self.books().refused = true;
                    warn!(camera = %self.outlet.camera, "pictures come by way of the host: {text}");
                }
            }
        }
        picture_from_sample(sample)
    }

    /// What time it is.
    pub fn now(&self) -> (Mono, WallTime) {
        (self.outlet.clock.now(), self.outlet.clock.wall())
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
