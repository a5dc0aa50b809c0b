//! The log of a process that runs a configuration: how much it shows, and what it must not show.

use crate::ops::{
    secret_list::SecretList,
    telemetry::{self, Levels, Sink},
};
use spotter_cameras::ingest;
use spotter_config::Config;

/// The log while the process runs.
#[derive(Clone, Debug)]
pub struct Logging {
    /// What it must not show; may be added to.
    pub secrets: SecretList,
    /// How much it shows.
    pub levels: Levels,
}

/// Log lines, GStreamer's too, go to stderr or the journal, and no secret of `config` appears in them, nor any that is
/// added to the list later.
pub fn start_logging(verbose: u8, config: &Config) -> anyhow::Result<Logging> {
    let secrets = SecretList::default();
    remember_secrets(&secrets, config);
    let levels = telemetry::init(Sink::of_stderr(), verbose, secrets.clone())?;
    ingest::start_gstreamer()?;
    Ok(Logging { secrets, levels })
}

/// Keeps what `config` holds back out of the log.
pub fn remember_secrets(secrets: &SecretList, config: &Config) {
    let broker = &config.mqtt.broker;
    let client_key = broker.tls.as_ref().and_then(|tls| tls.client_key.as_ref());
    let cameras = config.cameras.iter();
    let logins = cameras.filter_map(|camera| camera.source.login());
    let of_broker = broker
        .password
        .as_ref()
        .map(|password| (broker.user.as_deref(), password));
    let of_tls = client_key.map(|key| (None, key));
    let webhooks = config.webhooks.iter();
    let of_webhooks = webhooks.flat_map(|webhook| {
        let url = webhook.is_url_secret.then_some(&webhook.url);
        [url, webhook.secret.as_ref(), webhook.bearer.as_ref()]
    });
    let tokens = config.api.iter().flat_map(|api| &api.tokens);
    let others = of_webhooks.flatten().chain(tokens);
    let others = others.map(|secret| (None, secret));
    for (user, secret) in logins.chain(of_broker).chain(of_tls).chain(others) {
        secrets.add(user, secret);
    }
}
