//! Which cameras of the fleet this node may publish. Pure: takes `now`.
//!
//! The store of the fleet gives each ownership of a camera an epoch, which only grows. Two witnesses say that another node is the owner:
//! the store, through the daemon, and the retained topic `owner` at the broker.
//!
//! - **Certain**: the store has accepted this node's heartbeat, and it has not expired. No other node can be the owner: a newer `owner` at the
//!   broker is a dispute, which the store decides, and does not silence the camera.
//! - **Uncertain**: the store is down, or this node was frozen or cut off. The gate is closed until the broker was asked: the filter of all
//!   `owner` topics is subscribed again, and after the answer no `owner` arrived for [`QUIET`]. Then the gate is open until ownership was
//!   certain and is uncertain again, or the connection is a new one: an outage of the store must not silence the fleet.
//!
//! Belongs here: the decision. Does not belong here: the messages (`outbox`), the subscription (`broker`).

use std::{collections::BTreeMap, time::Duration};

use spotter_core::{CameraId, Epoch, Mono};

/// The retained `owner` topics arrive one after the other; without one for this time there are no more.
const QUIET: Duration = Duration::from_millis(500);
/// Epochs of cameras that the broker has shown; more are not remembered.
const SEEN_MAX: usize = 10_000;

/// The ownership of a camera by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnedCamera {
    epoch: Epoch,
    phase: OwnedPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnedPhase {
    Watched,
    /// Waiting messages are sent, new ones are refused.
    HandingOver,
    /// Its last message is the `owner` without a node.
    Released,
}

/// What an `owner` from the broker means for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerArrival {
    /// It is not newer than the own one, or the camera is not this node's.
    Known,
    /// Another node is the owner: the camera is silent.
    Lost,
    /// It is newer than the own one, which the store has confirmed. The camera stays this node's until the store says otherwise.
    Disputed,
}

/// Whether the broker was asked for newer owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerCheck {
    Needed,
    /// SUBSCRIBE is on its way.
    Asked,
    /// The broker has answered; the last `owner` arrived at this time.
    Answered(Mono),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct CameraFence {
    cameras: BTreeMap<CameraId, OwnedCamera>,
    /// The newest epoch of each camera on its topic `owner`.
    seen: BTreeMap<CameraId, Epoch>,
    /// The newest epoch of each lost camera by the store.
    stored: BTreeMap<CameraId, Epoch>,
    /// Cameras that this node owns by the store, and that are silent because the broker has shown a newer owner, until the store has
    /// confirmed the ownership.
    contested: BTreeMap<CameraId, Epoch>,
    /// Owners of the broker that the store has refuted.
    overruled: Vec<(CameraId, Epoch)>,
    certain_until: Option<Mono>,
    check: OwnerCheck,
    /// The number of the last question to the broker.
    asked: u64,
}

impl Default for CameraFence {
    fn default() -> Self {
        Self {
            cameras: BTreeMap::new(),
            seen: BTreeMap::new(),
            stored: BTreeMap::new(),
            contested: BTreeMap::new(),
            overruled: Vec::new(),
            certain_until: None,
            check: OwnerCheck::Needed,
            asked: 0,
        }
    }
}

impl CameraFence {
    /// This node is the owner. False when a newer epoch is known: the camera stays silent, and if the broker alone has shown it, until
    /// [`confirm`](Self::confirm) returns the camera.
    pub(super) fn own(&mut self, camera: &CameraId, epoch: Epoch, now: Mono) -> bool {
        if self
            .owned_epoch(camera)
            .max(self.stored.get(camera).copied())
            > Some(epoch)
        {
            return false;
        }
        let newer = self.seen.get(camera).copied().filter(|seen| *seen > epoch);
        if let Some(newer) = newer {
            if !self.is_certain(now) {
                self.contested.insert(camera.clone(), epoch);
                return false;
            }
            self.seen.insert(camera.clone(), epoch);
            if self.overruled.len() < SEEN_MAX {
                self.overruled.push((camera.clone(), newer));
            }
        }
        self.contested.remove(camera);
        let phase = OwnedPhase::Watched;
        self.cameras
            .insert(camera.clone(), OwnedCamera { epoch, phase });
        if !self.is_certain(now) {
            // The check was made without this camera.
            self.check = OwnerCheck::Needed;
        }
        true
    }

