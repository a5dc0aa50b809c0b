//! `[http]`: status page, metrics and health.

use std::net::{Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use url::{Origin, Url};

use crate::{
    forms::{prelude::*, rights::network},
    read::prelude::*,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpConfig {
    /// Address to listen on; `None` = off.
    pub listen: Option<SocketAddr>,
    /// Host names under which browsers call the page, beside those of this machine; with that of `url`.
    pub names: Vec<String>,
    /// Who sends one of them sees pictures and texts; empty: they are shown on this machine alone.
    pub tokens: Vec<Secret>,
    /// Proxies whose headers say who the client is.
    pub proxies: Vec<IpNet>,
    /// Origins of pages that may show this one in a frame.
    pub frames: Vec<String>,
    /// Where people open the page.
    pub url: Option<Url>,
}

impl HttpConfig {
    /// The path of `url`, without a slash at its end: a proxy may leave it in requests.
    pub fn base_path(&self) -> &str {
        let path = self.url.as_ref().map(Url::path).unwrap_or_default();
        path.trim_end_matches('/')
    }
}

pub(crate) fn http(scope: &Scope<'_>, mut table: Reader<'_>) -> HttpConfig {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 9464));
    keys! { table in "`[http]`", "Status page, metrics and health checks.", "[http]\nlisten = \"0.0.0.0:9464\"";
        /// Address and port of the HTTP server. The default accepts connections from this machine only.
        listen = text("`\"ADDRESS:PORT\"`, or `\"off\"`", |text| (text != "off").then(|| socket(text)).transpose()).or_as(format!("`\"{local}\"`"), Some(local)), r#"listen = "0.0.0.0:9464""#;
        /// Host names under which browsers and proxies call the page and an API without tokens. Addresses, `localhost` and the name of this machine, also with `.local`, are always answered; another name gets 421, so that no foreign web page reads the answers (DNS rebinding).
        names = list(text("host names, without port", host_name)).or_as("none", Vec::new()), r#"names = ["spotter.example.net"]"#;
        /// Who logs in at the page with one of these tokens, or sends it as `Authorization: Bearer …`, sees pictures and texts. With a token, this machine needs it too. `openssl rand -hex 32` makes one. See [Secrets](#secrets) and [page.md](page.md#who-may).
        tokens = full_list(access_token(scope), "empty; without this key the page shows pictures and texts on this machine alone").or_as("none", Vec::new()), r#"tokens = [{ cred = "page_token" }]"#;
        /// Addresses or networks of reverse proxies whose headers `X-Forwarded-For`, `X-Forwarded-Host` and `X-Ingress-Path` are believed.
        proxies = list(text("addresses or networks", network)).or_as("none", Vec::new()), r#"proxies = ["172.30.32.2"]"#;
        /// Origins of web pages that may show this one in a frame, beside its own.
        frames = list(text("origins", origin)).or_as("none", Vec::new()), r#"frames = ["https://ha.example.net"]"#;
        /// Where people open the page, for links to it. Its host is one of `names`.
        url = text("`http://HOST…` or `https://HOST…`", page_url).optional("none"), r#"url = "https://spotter.example.net""#;
    }
    table.finish();
    let named = url.as_ref().and_then(Url::host_str).map(str::to_owned);
    HttpConfig {
        listen,
        names: names.into_iter().chain(named).collect(),
        tokens,
        proxies,
        frames,
        url,
    }
}

/// As browsers send it: it becomes a part of a header.
fn origin(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "{text:?} is not an origin; write \"https://ha.example.net\" or \"http://192.0.2.1:8123\", without a path"
        )
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    let origin = url.origin();
    let is_web =
        matches!(&origin, Origin::Tuple(scheme, ..) if scheme == "http" || scheme == "https");
    let origin = origin.ascii_serialization();
    match is_web && origin == text.trim_end_matches('/') {
        true => Ok(origin),
        false => Err(wrong()),
    }
}

fn page_url(text: &str) -> Result<Url, String> {
    // It may have a password.
    let wrong = "not an address of this page; write \"https://spotter.example.net\", or with a path, without a login, ? and #";
    let url = Url::parse(text).map_err(|_| wrong.to_owned())?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let is_path = url.path().bytes().all(is_letter) && !url.path().contains("//");
    let is_plain = url.username().is_empty() && url.password().is_none() && is_path;
    let is_whole = url.query().is_none() && url.fragment().is_none() && url.has_host();
    match matches!(url.scheme(), "http" | "https") && is_plain && is_whole {
        true => Ok(url),
        false => Err(wrong.to_owned()),
    }
}

/// `ADDRESS:PORT`.
pub(crate) fn socket(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| format!("{text:?} is not an address with a port; write \"127.0.0.1:9464\"");
    text.parse().map_err(wrong)
}

/// A name as browsers send it, without scheme and port.
fn host_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(of_name)
    };
    match text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not a host name; write \"spotter.example.net\", without http:// and port"
        )),
    }
}
