//! `[fleet]`: boxes that share cameras, and the NATS servers in which they keep their list.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use url::Url;

use super::{
    Secret, address,
    keys::{self, fleet as fleet_keys},
    load::Scope,
    reader::{ConfigValue, Reader},
    sections::{CLEAR_TEXT, file, login},
};
use crate::NodeId;

const STORE_SCHEMES: &str = "nats, tls";
const STORE_PORT: u16 = 4222;

/// This node's part in a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetConfig {
    /// A level of the topics of all its cameras.
    pub name: NodeId,
    pub store: NatsAccess,
    /// What cameras may ask of their node.
    pub labels: BTreeSet<String>,
    /// What the shared list may do with this box.
    pub rights: ListRights,
}

/// The start of the names of credentials that every list may name.
pub(super) const CAMERA_CREDENTIAL: &str = "camera_";

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
    pub(super) fn allows_credential(&self, name: &str) -> bool {
        let is_of_camera =
            name.len() > CAMERA_CREDENTIAL.len() && name.starts_with(CAMERA_CREDENTIAL);
        is_of_camera || self.camera_credentials.contains(name)
    }

    /// A name could be that of any address later, so with networks there are addresses only.
    pub(super) fn check_host(&self, scope: &Scope<'_>, value: &ConfigValue<'_>, url: &str) {
        let url = Url::parse(url).ok();
        let host = url.as_ref().and_then(|url| address::host(url).ok());
        let address = host.and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        let is_inside = |address: IpAddr| self.networks.iter().any(|network| network.has(address));
        if self.networks.is_empty() || address.is_some_and(is_inside) {
            return;
        }
        let text = "is not an address in networks in [fleet] of this box; the list cannot name other hosts";
        scope.forbidden(value, text.to_owned());
    }
}

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

