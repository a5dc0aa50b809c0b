//! `[http]`: status page, metrics and health.

use std::net::{Ipv4Addr, SocketAddr};

use crate::{forms::prelude::*, read::prelude::*};

#[derive(Clone, Debug, PartialEq)]
pub struct HttpConfig {
    /// Address to listen on; `None` = off. Default `127.0.0.1:9464`.
    pub listen: Option<SocketAddr>,
    /// Host names under which browsers call the page, beside those of this machine.
    pub names: Vec<String>,
}

pub(crate) fn http(mut table: Reader<'_>) -> HttpConfig {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 9464));
    keys! { table in "`[http]`", "Status page, metrics and health checks.", "[http]\nlisten = \"0.0.0.0:9464\"";
        /// Address and port of the HTTP server. The default accepts connections from this machine only.
        listen = text("`\"ADDRESS:PORT\"`, or `\"off\"`", |text| (text != "off").then(|| socket(text)).transpose()).or_as(format!("`\"{local}\"`"), Some(local)), r#"listen = "0.0.0.0:9464""#;
        /// Host names under which browsers and proxies call the page and an API without tokens. Addresses, `localhost` and the name of this machine, also with `.local`, are always answered; another name gets 421, so that no foreign web page reads the answers (DNS rebinding).
        names = list(text("host names, without port", host_name)).or_as("none", Vec::new()), r#"names = ["spotter.example.net"]"#;
    }
    table.finish();
    HttpConfig { listen, names }
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
