//! The looks under way: as many as the engine has permits, each on the newest frame there was when its permit came.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::in_order::{InOrder, LookTicket};
use spotter_cameras::sampler::Share;
use spotter_core::{Look, Outcome};
use spotter_engine::front::handle::{EngineStopped, Handle, Permit};

/// A permit, and then a frame for it.
type NextLook = Pin<Box<dyn Future<Output = (Permit, Look)> + Send>>;
/// How a look ended, with its place among its camera's.
type Ended = (LookTicket, Outcome);

/// Takes looks, has the engine answer them, and hands their outcomes on in the order of each camera.
pub struct Looks {
    engine: Handle,
    share: Arc<Share>,
    /// One at a time, so that the order in which looks are taken is known.
    next: NextLook,
    begun: JoinSet<Ended>,
    order: InOrder<Outcome>,
}

impl Looks {
    /// Nothing is begun before [`Looks::outcomes`] is awaited.
    pub fn new(engine: Handle, share: Arc<Share>) -> Self {
        Self {
            next: next_look(&engine, &share),
            engine,
            share,
            begun: JoinSet::new(),
            order: InOrder::default(),
        }
    }

    /// Begins looks as permits and frames come, until outcomes are to be handed on: the next of one camera. Dropping the
    /// future loses nothing. An error is a mistake of this program, after which looks may be missing.
    pub async fn outcomes(&mut self) -> Result<Vec<Outcome>, EngineStopped> {
        loop {
            tokio::select! {
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

    /// Begins no more looks, waits at most so long for those under way, and returns all outcomes that are left. One that
    /// waited for a look that did not end is among them.
    pub async fn finish(&mut self, limit: Duration) -> Vec<Outcome> {
        self.next = Box::pin(pending());
        last_of(&mut self.begun, &mut self.order, limit).await
    }

    /// The same for an engine that answers no more: nobody holds it afterwards, and with it ends what it was asked.
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

/// What may be handed on when one look more has ended.
fn in_turn(
    order: &mut InOrder<Outcome>,
    ended: Result<Ended, JoinError>,
) -> Result<Vec<Outcome>, EngineStopped> {
    let abnormal = |e: JoinError| EngineStopped(format!("a look ended abnormally: {e}"));
    let (ticket, outcome) = ended.map_err(abnormal)?;
    Ok(order.end(ticket, outcome))
}

async fn last_of(
    begun: &mut JoinSet<Ended>,
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

/// Permit first, then the newest frame: what the engine gets is never old.
fn next_look(engine: &Handle, share: &Arc<Share>) -> NextLook {
    let (engine, share) = (engine.clone(), Arc::clone(share));
    Box::pin(async move {
        let permit = engine.permit().await;
        let look = share.next().await;
        (permit, look)
    })
}

#[cfg(test)]
mod tests;
