//! What goes from the holders of an engine to who takes their looks.

use std::{
    convert::Infallible,
    sync::{Arc, Weak, atomic::AtomicU64, mpsc},
};

use tokio::sync::{mpsc as news, oneshot};

use super::{
    adapters::AdapterOrders,
    error::EngineError,
    places::{Place, Places},
    requests::ViewRequests,
};
use crate::scheduler::request::LookId;
use spotter_core::{FollowUp, Look, LookNews, Prompt};

/// What the holders of an engine send to who takes their looks.
pub(super) enum EngineMessage {
    Look(Box<LookSubmission>),
    FollowUp(AskedFollowUp),
}

/// The prompts that follow an answer, or none.
pub(super) struct AskedFollowUp {
    pub look: LookId,
    /// Index of the answered prompt in the look.
    pub prompt: usize,
    pub prompts: Vec<Arc<Prompt>>,
}

/// Makes follow-ups whose prompts go to who takes looks. It does not keep an engine from ending.
#[derive(Clone)]
pub(super) struct FollowUpSender(Weak<mpsc::Sender<EngineMessage>>);

impl FollowUpSender {
    pub fn new(messages: &Arc<mpsc::Sender<EngineMessage>>) -> Self {
        Self(Arc::downgrade(messages))
    }

    /// To an answer of the look, given by its prompt's index there. Of the prompts it asks the first, as many as the answered one may have
    /// outlines.
    pub fn follow_up(&self, look: LookId, prompt: usize, answered: &Prompt) -> FollowUp {
        let (sender, outlines_max) = (self.0.clone(), usize::from(answered.outlines_max));
        FollowUp::new(move |mut prompts| {
            prompts.truncate(outlines_max);
            let asked = AskedFollowUp {
                look,
                prompt,
                prompts,
            };
            // Without handles the engine ends, and waits for nothing.
            if let Some(sender) = sender.upgrade() {
                let _ = sender.send(EngineMessage::FollowUp(asked));
            }
        })
    }
}

/// A look, and who waits for its news. Dropping it before the end says that the engine has stopped.
pub(super) struct LookSubmission {
    pub look: Look,
    /// `None`: who takes the look makes them.
    pub requests: Option<Result<ViewRequests, EngineError>>,
    /// Has room for all of it; closed when the caller waits no more.
    pub news: news::Sender<LookNews>,
    /// To be dropped before the news that it is free, or when that is closed.
    pub place: Place,
}

/// What the other end of a handle has.
pub(super) struct EngineInbox {
    pub messages: mpsc::Receiver<EngineMessage>,
    pub follow_ups: FollowUpSender,
    /// Rises with every turn.
    pub beats: Arc<AtomicU64>,
    pub places: Places,
    /// For an engine in another process.
    pub adapters: Arc<AdapterOrders>,
}

/// The engine has ended; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineStopped(pub String);

/// The other ends of an [`EngineEnd`](super::handle::EngineEnd), held by the thread that it is about.
pub(super) struct EngineEndSender {
    /// Learns why the engine ended; nothing wrong: no caller is left.
    pub ended: oneshot::Sender<Result<(), EngineStopped>>,
    /// Closed when the thread is over.
    pub over: oneshot::Sender<Infallible>,
}
