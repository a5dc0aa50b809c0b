//! A known model becomes a directory with verified files and their record.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    catalogue::{KnownModel, ModelSourceRepository},
    client::{
        FetchNews, HubClient, Listener, RecordedContent, RepositoryRecord, RequestFailure, amount,
    },
    error::HubError,
    hash::{FileHashes, sha256},
};
use spotter_core::{AcceptedLicence, FileReaders, ModelRecord, OpenFolder, RecordedFile};

/// Bytes that stay free for others beside the model.
const ROOM_LEFT: u64 = 64 << 20;

/// What to fetch, and who accepts its licence.
pub struct FetchRequest<'a> {
    pub model: &'a KnownModel,
    /// Where the files go.
    pub directory: &'a Path,
    /// UTC, like `2026-11-27`.
    pub today: String,
    /// Is asked before the first byte, for each licence that is not accepted yet. If it says no, nothing is fetched.
    pub accept: &'a mut dyn FnMut(&LicenceText<'_>) -> bool,
}

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

/// A repository, and what the hub records of it.
struct RepositoryAtCommit {
    source: &'static ModelSourceRepository,
    record: RepositoryRecord,
}

/// A file to fetch.
struct FileOrder<'a> {
    repository: &'a RepositoryAtCommit,
    name: &'a str,
    content: &'a RecordedContent,
    target: PathBuf,
}

/// `NAME.part`: what has arrived of a file, open and locked. It survives the process, so the next run continues it.
struct PartFile {
    name: String,
    /// For messages.
    path: PathBuf,
    file: File,
    length: u64,
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
    let mut good = Vec::new();
    let mut missing = 0_u64;
    for order in &orders {
        let sha256 = order.good(folder, listener)?;
        if sha256.is_none() {
            missing = missing.saturating_add(order.missing_bytes(folder));
        }
        good.push(sha256);
    }
    check_room(directory, missing, listener)?;
    let earlier = ModelRecord::read(directory).ok().flatten();
    let earlier_licences = earlier.as_ref().map_or(&[][..], |record| &record.licences);
    let mut licences = Vec::new();
    for repository in repositories.iter().filter(|r| r.source.has_own_licence) {
        let licence =
            accepted_licence(client, &mut request, repository, earlier_licences, listener)?;
        licences.push(licence);
    }
    let (mut files, mut parts) = (Vec::new(), Vec::new());
    for (order, good) in orders.iter().zip(good) {
        let sha256 = match good {
            Some(sha256) => {
                let note = format!("{}: here already, and verified", order.name);
                listener(&FetchNews::Note(note));
                sha256
            }
            None => {
                let (part, sha256) = order.fetch(client, folder, listener)?;
                parts.push((order, part));
                sha256
            }
        };
        files.push(order.recorded(sha256));
    }
    for (order, part) in parts {
        let renamed = folder.rename(part.name.as_ref(), order.name.as_ref());
        renamed.map_err(HubError::disk("replace", &order.target))?;
    }
    folder.sync().map_err(HubError::disk("write", directory))?;
    let record = ModelRecord {
        model: model.name.to_owned(),
        hub: Some(client.endpoint().to_owned()),
        files,
        licences,
        // The loader uses those of these weights.
        score_maps: earlier.map_or_else(Vec::new, |record| record.score_maps),
    };
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
        let ModelSourceRepository { name, revision, .. } = source;
        let record = client.record(name, revision, listener)?;
        let commit = match record.commit == *revision {
            true => String::new(),
            false => format!(" (commit {})", record.commit),
        };
        let licence = match &record.licence {
            Some(licence) => format!("licence {licence}"),
            None => format!("the hub names no licence; see the page of {name}"),
        };
        let note = format!("{name} at {revision}{commit}: {licence}");
        listener(&FetchNews::Note(note));
        repositories.push(RepositoryAtCommit { source, record });
    }
    Ok(repositories)
}

/// All files of all repositories, with what the hub records of them.
fn orders<'a>(
    repositories: &'a [RepositoryAtCommit],
    directory: &Path,
) -> Result<Vec<FileOrder<'a>>, HubError> {
    let mut orders = Vec::new();
    for repository in repositories {
        let RepositoryAtCommit { source, record } = repository;
        let mut names = Vec::from_iter(repository.licence_file());
        for wanted in source.files {
            names.extend(wanted.names(&record.files).map_err(|missing| {
                HubError::Final(format!(
                    "{} at this revision has no {missing}; update Spotter, or check HF_ENDPOINT if it names a mirror",
                    source.name
                ))
            })?);
        }
        for name in names {
            let content = record.files[name].as_ref().ok_or_else(|| {
                HubError::Final(format!(
                    "the hub's list of {} names no size and hash of {name}, so its content cannot be verified; HF_ENDPOINT may name a \
                     mirror that leaves them out: use another mirror, or the hub itself",
                    source.name
                ))
            })?;
            orders.push(FileOrder {
                repository,
                name,
                content,
                target: directory.join(name),
            });
        }
    }
    Ok(orders)
}

