//! The frame of a camera now, and words that a person tries on it, or on a picture of their own, beside the looks of the cameras.
//!
//! ```text
//!   GET camera/NAME/now.jpg ─▶ next frame of the camera, masked ─▶ JPEG
//!   POST try ─▶ the same, a stored picture, or one in the request ─▶ each ask, one after the other: RequestQueue ─▶ objects, text, cost
//! ```
//!
//! An ask is read as a prompt of the camera's file, so the model sees what it would see for that prompt. Nothing is stored.

mod answer;

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

use self::answer::{AnswerCost, answer_json};
use crate::{
    events::{EventAnswers, EventRefusal},
    status::PromptCost,
};
use spotter_config::{CameraConfig, PromptConfig, SourceConfig, prompt_of_keys};
use spotter_core::{CameraId, Look, Picture, PromptId, PromptRegion, Task};
use spotter_http::{BodyError, BodyMemory, HeldBody, ask_again_after, json_answer, read_body};
use spotter_requests::{RequestNews, RequestQueue, UnansweredRequest, data_url};

/// Bytes of a picture file in a request, and of its data URL.
const FILE_MAX_BYTES: usize = 10_000_000;
const URL_MAX_BYTES: usize = FILE_MAX_BYTES.div_ceil(3) * 4 + 100;
/// The picture and the words.
pub(crate) const TRIAL_MAX_BYTES: usize = URL_MAX_BYTES + 64_000;
/// Requests with a picture in memory at the same time, each of up to 75 MB once it is decoded.
const PLACES: usize = 4;
/// Asks of a request: one beside another.
const ASKS_MAX: usize = 2;
/// A camera sends a frame within this time, or it is in trouble.
const FRAME_LIMIT: Duration = Duration::from_secs(10);
/// An ask that no engine has begun after this time, because the cameras need it, is refused.
const BEGIN_LIMIT: Duration = Duration::from_secs(5);

/// What of a frame is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownAreas {
    /// The camera's masks are black.
    Masked,
    /// All, for those who draw masks.
    Whole,
}

/// A picture that is being waited for.
pub type NextPicture = Pin<Box<dyn Future<Output = Option<CameraPicture>> + Send>>;

/// A frame's picture on the host.
pub struct CameraPicture {
    pub picture: Picture,
    /// Pixels across and down that the camera sent, before Spotter scaled the frame.
    pub camera_size: (u32, u32),
}

/// What the daemon does for trials.
pub trait TrialSource: Send + Sync {
    /// As it is configured now; `None`: no such camera on this node.
    fn camera(&self, camera: &str) -> Option<CameraConfig>;

    /// Waits for the camera's next frame; `None`: it was removed, or its picture cannot be read. Dropping the future loses nothing.
    fn next_picture(&self, camera: &CameraId, areas: ShownAreas) -> NextPicture;

    /// Why the model cannot answer a prompt, and what to do.
    fn unfit(&self, camera: &CameraConfig, prompt: &PromptConfig) -> Option<String>;

    /// What the camera's only prompt costs with frames of this size.
    fn cost(&self, camera: &CameraConfig, size: (usize, usize)) -> Option<PromptCost>;

    /// A JPEG for a browser. Blocks for some tens of milliseconds.
    fn jpeg(&self, picture: &Picture) -> anyhow::Result<Vec<u8>>;
}

/// What trials need of a daemon that runs.
pub struct TrialParts {
    pub source: Arc<dyn TrialSource>,
    pub queue: Arc<RequestQueue>,
}

/// The trials of a page.
pub(crate) struct Trials {
    bodies: BodyMemory,
    places: Arc<Semaphore>,
    /// Set once the daemon runs.
    parts: OnceLock<TrialParts>,
}

