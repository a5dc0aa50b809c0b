//! What is changed while Spotter runs: a layer over the file that says which cameras and prompts are in force now.
//!
//! ```text
//!   file ──cameras──▶ ┌───────┐
//!   command ────────▶ │ Layer │ ──cameras in force──▶ whoever watches them
//!   time ───────────▶ └───────┘ ──overrides──▶ state directory
//! ```
//!
//! Belongs here: which value may be changed to what, what holds when the file says something else later, revisions, what is
//! kept over a restart. Does not belong here: how a command arrives and is answered (`publish`), and what is done with a
//! camera that changed (`app`). Everything but [`Store`] is pure and takes `now`.

mod added;
mod layer;
mod overrides;
mod repeated;
mod revisions;
mod setting;
mod store;

pub use layer::{Changed, Layer};
pub use overrides::{Lapsed, Overrides};
pub use repeated::{Known, Repeated};
pub use setting::{all, current};
pub use store::Store;
