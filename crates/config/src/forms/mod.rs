//! How values are written in the file. Each form reads, checks, describes itself and shows its default.

pub(crate) mod address;
pub(crate) mod choices;
pub(crate) mod environment;
pub(crate) mod form;
pub(crate) mod number;
pub(crate) mod prelude;
pub(crate) mod rights;
pub(crate) mod scope;
pub(crate) mod secret;
pub(crate) mod text;
pub(crate) mod time;
