//! What an ONVIF camera reads and writes.

use std::time::Duration;

use gstreamer::glib::DateTime;
use roxmltree::{Document, Node};

use super::{OnvifScript, ReportedTime};

const ENVELOPE: &str = "http://www.w3.org/2003/05/soap-envelope";
const ADDRESSING: &str = "http://www.w3.org/2005/08/addressing";
const DEVICE: &str = "http://www.onvif.org/ver10/device/wsdl";
const MEDIA: &str = "http://www.onvif.org/ver10/media/wsdl";
const MEDIA2: &str = "http://www.onvif.org/ver20/media/wsdl";
const EVENTS: &str = "http://www.onvif.org/ver10/events/wsdl";
const NOTIFICATION: &str = "http://docs.oasis-open.org/wsn/b-2";
const SECURITY: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const UTILITY: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
/// The namespace of the parameter that names a subscription.
const OWN: &str = "http://camera.invalid/2026";

/// What is asked for in which service.
const REQUESTS: [(&str, &str); 13] = [
    ("GetSystemDateAndTime", DEVICE),
    ("GetDeviceInformation", DEVICE),
    ("GetServices", DEVICE),
    ("GetCapabilities", DEVICE),
    ("GetProfiles", MEDIA),
    ("GetProfiles", MEDIA2),
    ("GetStreamUri", MEDIA),
    ("GetStreamUri", MEDIA2),
    ("CreatePullPointSubscription", EVENTS),
    ("SetSynchronizationPoint", EVENTS),
    ("PullMessages", EVENTS),
    ("Renew", NOTIFICATION),
    ("Unsubscribe", NOTIFICATION),
];

/// Motion began or ended, or is a state at the start of a subscription.
#[derive(Debug)]
pub(super) struct MotionMessage {
    pub(super) is_active: bool,
    /// `Initialized` or `Changed`.
    pub(super) operation: &'static str,
}

/// A request that was read.
#[derive(Debug)]
pub(super) struct CameraRequest {
    pub(super) name: String,
    pub(super) is_media2: bool,
    pub(super) token: Option<GivenToken>,
    pub(super) profile: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) limit: Option<usize>,
    pub(super) lasts: Option<Duration>,
    parameter: Option<u64>,
}

#[derive(Debug)]
pub(super) struct GivenToken {
    pub(super) user: String,
    pub(super) digest: String,
    pub(super) nonce: String,
    pub(super) created: String,
}

impl CameraRequest {
    /// The number of the subscription that the request is about.
    pub(super) fn subscription(&self, path: &str) -> Option<u64> {
        let in_path = path.rsplit('/').next().and_then(|part| part.parse().ok());
        in_path.or(self.parameter)
    }
}

/// What the camera answers.
pub(super) enum CameraReply {
    /// What is in the element of the answer.
    Body(String),
    Fault {
        code: &'static str,
        reason: &'static str,
    },
    Status(u16),
    Text(String),
}

pub(super) const UNKNOWN_SUBSCRIPTION: CameraReply = CameraReply::Fault {
    code: "wsrf:ResourceUnknownFault",
    reason: "Unknown subscription",
};

type XmlElement<'a> = Node<'a, 'a>;

fn child<'a>(node: XmlElement<'a>, name: (&'static str, &'static str)) -> Option<XmlElement<'a>> {
    let (namespace, name) = name;
    let mut children = node.children();
    children.find(|child| child.has_tag_name((namespace, name)))
}

fn text_of(node: XmlElement<'_>, name: (&'static str, &'static str)) -> Option<String> {
    child(node, name).and_then(|child| child.text().map(str::to_owned))
}

