//! The hub over HTTP: what a repository has at a revision, and a file from any byte on.
//!
//! The token goes to the hub only. A file's content comes from another host, to which the hub redirects; redirects carry the
//! token on the hub's own host alone, and only over TLS.

use std::{collections::BTreeMap, env, io::Read, time::Duration};

use serde::Deserialize;
use ureq::{
    Agent, Body, ResponseExt as _,
    config::RedirectAuthHeaders,
    http::{Response, StatusCode, header},
};
use url::Url;

use crate::{error::HubError, hash::RemoteHash, patience::Patience};
use spotter_config::{Secret, is_loopback};
use spotter_core::plain_line;
use spotter_outbound::{PROXY_LOGIN_REQUIRED, agent, tls_config};

const PUBLIC_HUB: &str = "https://huggingface.co";
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// A connection on which nothing arrives for this long counts as cut.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// No record of a repository is longer, in bytes.
const RECORD_MAX_BYTES: u64 = 16 << 20;
/// No file that is read as a text is longer, in bytes.
const TEXT_MAX_BYTES: u64 = 1 << 20;
/// What the hub says of a repository whose conditions the user of the token has not accepted.
const GATED: &str = "GatedRepo";

/// Which hub, and as whom.
pub struct HubSettings {
    /// Without a slash at its end.
    pub endpoint: String,
    pub token: Option<Secret>,
    /// Before a failed request is repeated for the first time.
    pub first_pause: Duration,
}

/// A hub that can be asked. Blocks.
pub struct HubClient {
    agent: Agent,
    settings: HubSettings,
}

/// What the hub records of a repository at a revision.
#[derive(Clone, Debug)]
pub struct RepositoryRecord {
    pub commit: String,
    pub licence: Option<String>,
    /// A mirror may list a file without its content.
    pub files: BTreeMap<String, Option<RecordedContent>>,
}

/// Size and hash of a file as the hub records them.
#[derive(Clone, Debug)]
pub struct RecordedContent {
    pub size: u64,
    pub hash: RemoteHash,
}

/// A file at a commit.
pub struct FileAddress<'a> {
    pub repository: &'a str,
    pub commit: &'a str,
    pub name: &'a str,
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
    /// The server does not have the file from this byte on.
    OutOfRange,
    Final(HubError),
}

