//! What a node of a fleet keeps in its state database: the last list, and the cameras that it owned. With them it can start while the fleet's
//! store cannot be reached.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spotter_core::{CameraId, Epoch, NodeId};
use spotter_fleet::entries::ListRevision;
use spotter_state::{Document, StateStore};

/// The stored values with their place.
pub struct FleetRecord {
    state: StateStore,
    kept: KeptFleet,
}

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

impl FleetRecord {
    /// Reads what a node of this fleet kept; what one of another fleet kept is of no use.
    pub fn read(state: StateStore, fleet: &NodeId) -> Self {
        let text = state.get(Document::Fleet);
        let kept: Option<KeptFleet> = text.and_then(|text| {
            serde_json::from_str(&text)
                .inspect_err(|error| tracing::warn!(%error, "cannot read the list of the fleet that an earlier run kept; it is read from NATS"))
                .ok()
        });
        let kept = kept.unwrap_or_default();
        let kept = match kept.fleet.as_ref() == Some(fleet) {
            true => kept,
            false => KeptFleet {
                fleet: Some(fleet.clone()),
                ..KeptFleet::default()
            },
        };
        Self { state, kept }
    }

    pub fn kept(&self) -> &KeptFleet {
        &self.kept
    }

    pub fn keep_list(&mut self, list: &ListRevision) {
        if self.kept.list().as_ref() != Some(list) {
            self.kept.list_revision = list.revision;
            self.kept.list.clone_from(&list.text);
            self.store();
        }
    }

    pub fn keep_own(&mut self, own: &BTreeMap<CameraId, Epoch>) {
        if self.kept.own != *own {
            self.kept.own.clone_from(own);
            self.store();
        }
    }

    fn store(&self) {
        // Numbers, texts and maps with text keys always serialise.
        if let Ok(text) = serde_json::to_string(&self.kept) {
            self.state.put(Document::Fleet, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use spotter_core::ManualClock;

    #[test]
    fn list_and_cameras_of_the_same_fleet_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [hall, yard] = ["hall", "yard"].map(|name| NodeId::new(name).unwrap());
        let list = ListRevision {
            revision: 7,
            text: "[camera]".into(),
        };
        let own = BTreeMap::from([(CameraId::new("gate").unwrap(), Epoch(3))]);
        let clock = || Arc::new(ManualClock::default());
        let open = |fleet| {
            let state = StateStore::open(folder.path(), clock()).unwrap();
            FleetRecord::read(state, fleet)
        };
        let mut record = open(&hall);
        assert_eq!(record.kept().list(), None);
        record.keep_list(&list);
        record.keep_own(&own);
        drop(record);
        let again = open(&hall);
        assert_eq!((again.kept().list(), &again.kept().own), (Some(list), &own));
        drop(again);
        assert_eq!(open(&yard).kept().list(), None);
    }
}
