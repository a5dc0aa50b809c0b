//! The configuration file: read, checked, and turned into [`Config`], which holds only valid values.
//!
//! Belongs here: keys, defaults, ranges, secrets, messages. Does not belong here: run-time changes (`spotter_events::overrides`) and the
//! diff of a reload. The program sees [`Config`] alone.
//!
//! One mechanism does it all: a `Reader` goes through a table of the parsed file, typed getters note every problem
//! with its place, and the keys that were not read are unknown ones. So each key is named once, in the code that
//! gives it a meaning (`sections`, `camera`), and [`load()`] reports all problems of a file together.
//!
//! Secrets are named, not written: `{ env = ".." }`, `{ cred = ".." }` (systemd; `cred_file` for PEM keys) or
//! `{ file = ".." }`. `allow_plain_secrets = true` at the top of the file allows them in the file, with a warning.
//! [`check`] differs from [`load()`] in one thing: what the file names on its own machine (secrets, certificates, the
//! model) may be absent, with a warning. Relative paths start at the file's directory.

pub mod advice;
pub mod defaults;

mod adapter;
mod address;
mod api;
mod broker_access;
mod camera;
mod camera_list;
mod change;
mod choices;
mod crops;
mod dwell;
mod environment;
mod fleet;
mod keys;
mod load;
mod modes;
mod parse;
mod polygon;
mod problem;
mod prompt_keys;
mod reader;
mod reference;
mod region;
mod schedule;
mod secret;
mod sections;
mod source;
mod strip;
mod syntax;
mod trigger;
mod types;
mod webhook;

#[cfg(test)]
mod tests;

pub use address::is_loopback;
pub use api::ApiConfig;
pub use broker_access::{BrokerOptions, DEFAULT_BASE, PASSWORD_VARIABLE};
pub use camera_list::{ListReader, SharedCamera, SharedCameraList, camera_list, check_camera_list};
pub use change::{CameraChange, ConfigChange};
pub use choices::{WrongChoice, choices};
pub use environment::{DEFAULT_MODEL, Environment, has_model};
pub use fleet::{
    FleetConfig, IpNetwork, ListRights, NatsAccess, NatsLogin, check_store_urls, store_url,
};
pub use load::{LoadedConfig, check, load, of_text};
pub use parse::{check_task, duration, memory_size, prompt_text, topic_level};
pub use problem::{ConfigProblem, ConfigProblems, FilePosition, Severity};
pub use prompt_keys::PromptKeys;
pub use reference::reference;
pub use source::{CameraTls, RtspConfig, SourceConfig, Transport};
pub use trigger::{MqttTrigger, ONVIF_KINDS, TriggerConfig, TriggerSource};
pub use types::*;
pub use webhook::{EventFilter, EventKind, WebhookConfig, signing_key};
