//! ONVIF: finds cameras, lists their streams and receives their events (docs/onvif.md).
//!
//! ```text
//!                 ┌ watch_events: a task for each camera ──────────────────────────┐
//!   OnvifCamera ─▶│ session: pure ──call──▶ CameraLink ──▶ client ──SOAP over HTTP─│──▶ camera
//!                 │ subscribe, pull, renew  a thread      login, faults           │
//!                 └──────────────┬─────────────────────────────────────────────────┘
//!                                └─OnvifUpdate─▶ the triggers
//! ```
//!
//! `discovery` finds cameras with datagrams, `streams` lists what one of them offers; both are for `spotter discover`.
//!
//! **Cameras differ from the specification**, so reading is tolerant and each assumption has a test against the scripted camera
//! (`spotter_scripted::onvif`): prefixes and namespaces are of any kind, addresses name hosts that exist behind a router alone, clocks show
//! any time, `Renew` and `GetServices` may be missing, faults come with any status.
//!
//! Belongs here: SOAP, logins, subscriptions, topics. Does not belong here: what an event triggers.

mod answer;
mod camera;
mod client;
mod discovery;
mod error;
mod message;
mod request;
mod security;
mod session;
mod soap;
mod streams;
mod timing;
mod watch;
mod xml;

pub use answer::DeviceInformation;
pub use camera::{OnvifCamera, OnvifLogin, device_address};
pub use discovery::{
    DISCOVERY_GROUP, DiscoveredCamera, DiscoveryOptions, FoundCameras, discover, interfaces,
};
pub use error::OnvifError;
pub use message::{OnvifItem, OnvifMessage, OnvifSelector, OnvifTopic, PropertyOperation};
pub use session::OnvifUpdate;
pub use soap::SoapFault;
pub use streams::{CameraDescription, OnvifStream, describe_camera};
pub use watch::watch_events;

#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
