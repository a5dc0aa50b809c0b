//! What a webhook posts: an event's JSON, and the picture that belongs to it.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use spotter_core::{Event, EventStep, TrackId, UpdateReason};

/// True: it was not posted when it happened.
const DELAYED: &str = "delayed";
/// The picture in base64.
const PICTURE: &str = "snapshot_jpeg";

/// The members of a JSON object.
pub(crate) type EventBody = Map<String, Value>;

/// An event with its payload.
#[derive(Clone, Debug)]
pub struct WebhookEvent {
    pub(crate) id: String,
    pub(crate) event: Event,
    pub(crate) body: EventBody,
}

impl WebhookEvent {
    /// `json` is an object; `None` if it is not.
    pub fn new(id: &str, event: &Event, json: &[u8]) -> Option<Self> {
        Some(Self {
            id: id.to_owned(),
            event: event.clone(),
            body: serde_json::from_slice(json).ok()?,
        })
    }

    /// A picture was begun for this step of the event. After a better score it may also be one that was begun before.
    pub(crate) fn awaits_picture(&self) -> bool {
        let step = self.event.step;
        let is_worth_one = matches!(
            step,
            EventStep::New | EventStep::Update(UpdateReason::Better)
        );
        self.event.snapshot && is_worth_one
    }
}

/// The picture of an event.
#[derive(Clone, Debug)]
pub struct WebhookPicture {
    pub track: TrackId,
    pub jpeg: Arc<[u8]>,
}

pub(crate) fn add_picture(body: &mut EventBody, jpeg: &[u8]) {
    let text = BASE64_STANDARD.encode(jpeg);
    body.insert(PICTURE.to_owned(), Value::from(text));
}

/// The bytes of a request.
pub(crate) fn payload(mut body: EventBody, is_delayed: bool) -> Vec<u8> {
    body.insert(DELAYED.to_owned(), Value::from(is_delayed));
    // An object that was read from JSON serialises.
    serde_json::to_vec(&body).unwrap_or_default()
}
