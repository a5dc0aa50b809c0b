//! The API's HTTP server: all routes are in [`routes`]. A request passes the guard ([`admit`]) before its route.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
};
use ulid::Ulid;

use super::{
    chat::{ChatReply, ChatRequest},
    counters::{ApiCounters, CountedRequest},
    error::{ApiError, json_body},
    events::{self, AnsweredRequest, ReplyShape},
    history::selection,
    skills::{AdapterName, ApiQuestion, ApiSkill, SkillReply, SkillRequest},
    trigger_call::{self, TriggerRequest},
};
use spotter_config::ApiConfig;
use spotter_core::{AdapterId, Clock, LogThrottle, Look, Picture, plain_line};
use spotter_history::PictureLinks;
use spotter_http::{
    AccessTokens, BodyError, BodyMemory, ClientAddress, ClientNetwork, HeldBody, HostNames,
    RequestRates, ServedListener, TokenClient, bearer_token, bind, is_loopback_name, read_body,
};
use spotter_page::{ApiLine, EventAnswers, EventRefusal};
use spotter_requests::{RequestQueue, UnansweredRequest, data_url};

/// Pictures that are decoded at the same time.
const DECODERS: usize = 2;
/// Bytes of a mark with its places.
const MARK_MAX_BYTES: usize = 8192;
/// Networks that are logged a minute for tokens that are missing or unknown.
const LOGGED_NETWORKS: usize = 8;

/// The API while it is served. Dropping it frees its address.
pub struct ServedApi {
    state: Arc<ApiState>,
    triggers: mpsc::Receiver<TriggerRequest>,
    listener: ServedListener,
}

/// What the routes answer from.
struct ApiState {
    address: SocketAddr,
    limits: ApiConfig,
    tokens: AccessTokens,
    names: HostNames,
    rates: Mutex<RequestRates>,
    refused: Mutex<LogThrottle<ClientNetwork>>,
    bodies: BodyMemory,
    /// Of requests whose body is read.
    places: Arc<Semaphore>,
    decoders: Arc<Semaphore>,
    queue: Arc<RequestQueue>,
    triggers: mpsc::Sender<TriggerRequest>,
    counters: ApiCounters,
    /// Known once an engine runs.
    model: OnceLock<Arc<str>>,
    /// Known then too.
    events: OnceLock<EventAnswers>,
    /// Those that requests may name.
    adapters: Mutex<Arc<[AdapterId]>>,
    clock: Arc<dyn Clock>,
}

impl ServedApi {
    /// Binds the address, so that a port in use is an error at the start, and refuses requests until [`open`](Self::open). `None`
    /// without `[api]`. Needs a tokio runtime.
    pub async fn start(
        config: Option<&ApiConfig>,
        names: HostNames,
        queue: &Arc<RequestQueue>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(config) = config else {
            return Ok(None);
        };
        let bound = bind("api.listen", config.listen).await?;
        let address = bound.local_addr()?;
        let (caller, triggers) = mpsc::channel(trigger_call::WAITING_MAX);
        let state = Arc::new(ApiState {
            address,
            tokens: AccessTokens::new(&config.tokens),
            names,
            bodies: BodyMemory::new(config.requests * body_max(config)),
            rates: Mutex::new(RequestRates::new(config.rate_hz)),
            refused: Mutex::new(LogThrottle::with_max_kinds(LOGGED_NETWORKS)),
            places: Arc::new(Semaphore::new(config.requests)),
            decoders: Arc::new(Semaphore::new(DECODERS)),
            queue: Arc::clone(queue),
            triggers: caller,
            counters: ApiCounters::default(),
            model: OnceLock::new(),
            events: OnceLock::new(),
            adapters: Mutex::default(),
            clock: Arc::clone(clock),
            limits: config.clone(),
        });
        tracing::info!(%address, tokens = config.tokens.len(), "HTTP API is listening");
        let listener = ServedListener::serve(bound, routes(&state), clock)?;
        Ok(Some(Self {
            state,
            triggers,
            listener,
        }))
    }

    /// From now on requests are accepted, for engines that have this model.
    pub fn open(&self, model: &str) {
        // Opened once.
        let _ = self.state.model.set(model.into());
    }