/// How a client reaches the NATS servers of a fleet and logs in.
#[derive(Clone, Debug, PartialEq)]
pub struct NatsAccess {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`; several servers of a cluster.
    pub urls: Vec<String>,
    pub login: NatsLogin,
    /// Certificate authorities, PEM; `None`: those of the machine.
    pub ca: Option<PathBuf>,
    /// Copies of the data in a cluster, where this client is the first to write; 1 to 5.
    pub replicas: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NatsLogin {
    None,
    Password {
        user: String,
        password: Secret,
    },
    /// A `.creds` file of `nsc`.
    Credentials(PathBuf),
}

/// A server's URL as the client library takes it.
pub fn store_url(text: &str) -> Result<String, String> {
    let url: Url = address::parse(text, STORE_SCHEMES)?;
    if !matches!(url.scheme(), "nats" | "tls") {
        let scheme = url.scheme();
        return Err(format!(
            "scheme {scheme:?} is not supported; use one of {STORE_SCHEMES}"
        ));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("has text after the port; write nats://HOST:PORT".to_owned());
    }
    let (scheme, port) = (url.scheme(), url.port().unwrap_or(STORE_PORT));
    let host = address::host(&url)?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    Ok(format!("{scheme}://{host}:{port}"))
}

/// What is wrong with servers that are used together: with `nats://` beside `tls://`, a login would be sent unencrypted when the encrypted
/// servers fail.
pub fn check_store_urls(urls: &[String]) -> Result<(), String> {
    let encrypted = urls.iter().filter(|url| url.starts_with("tls:")).count();
    match encrypted == 0 || encrypted == urls.len() {
        true => Ok(()),
        false => Err("nats:// together with tls://; use tls:// for all servers".to_owned()),
    }
}

/// Reads `[fleet]`; `None` when the file has none, or when it has no name or no server.
pub(super) fn fleet(
    scope: &Scope<'_>,
    root: &mut Reader<'_>,
    node: &NodeId,
) -> Option<FleetConfig> {
    let mut table = root.get(&keys::root::FLEET)?.table()?;
    let name = table.get(&fleet_keys::NAME);
    if name.is_none() {
        table.missing(
            &["name"],
            "no name; add name = \"NAME\", the same on all boxes",
        );
    }
    let name = name.as_ref().and_then(|value| fleet_name(value, node));
    let urls = table.get(&fleet_keys::URL);
    if urls.is_none() {
        table.missing(&["url"], "no NATS server; add url = \"nats://HOST\"");
    }
    let servers = urls.as_ref().and_then(store_urls).unwrap_or_default();
    if let Some(value) = &urls
        && table.get(&fleet_keys::PASSWORD).is_some()
        && servers.iter().any(|url| is_clear_text(url))
    {
        value.warning(CLEAR_TEXT);
    }
    let store = NatsAccess {
        login: store_login(scope, &mut table),
        ca: table
            .get(&fleet_keys::CA)
            .and_then(|value| file(scope, &value)),
        replicas: table.read_or_default(&fleet_keys::REPLICAS) as usize,
        urls: servers,
    };
    let labels = table.get(&fleet_keys::LABELS);
    let labels = labels
        .and_then(|value| texts(&value, label))
        .unwrap_or_default();
    let credentials = table.get(&fleet_keys::CAMERA_CREDENTIALS);
    let networks = table.get(&fleet_keys::NETWORKS);
    let rights = ListRights {
        camera_credentials: credentials
            .and_then(|value| texts(&value, |text| Ok(text.to_owned())))
            .unwrap_or_default()
            .into_iter()
            .collect(),
        allow_local: table.read_or_default(&fleet_keys::ALLOW_LOCAL),
        networks: networks
            .and_then(|value| texts(&value, IpNetwork::new))
            .unwrap_or_default(),
    };
    table.finish();
    if store.urls.is_empty() {
        return None;
    }
    Some(FleetConfig {
        name: name?,
        store,
        labels: labels.into_iter().collect(),
        rights,
    })
}

fn fleet_name(value: &ConfigValue<'_>, node: &NodeId) -> Option<NodeId> {
    let name = value.parsed(|text| NodeId::new(text).map_err(|error| error.to_string()))?;
    if name == *node {
        value.error(
            "is also the name of this node; both are levels of topics, so choose another one",
        );
        return None;
    }
    Some(name)
}

/// One URL, or a list of them.
fn store_urls(value: &ConfigValue<'_>) -> Option<Vec<String>> {
    if !value.is_list() {
        return Some(vec![value.parsed(store_url)?]);
    }
    let urls = texts(value, store_url)?;
    value.checked(check_store_urls(&urls))?;
    Some(urls)
}

/// A URL of [`store_url`] that is not encrypted and not of this machine.
fn is_clear_text(url: &str) -> bool {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "nats");
    let host = url.as_ref().and_then(|url| address::host(url).ok());
    host.is_some_and(|host| !address::is_loopback(&host))
}

fn texts<T>(value: &ConfigValue<'_>, make: fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
    let made = value
        .list()?
        .into_iter()
        .map(|element| element.parsed(make));
    made.collect()
}

/// What a camera's `label` may be.
pub(super) fn label(text: &str) -> Result<String, String> {
    let id = NodeId::new(text).map_err(|error| error.to_string())?;
    Ok(id.as_str().to_owned())
}

