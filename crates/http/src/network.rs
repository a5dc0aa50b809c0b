//! Which addresses count as one client.

use std::{
    fmt::{self, Display, Formatter},
    net::{IpAddr, Ipv6Addr},
};

/// The part of an IPv6 address that a provider gives to one customer, who has all addresses behind it.
const IPV6_PREFIX_BITS: u32 = 64;

/// An IPv4 address, the /64 network of an IPv6 address, or this machine: what limits for each client count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientNetwork {
    /// Every loopback address.
    Loopback,
    /// The address, of IPv6 without its last 64 bits.
    Remote(IpAddr),
}

impl ClientNetwork {
    pub fn of(address: IpAddr) -> Self {
        // A listener on `::` sees IPv4 clients as ::ffff:a.b.c.d, which would all be in one network.
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V4(address) => Self::Remote(address.into()),
            IpAddr::V6(address) => {
                let prefix = u128::MAX << (128 - IPV6_PREFIX_BITS);
                Self::Remote(Ipv6Addr::from_bits(address.to_bits() & prefix).into())
            }
        }
    }
}

impl Display for ClientNetwork {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => formatter.write_str("this machine"),
            Self::Remote(address @ IpAddr::V4(_)) => write!(formatter, "{address}"),
            Self::Remote(address) => write!(formatter, "{address}/{IPV6_PREFIX_BITS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_of_one_prefix_are_one_client() {
        let of = |text: &str| ClientNetwork::of(text.parse().unwrap()).to_string();
        for (address, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
            ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
            ("127.0.0.1", "this machine"),
            ("127.9.9.9", "this machine"),
            ("::ffff:127.0.0.1", "this machine"),
            ("::1", "this machine"),
        ] {
            assert_eq!(of(address), network, "{address}");
        }
    }
}
