//! The requests of ONVIF that Spotter uses.

use std::time::Duration;

use crate::xml::XmlText;

/// The two media services; only the second one knows H.265.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaVersion {
    One,
    Two,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnvifRequest<'a> {
    /// Needs no login.
    GetSystemDateAndTime,
    GetDeviceInformation,
    GetServices,
    /// For cameras without `GetServices`.
    GetCapabilities,
    GetProfiles(MediaVersion),
    GetStreamUri {
        version: MediaVersion,
        profile: &'a str,
    },
    CreatePullPointSubscription {
        lasts: Duration,
    },
    /// Asks for the current state of everything that has one.
    SetSynchronizationPoint,
    PullMessages {
        timeout: Duration,
        limit: u32,
    },
    Renew {
        lasts: Duration,
    },
    Unsubscribe,
}

impl OnvifRequest<'_> {
    /// The name of the element in the body.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::GetSystemDateAndTime => "GetSystemDateAndTime",
            Self::GetDeviceInformation => "GetDeviceInformation",
            Self::GetServices => "GetServices",
            Self::GetCapabilities => "GetCapabilities",
            Self::GetProfiles(_) => "GetProfiles",
            Self::GetStreamUri { .. } => "GetStreamUri",
            Self::CreatePullPointSubscription { .. } => "CreatePullPointSubscription",
            Self::SetSynchronizationPoint => "SetSynchronizationPoint",
            Self::PullMessages { .. } => "PullMessages",
            Self::Renew { .. } => "Renew",
            Self::Unsubscribe => "Unsubscribe",
        }
    }

    /// The longest answer. Only lists are long: a recorder has 4 KB of profiles for each channel.
    pub(crate) fn answer_max_bytes(&self) -> u64 {
        match self {
            Self::PullMessages { .. } | Self::GetProfiles(_) => 4 << 20,
            _ => 256 << 10,
        }
    }

    pub(crate) fn action(&self) -> String {
        let service = match self {
            Self::GetSystemDateAndTime
            | Self::GetDeviceInformation
            | Self::GetServices
            | Self::GetCapabilities => "http://www.onvif.org/ver10/device/wsdl/",
            Self::GetProfiles(version) | Self::GetStreamUri { version, .. } => match version {
                MediaVersion::One => "http://www.onvif.org/ver10/media/wsdl/",
                MediaVersion::Two => "http://www.onvif.org/ver20/media/wsdl/",
            },
            Self::CreatePullPointSubscription { .. } => {
                "http://www.onvif.org/ver10/events/wsdl/EventPortType/"
            }
            Self::SetSynchronizationPoint | Self::PullMessages { .. } => {
                "http://www.onvif.org/ver10/events/wsdl/PullPointSubscription/"
            }
            Self::Renew { .. } | Self::Unsubscribe => {
                "http://docs.oasis-open.org/wsn/bw-2/SubscriptionManager/"
            }
        };
        let suffix = if self.is_addressed() { "Request" } else { "" };
        format!("{service}{}{suffix}", self.name())
    }

    /// The request belongs to events, whose messages have WS-Addressing.
    pub(crate) fn is_addressed(&self) -> bool {
        matches!(
            self,
            Self::CreatePullPointSubscription { .. }
                | Self::SetSynchronizationPoint
                | Self::PullMessages { .. }
                | Self::Renew { .. }
                | Self::Unsubscribe
        )
    }

    /// Writes the body.
    pub(crate) fn write(&self, text: &mut XmlText) {
        let name = format!("{}:{}", self.prefix(), self.name());
        text.element(&name, |text| match *self {
            Self::GetSystemDateAndTime
            | Self::GetDeviceInformation
            | Self::SetSynchronizationPoint
            | Self::Unsubscribe
            | Self::GetProfiles(MediaVersion::One) => {}
            Self::GetServices => text.leaf("tds:IncludeCapability", "false"),
            Self::GetCapabilities => text.leaf("tds:Category", "All"),
            Self::GetProfiles(MediaVersion::Two) => text.leaf("tr2:Type", "VideoEncoder"),
            Self::GetStreamUri { version, profile } => stream_uri(text, version, profile),
            Self::CreatePullPointSubscription { lasts } => {
                text.leaf("tev:InitialTerminationTime", &seconds(lasts));
            }
            Self::PullMessages { timeout, limit } => {
                text.leaf("tev:Timeout", &seconds(timeout));
                text.leaf("tev:MessageLimit", &limit.to_string());
            }
            Self::Renew { lasts } => text.leaf("wsnt:TerminationTime", &seconds(lasts)),
        });
    }

    fn prefix(&self) -> &'static str {
        match self {
            Self::GetSystemDateAndTime
            | Self::GetDeviceInformation
            | Self::GetServices
            | Self::GetCapabilities => "tds",
            Self::GetProfiles(version) | Self::GetStreamUri { version, .. } => match version {
                MediaVersion::One => "trt",
                MediaVersion::Two => "tr2",
            },
            Self::CreatePullPointSubscription { .. }
            | Self::SetSynchronizationPoint
            | Self::PullMessages { .. } => "tev",
            Self::Renew { .. } | Self::Unsubscribe => "wsnt",
        }
    }
}

fn stream_uri(text: &mut XmlText, version: MediaVersion, profile: &str) {
    match version {
        MediaVersion::One => {
            text.element("trt:StreamSetup", |text| {
                text.leaf("tt:Stream", "RTP-Unicast");
                text.element("tt:Transport", |text| text.leaf("tt:Protocol", "RTSP"));
            });
            text.leaf("trt:ProfileToken", profile);
        }
        MediaVersion::Two => {
            text.leaf("tr2:Protocol", "RTSP");
            text.leaf("tr2:ProfileToken", profile);
        }
    }
}

/// As `xs:duration`.
fn seconds(duration: Duration) -> String {
    format!("PT{}S", duration.as_secs().max(1))
}
