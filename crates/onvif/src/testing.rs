//! For fuzz targets (`fuzz/`): all that a camera can make this crate read.

use std::net::SocketAddr;

use crate::{
    answer::{CreatedSubscription, ServiceAddresses, SubscriptionAnswer, camera_time_ms, profiles},
    discovery, soap,
    xml::read_xml,
};

/// Reads a text as each answer that it could be.
pub fn read_answers(text: &str) {
    _ = discovery::matches(text, SocketAddr::from(([192, 0, 2, 7], 3702)));
    if let Ok(answer) = read_xml(text) {
        _ = soap::classify(&answer);
        _ = ServiceAddresses::of_services(&answer);
        _ = ServiceAddresses::of_capabilities(&answer);
        _ = camera_time_ms(&answer);
        _ = CreatedSubscription::of(&answer);
        _ = SubscriptionAnswer::of(&answer);
        _ = profiles(&answer);
    }
}
