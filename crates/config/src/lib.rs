//! The configuration file: read, checked, and turned into [`Config`], which holds only valid values.
//!
//! Belongs here: keys, defaults, ranges, secrets, messages. Does not belong here: run-time changes (`spotter_control`) and the
//! diff of a reload. The program sees [`Config`] alone.
//!
//! Four layers, each of which imports those before it: `read`, from bytes to values with places; `forms`, how values are written;
//! `tables`, one module for the keys of a table, their documentation and what they become; `load`, what the program calls.
//!
//! A key is declared once, where a table's reader calls `keys!`: documentation, name, form, default, example. The keys of a table that
//! were not read are unknown ones, and all problems of a file are reported together. The reference is what the same readers describe.
//!
//! Secrets are named, not written: `{ env = ".." }`, `{ cred = ".." }` (systemd; `cred_file` for PEM keys) or
//! `{ file = ".." }`. `allow_plain_secrets = true` at the top of the file allows them in the file, with a warning.
//! [`check`] differs from [`load()`] in one thing: what the file names on its own machine (secrets, certificates, the
//! model) may be absent, with a warning. Relative paths start at the file's directory.

mod change;
mod forms;
mod load;
mod read;
mod tables;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, reason = "test helpers panic with what is wrong")]
pub mod testing;

#[cfg(test)]
mod tests;

pub use change::{CameraChange, ConfigChange};
pub use forms::{
    address::is_loopback,
    choices::choices,
    environment::*,
    rights::ListRights,
    secret::Secret,
    text::topic_level,
    time::{duration, memory_size},
};
pub use load::{
    advice, broker_access::*, camera_list::*, file::*, prompt_keys::*, reference::*, shapes::*,
};
pub use read::problem::*;
pub use tables::{
    adapter::*, api::*, area::*, camera::*, fleet::*, history::*, http::*, mode::*, model::*,
    mqtt::*, node::*, prompt::*, shared_camera::*, source::*, trigger::*, webhook::*,
};
