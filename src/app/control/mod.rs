//! What strangers ask of the daemon over MQTT, and what is in force because of it.
//!
//! ```text
//!   Inbound ──publish::heard──▶ request ──daemon──┬─▶ Force ──cameras──▶ stages
//!                                                 ├─▶ Asks ──prompt──▶ one look
//!                                                 └─▶ reply
//! ```
//!
//! Belongs here: the run-time layer over the file's cameras with its store, questions that wait for a look. Does not belong here: what a message means (`publish`), which change is allowed (`control`), the stages that a
//! change goes to (`daemon`).

mod asks;
mod force;

pub use asks::Asks;
pub use force::Force;
