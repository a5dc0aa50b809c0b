//! The daemon's side of an engine in a process of its own: callers hold an [`EngineHandle`] and an [`EngineEnd`], as of a thread's.
//!
//! ```text
//!   Permit ─▶ inbox ─▶ thread `engine-asks` ─▶ looks, cancels ─▶ ┐
//!                            │ looks inside                       │ process
//!   LookNews ◀─────── thread `engine` ◀─ news, beats ◀─────────── ┘
//! ```
//!
//! After a fault CUDA gives up the whole process, with all its GPUs: so of several GPUs each has its engine in a process
//! of its own. A look is copied once into the connection; it stays here, and its news are made of it and of what the process
//! says.
//!
//! Belongs here: the two threads. Not here: the process (`process`), the messages (`wire`), its own side (`inside`).

use std::{
    collections::HashMap,
    io::{BufReader, BufWriter},
    mem,
    net::Shutdown,
    os::unix::net::UnixStream,
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{mpsc as news, oneshot};

use super::{
    handle::{EngineEnd, EngineHandle, EngineStopped},
    inbox::{EngineInbox, LookSubmission},
    look_limit::LookRule,
    open_look::OpenLook,
    places::{Place, Places},
    process::Process,
    wire::{self, Hello, OpenReply, WireError, WireLookNews, WireNews, WireOrder},
};
use spotter_core::{Clock, LookFailure, LookNews, Outcome};

/// How soon a cancelled look is noticed.
const CANCEL_POLL: Duration = Duration::from_millis(50);
/// While nothing is inside, there is nothing to notice but requests, which come by themselves.
const IDLE_POLL: Duration = Duration::from_secs(1);
/// The other side reads at once, also while its device is busy; one that does not for so long is stopped, and is ended.
const WRITE_LIMIT: Duration = Duration::from_secs(20);
/// Rows of a picture are gathered up to this many bytes, about what a connection takes at once.
const WRITE_BYTES: usize = 256 << 10;

/// Starts a process that [serves](super::inside), has it open the engine that `what` describes, and waits until it is ready.
/// Also returns its report. The process ends when all handles are gone, and when the engine has failed; it does
/// not outlive this process.
pub async fn start<S, T>(
    program: Command,
    what: S,
    clock: Arc<dyn Clock>,
) -> Result<(EngineHandle, EngineEnd, T), EngineStopped>
where
    S: Serialize + Send + 'static,
    T: DeserializeOwned + Send + 'static,
{
    let name = program.get_program().to_owned();
    let (socket, mut process) = Process::start(program)
        .map_err(|e| EngineStopped(format!("starting {name:?} as the engine's process: {e}")))?;
    connect(socket, move || process.ended(), what, clock).await
}

/// The same over a connection that is there. `ended` waits until the other side is over, and says how it ended; it is asked
/// when the connection is closed.
pub(super) async fn connect<S, T>(
    socket: UnixStream,
    ended: impl FnMut() -> String + Send + 'static,
    what: S,
    clock: Arc<dyn Clock>,
) -> Result<(EngineHandle, EngineEnd, T), EngineStopped>
where
    S: Serialize + Send + 'static,
    T: DeserializeOwned + Send + 'static,
{
    let bounded = socket.set_write_timeout(Some(WRITE_LIMIT));
    bounded.map_err(|e| EngineStopped(format!("preparing the connection to its process: {e}")))?;
    let (ready, is_ready) = oneshot::channel();
    let (life, end) = EngineEnd::new();
    let mut link = Link {
        socket: Arc::new(socket),
        ended,
    };
    let body = move || {
        match link.open(&what, clock.as_ref()) {
            Err(stopped) => drop(ready.send(Err(stopped))),
            Ok((permits, report)) => {
                // Fewer when the process says so.
                let (handle, inbox) = EngineHandle::new(LookRule::fixed(permits), None);
                let _ = ready.send(Ok((handle, report)));
                link.run(inbox, life.ended);
            }
        }
        drop(life.over);
    };
    spawn("engine", body).map_err(EngineStopped)?;
    let (handle, report) = is_ready
        .await
        .map_err(|_| EngineStopped("the engine's thread ended while it was starting".into()))??;
    Ok((handle, end, report))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = thread::Builder::new().name(name.into()).spawn(body);
    let failed = |e| format!("starting the thread {name}: {e}");
    spawned.map(drop).map_err(failed)
}

/// The connection, and what is known of the other side.
struct Link<E> {
    socket: Arc<UnixStream>,
    ended: E,
}

/// Why there is no more news.
enum LastNews {
    /// The engine reported it.
    Reported(String),
    /// The connection is closed.
    Closed,
    /// The process sent something that is no message.
    Invalid(WireError),
}

impl<E: FnMut() -> String> Link<E> {
    /// Gives the order and waits until it is carried out.
    fn open<T: DeserializeOwned>(
        &mut self,
        what: &impl Serialize,
        clock: &dyn Clock,
    ) -> Result<(usize, T), EngineStopped> {
        let opened = self.order(what, clock);
        let reason = match opened {
            Ok(OpenReply::Ready { permits, report }) if usize::from(permits) > 0 => {
                return Ok((permits.into(), report));
            }
            Ok(OpenReply::Ready { .. }) => "its process allows no looks".into(),
            Ok(OpenReply::Failed { reason }) => reason,
            Err(WireError::Closed(_)) => self.over(),
            Err(error) => format!("opening it in its process: {error}"),
        };
        self.over();
        Err(EngineStopped(reason))
    }

    fn order<T: DeserializeOwned>(
        &self,
        what: &impl Serialize,
        clock: &dyn Clock,
    ) -> Result<OpenReply<T>, WireError> {
        let mut socket = self.socket.as_ref();
        let Hello::Hello = wire::read(&mut socket)?;
        // The process counts on from the moment that it reads this, so it has to be waiting for it.
        let now = clock.now();
        wire::write(&mut socket, &WireOrder { now, what })?;
        wire::read(&mut socket)
    }

    /// Works until the end. The [`EngineEnd`] learns the reason first, then waiting callers that nothing comes any more, and
    /// neither waits for the process to end, when it reported why it stops.
    fn run(&mut self, inbox: EngineInbox, ended: oneshot::Sender<Result<(), EngineStopped>>) {
        let EngineInbox {
            looks,
            beats,
            places,
        } = inbox;
        let inside = Arc::new(Inside::new());
        let (its_inside, its_socket) = (Arc::clone(&inside), Arc::clone(&self.socket));
        let asks = move || {
            // An error is that of a connection that is closed, which the other thread reports.
            let _ = ask(&looks, &its_socket, &its_inside);
            // It waits for news, and learns by this that there will be none.
            let _ = its_socket.shutdown(Shutdown::Both);
        };
        let last = match spawn("engine-asks", asks) {
            Ok(()) => hear(&self.socket, &inside, &beats, &places),
            Err(reason) => LastNews::Reported(reason),
        };
        let before = inside.close();
        let stopped = match last {
            LastNews::Reported(reason) => Some(reason),
            _ if matches!(before, OutsideState::Left) => None,
            LastNews::Closed => Some(self.over()),
            LastNews::Invalid(error) => Some(format!("reading from its process: {error}")),
        };
        let _ = ended.send(stopped.map_or(Ok(()), |reason| Err(EngineStopped(reason))));
        drop(before);
        self.over();
    }

    /// Closes the connection and waits for the other side's end.
    fn over(&mut self) -> String {
        // It fails when the other side has closed it, which is as well.
        let _ = self.socket.shutdown(Shutdown::Both);
        (self.ended)()
    }
}

/// Takes news until the last.
fn hear(socket: &UnixStream, inside: &Inside, beats: &AtomicU64, places: &Places) -> LastNews {
    let mut input = BufReader::new(socket);
    let most = *places.count().borrow();
    loop {
        match wire::read(&mut input) {
            Ok(WireNews::Beat { beats: turns }) => beats.store(turns, Ordering::Relaxed),
            // The inbox has room for as many as it allowed at first.
            Ok(WireNews::Places { count }) => places.set(usize::from(count).min(most)),
            Ok(WireNews::Stopped { reason }) => return LastNews::Reported(reason),
            Ok(WireNews::Look { id, news }) => {
                // One that was cancelled may have news in the same moment.
                if let Some(look) = inside.take(id)
                    && let Err(error) = look.hear(news).map(|look| inside.put_back(id, look))
                {
                    return LastNews::Invalid(error);
                }
            }
            Err(WireError::Closed(_)) => return LastNews::Closed,
            Err(error) => return LastNews::Invalid(error),
        }
    }
}

/// Passes requests on until the last handle is dropped, or the connection is closed.
fn ask(
    inbox: &mpsc::Receiver<LookSubmission>,
    socket: &UnixStream,
    inside: &Inside,
) -> Result<(), WireError> {
    let mut out = BufWriter::with_capacity(WRITE_BYTES, socket);
    let mut id = 0;
    loop {
        let request = match inbox.recv_timeout(inside.patience()) {
            Ok(request) => Some(request),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                inside.leave();
                return Ok(());
            }
        };
        // First, because a new look may have the permit of a cancelled one.
        for id in inside.take_unwanted() {
            wire::write(&mut out, &wire::WireRequest::Cancel { id })?;
        }
        let Some(LookSubmission {
            look, news, place, ..
        }) = request
        else {
            continue;
        };
        id += 1;
        let waiting = WaitingLook {
            open: OpenLook::new(look.clone()),
            news,
            place: Some(place),
        };
        inside.put(id, waiting);
        match wire::write_look(&mut out, id, &look) {
            Err(error @ WireError::Closed(_)) => return Err(error),
            // Nothing of it was sent.
            Err(error) => {
                if let Some(waiting) = inside.take(id) {
                    let why = format!("giving the look to the engine's process: {error}");
                    let why = LookFailure::Unfit(why);
                    waiting.end(|look| Outcome::Failed(look.unanswered(), why));
                }
            }
            Ok(()) => {}
        }
    }
}