    /// From now on stored events are shown.
    pub fn open_events(&self, events: EventAnswers) {
        // Opened once.
        _ = self.state.events.set(events);
    }

    /// From now on requests may name these adapters.
    pub fn set_adapters<'a>(&self, adapters: impl Iterator<Item = &'a AdapterId>) {
        let served = self.state.adapters.lock();
        *served.unwrap_or_else(PoisonError::into_inner) = adapters.cloned().collect();
    }

    /// The next call that triggers a camera, for the daemon to reply to. Dropping the future loses nothing.
    pub async fn next_trigger(&mut self) -> TriggerRequest {
        match self.triggers.recv().await {
            Some(request) => request,
            // Not reached: the state has a sender.
            None => pending().await,
        }
    }

    /// For the status page.
    pub fn status(&self) -> ApiLine {
        let state = &self.state;
        state.counters.status(state.address, state.tokens.count())
    }

    /// Frees the address at once; open connections end with their answer.
    pub async fn close(self) {
        // Calls that wait are answered.
        drop(self.triggers);
        self.listener.close().await;
    }
}

/// Bytes of a request's body.
fn body_max(config: &ApiConfig) -> usize {
    config.max_body_mb as usize * 1_000_000
}

/// Every route of the API, all of them behind the guard.
fn routes(state: &Arc<ApiState>) -> Router {
    let skill = |skill| post(move |state, request| answer_skill(state, skill, request));
    Router::new()
        .route("/v1/caption", skill(ApiSkill::Caption))
        .route("/v1/query", skill(ApiSkill::Query))
        .route("/v1/detect", skill(ApiSkill::Detect))
        .route("/v1/point", skill(ApiSkill::Point))
        .route("/v1/segment", skill(ApiSkill::Segment))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/v1/cameras/{camera}/trigger/{trigger}", post(trigger))
        .route("/v1/events", get(list_events).delete(delete_events))
        .route("/v1/events.zip", get(export_events))
        .route("/v1/events/{id}", get(show_event).delete(delete_event))
        .route("/v1/events/{id}/picture", get(show_event_picture))
        .route("/v1/events/{id}/mark", post(mark_event))
        .route("/health", get(health))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(state), admit))
        .with_state(Arc::clone(state))
}

/// The label of a path in metrics: their number is bounded.
fn endpoint(path: &str) -> &'static str {
    match path {
        "/v1/caption" => "caption",
        "/v1/query" => "query",
        "/v1/detect" => "detect",
        "/v1/point" => "point",
        "/v1/segment" => "segment",
        "/v1/chat/completions" => "chat",
        "/v1/models" => "models",
        path if path.starts_with("/v1/cameras/") => "trigger",
        path if path.starts_with("/v1/events") => "events",
        "/health" => "health",
        _ => "other",
    }
}

/// Counts a request and passes it on, or refuses it: by the names and origins that a browser sends, the token, the rate.
async fn admit(State(state): State<Arc<ApiState>>, mut request: Request, next: Next) -> Response {
    let counted = state
        .counters
        .begin(endpoint(request.uri().path()), &state.clock);
    let counted = Arc::new(counted);
    request.extensions_mut().insert(Arc::clone(&counted));
    let response = match state.refusal(&request) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    counted.answered(response.status().as_u16());
    response
}

