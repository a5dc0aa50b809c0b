//! The page's HTTP server and its routes.

use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    Readiness, StatusRequest, Visitor,
    access::{AccessRefusal, PageAccess},
    board::StatusSource,
    commands::{self, COMMAND_MAX_BYTES, PageQuestion, PageReply, PageRequest, UnansweredCommand},
    events::{self, EventAnswers, EventRefusal},
    guard::{self, Guard},
    metrics,
    packed_file::PackedFile,
    trial::{ShownAreas, TRIAL_MAX_BYTES, TrialParts, TrialRefusal, Trials},
};
use anyhow::Context as _;
use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, Uri, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, get, post},
};
use futures_util::stream;
use serde::Deserialize;
use serde_json::Value;
use spotter_config::HttpConfig;
use spotter_core::{CameraId, Clock};
use spotter_history::PictureLinks;
use spotter_http::{BodyMemory, RequestSender, ServedListener, bind, read_body};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Interval, MissedTickBehavior, interval},
};

/// Between two events of `/status.events`.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Of a login.
const LOGIN_MAX_BYTES: usize = 4096;
/// Of bodies that are read at the same time.
const BODY_MEMORY_BYTES: usize = 512 * LOGIN_MAX_BYTES;
/// Streams of events at the same time; further browsers ask.
const STREAMS_MAX: usize = 32;
/// Events of a stream, which the browser opens again then: another tab may have logged in.
const STREAM_EVENTS: u32 = 300;

/// The page while it is served. Dropping it frees its address.
pub struct ServedPage {
    listener: ServedListener,
    state: Arc<PageState>,
    requests: mpsc::Receiver<PageRequest>,
}

struct PageState {
    readiness: Readiness,
    access: Arc<PageAccess>,
    bodies: BodyMemory,
    streams: Arc<Semaphore>,
    requests: mpsc::Sender<PageRequest>,
    trials: Trials,
    /// The log has said that pictures are hidden.
    has_logged_hidden: AtomicBool,
    /// Set once the daemon runs.
    source: OnceLock<Arc<dyn StatusSource>>,
    events: OnceLock<EventAnswers>,
}

impl ServedPage {
    /// Binds the address, so that a port in use is an error at the start, and answers `/readyz` and the page, which says why it is empty, until
    /// [`open`](Self::open).
    /// `None` without an address: there is no page. Needs a tokio runtime.
    pub async fn start(
        config: &HttpConfig,
        readiness: Readiness,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = config.listen else {
            return Ok(None);
        };
        let bound = bind("http.listen", address).await?;
        let access = Arc::new(PageAccess::new(config, clock));
        let guard = Guard::new(&access, &config.frames);
        let (caller, requests) = commands::request_queue();
        let state = Arc::new(PageState {
            readiness,
            access,
            bodies: BodyMemory::new(BODY_MEMORY_BYTES),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            requests: caller,
            trials: Trials::default(),
            has_logged_hidden: AtomicBool::new(false),
            source: OnceLock::new(),
            events: OnceLock::new(),
        });
        let listener =
            ServedListener::serve(bound, router(&state, guard, config.base_path())?, clock)?;
        tracing::debug!(address = %listener.address(), "status page");
        Ok(Some(Self {
            listener,
            state,
            requests,
        }))
    }

    /// From now on all paths are answered.
    pub fn open(&self, source: Arc<dyn StatusSource>) {
        // Opened once.
        _ = self.state.source.set(source);
    }

    /// From now on the frames of cameras are shown, and words can be tried.
    pub fn open_trials(&self, parts: TrialParts) {
        self.state.trials.open(parts);
    }

    /// From now on stored events are shown.
    pub fn open_events(&self, events: EventAnswers) {
        // Opened once.
        _ = self.state.events.set(events);
    }

    /// The bound address; of use when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The next request for the daemon to reply to. Dropping the future loses nothing.
    pub async fn next_request(&mut self) -> PageRequest {
        match self.requests.recv().await {
            Some(request) => request,
            // Refused from now on.
            None => pending().await,
        }
    }

    /// Refuses requests to the daemon from now on, also those that wait.
    pub fn refuse(&mut self) {
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
    }

    /// Frees the address at once; open connections end with their answer.
    pub async fn close(self) {
        drop(self.requests);
        self.listener.close().await;
    }
}

