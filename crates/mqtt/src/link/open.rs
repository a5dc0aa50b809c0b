//! The client of one of the two protocols.

use super::{
    client::{ClientSettings, Events, Sender},
    policy::Protocol,
    v5, v311,
};

/// Prepares a connection.
pub(super) fn open(
    client: &ClientSettings<'_>,
    protocol: Protocol,
) -> (Box<dyn Sender>, Box<dyn Events>) {
    match protocol {
        Protocol::V5 => v5::open(client),
        Protocol::V311 => v311::open(client),
    }
}
