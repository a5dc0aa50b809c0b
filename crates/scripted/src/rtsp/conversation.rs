//! What a camera answers: its side of one RTSP connection. Pure: a request goes in, an answer comes out.

use gstreamer::glib::{ChecksumType, base64_encode, compute_checksum_for_string};

use super::message::{Request, Response};

const REALM: &str = "a camera";

/// How a login is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// RFC 7617.
    Basic,
    /// RFC 2069 with MD5, as cameras do.
    Digest,
    /// As Digest, and a nonce is good for so many requests; then it is stale.
    DigestFor(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// How it is asked for.
    pub scheme: Scheme,
    pub user: &'static str,
    pub password: &'static str,
}

/// How packets come to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Inside of the connection, on this channel; reports on the next one.
    Channel(u8),
    /// In datagrams to this port; reports to that one.
    Ports(u16, u16),
}

/// What a camera can do of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Both,
    /// Inside of the connection alone.
    Tcp,
    Udp,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing but the answer.
    Told,
    /// A login was given and was wrong.
    WrongLogin,
    /// A session was made; packets go this way.
    SetUp(Way),
    /// Packets are to flow.
    Play,
    /// The session is over.
    TornDown,
}

#[derive(Debug)]
pub struct Conversation {
    login: Option<Login>,
    sdp: String,
    takes: Takes,
    /// Where our own datagrams come from.
    ports: (u16, u16),
    /// Told to the client, which is to be heard from within it.
    timeout_s: u64,
    session: String,
    nonces: u32,
    nonce_uses: u32,
}

impl Conversation {
    /// The connection with the number `number`, which makes its session and nonces its own.
    pub fn new(number: usize, login: Option<Login>, sdp: String, timeout_s: u64) -> Self {
        Self {
            login,
            sdp,
            takes: Takes::Both,
            ports: (0, 0),
            timeout_s,
            session: format!("{:08}", 12_345_678 + number),
            nonces: 0,
            nonce_uses: 0,
        }
    }

    /// The same, of a camera that sends packets in these ways, and datagrams from these ports.
    pub fn sending(mut self, takes: Takes, ports: (u16, u16)) -> Self {
        (self.takes, self.ports) = (takes, ports);
        self
    }

    pub fn on(&mut self, request: &Request) -> (Response, Outcome) {
        if let Some(refused) = self.refused(request) {
            return refused;
        }
        let session = format!("{};timeout={}", self.session, self.timeout_s);
        let good = Response::new(200);
        match &*request.method {
            "OPTIONS" => {
                let methods = "OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER";
                (good.with("Public", methods), Outcome::Told)
            }
            "DESCRIBE" => {
                let base = format!("{}/", request.url.trim_end_matches('/'));
                let mut answer = good.with("Content-Base", base);
                answer.body.clone_from(&self.sdp);
                (answer, Outcome::Told)
            }
            "SETUP" => match self.way(request.header("transport").unwrap_or_default()) {
                Some(way) => {
                    let transport = self.transport(way);
                    let answer = good.with("Transport", transport).with("Session", session);
                    (answer, Outcome::SetUp(way))
                }
                None => (Response::new(461), Outcome::Told),
            },
            "PLAY" => (good.with("Session", session), Outcome::Play),
            "GET_PARAMETER" | "SET_PARAMETER" => (good.with("Session", session), Outcome::Told),
            "TEARDOWN" => (good, Outcome::TornDown),
            _ => (Response::new(501), Outcome::Told),
        }
    }

    /// The first of the client's ways that the camera can go.
    fn way(&self, offered: &str) -> Option<Way> {
        let ways = offered.split(',').filter_map(way);
        let can = |way: &Way| match way {
            Way::Channel(_) => self.takes != Takes::Udp,
            Way::Ports(..) => self.takes != Takes::Tcp,
        };
        ways.into_iter().find(can)
    }

    fn transport(&self, way: Way) -> String {
        match way {
            Way::Channel(channel) => {
                format!("RTP/AVP/TCP;unicast;interleaved={channel}-{}", channel + 1)
            }
            Way::Ports(packets, reports) => {
                let (ours, our_reports) = self.ports;
                format!(
                    "RTP/AVP;unicast;client_port={packets}-{reports};server_port={ours}-{our_reports}"
                )
            }
        }
    }

    /// The answer to who is not, or not rightly, logged in.
    fn refused(&mut self, request: &Request) -> Option<(Response, Outcome)> {
        let login = self.login.clone()?;
        let given = request.header("authorization");
        let wanted = match login.scheme {
            Scheme::Basic => format!(
                "Basic {}",
                base64_encode(format!("{}:{}", login.user, login.password).as_bytes())
            ),
            Scheme::Digest | Scheme::DigestFor(_) => {
                self.digest(&login, request, self.nonces).to_string()
            }
        };
        let right = given.is_some_and(|given| match login.scheme {
            Scheme::Basic => given == wanted,
            _ => field(given, "response") == Some(&wanted),
        });
        let worn = matches!(login.scheme, Scheme::DigestFor(uses) if self.nonce_uses >= uses);
        if right && !worn {
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
                format!("Digest realm=\"{REALM}\", nonce=\"{nonce}\"{stale}")
            }
        };
        let outcome = match given {
            Some(_) if !old => Outcome::WrongLogin,
            _ => Outcome::Told,
        };
        Some((
            Response::new(401).with("WWW-Authenticate", challenge),
            outcome,
        ))
    }

    fn nonce(&self, number: u32) -> String {
        format!("{}{number:04x}", self.session)
    }

    fn digest(&self, login: &Login, request: &Request, nonce: u32) -> String {
        // The URL of the header is what was hashed, as some clients shorten it.
        let given = request.header("authorization").unwrap_or_default();
        let url = field(given, "uri").unwrap_or(&request.url);
        let who = md5(&format!("{}:{REALM}:{}", login.user, login.password));
        let what = md5(&format!("{}:{url}", request.method));
        md5(&format!("{who}:{}:{what}", self.nonce(nonce)))
    }
}