/// Why there is no picture or no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialRefusal {
    #[error("Spotter is starting: the model is being opened; try again in a minute")]
    Starting,
    #[error("{PLACES} other requests with pictures are in progress; try again in a moment")]
    NoPlace,
    #[error("no camera {0:?} on this node")]
    UnknownCamera(String),
    #[error("camera {camera} sent no frame within {} s; the view Now says what is wrong with it", FRAME_LIMIT.as_secs())]
    NoFrame { camera: CameraId },
    #[error("the picture has more than {} MB; send a smaller one", FILE_MAX_BYTES / 1_000_000)]
    TooLarge,
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Event(#[from] EventRefusal),
    #[error(transparent)]
    Unanswered(#[from] UnansweredRequest),
    #[error("the picture could not be made: {0}; see the log of Spotter")]
    Failed(String),
}

impl IntoResponse for TrialRefusal {
    fn into_response(self) -> Response {
        let (status, pause_s) = match &self {
            Self::Starting => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
            Self::NoPlace => (StatusCode::TOO_MANY_REQUESTS, Some(1)),
            Self::UnknownCamera(_) => (StatusCode::NOT_FOUND, None),
            Self::NoFrame { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(5)),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, None),
            Self::Wrong(_) => (StatusCode::UNPROCESSABLE_ENTITY, None),
            Self::Unanswered(UnansweredRequest::NoRoom) => (StatusCode::TOO_MANY_REQUESTS, Some(5)),
            Self::Event(why) => (why.status(), why.pause().map(|pause| pause.as_secs())),
            Self::Unanswered(_) => (StatusCode::SERVICE_UNAVAILABLE, Some(10)),
            Self::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        let body = json!({"error": self.to_string(), "retry_after_s": pause_s}).to_string();
        let answer = json_answer(status, body);
        match pause_s {
            Some(pause_s) => ask_again_after(answer, Duration::from_secs(pause_s)),
            None => answer,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialRequest {
    #[serde(rename = "cam")]
    camera: Option<String>,
    image: Option<String>,
    /// Of the camera: its stored picture instead of a frame.
    event: Option<String>,
    asks: Vec<TrialAsk>,
}

/// Keys of a prompt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialAsk {
    kind: AskKind,
    words: String,
    region: Option<toml::Value>,
    crops: Option<u8>,
    /// One of the camera's prompts.
    adapter: Option<String>,
    choices: Option<Vec<String>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AskKind {
    Detect,
    Point,
    Query,
    Segment,
}

impl AskKind {
    /// The key of its words.
    fn key(self) -> &'static str {
        match self {
            Self::Detect => "detect",
            Self::Point => "point",
            Self::Query => "query",
            Self::Segment => "segment",
        }
    }
}

/// What is asked of: a picture of a camera, or one of the client with the settings of a camera without any.
struct TriedPicture {
    camera: CameraConfig,
    picture: Picture,
    camera_size: (u32, u32),
    /// Of a frame, which the client does not have.
    jpeg: Option<Vec<u8>>,
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            bodies: BodyMemory::new(PLACES * TRIAL_MAX_BYTES),
            places: Arc::new(Semaphore::new(PLACES)),
            parts: OnceLock::new(),
        }
    }
}

impl Trials {
    /// From now on pictures are made and asks are answered.
    pub fn open(&self, parts: TrialParts) {
        // Opened once.
        _ = self.parts.set(parts);
    }

    /// As it is configured now.
    pub fn camera(&self, camera: &str) -> Result<CameraConfig, TrialRefusal> {
        known(self.parts()?, camera)
    }

    /// The JPEG of a camera's next frame.
    pub async fn now(&self, camera: &str, areas: ShownAreas) -> Result<Bytes, TrialRefusal> {
        let parts = self.parts()?;
        let camera = known(parts, camera)?;
        let _place = self.place()?;
        let CameraPicture { picture, .. } = next_picture(parts, &camera.id, areas).await?;
        Ok(jpeg(parts, &picture).await?.into())
    }

    /// The prompts of a camera, whose words may be tried.
    pub fn prompts(&self, camera: &str) -> Result<Value, TrialRefusal> {
        let camera = known(self.parts()?, camera)?;
        let prompts = camera.prompts.iter().map(|prompt| {
            let region = match prompt.region {
                PromptRegion::Fixed(region) => {
                    let area = region.norm_box();
                    json!([area.x0, area.y0, area.x1, area.y1])
                }
                PromptRegion::Whole | PromptRegion::Motion => Value::Null,
            };
            let kind = camera.model_prompt(prompt).kind();
            json!({
                "id": prompt.id, "kind": kind, "words": prompt.task.text(), "region": region,
                "crops": prompt.crops_max, "min_score": prompt.min_score, "adapter": prompt.adapter,
                "choices": choices(&prompt.task),
            })
        });
        Ok(json!({"prompts": prompts.collect::<Vec<_>>(), "rate_hz": camera.rate.hz()}))
    }

    /// The body of a request to [`Self::answer`].
    pub async fn read(&self, body: Body) -> Result<HeldBody, TrialRefusal> {
        // A client for which there is no place need not send its picture.
        drop(self.place()?);
        let body = read_body(body, TRIAL_MAX_BYTES, &self.bodies).await;
        body.map_err(|error| match error {
            BodyError::TooLong => TrialRefusal::TooLarge,
            BodyError::NoMemory => TrialRefusal::NoPlace,
            BodyError::TooSlow | BodyError::Broken => {
                TrialRefusal::Wrong("the picture comes too slowly, or not wholly".to_owned())
            }
        })
    }

    /// The answers to a request, one for each ask. All of them are about the same picture.
    pub async fn answer(
        &self,
        body: HeldBody,
        events: Option<&EventAnswers>,
    ) -> Result<Value, TrialRefusal> {
        let parts = self.parts()?;
        let place = self.place()?;
        let mut request: TrialRequest = serde_json::from_slice(&body.bytes)
            .map_err(|error| TrialRefusal::Wrong(format!("not what a trial is: {error}")))?;
        drop(body);
        if !(1..=ASKS_MAX).contains(&request.asks.len()) {
            let text = format!("asks: needs 1 to {ASKS_MAX} of them");
            return Err(TrialRefusal::Wrong(text));
        }
        let asks = std::mem::take(&mut request.asks);
        let (tried, place) = tried_picture(parts, request, events, place).await?;
        let mut answers = Vec::new();
        for ask in &asks {
            answers.push(match prompt(ask, &tried.camera) {
                Ok(prompt) => answered(parts, &tried, prompt).await?,
                Err(error) => json!({"error": error}),
            });
        }
        drop(place);
        let jpeg = tried.jpeg.map(|jpeg| BASE64_STANDARD.encode(jpeg));
        Ok(json!({
            "size": tried.picture.size(), "camera_size": tried.camera_size, "jpeg": jpeg, "answers": answers,
        }))
    }

    fn parts(&self) -> Result<&TrialParts, TrialRefusal> {
        self.parts.get().ok_or(TrialRefusal::Starting)
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, TrialRefusal> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| TrialRefusal::NoPlace)
    }
}

