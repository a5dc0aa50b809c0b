//! One conversation between rtspsrc and a camera: what came goes in, what is to be sent comes out. Pure, takes `now`.
//!
//! rtspsrc knows the address of the relay alone. Requests for it go to the camera's URL, also after a redirect; URLs that the
//! camera gave go through as they are, because the relay names the camera's own as the base of each description.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use url::Url;

use super::{login::CameraLogin, message::RtspMessage};
use crate::{ingest::health::Failure, push_bounded};
use spotter_config::RtspConfig;
use spotter_core::{Mono, StreamFault, plain_line};

const REDIRECTS_MAX: usize = 5;
/// Requests until the stream plays, repeated ones included. A usual camera gets six.
const REQUESTS_MAX: u32 = 64;
/// Times that one request is sent again, with a login: the first time, and when its nonce is stale.
const REPEATS_MAX: u32 = 3;
/// A silent camera's unanswered requests are forgotten beyond this number.
const PENDING_MAX: usize = 16;
/// Of a camera that announces none (RFC 2326 section 12.37).
const TIMEOUT: Duration = Duration::from_secs(60);
/// Some cameras end sessions sooner than they announce.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(10);
const KEEP_ALIVE_MIN: Duration = Duration::from_millis(500);

const REMEDY: &str = "set `url` to it if it is right";

/// What is to be done next.
#[derive(Debug)]
pub enum DialogueStep {
    /// Nothing.
    Done,
    ToClient(RtspMessage),
    ToCamera(RtspMessage),
    /// Connect to [`RtspDialogue::target`], then send this.
    Reconnect(RtspMessage),
}

/// A request without an answer.
#[derive(Debug)]
struct SentRequest {
    /// Without a login.
    message: RtspMessage,
    /// The client's number; `None` for a request of ours.
    of_client: Option<String>,
    /// Times that it was sent before.
    repeats: u32,
    /// Ours.
    number: u32,
    has_login: bool,
}

impl SentRequest {
    fn new(message: RtspMessage, of_client: Option<String>) -> Self {
        Self {
            message,
            of_client,
            repeats: 0,
            number: 0,
            has_login: false,
        }
    }

    /// The same once more.
    fn again(self) -> Self {
        Self {
            repeats: self.repeats + 1,
            ..self
        }
    }
}

#[derive(Debug)]
pub struct RtspDialogue {
    /// What rtspsrc connects to.
    relay_url: String,
    /// The URL of the configuration, without a login.
    configured: Url,
    target: Url,
    /// As requests name it: that of the configuration as it is written there.
    target_text: String,
    redirect_hosts: Vec<String>,
    login: Option<CameraLogin>,
    pending: VecDeque<SentRequest>,
    numbers: u32,
    requests: u32,
    /// The addresses of this attempt, the first of which is the configured one.
    addresses: Vec<String>,
    has_get_parameter: bool,
    session: Option<String>,
    timeout: Duration,
    is_udp: bool,
    is_playing: bool,
    refusal: Option<u16>,
    last_request: Mono,
    keep_alive_url: String,
}

impl RtspDialogue {
    /// `configured`: the URL of the settings.
    pub fn new(relay_url: &str, settings: &RtspConfig, configured: Url) -> Self {
        let text = settings.url.clone();
        Self {
            relay_url: relay_url.to_owned(),
            target: configured.clone(),
            redirect_hosts: settings.redirect_hosts.clone(),
            login: CameraLogin::new(settings),
            target_text: text.clone(),
            pending: VecDeque::new(),
            numbers: 0,
            requests: 0,
            addresses: vec![text.clone()],
            has_get_parameter: true,
            session: None,
            timeout: TIMEOUT,
            is_udp: false,
            is_playing: false,
            refusal: None,
            last_request: Mono::default(),
            keep_alive_url: text,
            configured,
        }
    }

    /// Where the camera is now.
    pub fn target(&self) -> &Url {
        &self.target
    }

