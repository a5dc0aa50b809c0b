//! `[fleet]`: boxes that share cameras, and the NATS servers in which they keep their list.

use std::{collections::BTreeSet, path::PathBuf};

use url::Url;

use crate::{
    forms::{
        prelude::*,
        rights::{ListRights, network},
    },
    read::{prelude::*, value::ConfigValue},
};
use spotter_core::NodeId;

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

/// URLs of servers as the client library takes them. With `nats://` beside `tls://`, a login would be sent unencrypted when the encrypted
/// servers fail.
pub fn store_urls<S: AsRef<str>>(texts: &[S]) -> Result<Vec<String>, String> {
    let url = |text: &S| {
        let url = address::server(text.as_ref(), "nats, tls")?;
        let (scheme, port) = (url.scheme(), url.port().unwrap_or(STORE_PORT));
        let host = url.host_str().unwrap_or_default();
        Ok(format!("{scheme}://{host}:{port}"))
    };
    let urls: Vec<String> = texts.iter().map(url).collect::<Result<_, String>>()?;
    let encrypted = urls.iter().filter(|url| url.starts_with("tls:")).count();
    match encrypted == 0 || encrypted == urls.len() {
        true => Ok(urls),
        false => Err("nats:// together with tls://; use tls:// for all servers".to_owned()),
    }
}

/// One URL of a server, or a list of them.
fn servers() -> Form<'static, Vec<String>> {
    let form = "`nats://HOST` or `tls://HOST`, with an optional `:PORT`; or a list of them";
    Form::new(form, |value| {
        let texts = match value.is_list() {
            true => value.list()?.iter().map(ConfigValue::text).collect(),
            false => value.text().map(|text| vec![text]),
        };
        value.checked(store_urls(&texts?))
    })
}

/// Reads `[fleet]`; `None` when it has no name or no server.
pub(crate) fn fleet(
    scope: &Scope<'_>,
    mut table: Reader<'_>,
    node: &NodeId,
) -> Option<FleetConfig> {
    keys! { table in "`[fleet]`", "A box that shares cameras with others: see [fleet.md](fleet.md). Without this table, the box has its own cameras and needs no NATS.",
            "[fleet]\nname = \"hall\"\nurl = \"nats://nats.example.net\"\nlabels = [\"hall2\"]";
        /// Name of the fleet, the same on all its boxes. It is one level of the topics of its cameras.
        name = node_name().required("no name; add name = \"NAME\", the same on all boxes"), r#"name = "hall""#;
        /// The NATS server with JetStream, or several of a cluster. `tls` encrypts the connection. Without a port it is 4222.
        url = servers().required("no NATS server; add url = \"nats://HOST\""), r#"url = ["nats://a.example.net", "nats://b.example.net"]"#;
        /// User name for NATS.
        user = text("text", not_empty).optional("no login"), r#"user = "edge""#;
        /// Password for NATS; requires `user`. See [Secrets](#secrets).
        password = password(scope).optional("none"), r#"password = { cred = "nats_password" }"#;
        /// Login with a file of NATS' tool `nsc`, in place of `user` and `password`.
        credentials = file(scope, "path of a `.creds` file").optional("none"), r#"credentials = "/etc/spotter/edge.creds""#;
        /// Certificate authority that signed the server's certificate.
        ca = file(scope, "path of a PEM file").optional(AUTHORITIES), r#"ca = "/etc/site/ca.pem""#;
        /// What this box offers. A camera with a `label` is watched by boxes with that label only.
        labels = list(id("texts of a-z 0-9 _ -", NodeId::new)).or_as("none", Vec::new()), r#"labels = ["hall2"]"#;
        /// Credentials of this box that the fleet's list may name, beside those whose names begin with `camera_`.
        camera_credentials = list(text("texts", not_empty)).or_as("none", Vec::new()), r#"camera_credentials = ["gate"]"#;
        /// Permits the fleet's list to name what is on this box: secrets in variables and files, and `file://` and `usb://` sources. Everyone who may write the list can then read them.
        allow_local = flag().or(false), "allow_local = true";
        /// Where the cameras of the fleet's list and their ONVIF services may be. With it, `url` and `onvif_url` have addresses, not names.
        networks = list(text("networks, such as `\"192.0.2.0/24\"`", network)).or_as("any host", Vec::new()), r#"networks = ["192.0.2.0/24"]"#;
        /// Copies of the fleet's data in a cluster of NATS servers. The first client that writes decides.
        replicas = whole(1..=5, "").or(1), "replicas = 3";
    }
    table.requires("password", "user");
    if let (Some(credentials), Some(_)) = (table.given("credentials"), table.given("user")) {
        credentials.error("together with \"user\"; use one of them");
    }
    if let (Some(place), true) = (table.given("name"), name.as_ref() == Some(node)) {
        place.error(
            "is also the name of this node; both are levels of topics, so choose another one",
        );
    }
    if let (Some(place), Some(urls), Some(_)) = (table.given("url"), &url, table.given("password"))
        && urls.iter().any(|url| is_clear_text(url))
    {
        place.warning(CLEAR_TEXT);
    }
    table.finish();
    let login = match (credentials, user, password) {
        (Some(path), _, _) => NatsLogin::Credentials(path),
        (None, Some(user), Some(password)) => NatsLogin::Password { user, password },
        _ => NatsLogin::None,
    };
    let store = NatsAccess {
        urls: url?,
        login,
        ca,
        replicas,
    };
    Some(FleetConfig {
        name: name?,
        store,
        labels: labels.iter().map(ToString::to_string).collect(),
        rights: ListRights {
            camera_credentials: camera_credentials.into_iter().collect(),
            allow_local,
            networks,
        },
    })
}

/// A URL of [`store_url`] that is not encrypted and not of this machine.
fn is_clear_text(url: &str) -> bool {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "nats");
    let host = url.as_ref().and_then(|url| address::host(url).ok());
    host.is_some_and(|host| !address::is_loopback(&host))
}
