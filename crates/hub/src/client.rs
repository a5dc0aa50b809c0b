//! The hub over HTTP: what a repository has at a revision, and a file from any byte on.
//!
//! The token goes to the hub only. A file's content comes from another host, to which the hub redirects; redirects carry the
//! token on the hub's own host alone, and only over TLS.

use std::{collections::BTreeMap, env, io::Read, thread, time::Duration};

use serde::Deserialize;
use ureq::{
    Agent, Body, ResponseExt as _,
    config::RedirectAuthHeaders,
    http::{Response, StatusCode, header},
};
use url::Url;

use crate::{error::HubError, hash::RemoteHash};
use spotter_config::{Secret, is_loopback};
use spotter_core::plain_line;
use spotter_outbound::{PROXY_LOGIN_REQUIRED, agent, tls_config};

const PUBLIC_HUB: &str = "https://huggingface.co";
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// A connection on which nothing arrives for this long counts as cut.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// No record of a repository and no licence is longer, in bytes.
const TEXT_MAX_BYTES: u64 = 16 << 20;
/// What the hub says of a repository whose conditions the user of the token has not accepted.
const GATED: &str = "GatedRepo";
/// Attempts in a row without a new byte, after which the hub counts as unreachable.
const ATTEMPTS: u32 = 5;
/// The longest pause between attempts, also when the hub asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What happens while a model is fetched, for a person.
#[derive(Debug)]
pub enum FetchNews<'a> {
    Note(String),
    Progress {
        /// `receiving` or `checking`.
        verb: &'static str,
        file: &'a str,
        /// Bytes, those of earlier runs included.
        done: u64,
        size: u64,
    },
}

/// Receives news; a terminal, or a test.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(&FetchNews<'_>);

/// Bytes in the unit that fits.
pub fn amount(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        gigabytes if gigabytes >= 1e9 => format!("{:.2} GB", gigabytes / 1e9),
        megabytes if megabytes >= 1e6 => format!("{:.1} MB", megabytes / 1e6),
        kilobytes if kilobytes >= 1e3 => format!("{:.1} kB", kilobytes / 1e3),
        few => format!("{few} bytes"),
    }
}

/// A hub that can be asked. Blocks.
pub struct HubClient {
    agent: Agent,
    /// Without a slash at its end.
    endpoint: String,
    token: Option<Secret>,
    /// Before a failed request is repeated for the first time.
    pub(crate) first_pause: Duration,
}

/// What the hub records of a repository at a revision.
#[derive(Clone, Debug)]
pub struct RepositoryRecord {
    pub commit: String,
    pub licence: Option<String>,
    /// Those whose names are safe to print and on a disk. A mirror may list a file without its content.
    pub files: BTreeMap<String, Option<RecordedContent>>,
}

/// Size and hash of a file as the hub records them.
#[derive(Clone, Debug)]
pub struct RecordedContent {
    pub size: u64,
    pub hash: RemoteHash,
}

/// A part of a file that is being received.
pub struct Transfer {
    /// Byte of the file at which it begins.
    pub start: u64,
    pub body: Box<dyn Read + Send>,
}

/// Why a request has no answer.
pub enum RequestFailure {
    /// It may work later.
    Transient {
        reason: String,
        /// The pause that the hub asks for.
        after: Option<Duration>,
    },
    Final(HubError),
}

/// Attempts at one request; pauses double from the first.
pub struct Attempts<'a> {
    pub url: String,
    /// What is fetched, for a person.
    pub name: &'a str,
    first_pause: Duration,
    failed: u32,
}