/// Shows the room that is needed; fails when so many bytes do not fit on the disk.
fn check_room(directory: &Path, missing: u64, listener: Listener<'_>) -> Result<(), HubError> {
    if missing == 0 {
        return Ok(());
    }
    let found = rustix::fs::statvfs(directory).map_err(io::Error::from);
    let found = found.map_err(HubError::disk("find the free space of", directory))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let (size, room) = (amount(missing), amount(free));
    let note = format!("{size} to fetch, {room} free on that disk");
    listener(&FetchNews::Note(note));
    let needed = missing.saturating_add(ROOM_LEFT).saturating_sub(free);
    match needed {
        0 => Ok(()),
        needed => Err(HubError::Final(format!(
            "{}: {needed} more bytes are needed and {free} are free; make room, or name another directory with --dir",
            directory.display()
        ))),
    }
}

/// The licence of a repository that requires its acceptance. What an earlier record of the directory has accepted is not asked again.
fn accepted_licence(
    client: &HubClient,
    request: &mut FetchRequest<'_>,
    at_commit: &RepositoryAtCommit,
    earlier: &[AcceptedLicence],
    listener: Listener<'_>,
) -> Result<AcceptedLicence, HubError> {
    let repository = at_commit.source.name;
    let page = format!("{}/{repository}", client.endpoint());
    let file = at_commit.licence_file().ok_or_else(|| {
        HubError::Final(format!(
            "{repository} has no licence file, so there is no text to accept; nothing was fetched: read {page}, and update Spotter"
        ))
    })?;
    let attempts = client.attempts(at_commit.url(client, file), file);
    let text = client.text(attempts, repository, listener)?;
    // The file itself is compared with the hub's record when it is fetched.
    let sha256 = sha256(text.as_bytes());
    let known = earlier.iter().find(|known| known.repository == repository);
    if let Some(known) = known.filter(|known| known.sha256 == sha256) {
        return Ok(known.clone());
    }
    let page = format!("{page}/blob/{}/{file}", at_commit.record.commit);
    let licence = LicenceText {
        repository,
        file,
        page: &page,
        text: &text,
        has_changed: known.is_some(),
    };
    if !(request.accept)(&licence) {
        let changed = match known {
            Some(_) => "has changed since it was accepted",
            None => "is not accepted",
        };
        return Err(HubError::Final(format!(
            "the licence of {repository} ({file}) {changed}, so nothing was fetched; read it at {page} and repeat the command with \
             --accept-licence"
        )));
    }
    let note = format!("licence of {repository} ({file}) accepted: {page}");
    listener(&FetchNews::Note(note));
    Ok(AcceptedLicence {
        repository: repository.to_owned(),
        file: file.to_owned(),
        sha256,
        accepted: request.today.clone(),
    })
}

impl RepositoryAtCommit {
    fn url(&self, client: &HubClient, file: &str) -> String {
        let (hub, repository) = (client.endpoint(), self.source.name);
        format!("{hub}/{repository}/resolve/{}/{file}", self.record.commit)
    }

    /// The name of the licence file, if its licence has to be accepted.
    fn licence_file(&self) -> Option<&str> {
        let mut names = self.record.files.keys();
        let name = names.find(|name| name.to_ascii_lowercase().contains("licen"))?;
        self.source.has_own_licence.then_some(name)
    }
}

