//! What goes from the holders of an engine to who takes their looks.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::AtomicU64, mpsc},
};

use tokio::sync::{mpsc as news, oneshot};

use super::{
    error::EngineError,
    places::{Place, Places},
    requests::ViewRequests,
};
use spotter_core::{Look, LookNews};

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
    pub looks: mpsc::Receiver<LookSubmission>,
    /// Rises with every turn.
    pub beats: Arc<AtomicU64>,
    pub places: Places,
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
