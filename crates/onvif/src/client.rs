//! Requests to one camera. Blocks; runs in threads of its own.

use std::{sync::Arc, time::Duration};

use http_auth::{PasswordClient, PasswordParams};
use rustls::crypto::ring;
use ureq::{
    Agent,
    http::{StatusCode, header},
    tls::{Certificate, RootCerts, TlsConfig},
};
use url::Url;

use crate::{
    answer::camera_time_ms,
    camera::{OnvifCamera, OnvifLogin, shown},
    error::{OnvifError, OnvifProblem},
    request::{DEVICE, OnvifRequest},
    security::username_token,
    soap::{Endpoint, SoapAnswer, classify, envelope},
    xml::{XmlNode, read_xml},
};
use spotter_core::{Clock, plain_line};

/// A camera whose clock is as far off as this accepts other tokens than one whose clock is right.
const CLOCK_DIFFERENCE_S: f64 = 5.0;

/// How requests are logged in: as the camera has demanded so far.
#[derive(Default)]
enum LoginMethod {
    #[default]
    None,
    /// Of HTTP, with what the camera's challenge says.
    Digest(PasswordClient),
    /// Of WS-Security; the seconds by which the camera's clock is ahead of ours.
    Token { ahead_s: f64 },
}

/// A camera may end the validity of a challenge at any time, also because another client has logged in.
const STALE_MAX: u32 = 3;

/// The methods that a request was tried with, after what the camera said about it.
#[derive(Default)]
struct TriedLogins {
    digest: bool,
    /// By how many seconds the times of the tokens were ahead of ours.
    tokens: Vec<f64>,
    /// Right logins for a challenge that was not valid any more.
    stale: u32,
}

/// Why a request has no answer.
#[derive(Debug)]
enum NoAnswer {
    Failed(OnvifError),
    /// The header of a demand for a login over HTTP; `None` for a demand in SOAP.
    Denied {
        challenge: Option<String>,
    },
}

pub(crate) struct OnvifClient {
    agent: Agent,
    camera: OnvifCamera,
    method: LoginMethod,
    clock: Arc<dyn Clock>,
}

