//! Operations: logs, metrics, the status page, systemd, signals.
//!
//! Belongs here: what an operator sees and does. Does not belong here: how the numbers come about. Imports the types that are
//! published (`spotter-core`, `spotter-mqtt`) and no stage.

pub mod facts;
pub mod machine;
pub mod metrics;
pub mod notify;
pub mod page;
mod panics;
pub mod process;
pub mod readiness;
pub mod shutdown;
pub mod telemetry;
pub mod window;
