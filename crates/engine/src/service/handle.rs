//! The engine's thread and the permits that keep it from being flooded.
//!
//! The holder of an [`EngineHandle`] does not see whether the engine is a thread of this process, started here, or a process of
//! its own ([`super::outside`]).
//!
//! A caller first acquires a [`Permit`]; only then does it choose the newest frame. So no backlog can
//! form: there are as many looks inside as there are places, and the channel has at most these and a message for each of their answers.

use std::{
    convert::Infallible,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use tokio::{
    sync::{mpsc as news, oneshot, watch},
    task::spawn_blocking,
};

pub use super::inbox::EngineStopped;
use super::{
    adapters::{AdapterOrders, BrokenAdapter},
    engine::Engine,
    engine_loop::EngineLoop,
    inbox::{EngineEndSender, EngineInbox, EngineMessage, FollowUpSender, LookSubmission},
    look_limit::{LookLimit, LookRule},
    places::{Place, Places},
    requests::RequestMaker,
};
use spotter_config::AdapterConfig;
use spotter_core::{AnswerPiece, Look, LookFailure, LookNews, Outcome, Prompt, WholeLook};

/// News of a look that is of no prompt: that the short answers are there, and the end.
const OTHER_NEWS: usize = 2;

/// The way to an engine. Clones share it; the engine ends when the last one is gone.
#[derive(Clone)]
pub struct EngineHandle {
    places: Places,
    /// `None`: the engine is in another process, where requests are made too.
    maker: Option<Arc<RequestMaker>>,
    adapters: Arc<AdapterOrders>,
    messages: Arc<mpsc::Sender<EngineMessage>>,
    beats: Arc<AtomicU64>,
    is_given_up: watch::Sender<bool>,
}

/// Reports how an engine ends.
pub struct EngineEnd {
    reason: oneshot::Receiver<Result<(), EngineStopped>>,
    /// Nothing is ever sent; it is closed when the thread is over.
    thread: oneshot::Receiver<Infallible>,
}

/// The right to have one look answered. There is room in the inbox for the look of each holder.
pub struct Permit {
    place: Place,
    maker: Option<Arc<RequestMaker>>,
    messages: Arc<mpsc::Sender<EngineMessage>>,
    is_given_up: watch::Receiver<bool>,
}

/// A look that the engine has; dropping it cancels the look, which has failed then. Its permit is free again when its short answers are there, when it has
/// ended, and when it is cancelled.
pub struct SubmittedLook {
    news: news::Receiver<LookNews>,
    /// With the prompts that have no answer; `None` after the end.
    unanswered: Option<Look>,
    is_given_up: watch::Receiver<bool>,
}

/// Starts the thread `engine`, builds the engine on it (a device's types may be bound to their thread) and waits until it
/// is ready. `build` says with the engine how many looks may be inside of it at once, 1 or more.
pub async fn start<B>(build: B) -> Result<(EngineHandle, EngineEnd), EngineStopped>
where
    B: FnOnce() -> Result<(Engine, usize), String> + Send + 'static,
{
    let build = || build().map(|(engine, looks)| (engine, LookRule::fixed(looks), ()));
    let (handle, end, ()) = start_and_report(build).await?;
    Ok((handle, end))
}

/// The same with a `build` that returns a rule for the looks inside, and a report. The log of the thread is in the span of the
/// caller.
pub async fn start_and_report<B, T>(build: B) -> Result<(EngineHandle, EngineEnd, T), EngineStopped>
where
    B: FnOnce() -> Result<(Engine, LookRule, T), String> + Send + 'static,
    T: Send + 'static,
{
    let (ready, is_ready) = oneshot::channel();
    let (life, end) = EngineEnd::new();
    let span = tracing::Span::current();
    let body = move || {
        let _span = span.entered();
        match build() {
            Err(reason) => drop(ready.send(Err(EngineStopped(reason)))),
            Ok((engine, rule, report)) => {
                let (handle, inbox) = EngineHandle::new(rule, Some(engine.request_maker()));
                // The receiver waits below; it cannot be gone unless the caller was dropped.
                let _ = ready.send(Ok((handle, report)));
                EngineLoop::new(engine, inbox, LookLimit::new(rule)).run(life.ended);
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

/// An engine that the caller turns itself, on its own thread: for measurements in virtual time.
pub fn start_here(engine: Engine, rule: LookRule) -> (EngineHandle, EngineEnd, EngineLoop) {
    let (handle, inbox) = EngineHandle::new(rule, Some(engine.request_maker()));
    let (life, end) = EngineEnd::new();
    let turns = EngineLoop::new(engine, inbox, LookLimit::new(rule)).with_end(life);
    (handle, end, turns)
}

impl EngineHandle {
    /// A handle to who takes looks from the inbox. With a `maker`, looks come with their requests.
    pub(super) fn new(rule: LookRule, maker: Option<Arc<RequestMaker>>) -> (Self, EngineInbox) {
        let (messages, received) = mpsc::channel();
        let messages = Arc::new(messages);
        let beats = Arc::new(AtomicU64::new(0));
        let places = Places::new(rule.first());
        let adapters = Arc::new(AdapterOrders::default());
        let inbox = EngineInbox {
            messages: received,
            follow_ups: FollowUpSender::new(&messages),
            beats: Arc::clone(&beats),
            places: places.clone(),
            adapters: Arc::clone(&adapters),
        };
        let handle = Self {
            places,
            maker,
            adapters,
            messages,
            beats,
            is_given_up: watch::Sender::new(false),
        };
        (handle, inbox)
    }

    /// The looks that may be inside, and how their number changes.
    pub fn places(&self) -> watch::Receiver<usize> {
        self.places.count()
    }

    /// Waits for a free place in the engine.
    pub async fn permit(&self) -> Permit {
        Permit {
            place: self.places.take().await,
            maker: self.maker.clone(),
            messages: Arc::clone(&self.messages),
            is_given_up: self.is_given_up.subscribe(),
        }
    }

    /// Looks have these adapters from now on: files that are new or have changed are read, beside the engine's work. Returns those that cannot
    /// be used; `None` when the engine has ended.
    pub fn set_adapters(
        &self,
        wanted: Vec<AdapterConfig>,
    ) -> impl Future<Output = Option<Vec<BrokenAdapter>>> + Send + use<> {
        let (maker, orders) = (self.maker.clone(), Arc::clone(&self.adapters));
        async move {
            match maker {
                Some(maker) => spawn_blocking(move || maker.set_adapters(&wanted))
                    .await
                    .ok(),
                None => orders.put(wanted).await.ok(),
            }
        }
    }

    /// Looks inside fail at once, also those of a thread that hangs.
    pub fn give_up(&self) {
        self.is_given_up.send_replace(true);
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
    /// Has one look answered. Does not wait; measures the look's picture, which takes half a millisecond.
    pub fn look(self, mut look: Look) -> SubmittedLook {
        let Self {
            place,
            maker,
            messages,
            is_given_up,
        } = self;
        // Memory is taken for news that wait.
        let of_prompt = |prompt: &Arc<Prompt>| {
            let pieces = usize::from(prompt.in_pieces) * AnswerPiece::MAX;
            1 + pieces + usize::from(prompt.outlines_max)
        };
        let of_prompts = look.prompts.iter().map(of_prompt).sum::<usize>();
        let (sender, news) = news::channel(of_prompts + OTHER_NEWS);
        // The token stays in this process.
        let mut unanswered = look.clone();
        mem::swap(&mut unanswered.token, &mut look.token);
        let submission = LookSubmission {
            requests: maker.map(|maker| maker.requests(&look)),
            look,
            news: sender,
            place,
        };
        // If the engine has stopped, the look fails, because its sender is gone.
        drop(messages.send(EngineMessage::Look(Box::new(submission))));
        SubmittedLook {
            news,
            unanswered: Some(unanswered),
            is_given_up,
        }
    }

    /// The same, and waits for the end of the look.
    pub async fn whole_look(self, look: Look) -> WholeLook {
        let mut whole = WholeLook::new(&look);
        let mut submitted = self.look(look);
        while whole.outcome.is_none() {
            submitted
                .next()
                .await
                .into_iter()
                .for_each(|n| whole.add(n));
        }
        whole
    }
}

impl SubmittedLook {
    /// With the prompts that have no answer; `None` after the end.
    pub fn unanswered(&self) -> Option<&Look> {
        self.unanswered.as_ref()
    }

    /// Waits for news of the look and returns all that there is; the look fails when the engine ends before. Empty after the end.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Vec<LookNews> {
        let mut news = Vec::new();
        let Some(look) = &mut self.unanswered else {
            return news;
        };
        tokio::select! {
            biased;
            _ = self.news.recv_many(&mut news, usize::MAX) => {}
            Ok(_) = self.is_given_up.wait_for(|is_given_up| *is_given_up) => {}
        }
        if news.is_empty() {
            let failed = Outcome::Failed(look.clone(), LookFailure::EngineStopped);
            news.push(LookNews::Ended(failed));
        }
        let mut has_ended = false;
        for news in &mut news {
            match news {
                LookNews::Answer {
                    answer, since_last, ..
                } => {
                    let is_other = |prompt: &Arc<_>| !Arc::ptr_eq(prompt, &answer.prompt);
                    // Prompts that follow an answer are none of the look's own.
                    if !look.prompts.iter().all(is_other) {
                        look.prompts.retain(is_other);
                        *since_last = look.token.answered(&answer.prompt);
                    }
                }
                LookNews::Ended(outcome) => {
                    look.token.end(outcome.frame_end());
                    has_ended = true;
                }
                LookNews::Piece { .. } | LookNews::ShortAnswered(_) => {}
            }
        }
        if has_ended {
            self.unanswered = None;
        }
        news
    }
}