/// Looks under way, by number, with those who wait for them: what the two threads share. Never locked for longer than it
/// takes to look something up.
struct Inside(Mutex<OutsideState>);

enum OutsideState {
    Open(HashMap<u64, WaitingLook>),
    /// The last handle was dropped.
    Left,
    Closed,
}

/// A look inside, and where its news go.
struct WaitingLook {
    open: OpenLook,
    news: news::Sender<LookNews>,
    /// `None` when the short answers are there.
    place: Option<Place>,
}

impl WaitingLook {
    /// Passes news on; `None` after the last.
    fn hear(mut self, news: WireLookNews) -> Result<Option<Self>, WireError> {
        let news = match news {
            WireLookNews::Piece { prompt, piece } => {
                let prompt = self.open.unanswered_prompt(prompt);
                let prompt = prompt.filter(|prompt| prompt.in_pieces);
                let prompt = prompt.ok_or_else(|| wire::malformed("a piece that is not wanted"))?;
                LookNews::Piece {
                    frame: self.open.frame().id(),
                    piece: wire::checked_piece(prompt, piece)?,
                    prompt: Arc::clone(prompt),
                }
            }
            WireLookNews::Answer {
                prompt,
                model_size,
                answer,
            } => {
                let unasked = || wire::malformed(format!("an answer to no open prompt {prompt}"));
                let asked = Arc::clone(self.open.answer(prompt).ok_or_else(unasked)?);
                let region = self.open.region_of(&asked);
                LookNews::Answer {
                    frame: self.open.frame().clone(),
                    model_size,
                    since_last: spotter_core::SkippedSinceLast::default(),
                    answer: answer.answer(asked, region)?,
                    follow_up: None,
                }
            }
            WireLookNews::ShortAnswered => {
                self.place = None;
                LookNews::ShortAnswered(self.open.frame().clone())
            }
            WireLookNews::Answered => {
                if !self.open.is_answered() {
                    return Err(wire::malformed("an answered look without all its answers"));
                }
                self.end(|look| Outcome::Answered(look.frame().clone()));
                return Ok(None);
            }
            WireLookNews::Late => {
                self.end(|look| Outcome::Late(look.unanswered()));
                return Ok(None);
            }
            WireLookNews::Failed(why) => {
                self.end(|look| Outcome::Failed(look.unanswered(), why));
                return Ok(None);
            }
        };
        // No caller waits when the daemon is shutting down.
        let _ = self.news.try_send(news);
        Ok(Some(self))
    }

