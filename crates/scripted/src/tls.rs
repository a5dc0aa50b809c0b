//! Certificates of servers on loopback, made by the command `openssl`, and TLS in front of scripted servers.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::receiver::ReceiverStream;

/// Two authorities (`ca`, `other`), and certificates of the first for localhost (`server`, `client`): `ca.pem`, `server.pem`, `server.key`.
pub fn certificates(directory: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for ca in ["ca", "other"] {
        openssl(
            directory,
            &format!("req -x509 {key} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}"),
        );
    }
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n";
    fs::write(directory.join("names"), names).unwrap();
    for who in ["server", "client"] {
        openssl(
            directory,
            &format!("req {key} -keyout {who}.key -out {who}.csr -subj /CN={who}"),
        );
        sign(directory, who, "ca", &format!("{who}.pem"));
    }
}

/// Another certificate of `who` (`server`, `client`), signed by an authority (`ca`, `other`).
pub fn sign(directory: &Path, who: &str, authority: &str, certificate: &str) {
    openssl(
        directory,
        &format!(
            "x509 -req -in {who}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {certificate} -days 2 -extfile names"
        ),
    );
}

fn openssl(directory: &Path, arguments: &str) {
    let done = Command::new("openssl")
        .current_dir(directory)
        .args(arguments.split_whitespace())
        .stderr(Stdio::null())
        .status();
    let done = done.expect("tests need openssl");
    assert!(done.success(), "openssl {arguments}");
}

/// Accepts connections with the server's certificate of [`certificates`].
pub fn tls_server(
    directory: &Path,
) -> impl Fn(TcpStream) -> Option<Box<dyn ReceiverStream>> + Send + Sync + 'static {
    let config = tls_config(directory);
    move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        Some(Box::new(StreamOwned::new(connection, stream)))
    }
}

/// A server with the server's certificate of [`certificates`].
pub fn tls_config(directory: &Path) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(directory.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}