/// The page's files, in `assets`.
const FILES: &[(&str, &str)] = &[
    ("page.html", include_str!("assets/page.html")),
    ("page.css", include_str!("assets/page.css")),
    ("icon.svg", include_str!("assets/icon.svg")),
    ("access.js", include_str!("assets/access.js")),
    ("canvas.js", include_str!("assets/canvas.js")),
    ("dom.js", include_str!("assets/dom.js")),
    ("draw.js", include_str!("assets/draw.js")),
    ("draw_parts.js", include_str!("assets/draw_parts.js")),
    ("help.js", include_str!("assets/help.js")),
    ("format.js", include_str!("assets/format.js")),
    ("main.js", include_str!("assets/main.js")),
    ("now.js", include_str!("assets/now.js")),
    ("overlay.js", include_str!("assets/overlay.js")),
    ("plots.js", include_str!("assets/plots.js")),
    ("region.js", include_str!("assets/region.js")),
    ("server.js", include_str!("assets/server.js")),
    ("shapes.js", include_str!("assets/shapes.js")),
    ("sheet.js", include_str!("assets/sheet.js")),
    ("try.js", include_str!("assets/try.js")),
    ("verdict.js", include_str!("assets/verdict.js")),
];

/// Pages of the documentation, which `help.js` shows.
const DOCS: &[(&str, &str)] = &[
    ("api.md", include_str!("../../../docs/api.md")),
    (
        "configuration.md",
        include_str!("../../../docs/configuration.md"),
    ),
    ("faults.md", include_str!("../../../docs/faults.md")),
    ("fleet.md", include_str!("../../../docs/fleet.md")),
    ("glossary.md", include_str!("../../../docs/glossary.md")),
    ("gpu.md", include_str!("../../../docs/gpu.md")),
    ("install.md", include_str!("../../../docs/install.md")),
    ("models.md", include_str!("../../../docs/models.md")),
    ("mqtt.md", include_str!("../../../docs/mqtt.md")),
    ("onvif.md", include_str!("../../../docs/onvif.md")),
    ("operations.md", include_str!("../../../docs/operations.md")),
    ("page.md", include_str!("../../../docs/page.md")),
    ("recipes.md", include_str!("../../../docs/recipes.md")),
    ("scores.md", include_str!("../../../docs/scores.md")),
    ("state.md", include_str!("../../../docs/state.md")),
    ("webhooks.md", include_str!("../../../docs/webhooks.md")),
];

/// Each with its name.
fn packed_files() -> anyhow::Result<Vec<(&'static str, Arc<PackedFile>)>> {
    let pack = |&(name, text): &(&'static str, &'static str)| {
        let file = PackedFile::new(media_type(name), text);
        let file = file.with_context(|| format!("cannot compress {name} of the page"))?;
        Ok((name, Arc::new(file)))
    };
    FILES.iter().map(pack).collect()
}

/// Where a file of the page is.
fn file_path(name: &str) -> String {
    match name {
        "page.html" => "/".to_owned(),
        name => format!("/{name}"),
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    }
}

/// What an answer shows, and so who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// No picture and no text of an answer: for everyone, with any token.
    Figures,
    /// What the visitor sees.
    Status,
    /// For those who see pictures.
    Pictures,
    /// The result of a change: for those who have logged in.
    Change,
}

/// Makes the answer of a path, by method.
type PageMethod = fn() -> MethodRouter<Arc<PageState>>;

/// Path, what the answer shows, and the answer, of all but the [`FILES`], which show nothing of this machine.
const ROUTES: &[(&str, Shows, PageMethod)] = &[
    ("/camera/{picture}", Shows::Pictures, || get(show_picture)),
    ("/camera/{camera}/shapes.json", Shows::Pictures, || {
        get(show_shapes)
    }),
    ("/camera/{camera}/now.jpg", Shows::Pictures, || {
        get(show_now)
    }),
    ("/camera/{camera}/prompts.json", Shows::Pictures, || {
        get(show_prompts)
    }),
    ("/camera/{camera}/unmasked.jpg", Shows::Change, || {
        get(show_unmasked)
    }),
    ("/try", Shows::Pictures, || post(try_words)),
    ("/events.json", Shows::Pictures, || get(list_events)),
    ("/events.zip", Shows::Pictures, || get(export_events)),
    ("/events/{event}", Shows::Pictures, || get(show_event)),
    ("/events/delete", Shows::Change, || post(delete_events)),
    ("/status.json", Shows::Status, || get(show_status)),
    ("/status.events", Shows::Status, || get(stream_status)),
    ("/metrics", Shows::Figures, || get(show_metrics)),
    ("/healthz", Shows::Figures, || get(show_health)),
    ("/readyz", Shows::Figures, || get(show_ready)),
    ("/command", Shows::Change, || post(command)),
    ("/docs/{page}", Shows::Figures, || get(show_documentation)),
    ("/login", Shows::Figures, || post(log_in)),
    ("/logout", Shows::Figures, || post(log_out)),
];

