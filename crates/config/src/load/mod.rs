//! What the program calls: a file, a fleet's list, the prompt of a command, options of a command, the shapes on a camera; the reference of all keys, and advice.

pub mod advice;
pub(crate) mod broker_access;
pub(crate) mod camera_list;
pub(crate) mod file;
pub(crate) mod prompt_keys;
pub(crate) mod reference;
pub(crate) mod shapes;