/// Reads a request, or says what is wrong with it.
pub(super) fn read(text: &str) -> Result<CameraRequest, String> {
    let document = Document::parse(text).map_err(|error| format!("{error}: {text}"))?;
    let envelope = document.root_element();
    if !envelope.has_tag_name((ENVELOPE, "Envelope")) {
        return Err(format!("no envelope: {text}"));
    }
    let body = child(envelope, (ENVELOPE, "Body")).ok_or("no body")?;
    let request = body.first_element_child().ok_or("an empty body")?;
    let name = request.tag_name().name();
    let namespace = request.tag_name().namespace().unwrap_or_default();
    if !REQUESTS.contains(&(name, namespace)) {
        return Err(format!("{name} in {namespace}"));
    }
    let header = child(envelope, (ENVELOPE, "Header")).ok_or("no header")?;
    if matches!(namespace, EVENTS | NOTIFICATION) {
        let action = text_of(header, (ADDRESSING, "Action")).unwrap_or_default();
        if !action.ends_with(&format!("/{name}Request")) {
            return Err(format!("{name} with the action {action:?}"));
        }
        text_of(header, (ADDRESSING, "To")).ok_or("no To")?;
    }
    let of_events = |name| text_of(request, (EVENTS, name));
    let until = of_events("InitialTerminationTime");
    let until = until.or_else(|| text_of(request, (NOTIFICATION, "TerminationTime")));
    let parameter = child(header, (OWN, "Subscription"));
    let parameter = parameter
        .filter(|node| node.attribute((ADDRESSING, "IsReferenceParameter")) == Some("true"));
    let profile = [MEDIA, MEDIA2].map(|service| text_of(request, (service, "ProfileToken")));
    Ok(CameraRequest {
        name: name.to_owned(),
        is_media2: namespace == MEDIA2,
        token: token(header),
        profile: profile.into_iter().flatten().next(),
        timeout: of_events("Timeout")
            .map(|text| duration(&text))
            .transpose()?,
        limit: of_events("MessageLimit").and_then(|text| text.parse().ok()),
        lasts: until.map(|text| duration(&text)).transpose()?,
        parameter: parameter.and_then(|node| node.text()?.parse().ok()),
    })
}

fn token(header: XmlElement<'_>) -> Option<GivenToken> {
    let security = child(header, (SECURITY, "Security"))?;
    let token = child(security, (SECURITY, "UsernameToken"))?;
    Some(GivenToken {
        user: text_of(token, (SECURITY, "Username"))?,
        digest: text_of(token, (SECURITY, "Password"))?,
        nonce: text_of(token, (SECURITY, "Nonce"))?,
        created: text_of(token, (UTILITY, "Created"))?,
    })
}

/// `PT60S`.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text
        .strip_prefix("PT")
        .and_then(|text| text.strip_suffix('S'));
    let seconds = seconds.and_then(|text| text.parse().ok());
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("the duration {text:?}"))
}

/// An answer, with the prefixes of the script.
pub(super) fn envelope(script: &OnvifScript, name: &str, body: &str) -> String {
    let service = REQUESTS.iter().find(|(known, _)| *known == name);
    let prefix = match service.map(|(_, namespace)| *namespace) {
        Some(DEVICE) => "tds",
        Some(MEDIA) => "trt",
        Some(NOTIFICATION) => "wsnt",
        _ => "tev",
    };
    let body = format!("<{prefix}:{name}Response>{body}</{prefix}:{name}Response>");
    prefixed(script, &in_envelope(&body))
}

fn in_envelope(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soap:Envelope xmlns:soap=\"{ENVELOPE}\" xmlns:wsa=\"{ADDRESSING}\" xmlns:tds=\"{DEVICE}\" \
         xmlns:trt=\"{MEDIA}\" xmlns:tev=\"{EVENTS}\" xmlns:wsnt=\"{NOTIFICATION}\" xmlns:tt=\"http://www.onvif.org/ver10/schema\" \
         xmlns:tns1=\"http://www.onvif.org/ver10/topics\" xmlns:ter=\"http://www.onvif.org/ver10/error\" \
         xmlns:wsrf=\"http://docs.oasis-open.org/wsrf/r-2\"><soap:Body>{body}</soap:Body></soap:Envelope>"
    )
}

/// See [`PullFault::Nested`](super::PullFault::Nested).
pub(super) fn nested(count: usize) -> String {
    let open = |at| format!("<a xmlns:n{at}=\"u\">");
    let open: String = (0..count).map(open).collect();
    format!("{open}{}", "</a>".repeat(count))
}

pub(super) fn fault(script: &OnvifScript, code: &str, reason: &str) -> String {
    let body = format!(
        "<soap:Fault><soap:Code><soap:Value>soap:Sender</soap:Value><soap:Subcode><soap:Value>{code}</soap:Value></soap:Subcode></soap:Code>\
         <soap:Reason><soap:Text xml:lang=\"en\">{reason}</soap:Text></soap:Reason></soap:Fault>"
    );
    prefixed(script, &in_envelope(&body))
}

