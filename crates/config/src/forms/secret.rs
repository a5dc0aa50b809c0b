//! Logins and keys: named in the file, kept elsewhere. Nothing here ever prints one.

use std::{fmt, fs, io, os::unix::fs::PermissionsExt, path::Path};

use super::{
    file::read_bounded,
    form::Form,
    rights::{CAMERA_CREDENTIAL, ListRights},
    scope::Scope,
    text::text,
};
use crate::read::{key::keys, table::Reader, value::ConfigValue};

/// No password or key is longer, in bytes.
const SECRET_MAX_BYTES: u64 = 64 * 1024;

/// A login or key that cannot be printed: `Debug` shows `***` and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Call it where the text is handed to a library, never to format or store it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The warning at each start about a password without TLS.
pub(crate) const CLEAR_TEXT: &str = "not encrypted: everyone on the network between can read the password; use mqtts:// (MQTT) or tls:// (NATS)";
/// The warning at each start about a certificate that is not checked.
pub(crate) const INSECURE: &str =
    "the certificate is not checked; an attacker on the network can read and change everything";

/// Where a secret is.
pub(crate) enum SecretPlace {
    Variable(String),
    /// Of systemd.
    Credential(String),
    File(String),
}

/// A secret that is named: `{ env = "NAME" }`, `{ cred = "NAME" }` (systemd), `{ file = "PATH" }`.
pub(crate) fn password<'s>(scope: &'s Scope<'_>) -> Form<'s, Secret> {
    password_with(scope, "secret", |_| Ok(()))
}

/// A password with a rule, which says what is wrong without showing the text.
pub(crate) fn password_with<'s>(
    scope: &'s Scope<'_>,
    form: impl Into<String>,
    check: fn(&str) -> Result<(), String>,
) -> Form<'s, Secret> {
    Form::new(form, move |value| {
        let text = fetch(scope, value)?;
        let text = without_line_break(&text);
        value.checked(not_empty(text).and_then(|()| check(text)))?;
        Some(Secret::new(text.to_owned()))
    })
}

/// A key in PEM format, named in the same ways.
pub(crate) fn private_key<'s>(scope: &'s Scope<'_>) -> Form<'s, Secret> {
    let text = "secret with `env`, `cred_file` or `file`";
    password_with(scope, text, |_| Ok(()))
}

fn not_empty(secret: &str) -> Result<(), String> {
    match secret {
        "" => Err("the secret is empty".to_owned()),
        _ => Ok(()),
    }
}

fn fetch(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<String> {
    const ADVICE: &str = "use { env = \"NAME\" }, { cred = \"NAME\" } or { file = \"PATH\" }";
    if let Some(text) = value.as_text() {
        if !scope.allow_plain_secrets {
            value.error(format!("plain text is not allowed; {ADVICE}"));
            return None;
        }
        value.warning(format!(
            "plain text: everyone who can read this file can read the secret; {ADVICE}"
        ));
        return Some(text.to_owned());
    }
    let mut table = Reader::of_value(value)?;
    let mut places = read_places(&mut table);
    let keys = ["env", "cred", "cred_file", "file"];
    match keys.iter().filter(|key| table.given(key).is_some()).count() {
        0 => table.missing(&keys, format!("no secret is named; {ADVICE}")),
        1 => {}
        _ => {
            table.error(format!("more than one secret is named; {ADVICE}"));
            places.clear();
        }
    }
    table.finish();
    let place = places.pop()?;
    if let Some(text) = scope.list.and_then(|rights| denial(rights, &place)) {
        scope.forbidden(value, &text);
        return None;
    }
    match place {
        SecretPlace::Variable(name) => from_variable(scope, value, &name),
        SecretPlace::Credential(name) => from_credential(scope, value, &name),
        SecretPlace::File(path) => from_file(scope, value, &scope.path(&path)),
    }
}

pub(crate) fn read_places(table: &mut Reader<'_>) -> Vec<SecretPlace> {
    let name = |form: &'static str| text(form, |name: &str| Ok(name.to_owned())).optional("none");
    keys! { table in "Secrets", "Passwords and keys are not written in this file. Each is a table with exactly one of these keys.",
            r#"password = { cred = "mqtt_password" }"#;
        /// Reads the secret from an environment variable.
        env = name("name of an environment variable"), r#"password = { env = "GATE_PASSWORD" }"#;
        /// Reads a password from a credential: `LoadCredential=mqtt_password:PATH` in the unit.
        cred = name("name of a systemd credential"), r#"password = { cred = "mqtt_password" }"#;
        /// The same for a private key (`client_key`).
        cred_file = name("name of a systemd credential"), r#"client_key = { cred_file = "mqtt_key" }"#;
        /// Reads the secret from a file. A file that all users can read causes a warning.
        file = name("path, relative to the configuration file"), r#"password = { file = "/etc/spotter/front" }"#;
    }
    let places = [
        env.map(SecretPlace::Variable),
        cred.or(cred_file).map(SecretPlace::Credential),
        file.map(SecretPlace::File),
    ];
    places.into_iter().flatten().collect()
}

/// Why a fleet's list may not name this secret of the box: it may only name one that is meant for a camera, because it says to which host it goes.
fn denial(rights: &ListRights, place: &SecretPlace) -> Option<String> {
    match place {
        SecretPlace::Credential(name) => (!rights.allows_credential(name)).then(|| {
            format!(
                "a fleet's list can name credentials that begin with {CAMERA_CREDENTIAL:?}; rename it, or add it to camera_credentials in [fleet] of the box"
            )
        }),
        SecretPlace::Variable(_) | SecretPlace::File(_) => (!rights.allow_local).then(|| {
            format!(
                "a fleet's list cannot name variables and files of a box; use {{ cred = \"{CAMERA_CREDENTIAL}NAME\" }}, or set allow_local = true in [fleet] of the box"
            )
        }),
    }
}

/// A password without one line break at its end, which an editor adds.
pub(crate) fn without_line_break(text: &str) -> &str {
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
    let dir = scope.environment.credentials_dir();
    let path = dir.map(|dir| dir.join(name)).filter(|path| path.exists());
    let Some(path) = path else {
        let remedy = format!("add LoadCredential={name}:PATH to the unit");
        let text = format!("systemd did not provide credential {name:?}; {remedy}");
        scope.absent(value, text);
        return None;
    };
    let text = read(&path);
    value.checked(text.map_err(|error| format!("credential {name:?} cannot be read: {error}")))
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
pub(crate) fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let bytes = read_bounded(path, SECRET_MAX_BYTES)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8"))
}
