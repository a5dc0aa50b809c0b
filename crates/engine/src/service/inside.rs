//! The engine's side in a process of its own: takes the daemon's looks from the connection and has the engine's thread
//! answer them, as the daemon does where the engine is its thread.
//!
//! The process belongs to the daemon. It ends when the connection is closed, which it is when the daemon lets the engine go
//! and when it dies, however; and when its engine has failed, after telling why.
//!
//! Belongs here: the loop between connection and thread. Not here: which engine (`app`), the daemon's side (`outside`).

use std::{
    collections::HashMap,
    io::{self, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinError, JoinSet},
    time::{interval, timeout},
};

use super::{
    adapters::BrokenAdapter,
    engine::Engine,
    handle::{self, EngineEnd, EngineHandle, EngineStopped, SubmittedLook},
    look_limit::LookRule,
    process,
    wire::{
        self, Hello, LookCount, OpenReply, WireError, WireLookNews, WireNews, WireOrder,
        WireRequest,
    },
};
use spotter_core::{Clock, FollowUp, LookNews, Prompt, SystemClock};

/// How often the engine's beats are passed on.
const BEAT: Duration = Duration::from_millis(500);
/// Time for the engine to release its device. A device that takes longer is released by the end of the process.
const LET_GO_LIMIT: Duration = Duration::from_secs(3);

/// Why an engine's process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// The daemon did not start it.
    #[error(
        "an engine's process is started by the daemon, with a socket as its standard input ({0}); \
         `spotter run` is what you want"
    )]
    NoConnection(io::Error),
    /// The thread that listens cannot be started.
    #[error("starting the thread that listens to the daemon: {0}")]
    Thread(io::Error),
    /// The daemon sent something that is no message.
    #[error("reading from the daemon: {0}")]
    Daemon(WireError),
}

/// What engine is wanted, and the daemon's time.
pub type EngineOpening<S> = (S, Arc<dyn Clock>);

/// The daemon, from its engine's side.
pub struct DaemonConnection {
    socket: UnixStream,
}

/// The daemon at the other end of this process's standard input.
pub fn daemon() -> Result<DaemonConnection, InsideError> {
    let socket = process::connection().map_err(InsideError::NoConnection)?;
    Ok(DaemonConnection::at(socket))
}

