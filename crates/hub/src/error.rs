//! Why a model cannot be fetched.

use std::{io, path::PathBuf};

/// Each text says what was tried, what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("{0}")]
    Settings(String),
    /// After several attempts. What is on the disk already is used by the next run.
    #[error(
        "cannot fetch {url}: {reason}; check the network, HTTPS_PROXY (a proxy) and HF_ENDPOINT (a mirror of the hub), and \
         run the command again: it continues where it ended"
    )]
    Unreachable { url: String, reason: String },
    #[error(
        "the hub refused {url} without a login (HTTP {status}); log in at {page}, accept its conditions if it shows some, and set \
         HF_TOKEN to a token of that account"
    )]
    LoginNeeded {
        url: String,
        /// The repository, for a browser.
        page: String,
        status: u16,
    },
    #[error(
        "the hub does not know the token of HF_TOKEN (HTTP 401 for {url}): it is mistyped, expired or was revoked; set HF_TOKEN to a \
         valid token"
    )]
    TokenRejected { url: String },
    #[error(
        "the account of HF_TOKEN has no access to {url} (HTTP {status}); accept the conditions at {page} with that account, and allow a \
         fine-grained token to read gated repositories"
    )]
    AccessNotGranted {
        url: String,
        page: String,
        status: u16,
    },
    #[error(
        "{repository} has no licence file, so there is no text to accept; nothing was fetched: read {page}, and update Spotter"
    )]
    NoLicenceFile { repository: String, page: String },
    #[error("the licence of {repository} ({file}) was not accepted: {reason}; nothing was fetched")]
    LicenceNotAccepted {
        repository: String,
        file: String,
        reason: String,
    },
    #[error(
        "the hub has no {url} (HTTP 404); if HF_ENDPOINT names a mirror, the mirror may lack {repository} at this revision"
    )]
    NotFound { url: String, repository: String },
    #[error("the hub answered {url} with HTTP {status}; check HF_ENDPOINT, or try again later")]
    Refused { url: String, status: u16 },
    #[error("the answer of {url} is not one of the hub's: {reason}; check HF_ENDPOINT")]
    NotTheHub { url: String, reason: String },
    #[error(
        "{repository} at this revision has no {file}; update Spotter, or check HF_ENDPOINT if it names a mirror"
    )]
    FileMissing { repository: String, file: String },
    #[error(
        "the hub's list of {repository} names no size and hash of {file}, so its content cannot be verified; HF_ENDPOINT may name a \
         mirror that leaves them out: use another mirror, or the hub itself"
    )]
    NoSize { repository: String, file: String },
    #[error(
        "{url} has the wrong content: the hub records {expected}, received was {found}, twice; nothing in the directory was \
         changed; try again later, or without the mirror or proxy that changes files"
    )]
    WrongHash {
        url: String,
        expected: String,
        found: String,
    },
    #[error("{}: {needed} more bytes are needed and {free} are free; make room, or name another directory with --dir", path.display())]
    NoRoom {
        path: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("the disk is full while writing {}: make room and run the command again, it continues where it ended; or name another \
             directory with --dir", path.display())]
    DiskFull { path: PathBuf },
    #[error("another process is fetching {}; wait for it", path.display())]
    Busy { path: PathBuf },
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl HubError {
    /// For `map_err`: an error of the disk while doing `action` with `path`.
    pub(crate) fn disk(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Disk {
                action,
                path,
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: M8.
    #[test]
    fn full_disk_has_an_error_of_its_own() {
        let full = HubError::disk("write", "/m/a.part")(io::ErrorKind::StorageFull.into());
        assert!(
            full.to_string()
                .starts_with("the disk is full while writing /m/a.part")
        );
        let denied = HubError::disk("write", "/m/a.part")(io::ErrorKind::PermissionDenied.into());
        assert_eq!(
            denied.to_string(),
            "cannot write /m/a.part: permission denied"
        );
    }
}
