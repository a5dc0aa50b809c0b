//! The camera's side of one RTSP connection: requests to answers. Pure.

use gstreamer::glib::{ChecksumType, base64_encode, compute_checksum_for_string};

use super::{
    message::{RtspRequest, RtspResponse},
    script::{CameraScript, Login, Redirect, Scheme, Takes},
};

const REALM: &str = "a camera";

/// Transport of the packets to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketWay {
    /// Interleaved in the connection, on this channel; reports on the next one.
    Channel(u8),
    /// In datagrams to the first port; reports to the second.
    Ports(u16, u16),
}

/// Effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEffect {
    /// Only the answer.
    None,
    /// The request had a wrong login.
    WrongLogin,
    /// A session was created with this transport.
    SetUp(PacketWay),
    Play,
    TornDown,
}

#[derive(Debug)]
pub struct Conversation {
    login: Option<Login>,
    sdp: String,
    redirect: Option<Redirect>,
    names_channels: bool,
    takes: Takes,
    /// Source of the datagrams: packets and reports.
    ports: (u16, u16),
    rtp_info: Option<&'static str>,
    /// Session timeout that the client gets.
    timeout_s: u64,
    session: String,
    nonces: u32,
    nonce_uses: u32,
}

impl Conversation {
    /// `number` makes the session id and the nonces of this connection unique; datagrams come from `ports`.
    pub fn new(number: usize, script: &CameraScript, ports: (u16, u16)) -> Self {
        Self {
            login: script.login.clone(),
            sdp: script.sdp(),
            redirect: script.redirect.clone(),
            names_channels: script.names_channels,
            takes: script.takes,
            ports,
            rtp_info: script.rtp_info,
            timeout_s: script.timeout.as_secs(),
            session: format!("{:08}", 12_345_678 + number),
            nonces: 0,
            nonce_uses: 0,
        }
    }

    pub fn on(&mut self, request: &RtspRequest) -> (RtspResponse, RequestEffect) {
        if let Some(location) = self.redirected(request) {
            let answer = RtspResponse::new(302).with("Location", location);
            return (answer, RequestEffect::None);
        }
        if let Some(refused) = self.refused(request) {
            return refused;
        }
        let session = format!("{};timeout={}", self.session, self.timeout_s);
        let good = RtspResponse::new(200);
        match &*request.method {
            "OPTIONS" => {
                let methods = "OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER";
                (good.with("Public", methods), RequestEffect::None)
            }
            "DESCRIBE" => {
                let base = format!("{}/", request.url.trim_end_matches('/'));
                let mut answer = good.with("Content-Base", base);
                answer.body.clone_from(&self.sdp);
                (answer, RequestEffect::None)
            }
            "SETUP" => match self.way(request.header("transport").unwrap_or_default()) {
                Some(way) => {
                    let transport = self.transport(way);
                    let answer = good.with("Transport", transport).with("Session", session);
                    (answer, RequestEffect::SetUp(way))
                }
                None => (RtspResponse::new(461), RequestEffect::None),
            },
            "PLAY" => {
                let mut answer = good.with("Session", session);
                if let Some(info) = self.rtp_info {
                    let url = request.url.trim_end_matches('/');
                    answer = answer.with("RTP-Info", format!("url={url}/video;{info}"));
                }
                (answer, RequestEffect::Play)
            }
            "GET_PARAMETER" | "SET_PARAMETER" => {
                (good.with("Session", session), RequestEffect::None)
            }
            "TEARDOWN" => (good, RequestEffect::TornDown),
            _ => (RtspResponse::new(501), RequestEffect::None),
        }
    }

    /// Where a request is redirected to.
    fn redirected(&self, request: &RtspRequest) -> Option<String> {
        match self.redirect.as_ref()? {
            Redirect::Path(path, location) => {
                let is_described = request.method == "DESCRIBE" && request.url.ends_with(path);
                is_described.then(|| location.clone())
            }
            Redirect::Always(location) => Some(format!("{location}{}", request.url.len())),
            Redirect::Unencrypted => {
                let rest = request.url.strip_prefix("rtsp://")?;
                Some(format!("rtsps://{rest}"))
            }
        }
    }

    /// The first of the client's transports that the camera supports.
    fn way(&self, offered: &str) -> Option<PacketWay> {
        let ways = offered.split(',').filter_map(way);
        let can = |way: &PacketWay| match way {
            PacketWay::Channel(_) => self.takes != Takes::Udp,
            PacketWay::Ports(..) => self.takes != Takes::Tcp,
        };
        ways.into_iter().find(can)
    }

