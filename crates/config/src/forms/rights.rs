//! What the list of a fleet may name of a box.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use url::Url;

use super::address;

/// The start of the names of credentials that every list may name.
pub(crate) const CAMERA_CREDENTIAL: &str = "camera_";

/// What the list of a fleet may name of a box. Everyone who may write the list chooses the hosts to which logins of cameras go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListRights {
    /// Credentials beside those of cameras.
    pub camera_credentials: BTreeSet<String>,
    /// Secrets in variables and files; sources that are files and devices.
    pub allow_local: bool,
    /// Where cameras and their ONVIF services may be; empty: anywhere.
    pub networks: Vec<IpNet>,
}

impl ListRights {
    pub(crate) fn allows_credential(&self, name: &str) -> bool {
        let is_of_camera =
            name.len() > CAMERA_CREDENTIAL.len() && name.starts_with(CAMERA_CREDENTIAL);
        is_of_camera || self.camera_credentials.contains(name)
    }

    /// A name could be that of any address later, so with networks there are addresses only.
    pub(crate) fn allows_host(&self, url: &str) -> bool {
        let address = |host: String| host.parse::<IpAddr>().ok();
        let url = Url::parse(url).ok();
        let address = url
            .and_then(|url| address::host(&url).ok())
            .and_then(address);
        let contains = |address: IpAddr| {
            let mut networks = self.networks.iter();
            networks.any(|network| network.contains(&address.to_canonical()))
        };
        self.networks.is_empty() || address.is_some_and(contains)
    }
}

/// `192.0.2.0/24`, or one address.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    match text.parse().ok().or_else(address) {
        Some(network) if network.addr() == network.network() => Ok(network),
        Some(_) => Err(format!(
            "{text:?} has bits behind its prefix; write the first address of the network"
        )),
        None => Err(format!("{text:?} is not a network; write \"192.0.2.0/24\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_has_the_addresses_with_its_prefix() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.0/24", "[::ffff:192.0.2.1]", "[2001:db8::1]"),
            ("2001:db8::/32", "[2001:db8:ffff::1]", "[2001:db9::1]"),
            ("0.0.0.0/0", "203.0.113.1", "[::1]"),
            ("::/0", "[::1]", "192.0.2.1"),
        ] {
            let rights = ListRights {
                networks: vec![network(text).unwrap()],
                ..ListRights::default()
            };
            let allows = |host| rights.allows_host(&format!("rtsp://{host}/a"));
            assert!(allows(inside) && !allows(outside), "{text}");
        }
    }
}
