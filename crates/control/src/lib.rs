//! Overrides: values that commands set while Spotter runs, over those of the file and its active mode.
//!
//! ```text
//!   file ──▶ ModeSwitch ──cameras──▶ ┌──────────────────┐
//!   command ───────────────────────▶ │ EffectiveCameras │ ──cameras──▶ every stage
//!   time ──────────────────────────▶ └──────────────────┘ ──overrides──▶ the state database
//! ```
//!
//! | part | what it is |
//! | --- | --- |
//! | `command` | all commands |
//! | `effective_cameras` | the file's cameras with everything that commands changed |
//! | `modes` | which mode is active, by command or schedule, and the file's cameras in it |
//! | `override_set` | values that survive a restart, each with the file's value at that time |
//! | `temporary` | prompts and rates that a command adds for a while |
//! | `settings` | which values a command may change, and their ranges |
//! | `revisions` | a number for each prompt that rises with its text |
//! | `stored_overrides` | overrides and revisions as text |
//! | `request_history` | requests that arrive twice, by their ids |
//!
//! Belongs here: which value may be changed to what, and what applies when the file changes later. Does not belong here: how
//! a command arrives and is answered (`crates/mqtt`), what is done with a changed camera (`src/app`), and the disk
//! (`crates/state`). All of it is pure and takes `now`.

mod command;
mod effective_cameras;
mod modes;
mod override_set;
mod refusal;
mod request_history;
mod revisions;
mod settings;
mod stored_overrides;
mod temporary;

pub use command::{Command, LogLevel, NewPrompt, RequestedInfo, camera_id, prompt_id};
pub use effective_cameras::{EffectiveCameras, OverrideEffect};
pub use modes::{ModeChoice, ModeSwitch, StoredMode, active_mode};
pub use override_set::{DiscardedOverride, Override, OverrideSet};
pub use refusal::{Refusal, RefusalCode, shown};
pub use request_history::{RequestHistory, RequestStatus};
pub use revisions::RevisionRecord;
pub use settings::current_setting;
pub use stored_overrides::{DroppedRecord, ReadOverrides, StoredOverrides};