    pub fn is_playing(&self) -> bool {
        self.is_playing
    }

    /// Packets come in datagrams, so that the stream outlives the connection.
    pub fn plays_over_udp(&self) -> bool {
        self.is_playing && self.is_udp
    }

    /// The connection to the camera is a new one.
    pub fn reconnected(&mut self) {
        self.pending.clear();
        if let Some(login) = &mut self.login {
            login.begin_again();
        }
    }

    /// True for a request to the relay itself: nothing else knows its URL.
    pub fn is_for_relay(&self, request: &RtspMessage) -> bool {
        request.url().starts_with(&self.relay_url)
    }

    /// A request of rtspsrc.
    pub fn request(&mut self, request: &RtspMessage, now: Mono) -> Result<DialogueStep, Failure> {
        let number = request.header("cseq").unwrap_or_default().to_owned();
        let url = match request.url().strip_prefix(&self.relay_url) {
            Some(rest) => format!("{}{rest}", self.target_text),
            None => request.url().to_owned(),
        };
        let request = request.with_url(&url);
        match request.method() {
            "PLAY" => self.keep_alive_url = url,
            // The last request of a session.
            "TEARDOWN" => self.session = None,
            _ => {}
        }
        let request = self.send(SentRequest::new(request, Some(number)), now)?;
        Ok(DialogueStep::ToCamera(request))
    }

    /// The connection to the camera ended. A camera that closes with its first demand for a login gets the login on a second
    /// connection, once: it may have closed because of the login.
    pub fn camera_ended(&mut self, end: Failure, now: Mono) -> Result<DialogueStep, Failure> {
        let waiting = self.pending.pop_back();
        self.pending.clear();
        let waiting = waiting.filter(|waiting| waiting.repeats == 1 && !self.is_playing);
        let again = self.send(waiting.ok_or(end)?.again(), now)?;
        Ok(DialogueStep::Reconnect(again))
    }

    /// The status with which the camera refused rtspsrc's last request, before the stream plays. rtspsrc may go on: without an
    /// optional method, or with another URL of a stream.
    pub fn refusal(&self) -> Option<u16> {
        self.refusal
    }

    /// When [`Self::keep_alive`] has a request; `None` without a session.
    pub fn keep_alive_due(&self) -> Option<Mono> {
        let every = (self.timeout / 2).clamp(KEEP_ALIVE_MIN, KEEP_ALIVE_MAX);
        let is_alive = self.is_playing && self.session.is_some();
        is_alive.then(|| self.last_request.after(every))
    }

    /// A request that keeps the session alive, when it is due.
    pub fn keep_alive(&mut self, now: Mono) -> Option<RtspMessage> {
        if self.keep_alive_due()? > now {
            return None;
        }
        let method = match self.has_get_parameter {
            true => "GET_PARAMETER",
            false => "OPTIONS",
        };
        let mut request = RtspMessage::request(method, &self.keep_alive_url);
        request.set("Session", self.session.clone()?);
        self.send(SentRequest::new(request, None), now).ok()
    }

    /// An answer of the camera whose address is `peer`.
    pub fn answer(
        &mut self,
        mut answer: RtspMessage,
        peer: Option<IpAddr>,
        now: Mono,
    ) -> Result<DialogueStep, Failure> {
        let status = answer.status().unwrap_or_default();
        // A provisional answer; the true one follows.
        if status < 200 {
            return Ok(DialogueStep::Done);
        }
        let Some(pending) = self.take_pending(&answer) else {
            return Ok(DialogueStep::Done);
        };
        self.refusal = None;
        if status == 401 {
            if self.is_to_repeat(&answer, &pending)? {
                let again = self.send(pending.again(), now)?;
                return Ok(DialogueStep::ToCamera(again));
            }
        } else if matches!(status, 301..=303 | 307 | 308) && !self.is_playing {
            return self.redirect(pending, &answer, now);
        }
        let Some(number) = pending.of_client else {
            return Ok(DialogueStep::Done);
        };
        if status == 200 {
            self.learn(&pending.message, &mut answer, peer);
        }
        answer.set("CSeq", number);
        // rtspsrc goes on without OPTIONS.
        let is_optional =
            pending.message.method() == "OPTIONS" && matches!(status, 405 | 406 | 501 | 551);
        let is_refusal = status >= 300 && !self.is_playing && !is_optional;
        self.refusal = is_refusal.then_some(status);
        Ok(DialogueStep::ToClient(answer))
    }

