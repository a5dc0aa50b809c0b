//! Files that the configuration names.

use std::path::PathBuf;

use super::{form::Form, scope::Scope, text::not_empty};

/// The default of a key with certificate authorities.
pub(crate) const AUTHORITIES: &str = "the certificate authorities that this machine trusts";

/// The path of a file that must be on the machine that runs.
pub(crate) fn file<'s>(scope: &'s Scope<'_>, text: &str) -> Form<'s, PathBuf> {
    Form::new(text, |value| {
        let path = scope.path(&value.parsed(not_empty)?);
        if !path.is_file() {
            scope.absent(value, format!("file not found: {}", path.display()));
        }
        Some(path)
    })
}
