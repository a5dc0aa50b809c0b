//! The engine's thread and the permits that keep it from being flooded.
//!
//! The holder of an [`EngineHandle`] does not see whether the engine is a thread of this process, started here, or a process of
//! its own ([`super::outside`]).
//!
//! A caller first acquires a [`Permit`]; only then does it choose the newest frame. So no backlog can
//! form: there are as many looks inside as permits, and the channel is as long as the permits are many.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::engine::{Engine, EngineError, LookNews};
use crate::scheduler::request::LookId;
use spotter_core::{Look, Outcome};

/// How often an idle engine shows that it is alive.
const IDLE_BEAT: Duration = Duration::from_secs(1);

/// A look, and who waits for its outcome. Dropping it says that the engine has stopped.
pub(super) struct LookSubmission {
    pub look: Look,
    /// Closed when the caller waits no more.
    pub reply: oneshot::Sender<Outcome>,
    /// To be dropped before the reply, or when that is closed.
    pub place: SharedPermit,
}

/// A place in the engine: free when neither who asked nor the engine has anything to do with the look any more. So there is
/// room in the inbox for each holder, also beside cancelled looks.
pub(super) type SharedPermit = Arc<OwnedSemaphorePermit>;

/// The engine has ended; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineStopped(pub String);

/// The way to an engine. Clones share it; the engine ends when the last one is gone.
#[derive(Clone)]
pub struct EngineHandle {
    permits: Arc<Semaphore>,
    requests: mpsc::SyncSender<LookSubmission>,
    beats: Arc<AtomicU64>,
}

/// Reports how an engine ends.
pub struct EngineEnd {
    reason: oneshot::Receiver<Result<(), EngineStopped>>,
    /// Nothing is ever sent; it is closed when the thread is over.
    thread: oneshot::Receiver<Infallible>,
}

/// The other ends of an [`EngineEnd`], held by the thread that it is about.
pub(super) struct EngineEndSender {
    /// Learns why the engine ended; nothing wrong: no caller is left.
    pub ended: oneshot::Sender<Result<(), EngineStopped>>,
    /// Closed when the thread is over.
    pub over: oneshot::Sender<Infallible>,
}

/// The right to have one look answered.
pub struct Permit {
    place: SharedPermit,
    requests: mpsc::SyncSender<LookSubmission>,
}

/// Starts the thread `engine`, builds the engine on it (a device's types may be bound to their thread) and waits until it
/// is ready. `build` says with the engine how many permits there are, 1 or more: the looks that may be inside of it at
/// once. Every one more keeps the device busier and grows older.
pub async fn start<B>(build: B) -> Result<(EngineHandle, EngineEnd), EngineStopped>
where
    B: FnOnce() -> Result<(Engine, usize), String> + Send + 'static,
{
    let build = || build().map(|(engine, permits)| (engine, permits, ()));
    let (handle, end, ()) = start_and_report(build).await?;
    Ok((handle, end))
}

/// The same with a `build` that returns a report besides. The log of the thread is in the span of the caller.
pub async fn start_and_report<B, T>(build: B) -> Result<(EngineHandle, EngineEnd, T), EngineStopped>
where
    B: FnOnce() -> Result<(Engine, usize, T), String> + Send + 'static,
    T: Send + 'static,
{
    let (ready, is_ready) = oneshot::channel();
    let (life, end) = EngineEnd::new();
    let span = tracing::Span::current();
    let body = move || {
        let _span = span.entered();
        match build() {
            Err(reason) => drop(ready.send(Err(EngineStopped(reason)))),
            Ok((engine, permits, report)) => {
                let (handle, inbox, beats) = EngineHandle::new(permits);
                // The receiver waits below; it cannot be gone unless the caller was dropped.
                let _ = ready.send(Ok((handle, report)));
                run(engine, inbox, life.ended, &beats);
            }
        }
        drop(life.over);
    };
    std::thread::Builder::new()
        .name("engine".into())
        .spawn(body)
        .map_err(|e| EngineStopped(format!("starting the engine thread: {e}")))?;
    let (handle, report) = is_ready
        .await
        .map_err(|_| EngineStopped("the engine thread ended while it was starting".into()))??;
    Ok((handle, end, report))
}

/// Who waits for an answer, by look.
type WaitingReplies = HashMap<LookId, (oneshot::Sender<Outcome>, SharedPermit)>;

/// Serves until the end. The [`EngineEnd`] learns the reason first, then waiting callers that nothing comes any more, and
/// neither waits for the device to be released.
fn run(
    mut engine: Engine,
    inbox: mpsc::Receiver<LookSubmission>,
    ended: oneshot::Sender<Result<(), EngineStopped>>,
    beats: &AtomicU64,
) {
    let mut waiting = WaitingReplies::new();
    let reason = serve(&mut engine, &inbox, &mut waiting, beats);
    let _ = ended.send(reason);
    drop((inbox, waiting));
    drop(engine);
}

