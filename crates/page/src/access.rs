//! Who asks, and what they may see. Decisions take `now`; [`PageAccess`] keeps their state.
//!
//! ```text
//!   request ─▶ RequestSender: network, through a proxy? ─┬─ no tokens: of this machine, directly and by a loopback name ─▶ Local
//!                                                 ├─ a session's cookie, or a token ──────────────────────────────▶ LoggedIn
//!                                                 └─ else ────────────────────────────────────────────────────────▶ Stranger
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use spotter_config::HttpConfig;
use spotter_core::{Clock, LogThrottle, NodeId};
use spotter_http::{
    AccessTokens, ClientNetwork, HostNames, RequestRates, RequestSender, TokenClient,
    TrustedProxies, ask_again_after, bearer_token, is_loopback_name, json_answer,
};

/// Wrong tokens of a client's network: so many at once, then one in each interval.
const ATTEMPTS_AT_ONCE: u32 = 5;
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(10);
/// Networks that are logged a minute for wrong tokens.
const LOGGED_NETWORKS: usize = 8;
/// Sessions beyond end the oldest one.
const SESSIONS_MAX: usize = 64;
/// How long a browser keeps the cookie.
const COOKIE_S: u64 = 30 * 86_400;

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Visitor {
    /// Sees figures: no picture and no text of an answer.
    #[default]
    Stranger,
    /// On this machine, where no token is set: sees everything.
    Local,
    /// Has sent a token, or logged in with one: sees everything.
    LoggedIn,
}

impl Visitor {
    pub fn sees_pictures(self) -> bool {
        self != Self::Stranger
    }
}

/// Why a token or a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessRefusal {
    /// The client's network sent too many wrong tokens; it may try again after this time.
    TooManyAttempts(Duration),
    WrongToken,
    /// The page has no tokens.
    NoTokens,
    /// The system gives none for a session.
    NoRandomNumbers,
    /// The body of a change is no JSON that it should be, or has more bytes than this.
    WrongBody(usize),
    /// Only those who have logged in may change something.
    LoginNeeded,
    /// A web page of another origin, or none that is named.
    ForeignOrigin,
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::TooManyAttempts(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "too many wrong tokens: wait before the next one",
            ),
            Self::WrongToken => (StatusCode::UNAUTHORIZED, "this is no token of http.tokens"),
            Self::NoTokens => (
                StatusCode::FORBIDDEN,
                "this page has no tokens: set http.tokens to log in and change something",
            ),
            Self::LoginNeeded => (StatusCode::UNAUTHORIZED, "log in to change something"),
            Self::NoRandomNumbers => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the system gives no random numbers",
            ),
            Self::WrongBody(most) => {
                let kb = most / 1000;
                let text =
                    format!("send JSON of at most {kb} kB, with content-type: application/json");
                return error_answer(StatusCode::UNPROCESSABLE_ENTITY, &text);
            }
            Self::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "this request comes from a web page of another name: open this page by an address or the name of the machine, or add the name to http.names; a program sends \"Authorization: Bearer …\"",
            ),
        };
        let answer = error_answer(status, error);
        match self {
            Self::TooManyAttempts(pause) => ask_again_after(answer, pause),
            _ => answer,
        }
    }
}

fn error_answer(status: StatusCode, text: &str) -> Response {
    json_answer(status, json!({ "error": text }).to_string())
}

/// Tokens, sessions and attempts.
pub(crate) struct PageAccess {
    tokens: AccessTokens,
    names: HostNames,
    proxies: TrustedProxies,
    state: Mutex<AccessState>,
    clock: Arc<dyn Clock>,
    /// With node and port: a browser sends cookies to all ports of a host, and a proxy may have several nodes behind one of them.
    cookie_name: String,
}

struct AccessState {
    sessions: Sessions,
    attempts: RequestRates,
    /// Networks whose wrong tokens are logged.
    refused: LogThrottle<ClientNetwork>,
}

impl PageAccess {
    pub fn new(node: &NodeId, config: &HttpConfig, clock: &Arc<dyn Clock>) -> Self {
        Self {
            tokens: AccessTokens::new(&config.tokens),
            names: HostNames::of_this_machine(&config.names),
            proxies: TrustedProxies::new(&config.proxies),
            state: Mutex::new(AccessState {
                sessions: Sessions::default(),
                attempts: RequestRates::at_once(ATTEMPT_INTERVAL, ATTEMPTS_AT_ONCE),
                refused: LogThrottle::with_max_kinds(LOGGED_NETWORKS),
            }),
            clock: Arc::clone(clock),
            cookie_name: format!(
                "spotter_session_{node}_{}",
                config.listen.map_or(0, |at| at.port())
            ),
        }
    }

    pub fn names(&self) -> &HostNames {
        &self.names
    }

    pub fn proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    pub fn has_tokens(&self) -> bool {
        self.tokens.count() > 0
    }

