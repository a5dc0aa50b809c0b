//! ONVIF: finds cameras, lists their streams and receives their events (docs/onvif.md).
//!
//! `watch` receives the events of a camera: a task of subscribe, pull and renew, whose requests `client` makes in threads (SOAP over HTTP,
//! login, faults). The program makes signals of triggers of its updates.
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
mod discovered_camera;
mod discovery;
mod error;
mod message;
mod request;
mod security;
mod soap;
mod streams;
mod watch;
mod xml;

pub use camera::{OnvifCamera, OnvifLogin, device_address};
pub use discovered_camera::{DiscoveredCamera, MediaProfile, OnvifStream};
pub use discovery::{DISCOVERY_GROUP, FoundCameras, discover, interfaces};
pub use error::OnvifError;
pub use message::{OnvifItem, OnvifMessage, OnvifSelector, OnvifTopic, PropertyOperation};
pub use soap::SoapFault;
pub use streams::describe_camera;
pub use watch::{OnvifUpdate, watch_events};

#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
