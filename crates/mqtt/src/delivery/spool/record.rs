//! One record: length, checksum, and a body of JSON.
//!
//! ```text
//!   u32 LE  length of the body      u64 LE  xxh3 of the body      body
//! ```
//!
//! A file is read up to the first torn record.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::SpooledEvent;

/// A longer body is not read.
const BODY_MAX_BYTES: usize = 1 << 24;
const HEAD_BYTES: usize = 12;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum SpoolRecord {
    /// An event that must be delivered.
    #[serde(rename = "keep")]
    Keep {
        kept: Arc<SpooledEvent>,
        /// Unix time in milliseconds.
        expires_ms: i64,
        /// A newer event of its track exists, so this one does not open the track.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        superseded: bool,
    },
    /// Events that are delivered or dropped.
    #[serde(rename = "done")]
    Done(Vec<u64>),
}

impl SpoolRecord {
    pub(super) fn keep(kept: &Arc<SpooledEvent>, expires_ms: i64, superseded: bool) -> Self {
        let kept = Arc::clone(kept);
        Self::Keep {
            kept,
            expires_ms,
            superseded,
        }
    }

    /// Appends the record and returns its length in bytes.
    pub(super) fn write(&self, to: &mut Vec<u8>) -> u64 {
        // Numbers, texts and lists under text keys always serialise.
        let body = serde_json::to_vec(self).unwrap_or_default();
        to.extend_from_slice(&(body.len() as u32).to_le_bytes());
        to.extend_from_slice(&xxh3_64(&body).to_le_bytes());
        to.extend_from_slice(&body);
        (HEAD_BYTES + body.len()) as u64
    }
}

/// The contents of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DecodedRecords {
    pub(super) records: Vec<SpoolRecord>,
    /// The file ends with a torn record.
    pub(super) torn: bool,
    /// Records of another version.
    pub(super) unknown: u64,
}

pub(super) fn read(mut bytes: &[u8]) -> DecodedRecords {
    let mut read = DecodedRecords::default();
    while !bytes.is_empty() {
        let Some((body, rest)) = whole(bytes) else {
            read.torn = true;
            break;
        };
        match serde_json::from_slice(body) {
            Ok(record) => read.records.push(record),
            Err(_) => read.unknown += 1,
        }
        bytes = rest;
    }
    read
}

/// The body of the first record, and the rest.
fn whole(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [l0, l1, l2, l3, sum @ ..] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length == 0 || length > BODY_MAX_BYTES {
        return None;
    }
    let (body, rest) = rest.split_at_checked(length)?;
    (u64::from_le_bytes(sum) == xxh3_64(body)).then_some((body, rest))
}
