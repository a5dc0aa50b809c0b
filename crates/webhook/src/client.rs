//! One request over HTTP. Blocks; runs in a thread of its own.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use ureq::{
    Agent, Body,
    http::{Response, StatusCode, header},
};

use crate::signature::{ID, PostRequest, SIGNATURE, TIMESTAMP, signature};
use spotter_config::{WebhookConfig, signing_key};
use spotter_core::{WebhookId, plain_line};
use spotter_outbound::{PROXY_LOGIN_REQUIRED, agent, tls_config};

/// A webhook that cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
#[error("webhook.{id}: {error}")]
pub struct UnusableWebhook {
    pub(crate) id: WebhookId,
    pub(crate) error: String,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    Accepted,
    /// The receiver does not want the event: a repetition would not help.
    Refused {
        reason: String,
    },
    /// It may work later.
    Failed {
        reason: String,
        /// The pause that the receiver asks for.
        after: Option<Duration>,
    },
}

impl PostOutcome {
    pub(crate) fn failed(reason: String) -> Self {
        let after = None;
        Self::Failed { reason, after }
    }
}

/// Posts to one receiver.
pub(crate) struct WebhookClient {
    agent: Agent,
    config: Arc<WebhookConfig>,
    key: Option<Vec<u8>>,
}

impl WebhookClient {
    /// Reads the certificate authorities.
    pub(crate) fn new(config: Arc<WebhookConfig>) -> Result<Self, String> {
        let roots = match &config.ca {
            Some(path) => authorities(path)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let agent_config = Agent::config_builder()
            .tls_config(tls_config(&roots))
            .user_agent(concat!("spotter/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // The signature and the token are for the configured receiver.
            .max_redirects(0)
            // A receiver that restarted would fail the first request on an old connection.
            .max_idle_connections(0)
            .timeout_global(Some(config.timeout));
        // A configuration is not loaded with another secret.
        let key = config.secret.as_ref();
        let key = key.and_then(|secret| signing_key(secret.reveal()).ok());
        Ok(Self {
            agent: agent(agent_config.build()),
            key,
            config,
        })
    }

    /// It was made for this configuration.
    pub(crate) fn is_of(&self, config: &Arc<WebhookConfig>) -> bool {
        Arc::ptr_eq(&self.config, config)
    }

    pub(crate) fn post(&self, request: &PostRequest) -> PostOutcome {
        let config = &self.config;
        let mut post = self.agent.post(config.url.reveal());
        post = post
            .header(header::CONTENT_TYPE, "application/json")
            .header(ID, &request.id)
            .header(TIMESTAMP, request.unix_s.to_string());
        if let Some(token) = &config.bearer {
            post = post.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        if let Some(key) = &self.key {
            match signature(key, request) {
                Ok(value) => post = post.header(SIGNATURE, value),
                Err(reason) => return PostOutcome::Refused { reason },
            }
        }
        match post.send(&request.body[..]) {
            Ok(response) => outcome(&config.address, &response),
            Err(error) => {
                let words = plain_line(&words(&error, config));
                PostOutcome::failed(format!("{}: {words}", config.address))
            }
        }
    }
}

/// The certificate authorities of the file. Blocks on the disk.
pub(crate) fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| {
        format!("cannot read {shown}: {error}; check the path of ca and who may read it")
    })?;
    let unusable =
        |error: &str| format!("{shown} has no usable certificate ({error}); give it as PEM");
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| unusable(&error.to_string()))?;
    for certificate in &found {
        let added = RootCertStore::empty().add(certificate.clone());
        added.map_err(|error| unusable(&error.to_string()))?;
    }
    match found.is_empty() {
        true => Err(unusable("no certificate found")),
        false => Ok(found),
    }
}

/// Besides those of a server that fails.
const PASSING: [StatusCode; 3] = [
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Decides by the status of an answer.
fn outcome(address: &str, response: &Response<Body>) -> PostOutcome {
    let status = response.status();
    let code = status.as_u16();
    let reason = |advice: &str| format!("{address} answered with HTTP {code}{advice}");
    match status {
        status if status.is_success() => PostOutcome::Accepted,
        // Not of the receiver.
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            PostOutcome::failed(PROXY_LOGIN_REQUIRED.to_owned())
        }
        status if status.is_server_error() || PASSING.contains(&status) => PostOutcome::Failed {
            reason: reason(""),
            after: retry_after(response),
        },
        status => PostOutcome::Refused {
            reason: reason(match status {
                status if status.is_redirection() => {
                    ", a redirect, which is not followed; correct the url of the webhook"
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    "; check the secret and the bearer of the webhook"
                }
                StatusCode::NOT_FOUND | StatusCode::GONE => "; check the url of the webhook",
                _ => "",
            }),
        },
    }
}

/// Seconds; a date is not read.
fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let text = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// What went wrong, without the URL, which may have a secret.
fn words(error: &ureq::Error, config: &WebhookConfig) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("no answer within {:?}", config.timeout),
        ureq::Error::HostNotFound => "the host name is unknown".to_owned(),
        ureq::Error::BadUri(_) => "the url of the webhook cannot be used".to_owned(),
        ureq::Error::InvalidProxyUrl => {
            "the variables of the proxy (https_proxy, http_proxy) cannot be used".to_owned()
        }
        error => {
            let text = match error {
                ureq::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            };
            match text.contains("certificate") {
                true => format!("{text}; check ca of the webhook and the name in its url"),
                false => text,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>) -> PostOutcome {
        let mut response = Response::builder().status(status);
        if let Some(text) = retry_after {
            response = response.header(header::RETRY_AFTER, text);
        }
        let body = Body::builder().data(Vec::new());
        outcome("flows:80", &response.body(body).unwrap())
    }

    #[test]
    fn status_decides_what_is_final() {
        for status in [200, 201, 202, 204] {
            assert_eq!(answer(status, None), PostOutcome::Accepted, "{status}");
        }
        for status in [301, 302, 308, 400, 401, 404, 410, 413, 422] {
            let refused = answer(status, None);
            assert!(
                matches!(refused, PostOutcome::Refused { .. }),
                "{status}: {refused:?}"
            );
        }
        for status in [407, 408, 425, 429, 500, 502, 503, 599] {
            let failed = answer(status, None);
            assert!(
                matches!(failed, PostOutcome::Failed { after: None, .. }),
                "{status}: {failed:?}"
            );
        }
    }

    #[test]
    fn pause_that_the_receiver_asks_for_is_read() {
        let pause = |text| match answer(503, Some(text)) {
            PostOutcome::Failed { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(pause(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(pause("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(pause("-1"), None);
    }

    #[test]
    fn unusable_authority_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let error = |path: &Path| authorities(path).unwrap_err();
        assert!(error(&path).contains("cannot read"), "{}", error(&path));
        for text in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(error(&path).contains("no usable certificate"));
        }
    }
}
