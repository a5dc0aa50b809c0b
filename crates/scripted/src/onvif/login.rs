//! The camera's side of logins.

use std::collections::{BTreeMap, BTreeSet};

use gstreamer::glib::{
    ChecksumType, DateTime, base64_decode, base64_encode, compute_checksum_for_string,
};
use sha1::{Digest as _, Sha1};

use super::soap::CameraRequest;

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
        match self.scheme {
            OnvifLoginScheme::UsernameToken => match self.has_token(attempt.call, attempt.now) {
                true => LoginVerdict::Accepted,
                false => LoginVerdict::Fault,
            },
            OnvifLoginScheme::Basic => {
                let header = format!("WWW-Authenticate: Basic realm=\"{REALM}\"\r\n");
                LoginVerdict::Challenge(header)
            }
            OnvifLoginScheme::Md5(uses) => self.digest(
                DigestScript {
                    algorithm: "MD5",
                    uses,
                },
                nonces,
                attempt,
            ),
            OnvifLoginScheme::Sha256(uses) => self.digest(
                DigestScript {
                    algorithm: "SHA-256",
                    uses,
                },
                nonces,
                attempt,
            ),
        }
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

    /// By RFC 7616 with `qop=auth`.
    fn digest(
        &self,
        script: DigestScript,
        nonces: &mut Nonces,
        attempt: &LoginAttempt<'_>,
    ) -> LoginVerdict {
        let DigestScript { algorithm, uses } = script;
        let (given, path) = (attempt.header, attempt.path);
        let fields = given.and_then(|given| given.strip_prefix("Digest "));
        let fields = fields.map(fields_of).unwrap_or_default();
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        let hash = |text: &str| hash(algorithm, text);
        let login = hash(&format!("{}:{REALM}:{}", self.user, self.password));
        let request = hash(&format!("POST:{path}"));
        let (nonce, count) = (field("nonce"), field("nc"));
        let expected = hash(&format!(
            "{login}:{nonce}:{count}:{}:auth:{request}",
            field("cnonce")
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
}

struct DigestScript {
    algorithm: &'static str,
    /// Of each nonce.
    uses: usize,
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

fn hash(algorithm: &str, text: &str) -> String {
    let kind = match algorithm {
        "MD5" => ChecksumType::Md5,
        _ => ChecksumType::Sha256,
    };
    let sum = compute_checksum_for_string(kind, text);
    sum.map(|sum| sum.to_string()).unwrap_or_default()
}

/// `name="value"` or `name=value`, with commas.
fn fields_of(header: &str) -> BTreeMap<String, String> {
    let fields = header
        .split(',')
        .filter_map(|field| field.trim().split_once('='));
    fields
        .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
}