    /// Another node is the owner, or none is. False when this node has the camera with a newer epoch.
    pub(super) fn lose(&mut self, camera: &CameraId, newer: Epoch) -> bool {
        // While the store does not answer, the daemon repeats what the broker has shown.
        if self.seen.get(camera) != Some(&newer) {
            note(&mut self.stored, camera, newer);
        }
        self.contested.remove(camera);
        self.lose_to(camera, newer)
    }

    fn lose_to(&mut self, camera: &CameraId, newer: Epoch) -> bool {
        if self
            .cameras
            .get(camera)
            .is_some_and(|own| own.epoch > newer)
        {
            return false;
        }
        self.cameras.remove(camera);
        true
    }

    /// An `owner` arrived.
    pub(super) fn owner_arrived(
        &mut self,
        camera: &CameraId,
        epoch: Epoch,
        now: Mono,
    ) -> OwnerArrival {
        if let OwnerCheck::Answered(last) = &mut self.check
            && now.since(*last) < QUIET
        {
            *last = now;
        }
        // While a camera is handed over, the next owner may be faster than the store's answer to this node.
        if self.epoch_of(camera).is_some_and(|own| own < epoch) && self.is_certain(now) {
            return OwnerArrival::Disputed;
        }
        note(&mut self.seen, camera, epoch);
        let (own, watched) = (self.owned_epoch(camera), self.epoch_of(camera));
        match own.is_some_and(|own| own < epoch) && self.lose_to(camera, epoch) {
            true => {
                // The broker alone has shown it, so the store may give the camera back.
                self.contested
                    .extend(watched.map(|own| (camera.clone(), own)));
                OwnerArrival::Lost
            }
            false => OwnerArrival::Known,
        }
    }

    /// New messages of the camera are refused from now on.
    pub(super) fn hand_over(&mut self, camera: &CameraId) {
        self.contested.remove(camera);
        if let Some(own) = self.cameras.get_mut(camera) {
            own.phase = OwnedPhase::HandingOver;
        }
    }

    /// The hand-over is done. Returns the epoch that this node had. `released`: no node is the owner, since this epoch.
    pub(super) fn handed_over(
        &mut self,
        camera: &CameraId,
        released: Option<Epoch>,
    ) -> Option<Epoch> {
        self.contested.remove(camera);
        let own = self.cameras.remove(camera)?;
        if let Some(epoch) = released.filter(|epoch| *epoch > own.epoch) {
            let phase = OwnedPhase::Released;
            self.cameras
                .insert(camera.clone(), OwnedCamera { epoch, phase });
        }
        Some(own.epoch)
    }

    /// Also of a camera that is being handed over.
    pub(super) fn owned_epoch(&self, camera: &CameraId) -> Option<Epoch> {
        self.cameras.get(camera).map(|own| own.epoch)
    }

    /// The epoch of new messages; `None`: they are refused.
    pub(super) fn epoch_of(&self, camera: &CameraId) -> Option<Epoch> {
        let own = self.cameras.get(camera)?;
        (own.phase == OwnedPhase::Watched).then_some(own.epoch)
    }

    /// The store has accepted this node's heartbeat, which expires after `until`. Returns the cameras that are this node's although the broker
    /// has shown a newer owner: [`own`](Self::own) accepts them now.
    pub(super) fn confirm(&mut self, until: Mono, now: Mono) -> Vec<(CameraId, Epoch)> {
        self.certain_until = self.certain_until.max(Some(until));
        if !self.is_certain(now) {
            return Vec::new();
        }
        self.check = OwnerCheck::Needed;
        std::mem::take(&mut self.contested).into_iter().collect()
    }

