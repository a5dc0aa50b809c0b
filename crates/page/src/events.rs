//! Stored events over HTTP, for the page and for the API: both ask here, and each refuses in its own shape.
//!
//! A query runs on a thread that may block. Those at the same time are bounded: a disk that is slow holds up no other answer.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
    time::timeout,
};

use crate::stored_picture::{PictureQuery, at_most_wide};
use spotter_config::CameraConfig;
use spotter_core::{CameraShapes, Clock, MarkOrder};
use spotter_history::{
    History, HistoryError, HistoryFilter, HistoryReader, HistorySelection, JudgingError,
    PictureLinks, StoredPicture, export,
};
use spotter_http::{ask_again_after, json_answer};
use spotter_review::preview;

/// Queries at the same time, of page and API together.
const READS_MAX: usize = 4;
/// Exports at the same time: each reads all pictures.
const EXPORTS_MAX: usize = 2;
/// Previews at the same time: each takes a core for some seconds.
const PREVIEWS_MAX: usize = 1;
/// Pictures that are made smaller at the same time: a list asks for 50, each takes a core for some tens of milliseconds.
const SCALINGS_MAX: usize = 2;
const PERMIT_WITHIN: Duration = Duration::from_secs(10);
/// Parts of an export that wait for the client.
const PARTS_MAX: usize = 4;
const PART_BYTES: usize = 64 << 10;
/// What switches the history on.
const TOML: &str = "[history]\nkeep = \"7d\"\nsize = \"1GiB\"\n";

/// Answers about the history. Clones share their bounds.
#[derive(Clone)]
pub struct EventAnswers {
    /// `None`: no events are stored.
    history: Option<History>,
    reads: Arc<Semaphore>,
    exports: Arc<Semaphore>,
    previews: Arc<Semaphore>,
    scalings: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum EventRefusal {
    #[error("Spotter is starting: the model is being opened")]
    Starting,
    #[error("{}", spotter_history::NO_HISTORY)]
    Off,
    #[error("{0}")]
    Wrong(String),
    #[error("there is no such event, or it was removed")]
    Unknown,
    #[error("{0}")]
    Conflict(String),
    #[error("other queries of the history are in progress; ask again in a moment")]
    Busy,
    #[error(
        "this node has no such prompt that finds objects; it was removed, or another node has the camera"
    )]
    UnknownPrompt,
    #[error("the history cannot be read: {0}")]
    Failed(#[from] HistoryError),
    #[error("{0}")]
    NotWritten(String),
    #[error("the query ended abnormally; see the log of Spotter")]
    Panicked,
}

impl EventRefusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Off | Self::Unknown | Self::UnknownPrompt => StatusCode::NOT_FOUND,
            Self::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Starting | Self::Failed(_) | Self::NotWritten(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// When to ask again.
    pub fn pause(&self) -> Option<Duration> {
        let seconds = match self {
            Self::Busy => 1,
            Self::Starting => 10,
            Self::Failed(_) | Self::NotWritten(_) => 5,
            _ => return None,
        };
        Some(Duration::from_secs(seconds))
    }
}

impl From<JudgingError> for EventRefusal {
    fn from(error: JudgingError) -> Self {
        match error {
            JudgingError::Unknown => Self::Unknown,
            JudgingError::OtherPicture => Self::Conflict(error.to_string()),
            JudgingError::OtherKind(_) => Self::Wrong(error.to_string()),
            JudgingError::NotStored(_) => Self::NotWritten(error.to_string()),
        }
    }
}

/// As the page reads it.
impl IntoResponse for EventRefusal {
    fn into_response(self) -> Response {
        let body = json!({"error": self.to_string()}).to_string();
        let answer = json_answer(self.status(), body);
        match self.pause() {
            Some(pause) => ask_again_after(answer, pause),
            None => answer,
        }
    }
}

pub(crate) type EventAnswer<T = Response> = Result<T, EventRefusal>;

impl EventAnswers {
    pub fn new(history: Option<History>, clock: Arc<dyn Clock>) -> Self {
        Self {
            history,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            previews: Arc::new(Semaphore::new(PREVIEWS_MAX)),
            scalings: Arc::new(Semaphore::new(SCALINGS_MAX)),
            clock,
        }
    }

