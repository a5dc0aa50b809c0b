use std::net::Ipv4Addr;

use super::*;
use spotter_config::{CameraTls, Secret, Transport};

const RELAY: &str = "rtsp://127.0.0.1:4000/token";
const PEER: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
const START: Mono = Mono::from_nanos(0);

fn settings(url: &str) -> RtspConfig {
    RtspConfig {
        url: url.into(),
        user: Some("admin".into()),
        password: Some(Secret::new("secret1".into())),
        transport: Transport::Auto,
        tls: CameraTls::Verify,
        redirect_hosts: vec!["Recorder".into()],
    }
}

fn dialogue(url: &str) -> RtspDialogue {
    started(&settings(url))
}

fn started(settings: &RtspConfig) -> RtspDialogue {
    RtspDialogue::new(RELAY, settings, Url::parse(&settings.url).unwrap())
}

fn asked(method: &str, url: &str, headers: &[(&str, &str)]) -> RtspMessage {
    let mut request = RtspMessage::request(method, url);
    request.set("CSeq", "77");
    for (name, value) in headers {
        request.set(name, *value);
    }
    request
}

/// The camera's answer to a request, with these headers.
fn answer(to: &RtspMessage, status: u16, headers: &[(&str, &str)]) -> RtspMessage {
    let mut text = format!("RTSP/1.0 {status} x\r\n");
    if let Some(number) = to.header("cseq") {
        text += &format!("CSeq: {number}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    parsed(&format!("{text}\r\n"))
}

fn parsed(text: &str) -> RtspMessage {
    let mut inbox = super::super::message::RtspInbox::default();
    inbox.push(text.as_bytes());
    match inbox.next() {
        Ok(Some(super::super::message::RtspItem::Message(message))) => message,
        other => panic!("{other:?}"),
    }
}

impl RtspDialogue {
    fn camera_gets(&mut self, method: &str, headers: &[(&str, &str)]) -> RtspMessage {
        self.forwarded(&asked(method, RELAY, headers))
    }

    fn forwarded(&mut self, request: &RtspMessage) -> RtspMessage {
        match self.request(request, START) {
            Ok(DialogueStep::ToCamera(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn answered(&mut self, answer: RtspMessage) -> Result<DialogueStep, Failure> {
        self.answer(answer, PEER, START)
    }

    fn client_gets(&mut self, answer: RtspMessage) -> RtspMessage {
        match self.answered(answer) {
            Ok(DialogueStep::ToClient(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// The camera demands a login.
    fn signed(&mut self, request: &RtspMessage, challenges: &[(&str, &str)]) -> RtspMessage {
        match self.answered(answer(request, 401, challenges)) {
            Ok(DialogueStep::ToCamera(signed)) => signed,
            other => panic!("{other:?}"),
        }
    }

    /// Describes, sets up and plays.
    fn plays(&mut self, session: &str) {
        let setup = self.camera_gets("SETUP", &[("Transport", "RTP/AVP/TCP;interleaved=0-1")]);
        self.client_gets(answer(&setup, 200, &[("Session", session)]));
        assert_eq!(self.keep_alive_due(), None, "nothing plays");
        let play = self.camera_gets("PLAY", &[]);
        self.client_gets(answer(&play, 200, &[]));
    }

    fn is_refused(&mut self, answer: RtspMessage) -> RtspMessage {
        let refused = self.client_gets(answer);
        assert_eq!(self.refusal(), refused.status());
        refused
    }

    /// Follows a redirect.
    fn redirected(&mut self, from: &RtspMessage, to: &str) -> Result<RtspMessage, Failure> {
        match self.answered(answer(from, 302, &[("Location", to)]))? {
            DialogueStep::Reconnect(request) => Ok(request),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn requests_and_answers_keep_their_numbers_and_addresses() {
    let url = "rtsp://192.0.2.7/a b?x={1}";
    let mut dialogue = dialogue(url);
    let request = dialogue.camera_gets("DESCRIBE", &[("Accept", "application/sdp")]);
    let text = String::from_utf8(request.to_bytes()).unwrap();
    let start = format!("DESCRIBE {url} RTSP/1.0\r\n");
    assert!(text.starts_with(&start), "{text}");
    let headers = ["accept", "cseq"].map(|name| request.header(name));
    assert_eq!(headers, [Some("application/sdp"), Some("1")]);
    let described = dialogue.client_gets(answer(&request, 200, &[]));
    assert_eq!(described.header("cseq"), Some("77"));
    // What rtspsrc names from now on is the camera's own address.
    let base = described.header("content-base").unwrap();
    assert!(base.starts_with("rtsp://192.0.2.7/a"), "{base}");
    let own = asked("SETUP", "rtsp://192.0.2.7/own/track1", &[]);
    assert_eq!(dialogue.forwarded(&own).url(), own.url());
}

#[test]
fn answers_without_number_or_to_forgotten_requests_are_sorted_out() {
    let mut dialogue = dialogue("rtsp://gate/x");
    let first = dialogue.camera_gets("OPTIONS", &[]);
    let unnumbered = answer(&parsed("OPTIONS * RTSP/1.0\r\n\r\n"), 200, &[]);
    assert_eq!(dialogue.client_gets(unnumbered).header("cseq"), Some("77"));
    // The same answer again is to no request.
    let again = dialogue.answered(answer(&first, 200, &[]));
    assert!(matches!(again, Ok(DialogueStep::Done)), "{again:?}");
    for _ in 0..100 {
        let request = dialogue.request(&asked("PLAY", RELAY, &[]), START);
        if let Ok(DialogueStep::ToCamera(request)) = request {
            dialogue.client_gets(answer(&request, 200, &[]));
        }
    }
    assert!(dialogue.pending.is_empty());
}

// Faults: C6.
#[test]
fn digest_login_is_sent_once_and_again_when_stale() {
    for (algorithm, length) in [
        ("", 32),
        (", algorithm=MD5", 32),
        (", algorithm=md5", 32),
        (", algorithm=\"sha-256\", qop=\"auth\"", 64),
        (", algorithm=\"SHA-256\"", 64),
    ] {
        let mut dialogue = dialogue("rtsp://gate/x");
        let challenge = |more: &str| {
            format!("Digest realm=\"IP Camera(GH455)\", nonce=\"0123\"{algorithm}{more}")
        };
        let request = dialogue.camera_gets("DESCRIBE", &[]);
        assert_eq!(request.header("authorization"), None);
        let signed = dialogue.signed(&request, &[("WWW-Authenticate", &challenge(""))]);
        let login = signed.header("authorization").unwrap();
        let (_, response) = login.split_once("response=\"").unwrap();
        assert_eq!(response.find('"'), Some(length), "{login}");
        let is_named = login.contains("algorithm=SHA-256");
        assert_eq!(is_named, length == 64, "{login}");
        let stale = challenge(", stale=TRUE");
        let signed = dialogue.signed(&signed, &[("WWW-Authenticate", &stale)]);
        let challenged = [("WWW-Authenticate", &*challenge(""))];
        let rejected = dialogue.is_refused(answer(&signed, 401, &challenged));
        assert_eq!(
            (rejected.status(), rejected.header("cseq")),
            (Some(401), Some("77"))
        );
    }
}

#[test]
fn first_known_challenge_is_answered_beside_unknown_ones() {
    let digest = "Digest realm=\"r\", nonce=\"n\"";
    let unknown = "Digest realm=\"r\", nonce=\"n\", algorithm=SHA-1024";
    for (challenges, scheme) in [
        ([unknown, "Basic realm=\"r\""], "Basic"),
        (["Basic realm=\"r\"", digest], "Digest"),
        (["=,= broken", digest], "Digest"),
    ] {
        let mut dialogue = dialogue("rtsp://gate/x");
        let request = dialogue.camera_gets("DESCRIBE", &[]);
        let headers: Vec<_> = challenges
            .iter()
            .map(|one| ("WWW-Authenticate", *one))
            .collect();
        let signed = dialogue.signed(&request, &headers);
        assert!(
            signed.header("authorization").unwrap().starts_with(scheme),
            "{challenges:?}"
        );
    }
}

// Faults: C8.
#[test]
fn redirects_are_followed_to_allowed_places_only() {
    let follow = |to: &str| {
        let mut dialogue = dialogue("rtsps://gate:7441/old");
        let request = dialogue.camera_gets("DESCRIBE", &[]);
        let followed = dialogue.redirected(&request, to)?;
        assert_eq!(followed.method(), "DESCRIBE");
        Ok((followed.url().to_owned(), dialogue.is_home()))
    };
    for (to, url, is_home) in [
        ("rtsps://gate:7441/new", "rtsps://gate:7441/new", true),
        ("/new?x=1", "rtsps://gate:7441/new?x=1", true),
        ("rtsps://GATE:7441/new", "rtsps://GATE:7441/new", true),
        (
            "rtsps://other:login@gate:7441/n",
            "rtsps://gate:7441/n",
            true,
        ),
        ("rtsps://gate/new", "rtsps://gate/new", false),
        ("rtsps://recorder/new", "rtsps://recorder/new", false),
    ] {
        assert_eq!(follow(to), Ok((url.to_owned(), is_home)), "{to}");
    }
    let (other, encryption) = ("which is not followed", "which is not encrypted");
    let no_address = "without an RTSP address";
    for (to, fault, text) in [
        ("rtsps://192.0.2.9/new", StreamFault::Protocol, other),
        (
            "rtsps://192.0.2.9/\u{202e}x\u{1b}[2J",
            StreamFault::Protocol,
            other,
        ),
        ("rtsp://gate:7441/new", StreamFault::Tls, encryption),
        ("", StreamFault::Protocol, no_address),
        ("http://gate/new", StreamFault::Protocol, no_address),
        ("file:///etc/passwd", StreamFault::Protocol, no_address),
        ("rtsp://", StreamFault::Protocol, no_address),
    ] {
        let failure: Failure = follow(to).unwrap_err();
        assert_eq!(failure.fault, fault, "{failure}");
        assert!(failure.text.contains(text), "{to:?}: {failure}");
        assert!(
            !failure.text.contains(['\u{202e}', '\u{1b}']),
            "{failure:?}"
        );
    }
}

#[test]
fn redirects_in_a_circle_or_without_end_are_named() {
    let mut round = dialogue("rtsp://gate/a");
    let request = round.camera_gets("DESCRIBE", &[]);
    let request = round.redirected(&request, "rtsp://gate/b").unwrap();
    let end = round.redirected(&request, "rtsp://gate/a").unwrap_err();
    let way = ": rtsp://gate/a -> rtsp://gate/b -> rtsp://gate/a; check";
    assert!(end.text.contains(way), "{end}");

    let mut endless = dialogue("rtsp://gate/0");
    let mut request = endless.camera_gets("DESCRIBE", &[]);
    for number in 1..=REDIRECTS_MAX {
        request = endless
            .redirected(&request, &format!("rtsp://gate/{number}"))
            .unwrap();
    }
    let end = endless
        .redirected(&request, "rtsp://gate/last")
        .unwrap_err();
    assert_eq!(end.text.matches(" -> ").count(), REDIRECTS_MAX + 1, "{end}");
}

#[test]
fn setup_answer_gets_the_channels_that_it_lacks() {
    let tcp = "RTP/AVP/TCP;unicast;interleaved=0-1";
    let udp = "RTP/AVP;unicast;client_port=5000-5001";
    let sourced = "RTP/AVP;unicast;source=192.0.2.8";
    let other_channels = "RTP/AVP/TCP;unicast;interleaved=4-5";
    let ported = "RTP/AVP;unicast;client_port=5000-5001;server_port=6-7";
    for (asked, agreed, completed) in [
        (tcp, "RTP/AVP/TCP;unicast", tcp.to_owned()),
        (tcp, "", tcp.to_owned()),
        (tcp, other_channels, other_channels.to_owned()),
        (udp, ported, format!("{ported};source=192.0.2.7")),
        (udp, sourced, sourced.to_owned()),
    ] {
        assert_eq!(completed_transport(asked, agreed, PEER), completed);
    }
}

// Faults: C12.
#[test]
fn session_is_kept_alive_twice_within_its_timeout() {
    for (session, every_s) in [
        ("1;timeout=8", 4.0),
        ("1 ; timeout=1", 0.5),
        ("1;timeout=60", 10.0),
        ("1;timeout=0", 10.0),
        ("1;timeout=99999999999", 10.0),
        ("1", 10.0),
    ] {
        let mut dialogue = dialogue("rtsp://gate/x");
        let methods = dialogue.camera_gets("OPTIONS", &[]);
        dialogue.client_gets(answer(&methods, 200, &[("Public", "SETUP, PLAY")]));
        dialogue.plays(session);
        let due = dialogue.keep_alive_due().unwrap();
        assert_eq!(due.since(START).as_secs_f64(), every_s, "{session}");
        assert!(dialogue.keep_alive(START).is_none());
        let request = dialogue.keep_alive(due).unwrap();
        assert_eq!(
            (request.method(), request.header("session")),
            ("OPTIONS", Some("1"))
        );
        let step = dialogue.answered(answer(&request, 454, &[]));
        assert!(matches!(step, Ok(DialogueStep::Done)));
        dialogue.camera_gets("TEARDOWN", &[]);
        assert_eq!(dialogue.keep_alive_due(), None);
    }
}

const STALE: [(&str, &str); 1] = [(
    "WWW-Authenticate",
    "Digest realm=\"r\", nonce=\"n\", stale=true",
)];

/// Refuses a request as stale until it is not sent again; how often it was, and the last step.
fn stale_repeats(dialogue: &mut RtspDialogue, mut request: RtspMessage) -> (u32, DialogueStep) {
    for repeats in 0..100 {
        match dialogue.answered(answer(&request, 401, &STALE)).unwrap() {
            DialogueStep::ToCamera(again) => request = again,
            step => return (repeats, step),
        }
    }
    panic!("the request is sent for ever");
}

// Faults: C5.
#[test]
fn stale_login_is_repeated_three_times_also_while_playing() {
    let mut dialogue = dialogue("rtsp://gate/x");
    let request = dialogue.camera_gets("DESCRIBE", &[]);
    let (repeats, step) = stale_repeats(&mut dialogue, request);
    assert_eq!(repeats, REPEATS_MAX);
    assert!(matches!(step, DialogueStep::ToClient(_)), "{step:?}");
    assert_eq!(dialogue.refusal(), Some(401));

    dialogue.plays("1");
    let due = dialogue.keep_alive_due().unwrap();
    let request = dialogue.keep_alive(due).unwrap();
    let (repeats, step) = stale_repeats(&mut dialogue, request);
    assert_eq!(repeats, REPEATS_MAX);
    assert!(matches!(step, DialogueStep::Done), "{step:?}");
}

#[test]
fn login_for_other_letters_names_the_encoded_address() {
    let mut dialogue = dialogue("rtsp://gate/straße");
    let request = dialogue.camera_gets("DESCRIBE", &[]);
    let signed = dialogue.signed(&request, &STALE);
    let login = signed.header("authorization").unwrap();
    assert!(login.contains("uri=\"rtsp://gate/stra%C3%9Fe\""), "{login}");
}

#[test]
fn login_that_cannot_be_written_is_a_refusal() {
    // Digest has no such user, unless the camera names a charset.
    let settings = RtspConfig {
        user: Some("jürg".into()),
        ..settings("rtsp://gate/x")
    };
    let mut dialogue = started(&settings);
    let challenge = [("WWW-Authenticate", "Digest realm=\"r\", nonce=\"n\"")];
    let request = dialogue.camera_gets("DESCRIBE", &[]);
    let again = dialogue.signed(&request, &challenge);
    let refused = dialogue.is_refused(answer(&again, 401, &challenge));
    assert_eq!(refused.status(), Some(401));
}

// Faults: C4.
#[test]
fn refusal_is_the_reason_until_the_camera_accepts_a_request() {
    let mut dialogue = dialogue("rtsp://gate/x");
    for (request, status, refusal) in [
        // rtspsrc goes on without the method.
        ("OPTIONS", 501, None),
        ("DESCRIBE", 200, None),
        // It asks for a stream by several URLs.
        ("SETUP", 404, Some(404)),
        ("SETUP", 461, Some(461)),
        ("SETUP", 200, None),
        ("PLAY", 200, None),
        // Nothing that plays ends with a refusal.
        ("GET_PARAMETER", 451, None),
    ] {
        let sent = dialogue.camera_gets(request, &[]);
        dialogue.client_gets(answer(&sent, status, &[]));
        assert_eq!(dialogue.refusal(), refusal, "{request} {status}");
    }
    // What follows a refusal has a reason of its own.
    let mut dialogue = self::dialogue("rtsp://gate/x");
    let options = dialogue.camera_gets("OPTIONS", &[]);
    dialogue.is_refused(answer(&options, 404, &[]));
    let describe = dialogue.camera_gets("DESCRIBE", &[]);
    dialogue.redirected(&describe, "http://gate/x").unwrap_err();
    assert_eq!(dialogue.refusal(), None);
}