    fn transport(&self, way: PacketWay) -> String {
        match way {
            PacketWay::Channel(_) if !self.names_channels => "RTP/AVP/TCP;unicast".to_owned(),
            PacketWay::Channel(channel) => {
                format!("RTP/AVP/TCP;unicast;interleaved={channel}-{}", channel + 1)
            }
            PacketWay::Ports(packets, reports) => {
                let (ours, our_reports) = self.ports;
                format!(
                    "RTP/AVP;unicast;client_port={packets}-{reports};server_port={ours}-{our_reports}"
                )
            }
        }
    }

    /// The answer to a request without a valid login.
    fn refused(&mut self, request: &RtspRequest) -> Option<(RtspResponse, RequestEffect)> {
        let login = self.login.clone()?;
        let given = request.header("authorization");
        let wanted = match login.scheme {
            Scheme::Basic => format!(
                "Basic {}",
                base64_encode(format!("{}:{}", login.user, login.password).as_bytes())
            ),
            Scheme::Digest | Scheme::DigestSha256 | Scheme::DigestFor(_) => {
                self.digest(&login, request, self.nonces).to_string()
            }
        };
        let right = given.is_some_and(|given| match login.scheme {
            Scheme::Basic => given == wanted,
            // Without its name, cameras take the login for one of MD5.
            Scheme::DigestSha256 if !given.contains("algorithm=SHA-256") => false,
            _ => field(given, "response") == Some(&wanted),
        });
        let is_stale = matches!(login.scheme, Scheme::DigestFor(uses) if self.nonce_uses >= uses);
        if right && !is_stale {
            self.nonce_uses += 1;
            return None;
        }
        let old = right
            || (1..self.nonces).any(|nonce| {
                given.is_some_and(|given| {
                    field(given, "response") == Some(&*self.digest(&login, request, nonce))
                })
            });
        (self.nonces, self.nonce_uses) = (self.nonces + 1, 0);
        let challenge = match login.scheme {
            Scheme::Basic => format!("Basic realm=\"{REALM}\""),
            _ => {
                let stale = if old { ", stale=true" } else { "" };
                let nonce = self.nonce(self.nonces);
                let algorithm = match login.scheme {
                    Scheme::DigestSha256 => ", algorithm=SHA-256",
                    _ => "",
                };
                format!("Digest realm=\"{REALM}\", nonce=\"{nonce}\"{stale}{algorithm}")
            }
        };
        let outcome = match given {
            Some(_) if !old => RequestEffect::WrongLogin,
            _ => RequestEffect::None,
        };
        Some((
            RtspResponse::new(401).with("WWW-Authenticate", challenge),
            outcome,
        ))
    }

    fn nonce(&self, number: u32) -> String {
        format!("{}{number:04x}", self.session)
    }

    fn digest(&self, login: &Login, request: &RtspRequest, nonce: u32) -> String {
        // The client hashed the URL of the header, which some clients shorten.
        let given = request.header("authorization").unwrap_or_default();
        let url = field(given, "uri").unwrap_or(&request.url);
        let kind = match login.scheme {
            Scheme::DigestSha256 => ChecksumType::Sha256,
            _ => ChecksumType::Md5,
        };
        let hash = |text: &str| {
            let sum = compute_checksum_for_string(kind, text);
            sum.map(|sum| sum.to_string()).unwrap_or_default()
        };
        let login_hash = hash(&format!("{}:{REALM}:{}", login.user, login.password));
        let request_hash = hash(&format!("{}:{url}", request.method));
        hash(&format!(
            "{login_hash}:{}:{request_hash}",
            self.nonce(nonce)
        ))
    }
}

/// `name="value"` of a header with several of these.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name}=\"");
    let fields = header.split([',', ' ']);
    let found = fields
        .map(str::trim)
        .find_map(|field| field.strip_prefix(&start));
    found.map(|value| value.trim_end_matches('"'))
}

/// A transport that a client offers; `None` if it is unknown here.
fn way(offered: &str) -> Option<PacketWay> {
    let pair = |name: &str| {
        let pair = offered.split_once(name)?.1.split(';').next()?;
        let (first, second) = pair.split_once('-')?;
        Some((first.parse().ok()?, second.parse().ok()?))
    };
    match pair("interleaved=") {
        Some((channel, _)) => u8::try_from(channel).ok().map(PacketWay::Channel),
        None => pair("client_port=").map(|(packets, reports)| PacketWay::Ports(packets, reports)),
    }
}
