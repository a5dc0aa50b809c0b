//! Logins and keys: named in the file, kept elsewhere. Nothing here ever prints one.

use std::{fmt, fs, io, os::unix::fs::PermissionsExt, path::Path};

use super::{form::Form, rights::CAMERA_CREDENTIAL, scope::Scope, text::text};
use crate::read::{key::keys, table::Reader, value::ConfigValue};
use spotter_core::read_bounded;

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

/// A secret that is named: `{ env = "NAME" }`, `{ cred = "NAME" }` (systemd), `{ file = "PATH" }`.
pub(crate) fn password<'s>(scope: &'s Scope<'_>) -> Form<'s, Secret> {
    password_with(scope, "secret", |_| Ok(()))
}

/// A shorter token can be guessed.
const TOKEN_MIN_BYTES: usize = 16;

/// A token that clients send over HTTP.
pub(crate) fn access_token<'s>(scope: &'s Scope<'_>) -> Form<'s, Secret> {
    let form = format!("secrets, each at least {TOKEN_MIN_BYTES} characters");
    password_with(scope, form, check_token)
}

fn check_token(token: &str) -> Result<(), String> {
    match token.len() >= TOKEN_MIN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(format!(
            "a token has at least {TOKEN_MIN_BYTES} letters, digits and signs of ASCII; `openssl rand -hex 32` makes one"
        )),
    }
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
        if text.is_empty() {
            value.error("the secret is empty");
            return None;
        }
        value.checked(check(text))?;
        Some(Secret::new(text.to_owned()))
    })
}

/// A key in PEM format, named in the same ways.
pub(crate) fn private_key<'s>(scope: &'s Scope<'_>) -> Form<'s, Secret> {
    let text = "secret with `env`, `cred_file` or `file`";
    password_with(scope, text, |_| Ok(()))
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
    let [env, cred, file] = read_places(&mut table);
    let keys = ["env", "cred", "cred_file", "file"];
    let given = keys.iter().filter(|key| table.given(key).is_some()).count();
    if given != 1 {
        let wrong = if given == 0 { "no" } else { "more than one" };
        table.error(format!("{wrong} secret is named; {ADVICE}"));
    }
    table.finish();
    let is_local = scope.list.is_none_or(|rights| rights.allow_local);
    match (env, cred, file) {
        _ if given != 1 => None,
        (None, Some(name), _) => from_credential(scope, value, &name),
        // The list says to which host the secret goes.
        _ if !is_local => {
            let text = format!(
                "a fleet's list cannot name variables and files of a box; use {{ cred = \"{CAMERA_CREDENTIAL}NAME\" }}, or set allow_local = true in [fleet] of the box"
            );
            scope.forbidden(value, &text);
            None
        }
        (Some(name), ..) => from_variable(scope, value, &name),
        (.., path) => from_file(scope, value, &scope.path(&path?)),
    }
}

/// The name of a variable, the name of a credential of systemd, and the path of a file.
pub(crate) fn read_places(table: &mut Reader<'_>) -> [Option<String>; 3] {
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
    [env, cred.or(cred_file), file]
}

/// A password without one line break at its end, which an editor adds.
fn without_line_break(text: &str) -> &str {
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
        let text = format!("environment variable {name:?} is not set or empty");
        scope.absent(value, text);
    }
    found
}

fn from_credential(scope: &Scope, value: &ConfigValue<'_>, name: &str) -> Option<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if !name.bytes().all(allowed) || name.bytes().all(|b| b == b'.') {
        value.error("\"cred\" must be the name of a credential: letters, digits, _ - and .");
        return None;
    }
    if scope
        .list
        .is_some_and(|rights| !rights.allows_credential(name))
    {
        let text = format!(
            "a fleet's list can name credentials that begin with {CAMERA_CREDENTIAL:?}; rename it, or add it to camera_credentials in [fleet] of the box"
        );
        scope.forbidden(value, &text);
        return None;
    }
    let dir = scope.environment.variable("CREDENTIALS_DIRECTORY");
    let path = dir.map(|dir| Path::new(&dir).join(name));
    let Some(path) = path.filter(|path| path.exists()) else {
        let remedy = format!("add LoadCredential={name}:PATH to the unit");
        let text = format!("systemd did not provide credential {name:?}; {remedy}");
        scope.absent(value, text);
        return None;
    };
    value.checked(read(&path).map_err(|e| format!("credential {name:?} cannot be read: {e}")))
}

fn from_file(scope: &Scope, value: &ConfigValue<'_>, path: &Path) -> Option<String> {
    let shown = path.display();
    let cannot = |error| format!("{shown} cannot be read: {error}");
    let found = fs::metadata(path).map_err(|error| scope.absent(value, cannot(error)));
    let mode = found.ok()?.permissions().mode() & 0o7777;
    if mode & 0o004 != 0 {
        value.warning(format!(
            "{shown} is readable by all (mode {mode:04o}); run `chmod 600 {shown}`"
        ));
    }
    value.checked(read(path).map_err(cannot))
}

/// Reads a small text file; a pipe, which would block, is refused and a huge file is not read to its end.
fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let bytes = read_bounded(path, SECRET_MAX_BYTES)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8"))
}