impl HubClient {
    /// `HF_ENDPOINT` and `HF_TOKEN` of this process. The HTTP client reads the variables of proxies itself.
    pub fn of_environment() -> Result<Self, HubError> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT");
        Self::new(endpoint.as_deref(), variable("HF_TOKEN"))
    }

    pub fn new(endpoint: Option<&str>, token: Option<String>) -> Result<Self, HubError> {
        let wrong = |text: &str| Err(HubError::Final(text.into()));
        let endpoint = endpoint.unwrap_or(PUBLIC_HUB).trim_end_matches('/');
        // Not shown: it may have a password.
        let is_of_hub = |url: &Url| {
            let has_login = !url.username().is_empty() || url.password().is_some();
            let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
            is_web && !has_login && url.query().is_none()
        };
        if !Url::parse(endpoint).is_ok_and(|url| is_of_hub(&url)) {
            return wrong(
                "HF_ENDPOINT must be the address of a hub like https://huggingface.co, with https:// or http:// and without a login or query; \
                 HF_TOKEN is for the login",
            );
        }
        let token = token.map(|token| token.trim().to_owned());
        if token
            .iter()
            .any(|token| !token.bytes().all(|b| b.is_ascii_graphic()))
        {
            return wrong("HF_TOKEN contains characters that no token has; copy it again");
        }
        let native = rustls_native_certs::load_native_certs();
        let config = Agent::config_builder()
            .tls_config(tls_config(&native.certs))
            .user_agent(concat!("spotter/", env!("CARGO_PKG_VERSION")))
            // What is compressed on its way has no byte to continue at.
            .accept_encoding("identity")
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_per_read(Some(SILENCE_LIMIT))
            .timeout_per_write(Some(SILENCE_LIMIT));
        Ok(Self {
            agent: agent(config.build()),
            endpoint: endpoint.to_owned(),
            token: token.map(Secret::new),
            first_pause: Duration::from_secs(1),
        })
    }

    /// What its user should know: a token that others can read on its way.
    pub fn warning(&self) -> Option<&'static str> {
        let url = Url::parse(&self.endpoint).ok()?;
        let stays_here = is_loopback(url.host_str()?);
        (self.token.is_some() && url.scheme() == "http" && !stays_here).then_some(
            "HF_ENDPOINT is http://, so everyone on the way can read HF_TOKEN; use https://, or unset HF_TOKEN if the mirror needs \
             no login",
        )
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What `repository` has at `revision`. Repeated when it fails in a way that may pass.
    pub fn record(
        &self,
        repository: &str,
        revision: &str,
        listener: Listener<'_>,
    ) -> Result<RepositoryRecord, HubError> {
        let endpoint = self.endpoint();
        let url = format!("{endpoint}/api/models/{repository}/revision/{revision}?blobs=true");
        let text = self.text(self.attempts(url.clone(), repository), repository, listener)?;
        RepositoryRecord::parse(&text, &url)
    }

    /// The whole text at a URL of a repository. Repeated like [`Self::record`].
    pub fn text(
        &self,
        mut attempts: Attempts<'_>,
        repository: &str,
        listener: Listener<'_>,
    ) -> Result<String, HubError> {
        loop {
            let answer = self
                .get(&attempts.url, 0, repository)
                .and_then(|mut response| {
                    let body = response.body_mut().with_config().limit(TEXT_MAX_BYTES);
                    Ok(body.read_to_string()?)
                });
            match answer {
                Ok(text) => return Ok(text),
                Err(failure) => attempts.wait(false, failure, listener)?,
            }
        }
    }

    pub fn attempts<'a>(&self, url: String, name: &'a str) -> Attempts<'a> {
        Attempts {
            url,
            name,
            first_pause: self.first_pause,
            failed: 0,
        }
    }

    /// Begins to receive a file of a repository from byte `start` on. The server may begin at byte 0 instead.
    pub fn open(
        &self,
        url: &str,
        repository: &str,
        start: u64,
    ) -> Result<Transfer, RequestFailure> {
        let response = self.get(url, start, repository)?;
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        let range = response.headers().get(header::CONTENT_RANGE);
        let range = range.and_then(|range| range.to_str().ok());
        if is_part && !range.is_some_and(|range| range.starts_with(&format!("bytes {start}-"))) {
            return Err(RequestFailure::transient(format_args!(
                "the server sent another part of the file: {range:?}"
            )));
        }
        Ok(Transfer {
            start: if is_part { start } else { 0 },
            body: Box::new(response.into_body().into_reader()),
        })
    }

    /// A successful answer.
    fn get(
        &self,
        url: &str,
        start: u64,
        repository: &str,
    ) -> Result<Response<Body>, RequestFailure> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        let response = request.call()?;
        let is_hub =
            response.get_uri().host() == Url::parse(url).ok().as_ref().and_then(Url::host_str);
        let status = response.status().as_u16();
        let code = response.headers().get("x-error-code");
        let is_gated = code.is_some_and(|code| code == GATED);
        let page = format!("{}/{repository}", self.endpoint());
        Err(RequestFailure::Final(HubError::Final(match status {
            200 | 206 => return Ok(response),
            416 => {
                return Err(RequestFailure::transient(
                    "the server has no such part of the file",
                ));
            }
            // Addresses of the host that has the contents expire; the hub gives a new one.
            408 | 425 | 429 | 500.. => return Err(busy(&response)),
            407 => PROXY_LOGIN_REQUIRED.to_owned(),
            400.. if !is_hub => return Err(busy(&response)),
            401 | 403 if self.token.is_none() => format!(
                "the hub refused {url} without a login (HTTP {status}); log in at {page}, accept its conditions if it shows some, and set \
                 HF_TOKEN to a token of that account"
            ),
            401 if !is_gated => format!(
                "the hub does not know the token of HF_TOKEN (HTTP 401 for {url}): it is mistyped, expired or was revoked; set HF_TOKEN to \
                 a valid token"
            ),
            401 | 403 => format!(
                "the account of HF_TOKEN has no access to {url} (HTTP {status}); accept the conditions at {page} with that account, and \
                 allow a fine-grained token to read gated repositories"
            ),
            404 => format!(
                "the hub has no {url} (HTTP 404); if HF_ENDPOINT names a mirror, the mirror may lack {repository} at this revision"
            ),
            _ => format!(
                "the hub answered {url} with HTTP {status}; check HF_ENDPOINT, or try again later"
            ),
        })))
    }
}