impl ApiState {
    fn refusal(&self, request: &Request) -> Option<ApiError> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if request.uri().path() == "/health" && is_read {
            return None;
        }
        let headers = request.headers();
        if self.tokens.count() == 0
            && let Some(refusal) = self.foreign(headers)
        {
            return Some(refusal);
        }
        let client = request.extensions().get::<ClientAddress>();
        let address = client.map_or(self.address, |ClientAddress(address)| *address);
        let network = ClientNetwork::of(address.ip());
        let client = self.tokens.client(token(headers), network);
        let (Ok(asking) | Err(asking)) = client;
        if let Err(pause) = self.count(asking) {
            let text = format!(
                "more than {} requests a second; wait and ask again",
                self.limits.rate_hz
            );
            return Some(ApiError::new(StatusCode::TOO_MANY_REQUESTS, text).after(pause));
        }
        client.is_err().then(|| {
            self.log_refused(network);
            let text = "send a token of api.tokens: \"Authorization: Bearer …\"";
            ApiError::new(StatusCode::UNAUTHORIZED, text)
        })
    }

    /// Without tokens, a web page of elsewhere is refused, which the operator's browser shows: it names its origin, or calls this machine
    /// by a name of its own.
    fn foreign(&self, headers: &HeaderMap) -> Option<ApiError> {
        let text = |name| Some(headers.get(name)?.to_str().unwrap_or_default());
        if text(header::HOST).is_some_and(|host| !self.names.accept(host)) {
            let text = "this API is not called by this name: use an address or the name of the machine, or add the name to http.names";
            return Some(ApiError::new(StatusCode::MISDIRECTED_REQUEST, text));
        }
        let is_local = |origin: &str| {
            let host = origin.split_once("://").map_or(origin, |(_, host)| host);
            is_loopback_name(host)
        };
        let origin = text(header::ORIGIN);
        origin.is_some_and(|origin| !is_local(origin)).then(|| {
            let text = "without tokens, this API answers no web pages of other machines";
            ApiError::new(StatusCode::FORBIDDEN, text)
        })
    }

    fn count(&self, client: TokenClient) -> Result<(), Duration> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.admit(client, self.clock.now())
    }

    fn log_refused(&self, client: ClientNetwork) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = refused.admit(client, self.clock.now()) {
            tracing::warn!(%client, suppressed, "API request refused: its token is missing or unknown");
        }
    }

    /// Reads the body, makes of it what is asked while the API has room, and waits until an engine begins it. `None` when nothing is
    /// asked of the model.
    async fn begin<F: Send + 'static>(
        &self,
        request: Request,
        parse: impl FnOnce(&[u8]) -> Result<(F, Option<ApiQuestion>), ApiError> + Send + 'static,
    ) -> Result<(F, Option<AnsweredRequest>), ApiError> {
        // A client that sends slowly takes no place; one for which there is none now need not send.
        drop(self.place()?);
        let counted = request.extensions().get::<Arc<CountedRequest>>().cloned();
        let body = self.body(request, body_max(&self.limits)).await?;
        let place = self.place()?;
        let (form, asked) = self.decoded(body, parse).await?;
        let Some((asked, picture)) = asked else {
            return Ok((form, None));
        };
        let adapter = self.adapter(asked.adapter)?;
        let mut look = Look::still(picture, [asked.task]).with_adapter(adapter.as_ref());
        if asked.in_pieces {
            look = look.in_pieces();
        }
        let begun = AnsweredRequest {
            news: self.queue.ask(look, self.limits.wait).await?,
            _place: place,
            _counted: counted,
        };
        Ok((form, Some(begun)))
    }

    fn model(&self) -> Result<&Arc<str>, ApiError> {
        self.model.get().ok_or(UnansweredRequest::Opening.into())
    }

    fn adapters(&self) -> Arc<[AdapterId]> {
        Arc::clone(&self.adapters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The adapter that a request names.
    fn adapter(&self, named: Option<AdapterName>) -> Result<Option<AdapterId>, ApiError> {
        let (own, adapters) = (self.model()?, self.adapters());
        let (name, own) = match named {
            None => return Ok(None),
            // Clients that know one model name it as they like.
            Some(AdapterName::Model(name)) if adapters.is_empty() || *name == **own => {
                return Ok(None);
            }
            Some(AdapterName::Model(name)) => (name, Some(&**own)),
            Some(AdapterName::Variant(name)) => (name, None),
        };
        if let Some(known) = adapters.iter().find(|known| known.as_str() == name) {
            return Ok(Some(known.clone()));
        }
        let names = own
            .into_iter()
            .chain(adapters.iter().map(AdapterId::as_str));
        let names = Vec::from_iter(names).join(", ");
        let text = match names.is_empty() {
            true => "no adapter is configured; leave \"variant\" out".to_owned(),
            false => format!("no adapter {:?}; there are: {names}", plain_line(&name)),
        };
        Err(ApiError::new(StatusCode::NOT_FOUND, text))
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| self.no_room())
    }

    fn no_room(&self) -> ApiError {
        let text = format!(
            "{} requests are in progress; ask again later",
            self.limits.requests
        );
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, text).after(Duration::from_secs(1))
    }

    /// The body of a request, of at most `most` bytes.
    async fn body(&self, request: Request, most: usize) -> Result<HeldBody, ApiError> {
        let body = read_body(request.into_body(), most, &self.bodies).await;
        body.map_err(|error| match error {
            BodyError::TooLong => {
                let limit = match most / 1_000_000 {
                    0 => format!("{most} bytes"),
                    mega => format!("{mega} MB"),
                };
                let text = format!("the body is longer than {limit}");
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            BodyError::NoMemory => self.no_room(),
            BodyError::TooSlow => {
                let text = "the body comes too slowly, or not at all";
                ApiError::new(StatusCode::REQUEST_TIMEOUT, text)
            }
            BodyError::Broken => ApiError::wrong("the body ends before its announced length"),
        })
    }

    /// What is asked, and its picture; on a thread that may block.
    async fn decoded<F: Send + 'static>(
        &self,
        body: HeldBody,
        parse: impl FnOnce(&[u8]) -> Result<(F, Option<ApiQuestion>), ApiError> + Send + 'static,
    ) -> Result<(F, Option<(ApiQuestion, Picture)>), ApiError> {
        let decoder = Arc::clone(&self.decoders).acquire_owned().await;
        let decoding = spawn_blocking(move || {
            // Held also when the client disconnects meanwhile.
            let _decoder = decoder;
            let (form, asked) = parse(&body.bytes)?;
            let with_picture = asked.map(|asked| {
                let picture = data_url::picture(&asked.image_url).map_err(ApiError::wrong)?;
                Ok::<_, ApiError>((asked, picture))
            });
            Ok((form, with_picture.transpose()?))
        });
        decoding.await.unwrap_or_else(|_| {
            let text = "the picture could not be decoded; see the log of Spotter";
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text))
        })
    }
}

