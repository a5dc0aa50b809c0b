//! A folder of the user's pictures.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

const PICTURE_ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// The pictures in a folder, by name.
pub fn pictures_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = folder.display();
    let is_picture = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| {
            PICTURE_ENDINGS
                .iter()
                .any(|known| ending.eq_ignore_ascii_case(known))
        })
    };
    let entries = fs::read_dir(folder).with_context(|| format!("reading the folder {name}"))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let paths = paths.map_err(|error: io::Error| anyhow::anyhow!("reading {name}: {error}"))?;
    let mut pictures: Vec<PathBuf> = paths.into_iter().filter(is_picture).collect();
    pictures.sort();
    if pictures.is_empty() {
        bail!(
            "{name}: no pictures; files that end in {} are looked at",
            PICTURE_ENDINGS.join(", ")
        );
    }
    Ok(pictures)
}

/// At most `most` of them, spread evenly.
pub fn spread(pictures: &[PathBuf], most: usize) -> Vec<&PathBuf> {
    let (all, taken) = (pictures.len(), pictures.len().min(most));
    (0..taken).map(|nth| &pictures[nth * all / taken]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_without_pictures_is_reported_with_the_endings_expected() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("notes.txt"), "").expect("a file");
        let error = pictures_in(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("no pictures; files that end in jpg"),
            "{error}"
        );
        fs::write(folder.path().join("b.JPG"), "").expect("a file");
        assert_eq!(pictures_in(folder.path()).expect("pictures").len(), 1);
    }

    #[test]
    fn pictures_beyond_the_most_are_left_out_evenly() {
        let paths = |names: &[usize]| -> Vec<PathBuf> {
            names.iter().map(|name| name.to_string().into()).collect()
        };
        let few = paths(&[1, 2, 3]);
        assert_eq!(spread(&few, 3), few.iter().collect::<Vec<_>>());
        let seven = paths(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(spread(&seven, 3), [&seven[0], &seven[2], &seven[4]]);
        assert!(spread(&[], 3).is_empty());
    }
}
