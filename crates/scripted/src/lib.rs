//! Test doubles: an RTSP camera, an MQTT broker, a model hub, a proxy, a receiver of webhooks and an ONVIF camera whose faults a script defines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]

pub mod broker;
mod digest;
pub mod hub;
pub mod onvif;
pub mod proxy;
pub mod receiver;
pub mod rtsp;
pub mod tls;
