//! Which cameras a node may publish now, and with which epoch. `may` is pure; [`PublishRights`] shares it between the membership, which knows the
//! store, and the connection to the broker, which asks before each message and reports each `owner` that it receives.
//!
//! ```text
//!            grant(epoch)                       the store shows a newer epoch,
//!   silent ───────────────▶ publishes(epoch) ───────────────▶ silent          or the node withdraws to hand the camera over
//! ```
//!
//! Two times limit a granted epoch:
//!
//! - **No recent look at the store**: the process was stopped, so others may have its cameras. It is silent until it has looked again, whether
//!   the store answered or not: an outage of the store blinds no camera.
//! - **A newer `owner` at the broker** while the store does not confirm this node: silent, until the store says who the owner is. While the store
//!   confirms it, such an `owner` is false, or the store will report it in a moment. Nothing repairs a false `owner` at the broker.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use spotter_core::{CameraId, CameraRights, Epoch, MayPublish, Mono};

/// Cameras of other nodes that are remembered; of more, the store alone decides.
const CAMERAS_MAX: usize = 100_000;

/// What the node's last look at the store has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreLook {
    /// It counts until then.
    pub until: Mono,
    /// The store has this node's heartbeat; false: it does not answer.
    pub is_confirmed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct CameraRight {
    /// This node publishes with it.
    own: Option<Epoch>,
    /// Of the store.
    newest: Epoch,
    /// Of the broker, where it is newer than the store's.
    of_broker: Epoch,
}

#[derive(Debug, Default)]
struct Rights {
    cameras: BTreeMap<CameraId, CameraRight>,
    look: StoreLook,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct PublishRights(Mutex<Rights>);

impl CameraRights for PublishRights {
    fn may(&self, camera: &CameraId, now: Mono) -> MayPublish {
        self.lock().may(camera, now)
    }

    fn seen_owner(&self, camera: &CameraId, epoch: Epoch) {
        self.lock().change(camera, |right| {
            right.of_broker = right.of_broker.max(epoch);
        });
    }
}

impl PublishRights {
    /// This node owns the camera by the store, and what it publishes is of this epoch. False when a newer epoch is known.
    pub fn grant(&self, camera: &CameraId, epoch: Epoch) -> bool {
        self.lock().change(camera, |right| {
            let is_newest = right.newest <= epoch;
            if is_newest {
                (right.own, right.newest) = (Some(epoch), epoch);
            }
            is_newest
        })
    }

    /// Nothing more is published of the camera until the next grant.
    pub fn withdraw(&self, camera: &CameraId) {
        self.lock().change(camera, |right| right.own = None);
    }

    /// The store has this epoch of the camera: an older one of this node is over.
    pub fn stored(&self, camera: &CameraId, epoch: Epoch) {
        self.lock().change(camera, |right| {
            right.newest = right.newest.max(epoch);
            right.own = right.own.filter(|own| *own >= epoch);
        });
    }

    pub fn looked(&self, look: StoreLook) {
        self.lock().look = look;
    }

    /// The broker shows a newer owner of a camera that this node owns with `own`, and the store does not confirm this node.
    pub fn is_silenced(&self, camera: &CameraId, own: Epoch) -> bool {
        let rights = self.lock();
        let right = rights.cameras.get(camera);
        !rights.look.is_confirmed && right.is_some_and(|right| right.of_broker > own)
    }

    fn lock(&self) -> MutexGuard<'_, Rights> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rights {
    fn may(&self, camera: &CameraId, now: Mono) -> MayPublish {
        let right = self.cameras.get(camera).copied().unwrap_or_default();
        let is_allowed = |own: &Epoch| {
            now <= self.look.until && (self.look.is_confirmed || right.of_broker <= *own)
        };
        match right.own.filter(is_allowed) {
            Some(own) => MayPublish::Publish(own),
            None => MayPublish::Silent {
                newest: right.newest,
            },
        }
    }

    fn change<T: Default>(
        &mut self,
        camera: &CameraId,
        change: impl FnOnce(&mut CameraRight) -> T,
    ) -> T {
        let has_room = self.cameras.len() < CAMERAS_MAX || self.cameras.contains_key(camera);
        match has_room {
            true => change(self.cameras.entry(camera.clone()).or_default()),
            false => T::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn gate() -> CameraId {
        CameraId::new("gate").unwrap()
    }

    /// Owns `gate` with epoch 17; the store has the heartbeat until second 10.
    fn rights() -> PublishRights {
        let rights = PublishRights::default();
        rights.looked(StoreLook {
            until: at(10),
            is_confirmed: true,
        });
        assert!(rights.grant(&gate(), Epoch(17)));
        rights
    }

    fn silent(newest: u64) -> MayPublish {
        MayPublish::Silent {
            newest: Epoch(newest),
        }
    }

    // Faults: F4.
    #[test]
    fn stopped_process_is_silent_until_it_has_looked() {
        let rights = rights();
        assert_eq!(rights.may(&gate(), at(10)), MayPublish::Publish(Epoch(17)));
        assert_eq!(rights.may(&gate(), at(11)), silent(17));
        // The store does not answer, which silences no camera.
        rights.looked(StoreLook {
            until: at(21),
            is_confirmed: false,
        });
        assert_eq!(rights.may(&gate(), at(11)), MayPublish::Publish(Epoch(17)));
        let yard = CameraId::new("yard").unwrap();
        assert_eq!(rights.may(&yard, at(11)), silent(0));
    }

    #[test]
    fn newer_epoch_of_the_store_ends_an_older_for_ever() {
        let rights = rights();
        rights.stored(&gate(), Epoch(18));
        assert_eq!(rights.may(&gate(), at(1)), silent(18));
        assert!(!rights.grant(&gate(), Epoch(17)), "decided before");
        assert!(rights.grant(&gate(), Epoch(19)));
        rights.stored(&gate(), Epoch(18));
        assert_eq!(rights.may(&gate(), at(1)), MayPublish::Publish(Epoch(19)));
        rights.withdraw(&gate());
        assert_eq!(rights.may(&gate(), at(1)), silent(19));
    }

    // Faults: F12.
    #[test]
    fn newer_owner_of_the_broker_silences_without_the_store_alone() {
        let rights = rights();
        let look = |is_confirmed| StoreLook {
            until: at(20),
            is_confirmed,
        };
        rights.looked(look(false));
        rights.seen_owner(&gate(), Epoch(16));
        assert_eq!(rights.may(&gate(), at(1)), MayPublish::Publish(Epoch(17)));
        rights.seen_owner(&gate(), Epoch::MAX);
        assert_eq!(rights.may(&gate(), at(1)), silent(17));
        assert!(rights.is_silenced(&gate(), Epoch(17)));
        rights.looked(look(true));
        assert_eq!(rights.may(&gate(), at(1)), MayPublish::Publish(Epoch(17)));
    }
}
