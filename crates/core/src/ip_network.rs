//! Networks of addresses.

use std::net::IpAddr;

/// Addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u8,
}

impl IpNetwork {
    /// `192.0.2.0/24`, or one address.
    pub fn new(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network; write \"192.0.2.0/24\"");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most),
            None => Some(most),
        };
        let network = Self {
            address,
            bits: bits.ok_or_else(wrong)?,
        };
        match network.first() == bits_of(address) {
            true => Ok(network),
            false => Err(format!(
                "{text:?} has bits behind its prefix; write the first address of the network"
            )),
        }
    }

    /// The bits of its first address, on the left of 128.
    fn first(self) -> u128 {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits));
        bits_of(self.address) & mask.unwrap_or_default()
    }

    pub fn has(self, address: IpAddr) -> bool {
        let other = Self {
            address: address.to_canonical(),
            bits: self.bits,
        };
        other.address.is_ipv4() == self.address.is_ipv4() && other.first() == self.first()
    }
}

/// The bits of an address, on the left of 128.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_has_the_addresses_with_its_prefix() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.0/24", "::ffff:192.0.2.1", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("0.0.0.0/0", "203.0.113.1", "::1"),
            ("::/0", "::1", "192.0.2.1"),
        ] {
            let known = IpNetwork::new(network).unwrap();
            assert!(known.has(inside.parse().unwrap()), "{network} {inside}");
            assert!(!known.has(outside.parse().unwrap()), "{network} {outside}");
        }
        for wrong in [
            "192.0.2.0/33",
            "192.0.2.0/-1",
            "192.0.2.0/",
            "2001:db8::/129",
            "192.0.2.0/24/8",
            "",
        ] {
            assert!(IpNetwork::new(wrong).is_err(), "{wrong}");
        }
    }
}
