//! SOAP 1.2: requests as text, and what an answer is.

use std::fmt;

use quick_xml::escape::escape;
use url::Url;

use crate::{
    request::OnvifRequest,
    xml::{XmlNode, all, find, leaf, local_name, plain_text_of, text},
};
use spotter_core::plain_line;

const NAMESPACES: &str = r#"xmlns:s="http://www.w3.org/2003/05/soap-envelope"
    xmlns:a="http://www.w3.org/2005/08/addressing"
    xmlns:tds="http://www.onvif.org/ver10/device/wsdl"
    xmlns:trt="http://www.onvif.org/ver10/media/wsdl"
    xmlns:tr2="http://www.onvif.org/ver20/media/wsdl"
    xmlns:tev="http://www.onvif.org/ver10/events/wsdl"
    xmlns:tt="http://www.onvif.org/ver10/schema"
    xmlns:wsnt="http://docs.oasis-open.org/wsn/b-2"
    xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd""#;
const ANONYMOUS: &str = "http://www.w3.org/2005/08/addressing/anonymous";

/// Codes of a fault that mean a missing or wrong login.
const LOGIN_CODES: [&str; 5] = [
    "NotAuthorized",
    "FailedAuthentication",
    "InvalidSecurity",
    "InvalidSecurityToken",
    "SenderNotAuthorized",
];

/// More codes than any fault has.
const MAX_CODES: usize = 8;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: Url,
    /// Of a subscription: sent back in each request to it, as WS-Addressing demands.
    pub(crate) parameters: Vec<ReferenceParameter>,
}

/// An element by which a camera distinguishes its subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferenceParameter {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Endpoint {
    pub(crate) fn new(url: Url) -> Self {
        Self {
            url,
            parameters: Vec::new(),
        }
    }
}

/// The text of a request. `security` is XML.
pub(crate) fn envelope(to: &Endpoint, request: &OnvifRequest, security: &str) -> String {
    let addressing = request.is_addressed().then(|| addressing(to, request));
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><s:Envelope {NAMESPACES}><s:Header>{}{security}</s:Header><s:Body>{}</s:Body></s:Envelope>",
        addressing.unwrap_or_default(),
        request.body()
    )
}

fn addressing(to: &Endpoint, request: &OnvifRequest) -> String {
    let parameter = |parameter: &ReferenceParameter| {
        format!(
            "<p:{name} xmlns:p=\"{}\" a:IsReferenceParameter=\"true\">{}</p:{name}>",
            escape(&parameter.namespace),
            escape(&parameter.value),
            name = parameter.name,
        )
    };
    let reply = format!("<a:ReplyTo>{}</a:ReplyTo>", leaf("a:Address", ANONYMOUS));
    leaf("a:Action", &request.action())
        + &leaf("a:MessageID", &message_id())
        + &reply
        + &leaf("a:To", to.url.as_str())
        + &to.parameters.iter().map(parameter).collect::<String>()
}

/// A random UUID (version 4).
pub(crate) fn message_id() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
    let digits = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    format!("urn:uuid:{}", parts.join("-"))
}

/// Why a camera refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoapFault {
    /// Local names of code and subcodes, the outermost first.
    pub codes: Vec<String>,
    pub reason: Option<String>,
}

impl SoapFault {
    fn of(fault: &XmlNode) -> Self {
        // SOAP 1.2 has Value elements in Code and Subcodes, SOAP 1.1 a faultcode.
        let around = ["Code", "Subcode"].map(|name| all(fault, name)).concat();
        let values = around.into_iter().flat_map(|around| &around.children);
        let values = values.filter(|value| value.name == "Value");
        let values = values.chain(all(fault, "faultcode"));
        let codes = values
            .filter_map(text)
            .map(|code| plain_line(local_name(code)));
        let mut codes: Vec<String> = codes.take(MAX_CODES).collect();
        // Faults of WS-ResourceFramework are named by an element of the detail.
        let detail = find(fault, "Detail").or_else(|| find(fault, "detail"));
        let named = detail.and_then(|detail| detail.children.first());
        codes.extend(named.map(|node| plain_line(&node.name)));
        let reason = find(fault, "Reason").and_then(|reason| plain_text_of(reason, "Text"));
        let reason = reason.or_else(|| plain_text_of(fault, "faultstring"));
        Self { codes, reason }
    }

    pub(crate) fn has_code(&self, wanted: &str) -> bool {
        self.codes.iter().any(|code| code == wanted)
    }

    pub(crate) fn is_about_login(&self) -> bool {
        LOGIN_CODES.iter().any(|code| self.has_code(code))
    }

    /// The camera has no place for another subscription.
    pub(crate) fn is_about_number(&self) -> bool {
        let is_there = |text: &String| text.contains("MaximumNumber");
        self.codes.iter().chain(&self.reason).any(is_there)
    }
}

impl fmt::Display for SoapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self
            .codes
            .last()
            .map_or("fault without a code", |code| code);
        match &self.reason {
            Some(reason) => write!(f, "{code} ({reason})"),
            None => f.write_str(code),
        }
    }
}

/// What an answer is.
#[derive(Debug)]
pub(crate) enum SoapAnswer {
    /// The element in the body has this name.
    Response(String),
    Fault(SoapFault),
}

/// Finds out what an answer is.
pub(crate) fn classify(document: &XmlNode) -> Result<SoapAnswer, &'static str> {
    let mut parts = document.children.iter().flat_map(|root| &root.children);
    let body = parts.find(|node| node.name == "Body");
    Ok(match body.ok_or("it has no SOAP body")?.children.first() {
        Some(fault) if fault.name == "Fault" => SoapAnswer::Fault(SoapFault::of(fault)),
        Some(response) => SoapAnswer::Response(plain_line(&response.name)),
        None => SoapAnswer::Response(String::new()),
    })
}
