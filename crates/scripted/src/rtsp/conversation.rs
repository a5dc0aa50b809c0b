//! The camera's side of one RTSP connection: requests to answers. Pure.

use gstreamer::glib::{ChecksumType, base64_encode};

use super::{
    message::{RtspRequest, RtspResponse},
    script::{CameraScript, Login, Redirect, Scheme, Takes},
};
use crate::digest::{field, hash};

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
    script: CameraScript,
    /// Source of the datagrams: packets and reports.
    ports: (u16, u16),
    session: String,
    nonces: u32,
    nonce_uses: u32,
}

impl Conversation {
    /// `number` makes the session id and the nonces of this connection unique; datagrams come from `ports`.
    pub fn new(number: usize, script: &CameraScript, ports: (u16, u16)) -> Self {
        Self {
            script: script.clone(),
            ports,
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
        let session = format!("{};timeout={}", self.session, self.script.timeout.as_secs());
        let good = RtspResponse::new(200);
        match &*request.method {
            "OPTIONS" => {
                let methods = "OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER";
                (good.with("Public", methods), RequestEffect::None)
            }
            "DESCRIBE" => {
                let base = format!("{}/", request.url.trim_end_matches('/'));
                let mut answer = good.with("Content-Base", base);
                answer.body = self.script.sdp();
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
                if let Some(info) = self.script.rtp_info {
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
        match self.script.redirect.as_ref()? {
            Redirect::Path(path, location) => {
                let is_described = request.method == "DESCRIBE" && request.url.ends_with(path);
                is_described.then(|| location.clone())
            }
            Redirect::Always => Some(format!("{}x", request.url)),
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
            PacketWay::Channel(_) => self.script.takes != Takes::Udp,
            PacketWay::Ports(..) => self.script.takes != Takes::Tcp,
        };
        ways.into_iter().find(can)
    }

    fn transport(&self, way: PacketWay) -> String {
        match way {
            PacketWay::Channel(_) if !self.script.names_channels => {
                "RTP/AVP/TCP;unicast".to_owned()
            }
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
        let login = self.script.login.clone()?;
        let given = request.header("authorization");
        // The newest nonce for which the login is right.
        let is_right =
            |nonce: &u32| given.is_some_and(|given| self.is_right(&login, given, request, *nonce));
        let nonce = (1..=self.nonces).rev().find(is_right);
        let is_stale = matches!(login.scheme, Scheme::DigestFor(uses) if self.nonce_uses >= uses);
        if nonce == Some(self.nonces) && !is_stale {
            self.nonce_uses += 1;
            return None;
        }
        (self.nonces, self.nonce_uses) = (self.nonces + 1, 0);
        let challenge = match login.scheme {
            Scheme::Basic => format!("Basic realm=\"{REALM}\""),
            _ => {
                let stale = nonce.map_or("", |_| ", stale=true");
                let algorithm = match login.scheme {
                    Scheme::DigestSha256 => ", algorithm=SHA-256",
                    _ => "",
                };
                let nonce = self.nonce(self.nonces);
                format!("Digest realm=\"{REALM}\", nonce=\"{nonce}\"{stale}{algorithm}")
            }
        };
        let effect = match given.filter(|_| nonce.is_none()) {
            Some(_) => RequestEffect::WrongLogin,
            None => RequestEffect::None,
        };
        let answer = RtspResponse::new(401).with("WWW-Authenticate", challenge);
        Some((answer, effect))
    }

    fn is_right(&self, login: &Login, given: &str, request: &RtspRequest, nonce: u32) -> bool {
        if login.scheme == Scheme::Basic {
            let text = base64_encode(format!("{}:{}", login.user, login.password).as_bytes());
            return given == format!("Basic {text}");
        }
        let kind = match login.scheme {
            // Without its name, cameras take the login for one of MD5.
            Scheme::DigestSha256 if !given.contains("algorithm=SHA-256") => return false,
            Scheme::DigestSha256 => ChecksumType::Sha256,
            _ => ChecksumType::Md5,
        };
        // The client hashed the URL of the header, which some clients shorten.
        let url = field(given, "uri").unwrap_or(&request.url);
        let login = hash(kind, &format!("{}:{REALM}:{}", login.user, login.password));
        let request = hash(kind, &format!("{}:{url}", request.method));
        let expected = hash(kind, &format!("{login}:{}:{request}", self.nonce(nonce)));
        field(given, "response") == Some(&*expected)
    }

    fn nonce(&self, number: u32) -> String {
        format!("{}{number:04x}", self.session)
    }
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
