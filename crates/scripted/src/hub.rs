//! A Hugging Face hub with a second host for large files, as far as a download needs it. Faults come from a script: one for each
//! request for a file's content, in order.

use std::{
    collections::VecDeque,
    io::{BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::receiver::{read_request, start};

/// A repository at one revision.
pub struct ScriptedRepository {
    pub name: &'static str,
    pub revision: &'static str,
    /// What the revision is.
    pub commit: &'static str,
    pub licence: Option<&'static str>,
    pub files: Vec<ScriptedFile>,
}

pub struct ScriptedFile {
    pub name: &'static str,
    pub content: Vec<u8>,
    /// Served by the host for contents, and recorded with its SHA-256; others with their git blob.
    pub is_large: bool,
}

/// What goes wrong with a request for a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubFault {
    /// Nothing.
    None,
    /// An answer without content, with this status.
    Status(u16),
    /// The connection ends after so many bytes of content.
    CutAfter(usize),
    /// The answer has all bytes and ignores the range of the request.
    WholeFile,
    /// The first byte that is sent is another one.
    WrongByte,
    /// The range that is announced is another one.
    WrongRange,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct HubRequest {
    /// True on the host for contents.
    pub is_content_host: bool,
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

/// What the record of a file claims, instead of the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// A hash that no content has.
    WrongHash,
    /// A size that no disk has.
    Huge,
    /// Neither size nor hash, as of mirrors that list names alone.
    NameAlone,
}

#[derive(Default)]
struct HubScript {
    faults: VecDeque<HubFault>,
    /// For every request to the API.
    api_faults: VecDeque<HubFault>,
    record_fault: Option<(String, RecordFault)>,
    token: Option<String>,
    /// A token whose user has not accepted the conditions of the repositories.
    token_without_access: Option<String>,
    requests: Vec<HubRequest>,
}

struct HubState {
    repositories: Vec<ScriptedRepository>,
    script: Mutex<HubScript>,
}

/// Listens on loopback until the process ends.
pub struct ScriptedHub {
    address: SocketAddr,
    state: Arc<HubState>,
}

impl ScriptedHub {
    pub fn start(repositories: Vec<ScriptedRepository>) -> Self {
        let state = Arc::new(HubState {
            repositories,
            script: Mutex::default(),
        });
        let contents = listen(&state, None);
        let address = listen(&state, Some(contents));
        Self { address, state }
    }

    /// For `HF_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next requests for contents get these faults.
    pub fn will(&self, faults: impl IntoIterator<Item = HubFault>) {
        self.script().faults.extend(faults);
    }

    /// The next requests to the API get these faults.
    pub fn api_will(&self, faults: impl IntoIterator<Item = HubFault>) {
        self.script().api_faults.extend(faults);
    }

    /// The record of files with this name is wrong; `None` makes all right again.
    pub fn misrecord(&self, fault: Option<(&str, RecordFault)>) {
        self.script().record_fault = fault.map(|(name, fault)| (name.to_owned(), fault));
    }

    /// Answers with 401 to requests without this token.
    pub fn require_token(&self, token: &str) {
        self.script().token = Some(token.to_owned());
    }

    /// Answers with 403, as of a gated repository, to requests with this token.
    pub fn refuse_access(&self, token: &str) {
        self.script().token_without_access = Some(token.to_owned());
    }

    /// All requests since the last call.
    pub fn take_requests(&self) -> Vec<HubRequest> {
        std::mem::take(&mut self.script().requests)
    }

    fn script(&self) -> std::sync::MutexGuard<'_, HubScript> {
        self.state.script.lock().expect("no panic")
    }
}

impl HubState {
    /// Answers one request. `contents` is where the hub redirects to; `None` there.
    fn serve(&self, stream: TcpStream, contents: Option<SocketAddr>) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut request = read_request(&mut reader)?;
        let request = HubRequest {
            is_content_host: contents.is_none(),
            path: request.path,
            range: request.headers.remove("range"),
            authorization: request.headers.remove("authorization"),
        };
        let mut stream = reader.into_inner();
        let answer = self.answer(&request, contents);
        self.script.lock().ok()?.requests.push(request);
        stream.write_all(&answer).ok()?;
        stream.shutdown(std::net::Shutdown::Write).ok()?;
        // Until the client has read all of it: closing with unread input would discard what was sent.
        stream.read_to_end(&mut Vec::new()).ok().map(drop)
    }

    fn answer(&self, request: &HubRequest, contents: Option<SocketAddr>) -> Vec<u8> {
        let mut script = self.script.lock().expect("no panic");
        let bearer = |token: &Option<String>| Some(format!("Bearer {}", token.as_ref()?));
        let without_access = bearer(&script.token_without_access);
        if !request.is_content_host
            && without_access.is_some()
            && request.authorization == without_access
        {
            return head(403, &["X-Error-Code: GatedRepo".into()], 0);
        }
        let bearer = bearer(&script.token);
        // The host for contents knows no token: the address is the permission.
        if !request.is_content_host && bearer.is_some() && request.authorization != bearer {
            return head(401, &[], 0);
        }
        if let Some(path) = request.path.strip_prefix("/api/models/") {
            return match script.api_faults.pop_front() {
                Some(HubFault::Status(status)) => head(status, &[], 0),
                _ => self.info(path, script.record_fault.as_ref()),
            };
        }
        let Some(file) = self.file(&request.path) else {
            return head(404, &[], 0);
        };
        if let Some(contents) = contents.filter(|_| file.is_large) {
            let port = contents.port();
            let location = format!("Location: http://localhost:{port}{}?signed", request.path);
            return head(302, &[location], 0);
        }
        let fault = script.faults.pop_front().unwrap_or(HubFault::None);
        content(file, request.range.as_deref(), &fault)
    }

    /// `NAME/resolve/COMMIT/FILE`, with the commit or the revision.
    fn file(&self, path: &str) -> Option<&ScriptedFile> {
        let path = path.trim_end_matches("?signed");
        self.repositories.iter().find_map(|repository| {
            let rest = path.strip_prefix(&format!("/{}/resolve/", repository.name))?;
            let (revision, name) = rest.split_once('/')?;
            let is_here = [repository.commit, repository.revision].contains(&revision);
            let mut files = repository.files.iter();
            files.find(|file| is_here && file.name == name)
        })
    }

    fn info(&self, path: &str, fault: Option<&(String, RecordFault)>) -> Vec<u8> {
        let wanted = |repository: &&ScriptedRepository| {
            let ScriptedRepository { name, revision, .. } = repository;
            path == format!("{name}/revision/{revision}?blobs=true")
        };
        let Some(repository) = self.repositories.iter().find(wanted) else {
            return head(404, &[], 0);
        };
        let fault_of = |file: &ScriptedFile| match fault {
            Some((name, fault)) if name == file.name => Some(*fault),
            _ => None,
        };
        let siblings = repository.files.iter().map(|f| f.recorded(fault_of(f)));
        let licence = repository.licence;
        let tags: Vec<String> = licence.iter().map(|l| format!("license:{l}")).collect();
        let info = json!({
            "id": repository.name,
            "sha": repository.commit,
            "private": false,
            "gated": false,
            "tags": tags,
            "cardData": licence.map(|licence| json!({"license": licence})),
            "siblings": siblings.collect::<Vec<Value>>(),
        });
        let body = info.to_string().into_bytes();
        let mut answer = head(200, &["Content-Type: application/json".into()], body.len());
        answer.extend(body);
        answer
    }
}

