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
    io::{BufReader, BufWriter, Write},
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
    adapters::AdapterOrders,
    handle::{EngineEnd, EngineHandle, EngineStopped},
    inbox::{AskedFollowUp, EngineInbox, EngineMessage, FollowUpSender, LookSubmission},
    look_limit::LookRule,
    open_look::OpenLook,
    places::{Place, Places},
    process::Process,
    wire::{self, Hello, OpenReply, WireError, WireLookNews, WireNews, WireOrder},
};
use crate::scheduler::request::LookId;
use spotter_core::{Clock, LookFailure, LookNews, Outcome, Prompt};

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
            messages,
            follow_ups,
            beats,
            places,
            adapters,
        } = inbox;
        let inside = Arc::new(Inside::new(adapters));
        let (its_inside, its_socket) = (Arc::clone(&inside), Arc::clone(&self.socket));
        let asks = move || {
            // An error is that of a connection that is closed, which the other thread reports.
            let _ = ask(&messages, &follow_ups, &its_socket, &its_inside);
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
            Ok(WireNews::Adapters { number, broken }) => inside.adapters.done(number, broken),
            Ok(WireNews::Stopped { reason }) => return LastNews::Reported(reason),
            Ok(WireNews::Look { id, news }) => {
                if let Err(error) = inside.hear(id, news) {
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
    messages: &mpsc::Receiver<EngineMessage>,
    follow_ups: &FollowUpSender,
    socket: &UnixStream,
    inside: &Inside,
) -> Result<(), WireError> {
    let mut out = BufWriter::with_capacity(WRITE_BYTES, socket);
    let mut id = 0;
    loop {
        let message = match messages.recv_timeout(inside.patience()) {
            Ok(message) => Some(message),
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
        if let Some((number, wanted)) = inside.adapters.take() {
            wire::write(&mut out, &wire::WireRequest::Adapters { number, wanted })?;
        }
        let LookSubmission {
            look, news, place, ..
        } = match message {
            Some(EngineMessage::Look(submission)) => *submission,
            Some(EngineMessage::FollowUp(asked)) => {
                follow_up(asked, &mut out, inside)?;
                continue;
            }
            None => continue,
        };
        id += 1;
        let waiting = WaitingLook {
            id: LookId(id),
            open: OpenLook::new(look.clone()),
            news,
            follow_ups: follow_ups.clone(),
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

/// Passes on what follows an answer, unless its look has ended.
fn follow_up(asked: AskedFollowUp, out: &mut impl Write, inside: &Inside) -> Result<(), WireError> {
    let AskedFollowUp {
        look: LookId(id),
        prompt,
        prompts,
    } = asked;
    match inside.follow_up(id, &prompts) {
        true => wire::write(
            out,
            &wire::WireRequest::FollowUp {
                id,
                prompt,
                prompts,
            },
        ),
        false => Ok(()),
    }
}

/// Looks under way, by number, with those who wait for them: what the two threads share. Never locked for longer than it
/// takes to look something up.
struct Inside {
    state: Mutex<OutsideState>,
    adapters: Arc<AdapterOrders>,
}

enum OutsideState {
    Open(HashMap<u64, WaitingLook>),
    /// The last handle was dropped.
    Left,
    Closed,
}

/// A look inside, and where its news go.
struct WaitingLook {
    id: LookId,
    open: OpenLook,
    news: news::Sender<LookNews>,
    follow_ups: FollowUpSender,
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
                has_follow_up,
            } => {
                let unasked = || wire::malformed(format!("an answer to no open prompt {prompt}"));
                let asked = Arc::clone(self.open.answer(prompt).ok_or_else(unasked)?);
                if has_follow_up && asked.outlines_max == 0 {
                    return Err(wire::malformed("a follow-up to a prompt that has none"));
                }
                let follow_up = || self.follow_ups.follow_up(self.id, prompt, &asked);
                let follow_up = has_follow_up.then(follow_up);
                let region = self.open.region_of(&asked);
                LookNews::Answer {
                    frame: self.open.frame().clone(),
                    model_size,
                    since_last: spotter_core::SkippedSinceLast::default(),
                    answer: answer.answer(asked, region)?,
                    follow_up,
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
    fn new(adapters: Arc<AdapterOrders>) -> Self {
        Self {
            state: Mutex::new(OutsideState::Open(HashMap::new())),
            adapters,
        }
    }

    fn state(&self) -> MutexGuard<'_, OutsideState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops it when the engine has ended, which the waiting caller notices.
    fn put(&self, id: u64, waiting: WaitingLook) {
        if let OutsideState::Open(all) = &mut *self.state() {
            all.insert(id, waiting);
        }
    }

    /// Passes news of a look on. One that was cancelled may have news in the same moment.
    fn hear(&self, id: u64, news: WireLookNews) -> Result<(), WireError> {
        if let OutsideState::Open(all) = &mut *self.state()
            && let Some(waiting) = all.remove(&id)
            && let Some(waiting) = waiting.hear(news)?
        {
            all.insert(id, waiting);
        }
        Ok(())
    }

    /// The look has these prompts too; false when it has ended.
    fn follow_up(&self, id: u64, prompts: &[Arc<Prompt>]) -> bool {
        match &mut *self.state() {
            OutsideState::Open(all) => {
                let look = all.get_mut(&id);
                look.map(|look| look.open.follow_up(prompts.to_vec()))
                    .is_some()
            }
            OutsideState::Left | OutsideState::Closed => false,
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
        self.adapters.close();
        mem::replace(&mut *self.state(), OutsideState::Closed)
    }
}

#[cfg(test)]
mod tests;
