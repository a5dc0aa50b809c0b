//! Ends that both protocols have in common: sockets, TLS, rejections.

use std::{
    error::Error,
    fmt::{Debug, Display},
    io::{self, ErrorKind},
};

use rumqttc::{TlsError, tokio_rustls::rustls};

use super::policy::{AwayCause, ConnectionEnd};
use spotter_core::plain_line;

pub(super) fn login_refused(code: &dyn Debug) -> ConnectionEnd {
    AwayCause::Refused.because(format!(
        "the broker rejected the login ({code:?}); check user, password and the broker's rules for this client"
    ))
}

pub(super) fn unsupported() -> ConnectionEnd {
    AwayCause::Unsupported
        .because("the broker supports neither MQTT 5 nor 3.1.1; use another broker")
}

pub(super) fn closed() -> ConnectionEnd {
    AwayCause::Closed.because("the broker closed the connection")
}

/// Not a rejection: brokers answer so while they start.
pub(super) fn busy(code: &dyn Debug) -> ConnectionEnd {
    AwayCause::Lost.because(format!("the broker is busy ({code:?})"))
}

pub(super) fn quiet() -> ConnectionEnd {
    AwayCause::Lost.because("the broker did not answer a ping")
}

pub(super) fn connect_timeout() -> ConnectionEnd {
    AwayCause::Unanswered.because("the broker did not answer CONNECT in time")
}

/// The broker supports QoS 0 alone.
pub(super) fn no_qos_1() -> ConnectionEnd {
    AwayCause::Refused.because("the broker accepts no messages with QoS 1; allow them on the broker (max_qos), or set mqtt.max_qos = 0")
}

/// A message that is larger than [`PACKET_MAX_BYTES`](super::client::PACKET_MAX_BYTES).
pub(super) fn oversized() -> ConnectionEnd {
    AwayCause::Unreadable.because("the broker delivered a message larger than 512 KiB on a command topic; remove it from the broker if it is retained")
}

pub(super) fn unreadable(error: &dyn Display) -> ConnectionEnd {
    AwayCause::Unreadable.because(plain_line(&format!(
        "the broker sent data that is not valid MQTT: {error}"
    )))
}

pub(super) fn io(error: &io::Error) -> ConnectionEnd {
    if let Some(tls) = in_chain::<rustls::Error>(error) {
        return rustls(tls);
    }
    match error.kind() {
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => closed(),
        _ => AwayCause::Lost.because(plain_line(&format!("cannot reach the broker: {error}"))),
    }
}

pub(super) fn tls(error: &TlsError) -> ConnectionEnd {
    match in_chain::<rustls::Error>(error) {
        Some(error) => rustls(error),
        None => AwayCause::Lost.because(plain_line(&format!("TLS to the broker failed: {error}"))),
    }
}

fn rustls(error: &rustls::Error) -> ConnectionEnd {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    match error {
        // Not `Untrusted`: a machine without a battery starts in 1970, and certificates are renewed.
        rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        ) => AwayCause::Refused.because(format!(
            "the broker's certificate is not valid today ({error}); check this machine's clock and the certificate's dates"
        )),
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            let advice = advice_on_certificate(&error.to_string());
            let error = plain_line(&error.to_string());
            AwayCause::Untrusted.because(format!(
                "the broker's certificate is not trusted ({error}); {advice}"
            ))
        }
        error => AwayCause::Lost.because(plain_line(&format!("TLS to the broker failed: {error}"))),
    }
}

/// By the name of the error in the library that checks certificates.
fn advice_on_certificate(error: &str) -> &'static str {
    if error.contains("UnsupportedCertVersion") {
        "it is of X.509 version 1, which has no host names; give the broker one of version 3 with a subjectAltName, or set tls = { insecure = true }"
    } else if error.contains("CaUsedAsEndEntity") {
        "it is the certificate of an authority (CA:TRUE), as `openssl req -x509` makes them, and not one of a server; let the authority sign a certificate with CA:FALSE and a subjectAltName for the broker, or set tls = { insecure = true }"
    } else {
        "check the certificate authority (ca) and the host of the URL"
    }
}

/// The first error of type `T` among `error` and its causes. An `io::Error` hides the error that it wraps from
/// `source`, so that one is checked too.
fn in_chain<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}
