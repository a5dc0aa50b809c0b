//! An ONVIF camera: device, media and event services over HTTP, and answers to WS-Discovery. A script has its oddities, which are those of
//! real cameras. It reads requests strictly by the specification.
//!
//! `soap` is pure: requests in, texts out. Here are the sockets, the subscriptions and the logins.

mod login;
mod soap;

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use crate::receiver::{self, ReceivedRequest, ReceiverStream};
use login::{LoginAttempt, LoginVerdict, Nonces};
pub use login::{OnvifLoginScheme, OnvifLoginScript};
use soap::{CameraReply, CameraRequest, MotionMessage};
use spotter_core::{Clock as _, SystemClock, WallTime};

/// The behaviour of a camera.
#[derive(Clone, Debug)]
pub struct OnvifScript {
    pub login: Option<OnvifLoginScript>,
    /// By how much the camera's clock is ahead, in seconds.
    pub clock_ahead_s: i64,
    pub reported_time: ReportedTime,
    /// What a subscription is granted at most.
    pub lasts: Duration,
    pub max_subscriptions: usize,
    pub has_renew: bool,
    /// Without `GetServices` there are capabilities.
    pub has_services: bool,
    pub has_events: bool,
    pub has_media2: bool,
    pub has_synchronization: bool,
    /// The host in the addresses of services and streams, in place of the right one.
    pub named_host: Option<&'static str>,
    /// Subscriptions have one address and differ in a reference parameter.
    pub has_parameters: bool,
    /// Other prefixes than those of the specification.
    pub is_oddly_prefixed: bool,
    /// Requests for messages are answered at once, also without messages.
    pub answers_at_once: bool,
    /// Before each answer.
    pub delay: Duration,
}

impl Default for OnvifScript {
    /// A camera without oddities.
    fn default() -> Self {
        Self {
            login: None,
            clock_ahead_s: 0,
            reported_time: ReportedTime::Utc,
            lasts: Duration::from_secs(60),
            max_subscriptions: 5,
            has_renew: true,
            has_services: true,
            has_events: true,
            has_media2: true,
            has_synchronization: true,
            named_host: None,
            has_parameters: false,
            is_oddly_prefixed: false,
            answers_at_once: false,
            delay: Duration::ZERO,
        }
    }
}

/// What the camera answers when it is asked for its time. It checks the times of tokens with its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedTime {
    Utc,
    /// The time of a zone that is so many seconds ahead, called UTC.
    LocalAsUtc(i64),
    /// The time of its clock as local time, and no UTC.
    LocalOnly,
}

/// What the camera does with a request for messages instead of answering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullFault {
    /// The connection ends.
    Close,
    /// An answer with this status and without content.
    Status(u16),
    /// A text that is no XML.
    Babble,
    /// So many elements in each other, each with a namespace of its own.
    Nested(usize),
}

struct CameraSubscription {
    number: u64,
    ends: WallTime,
    waiting: VecDeque<MotionMessage>,
}

#[derive(Default)]
struct CameraState {
    script: OnvifScript,
    subscriptions: Vec<CameraSubscription>,
    next_number: u64,
    /// Its only event; `None` before the first one.
    motion: Option<bool>,
    faults: VecDeque<PullFault>,
    nonces: Nonces,
    requests: Vec<String>,
    wrong_logins: usize,
    /// Requests that were not as the specification has them.
    complaints: Vec<String>,
}

struct CameraShared {
    address: SocketAddr,
    scheme: &'static str,
    clock: SystemClock,
    state: Mutex<CameraState>,
    changed: Condvar,
}

/// Listens on loopback until the process ends.
pub struct ScriptedOnvifCamera {
    shared: Arc<CameraShared>,
}

impl ScriptedOnvifCamera {
    pub fn start(script: OnvifScript) -> Self {
        Self::serve(script, "http", |stream| Some(Box::new(stream)))
    }

    /// `accept` makes of a TCP connection what the camera reads and writes.
    pub fn start_with_tls(
        script: OnvifScript,
        accept: impl Fn(TcpStream) -> Option<Box<dyn ReceiverStream>> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(script, "https", accept)
    }

