//! Reads cameras with GStreamer and chooses the frames that are looked at.

pub mod ingest;
pub mod sampler;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]
pub mod testing;