impl DaemonConnection {
    /// At the other end of a connection.
    pub(super) fn at(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// Says that this process is there, and waits until the daemon says what engine it wants. The clock goes as the daemon's,
    /// which it follows by the time that a short message takes. `None` when the daemon is gone.
    pub fn order<S: DeserializeOwned>(&self) -> Result<Option<EngineOpening<S>>, InsideError> {
        let mut socket = &self.socket;
        let heard = wire::write(&mut socket, &Hello::Hello).and_then(|()| wire::read(&mut socket));
        match heard {
            Ok(WireOrder { now, what }) => Ok(Some((what, Arc::new(SystemClock::showing(now))))),
            Err(WireError::Closed(_)) => Ok(None),
            Err(error) => Err(InsideError::Daemon(error)),
        }
    }

    /// Builds the engine on its thread, as [`handle::start_and_report`] does, and has it answer looks until the connection is
    /// closed or the engine has ended. The process is to end then: a thread may still hang in a device.
    pub async fn serve<B, T>(self, build: B) -> Result<(), InsideError>
    where
        B: FnOnce() -> Result<(Engine, LookRule, T), String> + Send + 'static,
        T: Serialize + Send + 'static,
    {
        let requests = self.listen().map_err(InsideError::Thread)?;
        let served = match self.work(build, requests).await {
            // The daemon needs the engine no more, or is no more.
            Ok(()) | Err(WireError::Closed(_)) => Ok(()),
            Err(error) => {
                let reason = format!("its process, reading from the daemon: {error}");
                // The daemon may be gone, and then it does not learn it.
                let _ = wire::write(&mut &self.socket, &WireNews::Stopped { reason });
                Err(InsideError::Daemon(error))
            }
        };
        let _ = self.socket.shutdown(Shutdown::Both);
        served
    }

    /// Requests as they come, and at last why none comes any more. The connection holds back what is not taken yet.
    fn listen(&self) -> io::Result<Requests> {
        let mut input = BufReader::new(self.socket.try_clone()?);
        let (heard, requests) = mpsc::channel(1);
        let body = move || loop {
            let request = wire::read_request(&mut input);
            let is_last = request.is_err();
            if heard.blocking_send(request).is_err() || is_last {
                return;
            }
        };
        let thread = thread::Builder::new().name("engine-requests".into());
        thread.spawn(body)?;
        Ok(requests)
    }

    async fn work<B, T>(&self, build: B, mut requests: Requests) -> Result<(), WireError>
    where
        B: FnOnce() -> Result<(Engine, LookRule, T), String> + Send + 'static,
        T: Serialize + Send + 'static,
    {
        let mut out = &self.socket;
        let build = || build().map(|(engine, rule, report)| (engine, rule, (rule.most(), report)));
        let started = tokio::select! {
            // Before it is ready, the only news is that it is wanted no more.
            early = next(&mut requests) => {
                early?;
                return Err(WireError::Malformed("a request before the engine is ready".into()));
            }
            started = handle::start_and_report(build) => started,
        };
        let (engine, mut end, (permits, report)) = match started {
            Ok(started) => started,
            Err(EngineStopped(reason)) => {
                return wire::write(&mut out, &OpenReply::<T>::Failed { reason });
            }
        };
        let ready = OpenReply::Ready {
            permits: LookCount::of(permits),
            report,
        };
        wire::write(&mut out, &ready)?;
        let mut looks = Looks::new(engine, permits);
        let worked = looks.answer(&mut requests, &mut end, &mut out).await;
        drop(looks);
        // A device that hangs is released when the process ends.
        let _ = timeout(LET_GO_LIMIT, end.over()).await;
        worked
    }
}

type Requests = mpsc::Receiver<Result<(WireRequest, Vec<u8>), WireError>>;

async fn next(requests: &mut Requests) -> Result<(WireRequest, Vec<u8>), WireError> {
    // The last of them is an error, so there is one more only where the thread ended abnormally.
    let none = || Err(WireError::Closed(io::ErrorKind::UnexpectedEof.into()));
    requests.recv().await.unwrap_or_else(none)
}

/// The looks inside. Dropping it cancels them.
struct Looks {
    engine: EngineHandle,
    permits: usize,
    /// Each waits for the next news of its look.
    begun: JoinSet<LookAndNews>,
    by_id: HashMap<u64, ServedLook>,
    /// Lists of adapters that are being read, with their numbers.
    adapters: JoinSet<(u64, Vec<BrokenAdapter>)>,
}

/// A look with its number and its last news.
type LookAndNews = (u64, SubmittedLook, Vec<LookNews>);

struct ServedLook {
    waits: AbortHandle,
    prompts: Vec<Arc<Prompt>>,
    short_answered: bool,
    /// That the daemon has not asked yet.
    follow_ups: Vec<OfferedFollowUp>,
}

struct OfferedFollowUp {
    answered: Arc<Prompt>,
    follow_up: FollowUp,
}

impl ServedLook {
    fn offer(&mut self, news: &LookNews) {
        if let LookNews::Answer {
            answer,
            follow_up: Some(follow_up),
            ..
        } = news
        {
            self.follow_ups.push(OfferedFollowUp {
                answered: Arc::clone(&answer.prompt),
                follow_up: follow_up.clone(),
            });
        }
    }

    /// Asks what follows the answer of a prompt, given by its index.
    fn follow_up(&mut self, prompt: usize, prompts: Vec<Arc<Prompt>>) -> Result<(), WireError> {
        let answered = self.prompts.get(prompt);
        let is_asked = |offered: &OfferedFollowUp| {
            answered.is_some_and(|answered| Arc::ptr_eq(&offered.answered, answered))
        };
        let Some(index) = self.follow_ups.iter().position(is_asked) else {
            let text = format!("a follow-up to prompt {prompt} that was not offered");
            return Err(WireError::Malformed(text));
        };
        let OfferedFollowUp {
            answered,
            follow_up,
        } = self.follow_ups.swap_remove(index);
        if prompts.len() > usize::from(answered.outlines_max) {
            let text = format!("a follow-up with {} prompts", prompts.len());
            return Err(WireError::Malformed(text));
        }
        self.prompts.extend(prompts.iter().cloned());
        follow_up.ask(prompts);
        Ok(())
    }
}

impl Looks {
    fn new(engine: EngineHandle, permits: usize) -> Self {
        Self {
            engine,
            permits,
            begun: JoinSet::new(),
            by_id: HashMap::new(),
            adapters: JoinSet::new(),
        }
    }

