//! The engine's thread and the permits that keep it from being flooded.
//!
//! Who wants a look answered first holds a [`Permit`]; only then does it choose the newest frame. So no backlog can
//! form: there are as many looks inside as permits, and the channel is as long as the permits are many.

use std::collections::HashMap;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc,
};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::engine::{Engine, EngineError, News};
use crate::{
    domain::{Look, Outcome},
    engine::request::LookId,
};

/// How often an idle engine shows that it is alive.
const IDLE_BEAT: Duration = Duration::from_secs(1);

struct Request {
    look: Look,
    reply: oneshot::Sender<Outcome>,
}

/// The engine has ended; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineStopped(pub String);

/// The way to an engine. Clones share it; the engine ends when the last one is gone.
#[derive(Clone)]
pub struct Handle {
    permits: Arc<Semaphore>,
    requests: mpsc::SyncSender<Request>,
    beats: Arc<AtomicU64>,
}

/// The right to have one look answered.
pub struct Permit {
    permit: OwnedSemaphorePermit,
    requests: mpsc::SyncSender<Request>,
}

/// Starts the thread `engine`, builds the engine on it (a device's types may be bound to their thread) and waits until it
/// is ready. `build` says with the engine how many permits there are, 1 or more: the looks that may be inside of it at
/// once. Every one more keeps the device busier and grows older. The second value resolves when the engine ends: `Ok` after the last handle went, else the reason.
pub async fn start<B>(
    build: B,
) -> Result<(Handle, oneshot::Receiver<Result<(), EngineStopped>>), EngineStopped>
where
    B: FnOnce() -> Result<(Engine, usize), String> + Send + 'static,
{
    let (ready, is_ready) = oneshot::channel();
    let (ended, has_ended) = oneshot::channel();
    let beats = Arc::new(AtomicU64::new(0));
    let thread_beats = Arc::clone(&beats);
    let body = move || match build() {
        Err(reason) => drop(ready.send(Err(EngineStopped(reason)))),
        Ok((engine, permits)) => {
            let (requests, inbox) = mpsc::sync_channel(permits);
            // The receiver waits below; it cannot be gone unless the caller was dropped.
            let _ = ready.send(Ok((permits, requests)));
            let _ = ended.send(serve(engine, &inbox, &thread_beats));
        }
    };
    std::thread::Builder::new()
        .name("engine".into())
        .spawn(body)
        .map_err(|e| EngineStopped(format!("starting the engine thread: {e}")))?;
    let (permits, requests) = is_ready
        .await
        .map_err(|_| EngineStopped("the engine thread ended while it was starting".into()))??;
    let handle = Handle {
        permits: Arc::new(Semaphore::new(permits)),
        requests,
        beats,
    };
    Ok((handle, has_ended))
}

/// Turns the loop while a look is inside, and sleeps until the next one comes.
fn serve(
    mut engine: Engine,
    inbox: &mpsc::Receiver<Request>,
    beats: &AtomicU64,
) -> Result<(), EngineStopped> {
    let mut inside: HashMap<LookId, oneshot::Sender<Outcome>> = HashMap::new();
    loop {
        beats.fetch_add(1, Ordering::Relaxed);
        match next_request(inbox, engine.is_idle()) {
            Ok(Some(Request { look, reply })) => {
                let asked = look.clone();
                match engine.submit(look, false) {
                    Ok(id) => drop(inside.insert(id, reply)),
                    // Nobody waits any more when the daemon is shutting down.
                    Err(e) => drop(reply.send(Outcome::Failed(asked, e.to_string()))),
                }
            }
            Ok(None) => {}
            Err(NobodyAsks) => return Ok(()),
        }
        let stopped = |e: EngineError| EngineStopped(e.to_string());
        for (id, news) in engine.turn().map_err(stopped)? {
            if let (News::Ended(outcome), Some(reply)) = (news, inside.remove(&id)) {
                let _ = reply.send(outcome);
            }
        }
        // A client that went away waits for nothing.
        for (id, _) in inside.extract_if(|_, reply| reply.is_closed()) {
            engine.cancel(id);
        }
    }
}

/// The last handle is gone and everything is answered.
struct NobodyAsks;

/// The next request. Waits for it, for a while, when there is nothing else to do.
fn next_request(
    inbox: &mpsc::Receiver<Request>,
    idle: bool,
) -> Result<Option<Request>, NobodyAsks> {
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

impl Handle {
    /// Waits for a free place in the engine.
    pub async fn permit(&self) -> Permit {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        // The semaphore is never closed, so this branch is not taken; an empty engine is the honest answer if it were.
        let permit = match permit {
            Ok(permit) => permit,
            Err(_) => std::future::pending().await,
        };
        Permit {
            permit,
            requests: self.requests.clone(),
        }
    }

    /// Rises whenever the engine's loop turns, at least once a second while it is healthy and idle, and at every look.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

impl Permit {
    /// Has one look answered. Does not block the thread.
    pub async fn look(self, look: Look) -> Result<Outcome, EngineStopped> {
        let stopped = || EngineStopped("the engine has stopped".into());
        let (reply, answer) = oneshot::channel();
        self.requests
            .try_send(Request { look, reply })
            .map_err(|_| stopped())?;
        let outcome = answer.await.map_err(|_| stopped());
        drop(self.permit);
        outcome
    }
}
