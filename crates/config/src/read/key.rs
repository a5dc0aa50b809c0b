//! What the reference shows of a key, and where keys are declared.

/// A key with its documentation. Made by [`keys!`] alone.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) doc: &'static str,
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
            $table.key($crate::read::key::Key { name, example, doc }, $form)
        };)+
    };
}
pub(crate) use keys;
