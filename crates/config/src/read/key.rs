//! What the reference shows of a key, and where keys are declared.

/// A key with its documentation. Made by [`keys!`] alone.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) doc: &'static str,
}

impl Key {
    /// A word of Rust is written `r#for`, and documentation begins with a space.
    pub(crate) fn new(name: &'static str, doc: &'static str, example: &'static str) -> Self {
        let (name, doc) = (name.trim_start_matches("r#"), doc.trim());
        Self { name, example, doc }
    }
}

/// One table of the reference; of each key also its form and its default.
pub(crate) struct SectionReference {
    pub(crate) title: &'static str,
    pub(crate) doc: String,
    pub(crate) example: &'static str,
    pub(crate) keys: Vec<(Key, String, String)>,
}

/// Reads keys of a table into variables of their names, or `into` the fields of a value that have their names. A key is declared here alone: its
/// documentation, name, form with default, and example. The reference shows it below the heading of the table, which the first block of keys
/// names with an explanation and an example.
macro_rules! keys {
    ($table:ident $(into $target:ident)? in $title:literal, $section_doc:literal, $section_example:expr; $($keys:tt)+) => {
        $table.section($title, $section_doc, $section_example);
        $crate::read::key::keys! { $table $(into $target)?; $($keys)+ }
    };
    ($table:ident into $target:ident; $($(#[doc = $doc:literal])+ $name:ident = $form:expr, $example:expr;)+) => {
        $($target.$name = $table.key($crate::read::key::Key::new(stringify!($name), concat!($($doc),+), $example), $form);)+
    };
    ($table:ident; $($(#[doc = $doc:literal])+ $name:ident = $form:expr, $example:expr;)+) => {
        $(let $name = $table.key($crate::read::key::Key::new(stringify!($name), concat!($($doc),+), $example), $form);)+
    };
}
pub(crate) use keys;
