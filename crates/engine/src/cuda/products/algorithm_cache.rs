//! Chosen algorithms on disk, so that they are chosen once for a GPU and not at every start.
//!
//! A line for each choice: a hash over the rest, eight words of the algorithm, the shape. The file's name and every hash cover everything
//! else that a choice depends on (GPU, driver, cuBLASLt). A damaged line, or one of another GPU or
//! library, is ignored: a bad file costs the time to choose again.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use spotter_core::write_file_atomically;

/// Words of an algorithm, opaque.
pub(super) type AlgorithmWords = [u64; 8];

/// The chosen algorithms, by shape.
#[derive(Debug)]
pub(super) struct AlgorithmCache {
    about: String,
    path: PathBuf,
    choices: BTreeMap<String, AlgorithmWords>,
    is_changed: bool,
}

impl AlgorithmCache {
    /// The choices in `folder` for this GPU and these libraries; none when the file cannot be read.
    pub fn open(folder: &Path, arch: &str, about: String) -> Self {
        let path = folder.join(format!(
            "products-{arch}-{:032x}.txt",
            xxh3_128(about.as_bytes())
        ));
        let choices = read(&path, &about);
        Self {
            about,
            path,
            choices,
            is_changed: false,
        }
    }

    /// The choice for a shape.
    pub fn get(&self, shape: &str) -> Option<AlgorithmWords> {
        self.choices.get(shape).copied()
    }

    pub fn put(&mut self, shape: String, words: AlgorithmWords) {
        self.choices.insert(shape, words);
        self.is_changed = true;
    }

    /// Writes what is new, if anything is. An error means that the next start chooses again.
    pub fn save(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        // Another process or GPU of the same kind may have written since.
        let mut choices = read(&self.path, &self.about);
        choices.append(&mut self.choices.clone());
        let mut text = String::new();
        for (shape, words) in &choices {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", line(&self.about, shape, words));
        }
        write_file_atomically(&self.path, text.as_bytes()).map_err(|error| {
            format!(
                "{}: not written, so the next start times products again: {error}",
                self.path.display()
            )
        })
    }
}

fn read(path: &Path, about: &str) -> BTreeMap<String, AlgorithmWords> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(|line| parse(about, line)).collect()
}

fn line(about: &str, shape: &str, words: &AlgorithmWords) -> String {
    let words = words.map(|word| format!("{word:016x}")).join(" ");
    let rest = format!("{words} {shape}");
    let hash = xxh3_64(format!("{about}\n{rest}").as_bytes());
    format!("{hash:016x} {rest}")
}

fn parse(about: &str, text: &str) -> Option<(String, AlgorithmWords)> {
    let mut parts = text.splitn(10, ' ');
    let _hash = parts.next()?;
    let mut words = [0; 8];
    for word in &mut words {
        *word = u64::from_str_radix(parts.next()?, 16).ok()?;
    }
    let shape = parts.next()?;
    (line(about, shape, &words) == text).then(|| (shape.to_owned(), words))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: AlgorithmWords = [1, 2, u64::MAX, 4, 5, 6, 7, 8];

    fn open(folder: &Path, about: &str) -> AlgorithmCache {
        AlgorithmCache::open(folder, "sm_00", about.to_owned())
    }

    #[test]
    fn choices_come_back_for_the_same_gpu_and_libraries_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(&folder.path().join("new"), "this");
        kept.put("Shape { rows: 64 }".into(), WORDS);
        kept.save().unwrap();
        let again = open(&folder.path().join("new"), "this");
        assert_eq!(again.get("Shape { rows: 64 }"), Some(WORDS));
        assert_eq!(again.get("Shape { rows: 72 }"), None);
        let other = open(&folder.path().join("new"), "that");
        assert_eq!(other.get("Shape { rows: 64 }"), None);
    }

    #[test]
    fn two_writers_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (open(folder.path(), "this"), open(folder.path(), "this"));
        a.put("a".into(), WORDS);
        b.put("b".into(), WORDS);
        a.save().unwrap();
        b.save().unwrap();
        let both = open(folder.path(), "this");
        assert_eq!((both.get("a"), both.get("b")), (Some(WORDS), Some(WORDS)));
    }

    #[test]
    fn any_damage_loses_that_line_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = open(folder.path(), "this");
        kept.put("a".into(), WORDS);
        kept.put("b".into(), WORDS);
        kept.save().unwrap();
        let good = fs::read(&kept.path).unwrap();
        let first_line = good.iter().position(|&byte| byte == b'\n').unwrap();
        for at in 0..first_line {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&kept.path, &bad).unwrap();
            let read = open(folder.path(), "this");
            assert_eq!((read.get("a"), read.get("b")), (None, Some(WORDS)), "{at}");
        }
        fs::write(&kept.path, b"\xff\n\n \nno line at all").unwrap();
        assert!(open(folder.path(), "this").choices.is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mut kept = open(&file, "this");
        kept.put("a".into(), WORDS);
        let message = kept.save().unwrap_err();
        assert!(message.contains("times products again"), "{message}");
    }
}
