//! What a node of a fleet keeps on its disk: the last list, and the cameras that it owned. With them it can start while the fleet's store cannot
//! be reached.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use spotter_core::{CameraId, Epoch, NodeId, read_short_file, write_file_atomically};
use spotter_fleet::entries::ListRevision;

const FILE: &str = "fleet.json";
/// No file of this program is longer, in bytes: a list of the longest kind, escaped.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// The file in the state directory. A file that cannot be read or written is logged: the node runs, and waits for the store at its next start.
pub struct FleetFile {
    path: PathBuf,
    saved: KeptFleet,
}

/// Its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFleet {
    /// `None`: nothing was kept yet.
    fleet: Option<NodeId>,
    pub list_revision: u64,
    pub list: String,
    pub own: BTreeMap<CameraId, Epoch>,
}

impl KeptFleet {
    /// The list, when there is one.
    pub fn list(&self) -> Option<ListRevision> {
        (self.list_revision > 0).then(|| ListRevision {
            revision: self.list_revision,
            text: self.list.clone(),
        })
    }
}

impl FleetFile {
    /// Reads what a node of this fleet kept; what one of another fleet kept is of no use. Blocks on the disk.
    pub fn open(state_dir: &Path, fleet: &NodeId) -> Self {
        let path = state_dir.join(FILE);
        let kept = match read(&path) {
            Ok(kept) => kept,
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "cannot read the list of the fleet that an earlier run kept; it is read from NATS");
                KeptFleet::default()
            }
        };
        let saved = match kept.fleet.as_ref() == Some(fleet) {
            true => kept,
            false => KeptFleet {
                fleet: Some(fleet.clone()),
                ..KeptFleet::default()
            },
        };
        Self { path, saved }
    }

    pub fn kept(&self) -> &KeptFleet {
        &self.saved
    }

    /// Blocks on the disk when the list is another one.
    pub fn keep_list(&mut self, list: &ListRevision) {
        if self.saved.list().as_ref() != Some(list) {
            self.saved.list_revision = list.revision;
            self.saved.list.clone_from(&list.text);
            self.save();
        }
    }

    /// Blocks on the disk when they are others.
    pub fn keep_own(&mut self, own: &BTreeMap<CameraId, Epoch>) {
        if self.saved.own != *own {
            self.saved.own.clone_from(own);
            self.save();
        }
    }

    fn save(&self) {
        let written = serde_json::to_vec(&self.saved)
            .map_err(io::Error::from)
            .and_then(|text| write_file_atomically(&self.path, &text));
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!(%path, %error, "cannot keep the list of the fleet; a restart while NATS is down would watch no camera");
        }
    }
}

fn read(path: &Path) -> io::Result<KeptFleet> {
    match read_short_file(path, FILE_MAX_BYTES)? {
        Some(text) => Ok(serde_json::from_str(&text)?),
        None => Ok(KeptFleet::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_and_cameras_of_the_same_fleet_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [hall, yard] = ["hall", "yard"].map(|name| NodeId::new(name).unwrap());
        let list = ListRevision {
            revision: 7,
            text: "[camera]".into(),
        };
        let own = BTreeMap::from([(CameraId::new("gate").unwrap(), Epoch(3))]);
        let mut file = FleetFile::open(folder.path(), &hall);
        assert_eq!(file.kept().list(), None);
        file.keep_list(&list);
        file.keep_own(&own);
        let again = FleetFile::open(folder.path(), &hall);
        assert_eq!((again.kept().list(), &again.kept().own), (Some(list), &own));
        assert_eq!(FleetFile::open(folder.path(), &yard).kept().list(), None);
    }
}
