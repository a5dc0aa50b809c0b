//! Running in the world: logs, metrics, the status page, systemd, signals.
//!
//! Belongs here: what an operator sees and does. Does not belong here: what the numbers mean to a stage; stages hand
//! plain numbers in. Imports no stage, only `domain` and `config`.

pub mod metrics;
pub mod notify;
pub mod page;
mod panics;
pub mod process;
pub mod shutdown;
pub mod telemetry;
pub mod window;
