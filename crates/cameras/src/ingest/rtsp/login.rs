//! The login of a camera: from its challenge to the header `Authorization`. Pure.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_auth::{ChallengeRef, DigestClient, ParamValue, PasswordParams, digest::Algorithm};

use url::Url;

use super::message::RtspMessage;
use spotter_config::{RtspConfig, Secret};

/// User and password, and what the camera demands them for.
#[derive(Debug)]
pub struct CameraLogin {
    user: String,
    password: Option<Secret>,
    scheme: Option<LoginScheme>,
}

#[derive(Debug)]
enum LoginScheme {
    Basic,
    Digest(Box<DigestClient>),
}

impl CameraLogin {
    /// `None` for a camera without a login.
    pub fn new(settings: &RtspConfig) -> Option<Self> {
        Some(Self {
            user: settings.user.clone()?,
            password: settings.password.clone(),
            scheme: None,
        })
    }

    /// Forgets the demand of another connection.
    pub fn begin_again(&mut self) {
        self.scheme = None;
    }

    /// Reads the challenge of a refused request. True when the request is to be repeated with a login: it had none, or the camera
    /// calls its nonce stale. A login that the camera rejected is never repeated, because cameras lock accounts.
    pub fn challenged(&mut self, answer: &RtspMessage, had_login: bool) -> bool {
        let Some(scheme) = scheme_of(answer) else {
            return false;
        };
        let is_stale = matches!(&scheme, LoginScheme::Digest(digest) if digest.stale());
        self.scheme = Some(scheme);
        !had_login || is_stale
    }

    /// Adds the login to a request, once the camera has demanded one: true from then on.
    pub fn sign(&mut self, request: &mut RtspMessage) -> bool {
        let password = self.password.as_ref().map_or("", Secret::reveal);
        let user = self.user.as_str();
        let value = match &mut self.scheme {
            None => None,
            Some(LoginScheme::Basic) => {
                let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {login}"))
            }
            Some(LoginScheme::Digest(digest)) => {
                let uri = ascii(request.url());
                let of = |body| PasswordParams {
                    username: user,
                    password,
                    uri: &uri,
                    method: request.method(),
                    body,
                };
                // Without a body, `auth` is preferred to `auth-int`, which cameras do not know.
                let value = digest.respond(&of(None));
                let value = value.or_else(|_| digest.respond(&of(Some(request.body()))));
                value.ok().map(|value| with_algorithm(value, digest))
            }
        };
        if let Some(value) = value {
            request.set("Authorization", value);
        }
        self.scheme.is_some()
    }
}

/// A URL with other characters than ASCII, percent-encoded: http-auth makes no login with those.
fn ascii(url: &str) -> Cow<'_, str> {
    match Url::parse(url) {
        Ok(parsed) if !url.is_ascii() => String::from(parsed).into(),
        _ => url.into(),
    }
}

/// Without `qop` in the challenge, http-auth names no algorithm, as RFC 2069 knows MD5 alone; a camera takes the login for one of
/// MD5 then.
fn with_algorithm(value: String, digest: &DigestClient) -> String {
    let name = match digest.algorithm() {
        Algorithm::Sha256 => "SHA-256",
        Algorithm::Sha512Trunc256 => "SHA-512-256",
        _ => return value,
    };
    match value.contains("algorithm=") {
        true => value,
        false => format!("{value}, algorithm={name}"),
    }
}

/// The demand of the camera: the first Digest with a known algorithm, else Basic.
fn scheme_of(answer: &RtspMessage) -> Option<LoginScheme> {
    let mut basic = false;
    for header in answer.headers("www-authenticate") {
        // A challenge that cannot be read does not hide those of other headers.
        for challenge in http_auth::parse_challenges(header).unwrap_or_default() {
            basic |= challenge.scheme.eq_ignore_ascii_case("Basic");
            if let Some(digest) = digest_of(&challenge) {
                return Some(LoginScheme::Digest(Box::new(digest)));
            }
        }
    }
    basic.then_some(LoginScheme::Basic)
}

fn digest_of(challenge: &ChallengeRef<'_>) -> Option<DigestClient> {
    if !challenge.scheme.eq_ignore_ascii_case("Digest") {
        return None;
    }
    let mut challenge = challenge.clone();
    for (name, value) in &mut challenge.params {
        // http-auth knows the names of RFC 7616 in capitals alone.
        let known = ["MD5", "SHA-256", "SHA-512-256"];
        let known = known
            .iter()
            .find(|known| known.eq_ignore_ascii_case(value.as_escaped()));
        if let (true, Some(known)) = (name.eq_ignore_ascii_case("algorithm"), known) {
            *value = ParamValue::new(0, known);
        }
    }
    (&challenge).try_into().ok()
}
