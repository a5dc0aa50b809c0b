//! A device without tensors, in virtual time: it shows what the engine does on a device with given costs, and finds the
//! scheduler's mistakes.
//!
//! Belongs here: the backend and its costs. Not here: what is measured with it (`bench`).

mod backend;

pub use backend::{SimBackend, SimCosts, SimModel, strips};
