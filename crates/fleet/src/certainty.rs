//! What a node may rely on: that it knows who lives, and that it has looked at the store. Pure.
//!
//! **Who lives.** A node that was stopped, or that the store did not answer for some time, has old ages of the others' heartbeats. It decides
//! again when the watch has shown a renewal that it sent afterwards: the bucket of heartbeats has one order, so all heartbeats that the store
//! had before that renewal have been seen, too.
//!
//! When the store loses all heartbeats (a single server restarted), each node that connects waits for longer than a lifetime before it takes
//! another one for dead; by then no renewal from before counts. So it does after a renewal of its own that failed: a cluster that chooses a new
//! leader accepts none of any node for some seconds, and the first one that renews again would see all others expired.
//!
//! **Own cameras.** Another node claims a camera only if the store has no heartbeat of its owner, so a renewal that was sent at `t` keeps them
//! until `t + HEARTBEAT_LIFETIME` or later. A claim from before that renewal may still arrive; the watch reports it.

use std::time::Duration;

use spotter_core::Mono;

use crate::{
    entries::{HEARTBEAT_LIFETIME, HEARTBEAT_PERIOD},
    rights::StoreLook,
};

/// A node decides every half second. After a pause of this length it was stopped, or the store was slow, and heartbeats wait to be read; with
/// shorter ones, no node that renews its heartbeat appears to be dead.
const STOPPED_AFTER: Duration = Duration::from_secs(5);

/// A renewal of the own heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedRenewal {
    pub sent: Mono,
    pub accepted: Mono,
    /// Of the bucket of heartbeats.
    pub revision: u64,
}

/// The connection to the store, as far as decisions need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StoreContact {
    #[default]
    None,
    /// Since then; owners are still being read.
    Reading(Mono),
    /// Connected since then, and all owners are known.
    Current(Mono),
}

#[derive(Debug, Default)]
pub struct Certainty {
    contact: StoreContact,
    last_tick: Option<Mono>,
    /// Renewals that were sent earlier are no base of decisions.
    base: Mono,
    /// Once all owners were known.
    was_current: bool,
    renewal: Option<AcceptedRenewal>,
    /// The last renewal failed: the store may accept none of any node.
    is_refused: bool,
    /// When the store accepted a renewal again.
    accepts_since: Option<Mono>,
    /// When the newest renewal that the watch has shown was sent.
    shown: Option<Mono>,
    /// Up to which revision the watch has shown heartbeats.
    seen: u64,
}

impl Certainty {
    pub fn connected(&mut self, now: Mono) {
        self.contact = StoreContact::Reading(now);
        self.base = now;
        // The bucket may be a new one, which counts from the start.
        self.seen = 0;
        self.shown = None;
    }

    pub fn current(&mut self) {
        if let StoreContact::Reading(since) = self.contact {
            self.contact = StoreContact::Current(since);
            self.was_current = true;
        }
    }

    pub fn disconnected(&mut self) {
        self.contact = StoreContact::None;
    }

    pub fn is_current(&self) -> bool {
        matches!(self.contact, StoreContact::Current(_))
    }

    pub fn connected_at(&self) -> Option<Mono> {
        match self.contact {
            StoreContact::None => None,
            StoreContact::Reading(since) | StoreContact::Current(since) => Some(since),
        }
    }

    /// Others can renew their heartbeats since then, as far as this node can know. `None`: not connected.
    pub fn usable_since(&self) -> Option<Mono> {
        let connected_at = self.connected_at()?;
        Some(connected_at.max(self.accepts_since.unwrap_or_default()))
    }

    /// Before each decision.
    pub fn tick(&mut self, now: Mono) {
        if let Some(last) = self.last_tick
            && now.since(last) > STOPPED_AFTER
        {
            self.base = now;
        }
        self.last_tick = Some(now);
    }

    /// The watch has shown a heartbeat of any node.
    pub fn seen(&mut self, revision: u64) {
        self.seen = self.seen.max(revision);
        self.compare();
    }

    pub fn accepted(&mut self, renewal: AcceptedRenewal) {
        if std::mem::take(&mut self.is_refused) {
            self.accepts_since = Some(renewal.accepted);
        }
        self.renewal = Some(renewal);
        self.compare();
    }

    /// The store did not accept a renewal.
    pub fn refused(&mut self) {
        self.is_refused = true;
    }

    /// Of the last renewal that was accepted; 0 before the first one.
    pub fn last_revision(&self) -> u64 {
        self.renewal.map_or(0, |renewal| renewal.revision)
    }

    fn compare(&mut self) {
        if let Some(renewal) = self.renewal
            && self.seen >= renewal.revision
        {
            self.shown = Some(renewal.sent);
        }
    }

    /// True when a renewal has to be sent that a decision can be based on, or when the last one is old or was refused. Never before all owners
    /// were known once.
    pub fn is_renewal_due(&self, now: Mono) -> bool {
        let is_old = |renewal: AcceptedRenewal| {
            renewal.sent < self.base || now.since(renewal.sent) >= HEARTBEAT_PERIOD
        };
        self.was_current && (self.is_refused || self.renewal.is_none_or(is_old))
    }

    /// Decisions follow from what the store has now.
    pub fn is_fresh(&self, now: Mono) -> bool {
        let is_fresh = |sent: Mono| sent >= self.base && now.since(sent) <= HEARTBEAT_LIFETIME;
        self.is_current() && self.shown.is_some_and(is_fresh)
    }

    /// `None`: nothing is known since the node was stopped. Before a renewal, so that what the watch had to report of an earlier time is read.
    pub fn look(&self, now: Mono) -> Option<StoreLook> {
        if !self.is_current() || self.is_refused {
            return Some(StoreLook {
                until: now.after(HEARTBEAT_LIFETIME),
                is_confirmed: false,
            });
        }
        let renewal = self.renewal.filter(|renewal| renewal.sent >= self.base)?;
        let until = renewal.sent.after(HEARTBEAT_LIFETIME);
        (now <= until).then_some(StoreLook {
            until,
            is_confirmed: true,
        })
    }
}