/// With `base`, a path that a proxy may leave in requests, also all routes below it.
fn router(state: &Arc<PageState>, guard: Guard, base: &str) -> anyhow::Result<Router> {
    let mut router = Router::new();
    let files = packed_files()?;
    let mut bases = vec![""];
    let is_own = FILES.iter().any(|(name, _)| file_path(name) == base)
        || ROUTES.iter().any(|(path, ..)| *path == base);
    if let Some((_, last)) = base.rsplit_once('/').filter(|_| !is_own) {
        bases.push(base);
        // Relative addresses of the page need the slash.
        let place = format!("{last}/");
        router = router.route(base, get(async move || Redirect::permanent(&place)));
    }
    for base in bases {
        for (name, file) in &files {
            let file = Arc::clone(file);
            let answer = get(async move |headers: HeaderMap| file.answer(&headers));
            router = router.route(&format!("{base}{}", file_path(name)), answer);
        }
        for &(path, shows, answer) in ROUTES {
            let answer = match shows {
                Shows::Figures => answer(),
                Shows::Status | Shows::Pictures | Shows::Change => {
                    let known = (Arc::clone(state), shows);
                    answer().layer(middleware::from_fn_with_state(known, know_visitor))
                }
            };
            router = router.route(&format!("{base}{path}"), answer);
        }
    }
    let guarded = middleware::from_fn_with_state(Arc::new(guard), guard::guard);
    Ok(router.with_state(Arc::clone(state)).layer(guarded))
}

/// Passes a request on with its [`Visitor`], or refuses a wrong token, and visitors who do not get the answer.
async fn know_visitor(
    State(known): State<(Arc<PageState>, Shows)>,
    Extension(sender): Extension<RequestSender>,
    mut request: Request,
    next: Next,
) -> Response {
    let (state, shows) = known;
    let visitor = match state.access.visitor(&sender, request.headers()) {
        Ok(visitor) => visitor,
        Err(refusal) => return refusal.into_response(),
    };
    let is_allowed = match shows {
        Shows::Figures | Shows::Status => true,
        Shows::Pictures => visitor.sees_pictures(),
        Shows::Change => visitor == Visitor::LoggedIn,
    };
    if is_allowed {
        request.extensions_mut().insert(visitor);
        return next.run(request).await;
    }
    match (shows, state.access.has_tokens()) {
        (Shows::Change, true) => AccessRefusal::LoginNeeded.into_response(),
        (Shows::Change, false) => AccessRefusal::NoTokens.into_response(),
        (_, true) => (StatusCode::UNAUTHORIZED, "log in to see pictures\n").into_response(),
        (_, false) => (
            StatusCode::FORBIDDEN,
            "without http.tokens, pictures are shown on this machine alone\n",
        )
            .into_response(),
    }
}

/// Before the daemon runs, the paths that need its figures say why there are none.
fn source(state: &PageState) -> Result<&dyn StatusSource, (StatusCode, &'static str)> {
    let starting = (
        StatusCode::SERVICE_UNAVAILABLE,
        "Spotter is starting: the model is being opened\n",
    );
    let source = state.source.get().map(AsRef::as_ref);
    source.ok_or(starting)
}

type PageShared = State<Arc<PageState>>;
type PageAnswer<T> = Result<T, (StatusCode, &'static str)>;

/// The query `pictured` is the page's: looks that have a picture, which are made more often then.
async fn show_status(
    State(state): PageShared,
    Extension(visitor): Extension<Visitor>,
    Extension(sender): Extension<RequestSender>,
    uri: Uri,
) -> PageAnswer<impl IntoResponse> {
    let text = state.status(visitor, &sender, &uri)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text))
}

