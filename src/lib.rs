//! Spotter watches cameras with a Moondream-class vision-language model and tells over MQTT what it sees.
//!
//! # How a frame becomes a message
//!
//! ```text
//!  camera ──RTSP──▶ ingest ──Frame──▶ sampler ──Look──▶ engine ──Answer──▶ track ──Detection─▶ publish ──MQTT──▶
//!                   GStreamer's       newest wins,      one thread         pure: filters,     outbox, topics,
//!                   threads           permit first      for each device    presence, counts   payloads
//! ```
//!
//! A [`Frame`](domain::Frame) is a decoded picture that nobody copies, but into the process of an engine where there are
//! several. A [`Look`](domain::Look) is a frame with every prompt that is due on it: the image is encoded once for all of
//! them. An [`Answer`](domain::Answer) is what the model said to one prompt, with the moments it passed on its way.
//!
//! Follow one frame: GStreamer hands it to `ingest::gst::frames`, which maps it and gives it to the sampler's slot of
//! the camera. `app::looks` waits for a permit of the engine, *then* asks [`sampler::Share::next`] for the newest
//! frame, and hands the look to [`front::handle::Permit::look`]; as many looks are under way as there are permits. The
//! engine's thread cuts them into steps ([`engine::schedule`]), and [`engine::worker`] keeps [`cpu::CpuBackend`] busy:
//! the next step is launched before the last one's results are read. `app::in_order` hands the outcomes of a camera on
//! in the order of its looks, `app::answer_router` passes the answers through [`track::Tracker`] and gives them to
//! [`publish::Publisher`], whose outbox holds them until the client library takes them: there they become JSON, and the
//! latency account is closed.
//!
//! # Crates
//!
//! | crate | what is in it | imports |
//! | --- | --- | --- |
//! | [`spotter_core`] | the nouns: ids, time, frame, prompt, look, answer, geometry; the configuration | none |
//! | [`spotter_engine`] | the model on its device: scheduler, KV cache, backends; all `unsafe` | core |
//! | [`spotter_cameras`] | RTSP to frames, and which frame is looked at | core |
//! | [`spotter_events`] | answers to tracks, events and presence; run-time overrides | core |
//! | [`spotter_mqtt`] | the wire contract, outbox, broker connection, Home Assistant | core |
//! | [`spotter_street`] | the drawn street of the demo, with its truth | core |
//! | `spotter` (here) | [`cli`], [`app`] (the daemon) and [`ops`] (logs, metrics, status page, systemd) | all of these |
//! | `spotter-scripted` | test doubles: a camera and a broker that misbehave as a script says | core |
//! | `spotter-lab` | benchmarks, accuracy, soak | all |
//!
//! # Invariants
//!
//! - A stage never imports another stage; what two of them share is a noun in `domain`. A test holds this.
//! - Decisions are pure and take `now`; only shells hold a [`Clock`](domain::Clock). Nothing else reads the time.
//! - No backlog can form: the permit comes before the frame, every queue has a bound, and what is lost is counted with
//!   its reason. Frames in = skipped + replaced + gated + late + looked + failed + waiting + in flight.
//! - An engine's thread owns the model on its device. Nothing on it is shared, so nothing on it is locked. With several
//!   GPUs each has its engine and its cameras, and fails alone: the driver fails all GPUs of a process together, so each of
//!   these threads is in a process of its own ([`front::inside`]), which belongs to the daemon and ends with it.
//! - `publish` is the only stage that knows what goes over MQTT, `front::wire` the only code that knows what goes between
//!   the daemon and the process of an engine.
//! - `publish::broker` is the only code that knows the MQTT client, `ingest::gst`, `demo` and, for buffers on a GPU,
//!   `cuda::foreign` the only ones that know GStreamer.
//! - `gauge` is the only code that knows NVML.
//! - `unsafe` lives in `cuda` alone, each block with the argument why it is sound.
//! - Secrets are of a type that cannot be printed, and the log masks them besides.

pub mod app;
pub mod cli;
pub mod ops;
