//! The adapters of an engine. Their list changes while it runs: rows that have begun keep what they began with.
//!
//! Faults: E11.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::error::EngineError;
use crate::{
    model::{AdapterFile, ModelConfig, WeightsError},
    scheduler::backend::{AdapterNumber, LoadedAdapter},
};
use spotter_config::AdapterConfig;
use spotter_core::AdapterId;

#[derive(Debug)]
pub(crate) struct EngineAdapters {
    /// Adapters that the device has room for.
    slots: usize,
    loads: AtomicU32,
    /// Never locked while a file is read.
    all: Mutex<Vec<EngineAdapter>>,
}

#[derive(Clone, Debug)]
struct EngineAdapter {
    config: AdapterConfig,
    /// `None`: there was no file, or no room for it.
    version: Option<FileVersion>,
    /// Or why it cannot be used.
    loaded: Result<Arc<LoadedAdapter>, String>,
}

/// What differs when a file was written again or another was put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

/// An adapter that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BrokenAdapter {
    pub id: AdapterId,
    pub reason: String,
}

impl EngineAdapters {
    /// None yet, on a device that has room for this number.
    pub fn none(slots: usize) -> Self {
        Self {
            slots,
            loads: AtomicU32::new(0),
            all: Mutex::default(),
        }
    }

    /// Looks have these adapters from now on. Reads the files that are new or have changed. Returns those that cannot be used; looks that name
    /// them fail. Blocks on the disk; to be called by one thread at a time.
    pub fn set(&self, wanted: &[AdapterConfig], config: &ModelConfig) -> Vec<BrokenAdapter> {
        let before = self.lock().clone();
        let all = wanted.iter().enumerate().map(|(index, wanted)| {
            let has_room = index < self.slots;
            let version = FileVersion::of(&wanted.path).ok().filter(|_| has_room);
            let mut known = before.iter();
            let known = known.find(|known| known.config == *wanted && known.version == version);
            let loaded = match known {
                _ if !has_room => Err(self.no_room()),
                Some(known) if version.is_some() => known.loaded.clone(),
                _ => self.load(&wanted.path, config).map_err(|e| e.to_string()),
            };
            let config = wanted.clone();
            EngineAdapter {
                config,
                version,
                loaded,
            }
        });
        let all: Vec<EngineAdapter> = all.collect();
        let broken = all.iter().filter_map(EngineAdapter::broken).collect();
        *self.lock() = all;
        broken
    }

    /// As it was read last.
    pub fn get(&self, id: &AdapterId) -> Result<Arc<LoadedAdapter>, EngineError> {
        let all = self.lock();
        let known = all.iter().find(|known| known.config.id == *id);
        let loaded = match known {
            Some(known) => known.loaded.clone(),
            None => Err(unknown(&all)),
        };
        loaded.map_err(|reason| EngineError::Adapter {
            id: id.clone(),
            reason,
        })
    }

    fn load(&self, path: &Path, config: &ModelConfig) -> Result<Arc<LoadedAdapter>, WeightsError> {
        let weights = AdapterFile::open(path, config)?.load()?;
        let number = AdapterNumber(self.loads.fetch_add(1, Ordering::Relaxed));
        Ok(Arc::new(LoadedAdapter { number, weights }))
    }

    fn no_room(&self) -> String {
        format!(
            "the engine was opened with room for {} adapters; restart Spotter",
            self.slots
        )
    }

    fn lock(&self) -> MutexGuard<'_, Vec<EngineAdapter>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(all: &[EngineAdapter]) -> String {
    let names: Vec<&str> = all.iter().map(|one| one.config.id.as_str()).collect();
    match names.is_empty() {
        true => "no adapter is configured".to_owned(),
        false => format!("not configured; configured are: {}", names.join(", ")),
    }
}

impl EngineAdapter {
    fn broken(&self) -> Option<BrokenAdapter> {
        let reason = self.loaded.as_ref().err()?;
        Some(BrokenAdapter {
            id: self.config.id.clone(),
            reason: reason.clone(),
        })
    }
}

impl FileVersion {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

/// The way of a list of adapters to an engine in another process, one at a time.
#[derive(Debug, Default)]
pub(super) struct AdapterOrders(Mutex<OrderState>);

#[derive(Debug, Default)]
struct OrderState {
    /// Of the last order.
    number: u64,
    unsent: Option<Vec<AdapterConfig>>,
    /// Who waits for the reply to it.
    waiting: Option<oneshot::Sender<Vec<BrokenAdapter>>>,
    /// The engine has ended.
    is_closed: bool,
}

impl AdapterOrders {
    /// Replaces an order that has no reply yet. The receiver is closed when the engine has ended.
    pub fn put(&self, wanted: Vec<AdapterConfig>) -> oneshot::Receiver<Vec<BrokenAdapter>> {
        let (sender, reply) = oneshot::channel();
        let mut state = self.lock();
        if !state.is_closed {
            state.number += 1;
            (state.unsent, state.waiting) = (Some(wanted), Some(sender));
        }
        reply
    }