/// The same as server-sent events, until the session ends, also by a logout in another tab.
async fn stream_status(
    State(state): PageShared,
    Extension(visitor): Extension<Visitor>,
    Extension(sender): Extension<RequestSender>,
    request: Request,
) -> PageAnswer<impl IntoResponse> {
    source(&state)?;
    let place = Arc::clone(&state.streams).try_acquire_owned();
    let full = (
        StatusCode::SERVICE_UNAVAILABLE,
        "too many browsers follow the page\n",
    );
    let place = place.map_err(|_| full)?;
    let (head, _) = request.into_parts();
    let mut ticks = interval(EVENT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watched = StatusStream {
        state,
        visitor,
        sender,
        head,
        ticks,
        left: STREAM_EVENTS,
        _place: place,
    };
    let events = stream::unfold(watched, |mut watched| async {
        Some((Ok::<_, Infallible>(watched.next().await?), watched))
    });
    let head = [
        ("content-type", "text/event-stream"),
        // Proxies would keep or compress it.
        ("cache-control", "no-store, no-transform"),
        ("x-accel-buffering", "no"),
    ];
    Ok((head, Body::from_stream(events)))
}

/// A browser that follows the status.
struct StatusStream {
    state: Arc<PageState>,
    visitor: Visitor,
    sender: RequestSender,
    head: Parts,
    ticks: Interval,
    left: u32,
    _place: OwnedSemaphorePermit,
}

impl StatusStream {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        self.ticks.tick().await;
        let (access, head) = (&self.state.access, &self.head);
        if access.visitor(&self.sender, &head.headers) != Ok(self.visitor) {
            return None;
        }
        let status = self.state.status(self.visitor, &self.sender, &head.uri);
        let status = status.ok()?;
        Some(format!("data: {status}\n\n"))
    }
}

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

async fn log_in(
    State(state): PageShared,
    request: Request,
) -> Result<impl IntoResponse, AccessRefusal> {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let wrong = |_| AccessRefusal::WrongBody(LOGIN_MAX_BYTES);
    let login: Login = serde_json::from_value(change.body).map_err(wrong)?;
    let access = &state.access;
    let cookie = access.log_in(&login.token, &change.sender, &change.headers)?;
    tracing::info!(client = %change.sender.network, "login at the status page");
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]))
}

async fn log_out(
    State(state): PageShared,
    request: Request,
) -> Result<impl IntoResponse, AccessRefusal> {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let cookie = state.access.log_out(&change.sender, &change.headers);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]))
}

/// Executes a command as over MQTT, and waits for its reply.
async fn command(
    State(state): PageShared,
    request: Request,
) -> Result<Result<PageReply, UnansweredCommand>, AccessRefusal> {
    let change = state.change(request, COMMAND_MAX_BYTES).await?;
    Ok(state.ask(PageQuestion::Command(change.body)).await)
}

async fn show_shapes(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<Result<PageReply, UnansweredCommand>, (StatusCode, &'static str)> {
    let camera = CameraId::new(&camera).map_err(|_| (StatusCode::NOT_FOUND, "no camera\n"))?;
    Ok(state.ask(PageQuestion::Shapes(camera)).await)
}

/// A request to change something that comes from this page, or from a program.
struct PageChange {
    sender: RequestSender,
    headers: HeaderMap,
    body: Value,
}

impl PageState {
    fn status(&self, visitor: Visitor, sender: &RequestSender, uri: &Uri) -> PageAnswer<String> {
        // Home Assistant's ingress adds the sign.
        let pictured = matches!(uri.query(), Some("pictured" | "pictured="));
        let is_hidden = pictured && visitor == Visitor::Stranger && !self.access.has_tokens();
        if is_hidden && !self.has_logged_hidden.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                client = %sender.network,
                "the status page shows no pictures and texts to clients on other machines or behind a proxy; to show them again, set http.tokens and log in (docs/page.md)"
            );
        }
        Ok(source(self)?.status_json(StatusRequest {
            pictured,
            visitor,
            has_login: self.access.has_tokens(),
        }))
    }

    /// A request of another web page is refused, which a form of it cannot send as JSON.
    fn check_json(
        &self,
        sender: &RequestSender,
        headers: &HeaderMap,
        most: usize,
    ) -> Result<(), AccessRefusal> {
        self.access.check_origin(sender, headers)?;
        let kind = headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next());
        let is_json = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
        is_json.then_some(()).ok_or(AccessRefusal::WrongBody(most))
    }

    /// Waits for the daemon's reply.
    async fn ask(&self, asked: PageQuestion) -> Result<PageReply, UnansweredCommand> {
        if self.source.get().is_none() {
            return Err(UnansweredCommand::Starting);
        }
        commands::ask(&self.requests, asked).await
    }

    /// Reads a change of at most `most` bytes. It is JSON, which a form of another web page cannot send.
    async fn change(&self, request: Request, most: usize) -> Result<PageChange, AccessRefusal> {
        let wrong = AccessRefusal::WrongBody(most);
        let (parts, body) = request.into_parts();
        // The guard has added it.
        let sender = parts
            .extensions
            .get::<RequestSender>()
            .ok_or(AccessRefusal::ForeignOrigin)?;
        self.check_json(sender, &parts.headers, most)?;
        let body = read_body(body, most, &self.bodies).await;
        let body = body.map_err(|_| wrong)?;
        let body = serde_json::from_slice(&body.bytes).map_err(|_| wrong)?;
        Ok(PageChange {
            sender: sender.clone(),
            headers: parts.headers,
            body,
        })
    }
}

