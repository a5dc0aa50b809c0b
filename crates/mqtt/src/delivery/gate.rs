//! Which messages of a fleet's cameras may be sent now. Pure: takes `now`.
//!
//! A connection begins with the `owner` topics: messages of cameras wait until the broker has answered that subscription and no `owner` arrived
//! for [`QUIET`]. So a node that was cut off does not replace what a newer owner has retained.

use std::{sync::Arc, time::Duration};

use crate::contract::message::CameraStamp;
use spotter_core::{CameraId, CameraRights, Epoch, MayPublish, Mono};

/// The retained `owner` topics arrive one after the other; without one for this time there are no more.
const QUIET: Duration = Duration::from_millis(500);

/// What becomes of a message that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Send,
    /// The node is silent about the camera.
    Wait,
    /// It has an older epoch.
    Drop,
}

/// Whether the `owner` topics were read on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnersRead {
    NotYet,
    /// The broker has answered; the last `owner` arrived at this time.
    Since(Mono),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct CameraGate {
    /// `None`: the node is in no fleet, and may publish everything.
    rights: Option<Arc<dyn CameraRights>>,
    owners: OwnersRead,
}

impl CameraGate {
    pub(super) fn new(rights: Option<Arc<dyn CameraRights>>) -> Self {
        Self {
            rights,
            owners: OwnersRead::NotYet,
        }
    }

    pub(super) fn connected(&mut self) {
        self.owners = OwnersRead::NotYet;
    }

    /// The broker has accepted or rejected the subscription to the owners.
    pub(crate) fn owners_answered(&mut self, now: Mono) {
        if self.owners == OwnersRead::NotYet {
            self.owners = OwnersRead::Since(now);
        }
    }

    pub(crate) fn owner_arrived(&mut self, camera: &CameraId, epoch: Epoch, now: Mono) {
        if let OwnersRead::Since(last) = &mut self.owners
            && now.since(*last) < QUIET
        {
            *last = now;
        }
        if let Some(rights) = &self.rights {
            rights.seen_owner(camera, epoch);
        }
    }

    /// When messages of cameras may be sent on this connection; `None`: not by time alone.
    pub(super) fn opens_at(&self) -> Option<Mono> {
        match self.owners {
            _ if self.rights.is_none() => Some(Mono::default()),
            OwnersRead::NotYet => None,
            OwnersRead::Since(last) => Some(last.after(QUIET)),
        }
    }

    pub(super) fn is_open(&self, now: Mono) -> bool {
        self.opens_at().is_some_and(|at| at <= now)
    }

    /// Of a new message of the camera; `None` without a fleet.
    pub(super) fn may(&self, camera: &CameraId, now: Mono) -> Option<MayPublish> {
        let rights = self.rights.as_ref()?;
        Some(rights.may(camera, now))
    }

    pub(super) fn at(&self, now: Mono) -> GateAt<'_> {
        GateAt {
            rights: self.rights.as_deref(),
            is_open: self.is_open(now),
            now,
        }
    }
}

/// The gate at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateAt<'a> {
    rights: Option<&'a dyn CameraRights>,
    is_open: bool,
    pub(super) now: Mono,
}

impl GateAt<'_> {
    pub(super) fn fate_of(self, stamp: Option<&CameraStamp>) -> Fate {
        stamp.map_or(Fate::Send, |stamp| {
            self.fate(&stamp.camera, Some(stamp.epoch))
        })
    }

    /// Of a message of the camera with this epoch. `None`: it is from before the node was in a fleet.
    pub(super) fn fate(self, camera: &CameraId, epoch: Option<Epoch>) -> Fate {
        let (Some(rights), Some(epoch)) = (self.rights, epoch) else {
            return Fate::Send;
        };
        match rights.may(camera, self.now) {
            MayPublish::Publish(own) if own == epoch && self.is_open => Fate::Send,
            MayPublish::Publish(newest) | MayPublish::Silent { newest } if epoch < newest => {
                Fate::Drop
            }
            _ => Fate::Wait,
        }
    }
}

/// The gate of a node without a fleet.
#[cfg(test)]
pub(super) fn open<'a>(now: Mono) -> GateAt<'a> {
    let (rights, is_open) = (None, true);
    GateAt {
        rights,
        is_open,
        now,
    }
}
