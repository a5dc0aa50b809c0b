//! Test doubles: an RTSP camera, an MQTT broker, a model hub and a receiver of webhooks whose faults a script defines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]

pub mod broker;
pub mod hub;
pub mod receiver;
pub mod rtsp;