    pub fn is_on(&self) -> bool {
        self.history.is_some()
    }

    pub(crate) fn history(&self) -> EventAnswer<&History> {
        self.history.as_ref().ok_or(EventRefusal::Off)
    }

    /// The answer to a list while no events are stored.
    pub(crate) fn off(&self) -> Option<Response> {
        let is_off = self.history.is_none();
        is_off.then(|| json(&json!({"is_on": false, "toml": TOML})))
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Unix milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.wall().unix_millis()
    }

    /// A page of events. `query`: that of the URL.
    pub async fn list(&self, query: Option<&str>, links: PictureLinks) -> EventAnswer {
        if let Some(off) = self.off() {
            return Ok(off);
        }
        let (filter, now_ms) = (filter(query)?, self.now_ms());
        if links != PictureLinks::Page {
            filter.require_alarms().map_err(EventRefusal::Wrong)?;
        }
        let page = self.read(move |reader| reader.list(&filter, links, now_ms));
        Ok(json(&page.await?))
    }

    /// An event with its looks.
    pub async fn event(&self, id: &str, links: PictureLinks) -> EventAnswer {
        let id = id.to_owned();
        let event = self.read(move |reader| reader.event(&id, links)).await?;
        let event = event.ok_or(EventRefusal::Unknown)?;
        Ok(json(&event))
    }

    /// The file of an event's picture.
    pub(crate) async fn picture_file(&self, id: &str) -> EventAnswer<Vec<u8>> {
        Ok(self.stored_picture(id).await?.jpeg)
    }

    async fn stored_picture(&self, id: &str) -> EventAnswer<StoredPicture> {
        let id = id.to_owned();
        let picture = self.read(move |reader| reader.picture(&id)).await?;
        picture.ok_or(EventRefusal::Unknown)
    }

    async fn scaled(&self, jpeg: Vec<u8>, width: usize) -> EventAnswer<Vec<u8>> {
        let permit = permit_of(&self.scalings).await?;
        blocking(permit, move || at_most_wide(jpeg, width)).await
    }

    /// The picture of an event. With its number in the query, as in lists, a browser may keep it.
    pub async fn picture(&self, id: &str, query: Option<&str>) -> EventAnswer {
        let PictureQuery { number, width } =
            PictureQuery::read(query).map_err(EventRefusal::Wrong)?;
        let StoredPicture { jpeg, number: own } = self.stored_picture(id).await?;
        let jpeg = match width {
            Some(width) => self.scaled(jpeg, width).await?,
            None => jpeg,
        };
        let caching = match number == Some(own) {
            true => "private, max-age=86400, immutable",
            false => "private, no-cache",
        };
        let head = [
            (header::CONTENT_TYPE, "image/jpeg"),
            (header::CACHE_CONTROL, caching),
        ];
        Ok((head, jpeg).into_response())
    }

    /// The events of a filter with their pictures, as a ZIP file that is made while it is sent.
    pub async fn export(&self, query: Option<&str>) -> EventAnswer {
        let (filter, permit) = self.may_export(query)?;
        let reader = self.history()?.reader().clone();
        let (sender, parts) = mpsc::channel(PARTS_MAX);
        spawn_blocking(move || send_export(&reader, &filter, sender, permit));
        let body = stream::unfold(parts, |mut parts| async {
            parts.recv().await.map(|part| (part, parts))
        });
        let head = [
            (header::CONTENT_TYPE, "application/zip"),
            (
                header::CONTENT_DISPOSITION,
                "attachment; filename=\"spotter-events.zip\"",
            ),
        ];
        Ok((head, Body::from_stream(body)).into_response())
    }

    /// What [`export`](Self::export) needs before it begins.
    pub(crate) fn may_export(
        &self,
        query: Option<&str>,
    ) -> EventAnswer<(HistoryFilter, OwnedSemaphorePermit)> {
        let filter = filter(query)?;
        filter.require_alarms().map_err(EventRefusal::Wrong)?;
        self.history()?;
        let permit = Arc::clone(&self.exports).try_acquire_owned();
        Ok((filter, permit.map_err(|_| EventRefusal::Busy)?))
    }