    /// Numbers, signs and remembers a request.
    fn send(&mut self, mut sent: SentRequest, now: Mono) -> Result<RtspMessage, Failure> {
        if !self.is_playing {
            self.requests += 1;
            if self.requests > REQUESTS_MAX {
                return Err(protocol(format!(
                    "no stream within {REQUESTS_MAX} requests; its answers repeat themselves"
                )));
            }
        }
        self.numbers += 1;
        self.last_request = now;
        let mut signed = sent.message.clone();
        signed.set("CSeq", self.numbers.to_string());
        let is_home = self.is_home();
        let login = self.login.as_mut().filter(|_| is_home);
        sent.has_login = login.is_some_and(|login| login.sign(&mut signed));
        sent.number = self.numbers;
        push_bounded(&mut self.pending, sent, PENDING_MAX);
        Ok(signed)
    }

    /// The request that is answered. Without a number, or with one that never was, it is the oldest one.
    fn take_pending(&mut self, answer: &RtspMessage) -> Option<SentRequest> {
        let number = answer.header("cseq").and_then(|text| text.parse().ok());
        let is_it = |sent: &SentRequest| Some(sent.number) == number;
        let at = self.pending.iter().position(is_it);
        // A number without a request answers one that was forgotten.
        let is_forgotten = at.is_none() && number.is_some_and(|number| number <= self.numbers);
        match is_forgotten {
            true => None,
            false => self.pending.remove(at.unwrap_or(0)),
        }
    }

    /// A refused request is sent again, with a login.
    fn is_to_repeat(
        &mut self,
        answer: &RtspMessage,
        pending: &SentRequest,
    ) -> Result<bool, Failure> {
        let is_home = self.is_home();
        match &mut self.login {
            Some(_) if !is_home => {
                let to = plain_line(&self.target_text);
                let text = format!(
                    "the camera redirects to {to}, which demands a login; the login is sent to the host and port of `url` alone; {REMEDY}"
                );
                Err(Failure::new(StreamFault::AuthFailed, text))
            }
            Some(login) => {
                let is_new = login.challenged(answer, pending.has_login);
                Ok(is_new && pending.repeats < REPEATS_MAX)
            }
            None => Ok(false),
        }
    }

    /// The login belongs to the configured host and port.
    fn is_home(&self) -> bool {
        is_same_host(self.target.host_str(), self.configured.host_str())
            && port(&self.target) == port(&self.configured)
    }

