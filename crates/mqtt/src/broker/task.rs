//! The task that keeps the way to the broker open: one connection after the other, with a rest in between.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast, mpsc, watch},
    time::sleep,
};

use super::{
    open::{Memory, Open},
    policy::{BrokerState, Policy},
};
use crate::{Inbound, Line, Place, Tally, outbox::Outbox, publisher::Sent};
use spotter_core::{Clock, Mono};

/// The task turns at least so often, so that its progress shows that it lives.
pub(super) const TURN: Duration = Duration::from_secs(2);
/// What the task shares with the stages that publish. The lock is held for a map operation, never across a wait; a
/// channel in its place would be a second queue with a loss rule of its own.
#[derive(Debug)]
pub(crate) struct Shared {
    outbox: Mutex<Outbox>,
    changed: Notify,
    turns: AtomicU64,
    inbound_dropped: AtomicU64,
    inbound_retained: AtomicU64,
}

impl Shared {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self {
            outbox: Mutex::new(outbox),
            changed: Notify::new(),
            turns: AtomicU64::new(0),
            inbound_dropped: AtomicU64::new(0),
            inbound_retained: AtomicU64::new(0),
        }
    }

    /// The outbox, for a moment.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the task to look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Rises while the task lives.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(super) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves when there is something to look at.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What somebody said to us was dropped, because nobody read it.
    pub(super) fn drop_inbound(&self) {
        self.inbound_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// A retained command was not acted on.
    pub(crate) fn ignore_retained(&self) {
        self.inbound_retained.fetch_add(1, Ordering::Relaxed);
    }

    /// What became of messages, both ways.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            inbound_dropped: self.inbound_dropped.load(Ordering::Relaxed),
            inbound_retained: self.inbound_retained.load(Ordering::Relaxed),
            ..self.outbox().tally()
        }
    }
}

/// Everything the task owns.
pub(crate) struct Task {
    /// Where to be. Changed with the outbox locked, which has to know of it in the same moment.
    pub(crate) places: watch::Receiver<Arc<Place>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: watch::Sender<BrokerState>,
    pub(crate) sent: broadcast::Sender<Sent>,
    pub(crate) lines: broadcast::Sender<Line>,
    /// What to listen to besides our own status, and where it goes.
    pub(crate) filters: watch::Receiver<Vec<String>>,
    pub(crate) inbox: mpsc::Sender<Inbound>,
    /// Sent when somebody has reason to believe that a try will do now.
    pub(crate) again: watch::Receiver<()>,
    /// Turns true once, or its sender is dropped: both mean stop.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Task {
    /// Runs until stopped, whatever the broker does.
    pub(crate) async fn run(self) {
        let mut places = self.places.clone();
        while !self.is_stopped() {
            let place = self.arrive(&mut places);
            self.stay(&place, &mut places).await;
            self.shared.outbox().disconnected();
        }
        self.show(&places.borrow(), BrokerState::Stopped);
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// The place to be at now. At the one before everything is said.
    fn arrive(&self, places: &mut watch::Receiver<Arc<Place>>) -> Arc<Place> {
        let place = places.borrow_and_update();
        self.shared.outbox().arrive();
        self.show(&place, BrokerState::Connecting);
        Arc::clone(&place)
    }

    /// At one place, until a stop or another place is wanted.
    async fn stay(&self, place: &Arc<Place>, places: &mut watch::Receiver<Arc<Place>>) {
        let mut policy = Policy::new();
        let mut memory = Memory::of(place);
        let mut again = self.again.clone();
        let random = RandomState::new();
        let mut tries = 0u64;
        loop {
            // Whoever asks from here on gets another try: this one may have read the files already.
            again.mark_unchanged();
            memory.renew_trust(self.clock.now()).await;
            let (open, events) = Open::new(self, place, &policy, &mut memory);
            let Some(end) = open.run(events, &mut policy).await else {
                return;
            };
            self.shared.outbox().disconnected();
            if self.state.borrow().is_online() {
                // Asked for when there was nothing to do.
                again.mark_unchanged();
            }
            tries += 1;
            let chance = (random.hash_one(tries) >> 11) as f64 / (1u64 << 53) as f64;
            let state = policy.ended(end, self.clock.now(), chance);
            let retry_at = state.retry_at();
            self.show(place, state);
            let mut stop = self.stop.clone();
            tokio::select! {
                () = self.rest(retry_at) => {}
                Ok(()) = again.changed() => {}
                () = asked_to_stop(&mut stop) => return,
                Ok(()) = places.changed() => return,
            }
        }
    }

    /// Waits for the next try; for ever when there is none.
    async fn rest(&self, retry_at: Option<Mono>) {
        loop {
            self.shared.turn();
            let left = retry_at.map_or(TURN, |at| at.since(self.clock.now()).min(TURN));
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    /// Shows a state and logs it when it is news.
    pub(super) fn show(&self, place: &Place, state: BrokerState) {
        let news = self.state.send_if_modified(|shown| {
            let news = !is_same(shown, &state);
            shown.clone_from(&state);
            news
        });
        if !news {
            return;
        }
        let (host, port) = (place.settings.host.as_str(), place.settings.port);
        match &state {
            BrokerState::Connecting | BrokerState::Stopped => {
                tracing::debug!(host, port, ?state, "broker")
            }
            BrokerState::Online { protocol } => {
                tracing::info!(host, port, protocol, "broker online")
            }
            BrokerState::Backoff { reason, .. } => {
                tracing::warn!(host, port, reason, "broker away, trying again for ever");
            }
            BrokerState::Refused { reason, .. } => {
                tracing::error!(host, port, reason, "broker refused us, trying again seldom");
            }
            BrokerState::TakenOver { .. } => {
                let id = place.settings.client_id.as_str();
                tracing::error!(
                    host,
                    port,
                    id,
                    "another client has our id, trying once a minute; give each box its own node.name"
                );
            }
            BrokerState::Untrusted { reason, .. } => {
                tracing::error!(
                    host,
                    port,
                    reason,
                    "broker not trusted, trying again seldom"
                );
            }
        }
    }
}

/// Resolves when a stop was asked for, or nobody is left to ask.
pub(super) async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}

/// Same trouble as before: only the time of the next try moved. A try in between is no news, so the
/// state stays what it was until the try has ended.
fn is_same(shown: &BrokerState, new: &BrokerState) -> bool {
    use BrokerState::{Backoff, Refused, TakenOver, Untrusted};
    match (shown, new) {
        (Backoff { reason: a, .. }, Backoff { reason: b, .. })
        | (Refused { reason: a, .. }, Refused { reason: b, .. })
        | (Untrusted { reason: a, .. }, Untrusted { reason: b, .. }) => a == b,
        (TakenOver { .. }, TakenOver { .. }) => true,
        _ => shown == new,
    }
}
