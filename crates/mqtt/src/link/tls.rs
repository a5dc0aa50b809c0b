//! Which brokers are trusted: those of the machine's authorities, of one configured authority, or, with a warning, all. And
//! the node's own certificate.

use std::{fmt::Display, fs, path::Path, sync::Arc};

use rumqttc::{
    TlsConfiguration,
    tokio_rustls::rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{self, CryptoProvider},
        pki_types::{
            CertificateDer, PrivateKeyDer, ServerName, UnixTime,
            pem::{self, PemObject},
        },
        sign::{CertifiedKey, SingleCertAndKey},
    },
};
use tokio::task::spawn_blocking;

use spotter_config::MqttTls;

/// TLS to the broker cannot be set up. Always fatal: a connection without TLS would send the login in clear.
#[derive(Debug, thiserror::Error)]
#[error("mqtt: {0}")]
pub struct TlsError(String);

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self(format!(
            "{error}; check that client_cert and client_key belong together"
        ))
    }
}

/// The TLS configuration, and the contents of its files when they were last readable.
#[derive(Clone)]
pub(crate) struct Trust {
    tls: MqttTls,
    client: TlsConfiguration,
}

impl Trust {
    /// Blocks on the disk.
    pub(crate) fn read(tls: &MqttTls) -> Result<Self, TlsError> {
        Ok(Self {
            client: client(tls)?,
            tls: tls.clone(),
        })
    }

    /// Reads the files again: certificates are replaced while Spotter runs. If they cannot be used, for example because one is
    /// half written, the earlier contents stay in use.
    pub(super) async fn renew(&mut self) -> Result<(), TlsError> {
        let tls = self.tls.clone();
        // A panic logs itself.
        if let Ok(read) = spawn_blocking(move || client(&tls)).await {
            self.client = read?;
        }
        Ok(())
    }

    pub(super) fn client(&self) -> TlsConfiguration {
        self.client.clone()
    }
}

/// Builds the client's configuration. Blocks on the disk.
fn client(tls: &MqttTls) -> Result<TlsConfiguration, TlsError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = if tls.insecure {
        let any = AnyServer(Arc::clone(&provider));
        let builder = builder.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(any));
        builder.with_no_client_auth()
    } else if let Some(ca) = &tls.ca {
        let builder = builder.with_root_certificates(roots(ca)?);
        builder.with_no_client_auth()
    } else {
        match TlsConfiguration::try_default_rustls() {
            Ok(TlsConfiguration::Rustls(config)) => ClientConfig::clone(&config),
            Ok(_) => return Err(TlsError("unexpected kind of authorities".to_owned())),
            Err(error) => {
                return Err(TlsError(format!(
                    "cannot load the machine's certificate authorities ({error}); install ca-certificates or set mqtt.ca"
                )));
            }
        }
    };
    if let (Some(cert), Some(key)) = (&tls.client_cert, &tls.client_key) {
        let chain = certificates(cert)?;
        let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
            .map_err(|error| pem_error("mqtt.client_key", "private key", &error))?;
        let key = CertifiedKey::from_der(chain, key, &provider)?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(key));
    }
    Ok(TlsConfiguration::Rustls(Arc::new(config)))
}

fn roots(ca: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        let added = roots.add(certificate);
        added.map_err(|error| pem_error(&ca.display().to_string(), "certificate", &error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| {
        TlsError(format!(
            "cannot read {what}: {error}; check the path and who may read it"
        ))
    })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(pem_error(&what, "certificate", &pem::Error::NoItemsFound)),
        Err(error) => Err(pem_error(&what, "certificate", &error)),
    }
}

/// `what` is a path or the name of a secret, `kind` is `certificate` or `private key`.
fn pem_error(what: &str, kind: &'static str, error: &dyn Display) -> TlsError {
    TlsError(format!(
        "{what} holds no usable {kind} ({error}); give it as PEM"
    ))
}

/// Accepts any certificate, also one that cannot be read, such as those of X.509 version 1. Signatures are not checked either: without a trusted
/// certificate they prove nothing.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
