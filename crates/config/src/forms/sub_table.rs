//! Tables in a table.

use crate::read::table::{KeyForm, Reader};
use spotter_core::IdError;

/// A table; empty when the file does not have it. `absent`: what is the case then.
pub(crate) fn sub_table<'a>(absent: &str) -> KeyForm<'a, 'static, Reader<'a>> {
    KeyForm::new("table", absent, |key, table: &mut Reader<'a>| {
        table.table(key)
    })
}

/// A table that the file may have, in these words.
pub(crate) fn optional_table<'a>(
    form: &str,
    absent: &str,
) -> KeyForm<'a, 'static, Option<Reader<'a>>> {
    KeyForm::new(form, absent, |key, table: &mut Reader<'a>| {
        table.optional_table(key)
    })
}

/// Tables with the ids of what they are about, in the order of the file; `of` as in "one table per camera".
pub(crate) fn tables<'a, T: 'static>(
    id: fn(&str) -> Result<T, IdError>,
    of: &str,
    absent: &str,
) -> KeyForm<'a, 'static, Vec<(T, Reader<'a>)>> {
    let form = format!("one table per {of}");
    KeyForm::new(form, absent, move |key, table: &mut Reader<'a>| {
        table.tables(key, id)
    })
}