fn prefixed(script: &OnvifScript, text: &str) -> String {
    if !script.is_oddly_prefixed {
        return text.to_owned();
    }
    let prefixes = [
        "soap", "wsa", "tds", "trt", "tev", "wsnt", "tt", "tns1", "wsrf", "ter",
    ];
    let mut text = text.to_owned();
    for prefix in prefixes {
        for before in ["<", "</", ">"] {
            text = text.replace(
                &format!("{before}{prefix}:"),
                &format!("{before}n-{prefix}:"),
            );
        }
        text = text.replace(&format!("xmlns:{prefix}="), &format!("xmlns:n-{prefix}="));
    }
    text
}

fn iso(unix_s: i64) -> String {
    let time = DateTime::from_unix_utc(unix_s).expect("a time");
    time.format("%Y-%m-%dT%H:%M:%SZ").expect("a time").into()
}

pub(super) fn date_and_time(reported: ReportedTime, now: i64) -> String {
    let (name, shown) = match reported {
        ReportedTime::Utc => ("UTCDateTime", now),
        ReportedTime::LocalAsUtc(ahead_s) => ("UTCDateTime", now + ahead_s),
        ReportedTime::LocalOnly => ("LocalDateTime", now),
    };
    let time = DateTime::from_unix_utc(shown).expect("a time");
    format!(
        "<tds:SystemDateAndTime><tt:DateTimeType>Manual</tt:DateTimeType><tt:DaylightSavings>false</tt:DaylightSavings><tt:{name}>\
         <tt:Time><tt:Hour>{}</tt:Hour><tt:Minute>{}</tt:Minute><tt:Second>{}</tt:Second></tt:Time>\
         <tt:Date><tt:Year>{}</tt:Year><tt:Month>{}</tt:Month><tt:Day>{}</tt:Day></tt:Date></tt:{name}></tds:SystemDateAndTime>",
        time.hour(),
        time.minute(),
        time.second(),
        time.year(),
        time.month(),
        time.day_of_month(),
    )
}

pub(super) fn device_information() -> String {
    "<tds:Manufacturer>Scripted &amp; Sons</tds:Manufacturer><tds:Model>SC-4</tds:Model><tds:FirmwareVersion>1.2.3</tds:FirmwareVersion>"
        .to_owned()
}

pub(super) fn services(script: &OnvifScript, url: impl Fn(&str) -> String) -> String {
    let offered = [
        (DEVICE, "device_service", true),
        (MEDIA, "media", true),
        (MEDIA2, "media2", script.has_media2),
        (EVENTS, "events", script.has_events),
    ];
    let offered = offered.into_iter().filter(|(.., is_there)| *is_there);
    let service = |namespace, path| {
        let url = url(path);
        format!(
            "<tds:Service><tds:Namespace>{namespace}</tds:Namespace><tds:XAddr>{url}</tds:XAddr></tds:Service>"
        )
    };
    offered
        .map(|(namespace, path, _)| service(namespace, path))
        .collect()
}

pub(super) fn capabilities(script: &OnvifScript, url: impl Fn(&str) -> String) -> String {
    let events = match script.has_events {
        true => format!(
            "<tt:Events><tt:XAddr>{}</tt:XAddr></tt:Events>",
            url("events")
        ),
        false => String::new(),
    };
    let media = url("media");
    format!(
        "<tds:Capabilities>{events}<tt:Media><tt:XAddr>{media}</tt:XAddr></tt:Media></tds:Capabilities>"
    )
}

/// Three streams; the first one is H.265 for the second media service, and the others are the same.
pub(super) fn profiles(is_media2: bool) -> String {
    let first = if is_media2 { "H265" } else { "H264" };
    let streams = [
        ("main", first, (2560, 1440), 20),
        ("sub", "H264", (640, 360), 10),
        ("tiny", "H264", (320, 180), 5),
    ];
    let profile = |(name, encoding, size, rate): (&str, &str, (u32, u32), u32)| {
        let (width, height) = size;
        let encoder = format!(
            "<tt:Encoding>{encoding}</tt:Encoding><tt:Resolution><tt:Width>{width}</tt:Width><tt:Height>{height}</tt:Height></tt:Resolution>\
             <tt:RateControl><tt:FrameRateLimit>{rate}</tt:FrameRateLimit></tt:RateControl>"
        );
        let encoder = match is_media2 {
            true => format!(
                "<trt:Configurations><trt:VideoEncoder>{encoder}</trt:VideoEncoder></trt:Configurations>"
            ),
            false => {
                format!("<tt:VideoEncoderConfiguration>{encoder}</tt:VideoEncoderConfiguration>")
            }
        };
        format!("<trt:Profiles token=\"{name}\"><tt:Name>{name}</tt:Name>{encoder}</trt:Profiles>")
    };
    streams.map(profile).concat()
}

