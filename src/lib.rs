//! Spotter watches cameras with a Moondream-class vision-language model and publishes what it sees over MQTT.
//!
//! `docs/architecture.md` has the drawing from frame to message, the table of where each concept is, the invariants and the
//! threads.
//!
//! # One frame, from camera to broker
//!
//! ```text
//!  camera ──RTSP──▶ ingest ──Frame──▶ sampler ──Look──▶ engine ──Answer──▶ tracker ──Detection, Event──▶ publisher ──MQTT──▶
//! ```
//!
//! 1. GStreamer decodes a [`Frame`](spotter_core::Frame) and hands it to the camera's slot in the sampler
//!    ([`spotter_cameras`]). A newer frame replaces an older one.
//! 2. `app::looks` waits for a permit of the engine and *then* takes the newest frame with all prompts that are due: a
//!    [`Look`](spotter_core::Look). The image is encoded once for all of them.
//! 3. The engine's thread ([`spotter_engine`]) cuts looks into steps and launches the next step before it reads the results
//!    of the last one. Each prompt gets an [`Answer`](spotter_core::Answer).
//! 4. `app::in_order` passes answers on in the order of each topic's looks; [`spotter_events`] makes detections, events and
//!    states of them.
//! 5. [`spotter_mqtt`] keeps them until the broker has them, and makes the JSON.
//!
//! # Modules of the program
//!
//! | module | contents |
//! | --- | --- |
//! | [`app`] | the daemon: wiring, reload, supervision of cameras and engines |
//! | [`cli`] | the command line |
//! | [`ops`] | log, metrics, status page, signals, systemd |
//!
//! # Invariants
//!
//! - A crate never imports a later stage; two stages share types of [`spotter_core`] only.
//! - Decisions are pure and take `now`; only thin shells have a [`Clock`](spotter_core::Clock).
//! - The permit comes before the frame, every queue has a bound, and every loss is counted with its reason.
//! - With several GPUs each engine is a process: the driver fails all GPUs of a process together.
//! - [`app`] is the only module that sees every stage.
//! - Secrets have a type that cannot be printed, and the log masks them besides.

pub mod app;
pub mod cli;
pub mod ops;
