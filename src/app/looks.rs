//! The looks in flight: at most as many as the engine has permits, each on the newest frame at the time of its permit.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::in_order::{InOrder, LookTicket};
use spotter_cameras::sampler::CameraShare;
use spotter_core::{Look, Outcome};
use spotter_engine::service::handle::{EngineHandle, EngineStopped, Permit};

/// A permit, and then a frame for it.
type NextPermitAndLook = Pin<Box<dyn Future<Output = (Permit, Look)> + Send>>;
/// The outcome of a look, with its position among the looks of its camera.
type EndedLook = (LookTicket, Outcome);

/// Requests looks from one engine and returns their outcomes in the order of each camera.
pub struct LooksInFlight {
    engine: EngineHandle,
    share: Arc<CameraShare>,
    /// One at a time, so that the order of the looks is known.
    next: NextPermitAndLook,
    begun: JoinSet<EndedLook>,
    order: InOrder<Outcome>,
}

impl LooksInFlight {
    /// Begins no look before [`LooksInFlight::outcomes`] is awaited.
    pub fn new(engine: EngineHandle, share: Arc<CameraShare>) -> Self {
        Self {
            next: next_look(&engine, &share),
            engine,
            share,
            begun: JoinSet::new(),
            order: InOrder::default(),
        }
    }

    /// Begins looks as permits and frames arrive, until a camera's next outcome is ready. Dropping the future loses nothing. An
    /// error is a panic of this program, after which looks may be missing.
    pub async fn outcomes(&mut self) -> Result<Vec<Outcome>, EngineStopped> {
        loop {
            tokio::select! {
                // The same order each time, so that a run in virtual time can be repeated.
                biased;
                (permit, look) = &mut self.next => {
                    self.begin(permit, look);
                    self.next = next_look(&self.engine, &self.share);
                }
                Some(ended) = self.begun.join_next() => {
                    let outcomes = in_turn(&mut self.order, ended)?;
                    if !outcomes.is_empty() {
                        return Ok(outcomes);
                    }
                }
            }
        }
    }

    /// Begins no more looks, waits at most `limit` for those in flight, and returns all remaining outcomes, also those that
    /// wait for an earlier look of their camera.
    pub async fn finish(&mut self, limit: Duration) -> Vec<Outcome> {
        self.next = Box::pin(pending());
        last_of(&mut self.begun, &mut self.order, limit).await
    }

    /// As [`finish`](Self::finish) for a failed engine: drops the last handles of it, so its looks end as failed.
    pub async fn abandon(self, limit: Duration) -> Vec<Outcome> {
        let Self {
            engine,
            next,
            mut begun,
            mut order,
            ..
        } = self;
        drop((engine, next));
        last_of(&mut begun, &mut order, limit).await
    }

    fn begin(&mut self, permit: Permit, look: Look) {
        let ticket = self.order.take(&look.frame.camera);
        self.begun
            .spawn(async move { (ticket, permit.look(look).await) });
    }
}

/// The outcomes that become ready when one more look ends.
fn in_turn(
    order: &mut InOrder<Outcome>,
    ended: Result<EndedLook, JoinError>,
) -> Result<Vec<Outcome>, EngineStopped> {
    let abnormal = |e: JoinError| EngineStopped(format!("the task of a look panicked: {e}"));
    let (ticket, outcome) = ended.map_err(abnormal)?;
    Ok(order.end(ticket, outcome))
}

async fn last_of(
    begun: &mut JoinSet<EndedLook>,
    order: &mut InOrder<Outcome>,
    limit: Duration,
) -> Vec<Outcome> {
    let mut last = Vec::new();
    let all_ended = async {
        while let Some(ended) = begun.join_next().await {
            last.extend(in_turn(order, ended).unwrap_or_default());
        }
    };
    let _ = timeout(limit, all_ended).await;
    last.extend(order.give_up());
    last
}

/// Permit first, then the newest frame: the engine never gets an old one. While the engine begins no looks, the permit waits
/// without a frame.
fn next_look(engine: &EngineHandle, share: &Arc<CameraShare>) -> NextPermitAndLook {
    let (engine, share) = (engine.clone(), Arc::clone(share));
    Box::pin(async move {
        let permit = engine.permit().await;
        let mut places = engine.places();
        loop {
            tokio::select! {
                biased;
                () = until_open(&mut places, false) => until_open(&mut places, true).await,
                look = share.next() => return (permit, look),
            }
        }
    })
}

/// Waits until looks may begin, or until none may. An engine that has ended is open: its looks fail.
async fn until_open(places: &mut watch::Receiver<usize>, open: bool) {
    let has_ended = places.wait_for(|count| (*count > 0) == open).await.is_err();
    if has_ended && !open {
        pending().await
    }
}

#[cfg(test)]
mod tests;
