//! Files that are replaced as a whole, and folders in which another user may plant links.
//!
//! Root writes into folders of the service's user (`sudo spotter model get`, `calibrate`), who could plant a link to any file of
//! the machine. So in a folder of another user, or for root one in which others may write, no link is followed, and what is opened
//! is a plain file without other names.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

/// Opens a place, which this user need not be allowed to list.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Opens its content.
const LISTED: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Who may read what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileReaders {
    /// This user: events, pictures, settings.
    Owner,
    /// Every user: models, which root fetches for the service.
    Everyone,
}

impl FileReaders {
    /// The modes of a folder and of a file.
    fn modes(self) -> [Mode; 2] {
        let modes = match self {
            Self::Owner => [0o700, 0o600],
            Self::Everyone => [0o755, 0o644],
        };
        modes.map(Mode::from_raw_mode)
    }
}

/// Files that this process creates from now on are for its own user alone: state, pictures, caches of libraries. As `UMask=0077` of the
/// unit does, for a daemon outside of systemd.
pub fn keep_new_files_private() {
    rustix::process::umask(Mode::from_raw_mode(0o077));
}

/// The content of a file; an error when it has more than `max_bytes`. Blocks on the disk.
pub fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(max_bytes + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(io::Error::other(format!("longer than {max_bytes} bytes"))),
        false => Ok(bytes),
    }
}

/// The same as text, bytes that are not UTF-8 replaced; `None` when there is no file.
pub fn read_short_file(path: &Path, max_bytes: u64) -> io::Result<Option<String>> {
    match read_bounded(path, max_bytes) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file at `path`: after a crash or a power failure it has either its old or its new content. Creates the folder.
/// With several writers of one path, in one process or several, the last one wins. A crash leaves `NAME.tmp` at most, which the
/// next write replaces. Its owner alone may read it.
pub fn write_file_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_file_for(FileReaders::Owner, path, bytes)
}

/// [`write_file_atomically`] with other readers.
pub fn write_file_for(readers: FileReaders, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path has no file name",
        ));
    };
    let folder = OpenFolder::create(folder, readers)?;
    let mut temporary = name.to_owned();
    temporary.push(".tmp");
    let mut file = folder.open_locked(&temporary)?;
    let replaced = file
        .set_len(0)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| folder.rename(&temporary, name));
    if let Err(error) = replaced {
        // The cause is returned; the rest of a file that cannot be removed either adds nothing to it.
        let _ = rustix::fs::unlinkat(&folder.opened, &temporary, AtFlags::empty());
        return Err(error);
    }
    // Without this, a power failure can undo the rename.
    folder.sync()
}

/// An open folder. It stays the same when another user replaces its path.
#[derive(Debug)]
pub struct OpenFolder {
    opened: OwnedFd,
    readers: FileReaders,
    /// Another user can plant links in it: its owner, if that is neither this user nor root; for root also those who may write in it.
    is_foreign: bool,
}

