//! A connection to a camera by GIO, with TLS where the URL says so, and never through a proxy.

use std::{net::IpAddr, sync::Once, time::Duration};

use gio::{
    glib::{self, object::Class},
    prelude::*,
};
use sha2::{Digest, Sha256};
use url::Url;

use super::dialogue::port;
use crate::ingest::health::Failure;
use spotter_config::CameraTls;
use spotter_core::StreamFault;

const NO_TLS: &str = "no TLS connection; check that the camera accepts rtsps:// at this port";

/// Registers what relays and rtspsrc use of GIO, once and in one thread. In GLib 2.74, a thread that makes the class of a
/// socket client and one that registers the types of sockets can wait for each other for ever.
pub fn register_socket_types() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let classes = (
            Class::<gio::SocketClient>::from_type(gio::SocketClient::static_type()),
            Class::<gio::SocketListener>::from_type(gio::SocketListener::static_type()),
            Class::<gio::Socket>::from_type(gio::Socket::static_type()),
            Class::<gio::TcpConnection>::from_type(gio::TcpConnection::static_type()),
            Class::<gio::NetworkAddress>::from_type(gio::NetworkAddress::static_type()),
            Class::<gio::InetSocketAddress>::from_type(gio::InetSocketAddress::static_type()),
        );
        // The types of TLS and of names come with modules.
        let modules = (gio::TlsBackend::default(), gio::Resolver::default());
        drop((classes, modules));
    });
}

/// Both directions. It ends when it is dropped.
pub struct CameraConnection {
    pub stream: gio::IOStream,
    /// The camera's address.
    pub peer: Option<IpAddr>,
}

impl CameraConnection {
    /// Connects within `limit`.
    pub async fn open(url: &Url, tls: &CameraTls, limit: Duration) -> Result<Self, Failure> {
        let opened = async {
            let host = url.host_str().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let address = gio::NetworkAddress::new(host, port(url));
            let client = gio::SocketClient::new();
            // A proxy of the machine is for the web; cameras are in its own network.
            client.set_enable_proxy(false);
            let connected = client.connect_future(&address).await;
            let socket = connected.map_err(|_| Failure::of(StreamFault::Unreachable))?;
            let peer = socket.remote_address().ok();
            let peer = peer.and_downcast::<gio::InetSocketAddress>();
            let peer = peer.and_then(|peer| peer.address().to_str().parse().ok());
            let stream: gio::IOStream = match url.scheme() {
                "rtsps" => encrypted(&socket, &address, tls).await?.upcast(),
                _ => socket.upcast(),
            };
            Ok(Self { stream, peer })
        };
        tokio::select! {
            opened = opened => opened,
            () = glib::timeout_future(limit) => Err(Failure::of(StreamFault::Unreachable)),
        }
    }
}

/// With a configured fingerprint, only the certificate with that fingerprint is accepted, also when an authority vouches for another
/// one.
async fn encrypted(
    socket: &gio::SocketConnection,
    address: &gio::NetworkAddress,
    tls: &CameraTls,
) -> Result<gio::TlsConnection, Failure> {
    let failed = |_: glib::Error| Failure::new(StreamFault::Tls, NO_TLS);
    let connection = gio::TlsClientConnection::new(socket, Some(address)).map_err(failed)?;
    let connection: gio::TlsConnection = connection.upcast();
    // The signal does not come for a session that is resumed, so the certificate is checked behind it.
    connection.connect_accept_certificate(|_, _, _| true);
    let shaken = connection.handshake_future(glib::Priority::DEFAULT).await;
    shaken.map_err(failed)?;
    let is_accepted = match tls {
        CameraTls::Insecure => true,
        CameraTls::Verify => connection.peer_certificate_errors().is_empty(),
        CameraTls::Fingerprint(pinned) => {
            let certificate = connection.peer_certificate();
            certificate.is_some_and(|certificate| is_pinned(&certificate, pinned))
        }
    };
    is_accepted
        .then_some(connection)
        .ok_or_else(|| Failure::of(StreamFault::Tls))
}

fn is_pinned(certificate: &gio::TlsCertificate, pinned: &[u8; 32]) -> bool {
    let der = certificate.property::<glib::ByteArray>("certificate");
    Sha256::digest(&*der)[..] == *pinned
}
