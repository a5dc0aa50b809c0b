//! The adapters of an engine. Each is read once, when the engine opens; one whose file cannot be read then is tried again by each look that
//! wants it, so that a mended file needs no restart.
//!
//! Faults: E11.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::error::EngineError;
use crate::{
    model::{AdapterFile, ModelConfig, WeightsError},
    scheduler::backend::{AdapterNumber, LoadedAdapter},
};
use spotter_config::AdapterConfig;
use spotter_core::AdapterId;

#[derive(Debug, Default)]
pub(crate) struct EngineAdapters {
    all: Vec<EngineAdapter>,
    loads: AtomicU32,
}

#[derive(Debug)]
struct EngineAdapter {
    id: AdapterId,
    path: PathBuf,
    /// `None` until its file was read.
    loaded: Mutex<Option<Arc<LoadedAdapter>>>,
}

/// An adapter that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenAdapter {
    pub id: AdapterId,
    pub reason: String,
}

impl EngineAdapters {
    /// None of them is read yet.
    pub fn new(configured: &[AdapterConfig]) -> Self {
        let unread = |adapter: &AdapterConfig| EngineAdapter {
            id: adapter.id.clone(),
            path: adapter.path.clone(),
            loaded: Mutex::default(),
        };
        Self {
            all: configured.iter().map(unread).collect(),
            loads: AtomicU32::new(0),
        }
    }

    /// Reads all of them. Blocks on the disk.
    pub fn load(&self, config: &ModelConfig) -> Vec<BrokenAdapter> {
        let loaded = self
            .all
            .iter()
            .map(|one| (&one.id, self.loaded(one, config)));
        let broken = |(id, loaded): (&AdapterId, Result<_, WeightsError>)| BrokenAdapter {
            id: id.clone(),
            reason: loaded.err().map(|e| e.to_string()).unwrap_or_default(),
        };
        let broken = loaded.filter(|(_, loaded)| loaded.is_err()).map(broken);
        broken.collect()
    }

    /// Blocks on the disk when it could not be read before.
    pub fn get(
        &self,
        id: &AdapterId,
        config: &ModelConfig,
    ) -> Result<Arc<LoadedAdapter>, EngineError> {
        let one = self.all.iter().find(|one| one.id == *id);
        let one = one.ok_or_else(|| EngineError::Adapter {
            id: id.clone(),
            reason: self.unknown(),
        })?;
        let loaded = self.loaded(one, config);
        loaded.map_err(|error| EngineError::Adapter {
            id: id.clone(),
            reason: error.to_string(),
        })
    }

    fn unknown(&self) -> String {
        let names: Vec<&str> = self.all.iter().map(|one| one.id.as_str()).collect();
        match names.is_empty() {
            true => "no adapter is configured".to_owned(),
            false => format!("not configured; configured are: {}", names.join(", ")),
        }
    }

    fn loaded(
        &self,
        one: &EngineAdapter,
        config: &ModelConfig,
    ) -> Result<Arc<LoadedAdapter>, WeightsError> {
        let mut loaded: MutexGuard<'_, _> =
            (one.loaded.lock()).unwrap_or_else(PoisonError::into_inner);
        if let Some(adapter) = &*loaded {
            return Ok(Arc::clone(adapter));
        }
        let weights = AdapterFile::open(&one.path, config)?.load()?;
        let number = AdapterNumber(self.loads.fetch_add(1, Ordering::Relaxed));
        let adapter = Arc::new(LoadedAdapter { number, weights });
        *loaded = Some(Arc::clone(&adapter));
        Ok(adapter)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{golden_set, micro_model};

    #[test]
    fn broken_file_fails_its_looks_until_it_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let adapter = |name: &str| AdapterConfig {
            id: AdapterId::new(name).unwrap(),
            path: folder.path().join(name),
        };
        let configured = ["plates", "dogs"].map(adapter);
        let [plates, dogs] = &configured;
        let variant = golden_set("md2-lora-micro").join("variant.safetensors");
        let whole = fs::read(&variant).unwrap();
        fs::write(&plates.path, &whole).unwrap();
        fs::write(&dogs.path, &whole[..whole.len() - 1]).unwrap();

        let config = micro_model().config;
        let adapters = EngineAdapters::new(&configured);
        let broken = adapters.load(&config);
        assert_eq!(broken.len(), 1);
        assert_eq!(broken[0].id, dogs.id);
        assert!(broken[0].reason.contains("it is cut off"), "{broken:?}");
        let of_plates = adapters.get(&plates.id, &config).unwrap();
        let error = adapters.get(&dogs.id, &config).unwrap_err().to_string();
        assert!(error.starts_with("adapter dogs: "), "{error}");

        fs::write(&dogs.path, &whole).unwrap();
        let of_dogs = adapters.get(&dogs.id, &config).unwrap();
        assert_ne!(of_dogs.number, of_plates.number);
        // It is in memory: what becomes of the file concerns no look.
        fs::remove_file(&dogs.path).unwrap();
        assert_eq!(adapters.get(&dogs.id, &config).unwrap(), of_dogs);

        let unknown = AdapterId::new("cats").unwrap();
        let error = adapters.get(&unknown, &config).unwrap_err().to_string();
        assert_eq!(
            error,
            "adapter cats: not configured; configured are: plates, dogs"
        );
    }
}