    fn serve(
        script: OnvifScript,
        scheme: &'static str,
        accept: impl Fn(TcpStream) -> Option<Box<dyn ReceiverStream>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let state = CameraState {
            script,
            ..CameraState::default()
        };
        let shared = Arc::new(CameraShared {
            address: listener.local_addr().expect("an address"),
            scheme,
            clock: SystemClock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        receiver::serve(listener, accept, move |request| serving.answer(&request));
        Self { shared }
    }

    /// Of the device service.
    pub fn address(&self) -> String {
        self.shared.url("device_service")
    }

    /// Answers to WS-Discovery at the address that is returned, until the process ends.
    pub fn be_discoverable(&self) -> SocketAddrV4 {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let SocketAddr::V4(address) = socket.local_addr().expect("an address") else {
            panic!("an IPv4 address");
        };
        let shared = Arc::clone(&self.shared);
        receiver::start("onvif-discovery", move || {
            let mut buffer = vec![0; 65_535];
            while let Ok((length, sender)) = socket.recv_from(&mut buffer) {
                let probe = String::from_utf8_lossy(&buffer[..length]);
                if let Some(answer) = shared.probed(&probe) {
                    // The client may be gone.
                    _ = socket.send_to(answer.as_bytes(), sender);
                }
            }
        });
        address
    }

    pub fn script(&self) -> OnvifScript {
        self.state().script.clone()
    }

    /// Changes the behaviour.
    pub fn set(&self, change: impl FnOnce(&mut OnvifScript)) {
        change(&mut self.state().script);
        self.shared.changed.notify_all();
    }

    /// Motion begins or ends.
    pub fn motion(&self, is_active: bool) {
        let mut state = self.state();
        state.motion = Some(is_active);
        for subscription in &mut state.subscriptions {
            subscription.waiting.push_back(MotionMessage {
                is_active,
                operation: "Changed",
            });
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The next requests for messages, also those that are open, get these faults.
    pub fn will(&self, faults: impl IntoIterator<Item = PullFault>) {
        self.state().faults.extend(faults);
        self.shared.changed.notify_all();
    }

    /// As after a restart of the camera.
    pub fn forget_subscriptions(&self) {
        self.state().subscriptions.clear();
        self.shared.changed.notify_all();
    }

    pub fn subscriptions(&self) -> usize {
        let mut state = self.state();
        state.expire(self.shared.clock.wall());
        state.subscriptions.len()
    }

    /// The names of all requests so far that were logged in.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    pub fn count(&self, name: &str) -> usize {
        let state = self.state();
        let requests = state.requests.iter();
        requests.filter(|request| *request == name).count()
    }

    pub fn wrong_logins(&self) -> usize {
        self.state().wrong_logins
    }

    /// Requests that were not as the specification has them.
    pub fn complaints(&self) -> Vec<String> {
        self.state().complaints.clone()
    }

    fn state(&self) -> MutexGuard<'_, CameraState> {
        self.shared.state()
    }
}

impl CameraState {
    fn expire(&mut self, now: WallTime) {
        self.subscriptions.retain(|one| one.ends > now);
    }

    fn subscription(&mut self, number: u64) -> Option<&mut CameraSubscription> {
        let mut all = self.subscriptions.iter_mut();
        all.find(|subscription| subscription.number == number)
    }
}

impl CameraShared {
    fn state(&self) -> MutexGuard<'_, CameraState> {
        self.state.lock().expect("no panic")
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}/onvif/{path}", self.scheme, self.address)
    }

    /// As the camera names it.
    fn named_url(&self, script: &OnvifScript, path: &str) -> String {
        match script.named_host {
            Some(host) => format!("http://{host}/onvif/{path}"),
            None => self.url(path),
        }
    }

    fn probed(&self, probe: &str) -> Option<String> {
        let script = self.state().script.clone();
        let address = self.named_url(&script, "device_service");
        soap::probe_match(probe, &address)
    }