    /// Owners that the broker has shown and the store does not have, each once.
    pub(super) fn take_overruled(&mut self) -> Vec<(CameraId, Epoch)> {
        std::mem::take(&mut self.overruled)
    }

    pub(super) fn is_certain(&self, now: Mono) -> bool {
        self.certain_until.is_some_and(|until| now <= until)
    }

    /// False: messages of cameras are held.
    pub(super) fn is_open(&self, now: Mono) -> bool {
        let is_checked =
            matches!(self.check, OwnerCheck::Answered(last) if now.since(last) >= QUIET);
        self.cameras.is_empty() || self.is_certain(now) || is_checked
    }

    /// A new connection: the answer of an earlier one does not count.
    pub(super) fn connected(&mut self) {
        self.check = OwnerCheck::Needed;
    }

    /// The number of a question to the broker, if one must be asked now.
    pub(super) fn ask(&mut self, now: Mono) -> Option<u64> {
        if self.check != OwnerCheck::Needed || self.is_open(now) {
            return None;
        }
        self.check = OwnerCheck::Asked;
        self.asked += 1;
        Some(self.asked)
    }

    /// The broker answered the question with this number, or the question could not be asked.
    pub(super) fn answered(&mut self, number: u64, is_accepted: bool, now: Mono) {
        if self.check == OwnerCheck::Asked && self.asked == number {
            self.check = match is_accepted {
                true => OwnerCheck::Answered(now),
                false => OwnerCheck::Needed,
            };
        }
    }

    /// When the gate opens, if nothing else happens before.
    pub(super) fn opens_at(&self) -> Option<Mono> {
        match self.check {
            OwnerCheck::Answered(last) => Some(last.after(QUIET)),
            OwnerCheck::Needed | OwnerCheck::Asked => None,
        }
    }
}

