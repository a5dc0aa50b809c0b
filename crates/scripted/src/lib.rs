//! Test doubles: an RTSP camera and an MQTT broker whose faults a script defines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]

pub mod broker;
pub mod rtsp;