    /// `None` closes the connection.
    fn answer(&self, request: &ReceivedRequest) -> Option<String> {
        let (status, headers, body) = self.respond(request)?;
        Some(format!(
            "HTTP/1.1 {status} -\r\n{headers}Content-Type: application/soap+xml; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Status, further headers and text.
    fn respond(&self, request: &ReceivedRequest) -> Option<(u16, String, String)> {
        let script = self.state().script.clone();
        thread::sleep(script.delay);
        let call = match soap::read(&String::from_utf8_lossy(&request.body)) {
            Ok(call) => call,
            Err(complaint) => {
                self.state().complaints.push(complaint);
                return Some((400, String::new(), String::new()));
            }
        };
        match self.log_in(&script, request, &call) {
            LoginVerdict::Accepted => {}
            LoginVerdict::Challenge(header) => return Some((401, header, String::new())),
            LoginVerdict::Fault => {
                let fault = soap::fault(&script, "ter:NotAuthorized", "Sender not Authorized");
                return Some((400, String::new(), fault));
            }
        }
        self.state().requests.push(call.name.clone());
        match self.carry_out(&script, &call, &request.path)? {
            CameraReply::Body(body) => {
                let text = soap::envelope(&script, &call.name, &body);
                Some((200, String::new(), text))
            }
            CameraReply::Fault { code, reason } => {
                Some((500, String::new(), soap::fault(&script, code, reason)))
            }
            CameraReply::Status(status) => Some((status, String::new(), String::new())),
            CameraReply::Text(text) => Some((200, String::new(), text)),
        }
    }

    fn log_in(
        &self,
        script: &OnvifScript,
        request: &ReceivedRequest,
        call: &CameraRequest,
    ) -> LoginVerdict {
        let Some(login) = &script.login else {
            return LoginVerdict::Accepted;
        };
        // By the specification, the clock is for everybody.
        if call.name == "GetSystemDateAndTime" {
            return LoginVerdict::Accepted;
        }
        let given = request.headers.get("authorization");
        let attempt = LoginAttempt {
            header: given.map(String::as_str),
            path: &request.path,
            call,
            now: self.camera_time(script),
        };
        let mut state = self.state();
        let verdict = login.judge(&mut state.nonces, &attempt);
        let has_login = given.is_some() || call.token.is_some();
        let is_stale =
            matches!(&verdict, LoginVerdict::Challenge(header) if header.contains("stale=true"));
        if verdict != LoginVerdict::Accepted && has_login && !is_stale {
            state.wrong_logins += 1;
        }
        verdict
    }

    /// Unix seconds.
    fn camera_time(&self, script: &OnvifScript) -> i64 {
        self.clock.wall().unix_millis().div_euclid(1000) + script.clock_ahead_s
    }

    fn carry_out(
        &self,
        script: &OnvifScript,
        call: &CameraRequest,
        path: &str,
    ) -> Option<CameraReply> {
        let now = self.camera_time(script);
        let url = |path: &str| self.named_url(script, path);
        let reply = match call.name.as_str() {
            "GetSystemDateAndTime" => {
                CameraReply::Body(soap::date_and_time(script.reported_time, now))
            }
            "GetDeviceInformation" => CameraReply::Body(soap::device_information()),
            "GetServices" if script.has_services => CameraReply::Body(soap::services(script, url)),
            "GetCapabilities" => CameraReply::Body(soap::capabilities(script, url)),
            "GetProfiles" => CameraReply::Body(soap::profiles(call.is_media2)),
            "GetStreamUri" => {
                let own = self.address.ip().to_string();
                let host = script.named_host.unwrap_or(&own);
                soap::stream_uri(call, host)
            }
            "CreatePullPointSubscription" if script.has_events => self.subscribe(script, call),
            "SetSynchronizationPoint" if script.has_synchronization => {
                self.with_subscription(call, path, |subscription, motion| {
                    let initial = motion.map(|is_active| MotionMessage {
                        is_active,
                        operation: "Initialized",
                    });
                    subscription.waiting.extend(initial);
                    CameraReply::Body(String::new())
                })
            }
            "Renew" if script.has_renew => {
                let (ends, lasts) = self.end(script, call);
                self.with_subscription(call, path, |subscription, _| {
                    subscription.ends = ends;
                    CameraReply::Body(soap::times("wsnt", now, lasts))
                })
            }
            "Unsubscribe" => {
                let number = call.subscription(path);
                let mut state = self.state();
                state.subscriptions.retain(|one| Some(one.number) != number);
                drop(state);
                self.changed.notify_all();
                CameraReply::Body(String::new())
            }
            "PullMessages" => return self.pull(script, call, path),
            // What real cameras answer to what they do not know.
            _ => CameraReply::Status(400),
        };
        Some(reply)
    }

    /// When a subscription ends that is made or renewed now, and the seconds until then.
    fn end(&self, script: &OnvifScript, call: &CameraRequest) -> (WallTime, i64) {
        let lasts = call.lasts.unwrap_or(script.lasts).min(script.lasts);
        let ends = self.clock.wall().plus_seconds(lasts.as_secs_f64());
        (ends, lasts.as_secs() as i64)
    }

    fn subscribe(&self, script: &OnvifScript, call: &CameraRequest) -> CameraReply {
        let (ends, lasts) = self.end(script, call);
        let mut state = self.state();
        state.expire(self.clock.wall());
        if state.subscriptions.len() >= script.max_subscriptions {
            return CameraReply::Fault {
                code: "wsnt:SubscribeCreationFailedFault",
                reason: "MaximumNumberOfSubscriptions",
            };
        }
        let number = state.next_number;
        state.next_number += 1;
        state.subscriptions.push(CameraSubscription {
            number,
            ends,
            waiting: VecDeque::new(),
        });
        let path = match script.has_parameters {
            true => "subscription".to_owned(),
            false => format!("subscription/{number}"),
        };
        let address = self.named_url(script, &path);
        let number = script.has_parameters.then_some(number);
        let times = soap::times("wsnt", self.camera_time(script), lasts);
        CameraReply::Body(soap::subscribed(&address, number, &times))
    }

    fn with_subscription(
        &self,
        call: &CameraRequest,
        path: &str,
        work: impl FnOnce(&mut CameraSubscription, Option<bool>) -> CameraReply,
    ) -> CameraReply {
        let mut state = self.state();
        state.expire(self.clock.wall());
        let motion = state.motion;
        let number = call.subscription(path);
        match number.and_then(|number| state.subscription(number)) {
            Some(subscription) => work(subscription, motion),
            None => soap::UNKNOWN_SUBSCRIPTION,
        }
    }

    /// Waits for messages; `None` closes the connection.
    fn pull(&self, script: &OnvifScript, call: &CameraRequest, path: &str) -> Option<CameraReply> {
        let number = call.subscription(path);
        let wait = match script.answers_at_once {
            true => Duration::ZERO,
            false => call.timeout.unwrap_or_default(),
        };
        let until = self.clock.now().after(wait);
        let mut state = self.state();
        loop {
            state.expire(self.clock.wall());
            match state.faults.pop_front() {
                None => {}
                Some(PullFault::Close) => return None,
                Some(PullFault::Status(status)) => return Some(CameraReply::Status(status)),
                Some(PullFault::Babble) => {
                    return Some(CameraReply::Text("<html><body>".to_owned()));
                }
                Some(PullFault::Nested(count)) => {
                    return Some(CameraReply::Text(soap::nested(count)));
                }
            }
            let Some(subscription) = number.and_then(|number| state.subscription(number)) else {
                return Some(soap::UNKNOWN_SUBSCRIPTION);
            };
            let left = until.since(self.clock.now());
            if !subscription.waiting.is_empty() || left.is_zero() {
                let limit = call.limit.unwrap_or(usize::MAX);
                let count = subscription.waiting.len().min(limit);
                let messages: Vec<_> = subscription.waiting.drain(..count).collect();
                let left_ms = subscription.ends.seconds_since(self.clock.wall());
                let now = self.camera_time(script);
                let body = soap::pulled(&messages, now, left_ms as i64);
                return Some(CameraReply::Body(body));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.expect("no panic").0;
        }
    }
}