impl RequestFailure {
    pub fn transient(reason: impl ToString) -> Self {
        Self::Transient {
            reason: plain_line(&reason.to_string()),
            after: None,
        }
    }
}

impl From<ureq::Error> for RequestFailure {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::BadUri(_) | ureq::Error::InvalidProxyUrl => Self::Final(HubError::Final(
                format!("{error}; check HF_ENDPOINT and the variables of the proxy"),
            )),
            // Without the "io: " of the client.
            ureq::Error::Io(error) => Self::transient(error),
            error => Self::transient(error),
        }
    }
}

impl Attempts<'_> {
    /// Waits for the next attempt; an error when there were enough, or when it would fail as well.
    pub fn wait(
        &mut self,
        has_progressed: bool,
        failure: RequestFailure,
        listener: Listener<'_>,
    ) -> Result<(), HubError> {
        let (reason, after) = match failure {
            RequestFailure::Transient { reason, after } => (reason, after),
            RequestFailure::Final(error) => return Err(error),
        };
        let Some(pause) = self.pause(has_progressed, after) else {
            let url = self.url.clone();
            return Err(HubError::Unreachable { url, reason });
        };
        let (name, seconds) = (self.name, pause.as_secs());
        let note = format!("{name}: {reason}; next attempt in {seconds} s");
        listener(&FetchNews::Note(note));
        thread::sleep(pause);
        Ok(())
    }

    /// `None` when there were enough attempts. `asked` is what the hub asks for (`Retry-After`).
    fn pause(&mut self, has_progressed: bool, asked: Option<Duration>) -> Option<Duration> {
        self.failed = if has_progressed { 1 } else { self.failed + 1 };
        let doubled = self.first_pause * 2u32.pow(self.failed - 1);
        (self.failed < ATTEMPTS).then(|| asked.unwrap_or(doubled).min(PAUSE_MAX))
    }
}

/// The server cannot answer now.
fn busy(response: &Response<Body>) -> RequestFailure {
    let seconds = response.headers().get(header::RETRY_AFTER);
    let seconds = seconds.and_then(|text| text.to_str().ok()?.trim().parse().ok());
    let host = response.get_uri().host().unwrap_or("the hub");
    RequestFailure::Transient {
        reason: format!("{host} answered with HTTP {}", response.status().as_u16()),
        after: seconds.map(Duration::from_secs),
    }
}

/// The parts of the hub's answer that are used.
#[derive(Deserialize)]
struct HubAnswer {
    sha: String,
    #[serde(default)]
    tags: Vec<String>,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
}

impl RepositoryRecord {
    fn parse(text: &str, url: &str) -> Result<Self, HubError> {
        let not_the_hub = |reason: &str| {
            HubError::Final(format!(
                "the answer of {url} is not one of the hub's: {reason}; check HF_ENDPOINT"
            ))
        };
        let answer: HubAnswer = serde_json::from_str(text)
            .map_err(|error| not_the_hub(&plain_line(&error.to_string())))?;
        if answer.sha.is_empty() || !answer.sha.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(not_the_hub("sha is not a commit"));
        }
        let mut licences = answer.tags.iter();
        let licence = licences.find_map(|tag| tag.strip_prefix("license:"));
        let files = answer.siblings.into_iter();
        let files = files.filter(|file| is_plain(&file.rfilename));
        Ok(Self {
            licence: licence.map(str::to_owned),
            commit: answer.sha,
            files: files.map(Sibling::recorded).collect(),
        })
    }
}

fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= 100 && !name.starts_with('.') && name.bytes().all(is_plain)
}

impl Sibling {
    fn recorded(self) -> (String, Option<RecordedContent>) {
        let hash = match (self.lfs, self.blob_id) {
            (Some(file), _) => Some(RemoteHash::Sha256(file.sha256.to_ascii_lowercase())),
            (None, blob) => blob.map(|blob| RemoteHash::GitBlob(blob.to_ascii_lowercase())),
        };
        let content = self.size.zip(hash);
        let content = content.map(|(size, hash)| RecordedContent { size, hash });
        (self.rfilename, content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_no_hub_are_rejected_without_a_secret() {
        let endpoint = |endpoint| (Some(endpoint), None);
        let token = Some("canary\u{e9}".to_owned());
        for (endpoint, token) in [
            endpoint("huggingface.co"),
            endpoint("ftp://huggingface.co"),
            endpoint("https://me:canary@hub"),
            endpoint("https://hub/?a=canary"),
            (None, token),
        ] {
            let error = HubClient::new(endpoint, token).err().unwrap().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
        let client = HubClient::new(Some("http://mirror/hf/"), Some(" hf_x\n".into())).unwrap();
        assert_eq!(client.endpoint, "http://mirror/hf");
        assert_eq!(client.token.unwrap().reveal(), "hf_x");
    }

    #[test]
    fn token_over_http_is_warned_about_except_on_loopback() {
        for (endpoint, token, is_warned) in [
            ("http://mirror/hf", Some("hf_x"), true),
            ("http://[fd00::7]", Some("hf_x"), true),
            ("http://mirror/hf", None, false),
            ("https://mirror/hf", Some("hf_x"), false),
            ("http://localhost:8080", Some("hf_x"), false),
            ("http://[::1]:80", Some("hf_x"), false),
        ] {
            let client = HubClient::new(Some(endpoint), token.map(str::to_owned));
            assert_eq!(client.unwrap().warning().is_some(), is_warned, "{endpoint}");
        }
    }

    #[test]
    fn pauses_double_and_end_unless_bytes_arrive() {
        let second = Duration::from_secs(1);
        let mut attempts = Attempts {
            url: String::new(),
            name: "",
            first_pause: second,
            failed: 0,
        };
        let pauses: Vec<_> = (0..5).map(|_| attempts.pause(false, None)).collect();
        let expected = [Some(1), Some(2), Some(4), Some(8), None];
        assert_eq!(pauses, expected.map(|s| s.map(Duration::from_secs)));
        assert_eq!(attempts.pause(true, None), Some(second));
        assert_eq!(attempts.pause(false, Some(second * 3)), Some(second * 3));
        assert_eq!(attempts.pause(false, Some(second * 3600)), Some(PAUSE_MAX));
    }

    #[test]
    fn record_has_commit_licence_sizes_and_hashes() {
        let text = r#"{"sha": "9a7d", "tags": ["en", "license:apache-2.0"], "siblings": [
            {"rfilename": "config.json", "size": 3, "blobId": "AB"},
            {"rfilename": "model.safetensors", "size": 9, "blobId": "cd", "lfs": {"sha256": "EF", "size": 9, "pointerSize": 1}},
            {"rfilename": "../x", "size": 1, "blobId": "AB"}, {"rfilename": "README.md"}]}"#;
        let record = RepositoryRecord::parse(text, "u").unwrap();
        assert_eq!(record.commit, "9a7d");
        assert_eq!(record.licence.as_deref(), Some("apache-2.0"));
        let contents = record.files.values().flatten();
        let hashes: Vec<_> = contents.map(|content| &content.hash).collect();
        let expected = [
            RemoteHash::GitBlob("ab".into()),
            RemoteHash::Sha256("ef".into()),
        ];
        assert_eq!(hashes, expected.iter().collect::<Vec<_>>());
        for text in ["<html>", "{}", r#"{"sha": "../x", "siblings": []}"#] {
            let error = RepositoryRecord::parse(text, "https://portal/").unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("https://portal/ is not one of the hub's")
            );
        }
    }
}
