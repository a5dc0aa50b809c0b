//! The secrets that the log masks.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use spotter_config::Secret;

pub(super) const MASK: &str = "***";
/// What RFC 3986 encodes in a login: everything but its unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Secrets to mask in the log, in every form in which a library may print them. Clones share them.
#[derive(Clone, Default)]
pub struct SecretList(Arc<RwLock<Vec<String>>>);

impl SecretList {
    /// Adds a secret verbatim, as `Debug` escapes it, percent-encoded and in base64, and with its user as in HTTP's basic
    /// login.
    pub fn add(&self, user: Option<&str>, secret: &Secret) {
        let plain = secret.reveal();
        if plain.is_empty() {
            return;
        }
        let mut forms = vec![
            plain.to_owned(),
            plain.escape_debug().to_string(),
            utf8_percent_encode(plain, ENCODED).to_string(),
            BASE64_STANDARD.encode(plain),
        ];
        if let Some(user) = user {
            forms.push(BASE64_STANDARD.encode(format!("{user}:{plain}")));
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(forms);
        // The longest first: a form may hold another one, and half a secret is one too.
        known.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        known.dedup();
    }

    /// `text` with `***` for every secret.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut masked = Cow::Borrowed(text);
        for secret in known.iter() {
            if masked.contains(secret.as_str()) {
                masked = Cow::Owned(masked.replace(secret.as_str(), MASK));
            }
        }
        masked
    }
}

impl fmt::Debug for SecretList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretList(***)")
    }
}
