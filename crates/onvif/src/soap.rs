//! SOAP 1.2: requests as text, and what an answer is.

use std::fmt;

use roxmltree::Document;
use url::Url;

use crate::{
    request::OnvifRequest,
    security::UsernameToken,
    xml::{XmlNode, XmlText, find, local_name, plain_text_of, read_xml, text},
};
use spotter_core::plain_line;

const NAMESPACES: [(&str, &str); 9] = [
    ("xmlns:s", "http://www.w3.org/2003/05/soap-envelope"),
    ("xmlns:a", "http://www.w3.org/2005/08/addressing"),
    ("xmlns:tds", "http://www.onvif.org/ver10/device/wsdl"),
    ("xmlns:trt", "http://www.onvif.org/ver10/media/wsdl"),
    ("xmlns:tr2", "http://www.onvif.org/ver20/media/wsdl"),
    ("xmlns:tev", "http://www.onvif.org/ver10/events/wsdl"),
    ("xmlns:tt", "http://www.onvif.org/ver10/schema"),
    ("xmlns:wsnt", "http://docs.oasis-open.org/wsn/b-2"),
    (
        "xmlns:wsu",
        "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd",
    ),
];
const SECURITY: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const PASSWORD_DIGEST: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest";
const NONCE_ENCODING: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";
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

/// The text of a request.
pub(crate) fn envelope(
    to: &Endpoint,
    request: &OnvifRequest<'_>,
    token: Option<&UsernameToken>,
) -> String {
    let mut text = XmlText::new();
    text.element_with("s:Envelope", &NAMESPACES, |text| {
        text.element("s:Header", |text| {
            if request.is_addressed() {
                addressing(text, to, request);
            }
            if let Some(token) = token {
                security(text, token);
            }
        });
        text.element("s:Body", |text| request.write(text));
    });
    text.finish()
}

fn addressing(text: &mut XmlText, to: &Endpoint, request: &OnvifRequest<'_>) {
    text.leaf("a:Action", &request.action());
    text.leaf("a:MessageID", &message_id());
    text.element("a:ReplyTo", |text| text.leaf("a:Address", ANONYMOUS));
    text.leaf("a:To", to.url.as_str());
    for parameter in &to.parameters {
        let attributes = [
            ("xmlns:p", &*parameter.namespace),
            ("a:IsReferenceParameter", "true"),
        ];
        text.element_with(&format!("p:{}", parameter.name), &attributes, |text| {
            text.text(&parameter.value);
        });
    }
}

fn security(text: &mut XmlText, token: &UsernameToken) {
    let attributes = [("xmlns:w", SECURITY), ("s:mustUnderstand", "1")];
    text.element_with("w:Security", &attributes, |text| {
        text.element("w:UsernameToken", |text| {
            text.leaf("w:Username", &token.user);
            text.element_with("w:Password", &[("Type", PASSWORD_DIGEST)], |text| {
                text.text(&token.digest);
            });
            text.element_with("w:Nonce", &[("EncodingType", NONCE_ENCODING)], |text| {
                text.text(&token.nonce);
            });
            text.leaf("wsu:Created", &token.created);
        });
    });
}

/// A random UUID.
pub(crate) fn message_id() -> String {
    let bits = fastrand::u128(..);
    let (high, low) = ((bits >> 64) as u64, bits as u64);
    format!(
        "urn:uuid:{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff,
    )
}

/// Why a camera refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoapFault {
    /// Local names of code and subcodes, the outermost first.
    pub codes: Vec<String>,
    pub reason: Option<String>,
}

impl SoapFault {
    fn of(fault: XmlNode<'_>) -> Self {
        // SOAP 1.2 has Value elements in Code and Subcodes, SOAP 1.1 a faultcode.
        let values = fault.descendants().filter(|node| {
            let parent = node.parent_element().map(|parent| parent.tag_name().name());
            match node.tag_name().name() {
                "Value" => matches!(parent, Some("Code" | "Subcode")),
                name => name == "faultcode",
            }
        });
        let codes = values
            .filter_map(text)
            .map(|code| plain_line(local_name(code)));
        let mut codes: Vec<String> = codes.take(MAX_CODES).collect();
        // Faults of WS-ResourceFramework are named by an element of the detail.
        let detail = find(fault, "Detail").or_else(|| find(fault, "detail"));
        let named = detail.and_then(|detail| detail.first_element_child());
        codes.extend(named.map(|node| plain_line(node.tag_name().name())));
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

/// Finds out what the text of an answer is.
pub(crate) fn classify(text: &str) -> Result<SoapAnswer, String> {
    let document = read_xml(text)?;
    let body = body(&document).ok_or("it has no SOAP body")?;
    match body.first_element_child() {
        Some(fault) if fault.tag_name().name() == "Fault" => {
            Ok(SoapAnswer::Fault(SoapFault::of(fault)))
        }
        Some(response) => Ok(SoapAnswer::Response(plain_line(response.tag_name().name()))),
        None => Ok(SoapAnswer::Response(String::new())),
    }
}

pub(crate) fn body<'a>(document: &'a Document<'a>) -> Option<XmlNode<'a>> {
    let root = document.root_element();
    let mut children = root.children();
    children.find(|node| node.tag_name().name() == "Body")
}
