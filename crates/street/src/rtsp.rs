//! An RTSP camera on this machine whose pictures are drawn when they are due.
//!
//! The time handed to the drawing is the capture time that the camera publishes: a picture's PTS is the running time of
//! its drawing, and sender reports map running time to the wall clock without the encoder's delay in between.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use gstreamer::{self as gst, glib, prelude::*};
use gstreamer_app::{AppSrc, AppSrcCallbacks};
use gstreamer_rtsp_server::{self as rtsp_server, prelude::*};
use tracing::error;

use spotter_core::{Clock, WallTime};

/// Settings of the camera.
#[derive(Clone, Debug)]
pub struct StreetOptions {
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Path of the stream, e.g. `/street`.
    pub mount: String,
    /// Pixels across and down, even.
    pub size: (u32, u32),
    pub fps: u32,
    pub content: RtspContent,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub enum RtspContent {
    /// Packed I420 pictures, which are encoded to this rate.
    Pictures { kbit_per_s: u32 },
    /// Access units of H.264 with start codes, which are sent unchanged.
    Units,
}

/// Why the camera cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StreetError {
    #[error("GStreamer cannot start: {0}; install its base, good and ugly plugins")]
    GStreamer(#[from] glib::Error),
    #[error("the RTSP camera cannot listen on {0}: {1}; choose another address")]
    Listen(SocketAddr, glib::BoolError),
    #[error("the RTSP camera has no thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// The running camera; dropping it disconnects all viewers.
pub struct RtspStreet {
    main_loop: glib::MainLoop,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    mount: String,
}

impl RtspStreet {
    /// Starts listening. `draw` is called in a GStreamer thread when a picture is due, while a viewer is connected, with the
    /// time to draw; it returns the bytes of one picture or unit.
    pub fn start(
        options: StreetOptions,
        clock: Arc<dyn Clock>,
        draw: impl FnMut(WallTime) -> Vec<u8> + Send + 'static,
    ) -> Result<Self, StreetError> {
        gst::init()?;
        let server = rtsp_server::RTSPServer::new();
        server.set_address(&options.listen.ip().to_string());
        server.set_service(&options.listen.port().to_string());
        let factory = factory(&options, clock, draw);
        let mounts = rtsp_server::RTSPMountPoints::new();
        mounts.add_factory(&options.mount, factory);
        server.set_mount_points(Some(&mounts));

        // A context of its own, so that neither the program's nor another camera's loop is needed.
        let context = glib::MainContext::new();
        let main_loop = glib::MainLoop::new(Some(&context), false);
        let source = server
            .attach(Some(&context))
            .map_err(|e| StreetError::Listen(options.listen, e))?;
        let port = u16::try_from(server.bound_port()).unwrap_or_default();
        let own_loop = main_loop.clone();
        let thread = std::thread::Builder::new().name("street-rtsp".into());
        let thread = thread.spawn(move || serve(&context, &own_loop, &server, source))?;
        Ok(Self {
            main_loop,
            thread: Some(thread),
            address: SocketAddr::new(options.listen.ip(), port),
            mount: options.mount,
        })
    }

    /// `rtsp://` with the address on which it listens.
    pub fn url(&self) -> String {
        format!("rtsp://{}{}", self.address, self.mount)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RtspStreet {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Only a running loop can be quit, so a source inside of it does that. (`invoke` could run in this thread.)
        let main_loop = self.main_loop.clone();
        let quit = move || {
            main_loop.quit();
            glib::ControlFlow::Break
        };
        glib::idle_source_new(None, glib::Priority::DEFAULT, quit)
            .attach(Some(&self.main_loop.context()));
        if thread.join().is_err() {
            error!("RTSP server thread panicked; the street is no longer served");
        }
    }
}

fn serve(
    context: &glib::MainContext,
    main_loop: &glib::MainLoop,
    server: &rtsp_server::RTSPServer,
    source: glib::SourceId,
) {
    let served = context.with_thread_default(|| {
        main_loop.run();
        // Stop listening, disconnect, and process the events that follow.
        if let Some(source) = context.find_source_by_id(&source) {
            source.destroy();
        }
        server.client_filter(Some(&mut |_, _| rtsp_server::RTSPFilterResult::Remove));
        while context.iteration(false) {}
    });
    if let Err(e) = served {
        error!("the RTSP camera's loop belongs to another thread: {e}");
    }
}

fn factory(
    options: &StreetOptions,
    clock: Arc<dyn Clock>,
    draw: impl FnMut(WallTime) -> Vec<u8> + Send + 'static,
) -> rtsp_server::RTSPMediaFactory {
    let (width, height) = options.size;
    let fps = options.fps.max(1);
    let size = format!("width={width},height={height},framerate={fps}/1");
    let made = match options.content {
        RtspContent::Pictures { kbit_per_s } => {
            let key_every = fps * 2;
            format!(
                "caps=video/x-raw,format=I420,{size} \
                 ! x264enc tune=zerolatency speed-preset=veryfast bitrate={kbit_per_s} key-int-max={key_every} \
                 ! video/x-h264,profile=main"
            )
        }
        RtspContent::Units => {
            format!("caps=video/x-h264,stream-format=byte-stream,alignment=au,{size}")
        }
    };
    let factory = rtsp_server::RTSPMediaFactory::new();
    factory.set_shared(true);
    factory.set_launch(&format!(
        "( appsrc name=pictures is-live=true format=time block=false max-buffers=2 leaky-type=downstream \
         {made} ! h264parse ! rtph264pay name=pay0 pt=96 config-interval=-1 )"
    ));
    // Shared, because the first viewer after a pause gets a new pipeline of the same camera.
    let draw = Arc::new(Mutex::new(draw));
    factory.connect_media_configure(move |_, media| {
        let element = media.element();
        let pictures = element
            .downcast_ref::<gst::Bin>()
            .and_then(|bin| bin.by_name("pictures"))
            .and_then(|element| element.downcast::<AppSrc>().ok());
        let Some(pictures) = pictures else {
            error!("the RTSP camera's pipeline has no source");
            return;
        };
        let (clock, draw) = (clock.clone(), draw.clone());
        let interval = Duration::from_secs(1) / fps;
        let need_data = move |source: &AppSrc, _: u32| {
            push_when_due(source, interval, clock.as_ref(), |wall| {
                let mut draw = draw.lock().unwrap_or_else(PoisonError::into_inner);
                draw(wall)
            });
        };
        pictures.set_callbacks(AppSrcCallbacks::builder().need_data(need_data).build());
        media.connect_prepared(report_capture_times);
    });
    factory
}

/// Waits for the next multiple of the interval, draws and pushes. Runs in the appsrc's own thread; if the pipeline ends
/// meanwhile, it returns within one interval.
fn push_when_due(
    source: &AppSrc,
    interval: Duration,
    clock: &dyn Clock,
    draw: impl FnOnce(WallTime) -> Vec<u8>,
) {
    // A live source needs data only while it plays, so it has a running time.
    let running = source.current_running_time().unwrap_or_default();
    let late_ns = u128::from(running.nseconds()) % interval.as_nanos();
    std::thread::sleep(interval - Duration::from_nanos(late_ns as u64));
    let (running, wall) = both_clocks(source, clock);
    let mut buffer = gst::Buffer::from_mut_slice(draw(wall));
    if let Some(buffer) = buffer.get_mut() {
        buffer.set_pts(running);
        buffer.set_duration(gst::ClockTime::try_from(interval).ok());
    }
    // It fails only when the pipeline ends.
    let _ = source.push_buffer(buffer);
}

/// The pipeline's time and the wall clock's at one moment. A thread that was interrupted between the two readings reads
/// again; otherwise a picture would show another time than its PTS.
fn both_clocks(source: &AppSrc, clock: &dyn Clock) -> (Option<gst::ClockTime>, WallTime) {
    const TRIES: usize = 10;
    const APART_MAX: gst::ClockTime = gst::ClockTime::from_mseconds(1);
    let mut found = (None, clock.wall());
    for _ in 0..TRIES {
        let before = source.current_running_time();
        found = (before, clock.wall());
        let apart = source.current_running_time().zip(before);
        if apart.is_none_or(|(after, before)| after.saturating_sub(before) < APART_MAX) {
            break;
        }
    }
    found
}

/// Sender reports map to the time of drawing; by default they map to that of sending, with the encoder's delay. They are sent
/// every second instead of every five, so that a viewer soon knows the capture time.
fn report_capture_times(media: &rtsp_server::RTSPMedia) {
    let pipeline = media.element().parent();
    let Some(pipeline) = pipeline.and_then(|parent| parent.downcast::<gst::Bin>().ok()) else {
        return;
    };
    let elements = pipeline.iterate_elements().into_iter().flatten();
    let is_rtpbin = |element: &gst::Element| {
        let factory = element.factory();
        factory.is_some_and(|factory| factory.name() == "rtpbin")
    };
    for element in elements.filter(is_rtpbin) {
        element.set_property("rtcp-sync-send-time", false);
        let session =
            element.emit_by_name::<Option<glib::Object>>("get-internal-session", &[&0_u32]);
        if let Some(session) = session {
            session.set_property("rtcp-min-interval", 1_000_000_000_u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::SystemClock;

    #[test]
    fn an_immediate_drop_frees_the_port() {
        let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
        for _ in 0..20 {
            let options = StreetOptions {
                listen,
                mount: "/street".into(),
                size: (64, 48),
                fps: 5,
                content: RtspContent::Pictures { kbit_per_s: 100 },
            };
            let clock = Arc::new(SystemClock::new());
            let street = RtspStreet::start(options, clock, |_| vec![0; 64 * 48 * 3 / 2]).unwrap();
            listen = street.address();
            assert_eq!(street.url(), format!("rtsp://{listen}/street"));
        }
    }
}
