//! The headers of the Standard Webhooks specification, version 1: id, time, and HMAC-SHA256 over both and the body.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Names the event; the same in each attempt.
pub(crate) const ID: &str = "webhook-id";
/// When this attempt began, Unix seconds.
pub(crate) const TIMESTAMP: &str = "webhook-timestamp";
pub(crate) const SIGNATURE: &str = "webhook-signature";

/// What is posted, and what a signature is about.
#[derive(Clone, Debug)]
pub(crate) struct PostRequest {
    pub(crate) id: String,
    pub(crate) unix_s: i64,
    pub(crate) body: Vec<u8>,
}

/// The value of [`SIGNATURE`].
pub(crate) fn signature(key: &[u8], request: &PostRequest) -> Result<String, String> {
    let mac = Hmac::<Sha256>::new_from_slice(key);
    let mut mac = mac.map_err(|error| format!("the secret gives no key: {error}"))?;
    mac.update(format!("{}.{}.", request.id, request.unix_s).as_bytes());
    mac.update(&request.body);
    let code = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    Ok(format!("v1,{code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by Python's `hmac`: docs/webhooks.md has the lines.
    #[test]
    fn signature_equals_that_of_another_implementation() {
        let request = PostRequest {
            id: "01K37Q8Z7M2T9C4F0RXB6D1A5E".to_owned(),
            unix_s: 1_787_393_730,
            body: br#"{"type":"new"}"#.to_vec(),
        };
        let key = b"01234567890123456789012345678901";
        let expected = "v1,RtoorhwXB4bEeH97j6X67nR9cpkzVgkdWwPE8ZAuKyE=";
        assert_eq!(signature(key, &request).as_deref(), Ok(expected));
    }
}