fn known(parts: &TrialParts, camera: &str) -> Result<CameraConfig, TrialRefusal> {
    let known = parts.source.camera(camera);
    known.ok_or_else(|| TrialRefusal::UnknownCamera(camera.to_owned()))
}

async fn next_picture(
    parts: &TrialParts,
    camera: &CameraId,
    areas: ShownAreas,
) -> Result<CameraPicture, TrialRefusal> {
    let next = timeout(FRAME_LIMIT, parts.source.next_picture(camera, areas)).await;
    let next = next.ok().flatten();
    next.ok_or_else(|| TrialRefusal::NoFrame {
        camera: camera.clone(),
    })
}

async fn jpeg(parts: &TrialParts, picture: &Picture) -> Result<Vec<u8>, TrialRefusal> {
    let (source, picture) = (Arc::clone(&parts.source), picture.clone());
    let made = spawn_blocking(move || source.jpeg(&picture)).await;
    let made = made.map_err(anyhow::Error::from).flatten();
    made.map_err(|error| TrialRefusal::Failed(format!("{error:#}")))
}

async fn tried_picture(
    parts: &TrialParts,
    request: TrialRequest,
    events: Option<&EventAnswers>,
    place: OwnedSemaphorePermit,
) -> Result<(TriedPicture, OwnedSemaphorePermit), TrialRefusal> {
    let TrialRequest {
        camera,
        image,
        event,
        ..
    } = request;
    match (camera, image, event) {
        (Some(camera), None, None) => {
            let camera = known(parts, &camera)?;
            let next = next_picture(parts, &camera.id, ShownAreas::Masked).await?;
            let tried = TriedPicture {
                camera,
                jpeg: Some(jpeg(parts, &next.picture).await?),
                picture: next.picture,
                camera_size: next.camera_size,
            };
            Ok((tried, place))
        }
        (Some(camera), None, Some(event)) => {
            let camera = known(parts, &camera)?;
            let file = events
                .ok_or(EventRefusal::Off)?
                .picture_file(&event)
                .await?;
            decoded(camera, place, move || data_url::picture_of_file(&file)).await
        }
        (None, Some(image), None) if image.len() > URL_MAX_BYTES => Err(TrialRefusal::TooLarge),
        (None, Some(image), None) => {
            let camera = CameraConfig::new(CameraId::of_still(), SourceConfig::Test);
            decoded(camera, place, move || data_url::picture(&image)).await
        }
        _ => {
            let text = "give exactly one of cam, image; event only with cam";
            Err(TrialRefusal::Wrong(text.to_owned()))
        }
    }
}

