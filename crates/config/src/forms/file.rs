//! Files that the configuration names.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

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

/// The content of a file; an error when it has more than `max_bytes`.
pub(crate) fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(io::Error::other(format!("longer than {max_bytes} bytes"))),
        false => Ok(bytes),
    }
}
