//! A part of a text that is published while the model writes it (docs/mqtt.md section 2).

use serde_json::{Value, json};

use super::detection::{SCHEMA, add};
use spotter_core::{Epoch, TextPart, TextSubject};

/// What the outbox assigns to a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartLabel<'a> {
    /// Identifies this run of the daemon.
    pub(crate) boot: &'a str,
    /// Rises by one from part to part of a text, also when one is dropped.
    pub(crate) number: u64,
    /// Of a fleet's camera.
    pub(crate) epoch: Option<Epoch>,
}

pub(crate) fn to_json(part: &TextPart, label: PartLabel<'_>) -> Vec<u8> {
    let id = match &part.of.subject {
        TextSubject::Frame(number) => format!("{}-{number}", label.boot),
        TextSubject::Track(track) => track.to_string(),
    };
    let mut payload: Value = json!({
        "v": SCHEMA,
        "id": id,
        "n": label.number,
        "text": part.text,
        "done": part.is_last,
    });
    add(&mut payload, "epoch", label.epoch);
    payload.to_string().into_bytes()
}
