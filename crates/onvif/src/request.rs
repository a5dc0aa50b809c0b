//! The requests of ONVIF.

use std::time::Duration;

/// A service of a camera.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OnvifService {
    /// Of its elements, as the envelope declares it.
    prefix: &'static str,
    /// The start of SOAP's actions.
    action: &'static str,
}

pub(crate) static DEVICE: OnvifService = OnvifService {
    prefix: "tds",
    action: "http://www.onvif.org/ver10/device/wsdl/",
};
pub(crate) static MEDIA: OnvifService = OnvifService {
    prefix: "trt",
    action: "http://www.onvif.org/ver10/media/wsdl/",
};
/// The second media service; it alone knows H.265.
pub(crate) static MEDIA2: OnvifService = OnvifService {
    prefix: "tr2",
    action: "http://www.onvif.org/ver20/media/wsdl/",
};
pub(crate) static EVENTS: OnvifService = OnvifService {
    prefix: "tev",
    action: "http://www.onvif.org/ver10/events/wsdl/EventPortType/",
};
pub(crate) static PULL_POINT: OnvifService = OnvifService {
    prefix: "tev",
    action: "http://www.onvif.org/ver10/events/wsdl/PullPointSubscription/",
};
pub(crate) static SUBSCRIPTION: OnvifService = OnvifService {
    prefix: "wsnt",
    action: "http://docs.oasis-open.org/wsn/bw-2/SubscriptionManager/",
};

#[derive(Debug)]
pub(crate) struct OnvifRequest {
    service: &'static OnvifService,
    /// Of the element in the body.
    pub(crate) name: &'static str,
    /// XML inside of that element.
    content: String,
}

impl OnvifRequest {
    pub(crate) fn new(
        service: &'static OnvifService,
        name: &'static str,
        content: impl Into<String>,
    ) -> Self {
        Self {
            service,
            name,
            content: content.into(),
        }
    }

    /// The longest answer. Only lists are long: a recorder has 4 KB of profiles for each channel.
    pub(crate) fn answer_max_bytes(&self) -> u64 {
        match self.name {
            "PullMessages" | "GetProfiles" => 4 << 20,
            _ => 256 << 10,
        }
    }

    /// The request belongs to events, whose messages have WS-Addressing.
    pub(crate) fn is_addressed(&self) -> bool {
        matches!(self.service.prefix, "tev" | "wsnt")
    }

    pub(crate) fn action(&self) -> String {
        let suffix = if self.is_addressed() { "Request" } else { "" };
        format!("{}{}{suffix}", self.service.action, self.name)
    }

    /// The element in the body.
    pub(crate) fn body(&self) -> String {
        let name = format!("{}:{}", self.service.prefix, self.name);
        format!("<{name}>{}</{name}>", self.content)
    }
}

/// As `xs:duration`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("PT{}S", duration.as_secs().max(1))
}