async fn show_picture(
    State(state): PageShared,
    Path(picture): Path<String>,
    uri: Uri,
) -> PageAnswer<impl IntoResponse> {
    let source = source(&state)?;
    let look = uri.query().and_then(|query| query.strip_prefix("look="));
    let look = look.and_then(|look| look.parse().ok());
    let camera = picture.strip_suffix(".jpg");
    let thumbnail = camera.and_then(|camera| source.thumbnail(camera, look));
    let thumbnail = thumbnail.ok_or((StatusCode::NOT_FOUND, "no picture\n"))?;
    let kind = [(header::CONTENT_TYPE, "image/jpeg")];
    Ok((kind, thumbnail.jpeg.clone()))
}

fn events(state: &PageState) -> Result<&EventAnswers, EventRefusal> {
    state.events.get().ok_or(EventRefusal::Starting)
}

async fn list_events(State(state): PageShared, uri: Uri) -> Result<Response, EventRefusal> {
    events(&state)?.list(uri.query(), PictureLinks::Page).await
}

async fn export_events(State(state): PageShared, uri: Uri) -> Result<Response, EventRefusal> {
    events(&state)?.export(uri.query()).await
}

/// `ID.jpg` or `ID.json`.
async fn show_event(
    State(state): PageShared,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, EventRefusal> {
    let events = events(&state)?;
    match name.rsplit_once('.') {
        Some((id, "jpg")) => events.picture(id, uri.query()).await,
        Some((id, "json")) => events.event(id, PictureLinks::Page).await,
        _ => Err(EventRefusal::Unknown),
    }
}

async fn delete_events(
    State(state): PageShared,
    request: Request,
) -> Result<Result<Response, EventRefusal>, AccessRefusal> {
    let change = state.change(request, LOGIN_MAX_BYTES).await?;
    let deleted = async {
        events(&state)?
            .delete(events::selection(change.body)?)
            .await
    };
    Ok(deleted.await)
}

async fn show_documentation(Path(page): Path<String>) -> PageAnswer<impl IntoResponse> {
    let found = DOCS.iter().find(|(name, _)| *name == page);
    let (_, text) = found.ok_or((
        StatusCode::NOT_FOUND,
        "the program does not contain this page of the documentation\n",
    ))?;
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, *text))
}

/// The next frame of a camera.
async fn show_now(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<impl IntoResponse, TrialRefusal> {
    next_frame(&state, &camera, ShownAreas::Masked).await
}

/// The same without the camera's masks, for those who may change them.
async fn show_unmasked(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<impl IntoResponse, TrialRefusal> {
    next_frame(&state, &camera, ShownAreas::Whole).await
}

async fn next_frame(
    state: &PageState,
    camera: &str,
    areas: ShownAreas,
) -> Result<impl IntoResponse + use<>, TrialRefusal> {
    let jpeg = state.trials.now(camera, areas).await?;
    Ok(([(header::CONTENT_TYPE, "image/jpeg")], jpeg))
}

async fn show_prompts(
    State(state): PageShared,
    Path(camera): Path<String>,
) -> Result<impl IntoResponse, TrialRefusal> {
    let prompts = state.trials.prompts(&camera)?;
    Ok((
        [(header::CONTENT_TYPE, "application/json")],
        prompts.to_string(),
    ))
}

/// Asks the model, for those who see pictures. It changes nothing, and takes a part of the engine: no foreign web page may send it.
async fn try_words(
    State(state): PageShared,
    Extension(sender): Extension<RequestSender>,
    request: Request,
) -> Result<Result<impl IntoResponse, TrialRefusal>, AccessRefusal> {
    state.check_json(&sender, request.headers(), TRIAL_MAX_BYTES)?;
    let answered = async {
        let body = state.trials.read(request.into_body()).await?;
        let answers = state.trials.answer(body, state.events.get()).await?;
        Ok((
            [(header::CONTENT_TYPE, "application/json")],
            answers.to_string(),
        ))
    };
    Ok(answered.await)
}

async fn show_metrics(State(state): PageShared) -> PageAnswer<impl IntoResponse> {
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    Ok((kind, source(&state)?.metrics()))
}

async fn show_health(State(state): PageShared) -> PageAnswer<(StatusCode, String)> {
    Ok(match source(&state)?.troubles().join("\n") {
        healthy if healthy.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
        troubles => (StatusCode::SERVICE_UNAVAILABLE, troubles + "\n"),
    })
}

async fn show_ready(State(state): PageShared) -> (StatusCode, String) {
    match state.readiness.check() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests;