    /// What is to be sent, with its number.
    pub fn take(&self) -> Option<(u64, Vec<AdapterConfig>)> {
        let mut state = self.lock();
        Some((state.number, state.unsent.take()?))
    }

    /// The engine has carried out an order.
    pub fn done(&self, number: u64, broken: Vec<BrokenAdapter>) {
        let mut state = self.lock();
        if state.number == number
            && let Some(waiting) = state.waiting.take()
        {
            // The caller may wait no more.
            _ = waiting.send(broken);
        }
    }

    /// No reply comes any more.
    pub fn close(&self) {
        let mut state = self.lock();
        (state.waiting, state.is_closed) = (None, true);
    }

    fn lock(&self) -> MutexGuard<'_, OrderState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::testing::{golden_set, micro_model};

    struct AdapterFolder {
        folder: tempfile::TempDir,
        config: ModelConfig,
    }

    impl AdapterFolder {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().unwrap(),
                config: micro_model().config,
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// With the file of a variant, of which `cut` bytes are missing.
        fn write(&self, name: &str, cut: usize) {
            let variant = golden_set("md2-lora-micro").join("variant.safetensors");
            let whole = fs::read(variant).unwrap();
            // Another file in its place, as a program that replaces it does.
            let new = self.path("new");
            fs::write(&new, &whole[..whole.len() - cut]).unwrap();
            fs::rename(new, self.path(name)).unwrap();
        }

        fn list(&self, names: &[&str]) -> Vec<AdapterConfig> {
            let adapter = |name: &&str| AdapterConfig {
                id: id(name),
                path: self.path(name),
            };
            names.iter().map(adapter).collect()
        }

        /// The names that cannot be used then.
        fn set(&self, adapters: &EngineAdapters, names: &[&str]) -> Vec<String> {
            let broken = adapters.set(&self.list(names), &self.config);
            broken.into_iter().map(|one| one.id.to_string()).collect()
        }
    }

    fn id(name: &str) -> AdapterId {
        AdapterId::new(name).unwrap()
    }

    fn number(adapters: &EngineAdapters, name: &str) -> AdapterNumber {
        adapters.get(&id(name)).unwrap().number
    }

    fn error(adapters: &EngineAdapters, name: &str) -> String {
        adapters.get(&id(name)).unwrap_err().to_string()
    }

    // Faults: E11.
    #[test]
    fn changed_file_is_read_again_and_others_stay() {
        let folder = AdapterFolder::new();
        folder.write("plates", 0);
        folder.write("dogs", 1);
        let adapters = EngineAdapters::none(usize::MAX);
        let both = ["plates", "dogs"];
        assert_eq!(folder.set(&adapters, &both), ["dogs"]);
        let text = error(&adapters, "dogs");
        assert!(
            text.starts_with("adapter dogs: ") && text.contains("it is cut off"),
            "{text}"
        );
        let plates = adapters.get(&id("plates")).unwrap();

        folder.write("dogs", 0);
        assert_eq!(folder.set(&adapters, &both), [""; 0]);
        assert_eq!(
            number(&adapters, "plates"),
            plates.number,
            "it was not read again"
        );
        let dogs = number(&adapters, "dogs");
        assert_ne!(dogs, plates.number);
        // The same content in another file may be another adapter.
        folder.write("dogs", 0);
        assert_eq!(folder.set(&adapters, &both), [""; 0]);
        assert_ne!(number(&adapters, "dogs"), dogs);
        // What is read stays in memory until the list is set again.
        fs::remove_file(folder.path("plates")).unwrap();
        assert_eq!(number(&adapters, "plates"), plates.number);
        assert_eq!(folder.set(&adapters, &both), ["plates"]);
        assert_eq!(folder.set(&adapters, &["dogs"]), [""; 0]);
        assert_eq!(
            error(&adapters, "plates"),
            "adapter plates: not configured; configured are: dogs"
        );
    }

    #[test]
    fn adapters_beyond_the_room_of_a_device_are_broken() {
        let folder = AdapterFolder::new();
        folder.write("plates", 0);
        folder.write("dogs", 0);
        let adapters = EngineAdapters::none(1);
        assert_eq!(folder.set(&adapters, &["plates", "dogs"]), ["dogs"]);
        let text = error(&adapters, "dogs");
        assert!(text.contains("room for 1 adapters"), "{text}");
        assert_eq!(folder.set(&adapters, &["dogs"]), [""; 0], "it has room now");
    }
}