    /// An error is a token that is wrong, in a request that has one.
    pub fn visitor(
        &self,
        sender: &RequestSender,
        headers: &HeaderMap,
    ) -> Result<Visitor, AccessRefusal> {
        if !self.has_tokens() {
            // Also of a proxy that adds no header, unless it calls this machine by a loopback name.
            let is_local =
                sender.is_local && text(headers, header::HOST).is_some_and(is_loopback_name);
            return Ok(if is_local {
                Visitor::Local
            } else {
                Visitor::Stranger
            });
        }
        let is_known = self
            .sessions(headers)
            .any(|cookie| self.lock().sessions.has(cookie));
        match bearer_token(headers) {
            _ if is_known => Ok(Visitor::LoggedIn),
            // A browser sends none itself: a proxy has added its own.
            Some(token) if !headers.contains_key("sec-fetch-mode") => {
                self.check(token, sender)?;
                Ok(Visitor::LoggedIn)
            }
            _ => Ok(Visitor::Stranger),
        }
    }

    /// Begins a session, and returns the cookie's header.
    pub fn log_in(
        &self,
        token: &str,
        sender: &RequestSender,
        headers: &HeaderMap,
    ) -> Result<String, AccessRefusal> {
        self.check(token, sender)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| AccessRefusal::NoRandomNumbers)?;
        let value: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        self.lock().sessions.begin(&value);
        Ok(self.cookie(&value, COOKIE_S, sender, headers))
    }

    /// Ends the session of the request, and returns the header that removes its cookie.
    pub fn log_out(&self, sender: &RequestSender, headers: &HeaderMap) -> String {
        let mut state = self.lock();
        self.sessions(headers)
            .for_each(|value| state.sessions.end(value));
        self.cookie("", 0, sender, headers)
    }

    /// Whether a request may change something, by where it comes from: a web page of another origin may not. Programs that send
    /// a token name no origin.
    pub fn check_origin(
        &self,
        sender: &RequestSender,
        headers: &HeaderMap,
    ) -> Result<(), AccessRefusal> {
        let host = sender
            .host
            .as_deref()
            .or_else(|| text(headers, header::HOST));
        let is_own = match headers.get(header::ORIGIN) {
            Some(origin) => origin
                .to_str()
                .is_ok_and(|origin| self.names.accept_origin(origin, host)),
            None => bearer_token(headers).is_some(),
        };
        is_own.then_some(()).ok_or(AccessRefusal::ForeignOrigin)
    }

    /// A client that sent too many wrong ones is refused before its token is compared.
    fn check(&self, token: &str, sender: &RequestSender) -> Result<(), AccessRefusal> {
        let (client, now) = (TokenClient::Network(sender.network), self.clock.now());
        if !self.has_tokens() {
            return Err(AccessRefusal::NoTokens);
        }
        let mut state = self.lock();
        if let Some(pause) = state.attempts.pause(client, now) {
            return Err(AccessRefusal::TooManyAttempts(pause));
        }
        if self.tokens.client(Some(token), sender.network).is_ok() {
            return Ok(());
        }
        let counted = state.attempts.admit(client, now);
        counted.map_err(AccessRefusal::TooManyAttempts)?;
        if let Some(suppressed) = state.refused.admit(sender.network, now) {
            tracing::warn!(client = %sender.network, suppressed, "status page refused a wrong token");
        }
        Err(AccessRefusal::WrongToken)
    }

    /// The values of cookies that may be of a session.
    fn sessions<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h str> {
        let lines = headers.get_all(header::COOKIE).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let cookies = lines.flat_map(|line| line.split(';'));
        let values = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        values.filter_map(|(name, value)| (name == self.cookie_name).then_some(value))
    }

    /// `Secure` where the browser's page has come over HTTPS, which its origin says.
    fn cookie(
        &self,
        value: &str,
        seconds: u64,
        sender: &RequestSender,
        headers: &HeaderMap,
    ) -> String {
        let (name, path) = (
            &self.cookie_name,
            sender.base_path.as_deref().unwrap_or("/"),
        );
        let is_encrypted =
            text(headers, header::ORIGIN).is_some_and(|origin| origin.starts_with("https:"));
        let secure = if is_encrypted { "; Secure" } else { "" };
        format!("{name}={value}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={seconds}{secure}")
    }

    fn lock(&self) -> MutexGuard<'_, AccessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sessions by the hashes of their cookies, the oldest first. They end with the process.
#[derive(Default)]
struct Sessions(VecDeque<[u8; 32]>);

impl Sessions {
    fn begin(&mut self, cookie: &str) {
        if self.0.len() == SESSIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(hash(cookie));
    }

    fn has(&self, cookie: &str) -> bool {
        self.0.contains(&hash(cookie))
    }

    fn end(&mut self, cookie: &str) {
        let ended = hash(cookie);
        self.0.retain(|known| *known != ended);
    }
}

fn hash(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie).into()
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;
