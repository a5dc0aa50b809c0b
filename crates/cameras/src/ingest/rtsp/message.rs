//! RTSP 1.0 on the wire (RFC 2326), as far as a relay needs it: bytes to messages and packets, and back. Pure.

/// Longer heads are no RTSP: a camera's are below 1 KiB.
const HEAD_MAX: usize = 16 * 1024;
/// Longer bodies are no SDP.
const BODY_MAX: usize = 128 * 1024;

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtspMessage {
    /// The first line.
    start: String,
    /// Names and values, in order.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl RtspMessage {
    pub fn request(method: &str, url: &str) -> Self {
        Self {
            start: format!("{method} {url} RTSP/1.0"),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The status of an answer; `None` for a request.
    pub fn status(&self) -> Option<u16> {
        let rest = self.start.strip_prefix("RTSP/")?;
        rest.split(' ').nth(1)?.parse().ok()
    }

    pub fn is_answer(&self) -> bool {
        self.start.starts_with("RTSP/")
    }

    /// Of a request.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// Of a request.
    pub fn url(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// The same request for another URL.
    pub fn with_url(&self, url: &str) -> Self {
        Self {
            start: format!("{} {url} RTSP/1.0", self.method()),
            ..self.clone()
        }
    }

    /// The first value of a header, whose name ignores case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = move |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        let found = self.headers.iter().filter(same);
        found.map(|(_, value)| value.as_str())
    }

    /// Replaces all headers of that name by one.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.start);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head += "\r\n";
        [head.as_bytes(), &self.body].concat()
    }

    /// The message and its length in bytes, or `None` until it is complete.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, NotRtsp> {
        let is_start = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
        if !bytes.first().is_none_or(is_start) {
            return Err(NotRtsp);
        }
        let Some(head) = head_length(bytes) else {
            return match bytes.len() > HEAD_MAX {
                true => Err(NotRtsp),
                false => Ok(None),
            };
        };
        let text = String::from_utf8_lossy(&bytes[..head]);
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let start = lines.next().unwrap_or_default().to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let mut message = Self {
            start,
            headers: lines.filter_map(header).collect(),
            body: Vec::new(),
        };
        let is_request = message.url().contains(':') || message.url() == "*";
        if message.status().is_none() && (message.is_answer() || !is_request) {
            return Err(NotRtsp);
        }
        let length = message.header("content-length");
        let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        if length > BODY_MAX {
            return Err(NotRtsp);
        }
        let Some(body) = bytes.get(head..head + length) else {
            return Ok(None);
        };
        message.body = body.to_vec();
        if message.header("content-length").is_some() {
            // The receiver reads a repeated or broken length as it was read here.
            message.set("Content-Length", length.to_string());
        }
        Ok(Some((message, head + length)))
    }
}

/// The bytes are no RTSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRtsp;

/// What one side received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RtspItem {
    /// Whole interleaved packets, as they came.
    Packets(Vec<u8>),
    Message(RtspMessage),
}

/// The bytes of one direction of a connection.
#[derive(Debug, Default)]
pub struct RtspInbox(Vec<u8>);

impl RtspInbox {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message, or all packets before it; `None` until more has come.
    pub fn next(&mut self) -> Result<Option<RtspItem>, NotRtsp> {
        let packets = packets_length(&self.0);
        if packets > 0 {
            return Ok(Some(RtspItem::Packets(self.take(packets))));
        }
        if self.0.first() == Some(&b'$') {
            return Ok(None);
        }
        // Some cameras send an empty line after a body.
        let blank = self.0.iter().take_while(|byte| b"\r\n".contains(byte));
        let blank = blank.count();
        self.take(blank);
        let Some((message, length)) = RtspMessage::parse(&self.0)? else {
            return Ok(None);
        };
        self.take(length);
        Ok(Some(RtspItem::Message(message)))
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        self.0.drain(..length).collect()
    }
}

/// The length of the whole interleaved packets at the start (RFC 2326 section 10.12).
fn packets_length(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some([b'$', _, high, low]) = bytes.get(end..end + 4) {
        let next = end + 4 + usize::from(u16::from_be_bytes([*high, *low]));
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

/// The length of the lines up to and including the first empty one.
fn head_length(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        start += line.len();
        if matches!(line, b"\n" | b"\r\n") {
            return Some(start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_and_packets_are_found_at_every_cut() {
        let answer = "RTSP/1.0 200 OK\r\nCSeq: 1\r\ncontent-length: 3\r\n\r\nabc";
        let packets = [b'$', 0, 0, 2, 7, 7, b'$', 1, 0, 0];
        let bytes = [
            answer.as_bytes(),
            &packets,
            b"\r\nOPTIONS * RTSP/1.0\nA: b\n\n",
        ]
        .concat();
        for cut in 1..bytes.len() {
            let (mut inbox, mut found, mut sent) = (RtspInbox::default(), Vec::new(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                inbox.push(part);
                while let Some(received) = inbox.next().unwrap() {
                    match received {
                        RtspItem::Packets(packets) => sent.extend(packets),
                        RtspItem::Message(message) => found.push(message),
                    }
                }
            }
            assert_eq!(sent, packets, "{cut}");
            assert_eq!(
                (found[0].status(), found[0].body()),
                (Some(200), &b"abc"[..])
            );
            assert_eq!(
                (found[1].method(), found[1].header("a")),
                ("OPTIONS", Some("b"))
            );
            assert_eq!(found.len(), 2);
        }
    }

    #[test]
    fn receiver_finds_the_same_end_of_a_body() {
        for (lengths, length) in [
            ("Content-Length: 3\r\ncontent-length: 999\r\n", Some("3")),
            ("Content-Length: three\r\n", Some("0")),
            ("", None),
        ] {
            let mut inbox = RtspInbox::default();
            inbox.push(format!("RTSP/1.0 200 OK\r\n{lengths}\r\nABC").as_bytes());
            let Ok(Some(RtspItem::Message(message))) = inbox.next() else {
                panic!("{lengths}")
            };
            let sent: Vec<_> = message.headers("content-length").collect();
            assert_eq!(sent, Vec::from_iter(length), "{lengths}");
        }
    }

    #[test]
    fn other_protocols_and_endless_messages_are_refused() {
        for text in [
            &[0xa5; 9][..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"RTSP/1.0 x\r\n\r\n",
        ] {
            let mut inbox = RtspInbox::default();
            inbox.push(text);
            assert_eq!(inbox.next(), Err(NotRtsp));
        }
        for text in [
            "A".repeat(HEAD_MAX + 1),
            format!("RTSP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", usize::MAX),
        ] {
            let mut inbox = RtspInbox::default();
            inbox.push(text.as_bytes());
            assert_eq!(inbox.next(), Err(NotRtsp));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_messages_or_a_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut inbox = RtspInbox::default();
            inbox.push(&bytes);
            while let Ok(Some(_)) = inbox.next() {}
        }
    }
}