/// The place is held also when the client disconnects while its picture is decoded.
async fn decoded(
    camera: CameraConfig,
    place: OwnedSemaphorePermit,
    decode: impl FnOnce() -> Result<Picture, String> + Send + 'static,
) -> Result<(TriedPicture, OwnedSemaphorePermit), TrialRefusal> {
    let decoding = spawn_blocking(move || (decode(), place)).await;
    let (picture, place) = decoding.map_err(|error| TrialRefusal::Failed(error.to_string()))?;
    let picture = picture.map_err(TrialRefusal::Wrong)?;
    let (width, height) = picture.size();
    let tried = TriedPicture {
        camera,
        picture,
        camera_size: (width as u32, height as u32),
        jpeg: None,
    };
    Ok((tried, place))
}

/// The answers of which a question's is one; empty: any text.
fn choices(task: &Task) -> &[String] {
    match task {
        Task::Query { choices, .. } => choices,
        _ => &[],
    }
}

/// The prompt that a file with these keys has on this camera; its mistakes are those of the file.
fn prompt(ask: &TrialAsk, camera: &CameraConfig) -> Result<PromptConfig, String> {
    let mut keys = toml::Table::new();
    keys.insert(ask.kind.key().to_owned(), ask.words.clone().into());
    keys.extend(
        ask.region
            .clone()
            .map(|region| ("region".to_owned(), region)),
    );
    let crops = ask.crops.map(i64::from);
    keys.extend(crops.map(|crops| ("crops".to_owned(), crops.into())));
    let adapter = ask.adapter.clone();
    keys.extend(adapter.map(|adapter| ("adapter".to_owned(), adapter.into())));
    let choices = ask.choices.clone();
    keys.extend(choices.map(|choices| ("choices".to_owned(), choices.into())));
    let adapters = camera.prompts.iter();
    let adapters: Vec<_> = adapters.filter_map(|it| it.adapter.clone()).collect();
    let prompt = prompt_of_keys(&keys, &PromptId::numbered("try", 0), camera, &adapters)?;
    match prompt.region {
        PromptRegion::Motion => {
            Err("region: \"motion\" is elsewhere in each frame; draw the part to try".to_owned())
        }
        PromptRegion::Whole | PromptRegion::Fixed(_) => Ok(prompt),
    }
}

/// What the model says of the picture. A refusal is of the whole request: the engines have no room, or none runs.
async fn answered(
    parts: &TrialParts,
    tried: &TriedPicture,
    prompt: PromptConfig,
) -> Result<Value, TrialRefusal> {
    if let Some(why) = parts.source.unfit(&tried.camera, &prompt) {
        return Ok(json!({"error": why}));
    }
    let asked = Arc::new(tried.camera.model_prompt(&prompt));
    let look = Look {
        prompts: vec![asked],
        ..Look::still(tried.picture.clone(), [])
    };
    let mut asked = match parts.queue.ask(look, BEGIN_LIMIT).await {
        Ok(asked) => asked,
        Err(why) => return Err(why.into()),
    };
    let mut outlines = Vec::new();
    let answer = loop {
        match asked.next().await {
            Ok(RequestNews::Piece(_)) => {}
            Ok(RequestNews::Outline(outline)) => outlines.push(*outline),
            Ok(RequestNews::Answer(answer)) => break answer,
            Err(why @ UnansweredRequest::Stopping) => return Err(why.into()),
            Err(why) => return Ok(json!({"error": why.to_string()})),
        }
    };
    let camera = CameraConfig {
        prompts: vec![prompt],
        ..tried.camera.clone()
    };
    let cost = parts.source.cost(&camera, tried.picture.size());
    let cost = cost.map(|cost| AnswerCost {
        // A picture of the client comes at no rate.
        has_rate: !tried.camera.id.is_of_still(),
        cost,
    });
    Ok(answer_json(&answer, &outlines, cost))
}

#[cfg(test)]
pub(crate) mod tests;
