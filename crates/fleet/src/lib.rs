//! Many nodes, one list of cameras: which node watches which camera.
//!
//! ```text
//!   list of cameras ──┐
//!   heartbeats ───────┼─▶ AssignmentInputs ─▶ Assignment ─▶ claims, hand-overs
//!   owners, epochs ───┘   one node's    pure
//! ```
//!
//! A key-value store with a compare-and-swap (NATS JetStream) holds three things: the list, a heartbeat of each node, and an owner of each
//! camera. The revision of an owner's key is the camera's *epoch*, which only grows: of two nodes that take themselves for the owner, the one with
//! the older epoch is wrong. Each node computes the same assignment from the same view and acts for itself alone. Where views differ, the
//! store accepts one claim and refuses the other.
//!
//! - [`assignment`]: which node each camera is to have. Pure.
//! - [`state`]: what one node has seen of the store. Pure.
//! - [`claims`]: what one node does about it now. Pure.
//! - [`certainty`]: when a node may decide, and what it knows of the store. Pure.
//! - [`rights`]: whether a camera may be published now, and with which epoch. All that publishing knows of a fleet.
//! - [`member`]: the membership of one node: heartbeats, writes, events. A thin shell.
//! - [`summary`]: what an operator sees of the fleet. Pure.
//! - [`store`]: the store in NATS JetStream; [`entries`]: what it holds.
//!
//! Not here: watching cameras, publishing (`spotter`, `spotter-mqtt`).

pub mod assignment;
pub mod certainty;
pub mod claims;
pub mod entries;
pub mod member;
pub mod rights;
pub mod state;
pub mod store;
pub mod summary;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]
pub mod testing;
