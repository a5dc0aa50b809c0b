//! HTTP requests to other machines, through the proxy that the environment names.
//!
//! A proxy carries `https://` by CONNECT, and `http://` by requests that name the whole URL (RFC 9112, 3.2.2). The HTTP client
//! (ureq) uses CONNECT for both, which proxies refuse for other ports than 443 with their usual settings; this crate's connector
//! writes the whole URL instead.
//!
//! Belongs here: what the model hub and webhooks share. Does not belong here: cameras, which are never reached through a proxy.

mod forward;

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use ureq::{
    Agent,
    config::Config,
    tls::{Certificate, RootCerts, TlsConfig},
    unversioned::resolver::DefaultResolver,
};

/// What HTTP 407 means, and what the user can do.
pub const PROXY_LOGIN_REQUIRED: &str = "the proxy requires a login (HTTP 407); write it into http_proxy as http://user:password@host:port";

/// A client with this configuration. `https_proxy`, `http_proxy`, `all_proxy` and `no_proxy` are read by the configuration itself.
pub fn agent(config: Config) -> Agent {
    Agent::with_parts(
        config,
        forward::ProxyConnector::default(),
        DefaultResolver::default(),
    )
}

/// TLS by rustls and ring, which trusts these authorities.
pub fn tls_config(authorities: &[CertificateDer<'_>]) -> TlsConfig {
    let roots = authorities.iter();
    let roots: Vec<_> = roots
        .map(|der| Certificate::from_der(der).to_owned())
        .collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(provider)
        .build()
}