impl ScriptedFile {
    pub fn small(name: &'static str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            name,
            content: content.into(),
            is_large: false,
        }
    }

    pub fn large(name: &'static str, content: impl Into<Vec<u8>>) -> Self {
        let is_large = true;
        Self {
            is_large,
            ..Self::small(name, content)
        }
    }

    fn recorded(&self, fault: Option<RecordFault>) -> Value {
        let content = &self.content;
        if fault == Some(RecordFault::NameAlone) {
            return json!({"rfilename": self.name});
        }
        let size = match fault {
            Some(RecordFault::Huge) => 1_u64 << 60,
            _ => content.len() as u64,
        };
        let hash = |right: String| match fault {
            Some(RecordFault::WrongHash) => "0".repeat(right.len()),
            _ => right,
        };
        let mut blob = format!("blob {}\0", content.len()).into_bytes();
        blob.extend(content);
        let blob_id = hash(hex(&Sha1::digest(&blob)));
        if !self.is_large {
            return json!({"rfilename": self.name, "size": size, "blobId": blob_id});
        }
        let sha256 = hash(hex(&Sha256::digest(content)));
        let lfs = json!({"sha256": sha256, "size": size, "pointerSize": 135});
        json!({"rfilename": self.name, "size": size, "blobId": blob_id, "lfs": lfs})
    }
}

/// Listens for requests, which are answered as by [`HubState::serve`].
fn listen(state: &Arc<HubState>, contents: Option<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (address, state) = (listener.local_addr(), Arc::clone(state));
    start("hub", move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            // A client may leave at any time.
            start("hub-request", move || _ = state.serve(stream, contents));
        }
    });
    address.expect("an address")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn head(status: u16, headers: &[String], length: usize) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\nConnection: close\r\n");
    for header in headers {
        head += &format!("{header}\r\n");
    }
    format!("{head}Content-Length: {length}\r\n\r\n").into_bytes()
}

/// The answer with a file's content from the byte on that was asked for.
fn content(file: &ScriptedFile, range: Option<&str>, fault: &HubFault) -> Vec<u8> {
    let all = file.content.len();
    let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
    let from = from.map(|from| from.parse().expect("a number"));
    let from: Option<usize> = from.filter(|_| *fault != HubFault::WholeFile);
    if from.is_some_and(|from| from >= all) {
        return head(416, &[format!("Content-Range: bytes */{all}")], 0);
    }
    let begin = from.unwrap_or(0);
    let mut bytes = file.content[begin..].to_vec();
    let announced = begin + usize::from(*fault == HubFault::WrongRange);
    let range = format!("Content-Range: bytes {announced}-{}/{all}", all - 1);
    let mut answer = match (fault, from) {
        (HubFault::Status(status), _) => return head(*status, &[], 0),
        (_, Some(_)) => head(206, &[range], bytes.len()),
        (_, None) => head(200, &[], bytes.len()),
    };
    match fault {
        HubFault::CutAfter(count) => bytes.truncate(*count),
        HubFault::WrongByte => bytes[0] ^= 1,
        _ => {}
    }
    answer.extend(bytes);
    answer
}