    /// Deletes events, and says how many.
    pub async fn delete(&self, selection: HistorySelection) -> EventAnswer {
        let history = self.history()?;
        let wrong = |text: &str| EventRefusal::Wrong(text.to_owned());
        selection.check().map_err(wrong)?;
        let deleted = history.delete(selection).await;
        let deleted = deleted.map_err(EventRefusal::NotWritten)?;
        Ok(json(&deleted))
    }

    /// Stores what a person says of the event: `mark`, `objects` and `all_found` of `keys`, about its picture of the number `picture`. Answers when it is stored.
    pub async fn mark(&self, id: &str, mut keys: Value) -> EventAnswer {
        let history = self.history()?;
        let wrong = |error: serde_json::Error| EventRefusal::Wrong(error.to_string());
        let picture = keys.as_object_mut().and_then(|keys| keys.remove("picture"));
        let order = MarkOrder {
            event: serde_json::from_value(id.into()).map_err(wrong)?,
            mark: serde_json::from_value(keys).map_err(wrong)?,
            picture: serde_json::from_value(picture.unwrap_or_default()).map_err(wrong)?,
        };
        let mut stored = json!(order.mark);
        stored["id"] = json!(order.event);
        history.mark(order).await?;
        Ok(json(&stored))
    }

    /// How many stored events other shapes on their camera would have counted.
    pub(crate) async fn preview(&self, camera: CameraConfig, shapes: CameraShapes) -> EventAnswer {
        if self.history.is_none() {
            return Ok(json(&json!({"reason": EventRefusal::Off.to_string()})));
        }
        let permit = permit_of(&self.previews).await?;
        let clock = Arc::clone(&self.clock);
        let previewed = self.read(move |reader| {
            // Held also when the client disconnects meanwhile.
            let _permit = permit;
            preview(reader, &camera, &shapes, &*clock)
        });
        Ok(json(&previewed.await?))
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&HistoryReader) -> Result<T, HistoryError> + Send + 'static,
    ) -> EventAnswer<T> {
        let reader = self.history()?.reader().clone();
        let permit = permit_of(&self.reads).await?;
        Ok(blocking(permit, move || query(&reader)).await??)
    }
}

/// Waits for it, for a limited time.
pub(crate) async fn permit_of(permits: &Arc<Semaphore>) -> EventAnswer<OwnedSemaphorePermit> {
    let permit = timeout(PERMIT_WITHIN, Arc::clone(permits).acquire_owned()).await;
    permit.ok().and_then(Result::ok).ok_or(EventRefusal::Busy)
}

/// The permit is held until the work ends, also when the client disconnects meanwhile.
async fn blocking<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> EventAnswer<T> {
    let done = spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    done.await.map_err(|_| EventRefusal::Panicked)
}

/// The selection of a change of the page.
pub(crate) fn selection(body: Value) -> EventAnswer<HistorySelection> {
    serde_json::from_value(body).map_err(|error| EventRefusal::Wrong(error.to_string()))
}

pub(crate) fn filter(query: Option<&str>) -> EventAnswer<HistoryFilter> {
    HistoryFilter::read(query.unwrap_or_default()).map_err(EventRefusal::Wrong)
}

pub(crate) fn json(body: &impl serde::Serialize) -> Response {
    json_answer(StatusCode::OK, serde_json::to_vec(body).unwrap_or_default())
}

type ExportPart = Result<Bytes, io::Error>;

/// An error ends the body early, so that the client sees that its file is not whole.
fn send_export(
    reader: &HistoryReader,
    filter: &HistoryFilter,
    sender: mpsc::Sender<ExportPart>,
    _permit: OwnedSemaphorePermit,
) {
    let parts = ExportParts(sender.clone());
    let parts = io::BufWriter::with_capacity(PART_BYTES, parts);
    if let Err(error) = export(reader, filter, parts) {
        tracing::debug!(%error, "an export of events was not finished");
        // The client may have left.
        _ = sender.blocking_send(Err(error));
    }
}

/// Waits for the client.
struct ExportParts(mpsc::Sender<ExportPart>);

impl Write for ExportParts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = Bytes::copy_from_slice(bytes);
        let sent = self.0.blocking_send(Ok(part));
        sent.map_err(|_| io::Error::other("the client has disconnected"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
