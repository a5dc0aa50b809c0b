//! A known model becomes a directory with verified files and their record.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    catalogue::{KnownModel, ModelSourceRepository},
    client::{FileAddress, HubClient, RecordedContent, RepositoryRecord},
    directory::free_bytes,
    error::HubError,
    hash::{FileHasher, FileHashes, hash_all},
    licence::{LicenceText, accepted_licences, licence_file},
    part::{PartFile, length_of_part},
};
use spotter_core::{FileReaders, ModelRecord, OpenFolder, RecordedFile};

/// Bytes that stay free for others beside the model.
const ROOM_LEFT: u64 = 64 << 20;

/// What happens while a model is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchNews<'a> {
    /// The hub's record of a repository.
    Repository {
        name: &'a str,
        revision: &'a str,
        commit: &'a str,
        licence: Option<&'a str>,
    },
    /// Bytes that are missing, and bytes that are free for them. Comes before the licences and the first byte of a file.
    Room { missing: u64, free: u64 },
    /// Bytes of a file on this disk that were compared with the hub's record.
    Checked { file: &'a str, done: u64, size: u64 },
    /// The file is on this disk already.
    Kept { file: &'a str },
    /// Bytes of a file that are there, those of earlier runs included.
    Received { file: &'a str, done: u64, size: u64 },
    /// The connection was cut, or the hub cannot answer now.
    Repeated {
        /// Or the repository, whose record is requested.
        file: &'a str,
        reason: &'a str,
        pause: Duration,
    },
    /// An earlier part was not of this file; it begins again.
    Restarted { file: &'a str },
    /// The file is complete, and its hash is that of the hub's record.
    Verified { file: &'a str },
}

/// Receives news; a terminal, or a test.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(&FetchNews<'_>);

/// A repository, and what the hub records of it.
pub(crate) struct RepositoryAtCommit {
    pub source: &'static ModelSourceRepository,
    pub record: RepositoryRecord,
}

/// What to fetch, and who accepts its licence.
pub struct FetchRequest<'a> {
    pub model: &'a KnownModel,
    /// Where the files go.
    pub directory: &'a Path,
    /// UTC, like `2026-11-27`.
    pub today: String,
    /// Is called before the first byte, for each licence that is not accepted yet; the error says why it is not.
    pub accept: &'a mut dyn FnMut(&LicenceText<'_>) -> Result<(), String>,
}

/// A file to fetch.
struct FileOrder<'a> {
    repository: &'a RepositoryAtCommit,
    name: &'a str,
    content: &'a RecordedContent,
    target: PathBuf,
}

/// A file whose content is on the disk and verified.
struct StagedFile {
    sha256: String,
    /// `None` when it is in its place already.
    part: Option<PartFile>,
}

/// Fetches the files of a model that its directory does not have yet, and writes the record of all of them. Before every file is
/// complete and verified, nothing in the directory changes but `NAME.part`. Blocks.
pub fn fetch(
    client: &HubClient,
    mut request: FetchRequest<'_>,
    listener: Listener<'_>,
) -> Result<ModelRecord, HubError> {
    let (model, directory) = (request.model, request.directory);
    let repositories = repositories(client, model, listener)?;
    let orders = orders(&repositories, directory)?;
    // The service, which is another user, has to read what root fetches; none of it is secret.
    let folder = OpenFolder::create(directory, FileReaders::Everyone);
    let folder = &folder.map_err(HubError::disk("create or open", directory))?;
    let good = orders.iter().map(|order| order.good(folder, listener));
    let good: Vec<Option<FileHashes>> = good.collect::<Result<_, _>>()?;
    check_room(directory, folder, orders.iter().zip(&good), listener)?;
    let licences = accepted_licences(client, &mut request, &repositories, listener)?;
    let mut staged = Vec::new();
    for (order, good) in orders.iter().zip(good) {
        staged.push(order.stage(client, folder, good, listener)?);
    }
    let files = orders
        .iter()
        .zip(&staged)
        .map(|(order, staged)| order.recorded(&staged.sha256));
    let record = ModelRecord {
        model: model.name.to_owned(),
        hub: Some(client.endpoint().to_owned()),
        files: files.collect(),
        licences,
        // The loader uses those of these weights.
        score_maps: ModelRecord::read(directory)
            .ok()
            .flatten()
            .map_or_else(Vec::new, |record| record.score_maps),
    };
    for (order, staged) in orders.iter().zip(staged) {
        if let Some(part) = staged.part {
            part.install(folder, &order.target)?;
        }
    }
    folder.sync().map_err(HubError::disk("write", directory))?;
    let written = record.write(directory);
    written.map_err(HubError::disk("write", directory.join(ModelRecord::FILE)))?;
    Ok(record)
}

/// The records of the repositories of a model.
fn repositories(
    client: &HubClient,
    model: &KnownModel,
    listener: Listener<'_>,
) -> Result<Vec<RepositoryAtCommit>, HubError> {
    let mut repositories = Vec::new();
    for source in model.repositories {
        let file = source.name;
        let record = client.record(file, source.revision, |reason, pause| {
            listener(&FetchNews::Repeated {
                file,
                reason,
                pause,
            });
        })?;
        listener(&FetchNews::Repository {
            name: source.name,
            revision: source.revision,
            commit: &record.commit,
            licence: record.licence.as_deref(),
        });
        repositories.push(RepositoryAtCommit { source, record });
    }
    Ok(repositories)
}

impl RepositoryAtCommit {
    pub fn address<'a>(&'a self, name: &'a str) -> FileAddress<'a> {
        FileAddress {
            repository: self.source.name,
            commit: &self.record.commit,
            name,
        }
    }

    /// Size and hash of a file that it lists.
    pub fn content(&self, file: &str) -> Result<&RecordedContent, HubError> {
        let (repository, name) = (self.source.name.to_owned(), file.to_owned());
        match self.record.files.get(file) {
            Some(Some(content)) => Ok(content),
            Some(None) => Err(HubError::NoSize {
                repository,
                file: name,
            }),
            None => Err(HubError::FileMissing {
                repository,
                file: name,
            }),
        }
    }
}

/// All files of all repositories, with what the hub records of them.
fn orders<'a>(
    repositories: &'a [RepositoryAtCommit],
    directory: &Path,
) -> Result<Vec<FileOrder<'a>>, HubError> {
    let mut orders = Vec::new();
    for repository in repositories {
        let RepositoryAtCommit { source, record } = repository;
        let mut names = Vec::from_iter(licence_file(repository));
        for wanted in source.files {
            let wanted = wanted.names(&record.files);
            names.extend(wanted.map_err(|file| HubError::FileMissing {
                repository: source.name.to_owned(),
                file,
            })?);
        }
        for name in names {
            orders.push(FileOrder {
                repository,
                name,
                content: repository.content(name)?,
                target: directory.join(name),
            });
        }
    }
    Ok(orders)
}

