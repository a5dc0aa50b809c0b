//! Licences that the user accepts before a model is fetched.

use crate::{
    client::HubClient,
    error::HubError,
    fetch::{FetchNews, FetchRequest, Listener, RepositoryAtCommit},
    hash::sha256,
};
use spotter_core::{AcceptedLicence, ModelRecord};

/// A licence to accept.
#[derive(Debug)]
pub struct LicenceText<'a> {
    pub repository: &'a str,
    /// Its licence file.
    pub file: &'a str,
    /// Its page, at the commit.
    pub page: &'a str,
    /// From the hub: not safe to print.
    pub text: &'a str,
    /// The user accepted another text of this repository before.
    pub has_changed: bool,
}

/// The name of the licence file of a repository whose licence has to be accepted.
pub(crate) fn licence_file(repository: &RepositoryAtCommit) -> Option<&str> {
    let RepositoryAtCommit { source, record } = repository;
    let is_licence = |name: &&String| {
        // It is shown, and becomes a name on the disk and in a URL.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_short = name.len() <= 100;
        is_short && name.bytes().all(is_plain) && name.to_ascii_lowercase().contains("licen")
    };
    let name = record.files.keys().find(is_licence)?;
    source.has_own_licence.then_some(name)
}

/// The accepted licences of all repositories that require it. What an earlier record of the directory has accepted is not asked again.
pub(crate) fn accepted_licences(
    client: &HubClient,
    request: &mut FetchRequest<'_>,
    repositories: &[RepositoryAtCommit],
    listener: Listener<'_>,
) -> Result<Vec<AcceptedLicence>, HubError> {
    let earlier = ModelRecord::read(request.directory).ok().flatten();
    let earlier = earlier.map_or_else(Vec::new, |record| record.licences);
    let mut licences = Vec::new();
    for at_commit in repositories {
        if !at_commit.source.has_own_licence {
            continue;
        }
        let repository = at_commit.source.name;
        let file = licence_file(at_commit).ok_or_else(|| HubError::NoLicenceFile {
            repository: repository.to_owned(),
            page: format!("{}/{repository}", client.endpoint()),
        })?;
        let address = at_commit.address(file);
        let text = client.text(&address, |reason, pause| {
            listener(&FetchNews::Repeated {
                file,
                reason,
                pause,
            });
        })?;
        // The file itself is compared with the hub's record when it is fetched.
        let sha256 = sha256(text.as_bytes());
        let known = earlier.iter().find(|known| known.repository == repository);
        if let Some(known) = known.filter(|known| known.sha256 == sha256) {
            licences.push(known.clone());
            continue;
        }
        let licence = LicenceText {
            repository,
            file,
            page: &format!(
                "{}/{repository}/blob/{}/{file}",
                client.endpoint(),
                address.commit
            ),
            text: &text,
            has_changed: known.is_some(),
        };
        (request.accept)(&licence).map_err(|reason| HubError::LicenceNotAccepted {
            repository: repository.to_owned(),
            file: file.to_owned(),
            reason,
        })?;
        licences.push(AcceptedLicence {
            repository: repository.to_owned(),
            file: file.to_owned(),
            sha256,
            accepted: request.today.clone(),
        });
    }
    Ok(licences)
}
