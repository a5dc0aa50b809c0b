//! RTSP 1.0 on the wire, as far as a camera needs it (RFC 2326): bytes to requests, answers to bytes. Pure.

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    Request(RtspRequest),
    /// An interleaved packet: receiver reports.
    Packet,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtspRequest {
    /// In capitals.
    pub method: String,
    /// As in the first line.
    pub url: String,
    headers: Vec<(String, String)>,
}

impl RtspRequest {
    /// The value of a header; its name ignores case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn parse(head: &str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, url) = (first.next()?.to_owned(), first.next()?.to_owned());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        };
        Some(Self {
            method,
            url,
            headers: lines.filter_map(header).collect(),
        })
    }
}

/// Removes the first whole message from the received bytes; `None` if it is not complete.
pub fn take(received: &mut Vec<u8>) -> Option<ClientMessage> {
    if let [b'$', _, high, low, ..] = **received {
        let end = 4 + usize::from(u16::from_be_bytes([high, low]));
        return (received.len() >= end).then(|| {
            received.drain(..end);
            ClientMessage::Packet
        });
    }
    let head = received.windows(4).position(|four| four == b"\r\n\r\n")?;
    let request =
        RtspRequest::parse(&String::from_utf8_lossy(&received[..head])).unwrap_or_default();
    let length = request.header("content-length");
    let end = head + 4 + length.and_then(|text| text.parse().ok()).unwrap_or(0);
    (received.len() >= end).then(|| {
        received.drain(..end);
        ClientMessage::Request(request)
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtspResponse {
    pub status: u16,
    /// Name and value.
    pub headers: Vec<(&'static str, String)>,
    /// SDP, or nothing.
    pub body: String,
}

impl RtspResponse {
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    /// With one more header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The answer to the request with this number.
    pub fn bytes(&self, sequence: &str) -> Vec<u8> {
        let mut text = format!("RTSP/1.0 {} Scripted\r\nCSeq: {sequence}\r\n", self.status);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() {
            text += "Content-Type: application/sdp\r\n";
        }
        text += &format!("Content-Length: {}\r\n\r\n{}", self.body.len(), self.body);
        text.into_bytes()
    }
}

/// An interleaved packet (RFC 2326 section 10.12).
pub fn interleaved(channel: u8, packet: &[u8]) -> Vec<u8> {
    let length = u16::try_from(packet.len()).unwrap();
    [&[b'$', channel], &length.to_be_bytes()[..], packet].concat()
}
