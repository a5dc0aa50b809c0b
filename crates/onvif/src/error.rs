//! Why a request to a camera has no answer that can be used.

use std::time::Duration;

use crate::soap::SoapFault;

/// Never contains a login or the whole address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address}{problem}")]
pub struct OnvifError {
    pub(crate) address: String,
    pub(crate) problem: OnvifProblem,
}

/// What is said of the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OnvifProblem {
    #[error(": {0}")]
    Unreachable(String),
    #[error(" did not answer within {0:?}")]
    Timeout(Duration),
    #[error(" demands a login; give the user and the password of an ONVIF user")]
    LoginRequired,
    #[error(
        " rejected the login; check user and password (many cameras have separate users for ONVIF), and that the user may read events and streams"
    )]
    LoginRejected,
    #[error(" demands a login that Spotter does not know ({0}); switch the camera to digest")]
    UnknownLogin(String),
    #[error(" answered {request} with HTTP {status}; {}", advice(*.status))]
    Status { request: &'static str, status: u16 },
    #[error(" refused {request}: {fault}")]
    Fault {
        request: &'static str,
        fault: SoapFault,
    },
    #[error(
        " answered {request} with something that is not ONVIF ({reason}); check the address and that ONVIF is switched on in the camera"
    )]
    NotOnvif {
        request: &'static str,
        reason: String,
    },
    #[error(" has no {0} service; check that it is switched on in the camera")]
    NoService(&'static str),
}

fn advice(status: u16) -> &'static str {
    match status {
        404 => "check the address and that ONVIF is switched on in the camera",
        301 | 302 | 307 | 308 => "redirects are not followed; give the address it redirects to",
        _ => "restart the camera if this continues",
    }
}

impl OnvifProblem {
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
            Self::LoginRequired | Self::LoginRejected | Self::UnknownLogin(_)
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
