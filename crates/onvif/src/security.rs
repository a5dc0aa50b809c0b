//! The login of WS-Security: a UsernameToken with a digest of the password.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use sha1::{Digest as _, Sha1};

use crate::{camera::OnvifLogin, xml::leaf};
use spotter_core::WallTime;

const SECURITY: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const PASSWORD_DIGEST: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest";
const NONCE_ENCODING: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";

/// The header. `camera_time`: what the camera's clock shows, because it refuses tokens that are old by it.
pub(crate) fn username_token(login: &OnvifLogin, camera_time: WallTime, nonce: [u8; 16]) -> String {
    let created = Timestamp::from_millisecond(camera_time.unix_millis()).unwrap_or_default();
    let created = format!("{created:.3}");
    let mut hash = Sha1::new();
    hash.update(nonce);
    hash.update(created.as_bytes());
    hash.update(login.password.reveal().as_bytes());
    format!(
        "<w:Security xmlns:w=\"{SECURITY}\" s:mustUnderstand=\"1\"><w:UsernameToken>{}\
         <w:Password Type=\"{PASSWORD_DIGEST}\">{}</w:Password>\
         <w:Nonce EncodingType=\"{NONCE_ENCODING}\">{}</w:Nonce>{}</w:UsernameToken></w:Security>",
        leaf("w:Username", &login.user),
        BASE64_STANDARD.encode(hash.finalize()),
        BASE64_STANDARD.encode(nonce),
        leaf("wsu:Created", &created),
    )
}
