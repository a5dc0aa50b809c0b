//! The camera's side of logins.

use std::collections::BTreeSet;

use gstreamer::glib::{ChecksumType, DateTime, base64_decode, base64_encode};
use sha1::{Digest as _, Sha1};

use super::soap::CameraRequest;
use crate::digest;

const REALM: &str = "ONVIF camera";
/// A token that is older or newer is refused, by the camera's clock.
const TOKEN_AGE_S: i64 = 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnvifLoginScript {
    pub scheme: OnvifLoginScheme,
    pub user: &'static str,
    pub password: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnvifLoginScheme {
    /// Of HTTP with MD5; a nonce is stale after this number of requests.
    Md5(usize),
    /// The same with SHA-256.
    Sha256(usize),
    /// Of WS-Security.
    UsernameToken,
    /// Of HTTP, in plain text.
    Basic,
}

/// The nonces of HTTP that the camera has given out, with the counts that were used.
#[derive(Debug, Default)]
pub(super) struct Nonces {
    given: Vec<BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoginVerdict {
    Accepted,
    /// Lines of header of a 401.
    Challenge(String),
    Fault,
}

/// A request with what it has for a login.
pub(super) struct LoginAttempt<'a> {
    /// Of HTTP.
    pub(super) header: Option<&'a str>,
    pub(super) path: &'a str,
    pub(super) call: &'a CameraRequest,
    /// By the camera's clock, Unix seconds.
    pub(super) now: i64,
}

impl OnvifLoginScript {
    pub(super) fn judge(&self, nonces: &mut Nonces, attempt: &LoginAttempt<'_>) -> LoginVerdict {
        let (algorithm, kind, uses) = match self.scheme {
            OnvifLoginScheme::UsernameToken if self.has_token(attempt.call, attempt.now) => {
                return LoginVerdict::Accepted;
            }
            OnvifLoginScheme::UsernameToken => return LoginVerdict::Fault,
            OnvifLoginScheme::Basic => {
                let header = format!("WWW-Authenticate: Basic realm=\"{REALM}\"\r\n");
                return LoginVerdict::Challenge(header);
            }
            OnvifLoginScheme::Md5(uses) => ("MD5", ChecksumType::Md5, uses),
            OnvifLoginScheme::Sha256(uses) => ("SHA-256", ChecksumType::Sha256, uses),
        };
        // By RFC 7616 with `qop=auth`.
        let (given, path) = (attempt.header.unwrap_or_default(), attempt.path);
        let field = |name| digest::field(given, name).unwrap_or_default();
        let hash = |text: &str| digest::hash(kind, text);
        let login = hash(&format!("{}:{REALM}:{}", self.user, self.password));
        let request = hash(&format!("POST:{path}"));
        let (nonce, count, client_nonce) = (field("nonce"), field("nc"), field("cnonce"));
        let expected = hash(&format!(
            "{login}:{nonce}:{count}:{client_nonce}:auth:{request}"
        ));
        let is_right = field("response") == expected && field("uri") == path;
        if is_right && nonces.accepts(nonce, count, uses) {
            return LoginVerdict::Accepted;
        }
        let stale = if is_right { ", stale=true" } else { "" };
        LoginVerdict::Challenge(format!(
            "WWW-Authenticate: Digest realm=\"{REALM}\", qop=\"auth\", algorithm={algorithm}, nonce=\"{}\"{stale}\r\n",
            nonces.give()
        ))
    }

    fn has_token(&self, call: &CameraRequest, now: i64) -> bool {
        let Some(token) = &call.token else {
            return false;
        };
        let mut hash = Sha1::new();
        hash.update(base64_decode(&token.nonce));
        hash.update(&token.created);
        hash.update(self.password);
        let created = DateTime::from_iso8601(&token.created, None);
        let age_s = created.map(|created| now - created.to_unix());
        token.user == self.user
            && token.digest == base64_encode(&hash.finalize())
            && age_s.is_ok_and(|age_s| age_s.abs() <= TOKEN_AGE_S)
    }
}

impl Nonces {
    fn give(&mut self) -> String {
        self.given.push(BTreeSet::new());
        format!("nonce{}", self.given.len())
    }

    /// The nonce was used less often than `uses`, and not with this count.
    fn accepts(&mut self, nonce: &str, count: &str, uses: usize) -> bool {
        let number = nonce.strip_prefix("nonce");
        let number = number.and_then(|number| number.parse::<usize>().ok());
        let counts = number.and_then(|number| self.given.get_mut(number.checked_sub(1)?));
        counts.is_some_and(|counts| counts.len() < uses && counts.insert(count.to_owned()))
    }
}