/// The token of a client of OpenAI, or of Moondream's cloud.
fn token(headers: &HeaderMap) -> Option<&str> {
    let other = || headers.get("x-moondream-auth")?.to_str().ok();
    bearer_token(headers).or_else(other)
}

async fn answer_skill(
    State(state): State<Arc<ApiState>>,
    skill: ApiSkill,
    request: Request,
) -> Result<Response, ApiError> {
    let parse = move |body: &[u8]| {
        let asked = SkillRequest::parse(body)?.question(skill)?;
        Ok((asked.as_ref().is_some_and(|asked| asked.in_pieces), asked))
    };
    let (is_streamed, begun) = state.begin(request, parse).await?;
    let missing = "\"image_url\" is missing; send \"data:image/jpeg;base64,…\"";
    let begun = begun.ok_or_else(|| ApiError::wrong(missing))?;
    let request_id = Ulid::generate().to_string();
    replied(begun, is_streamed, SkillReply { skill, request_id }).await
}

async fn chat(State(state): State<Arc<ApiState>>, request: Request) -> Result<Response, ApiError> {
    let model = state.model()?;
    let (form, begun) = state.begin(request, ChatRequest::parse).await?;
    let reply = ChatReply {
        id: format!("chatcmpl-{}", Ulid::generate()),
        model: Arc::clone(model),
        created: state.clock.wall().unix_millis() / 1000,
        form,
    };
    match begun {
        Some(begun) => replied(begun, form.is_streamed, reply).await,
        None if form.is_streamed => Ok(events::whole(reply.events_without_picture())),
        None => Ok(json_body(&reply.without_picture())),
    }
}

async fn replied(
    begun: AnsweredRequest,
    is_streamed: bool,
    shape: impl ReplyShape,
) -> Result<Response, ApiError> {
    match is_streamed {
        true => events::streamed(begun, shape).await,
        false => Ok(json_body(&shape.whole(&begun.news.answer().await?))),
    }
}

