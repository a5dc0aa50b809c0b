//! What each table needs of this layer.

pub(crate) use super::{
    key::keys,
    table::{Reader, optional_table, sub_table, tables},
};