impl FileOrder<'_> {
    /// The SHA-256 of the file in the directory, if it is the right one.
    fn good(
        &self,
        folder: &OpenFolder,
        listener: Listener<'_>,
    ) -> Result<Option<String>, HubError> {
        let cannot_read = || HubError::disk("read", &self.target);
        let Some(mut file) = folder.read(self.name.as_ref()).map_err(cannot_read())? else {
            return Ok(None);
        };
        if file.metadata().map_err(cannot_read())?.len() != self.content.size {
            return Ok(None);
        }
        let hashes = self.hashes(&mut file, listener).map_err(cannot_read())?;
        Ok((hashes.remote == self.content.hash).then_some(hashes.sha256))
    }

    /// Bytes that have not arrived.
    fn missing_bytes(&self, folder: &OpenFolder) -> u64 {
        let part = folder.read(part_name(self.name).as_ref()).ok().flatten();
        let there = part.and_then(|part| part.metadata().ok());
        let size = self.content.size;
        size.saturating_sub(there.map_or(0, |found| found.len()))
    }

    fn hashes(&self, file: &mut File, listener: Listener<'_>) -> io::Result<FileHashes> {
        let (name, size) = (self.name, self.content.size);
        FileHashes::of(file, &self.content.hash, size, |done| {
            listener(&FetchNews::Progress {
                verb: "checking",
                file: name,
                done,
                size,
            });
        })
    }

    /// Fetches the file to its part and verifies it; gives its SHA-256, too.
    fn fetch(
        &self,
        client: &HubClient,
        folder: &OpenFolder,
        listener: Listener<'_>,
    ) -> Result<(PartFile, String), HubError> {
        let name = self.name;
        let mut part = PartFile::open(folder, self)?;
        let mut received = String::new();
        // What an earlier run left may be of another revision, and a transfer may be damaged.
        for _ in 0..2 {
            self.receive(client, &mut part, listener)?;
            let cannot_read = || HubError::disk("read", &part.path);
            part.file.rewind().map_err(cannot_read())?;
            let hashes = self
                .hashes(&mut part.file, listener)
                .map_err(cannot_read())?;
            if hashes.remote == self.content.hash {
                // So that it survives a power failure.
                let written = part.file.sync_all();
                written.map_err(HubError::disk("write", &part.path))?;
                listener(&FetchNews::Note(format!("{name}: verified")));
                return Ok((part, hashes.sha256));
            }
            part.restart()?;
            received = hashes.remote.to_string();
            let note = format!("{name}: it has other content than the hub records; starting again");
            listener(&FetchNews::Note(note));
        }
        Err(HubError::Final(format!(
            "{} has the wrong content: the hub records {}, received was {received}, twice; nothing in the directory was changed; try \
             again later, or without the mirror or proxy that changes files",
            self.repository.url(client, name),
            self.content.hash
        )))
    }

    /// Requests what is missing until the part is complete.
    fn receive(
        &self,
        client: &HubClient,
        part: &mut PartFile,
        listener: Listener<'_>,
    ) -> Result<(), HubError> {
        let (repository, size) = (self.repository.source.name, self.content.size);
        let mut attempts = client.attempts(self.repository.url(client, self.name), self.name);
        while part.length < size {
            let before = part.length;
            let failure = match client.open(&attempts.url, repository, before) {
                Ok(transfer) => {
                    if transfer.start != before {
                        part.restart()?;
                    }
                    let body = transfer.body.take(size - part.length);
                    part.append(body, |done| {
                        listener(&FetchNews::Progress {
                            verb: "receiving",
                            file: self.name,
                            done,
                            size,
                        });
                    })?
                }
                Err(failure) => failure,
            };
            if part.length < size {
                attempts.wait(part.length > before, failure, listener)?;
            }
        }
        Ok(())
    }

    fn recorded(&self, sha256: String) -> RecordedFile {
        let RepositoryAtCommit { source, record } = self.repository;
        RecordedFile {
            name: self.name.to_owned(),
            repository: source.name.to_owned(),
            revision: source.revision.to_owned(),
            commit: record.commit.clone(),
            licence: record.licence.clone(),
            size: self.content.size,
            sha256,
        }
    }
}

fn part_name(name: &str) -> String {
    format!("{name}.part")
}

impl PartFile {
    fn open(folder: &OpenFolder, order: &FileOrder<'_>) -> Result<Self, HubError> {
        let name = part_name(order.name);
        let path = order.target.with_file_name(&name);
        let opened = folder.open(name.as_ref());
        let mut file = opened.map_err(HubError::disk("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                let text = format!("another process is fetching {path}; wait for it");
                return Err(HubError::Final(text));
            }
            Err(TryLockError::Error(error)) => return Err(HubError::disk("lock", &path)(error)),
        }
        let end = file.seek(SeekFrom::End(0));
        let mut part = Self {
            length: end.map_err(HubError::disk("read", &path))?,
            name,
            path,
            file,
        };
        if part.length > order.content.size {
            part.restart()?;
        }
        Ok(part)
    }

    /// Forgets what is there.
    fn restart(&mut self) -> Result<(), HubError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(HubError::disk("empty", &self.path))?;
        self.length = 0;
        Ok(())
    }

    /// Writes what `body` gives, and says why it gave no more. The part keeps what came before.
    fn append(
        &mut self,
        mut body: impl io::Read,
        mut seen: impl FnMut(u64),
    ) -> Result<RequestFailure, HubError> {
        let mut piece = vec![0; 256 << 10];
        loop {
            let count = match body.read(&mut piece) {
                Ok(0) => return Ok(RequestFailure::transient("the connection was cut")),
                Ok(count) => count,
                Err(error) => return Ok(RequestFailure::transient(error)),
            };
            let written = self.file.write_all(&piece[..count]);
            written.map_err(HubError::disk("write", &self.path))?;
            self.length += count as u64;
            seen(self.length);
        }
    }
}

#[cfg(test)]
mod tests;
