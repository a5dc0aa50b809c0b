//! What each table needs of this layer.

pub(crate) use super::{key::keys, table::Reader, value::ConfigValue};
