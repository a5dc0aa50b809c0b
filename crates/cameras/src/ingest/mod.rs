//! One camera: connect, decode, hand frames over, and reconnect after every failure.
//!
//! Belongs here: how pictures get in. `session` decides (pure, takes `now`), `camera` acts, `gst` knows
//! GStreamer, `rtsp` has the conversation with a camera, `clock` maps RTP timestamps to capture time. Does not belong here: which frame is looked at (sampler), and
//! any queue: a `FrameSink` gets every frame in GStreamer's thread, must not block, and keeps only the newest.
//! Nothing outside of `gst` and `still` knows that GStreamer exists, except the function that takes its memory on a GPU over
//! ([`DeviceMap`], a parameter).

mod arrivals;
mod backlog;
mod camera;
mod clock;
mod gate;
mod gst;
mod health;
mod mark_queue;
mod nal;
mod probe;
mod rtsp;
mod senders;
mod sequence;
mod session;
mod source;
mod still;
mod transport;

pub use camera::{CameraHandle, spawn, spawn_with};
pub use clock::{ClockHealth, ClockNote};
#[cfg(test)]
pub use gst::picture_from_sample;
#[cfg(any(test, feature = "testing"))]
pub use gst::picture_on_device;
pub use gst::{DeviceMap, GstOpener, init as start_gstreamer};
pub use health::{Failure, Health, StreamInfo};
pub use probe::{ProbeReport, probe};
pub use source::{FrameSink, Opener, Progress, Source, SourceEvent, SourceOutlet};
pub use still::first_picture;
