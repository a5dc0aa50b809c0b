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

use super::in_order::{InOrder, Ticket};
use crate::{
    domain::{Look, Outcome},
    front::handle::{EngineStopped, Handle, Permit},
    sampler::Share,
};

/// A permit, and then a frame for it.
type NextLook = Pin<Box<dyn Future<Output = (Permit, Look)> + Send>>;
/// How a look ended, with its place among its camera's.
type Ended = (Ticket, Outcome);

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
                    let outcomes = self.end(ended)?;
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
        let mut last = Vec::new();
        let all_ended = async {
            while let Some(ended) = self.begun.join_next().await {
                last.extend(self.end(ended).unwrap_or_default());
            }
        };
        let _ = timeout(limit, all_ended).await;
        last.extend(self.order.give_up());
        last
    }

    fn begin(&mut self, permit: Permit, look: Look) {
        let ticket = self.order.take(&look.frame.camera);
        self.begun
            .spawn(async move { (ticket, permit.look(look).await) });
    }

    fn end(&mut self, ended: Result<Ended, JoinError>) -> Result<Vec<Outcome>, EngineStopped> {
        let abnormal = |e: JoinError| EngineStopped(format!("a look ended abnormally: {e}"));
        let (ticket, outcome) = ended.map_err(abnormal)?;
        Ok(self.order.end(ticket, outcome))
    }
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