fn note(newest: &mut BTreeMap<CameraId, Epoch>, camera: &CameraId, epoch: Epoch) {
    if let Some(known) = newest.get_mut(camera) {
        *known = epoch.max(*known);
    } else if newest.len() < SEEN_MAX {
        newest.insert(camera.clone(), epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::camera;

    fn at(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    /// Owns `gate` with epoch 17; certain for a second.
    fn fence() -> CameraFence {
        let mut fence = CameraFence::default();
        fence.confirm(at(1000), at(0));
        assert!(fence.own(&camera("gate"), Epoch(17), at(0)));
        fence
    }

    #[test]
    fn certain_ownership_needs_no_question() {
        let mut fence = fence();
        assert!(fence.is_open(at(1000)) && fence.ask(at(1000)).is_none());
        assert!(!fence.is_open(at(1001)));
        assert_eq!(fence.epoch_of(&camera("gate")), Some(Epoch(17)));
        assert_eq!(fence.epoch_of(&camera("yard")), None);
    }

    #[test]
    fn uncertain_ownership_opens_after_a_quiet_answer() {
        let mut fence = fence();
        let number = fence.ask(at(1001)).unwrap();
        assert!(fence.ask(at(1002)).is_none(), "one question at a time");
        fence.answered(number, true, at(1100));
        // The owner of another camera, and the own one again.
        let yard = fence.owner_arrived(&camera("yard"), Epoch(90), at(1300));
        let gate = fence.owner_arrived(&camera("gate"), Epoch(17), at(1400));
        assert_eq!([yard, gate], [OwnerArrival::Known; 2]);
        assert!(!fence.is_open(at(1899)));
        assert_eq!(fence.opens_at(), Some(at(1900)));
        assert!(fence.is_open(at(1900)));
        // A later message does not close it.
        fence.owner_arrived(&camera("yard"), Epoch(91), at(2000));
        assert!(fence.is_open(at(2000)));
    }

    #[test]
    fn each_uncertain_time_and_connection_needs_its_own_answer() {
        let mut fence = fence();
        let first = fence.ask(at(1001)).unwrap();
        fence.confirm(at(3000), at(2000));
        let second = fence.ask(at(3001)).unwrap();
        fence.answered(first, true, at(3002));
        assert!(!fence.is_open(at(9000)), "the answer of an earlier time");
        fence.answered(second, true, at(9000));
        assert!(fence.is_open(at(9500)));
        fence.connected();
        assert!(!fence.is_open(at(9501)));
        let third = fence.ask(at(9501)).unwrap();
        fence.answered(third, false, at(9502));
        assert!(fence.ask(at(9503)).is_some(), "it could not be asked");
    }

    #[test]
    fn newer_owner_silences_the_camera_and_an_older_does_not() {
        let mut fence = fence();
        let gate = camera("gate");
        let older = fence.owner_arrived(&gate, Epoch(16), at(1001));
        let newer = fence.owner_arrived(&gate, Epoch(18), at(1002));
        assert_eq!([older, newer], [OwnerArrival::Known, OwnerArrival::Lost]);
        assert_eq!(fence.epoch_of(&gate), None);
        assert!(!fence.own(&gate, Epoch(17), at(1003)), "decided before");
        assert!(fence.own(&gate, Epoch(19), at(1004)));
        assert!(!fence.lose(&gate, Epoch(18)), "decided before");
        assert!(fence.lose(&gate, Epoch(20)));
        assert_eq!(fence.epoch_of(&gate), None);
    }

    #[test]
    fn camera_that_is_handed_over_accepts_nothing() {
        let mut fence = fence();
        let gate = camera("gate");
        fence.hand_over(&gate);
        assert_eq!(fence.epoch_of(&gate), None);
        assert!(!fence.is_open(at(2000)), "what waits is still its own");
        assert_eq!(fence.handed_over(&gate, Some(Epoch(18))), Some(Epoch(17)));
        // The release itself is silenced by a newer owner.
        let newer = fence.owner_arrived(&gate, Epoch(19), at(3));
        assert_eq!(newer, OwnerArrival::Lost);
        assert!(fence.is_open(at(2000)));
    }

    #[test]
    fn confirmed_camera_is_not_silenced_by_the_broker_alone() {
        let mut fence = fence();
        let gate = camera("gate");
        let forged = Epoch(1 << 50);
        let live = fence.owner_arrived(&gate, forged, at(500));
        assert_eq!(live, OwnerArrival::Disputed);
        assert_eq!(fence.epoch_of(&gate), Some(Epoch(17)));
        // Without the store, the broker is the only witness.
        let uncertain = fence.owner_arrived(&gate, forged, at(1001));
        assert_eq!(uncertain, OwnerArrival::Lost);
        assert!(!fence.own(&gate, Epoch(18), at(1002)));
        assert_eq!(fence.epoch_of(&gate), None);
        // The store returns, and has given the camera to no other node.
        let confirmed = fence.confirm(at(9000), at(2000));
        assert_eq!(confirmed, [(gate.clone(), Epoch(18))]);
        assert!(fence.own(&gate, Epoch(18), at(2001)));
        assert_eq!(fence.take_overruled(), [(gate.clone(), forged)]);
        assert_eq!(fence.epoch_of(&gate), Some(Epoch(18)));
    }

    #[test]
    fn camera_lost_to_the_broker_alone_returns_with_the_store() {
        let mut fence = fence();
        let gate = camera("gate");
        let lost = fence.owner_arrived(&gate, Epoch(1 << 50), at(1001));
        assert_eq!(lost, OwnerArrival::Lost);
        let confirmed = fence.confirm(at(9000), at(2000));
        assert_eq!(confirmed, [(gate.clone(), Epoch(17))]);
        assert!(fence.own(&gate, Epoch(17), at(2001)));
        assert_eq!(fence.epoch_of(&gate), Some(Epoch(17)));
    }

    #[test]
    fn owner_of_the_store_ends_a_contested_ownership() {
        let mut fence = fence();
        let gate = camera("gate");
        fence.owner_arrived(&gate, Epoch(19), at(1001));
        assert!(!fence.own(&gate, Epoch(18), at(1002)), "decided before");
        fence.lose(&gate, Epoch(19));
        assert_eq!(fence.confirm(at(9000), at(2000)), []);
    }
}
