//! What a key of the file is: its name and documentation, and how its value is read.

use super::table::Reader;

/// A key with its documentation. Made by [`keys!`] alone.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) doc: &'static str,
}

/// The form of a key with its default, as the reference shows them, and what reads the key.
pub(crate) struct KeyForm<'a, 'f, T> {
    pub(crate) form: String,
    pub(crate) default: String,
    pub(super) read: Box<dyn FnOnce(&'static str, &mut Reader<'a>) -> T + 'f>,
}

impl<'a, 'f, T> KeyForm<'a, 'f, T> {
    /// `read` gives the value; when there is none or a wrong one, the default. What is wrong is noted.
    pub(crate) fn new(
        form: impl ToString,
        default: impl ToString,
        read: impl FnOnce(&'static str, &mut Reader<'a>) -> T + 'f,
    ) -> Self {
        Self {
            form: form.to_string(),
            default: default.to_string(),
            read: Box::new(read),
        }
    }
}

/// One table of the reference; of each key also its form and its default.
pub(crate) struct SectionReference {
    pub(crate) title: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) example: &'static str,
    pub(crate) keys: Vec<(Key, String, String)>,
}

/// Reads keys of a table into variables of their names. A key is declared here alone: its documentation, name, form with default, and
/// example. The reference shows it below the heading of the table, which the first block of keys names with an explanation and an example.
macro_rules! keys {
    ($table:ident $(in $title:literal, $section_doc:literal, $section_example:expr)?;
     $($(#[doc = $doc:literal])+ $name:ident = $form:expr, $example:expr;)+) => {
        $($table.section($title, $section_doc, $section_example);)?
        $(let $name = {
            let (name, example, doc) = (stringify!($name), $example, concat!($($doc),+));
            $table.key($crate::config::read::key::Key { name, example, doc }, $form)
        };)+
    };
}
pub(crate) use keys;
