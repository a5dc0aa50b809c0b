//! Operations: logs, figures of the machine, systemd, signals.
//!
//! Belongs here: what an operator sees and does, and figures of the machine. Does not belong here: how the numbers of a stage come about.
//! Imports the types that are published (`spotter-core`, `spotter-mqtt`) and no stage, but for the engine's test for a Jetson.

pub mod gpu_stats;
pub mod machine;
pub mod notify;
mod panics;
pub mod process;
pub mod secret_list;
pub mod shutdown;
pub mod strain;
mod tegra;
pub mod telemetry;