impl OnvifClient {
    pub(crate) fn new(camera: OnvifCamera, clock: Arc<dyn Clock>) -> Self {
        let agent = Agent::config_builder()
            .tls_config(tls(&camera))
            .user_agent(concat!("spotter/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // The login is for the configured camera.
            .max_redirects(0)
            // Cameras close connections at any time; a request on a closed one would fail.
            .max_idle_connections(0)
            // A camera is in the local network.
            .proxy(None);
        Self {
            agent: agent.build().new_agent(),
            camera,
            method: LoginMethod::default(),
            clock,
        }
    }

    pub(crate) fn camera(&self) -> &OnvifCamera {
        &self.camera
    }

    /// A request to the device service.
    pub(crate) fn ask_device(
        &mut self,
        request: &OnvifRequest,
        within: Duration,
    ) -> Result<XmlNode, OnvifError> {
        let device = Endpoint::new(self.camera.address.clone());
        self.ask(&device, request, within)
    }

    /// The answer. Logs in as the camera demands.
    pub(crate) fn ask(
        &mut self,
        to: &Endpoint,
        request: &OnvifRequest,
        within: Duration,
    ) -> Result<XmlNode, OnvifError> {
        let mut tried = TriedLogins::default();
        loop {
            match self.exchange(to, request, within) {
                Ok(answer) => return Ok(answer),
                Err(NoAnswer::Failed(error)) => return Err(error),
                Err(NoAnswer::Denied { challenge }) => {
                    self.choose_method(challenge.as_deref(), &mut tried, within)?;
                }
            }
        }
    }

    /// What is missing in an answer is an error.
    pub(crate) fn read<T>(&self, request: &OnvifRequest, read: Option<T>) -> Result<T, OnvifError> {
        let problem = || OnvifProblem::NotOnvif {
            request: request.name,
            reason: "a part is missing".to_owned(),
        };
        read.ok_or_else(|| self.error(problem()))
    }

    pub(crate) fn error(&self, problem: OnvifProblem) -> OnvifError {
        let address = shown(&self.camera.address);
        OnvifError { address, problem }
    }

    /// Decides how the request is repeated. Each method has one chance per request, after a fresh challenge or time.
    fn choose_method(
        &mut self,
        challenge: Option<&str>,
        tried: &mut TriedLogins,
        within: Duration,
    ) -> Result<(), OnvifError> {
        if self.camera.login.is_none() {
            return Err(self.error(OnvifProblem::LoginRequired));
        }
        let rejected = self.error(OnvifProblem::LoginRejected);
        if let Some(challenge) = challenge {
            let unknown = |_| self.error(OnvifProblem::UnknownLogin(schemes(challenge)));
            let client = PasswordClient::try_from(challenge).map_err(unknown)?;
            let is_stale = matches!(&client, PasswordClient::Digest(digest) if digest.stale());
            tried.stale += u32::from(is_stale);
            if tried.digest && !(is_stale && tried.stale <= STALE_MAX) {
                return Err(rejected);
            }
            tried.digest = true;
            self.method = LoginMethod::Digest(client);
            return Ok(());
        }
        let ahead_s = match tried.tokens[..] {
            // Without the time of the camera, ours has to do.
            [] => self.ahead_s(within).unwrap_or_default(),
            // Some cameras report their local time as UTC, and check tokens with the true time.
            [ahead_s] if ahead_s.abs() > CLOCK_DIFFERENCE_S => 0.0,
            _ => return Err(rejected),
        };
        tried.tokens.push(ahead_s);
        self.method = LoginMethod::Token { ahead_s };
        Ok(())
    }

    /// Reads the camera's clock, without a login.
    fn ahead_s(&mut self, within: Duration) -> Option<f64> {
        self.method = LoginMethod::None;
        let device = Endpoint::new(self.camera.address.clone());
        let request = OnvifRequest::new(&DEVICE, "GetSystemDateAndTime", "");
        let answer = self.exchange(&device, &request, within).ok()?;
        let shown_ms = camera_time_ms(&answer)?;
        Some((shown_ms - self.clock.wall().unix_millis()) as f64 * 1e-3)
    }

    fn exchange(
        &mut self,
        to: &Endpoint,
        request: &OnvifRequest,
        within: Duration,
    ) -> Result<XmlNode, NoAnswer> {
        let text = envelope(to, request, &self.token());
        let content = format!(
            "application/soap+xml; charset=utf-8; action=\"{}\"",
            request.action()
        );
        let mut post = self.agent.post(to.url.as_str());
        post = post.header(header::CONTENT_TYPE, content);
        if let Some(value) = self.authorization(&to.url, &text) {
            post = post.header(header::AUTHORIZATION, value);
        }
        let post = post.config().timeout_global(Some(within)).build();
        let answered = post.send(text.as_bytes()).and_then(|mut response| {
            let limited = response.body_mut().with_config();
            let body = limited.limit(request.answer_max_bytes()).read_to_vec()?;
            Ok((response, String::from_utf8_lossy(&body).into_owned()))
        });
        let failed = |error| NoAnswer::Failed(self.no_answer(&error, within));
        let (response, text) = answered.map_err(failed)?;
        let status = response.status();
        let challenges = response.headers().get_all(header::WWW_AUTHENTICATE);
        let challenges: Vec<&str> = challenges.iter().flat_map(|one| one.to_str()).collect();
        if status == StatusCode::UNAUTHORIZED && !challenges.is_empty() {
            let challenge = Some(challenges.join(", "));
            return Err(NoAnswer::Denied { challenge });
        }
        self.judge(request, status, &text)
    }

    /// Decides what an answer over HTTP is. Cameras send faults with every status.
    fn judge(
        &self,
        request: &OnvifRequest,
        status: StatusCode,
        text: &str,
    ) -> Result<XmlNode, NoAnswer> {
        let request = request.name;
        let denied = NoAnswer::Denied { challenge: None };
        let read = read_xml(text).and_then(|document| Ok((classify(&document)?, document)));
        let problem = match read {
            Ok((SoapAnswer::Fault(fault), _)) if fault.is_about_login() => return Err(denied),
            Ok((SoapAnswer::Fault(fault), _)) => OnvifProblem::Fault { request, fault },
            _ if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(denied);
            }
            _ if !status.is_success() => OnvifProblem::Status {
                request,
                status: status.as_u16(),
            },
            Ok((SoapAnswer::Response(name), document)) if name == format!("{request}Response") => {
                return Ok(document);
            }
            Ok((answer, _)) => OnvifProblem::NotOnvif {
                request,
                reason: format!("the answer is {answer:?}"),
            },
            Err(reason) => OnvifProblem::NotOnvif { request, reason },
        };
        Err(NoAnswer::Failed(self.error(problem)))
    }

    /// For the header of the envelope.
    fn token(&self) -> String {
        match (&self.method, &self.camera.login) {
            (LoginMethod::Token { ahead_s }, Some(login)) => {
                let camera_time = self.clock.wall().plus_seconds(*ahead_s);
                username_token(login, camera_time, fastrand::u128(..).to_le_bytes())
            }
            _ => String::new(),
        }
    }

    fn authorization(&mut self, url: &Url, body: &str) -> Option<String> {
        let (LoginMethod::Digest(client), Some(login)) = (&mut self.method, &self.camera.login)
        else {
            return None;
        };
        let OnvifLogin { user, password } = login;
        let parameters = PasswordParams {
            username: user,
            password: password.reveal(),
            uri: &url[url::Position::BeforePath..url::Position::AfterQuery],
            method: "POST",
            body: Some(body.as_bytes()),
        };
        // It fails for a name or a challenge that cannot be written in a header: the camera denies the request then.
        client.respond(&parameters).ok()
    }

    fn no_answer(&self, error: &ureq::Error, within: Duration) -> OnvifError {
        let mut reason = match error {
            ureq::Error::Timeout(_) => return self.error(OnvifProblem::Timeout(within)),
            ureq::Error::HostNotFound => "the host name is unknown".to_owned(),
            ureq::Error::Io(error) => error.to_string(),
            error => error.to_string(),
        };
        if reason.contains("certificate") {
            reason += "; cameras mostly have certificates of their own: tls = { insecure = true } accepts any";
        }
        self.error(OnvifProblem::Unreachable(plain_line(&reason)))
    }
}

/// Certificates are those of the machine, unless the configuration accepts any.
fn tls(camera: &OnvifCamera) -> TlsConfig {
    let provider = Arc::new(ring::default_provider());
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    // Loading them takes time that http does not need.
    if camera.is_insecure || camera.address.scheme() != "https" {
        return tls.disable_verification(camera.is_insecure).build();
    }
    let roots = rustls_native_certs::load_native_certs().certs;
    let roots = roots
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    let roots: Vec<_> = roots.collect();
    tls.root_certs(RootCerts::new_with_certs(&roots)).build()
}

/// The schemes of a challenge, for people.
fn schemes(challenge: &str) -> String {
    let challenges = http_auth::parse_challenges(challenge).unwrap_or_default();
    let schemes: Vec<&str> = challenges.iter().map(|one| one.scheme).collect();
    match schemes.is_empty() {
        true => "an unreadable challenge".to_owned(),
        false => plain_line(&schemes.join(", ")),
    }
}
