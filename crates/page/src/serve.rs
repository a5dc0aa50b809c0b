//! The page's HTTP server: who gets which answer. The answers are in the modules below.

mod changes;
mod documentation;
mod figures;
mod files;
mod judging;
mod stored_events;
mod trials;

use std::{
    future::pending,
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use crate::{
    Readiness, Visitor,
    access::{AccessRefusal, PageAccess},
    board::StatusSource,
    commands::{self, PageQuestion, PageReply, PageRequest, UnansweredCommand},
    events::EventAnswers,
    guard::{self, Guard},
    judging::JudgingAnswers,
    trial::{TrialParts, Trials},
};
use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, get},
};
use serde_json::Value;
use spotter_config::HttpConfig;
use spotter_core::{Clock, NodeId};
use spotter_http::{BodyMemory, RequestSender, ServedListener, bind, read_body};
use tokio::sync::{Semaphore, mpsc};

/// Of a login.
const LOGIN_MAX_BYTES: usize = 4096;
/// Of bodies that are read at the same time.
const BODY_MEMORY_BYTES: usize = 512 * LOGIN_MAX_BYTES;
/// Streams of events at the same time; further browsers ask.
const STREAMS_MAX: usize = 32;

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
    streamed: figures::StreamedStatus,
    requests: mpsc::Sender<PageRequest>,
    trials: Trials,
    /// The log has said that pictures are hidden.
    has_logged_hidden: AtomicBool,
    /// Set once the daemon runs.
    source: OnceLock<Arc<dyn StatusSource>>,
    events: OnceLock<EventAnswers>,
    judging: OnceLock<JudgingAnswers>,
}

impl ServedPage {
    /// Binds the address, so that a port in use is an error at the start, and answers `/readyz` and the page, which says why it is empty, until
    /// [`open`](Self::open).
    /// `None` without an address: there is no page. Needs a tokio runtime.
    pub async fn start(
        node: &NodeId,
        config: &HttpConfig,
        readiness: Readiness,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = config.listen else {
            return Ok(None);
        };
        let bound = bind("http.listen", address).await?;
        let access = Arc::new(PageAccess::new(node, config, clock));
        let guard = Guard::new(&access, &config.frames);
        let (caller, requests) = commands::request_queue();
        let state = Arc::new(PageState {
            readiness,
            access,
            bodies: BodyMemory::new(BODY_MEMORY_BYTES),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            streamed: figures::StreamedStatus::default(),
            requests: caller,
            trials: Trials::default(),
            has_logged_hidden: AtomicBool::new(false),
            source: OnceLock::new(),
            events: OnceLock::new(),
            judging: OnceLock::new(),
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

    /// From now on alarms are judged.
    pub fn open_judging(&self, judging: JudgingAnswers) {
        // Opened once.
        _ = self.state.judging.set(judging);
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

/// Path, what the answer shows, and how it is made, by method.
type PageRoute = (&'static str, Shows, fn() -> MethodRouter<Arc<PageState>>);

/// All of them but the page's own files, which show nothing of this machine.
const ROUTES: [&[PageRoute]; 6] = [
    figures::ROUTES,
    trials::ROUTES,
    stored_events::ROUTES,
    judging::ROUTES,
    changes::ROUTES,
    documentation::ROUTES,
];

fn routes() -> impl Iterator<Item = PageRoute> {
    ROUTES.into_iter().flatten().copied()
}

/// With `base`, a path that a proxy may leave in requests, also all routes below it.
fn router(state: &Arc<PageState>, guard: Guard, base: &str) -> anyhow::Result<Router> {
    let mut router = Router::new();
    let files = files::packed_files()?;
    let mut bases = vec![""];
    let is_own = files.iter().any(|(name, _)| files::file_path(name) == base)
        || routes().any(|(path, ..)| path == base);
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
            router = router.route(&format!("{base}{}", files::file_path(name)), answer);
        }
        for (path, shows, answer) in routes() {
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

/// A request to change something that comes from this page, or from a program.
struct PageChange {
    sender: RequestSender,
    headers: HeaderMap,
    body: Value,
}

impl PageState {
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

#[cfg(test)]
mod tests;