fn store_login(scope: &Scope<'_>, table: &mut Reader<'_>) -> NatsLogin {
    let credentials = table.get(&fleet_keys::CREDENTIALS);
    let (user, password) = login(scope, table, &fleet_keys::USER, &fleet_keys::PASSWORD);
    if let (Some(credentials), Some(_)) = (&credentials, &user) {
        credentials.error("together with \"user\"; use one of them");
    }
    match (
        credentials.and_then(|value| file(scope, &value)),
        user,
        password,
    ) {
        (Some(path), _, _) => NatsLogin::Credentials(path),
        (None, Some(user), Some(password)) => NatsLogin::Password { user, password },
        _ => NatsLogin::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment, of_text};

    const SITE: &str = "[mqtt]\nurl = \"mqtt://broker\"\n[node]\nname = \"edge1\"\n";

    fn load(fleet: &str) -> Result<Config, String> {
        let environment = Environment::new("box", |_| Some("hidden".into()));
        let loaded = of_text("site.toml", &format!("{SITE}{fleet}"), &environment);
        loaded
            .map(|loaded| loaded.config)
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn fleet_has_servers_login_and_labels() {
        let fleet = load(
            "[fleet]\nname = \"hall\"\nurl = [\"tls://a\", \"tls://b:4223\"]\nuser = \"edge\"\n\
             password = { env = \"P\" }\nlabels = [\"hall2\"]\nreplicas = 3\n",
        );
        let fleet = fleet.unwrap().fleet.unwrap();
        assert_eq!(fleet.store.urls, ["tls://a:4222", "tls://b:4223"]);
        assert!(
            matches!(fleet.store.login, NatsLogin::Password { ref user, .. } if user == "edge")
        );
        assert!(fleet.labels.contains("hall2") && fleet.store.replicas == 3);
    }

    #[test]
    fn mistakes_in_a_fleet_are_named() {
        let name = "[fleet]\nname = \"hall\"\n";
        let url = "url = \"nats://a\"\n";
        for (text, said) in [
            (format!("[fleet]\n{url}"), "no name"),
            (name.to_owned(), "no NATS server"),
            (
                format!("[fleet]\nname = \"edge1\"\n{url}"),
                "also the name of this node",
            ),
            (
                format!("{name}url = \"mqtt://a\"\n"),
                "use one of nats, tls",
            ),
            (
                format!("{name}url = \"nats://u:canary@a\"\n"),
                "use \"user\" and \"password\"",
            ),
            (format!("{name}{url}labels = [\"Hall 2\"]\n"), "a-z"),
            (
                format!("{name}url = [\"nats://a\", \"tls://b\"]\n"),
                "nats:// together with tls://",
            ),
            (
                format!("{name}{url}networks = [\"192.0.2.1/24\"]\n"),
                "bits behind its prefix",
            ),
            (
                format!("{name}{url}networks = [\"cameras\"]\n"),
                "is not a network",
            ),
            (
                format!(
                    "{name}{url}[camera.gate]\nurl = \"rtsp://192.0.2.1\"\nprompt.car.detect = \"car\"\n"
                ),
                "spotter fleet apply",
            ),
        ] {
            let problems = load(&text).unwrap_err();
            assert!(
                problems.contains(said) && !problems.contains("canary"),
                "{text}: {problems}"
            );
        }
        assert!(load("").unwrap_err().contains("no camera"));
    }

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

    #[test]
    fn password_without_tls_is_warned_of_unless_on_loopback() {
        let secret = "user = \"u\"\npassword = { env = \"P\" }\n";
        let environment = Environment::new("box", |_| Some("hidden".into()));
        let warnings = |broker: &str, mqtt: &str, store: &str, nats: &str| {
            let text = format!(
                "[mqtt]\nurl = \"{broker}\"\n{mqtt}[node]\nname = \"edge1\"\n[fleet]\nname = \"hall\"\nurl = \"{store}\"\n{nats}"
            );
            let loaded = of_text("site.toml", &text, &environment).unwrap();
            let warnings = loaded
                .warnings
                .iter()
                .filter(|w| w.text.contains("not encrypted"));
            warnings
                .map(|warning| warning.key.clone())
                .collect::<Vec<_>>()
        };
        let both = ["mqtt.url", "fleet.url"];
        assert_eq!(
            warnings("mqtt://192.0.2.1", secret, "nats://hub", secret),
            both
        );
        for (broker, store) in [
            ("mqtt://localhost", "nats://127.0.0.1"),
            ("mqtt://[::1]", "nats://[::1]"),
            ("mqtts://192.0.2.1", "tls://hub"),
        ] {
            assert_eq!(warnings(broker, secret, store, secret), [""; 0], "{broker}");
        }
        assert_eq!(warnings("mqtt://192.0.2.1", "", "nats://hub", ""), [""; 0]);
    }
}
