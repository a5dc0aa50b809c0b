//! What is known of a camera that was found.

use serde::Serialize;
use url::Url;

/// A camera that answered the search or is asked for its streams.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiscoveredCamera {
    /// Of the device service.
    pub address: Url,
    /// The camera's own id.
    pub endpoint: String,
    pub name: Option<String>,
    pub location: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub firmware: Option<String>,
    /// It has an event service; `None`: it was not asked.
    pub events: Option<bool>,
    /// In the camera's order.
    pub streams: Option<Vec<OnvifStream>>,
    /// Why it did not list its streams.
    pub error: Option<String>,
}

impl DiscoveredCamera {
    /// Of which nothing else is known.
    pub fn at(address: Url) -> Self {
        Self {
            endpoint: address.to_string(),
            address,
            name: None,
            location: None,
            manufacturer: None,
            model: None,
            firmware: None,
            events: None,
            streams: None,
            error: None,
        }
    }
}

/// A stream that a camera offers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnvifStream {
    #[serde(flatten)]
    pub profile: MediaProfile,
    /// Without a login.
    pub url: Url,
}

/// What a camera says of a stream that it offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MediaProfile {
    #[serde(skip)]
    pub token: String,
    #[serde(rename = "profile")]
    pub name: String,
    pub encoding: Option<String>,
    pub width: Option<u32>,
    pub height: Option<u32>,
    #[serde(rename = "fps")]
    pub rate_hz: Option<f64>,
}

impl MediaProfile {
    /// For people: `640x360`.
    pub fn size(&self) -> Option<String> {
        Some(format!("{}x{}", self.width?, self.height?))
    }
}
