//! The caller's side of [`engine::backend`](crate::scheduler::backend), for every device: is this step sound, is it this call's
//! turn. A device that asks here first touches only memory that is its own.
//!
//! Belongs here: checks that hold for all devices. Not here: the contract itself (`engine::backend`), and what one device
//! cannot do (its own room).

mod flights;
mod step;

pub use flights::Flights;
pub use step::check;