fn md5(text: &str) -> String {
    let sum = compute_checksum_for_string(ChecksumType::Md5, text);
    sum.map(|sum| sum.to_string()).unwrap_or_default()
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

/// What a client offers; `None` for what is not known here.
fn way(offered: &str) -> Option<Way> {
    let pair = |name: &str| {
        let pair = offered.split_once(name)?.1.split(';').next()?;
        let (first, second) = pair.split_once('-')?;
        Some((first.parse().ok()?, second.parse().ok()?))
    };
    match pair("interleaved=") {
        Some((channel, _)) => u8::try_from(channel).ok().map(Way::Channel),
        None => pair("client_port=").map(|(packets, reports)| Way::Ports(packets, reports)),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::*, *};

    fn request(method: &str, authorization: Option<&str>) -> Request {
        let transport = "RTP/AVP/TCP;unicast;interleaved=2-3";
        let mut text = format!("{method} rtsp://h/x RTSP/1.0\r\nTransport: {transport}\r\n");
        if let Some(value) = authorization {
            text += &format!("Authorization: {value}\r\n");
        }
        let mut bytes = (text + "\r\n").into_bytes();
        match take(&mut bytes) {
            Some(Incoming::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn guarded(scheme: Scheme) -> Conversation {
        let login = Login {
            scheme,
            user: "viewer",
            password: "right",
        };
        Conversation::new(0, Some(login), "v=0\r\n".into(), 60)
    }

    fn log_in(camera: &mut Conversation, password: &str) -> (u16, Outcome, bool) {
        let login = Login {
            scheme: Scheme::Digest,
            user: "viewer",
            password: if password == "right" {
                "right"
            } else {
                "wrong"
            },
        };
        let bare = request("DESCRIBE", None);
        let response = camera.digest(&login, &bare, camera.nonces);
        let value =
            format!("Digest username=\"viewer\", uri=\"rtsp://h/x\", response=\"{response}\"");
        let (answer, outcome) = camera.on(&request("DESCRIBE", Some(&value)));
        let stale = answer
            .headers
            .iter()
            .any(|(_, value)| value.contains("stale"));
        (answer.status, outcome, stale)
    }

    #[test]
    fn a_camera_without_a_login_sets_up_plays_and_ends() {
        let mut camera = Conversation::new(0, None, "v=0\r\n".into(), 60);
        let outcomes = [
            "OPTIONS",
            "DESCRIBE",
            "SETUP",
            "PLAY",
            "GET_PARAMETER",
            "TEARDOWN",
        ]
        .map(|method| camera.on(&request(method, None)))
        .map(|(answer, outcome)| (answer.status == 200).then_some(outcome).unwrap());
        use Outcome::{Play, SetUp, Told, TornDown};
        let set_up = SetUp(Way::Channel(2));
        assert_eq!(outcomes, [Told, Told, set_up, Play, Told, TornDown]);
    }

    #[test]
    fn a_way_is_found_that_both_can_go_or_none_is() {
        let tcp = "RTP/AVP/TCP;unicast;interleaved=2-3";
        let udp = "RTP/AVP;unicast;client_port=5000-5001";
        let both = format!("{udp},{tcp}");
        let way = |takes, offered: &str| {
            let camera = Conversation::new(0, None, String::new(), 60);
            camera.sending(takes, (1, 2)).way(offered)
        };
        assert_eq!(way(Takes::Both, &both), Some(Way::Ports(5000, 5001)));
        assert_eq!(way(Takes::Tcp, &both), Some(Way::Channel(2)));
        assert_eq!(way(Takes::Udp, tcp), None);
        assert_eq!(way(Takes::Tcp, udp), None);
    }

    #[test]
    fn basic_and_digest_want_the_right_password() {
        let mut basic = guarded(Scheme::Basic);
        assert_eq!(basic.on(&request("OPTIONS", None)).1, Outcome::Told);
        let right = format!("Basic {}", base64_encode(b"viewer:right"));
        assert_eq!(basic.on(&request("OPTIONS", Some(&right))).0.status, 200);
        let wrong = format!("Basic {}", base64_encode(b"viewer:wrong"));
        let (answer, outcome) = basic.on(&request("OPTIONS", Some(&wrong)));
        assert_eq!((answer.status, outcome), (401, Outcome::WrongLogin));

        let mut digest = guarded(Scheme::Digest);
        assert_eq!(digest.on(&request("OPTIONS", None)).0.status, 401);
        assert_eq!(log_in(&mut digest, "right"), (200, Outcome::Told, false));
        assert_eq!(log_in(&mut digest, "no"), (401, Outcome::WrongLogin, false));
    }

    #[test]
    fn a_worn_nonce_is_stale_and_no_wrong_login() {
        let mut camera = guarded(Scheme::DigestFor(1));
        assert_eq!(camera.on(&request("OPTIONS", None)).0.status, 401);
        assert_eq!(log_in(&mut camera, "right"), (200, Outcome::Told, false));
        assert_eq!(log_in(&mut camera, "right"), (401, Outcome::Told, true));
        assert_eq!(log_in(&mut camera, "right"), (200, Outcome::Told, false));
    }
}
