//! `[fleet]`: boxes that share cameras, and the NATS servers in which they keep their list.

use std::{collections::BTreeSet, path::PathBuf};

use url::Url;

use super::{
    Secret, address,
    keys::{self, fleet as fleet_keys},
    load::Scope,
    reader::{ConfigValue, Reader},
    sections::{file, login},
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
    let urls = urls.as_ref().and_then(store_urls);
    let store = NatsAccess {
        login: store_login(scope, &mut table),
        ca: table
            .get(&fleet_keys::CA)
            .and_then(|value| file(scope, &value)),
        replicas: table.read_or_default(&fleet_keys::REPLICAS) as usize,
        urls: urls.unwrap_or_default(),
    };
    let labels = table.get(&fleet_keys::LABELS);
    let labels = labels
        .and_then(|value| texts(&value, label))
        .unwrap_or_default();
    table.finish();
    if store.urls.is_empty() {
        return None;
    }
    Some(FleetConfig {
        name: name?,
        store,
        labels: labels.into_iter().collect(),
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
    match value.is_list() {
        true => texts(value, store_url),
        false => Some(vec![value.parsed(store_url)?]),
    }
}

fn texts(value: &ConfigValue<'_>, make: fn(&str) -> Result<String, String>) -> Option<Vec<String>> {
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
            "[fleet]\nname = \"hall\"\nurl = [\"nats://a\", \"tls://b:4223\"]\nuser = \"edge\"\n\
             password = { env = \"P\" }\nlabels = [\"hall2\"]\nreplicas = 3\n",
        );
        let fleet = fleet.unwrap().fleet.unwrap();
        assert_eq!(fleet.store.urls, ["nats://a:4222", "tls://b:4223"]);
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
}
