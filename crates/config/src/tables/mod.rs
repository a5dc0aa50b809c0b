//! The tables of the file: a module has the keys of its tables, the code that reads and checks them, and the types of what is read.

pub(crate) mod adapter;
pub(crate) mod api;
pub(crate) mod area;
pub(crate) mod camera;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod http;
pub(crate) mod mode;
pub(crate) mod model;
pub(crate) mod mqtt;
pub(crate) mod node;
pub(crate) mod prompt;
pub(crate) mod region;
pub(crate) mod shared_camera;
pub(crate) mod source;
pub(crate) mod trigger;
pub(crate) mod webhook;
