//! Why a request to a camera has no answer that can be used.

use std::time::Duration;

use crate::soap::SoapFault;

/// Never contains a login or the whole address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnvifError {
    #[error("{address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("{address} did not answer within {within:?}")]
    Timeout { address: String, within: Duration },
    #[error("{address} demands a login; give the user and the password of an ONVIF user")]
    LoginRequired { address: String },
    #[error(
        "{address} rejected the login; check user and password (many cameras have separate users for ONVIF), and that the user may read events and streams"
    )]
    LoginRejected { address: String },
    #[error(
        "{address} demands a login that Spotter does not know ({scheme}); switch the camera to digest"
    )]
    UnknownLogin { address: String, scheme: String },
    #[error("{address} answered {request} with HTTP {status}; {}", advice(*.status))]
    Status {
        address: String,
        request: &'static str,
        status: u16,
    },
    #[error("{address} refused {request}: {fault}")]
    Fault {
        address: String,
        request: &'static str,
        fault: SoapFault,
    },
    #[error(
        "{address} answered {request} with something that is not ONVIF ({reason}); check the address and that ONVIF is switched on in the camera"
    )]
    NotOnvif {
        address: String,
        request: &'static str,
        reason: String,
    },
    #[error("{address} has no {service} service; check that it is switched on in the camera")]
    NoService {
        address: String,
        service: &'static str,
    },
}

fn advice(status: u16) -> &'static str {
    match status {
        404 => "check the address and that ONVIF is switched on in the camera",
        301 | 302 | 307 | 308 => "redirects are not followed; give the address it redirects to",
        _ => "restart the camera if this continues",
    }
}

impl OnvifError {
    /// The camera understood the request and does not carry it out.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Fault { .. } => true,
            Self::Status { status, .. } => (400..=501).contains(status),
            _ => false,
        }
    }

    /// A repetition soon would be another wrong login, after which many cameras lock the user.
    pub(crate) fn is_about_login(&self) -> bool {
        matches!(
            self,
            Self::LoginRequired { .. } | Self::LoginRejected { .. } | Self::UnknownLogin { .. }
        )
    }

    pub(crate) fn is_about_number(&self) -> bool {
        matches!(self, Self::Fault { fault, .. } if fault.is_about_number())
    }

    /// The subscription does not exist any more.
    pub(crate) fn is_about_subscription(&self) -> bool {
        let codes = ["ResourceUnknownFault", "ResourceUnknown"];
        matches!(self, Self::Fault { fault, .. } if codes.iter().any(|code| fault.has_code(code)))
    }
}
