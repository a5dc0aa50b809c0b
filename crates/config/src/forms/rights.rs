//! What the list of a fleet may name of a box.

use std::{collections::BTreeSet, net::IpAddr};

use url::Url;

use super::address;
use spotter_core::IpNetwork;

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
    pub networks: Vec<IpNetwork>,
}

impl ListRights {
    pub(crate) fn allows_credential(&self, name: &str) -> bool {
        let is_of_camera =
            name.len() > CAMERA_CREDENTIAL.len() && name.starts_with(CAMERA_CREDENTIAL);
        is_of_camera || self.camera_credentials.contains(name)
    }

    /// A name could be that of any address later, so with networks there are addresses only.
    pub(crate) fn allows_host(&self, url: &str) -> bool {
        let url = Url::parse(url).ok();
        let host = url.as_ref().and_then(|url| address::host(url).ok());
        let address = host.and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        let is_inside = |address: IpAddr| self.networks.iter().any(|network| network.has(address));
        self.networks.is_empty() || address.is_some_and(is_inside)
    }
}
