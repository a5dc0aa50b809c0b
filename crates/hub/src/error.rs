//! Why a model cannot be fetched.

use std::{io, path::PathBuf};

/// Each text says what was tried, what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// After several attempts. What is on the disk already is used by the next run.
    #[error(
        "cannot fetch {url}: {reason}; check the network, HTTPS_PROXY (a proxy) and HF_ENDPOINT (a mirror of the hub), and \
         run the command again: it continues where it ended"
    )]
    Unreachable { url: String, reason: String },
    /// Another attempt would change nothing.
    #[error("{0}")]
    Final(String),
}

impl HubError {
    /// For `map_err`: an error of the disk while doing `action` with `path`.
    pub(crate) fn disk(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| {
            let path = path.display();
            Self::Final(match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
                    "the disk is full while writing {path}: make room and run the command again, it continues where it ended; or name \
                     another directory with --dir"
                ),
                _ => format!("cannot {action} {path}: {error}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: M8.
    #[test]
    fn full_disk_has_an_error_of_its_own() {
        for (kind, expected) in [
            (
                io::ErrorKind::StorageFull,
                "the disk is full while writing /m/a.part",
            ),
            (
                io::ErrorKind::PermissionDenied,
                "cannot write /m/a.part: permission denied",
            ),
        ] {
            let error = HubError::disk("write", "/m/a.part")(kind.into()).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