/// The model and its adapters, for clients of OpenAI (`data`) and of Station (`models`).
async fn models(State(state): State<Arc<ApiState>>) -> Result<Response, ApiError> {
    let (model, adapters) = (state.model()?, state.adapters());
    let version = env!("CARGO_PKG_VERSION");
    let description = format!("{model} in Spotter {version}");
    let own = (&**model, None, description.clone());
    let adapters = adapters.iter().map(|adapter| {
        let name = adapter.as_str();
        (
            name,
            Some(model),
            format!("adapter {name} of {description}"),
        )
    });
    let entries = [own].into_iter().chain(adapters);
    let entries = entries.map(|(name, parent, description)| {
        let of_openai = json!({"id": name, "object": "model", "created": 0, "owned_by": "spotter", "parent": parent});
        let of_station = json!({"id": name, "name": name, "description": description, "version": version});
        (of_openai, of_station)
    });
    let (data, models): (Vec<Value>, Vec<Value>) = entries.unzip();
    Ok(json_body(
        &json!({"object": "list", "data": data, "models": models}),
    ))
}

/// 204 when the daemon has the signal.
async fn trigger(
    State(state): State<Arc<ApiState>>,
    Path((camera, trigger)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    state.model()?;
    if state.queue.is_closed() {
        return Err(UnansweredRequest::Stopping.into());
    }
    let body = state.body(request, trigger_call::BODY_MAX).await?;
    trigger_call::call(&state.triggers, [&camera, &trigger], &body.bytes).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl ApiState {
    /// Where no token is set, every program on this machine could see them, and what a proxy passes on.
    fn events(&self) -> Result<&EventAnswers, ApiError> {
        if self.tokens.count() == 0 {
            let text = "set api.tokens for events over HTTP, or use `spotter history`";
            return Err(ApiError::new(StatusCode::FORBIDDEN, text));
        }
        Ok(self.events.get().ok_or(EventRefusal::Starting)?)
    }
}

type ApiShared = State<Arc<ApiState>>;

async fn list_events(State(state): ApiShared, uri: Uri) -> Result<Response, ApiError> {
    Ok(state.events()?.list(uri.query(), PictureLinks::Api).await?)
}

async fn export_events(State(state): ApiShared, uri: Uri) -> Result<Response, ApiError> {
    Ok(state.events()?.export(uri.query()).await?)
}

async fn show_event(State(state): ApiShared, Path(id): Path<String>) -> Result<Response, ApiError> {
    Ok(state.events()?.event(&id, PictureLinks::Api).await?)
}

async fn show_event_picture(
    State(state): ApiShared,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    Ok(state.events()?.picture(&id, uri.query()).await?)
}

async fn mark_event(
    State(state): ApiShared,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let events = state.events()?;
    let body = state.body(request, MARK_MAX_BYTES).await?;
    let keys = serde_json::from_slice(&body.bytes);
    let keys = keys.map_err(|error| ApiError::wrong(error.to_string()))?;
    Ok(events.mark(&id, keys).await?)
}

async fn delete_event(
    State(state): ApiShared,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let selected = selection(uri.query(), Some(id))?;
    Ok(state.events()?.delete(selected).await?)
}

async fn delete_events(State(state): ApiShared, uri: Uri) -> Result<Response, ApiError> {
    let selected = selection(uri.query(), None)?;
    Ok(state.events()?.delete(selected).await?)
}

async fn health(State(state): State<Arc<ApiState>>) -> Response {
    let is_open = state.model.get().is_some() && !state.queue.is_closed();
    let (status, word) = match is_open {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let body = json!({"status": word, "server": "spotter"});
    (status, json_body(&body)).into_response()
}

async fn unknown_path() -> ApiError {
    let text = "no such path; this API has /v1/caption, /v1/query, /v1/detect, /v1/point, /v1/segment, /v1/chat/completions, /v1/models, /v1/cameras/NAME/trigger/NAME, /v1/events, /v1/events.zip and /health";
    ApiError::new(StatusCode::NOT_FOUND, text)
}

async fn wrong_method(method: Method) -> ApiError {
    let text = format!("{method} is not a method of this path");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text)
}

#[cfg(test)]
mod tests;
