//! Commands, and what they and modes change: values over those of the file while Spotter runs.
//!
//! ```text
//!   file, fleet's list ─▶ ┌─────────────┐
//!   command, mode ──────▶ │ ConfigStore │ ──ConfigChange──▶ every stage
//!   time ───────────────▶ └─────────────┘ ──overrides──▶ the state database, the fleet's store
//! ```
//!
//! | part | what it is |
//! | --- | --- |
//! | `command` | all commands |
//! | `config_store` | the file, its active mode and what commands changed, as every stage sees it |
//! | `modes` | which mode is active, by command or schedule, and the file's cameras in it |
//! | `override_set` | values that survive a restart, each with the file's value at that time |
//! | `prompt_rule` | which prompts the model can answer |
//! | `temporary` | prompts and rates that a command adds for a while |
//! | `settings` | which values a command may change, and their ranges |
//! | `revisions` | a number for each prompt that rises with its text |
//! | `stored_overrides` | overrides and revisions as text |
//!
//! Belongs here: which value may be changed to what, and what applies when the file changes later. Does not belong here: how
//! a command arrives and is answered (`crates/mqtt`), what is done with a changed camera (`src/app`), and the disk
//! (`crates/state`). All of it is pure and takes `now`.

mod command;
mod config_store;
mod modes;
mod override_set;
mod prompt_rule;
mod refusal;
mod revisions;
mod settings;
mod stored_overrides;
mod temporary;

pub use command::{Command, LogLevel, NewPrompt, RequestedInfo, camera_id, prompt_id};
pub use config_store::{ChangeResult, ConfigStore, FleetOwner, ShapesReport};
pub use override_set::Override;
pub use prompt_rule::{PromptRule, RefusedPrompt};
pub use refusal::{Refusal, RefusalCode, RefusalDetails, shown};
pub use stored_overrides::{ReadOverrides, StoredOverrides};
