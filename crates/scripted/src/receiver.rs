//! A receiver of HTTP requests. Faults come from a script: one for each request, in order.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

/// A connection: TCP, or TLS over it.
pub trait ReceiverStream: Read + Write + Send {}

impl<T: Read + Write + Send> ReceiverStream for T {}

/// What the receiver does with a request that it has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverFault {
    /// An answer with this status and these lines of header.
    Status(u16, &'static str),
    /// The connection ends without an answer.
    Close,
    /// The connection stays open without an answer.
    Silence,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    /// At a proxy the whole URL.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Default)]
struct ReceiverScript {
    faults: VecDeque<ReceiverFault>,
    requests: Vec<ReceivedRequest>,
}

/// Listens on loopback until the process ends. Without a fault it answers with 204.
pub struct ScriptedReceiver {
    address: SocketAddr,
    script: Arc<Mutex<ReceiverScript>>,
}

impl ScriptedReceiver {
    pub fn start() -> Self {
        Self::start_with(|stream| Some(Box::new(stream)))
    }

    /// `accept` makes of a TCP connection what the receiver reads and writes.
    pub fn start_with(
        accept: impl Fn(TcpStream) -> Option<Box<dyn ReceiverStream>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let script = Arc::new(Mutex::<ReceiverScript>::default());
        let shared = Arc::clone(&script);
        serve(listener, accept, move |request| answer(request, &shared));
        Self { address, script }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The next requests get these faults.
    pub fn will(&self, faults: impl IntoIterator<Item = ReceiverFault>) {
        self.script().faults.extend(faults);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.script().requests.clone()
    }

    fn script(&self) -> MutexGuard<'_, ReceiverScript> {
        self.script.lock().expect("no panic")
    }
}

pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).expect("a thread");
}

/// Reads one request of each connection and writes the text that `answer` makes of it; without one the connection ends.
pub(crate) fn serve(
    listener: TcpListener,
    accept: impl Fn(TcpStream) -> Option<Box<dyn ReceiverStream>> + Send + Sync + 'static,
    answer: impl Fn(ReceivedRequest) -> Option<String> + Send + Sync + 'static,
) {
    let both = Arc::new((accept, answer));
    start("receiver", move || {
        for stream in listener.incoming().flatten() {
            let both = Arc::clone(&both);
            start("request", move || {
                let (accept, answer) = &*both;
                serve_one(stream, accept, answer);
            });
        }
    });
}

fn serve_one(
    stream: TcpStream,
    accept: impl Fn(TcpStream) -> Option<Box<dyn ReceiverStream>>,
    answer: impl Fn(ReceivedRequest) -> Option<String>,
) -> Option<()> {
    let mut reader = BufReader::new(accept(stream)?);
    let text = answer(read_request(&mut reader)?)?;
    let mut stream = reader.into_inner();
    stream.write_all(text.as_bytes()).ok()?;
    stream.flush().ok()
}

fn answer(request: ReceivedRequest, script: &Mutex<ReceiverScript>) -> Option<String> {
    let fault = {
        let mut script = script.lock().expect("no panic");
        script.requests.push(request);
        script.faults.pop_front()
    };
    let (status, headers) = match fault {
        None => (204, ""),
        Some(ReceiverFault::Status(status, headers)) => (status, headers),
        Some(ReceiverFault::Close) => return None,
        Some(ReceiverFault::Silence) => loop {
            thread::sleep(Duration::from_secs(3600));
        },
    };
    Some(format!(
        "HTTP/1.1 {status} -\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    ))
}

pub(crate) fn read_request(reader: &mut impl std::io::BufRead) -> Option<ReceivedRequest> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map(|length| length.parse());
    let mut body = vec![0; length.transpose().ok()?.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest {
        method,
        path,
        headers,
        body,
    })
}