/// Shows the room that is needed; fails when the files that are not there do not fit on the disk.
fn check_room<'a>(
    directory: &Path,
    folder: &OpenFolder,
    files: impl Iterator<Item = (&'a FileOrder<'a>, &'a Option<FileHashes>)>,
    listener: Listener<'_>,
) -> Result<(), HubError> {
    let missing = files.filter(|(_, good)| good.is_none());
    let missing = missing.map(|(order, _)| {
        let there = length_of_part(folder, &order.target);
        order.content.size.saturating_sub(there)
    });
    let missing = missing.fold(0, u64::saturating_add);
    let free = free_bytes(directory)?;
    if missing > 0 {
        listener(&FetchNews::Room { missing, free });
    }
    if missing > 0 && missing.saturating_add(ROOM_LEFT) > free {
        return Err(HubError::NoRoom {
            path: directory.to_owned(),
            needed: missing.saturating_add(ROOM_LEFT).saturating_sub(free),
            free,
        });
    }
    Ok(())
}

impl FileOrder<'_> {
    fn address(&self) -> FileAddress<'_> {
        self.repository.address(self.name)
    }

    /// The hashes of the file in the directory, if it is the right one.
    fn good(
        &self,
        folder: &OpenFolder,
        listener: Listener<'_>,
    ) -> Result<Option<FileHashes>, HubError> {
        let size = self.content.size;
        let cannot_read = || HubError::disk("read", &self.target);
        let Some(mut opened) = folder.read(self.name.as_ref()).map_err(cannot_read())? else {
            return Ok(None);
        };
        if opened.metadata().map_err(cannot_read())?.len() != size {
            return Ok(None);
        }
        let mut hasher = FileHasher::like(&self.content.hash, size);
        let file = self.name;
        let seen = |done| listener(&FetchNews::Checked { file, done, size });
        hash_all(&mut opened, &mut hasher, seen).map_err(cannot_read())?;
        let hashes = hasher.finish();
        Ok((hashes.remote == self.content.hash).then_some(hashes))
    }

    /// Fetches the file to its part, unless it is `good`, and verifies it.
    fn stage(
        &self,
        client: &HubClient,
        folder: &OpenFolder,
        good: Option<FileHashes>,
        listener: Listener<'_>,
    ) -> Result<StagedFile, HubError> {
        let file = self.name;
        if let Some(hashes) = good {
            listener(&FetchNews::Kept { file });
            return Ok(StagedFile {
                sha256: hashes.sha256,
                part: None,
            });
        }
        let size = self.content.size;
        let seen = |done| listener(&FetchNews::Checked { file, done, size });
        let mut part = PartFile::open(folder, &self.target, self.content.clone(), seen)?;
        let had = part.length();
        self.complete(client, &mut part, listener)?;
        let mut found = part.hashes();
        // What an earlier run left may be of another revision, and a transfer may be damaged.
        if found.remote != self.content.hash {
            if had > 0 {
                listener(&FetchNews::Restarted { file });
            }
            part.restart()?;
            self.complete(client, &mut part, listener)?;
            found = part.hashes();
        }
        if found.remote != self.content.hash {
            part.restart()?;
            return Err(HubError::WrongHash {
                url: client.url(&self.address()),
                expected: self.content.hash.to_string(),
                found: found.remote.to_string(),
            });
        }
        part.sync()?;
        listener(&FetchNews::Verified { file });
        Ok(StagedFile {
            sha256: found.sha256,
            part: Some(part),
        })
    }

    /// Requests what is missing until the part is complete.
    fn complete(
        &self,
        client: &HubClient,
        part: &mut PartFile,
        listener: Listener<'_>,
    ) -> Result<(), HubError> {
        let (file, size) = (self.name, self.content.size);
        let mut patience = client.patience();
        while !part.is_complete() {
            let before = part.length();
            let (reason, after) = match client.open(&self.address(), before, size) {
                Ok(transfer) => {
                    if transfer.start != before {
                        part.restart()?;
                    }
                    let seen = |done| listener(&FetchNews::Received { file, done, size });
                    match part.receive(transfer.body, seen)? {
                        Ok(()) => ("the connection was cut".to_owned(), None),
                        Err(error) => (error.to_string(), None),
                    }
                }
                Err(failure) => failure.into_reason()?,
            };
            if part.is_complete() {
                break;
            }
            let Some(pause) = patience.pause(part.length() > before, after) else {
                let url = client.url(&self.address());
                return Err(HubError::Unreachable { url, reason });
            };
            let reason = &reason;
            listener(&FetchNews::Repeated {
                file,
                reason,
                pause,
            });
            std::thread::sleep(pause);
        }
        Ok(())
    }

    fn recorded(&self, sha256: &str) -> RecordedFile {
        let RepositoryAtCommit { source, record } = self.repository;
        RecordedFile {
            name: self.name.to_owned(),
            repository: source.name.to_owned(),
            revision: source.revision.to_owned(),
            commit: record.commit.clone(),
            licence: record.licence.clone(),
            size: self.content.size,
            sha256: sha256.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
