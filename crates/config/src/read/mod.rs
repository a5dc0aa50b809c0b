//! From bytes to values with places: what is wrong with a file, its syntax, its tables and their keys.

pub(crate) mod key;
pub(crate) mod prelude;
pub(crate) mod problem;
pub(crate) mod syntax;
pub(crate) mod table;
pub(crate) mod value;