impl HubSettings {
    /// `HF_ENDPOINT` and `HF_TOKEN` of this process. The HTTP client reads the variables of proxies itself.
    pub fn from_environment() -> Result<Self, HubError> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT");
        Self::new(endpoint.as_deref(), variable("HF_TOKEN"))
    }

    pub fn new(endpoint: Option<&str>, token: Option<String>) -> Result<Self, HubError> {
        let wrong = |text: &str| Err(HubError::Settings(text.into()));
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
        Ok(Self {
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
}

impl HubClient {
    pub fn new(settings: HubSettings) -> Self {
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
        Self {
            agent: agent(config.build()),
            settings,
        }
    }

    pub fn endpoint(&self) -> &str {
        &self.settings.endpoint
    }

    pub fn patience(&self) -> Patience {
        Patience::new(self.settings.first_pause)
    }

    /// What `repository` has at `revision`. Repeated when it fails in a way that may pass; `repeated` gets the reason and the pause.
    pub fn record(
        &self,
        repository: &str,
        revision: &str,
        repeated: impl FnMut(&str, Duration),
    ) -> Result<RepositoryRecord, HubError> {
        let endpoint = self.endpoint();
        let url = format!("{endpoint}/api/models/{repository}/revision/{revision}?blobs=true");
        let text = self.answer(&url, repository, RECORD_MAX_BYTES, repeated)?;
        RepositoryRecord::parse(&text, &url)
    }

    /// A short file as a text. Repeated like [`Self::record`].
    pub fn text(
        &self,
        file: &FileAddress<'_>,
        repeated: impl FnMut(&str, Duration),
    ) -> Result<String, HubError> {
        self.answer(&self.url(file), file.repository, TEXT_MAX_BYTES, repeated)
    }

    /// The whole text at `url`, of at most so many bytes.
    fn answer(
        &self,
        url: &str,
        repository: &str,
        max_bytes: u64,
        mut repeated: impl FnMut(&str, Duration),
    ) -> Result<String, HubError> {
        let mut patience = self.patience();
        loop {
            let answer = self.get(url, 0, repository).and_then(|mut response| {
                let body = response.body_mut().with_config().limit(max_bytes);
                body.read_to_string().map_err(RequestFailure::transient)
            });
            let (reason, after) = match answer {
                Ok(text) => return Ok(text),
                Err(failure) => failure.into_reason()?,
            };
            let Some(pause) = patience.pause(false, after) else {
                let url = url.to_owned();
                return Err(HubError::Unreachable { url, reason });
            };
            repeated(&reason, pause);
            std::thread::sleep(pause);
        }
    }

    pub fn url(&self, file: &FileAddress<'_>) -> String {
        let FileAddress {
            repository,
            commit,
            name,
        } = file;
        format!("{}/{repository}/resolve/{commit}/{name}", self.endpoint())
    }

    /// Begins to receive a file of `size` bytes from byte `start` on. The server may begin at byte 0 instead.
    pub fn open(
        &self,
        file: &FileAddress<'_>,
        start: u64,
        size: u64,
    ) -> Result<Transfer, RequestFailure> {
        let response = self.get(&self.url(file), start, file.repository)?;
        let begins_at = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(header::CONTENT_RANGE);
                let range = range.and_then(|range| range.to_str().ok());
                if !range.is_some_and(|range| is_range(range, start, size)) {
                    return Err(RequestFailure::Transient {
                        reason: plain_line(&format!(
                            "the server sent another part of the file: {range:?}"
                        )),
                        after: None,
                    });
                }
                start
            }
            _ => 0,
        };
        Ok(Transfer {
            start: begins_at,
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
        if let Some(token) = &self.settings.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        let response = request.call().map_err(RequestFailure::transient)?;
        let is_hub = response.get_uri().host() == host(url).as_deref();
        let status = response.status().as_u16();
        let code = response.headers().get("x-error-code");
        let is_gated = code.is_some_and(|code| code == GATED);
        let page = format!("{}/{repository}", self.endpoint());
        let (url, repository) = (url.to_owned(), repository.to_owned());
        let failure = match status {
            200 | 206 => return Ok(response),
            416 => return Err(RequestFailure::OutOfRange),
            // Addresses of the host that has the contents expire; the hub gives a new one.
            408 | 425 | 429 | 500.. => return Err(busy(&response)),
            407 => HubError::Settings(PROXY_LOGIN_REQUIRED.to_owned()),
            400.. if !is_hub => return Err(busy(&response)),
            401 | 403 if self.settings.token.is_none() => {
                HubError::LoginNeeded { url, page, status }
            }
            401 if !is_gated => HubError::TokenRejected { url },
            401 | 403 => HubError::AccessNotGranted { url, page, status },
            404 => HubError::NotFound { url, repository },
            _ => HubError::Refused { url, status },
        };
        Err(RequestFailure::Final(failure))
    }
}

impl RequestFailure {
    fn transient(error: ureq::Error) -> Self {
        match error {
            ureq::Error::BadUri(_) | ureq::Error::InvalidProxyUrl => {
                Self::Final(HubError::Settings(format!(
                    "{error}; check HF_ENDPOINT and the variables of the proxy"
                )))
            }
            error => Self::Transient {
                // Without the "io: " of the client.
                reason: plain_line(&match error {
                    ureq::Error::Io(error) => error.to_string(),
                    error => error.to_string(),
                }),
                after: None,
            },
        }
    }

    /// The reason and the asked pause of what may pass, else the error.
    pub fn into_reason(self) -> Result<(String, Option<Duration>), HubError> {
        match self {
            Self::Transient { reason, after } => Ok((reason, after)),
            Self::OutOfRange => Ok(("the server has no such part of the file".into(), None)),
            Self::Final(error) => Err(error),
        }
    }
}

fn host(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
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

/// Is it `bytes START-…/SIZE`?
fn is_range(range: &str, start: u64, size: u64) -> bool {
    let parts = range.strip_prefix("bytes ").and_then(|r| r.split_once('/'));
    let Some((range, all)) = parts else {
        return false;
    };
    let begins = range.split_once('-').map(|(begin, _)| begin);
    begins == Some(start.to_string().as_str()) && (all == "*" || all == size.to_string())
}

/// The parts of the hub's answer that are used.
#[derive(Deserialize)]
struct HubAnswer {
    sha: String,
    #[serde(rename = "cardData")]
    card: Option<CardData>,
    #[serde(default)]
    tags: Vec<String>,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct CardData {
    /// A text; other forms exist and are not shown.
    #[serde(default)]
    license: serde_json::Value,
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
    size: u64,
}

impl RepositoryRecord {
    fn parse(text: &str, url: &str) -> Result<Self, HubError> {
        let not_the_hub = |reason: String| HubError::NotTheHub {
            url: url.to_owned(),
            reason,
        };
        let info: HubAnswer = serde_json::from_str(text)
            .map_err(|error| not_the_hub(plain_line(&error.to_string())))?;
        if info.sha.is_empty() || !info.sha.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(not_the_hub("sha is not a commit".into()));
        }
        let of_card = info
            .card
            .and_then(|card| Some(card.license.as_str()?.to_owned()));
        let of_tags = info
            .tags
            .iter()
            .find_map(|tag| tag.strip_prefix("license:"));
        let files = info.siblings.into_iter();
        let files = files.map(|file| (file.rfilename.clone(), file.into_content()));
        Ok(Self {
            commit: info.sha,
            licence: of_card.or_else(|| of_tags.map(str::to_owned)),
            files: files.collect(),
        })
    }
}

impl Sibling {
    fn into_content(self) -> Option<RecordedContent> {
        Some(match self.lfs {
            Some(LargeFile { sha256, size }) => RecordedContent {
                size,
                hash: RemoteHash::Sha256(sha256.to_ascii_lowercase()),
            },
            None => RecordedContent {
                size: self.size?,
                hash: RemoteHash::GitBlob(self.blob_id?.to_ascii_lowercase()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reject_what_is_no_hub_and_print_no_secret() {
        for endpoint in [
            "huggingface.co",
            "ftp://huggingface.co",
            "https://me:canary@hub",
            "https://hub/?a=canary",
            "canary",
        ] {
            let Err(error) = HubSettings::new(Some(endpoint), None) else {
                panic!("{endpoint} is accepted");
            };
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        let Err(error) = HubSettings::new(None, Some("canary\u{e9}".into())) else {
            panic!("accepted");
        };
        assert!(!error.to_string().contains("canary"), "{error}");
        let settings = HubSettings::new(Some("http://mirror/hf/"), Some(" hf_x\n".into())).unwrap();
        assert_eq!(settings.endpoint, "http://mirror/hf");
        assert_eq!(settings.token.unwrap().reveal(), "hf_x");
    }

    #[test]
    fn token_over_http_is_warned_about_except_on_loopback() {
        let warning = |endpoint, token: Option<&str>| {
            let settings = HubSettings::new(Some(endpoint), token.map(str::to_owned));
            settings.unwrap().warning()
        };
        for endpoint in [
            "http://mirror/hf",
            "http://10.0.0.7:8080",
            "http://[fd00::7]",
        ] {
            let text = warning(endpoint, Some("hf_x")).unwrap();
            assert!(text.contains("can read HF_TOKEN"), "{text}");
            assert_eq!(warning(endpoint, None), None);
        }
        for endpoint in [
            "https://mirror/hf",
            "http://localhost:8080",
            "http://127.0.0.1",
            "http://[::1]:80",
        ] {
            assert_eq!(warning(endpoint, Some("hf_x")), None, "{endpoint}");
        }
    }

    #[test]
    fn range_of_another_part_is_recognised() {
        assert!(is_range("bytes 5-9/10", 5, 10));
        assert!(is_range("bytes 5-9/*", 5, 10));
        for other in ["bytes 4-9/10", "bytes 5-9/11", "bytes */10", "5-9/10", ""] {
            assert!(!is_range(other, 5, 10), "{other}");
        }
    }

    #[test]
    fn record_has_commit_licence_sizes_and_hashes() {
        let text = r#"{"sha": "9a7d", "tags": ["license:apache-2.0"], "cardData": {"license": ["mit"]}, "siblings": [
            {"rfilename": "config.json", "size": 3, "blobId": "AB"},
            {"rfilename": "model.safetensors", "size": 9, "blobId": "cd", "lfs": {"sha256": "EF", "size": 9, "pointerSize": 1}},
            {"rfilename": "README.md"}]}"#;
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
