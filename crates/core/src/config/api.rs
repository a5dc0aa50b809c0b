//! `[api]`: the local HTTP API for programs that ask about pictures of their own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::{
    Secret,
    keys::{self, api as api_keys},
    load::Scope,
    reader::{ConfigValue, Reader},
    secret::{SecretKind, secret},
};

/// The port of Moondream Station, whose clients this API serves.
const DEFAULT_PORT: u16 = 2020;
/// A shorter token can be guessed.
const TOKEN_MIN_BYTES: usize = 16;

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

/// Reads `[api]`; `None` when the file does not have it. `page`: where the status page listens.
pub(super) fn api(
    scope: &Scope<'_>,
    root: &mut Reader<'_>,
    page: Option<SocketAddr>,
) -> Option<ApiConfig> {
    let section = root.get(&keys::root::API)?;
    let mut table = section.table()?;
    let listen_value = table.get(&api_keys::LISTEN);
    let listen = listen_value.as_ref().and_then(|v| v.parsed(socket));
    let tokens = table.get(&api_keys::TOKENS);
    let has_tokens = tokens.is_some();
    let config = ApiConfig {
        listen: listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))),
        tokens: tokens.map_or_else(Vec::new, |value| all_tokens(scope, &value)),
        rate_hz: table.read_or_default(&api_keys::RATE),
        max_body_mb: table.read_or_default(&api_keys::MAX_BODY_MB),
        requests: table.read_or_default(&api_keys::REQUESTS) as usize,
        wait: table.read_or_default(&api_keys::WAIT),
    };
    table.finish();
    let place = listen_value.as_ref().unwrap_or(&section);
    if !config.listen.ip().is_loopback() && !has_tokens {
        place.error(
            "other machines reach this address: add tokens = [{ env = \"NAME\" }], or listen on 127.0.0.1",
        );
    }
    if page == Some(config.listen) {
        place.error("the status page listens here (http.listen); choose another port");
    }
    Some(config)
}

fn socket(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| format!("{text:?} is not an address with a port; write \"127.0.0.1:2020\"");
    text.parse().map_err(wrong)
}

/// The tokens that are on this machine.
fn all_tokens(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Vec<Secret> {
    let elements = value.list();
    if elements.as_ref().is_some_and(Vec::is_empty) {
        value.error("empty; without this key no token is needed, on loopback alone");
    }
    let elements = elements.unwrap_or_default();
    let tokens = elements.iter().filter_map(|element| token(scope, element));
    tokens.collect()
}

fn token(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<Secret> {
    let token = secret(scope, value, SecretKind::Password)?;
    let text = token.reveal();
    if text.len() < TOKEN_MIN_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        value.error(format!(
            "a token has at least {TOKEN_MIN_BYTES} letters, digits and signs of ASCII; `openssl rand -hex 32` makes one"
        ));
        return None;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment, of_text};

    const SITE: &str = "[mqtt]\nurl = \"mqtt://broker\"\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";

    fn load_with(api: &str, variable: &'static str) -> Result<Config, String> {
        let environment = Environment::new("box", move |_| Some(variable.into()));
        let loaded = of_text("site.toml", &format!("{SITE}{api}"), &environment);
        loaded
            .map(|loaded| loaded.config)
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn api_is_off_without_its_table_and_local_with_it() {
        assert_eq!(load_with("", "").unwrap().api, None);
        let api = load_with("[api]\n", "").unwrap().api.unwrap();
        assert_eq!(api.listen.to_string(), "127.0.0.1:2020");
        assert!(api.tokens.is_empty());
        assert_eq!((api.requests, api.max_body_mb), (8, 10));
        assert_eq!((api.rate_hz, api.wait), (10.0, Duration::from_secs(2)));
    }

    #[test]
    fn tokens_are_needed_where_other_machines_connect() {
        let open = "[api]\nlisten = \"0.0.0.0:2020\"\n";
        let problems = load_with(open, "").unwrap_err();
        assert!(
            problems.contains("site.toml:7:10") && problems.contains("add tokens"),
            "{problems}"
        );
        let with_token = format!("{open}tokens = [{{ env = \"T\" }}]\n");
        let api = load_with(&with_token, "0123456789abcdef")
            .unwrap()
            .api
            .unwrap();
        assert_eq!(api.tokens.len(), 1);
        assert!(!format!("{api:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn mistakes_in_the_api_are_named() {
        for (keys, part) in [
            ("listen = \"2020\"\n", "127.0.0.1:"),
            (
                "listen = \"127.0.0.1:9464\"\n",
                "the status page listens here",
            ),
            ("tokens = []\n", "empty"),
            ("tokens = [{ env = \"T\" }]\n", "at least 16"),
            ("tokens = [\"canary\"]\n", "plain text is not allowed"),
            ("max_body_mb = 1000\n", "above 100"),
            ("token = []\n", "did you mean \"tokens\""),
        ] {
            let problems = load_with(&format!("[api]\n{keys}"), "canary").unwrap_err();
            assert!(
                problems.contains(part) && !problems.contains("canary"),
                "{keys}: {problems}"
            );
        }
    }
}
