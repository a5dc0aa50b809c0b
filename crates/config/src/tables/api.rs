//! `[api]`: the local HTTP API for programs that ask about pictures of their own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::http::socket;
use crate::{forms::prelude::*, read::prelude::*};

/// The port of Moondream Station, whose clients this API serves.
const DEFAULT_PORT: u16 = 2020;

/// The local HTTP API.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiConfig {
    /// Address to listen on; default `127.0.0.1:2020`.
    pub listen: SocketAddr,
    /// A request needs one of them; empty: none, which is allowed on loopback alone.
    pub tokens: Vec<Secret>,
    /// Requests a second of each token, or without tokens of each client's address.
    pub rate_hz: f64,
    /// Limit of a request's body, in megabytes.
    pub max_body_mb: u64,
    /// Requests that are read, wait or are answered at the same time.
    pub requests: usize,
    /// A request that no engine has begun after this time is refused.
    pub wait: Duration,
}

/// Reads `[api]`. `page`: where the status page listens.
pub(crate) fn api(scope: &Scope<'_>, mut table: Reader<'_>, page: Option<SocketAddr>) -> ApiConfig {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT));
    keys! { table in "`[api]`", "An HTTP API for programs that ask about pictures of their own: see [api.md](api.md). Without this table it is off. The cameras go first.",
            "[api]\nlisten = \"0.0.0.0:2020\"\ntokens = [{ cred = \"api_token\" }]";
        /// Address and port of the API. The default accepts connections from this machine only; any other address requires `tokens`.
        listen = text("`\"ADDRESS:PORT\"`", socket).written(quoted).or(local), r#"listen = "0.0.0.0:2020""#;
        /// A request must send one of these tokens, as `Authorization: Bearer …`. `openssl rand -hex 32` makes one. See [Secrets](#secrets).
        tokens = full_list(access_token(scope), "empty; without this key no token is needed, on loopback alone").or_as("none", Vec::new()), r#"tokens = [{ cred = "api_token" }]"#;
        /// The most requests of each token; without tokens, of each client's address.
        rate = number(0.1..=1000.0, "requests per second").or(10.0), "rate = 2";
        /// The longest body of a request. A picture in base64 takes four thirds of its file.
        max_body_mb = whole(1..=100, "megabytes").or(10), "max_body_mb = 20";
        /// The most requests at the same time, those that wait included; each may have a picture in memory.
        requests = whole(1..=64, "requests").or(8), "requests = 16";
        /// A request that no engine has begun after this time, because the cameras need it, is refused.
        wait = time(Duration::from_millis(100)..=Duration::from_mins(1)).or(Duration::from_secs(2)), r#"wait = "5s""#;
    }
    let wrong = |text: &str| match table.given("listen") {
        Some(listen) => listen.error(text),
        None => table.error(text),
    };
    if !listen.ip().is_loopback() && table.given("tokens").is_none() {
        wrong(
            "other machines reach this address: add tokens = [{ env = \"NAME\" }], or listen on 127.0.0.1",
        );
    }
    if page == Some(listen) {
        wrong("the status page listens here (http.listen); choose another port");
    }
    table.finish();
    ApiConfig {
        listen,
        tokens,
        rate_hz: rate,
        max_body_mb,
        requests,
        wait,
    }
}