pub(super) fn stream_uri(call: &CameraRequest, host: &str) -> CameraReply {
    let Some(profile) = &call.profile else {
        return CameraReply::Status(400);
    };
    let uri = format!("rtsp://{host}:554/{profile}?a=1&amp;b=2");
    CameraReply::Body(match call.is_media2 {
        true => format!("<trt:Uri>{uri}</trt:Uri>"),
        false => format!("<trt:MediaUri><tt:Uri>{uri}</tt:Uri></trt:MediaUri>"),
    })
}

/// Current and termination time, in this order.
pub(super) fn times(prefix: &str, now: i64, lasts: i64) -> String {
    let (from, until) = (iso(now), iso(now + lasts));
    format!(
        "<{prefix}:CurrentTime>{from}</{prefix}:CurrentTime><{prefix}:TerminationTime>{until}</{prefix}:TerminationTime>"
    )
}

/// `number`: of a subscription that has a parameter with its number.
pub(super) fn subscribed(address: &str, number: Option<u64>, times: &str) -> String {
    let parameters = number.map(|number| {
        format!(
            "<wsa:ReferenceParameters><o:Subscription xmlns:o=\"{OWN}\">{number}</o:Subscription></wsa:ReferenceParameters>"
        )
    });
    let parameters = parameters.unwrap_or_default();
    format!(
        "<tev:SubscriptionReference><wsa:Address>{address}</wsa:Address>{parameters}</tev:SubscriptionReference>{times}"
    )
}

pub(super) fn pulled(messages: &[MotionMessage], now: i64, left_s: i64) -> String {
    let messages: String = messages.iter().map(|one| message(one, now)).collect();
    format!("{}{messages}", times("tev", now, left_s))
}

fn message(message: &MotionMessage, now: i64) -> String {
    let MotionMessage {
        is_active,
        operation,
    } = message;
    let time = iso(now);
    format!(
        "<wsnt:NotificationMessage><wsnt:Topic Dialect=\"http://www.onvif.org/ver10/tev/topicExpression/ConcreteSet\">\
         tns1:RuleEngine/CellMotionDetector/Motion</wsnt:Topic><wsnt:Message>\
         <tt:Message UtcTime=\"{time}\" PropertyOperation=\"{operation}\"><tt:Source>\
         <tt:SimpleItem Name=\"VideoSourceConfigurationToken\" Value=\"1\"/></tt:Source><tt:Data>\
         <tt:SimpleItem Name=\"IsMotion\" Value=\"{is_active}\"/></tt:Data></tt:Message></wsnt:Message></wsnt:NotificationMessage>"
    )
}

/// The answer to a question of WS-Discovery for one of the types that a camera has.
pub(super) fn probe_match(probe: &str, address: &str) -> Option<String> {
    const DISCOVERY: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
    const OLD_ADDRESSING: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
    let document = Document::parse(probe).ok()?;
    let envelope = document.root_element();
    let header = child(envelope, (ENVELOPE, "Header"))?;
    let id = text_of(header, (OLD_ADDRESSING, "MessageID"))?;
    let probe = child(child(envelope, (ENVELOPE, "Body"))?, (DISCOVERY, "Probe"))?;
    let types = child(probe, (DISCOVERY, "Types"))?;
    let (prefix, name) = types.text()?.split_once(':')?;
    let namespace = types.lookup_namespace_uri(Some(prefix));
    let is_camera = name == "NetworkVideoTransmitter"
        && namespace == Some("http://www.onvif.org/ver10/network/wsdl");
    is_camera.then(|| {
        format!(
            "<soap:Envelope xmlns:soap=\"{ENVELOPE}\" xmlns:wsa=\"{OLD_ADDRESSING}\" xmlns:d=\"{DISCOVERY}\"><soap:Header>\
             <wsa:RelatesTo>{id}</wsa:RelatesTo></soap:Header><soap:Body><d:ProbeMatches><d:ProbeMatch><wsa:EndpointReference>\
             <wsa:Address>urn:uuid:camera-{address}</wsa:Address></wsa:EndpointReference><d:Types>dn:NetworkVideoTransmitter</d:Types>\
             <d:Scopes>onvif://www.onvif.org/name/Front%20door onvif://www.onvif.org/hardware/SC-4</d:Scopes>\
             <d:XAddrs>http://169.254.9.9/onvif/device_service {address}</d:XAddrs></d:ProbeMatch></d:ProbeMatches></soap:Body></soap:Envelope>"
        )
    })
}