    /// Has looks answered until the engine has ended, and has reported it. An error is the end of the connection.
    async fn answer(
        &mut self,
        requests: &mut Requests,
        end: &mut EngineEnd,
        out: &mut impl Write,
    ) -> Result<(), WireError> {
        let mut beat = interval(BEAT);
        let mut places = self.engine.places();
        places.mark_changed();
        loop {
            let news = tokio::select! {
                // Before the looks that fail with it, so that the daemon learns the reason first.
                biased;
                EngineStopped(reason) = end.reason() => vec![WireNews::Stopped { reason }],
                _ = beat.tick() => vec![WireNews::Beat { beats: self.engine.beats() }],
                Ok(()) = places.changed() => {
                    let count = LookCount::of(*places.borrow_and_update());
                    vec![WireNews::Places { count }]
                }
                Some(news) = self.begun.join_next() => self.news(news),
                Some(Ok((number, broken))) = self.adapters.join_next() => {
                    vec![WireNews::Adapters { number, broken }]
                }
                request = next(requests) => {
                    let (request, body) = request?;
                    self.take(request, body)?;
                    Vec::new()
                }
            };
            for news in news {
                wire::write(out, &news)?;
                if let WireNews::Stopped { .. } = news {
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, request: WireRequest, body: Vec<u8>) -> Result<(), WireError> {
        match request {
            WireRequest::FollowUp {
                id,
                prompt,
                prompts,
            } => {
                // It may have ended in the same moment.
                if let Some(look) = self.by_id.get_mut(&id) {
                    look.follow_up(prompt, prompts)?;
                }
            }
            WireRequest::Cancel { id } => {
                // It may have ended in the same moment.
                if let Some(look) = self.by_id.remove(&id) {
                    look.waits.abort();
                }
            }
            WireRequest::Adapters { number, wanted } => {
                let set = self.engine.set_adapters(wanted);
                let set = async move { (number, set.await.unwrap_or_default()) };
                self.adapters.spawn(set);
            }
            WireRequest::Look(asked) => {
                let looks = self.by_id.values();
                if looks.filter(|look| !look.short_answered).count() == self.permits {
                    let text = format!("more looks than the {} that may be inside", self.permits);
                    return Err(WireError::Malformed(text));
                }
                if self.by_id.contains_key(&asked.id) {
                    let text = format!("two looks with the number {}", asked.id);
                    return Err(WireError::Malformed(text));
                }
                let (id, engine) = (asked.id, self.engine.clone());
                let look = asked.look(body)?;
                let prompts = look.prompts.clone();
                let first = async move {
                    let mut look = engine.permit().await.look(look);
                    let news = look.next().await;
                    (id, look, news)
                };
                let look = ServedLook {
                    waits: self.begun.spawn(first),
                    prompts,
                    short_answered: false,
                    follow_ups: Vec::new(),
                };
                self.by_id.insert(id, look);
            }
        }
        Ok(())
    }

    /// The news to report; waits for the next.
    fn news(&mut self, joined: Result<LookAndNews, JoinError>) -> Vec<WireNews> {
        let (id, mut look, news) = match joined {
            Ok(joined) => joined,
            Err(cancelled) if cancelled.is_cancelled() => return Vec::new(),
            Err(error) => {
                let reason = format!("the task of a look panicked: {error}");
                return vec![WireNews::Stopped { reason }];
            }
        };
        let mut reported = Vec::new();
        for news in news {
            // One that was cancelled in the same moment is not reported.
            let Some(inside) = self.by_id.get_mut(&id) else {
                return reported;
            };
            inside.offer(&news);
            let news = WireLookNews::of(news, &inside.prompts);
            inside.short_answered |= news == WireLookNews::ShortAnswered;
            if news.is_end() {
                self.by_id.remove(&id);
            }
            reported.push(WireNews::Look { id, news });
        }
        if let Some(inside) = self.by_id.get_mut(&id) {
            let next = async move {
                let news = look.next().await;
                (id, look, news)
            };
            inside.waits = self.begun.spawn(next);
        }
        reported
    }
}