impl OpenFolder {
    /// Opens the folder, and creates what is missing of its path.
    pub fn create(path: &Path, readers: FileReaders) -> io::Result<Self> {
        let start = if path.has_root() { "/" } else { "." };
        let opened = rustix::fs::open(start, FOLDER, Mode::empty())?;
        let mut folder = Self::of(opened, readers)?;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::ParentDir => OsStr::new(".."),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
            };
            folder = match folder.enter(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    folder.make(name)?;
                    folder.enter(name)?
                }
                entered => entered?,
            };
        }
        Ok(folder)
    }

    fn of(opened: OwnedFd, readers: FileReaders) -> io::Result<Self> {
        let found = rustix::fs::fstat(&opened)?;
        let user = rustix::process::geteuid();
        let is_of_another = found.st_uid != 0 && found.st_uid != user.as_raw();
        let mode = Mode::from_raw_mode(found.st_mode);
        // Where the sticky bit is, as in /tmp, the system follows no links of others (fs.protected_symlinks).
        let is_open = mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX);
        let is_foreign = is_of_another || (user.is_root() && is_open);
        Ok(Self {
            opened,
            readers,
            is_foreign,
        })
    }

    fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let flags = FOLDER | self.links();
        let opened = rustix::fs::openat(&self.opened, name, flags, Mode::empty());
        let mut entered = Self::of(opened.map_err(|error| self.named(error))?, self.readers)?;
        // Its owner can replace everything below it.
        entered.is_foreign |= self.is_foreign;
        Ok(entered)
    }

    fn make(&self, name: &OsStr) -> io::Result<()> {
        let [mode, _] = self.readers.modes();
        match rustix::fs::mkdirat(&self.opened, name, mode) {
            // Another process was faster.
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
        // Also with a narrow mask of this user.
        let flags = LISTED | OFlags::NOFOLLOW;
        let made = rustix::fs::openat(&self.opened, name, flags, Mode::empty())?;
        Ok(rustix::fs::fchmod(made, mode)?)
    }

    /// Links of this user and of root are theirs to make.
    fn links(&self) -> OFlags {
        match self.is_foreign {
            true => OFlags::NOFOLLOW,
            false => OFlags::empty(),
        }
    }

    /// Opens a file for reading; `None` when there is none. In the folder of another user, a link is an error.
    pub fn read(&self, name: &OsStr) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | self.links();
        match rustix::fs::openat(&self.opened, name, flags, Mode::empty()) {
            Ok(opened) => self.plain(opened).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.named(error)),
        }
    }

    /// Opens or creates a file for reading and writing, with the mode of the folder's readers. A link is an error.
    pub fn open(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let [_, mode] = self.readers.modes();
        let opened = rustix::fs::openat(&self.opened, name, flags | OFlags::NOFOLLOW, mode);
        let file = self.plain(opened.map_err(|error| self.named(error))?)?;
        rustix::fs::fchmod(&file, mode)?;
        Ok(file)
    }

    /// Opens the file when no other writer has it. Its lock ends with the file or the process.
    fn open_locked(&self, name: &OsStr) -> io::Result<File> {
        loop {
            let file = self.open(name)?;
            file.lock()?;
            // Another writer may have renamed or removed the file before it released the lock.
            let inode = rustix::fs::fstat(&file)?.st_ino;
            let found = rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|found| found.st_ino == inode) {
                return Ok(file);
            }
        }
    }

    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.opened, from, &self.opened, to)?)
    }

    /// Removes a file; a link itself, not what it points to.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.opened, name, AtFlags::empty())?)
    }

    /// Returns when the names in it survive a power failure.
    pub fn sync(&self) -> io::Result<()> {
        let listed = rustix::fs::openat(&self.opened, ".", LISTED, Mode::empty())?;
        Ok(rustix::fs::fsync(listed)?)
    }

    /// A file, and in the folder of another user one with no other name: that could be a file of this user elsewhere.
    fn plain(&self, opened: OwnedFd) -> io::Result<File> {
        let found = rustix::fs::fstat(&opened)?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || (self.is_foreign && found.st_nlink > 1) {
            return Err(self.planted());
        }
        Ok(opened.into())
    }

    /// What the system says of a link that is not followed, in words.
    fn named(&self, error: Errno) -> io::Error {
        match error {
            Errno::LOOP | Errno::MLINK => self.planted(),
            Errno::NOTDIR if self.is_foreign => self.planted(),
            error => error.into(),
        }
    }

    fn planted(&self) -> io::Error {
        io::Error::other(
            "it is a link or no plain file, which is not followed here; remove it, or use another directory",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsString,
        fs::{self, Permissions},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    };

    use super::*;

    /// A user that is neither this one nor root.
    const SERVICE: u32 = 61_234;

    fn files(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn write_replaces_earlier_content_and_the_rest_of_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/state.json");
        write_file_atomically(&path, b"a long first content").unwrap();
        // A crash between write and rename.
        let unfinished = path.with_extension("json.tmp");
        fs::write(unfinished, b"a long unfinished content").unwrap();
        write_file_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(files(path.parent().unwrap()), ["state.json"]);
    }

    #[test]
    fn failed_write_keeps_the_target_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        // A folder cannot be replaced by a file.
        let path = folder.path().join("state.json");
        fs::create_dir(&path).unwrap();
        write_file_atomically(&path, b"content").unwrap_err();
        write_file_atomically(Path::new("/"), b"content").unwrap_err();
        assert!(path.is_dir());
        assert_eq!(files(folder.path()), ["state.json"]);
    }

    #[test]
    fn concurrent_writers_of_one_path_write_complete_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("state.json");
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                scope.spawn(move || {
                    for _ in 0..8 {
                        write_file_atomically(path, &[writer; 4096]).unwrap();
                    }
                });
            }
        });
        let content = fs::read(path).unwrap();
        assert_eq!(content, [content[0]; 4096]);
        assert_eq!(files(folder.path()), ["state.json"]);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    // Faults: K12.
    #[test]
    fn files_and_folders_have_the_mode_of_their_readers() {
        for (readers, of_folder, of_file) in [
            (FileReaders::Owner, 0o700, 0o600),
            (FileReaders::Everyone, 0o755, 0o644),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a/b/state.json");
            write_file_for(readers, &path, b"content").unwrap();
            assert_eq!(mode(&folder.path().join("a")), of_folder);
            assert_eq!(mode(&folder.path().join("a/b")), of_folder);
            assert_eq!(mode(&path), of_file);
            // The next write closes a file that an earlier version left.
            fs::write(path.with_extension("json.tmp"), b"left by a crash").unwrap();
            write_file_for(readers, &path, b"again").unwrap();
            assert_eq!(mode(&path), of_file);
        }
    }

    // Faults: M11.
    /// Runs as root alone: another user's folder cannot be made by anyone else.
    #[test]
    fn links_in_the_folder_of_another_user_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let (of_service, target) = (root.path().join("service"), root.path().join("etc"));
        fs::create_dir(&of_service).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("shadow"), b"secret").unwrap();
        chown(&of_service, Some(SERVICE), None).unwrap();

        let planted = root.path().join("planted.tmp");
        symlink(target.join("shadow"), planted).unwrap();
        let error = write_file_atomically(&root.path().join("planted"), b"x").unwrap_err();
        assert!(error.to_string().contains("it is a link"), "{error}");

        // A folder, a folder in a folder that root made, a file under another name.
        symlink(&target, of_service.join("models")).unwrap();
        write_file_atomically(&of_service.join("models/new"), b"x").unwrap_err();
        write_file_atomically(&of_service.join("made/state"), b"x").unwrap();
        symlink(&target, of_service.join("made/models")).unwrap();
        write_file_atomically(&of_service.join("made/models/new"), b"x").unwrap_err();
        fs::hard_link(target.join("shadow"), of_service.join("state.tmp")).unwrap();
        write_file_atomically(&of_service.join("state"), b"x").unwrap_err();
        symlink(target.join("shadow"), of_service.join("config")).unwrap();
        let folder = OpenFolder::create(&of_service, FileReaders::Everyone).unwrap();
        folder.read("config".as_ref()).unwrap_err();
        assert!(folder.read("missing".as_ref()).unwrap().is_none());
        assert_eq!(files(&target), ["shadow"]);
        assert_eq!(fs::read(target.join("shadow")).unwrap(), b"secret");

        // A folder of root in which the service may write, as members of a group do.
        let shared = root.path().join("shared");
        fs::create_dir(&shared).unwrap();
        symlink(&target, shared.join("models")).unwrap();
        for mode in [0o775, 0o777, 0o1777, 0o755] {
            let is_followed = matches!(mode, 0o1777 | 0o755);
            fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
            let folder = OpenFolder::create(&shared.join("models"), FileReaders::Owner);
            assert_eq!(folder.is_ok(), is_followed, "{mode:o}");
        }

        // A link that root made leads where root wants, as systemd's of a state directory.
        symlink(&of_service, root.path().join("state")).unwrap();
        write_file_atomically(&root.path().join("state/new"), b"x").unwrap();
        assert_eq!(fs::read(of_service.join("new")).unwrap(), b"x");
    }
}
