//! Logins and keys: named in the file, kept elsewhere. Nothing here ever prints one.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use super::{
    Secret,
    fleet::{CAMERA_CREDENTIAL, ListRights},
    keys::secret as keys,
    load::Scope,
    reader::ConfigValue,
};

/// No password or key is longer, in bytes.
const SECRET_MAX_BYTES: u64 = 64 * 1024;

/// What a secret is good for decides how it may be named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretKind {
    /// A password: `env`, `cred` or `file`; one line break at the end is taken off.
    Password,
    /// A PEM key: `env`, `cred_file` or `file`; kept as it is.
    Key,
}

/// Fetches the secret that `value` names: `{ env = "NAME" }`, `{ cred = "NAME" }` (systemd), `{ file = "PATH" }`.
pub(super) fn secret(scope: &Scope, value: &ConfigValue<'_>, kind: SecretKind) -> Option<Secret> {
    let credential_key = match kind {
        SecretKind::Password => &keys::CRED,
        SecretKind::Key => &keys::CRED_FILE,
    };
    let credential_name = credential_key.name;
    let advice = format!(
        "use {{ env = \"NAME\" }}, {{ {credential_name} = \"NAME\" }} or {{ file = \"PATH\" }}"
    );
    if value.is_text() {
        if !scope.allow_plain_secrets {
            value.error(format!("plain text is not allowed; {advice}"));
            return None;
        }
        value.warning(format!(
            "plain text: everyone who can read this file can read the secret; {advice}"
        ));
        return usable(value, value.text()?.to_owned(), kind);
    }
    let mut table = value.table()?;
    let named = [&keys::ENV, credential_key, &keys::FILE].map(|key| table.get(key));
    if let Some(rights) = scope.list
        && !is_permitted(scope, rights, &named)
    {
        table.finish();
        return None;
    }
    let found = match named {
        [Some(variable), None, None] => {
            let name = variable.text();
            name.and_then(|name| from_variable(scope, value, name))
        }
        [None, Some(credential), None] => {
            let name = credential.text();
            name.and_then(|name| from_credential(scope, value, name))
        }
        [None, None, Some(file)] => file
            .text()
            .and_then(|path| from_file(scope, value, &scope.path(path))),
        [None, None, None] => {
            table.missing(
                &["env", credential_name, "file"],
                format!("no secret is named; {advice}"),
            );
            None
        }
        _ => {
            table.error(format!("more than one secret is named; {advice}"));
            None
        }
    };
    table.finish();
    usable(value, found?, kind)
}

/// Whether a fleet's list may name this secret of the box. It may only name one that is meant for a camera: the list says to which host it goes.
fn is_permitted(scope: &Scope, rights: &ListRights, named: &[Option<ConfigValue<'_>>; 3]) -> bool {
    let [variable, credential, file] = named;
    let mut is_permitted = true;
    for value in [variable, file].into_iter().flatten() {
        if !rights.allow_local {
            is_permitted = false;
            scope.forbidden(
                value,
                format!(
                    "a fleet's list cannot name variables and files of a box; use {{ cred = \"{CAMERA_CREDENTIAL}NAME\" }}, or set allow_local = true in [fleet] of the box"
                ),
            );
        }
    }
    if let Some(value) = credential
        && let Some(name) = value.text()
        && !rights.allows_credential(name)
    {
        is_permitted = false;
        scope.forbidden(
            value,
            format!(
                "a fleet's list can name credentials that begin with {CAMERA_CREDENTIAL:?}; rename it, or add it to camera_credentials in [fleet] of the box"
            ),
        );
    }
    is_permitted
}

fn usable(value: &ConfigValue<'_>, mut text: String, kind: SecretKind) -> Option<Secret> {
    if kind == SecretKind::Password {
        text.truncate(without_line_break(&text).len());
    }
    if text.is_empty() {
        value.error("the secret is empty");
        return None;
    }
    Some(Secret::new(text))
}

/// A password without one line break at its end, which an editor adds.
pub(super) fn without_line_break(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
}

fn from_variable(scope: &Scope, value: &ConfigValue<'_>, name: &str) -> Option<String> {
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') || name.is_empty() {
        // Not shown: it may be the secret itself.
        value.error("\"env\" must be the name of an environment variable");
        return None;
    }
    let found = scope.environment.variable(name);
    if found.is_none() {
        scope.absent(
            value,
            format!("environment variable {name:?} is not set or empty"),
        );
    }
    found
}

fn from_credential(scope: &Scope, value: &ConfigValue<'_>, name: &str) -> Option<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if !name.bytes().all(allowed) || name.bytes().all(|b| b == b'.') {
        value.error("\"cred\" must be the name of a credential: letters, digits, _ - and .");
        return None;
    }
    let absent = || {
        let remedy = format!("add LoadCredential={name}:PATH to the unit");
        scope.absent(
            value,
            format!("systemd did not provide credential {name:?}; {remedy}"),
        );
    };
    let Some(dir) = scope.environment.credentials_dir() else {
        absent();
        return None;
    };
    match read(&dir.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            absent();
            None
        }
        result => value.checked(
            result.map_err(|error| format!("credential {name:?} cannot be read: {error}")),
        ),
    }
}

fn from_file(scope: &Scope, value: &ConfigValue<'_>, path: &Path) -> Option<String> {
    let shown = path.display();
    match fs::metadata(path).map(|meta| meta.permissions().mode() & 0o7777) {
        Ok(mode) if mode & 0o004 != 0 => {
            value.warning(format!(
                "{shown} is readable by all (mode {mode:04o}); run `chmod 600 {shown}`"
            ));
        }
        Ok(_) => {}
        Err(error) => {
            scope.absent(value, format!("{shown} cannot be read: {error}"));
            return None;
        }
    }
    value.checked(read(path).map_err(|error| format!("{shown} cannot be read: {error}")))
}

/// Reads a small text file; a pipe, which would block, is refused and a huge file is not read to its end.
pub(super) fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let mut text = String::new();
    let read = fs::File::open(path)?
        .take(SECRET_MAX_BYTES + 1)
        .read_to_string(&mut text)?;
    if read as u64 > SECRET_MAX_BYTES {
        let limit = format!("longer than {SECRET_MAX_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, limit));
    }
    Ok(text)
}