/// Turns the loop while a look is inside, and sleeps until the next one comes.
fn serve(
    engine: &mut Engine,
    inbox: &mpsc::Receiver<LookSubmission>,
    waiting: &mut WaitingReplies,
    beats: &AtomicU64,
) -> Result<(), EngineStopped> {
    loop {
        beats.fetch_add(1, Ordering::Relaxed);
        match next_request(inbox, engine.is_idle()) {
            Ok(Some(LookSubmission { look, reply, place })) => {
                let asked = look.clone();
                match engine.submit(look, false) {
                    Ok(id) => drop(waiting.insert(id, (reply, place))),
                    Err(e) => {
                        drop(place);
                        // No caller waits when the daemon is shutting down.
                        let _ = reply.send(Outcome::Failed(asked, e.to_string()));
                    }
                }
            }
            Ok(None) => {}
            Err(NobodyAsks) => return Ok(()),
        }
        let stopped = |e: EngineError| EngineStopped(e.to_string());
        for (id, news) in engine.turn().map_err(stopped)? {
            if let (LookNews::Ended(outcome), Some((reply, place))) = (news, waiting.remove(&id)) {
                drop(place);
                let _ = reply.send(outcome);
            }
        }
        // A client that went away waits for nothing.
        for (id, _) in waiting.extract_if(|_, (reply, _)| reply.is_closed()) {
            engine.cancel(id);
        }
    }
}

/// The last handle is gone and everything is answered.
struct NobodyAsks;

/// The next request. Waits for it, for a while, when there is nothing else to do.
fn next_request(
    inbox: &mpsc::Receiver<LookSubmission>,
    idle: bool,
) -> Result<Option<LookSubmission>, NobodyAsks> {
    let received = match idle {
        true => inbox.recv_timeout(IDLE_BEAT),
        false => inbox.try_recv().map_err(|e| match e {
            mpsc::TryRecvError::Empty => mpsc::RecvTimeoutError::Timeout,
            mpsc::TryRecvError::Disconnected => mpsc::RecvTimeoutError::Disconnected,
        }),
    };
    match received {
        Ok(request) => Ok(Some(request)),
        Err(mpsc::RecvTimeoutError::Disconnected) if idle => Err(NobodyAsks),
        Err(_) => Ok(None),
    }
}

impl EngineHandle {
    /// A handle to who takes requests from the inbox and counts its turns.
    pub(super) fn new(permits: usize) -> (Self, mpsc::Receiver<LookSubmission>, Arc<AtomicU64>) {
        let (requests, inbox) = mpsc::sync_channel(permits);
        let beats = Arc::new(AtomicU64::new(0));
        let handle = Self {
            permits: Arc::new(Semaphore::new(permits)),
            requests,
            beats: Arc::clone(&beats),
        };
        (handle, inbox, beats)
    }

    /// Waits for a free place in the engine.
    pub async fn permit(&self) -> Permit {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        // The semaphore is never closed, so this branch is not taken; if it were, no permit would ever come.
        let permit = match permit {
            Ok(permit) => permit,
            Err(_) => std::future::pending().await,
        };
        Permit {
            place: Arc::new(permit),
            requests: self.requests.clone(),
        }
    }

    /// Rises with the turns of the engine's loop, every second or two at least while it is healthy, busy or idle.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

impl EngineEnd {
    pub(super) fn new() -> (EngineEndSender, Self) {
        let (ended, reason) = oneshot::channel();
        let (over, thread) = oneshot::channel();
        (EngineEndSender { ended, over }, Self { reason, thread })
    }

    /// Waits until the engine ends, and says why. To be awaited until it is ready, and not again.
    pub async fn reason(&mut self) -> EngineStopped {
        match (&mut self.reason).await {
            Ok(Err(stopped)) => stopped,
            Ok(Ok(())) => EngineStopped("no caller is left".into()),
            Err(_) => EngineStopped(
                "engine thread panicked; the panic message is in the log above".into(),
            ),
        }
    }

    /// Waits until the thread or the process is over and its resources are free. The engine ends when all handles are dropped,
    /// or when it has failed.
    pub async fn over(self) {
        // Closed is what it waits for.
        let _ = self.thread.await;
    }
}

impl Permit {
    /// Has one look answered; it fails when the engine ends before. Does not block the thread.
    pub async fn look(self, look: Look) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let asked = look.clone();
        let place = Arc::clone(&self.place);
        let sent = self
            .requests
            .try_send(LookSubmission { look, reply, place });
        let outcome = match sent {
            Ok(()) => answer.await.ok(),
            Err(_) => None,
        };
        drop(self.place);
        outcome.unwrap_or_else(|| Outcome::Failed(asked, "the engine has stopped".into()))
    }
}