    /// The place is free before the caller learns the end.
    fn end(self, outcome: impl FnOnce(OpenLook) -> Outcome) {
        drop(self.place);
        let _ = self.news.try_send(LookNews::Ended(outcome(self.open)));
    }
}

impl Inside {
    fn new() -> Self {
        Self(Mutex::new(OutsideState::Open(HashMap::new())))
    }

    fn state(&self) -> MutexGuard<'_, OutsideState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops it when the engine has ended, which the waiting caller notices.
    fn put(&self, id: u64, waiting: WaitingLook) {
        if let OutsideState::Open(all) = &mut *self.state() {
            all.insert(id, waiting);
        }
    }

    /// As [`Self::put`] for a look that has more news.
    fn put_back(&self, id: u64, waiting: Option<WaitingLook>) {
        if let Some(waiting) = waiting {
            self.put(id, waiting);
        }
    }

    fn take(&self, id: u64) -> Option<WaitingLook> {
        match &mut *self.state() {
            OutsideState::Open(all) => all.remove(&id),
            OutsideState::Left | OutsideState::Closed => None,
        }
    }

    /// Takes the cancelled ones out.
    fn take_unwanted(&self) -> Vec<u64> {
        match &mut *self.state() {
            OutsideState::Open(all) => {
                let unwanted = all.extract_if(|_, waiting| waiting.news.is_closed());
                unwanted.map(|(id, _)| id).collect()
            }
            OutsideState::Left | OutsideState::Closed => Vec::new(),
        }
    }

    /// How long to wait for a request before looking for what is unwanted.
    fn patience(&self) -> Duration {
        match &*self.state() {
            OutsideState::Open(all) if !all.is_empty() => CANCEL_POLL,
            OutsideState::Open(_) | OutsideState::Left | OutsideState::Closed => IDLE_POLL,
        }
    }

    /// The last handle was dropped.
    fn leave(&self) {
        let mut state = self.state();
        if let OutsideState::Open(_) = *state {
            *state = OutsideState::Left;
        }
    }

    /// The engine has ended. Returns how it was before.
    fn close(&self) -> OutsideState {
        mem::replace(&mut *self.state(), OutsideState::Closed)
    }
}

#[cfg(test)]
mod tests;
