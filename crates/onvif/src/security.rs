//! The login of WS-Security: a UsernameToken with a digest of the password.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use sha1::{Digest as _, Sha1};

use crate::camera::OnvifLogin;
use spotter_core::WallTime;

pub(crate) struct UsernameToken {
    pub(crate) user: String,
    pub(crate) digest: String,
    pub(crate) nonce: String,
    pub(crate) created: String,
}

impl UsernameToken {
    /// `camera_time`: what the camera's clock shows, because it refuses tokens that are old by it.
    pub(crate) fn new(login: &OnvifLogin, camera_time: WallTime, nonce: [u8; 16]) -> Self {
        let created = utc(camera_time);
        let mut hash = Sha1::new();
        hash.update(nonce);
        hash.update(created.as_bytes());
        hash.update(login.password.reveal().as_bytes());
        Self {
            user: login.user.clone(),
            digest: BASE64_STANDARD.encode(hash.finalize()),
            nonce: BASE64_STANDARD.encode(nonce),
            created,
        }
    }
}

/// As `xs:dateTime` in UTC, in milliseconds.
fn utc(time: WallTime) -> String {
    let time = Timestamp::from_millisecond(time.unix_millis()).unwrap_or_default();
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::Secret;

    #[test]
    fn token_is_the_one_of_onvifs_guide() {
        // The example of ONVIF's Application Programmer's Guide, section 6.1.1.3, has no milliseconds.
        let nonce = BASE64_STANDARD.decode("LKqI6G/AikKCQrN0zqZFlg==").unwrap();
        let login = OnvifLogin {
            user: "user".into(),
            password: Secret::new("userpassword".into()),
        };
        let mut hash = Sha1::new();
        hash.update(&nonce);
        hash.update("2010-09-16T07:50:45Z");
        hash.update(login.password.reveal());
        assert_eq!(
            BASE64_STANDARD.encode(hash.finalize()),
            "tuOSpGlFlIXsozq4HFNeeGeFLEI="
        );
        let at = WallTime::from_unix_millis(1_284_623_445_000);
        let token = UsernameToken::new(&login, at, nonce.try_into().unwrap());
        assert_eq!(token.created, "2010-09-16T07:50:45.000Z");
        assert_eq!(token.nonce, "LKqI6G/AikKCQrN0zqZFlg==");
    }
}
