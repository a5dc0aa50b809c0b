//! For fuzz targets (`fuzz/`): all that a camera can make this crate read.

use std::net::SocketAddr;

use crate::{
    answer::{
        CreatedSubscription, ServiceAddresses, SubscriptionAnswer, camera_time_ms, profiles,
        stream_uri,
    },
    discovery, soap,
};

/// Reads a text as each answer that it could be.
pub fn read_answers(text: &str) {
    _ = soap::classify(text);
    _ = ServiceAddresses::of_services(text);
    _ = ServiceAddresses::of_capabilities(text);
    _ = camera_time_ms(text);
    _ = CreatedSubscription::of(text);
    _ = SubscriptionAnswer::of(text);
    _ = profiles(text);
    _ = stream_uri(text);
    _ = discovery::matches(text, SocketAddr::from(([192, 0, 2, 7], 3702)));
}
