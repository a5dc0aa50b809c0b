//! How many connections there are: in all and of each network. Those beyond are refused, so that descriptors are left for cameras
//! and broker.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::network::ClientNetwork;

/// Connections of all other machines together.
const CONNECTIONS_MAX: usize = 256;
/// Connections of one network, or of this machine: more than the requests that the API answers at the same time (64), for a proxy
/// before it.
const NETWORK_CONNECTIONS_MAX: usize = 96;

/// Counts connections by network. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(Arc<Mutex<HashMap<ClientNetwork, usize>>>);

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedConnection {
    /// There are as many as are allowed.
    Full,
    /// Its network has as many as one is allowed.
    NetworkFull(ClientNetwork),
}

/// One of the connections; it is no longer counted when it is dropped.
#[derive(Debug)]
pub struct OpenConnection {
    connections: OpenConnections,
    network: ClientNetwork,
}

impl OpenConnections {
    /// Counts a connection from `address`, or refuses it. Programs on this machine, such as health checks, are not kept out by others.
    pub fn admit(&self, address: IpAddr) -> Result<OpenConnection, RefusedConnection> {
        let network = ClientNetwork::of(address);
        let mut networks = self.lock();
        let others = networks
            .iter()
            .filter(|(other, _)| **other != ClientNetwork::Loopback);
        let remote: usize = others.map(|(_, connections)| connections).sum();
        let of_network = networks.get(&network).copied().unwrap_or_default();
        if of_network >= NETWORK_CONNECTIONS_MAX {
            return Err(RefusedConnection::NetworkFull(network));
        }
        if network != ClientNetwork::Loopback && remote >= CONNECTIONS_MAX {
            return Err(RefusedConnection::Full);
        }
        networks.insert(network, of_network + 1);
        Ok(OpenConnection {
            connections: self.clone(),
            network,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientNetwork, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut networks = self.connections.lock();
        if let Some(connections) = networks.get_mut(&self.network) {
            *connections -= 1;
        }
        networks.retain(|_, connections| *connections > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(
        connections: &OpenConnections,
        addresses: impl Iterator<Item = String>,
    ) -> Vec<OpenConnection> {
        let addresses = addresses.map(|text| text.parse().unwrap());
        addresses
            .filter_map(|address| connections.admit(address).ok())
            .collect()
    }

    // Faults: H2.
    #[test]
    fn one_network_gets_its_share_and_others_connect() {
        let connections = OpenConnections::default();
        // Another address of the same /64 each time.
        let one = (0..500).map(|n| format!("2001:db8::{n:x}"));
        let held = admitted(&connections, one);
        assert_eq!(held.len(), NETWORK_CONNECTIONS_MAX);
        let other = connections.admit("2001:db8:0:1::1".parse().unwrap());
        assert!(other.is_ok());
        drop(held);
        assert!(connections.admit("2001:db8::1".parse().unwrap()).is_ok());
    }

    // Faults: H3.
    #[test]
    fn many_networks_fill_the_listener_but_not_for_this_machine() {
        let connections = OpenConnections::default();
        let many = (0..1000).map(|n| format!("10.0.{}.{}", n / 250, n % 250));
        let held = admitted(&connections, many);
        assert_eq!(held.len(), CONNECTIONS_MAX);
        let late = connections.admit("192.0.2.1".parse().unwrap());
        assert_eq!(late.err(), Some(RefusedConnection::Full));
        let probe = connections.admit("127.0.0.1".parse().unwrap());
        assert!(probe.is_ok(), "a health check of this machine");
        drop(held);
        assert_eq!(connections.lock().len(), 1, "only the probe's");
    }
}
