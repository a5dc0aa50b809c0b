//! What servers check digest logins with.

use gstreamer::glib::{ChecksumType, compute_checksum_for_string};

pub(crate) fn hash(kind: ChecksumType, text: &str) -> String {
    let sum = compute_checksum_for_string(kind, text);
    sum.map(|sum| sum.to_string()).unwrap_or_default()
}

/// `name="value"` or `name=value` of a header with several of these.
pub(crate) fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = header.split([',', ' ']);
    let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}