    fn redirect(
        &mut self,
        pending: SentRequest,
        answer: &RtspMessage,
        now: Mono,
    ) -> Result<DialogueStep, Failure> {
        let location = answer.header("location").unwrap_or_default();
        let to = self.target.join(location).ok();
        let is_rtsp = |to: &Url| matches!(to.scheme(), "rtsp" | "rtsps") && to.has_host();
        let Some(mut to) = to.filter(|to| !location.is_empty() && is_rtsp(to)) else {
            return Err(protocol(
                "the camera redirects without an RTSP address; check the path of the URL",
            ));
        };
        // A login that the camera writes is not ours.
        let _ = (to.set_username(""), to.set_password(None));
        let (host, address) = (to.host_str().unwrap_or_default(), to.to_string());
        let mut named = self.redirect_hosts.iter().map(String::as_str);
        let is_named = named.any(|named| is_same_host(Some(named), Some(host)));
        if !is_named && !is_same_host(Some(host), self.configured.host_str()) {
            let to = plain_line(&address);
            return Err(protocol(format!(
                "the camera redirects to another host, {to}, which is not followed; {REMEDY}, or name the host in `redirect_hosts`"
            )));
        }
        if self.target.scheme() == "rtsps" && to.scheme() != "rtsps" {
            let to = plain_line(&address);
            let text = format!(
                "the camera redirects to {to}, which is not encrypted and not followed; {REMEDY}"
            );
            return Err(Failure::new(StreamFault::Tls, text));
        }
        let is_circle = self.addresses.contains(&address);
        self.addresses.push(address.clone());
        if is_circle || self.addresses.len() > REDIRECTS_MAX + 1 {
            let way: Vec<String> = self.addresses.iter().map(|to| plain_line(to)).collect();
            let way = way.join(" -> ");
            return Err(protocol(format!(
                "the camera redirects again and again: {way}; check the path of the URL"
            )));
        }
        (self.target, self.target_text) = (to, address.clone());
        self.keep_alive_url.clone_from(&address);
        self.reconnected();
        let request = SentRequest::new(pending.message.with_url(&address), pending.of_client);
        let request = self.send(request, now)?;
        Ok(DialogueStep::Reconnect(request))
    }

    /// Notes what a good answer says, and completes it.
    fn learn(&mut self, request: &RtspMessage, answer: &mut RtspMessage, peer: Option<IpAddr>) {
        match request.method() {
            "OPTIONS" => {
                let methods = answer.header("public");
                self.has_get_parameter =
                    methods.is_none_or(|known| known.contains("GET_PARAMETER"));
            }
            "DESCRIBE" if answer.header("content-base").is_none() => {
                answer.set("Content-Base", request.url());
            }
            "SETUP" => {
                if let Some(session) = answer.header("session") {
                    let (id, rest) = session.split_once(';').unwrap_or((session, ""));
                    self.session = Some(id.trim().to_owned());
                    self.timeout = timeout(rest).unwrap_or(TIMEOUT);
                }
                let asked = request.header("transport").unwrap_or_default();
                let agreed = answer.header("transport").unwrap_or_default();
                let agreed = completed_transport(asked, agreed, peer);
                self.is_udp = !agreed.contains("interleaved=");
                answer.set("Transport", agreed);
            }
            "PLAY" => self.is_playing = true,
            _ => {}
        }
    }
}

fn protocol(text: impl Into<String>) -> Failure {
    Failure::new(StreamFault::Protocol, text)
}

/// Of both schemes, as rtspsrc and most cameras have it.
pub fn port(url: &Url) -> u16 {
    url.port().unwrap_or(554)
}

fn is_same_host(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other)
        .is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
}

/// `timeout=` of a header `Session`, in whole seconds; 0 is none.
fn timeout(parameters: &str) -> Option<Duration> {
    let mut parameters = parameters.split(';');
    let seconds = parameters.find_map(|one| one.trim().strip_prefix("timeout="))?;
    let seconds: u32 = seconds.trim().parse().ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// A camera may leave out the channels that were asked for. Where datagrams come from, rtspsrc takes from the connection, which
/// ends at the relay.
fn completed_transport(asked: &str, agreed: &str, peer: Option<IpAddr>) -> String {
    let parameter = |name: &str| asked.split([';', ',']).find(|one| one.starts_with(name));
    let has = |name: &str| agreed.contains(name);
    let over_tcp = agreed.is_empty()
        || agreed
            .split(';')
            .next()
            .is_some_and(|profile| profile.ends_with("/TCP"));
    match (parameter("interleaved="), peer) {
        (Some(_), _) if agreed.is_empty() => asked.to_owned(),
        (Some(channels), _) if over_tcp && !has("interleaved=") => format!("{agreed};{channels}"),
        (None, Some(peer)) if !has("source=") && !has("multicast") => {
            format!("{agreed};source={peer}")
        }
        _ => agreed.to_owned(),
    }
}

#[cfg(test)]
mod tests;
