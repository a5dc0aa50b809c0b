//! Chosen algorithms on disk, so that they are chosen once for a GPU and not at every start.
//!
//! The file's name covers everything that a choice depends on beside the shape (GPU, driver, cuBLASLt). A file that cannot be read
//! costs the time to choose again.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_128;

use spotter_core::write_file_atomically;

/// Words of an algorithm, opaque.
pub(super) type AlgorithmWords = [u64; 8];

/// Chosen algorithms, by shape.
pub type AlgorithmChoices = BTreeMap<String, AlgorithmWords>;

/// The chosen algorithms, by shape.
#[derive(Debug)]
pub(super) struct AlgorithmCache {
    path: PathBuf,
    choices: AlgorithmChoices,
    is_changed: bool,
}

impl AlgorithmCache {
    /// The choices in `folder` for this GPU and these libraries; none when the file cannot be read.
    pub fn open(folder: &Path, arch: &str, about: &str) -> Self {
        let hash = xxh3_128(about.as_bytes());
        let path = folder.join(format!("products-{arch}-{hash:032x}.json"));
        let text = fs::read(&path).unwrap_or_default();
        Self {
            path,
            choices: serde_json::from_slice(&text).unwrap_or_default(),
            is_changed: false,
        }
    }

    pub fn choices(&self) -> &AlgorithmChoices {
        &self.choices
    }

    /// Replaces all choices by another GPU's, which has them on disk.
    pub fn adopt(&mut self, choices: AlgorithmChoices) {
        self.choices = choices;
        self.is_changed = false;
    }

    /// The choice for a shape.
    pub fn get(&self, shape: &str) -> Option<AlgorithmWords> {
        self.choices.get(shape).copied()
    }

    pub fn put(&mut self, shape: String, words: AlgorithmWords) {
        self.choices.insert(shape, words);
        self.is_changed = true;
    }

    /// Writes what is new, if anything is. After an error, which is logged, the next start chooses again.
    pub fn save(&mut self) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let text = serde_json::to_vec_pretty(&self.choices).unwrap_or_default();
        if let Err(error) = write_file_atomically(&self.path, &text) {
            let path = self.path.display();
            tracing::warn!("{path}: not written, so the next start times products again: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: AlgorithmWords = [1, 2, u64::MAX, 4, 5, 6, 7, 8];

    #[test]
    fn choices_are_kept_for_the_same_gpu_and_libraries_only() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new");
        let open = |about| AlgorithmCache::open(&folder, "sm_00", about);
        let mut cache = open("this");
        cache.put("Shape { rows: 64 }".into(), WORDS);
        cache.save();
        assert_eq!(open("this").get("Shape { rows: 64 }"), Some(WORDS));
        assert_eq!(open("this").get("Shape { rows: 72 }"), None);
        assert_eq!(open("that").get("Shape { rows: 64 }"), None);
        // A damaged file is ignored and replaced.
        let good = fs::read(&cache.path).unwrap();
        for bad in [&good[1..], &good[..good.len() - 1], b"\xff", b"[]"] {
            fs::write(&cache.path, bad).unwrap();
            let mut damaged = open("this");
            assert!(damaged.choices.is_empty());
            damaged.put("Shape { rows: 64 }".into(), WORDS);
            damaged.save();
            assert_eq!(fs::read(&cache.path).unwrap(), good);
        }
    }
}
