//! The shell of one webhook: events from the inbox to the disk, requests as the queue decides. Files and requests are in other threads,
//! so neither the disk nor the receiver delays another task.
//!
//! A request has a thread that nothing waits for: at a stop, one that hangs is left behind. Its event stays on the disk.

use std::{sync::Arc, thread, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::sleep,
};

use crate::{
    client::{PostOutcome, PostRequest, WebhookClient},
    queue::{AwaitedPicture, NextPost, PostQueue, QueuedPost},
    status::{WebhookState, WebhookStatus},
    store::{FoundPost, PostStore, StoredPost},
    timing::WebhookTiming,
    webhook_event::{WebhookEvent, WebhookPicture, payload},
};
use spotter_config::WebhookConfig;
use spotter_core::{Clock, LogThrottle, Mono};

/// Events that wait behind a failed request are synced after this time.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What a task receives, in order.
pub(crate) enum WebhookInput {
    Event(Arc<WebhookEvent>),
    Picture(WebhookPicture),
    /// The configuration changed.
    Config(Arc<WebhookConfig>),
    /// End a pause: the receiver's certificate may be another one now.
    TryAgain,
    /// The webhook is not configured any more: its events are removed.
    Remove,
    /// The daemon stops: the last events are posted if the receiver answers in time.
    Stop,
}

/// A request that a thread carries out.
struct RunningPost {
    answer: oneshot::Receiver<FinishedPost>,
}

struct FinishedPost {
    outcome: PostOutcome,
    /// To be used again; `None` after a failure, so that the certificate authorities are read again.
    client: Option<WebhookClient>,
}

/// See the module's documentation.
pub(crate) struct WebhookTask {
    config: Arc<WebhookConfig>,
    timing: WebhookTiming,
    queue: PostQueue,
    store: PostStore,
    client: Option<WebhookClient>,
    running: Option<RunningPost>,
    inbox: mpsc::Receiver<WebhookInput>,
    status: watch::Sender<WebhookStatus>,
    refusals: LogThrottle<()>,
    clock: Arc<dyn Clock>,
    /// Events that wait behind a failed request are synced then.
    sync_at: Option<Mono>,
    phase: TaskPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskPhase {
    Runs,
    /// Ends when nothing can be posted, at the latest at this time.
    Stopping(Mono),
    Removed,
}

/// What a task is made of.
pub(crate) struct WebhookTaskParts {
    pub(crate) config: Arc<WebhookConfig>,
    pub(crate) timing: WebhookTiming,
    pub(crate) folder: std::path::PathBuf,
    pub(crate) inbox: mpsc::Receiver<WebhookInput>,
    pub(crate) status: watch::Sender<WebhookStatus>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What woke the task.
enum WakeUp {
    Input(Option<WebhookInput>),
    Answer(Option<FinishedPost>),
    Time,
}

/// Runs until [`WebhookInput::Stop`], [`WebhookInput::Remove`] or the end of the inbox.
pub(crate) async fn run(parts: WebhookTaskParts) {
    let WebhookTaskParts {
        config,
        timing,
        folder,
        inbox,
        status,
        clock,
    } = parts;
    let Ok((store, found)) = spawn_blocking(move || PostStore::open(&folder)).await else {
        return; // The runtime is ending.
    };
    let mut task = WebhookTask {
        queue: PostQueue::new(config.spool, timing),
        config,
        timing,
        store,
        client: None,
        running: None,
        inbox,
        status,
        refusals: LogThrottle::default(),
        clock,
        sync_at: None,
        phase: TaskPhase::Runs,
    };
    task.restore(&found);
    while task.turn().await.is_some() {}
}

impl WebhookTask {
    fn restore(&mut self, found: &[FoundPost]) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        for post in found {
            let left_ms = u64::try_from(post.expires_ms - wall.unix_millis()).unwrap_or(0);
            // Limited because the machine's clock may have been set back.
            let left = Duration::from_millis(left_ms).min(self.config.spool.max_age);
            let queued = QueuedPost {
                bytes: post.bytes,
                since: None,
                expires: now.after(left),
                picture: None,
            };
            self.queue.push(post.number, queued);
        }
        if !found.is_empty() {
            let webhook = self.config.id.as_str();
            tracing::info!(
                webhook,
                events = found.len(),
                "events of an earlier run wait for the receiver"
            );
        }
    }

    /// One wake-up; `None` at the end.
    async fn turn(&mut self) -> Option<()> {
        let now = self.clock.now();
        let dropped = self.queue.drop_excess(now);
        if !dropped.is_empty() {
            self.on_disk(move |store| store.remove(&dropped)).await?;
        }
        if self.sync_at.take_if(|at| *at <= now).is_some() {
            self.on_disk(PostStore::sync).await?;
        }
        let at = match self.queue.next(now) {
            NextPost::Post { number, is_delayed } => {
                self.post(number, is_delayed).await?;
                // Its file could not be read: the next one is due.
                (!self.queue.is_posting()).then_some(now)
            }
            NextPost::At(at) => Some(at),
            NextPost::Nothing => None,
        };
        self.report();
        if self.is_over() {
            return self.end().await;
        }
        match self.wake_up(at).await {
            WakeUp::Input(Some(input)) => self.on_input(input).await?,
            WakeUp::Input(None) => self.stop(),
            WakeUp::Answer(finished) => self.on_answer(finished).await?,
            WakeUp::Time => {}
        }
        Some(())
    }

    async fn wake_up(&mut self, at: Option<Mono>) -> WakeUp {
        let now = self.clock.now();
        let limit = match self.phase {
            TaskPhase::Stopping(limit) => Some(limit),
            TaskPhase::Runs | TaskPhase::Removed => None,
        };
        let at = at.into_iter().chain(limit).chain(self.sync_at).min();
        let runs = self.phase == TaskPhase::Runs;
        tokio::select! {
            finished = answer(&mut self.running) => WakeUp::Answer(finished),
            input = self.inbox.recv(), if runs => WakeUp::Input(input),
            () = sleep(at.map_or(Duration::MAX, |at| at.since(now))), if at.is_some() => WakeUp::Time,
        }
    }

    /// Carries out what was received.
    async fn on_input(&mut self, input: WebhookInput) -> Option<()> {
        match input {
            WebhookInput::Event(event) => self.keep(&event).await?,
            WebhookInput::Picture(picture) => self.add_picture(picture).await?,
            WebhookInput::Config(config) => {
                self.queue.set_bounds(config.spool);
                self.queue.try_again();
                (self.config, self.client) = (config, None);
            }
            WebhookInput::TryAgain => {
                self.client = None;
                self.queue.try_again();
            }
            WebhookInput::Remove => self.phase = TaskPhase::Removed,
            WebhookInput::Stop => self.stop(),
        }
        Some(())
    }

    fn stop(&mut self) {
        let limit = self.clock.now().after(self.timing.stop_within);
        self.phase = TaskPhase::Stopping(limit);
    }

    async fn keep(&mut self, event: &WebhookEvent) -> Option<()> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let max_age = self.config.spool.max_age;
        let expires_ms = wall.unix_millis() + max_age.as_millis() as i64;
        let number = self.queue.next_number();
        let post = StoredPost {
            id: event.id.clone(),
            body: event.body.clone(),
        };
        let bytes = self
            .on_disk(move |store| store.write(number, expires_ms, &post))
            .await?;
        if matches!(self.queue.state, WebhookState::Failing { .. }) {
            self.sync_at.get_or_insert(now.after(SYNC_EVERY));
        }
        let picture = (self.config.snapshot && event.awaits_picture()).then(|| AwaitedPicture {
            track: event.event.track.clone(),
            until: now.after(self.timing.picture_within),
        });
        let queued = QueuedPost {
            bytes,
            since: Some(now),
            expires: now.after(max_age),
            picture,
        };
        self.queue.push(number, queued);
        self.forget_excess().await
    }

    async fn add_picture(&mut self, picture: WebhookPicture) -> Option<()> {
        let Some(number) = self.queue.awaiting(&picture.track) else {
            return Some(()); // It comes too late.
        };
        let bytes = self
            .on_disk(move |store| store.add_picture(number, &picture.jpeg))
            .await?;
        if let Some(bytes) = bytes {
            self.queue.has_picture(number, bytes);
        }
        self.forget_excess().await
    }

    async fn forget_excess(&mut self) -> Option<()> {
        if !self.store.has_memory() {
            return Some(());
        }
        for number in self.on_disk(PostStore::forget_excess).await? {
            self.queue.lose(number, false);
        }
        Some(())
    }

    /// Starts the request of an event.
    async fn post(&mut self, number: u64, is_delayed: bool) -> Option<()> {
        let Some(post) = self.on_disk(move |store| store.read(number)).await? else {
            let webhook = self.config.id.as_str();
            tracing::warn!(
                webhook,
                number,
                "the file of an event cannot be read; the event is lost"
            );
            self.queue.lose(number, true);
            return self.on_disk(move |store| store.remove(&[number])).await;
        };
        let request = PostRequest {
            id: post.id,
            unix_s: self.clock.wall().unix_millis().div_euclid(1000),
            body: payload(post.body, is_delayed),
        };
        self.queue.begin(number);
        let (sender, answer) = oneshot::channel();
        let (config, client) = (Arc::clone(&self.config), self.client.take());
        let work = move || {
            // The task may have ended meanwhile.
            _ = sender.send(carry_out(config, client, &request));
        };
        let thread = thread::Builder::new().name("webhook".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::warn!(%error, "cannot start the thread of a request");
        }
        self.running = Some(RunningPost { answer });
        Some(())
    }

    async fn on_answer(&mut self, finished: Option<FinishedPost>) -> Option<()> {
        self.running = None;
        let finished = finished.unwrap_or_else(|| FinishedPost {
            outcome: PostOutcome::Failed {
                reason: "the thread of the request could not be started".to_owned(),
                after: None,
            },
            client: None,
        });
        self.client = finished.client;
        let before = self.queue.state.clone();
        let now = self.clock.now();
        let done = self.queue.finish(finished.outcome, now, fastrand::f64());
        self.log(&before, now);
        match done {
            Some(number) => self.on_disk(move |store| store.remove(&[number])).await,
            None => self.on_disk(PostStore::sync).await,
        }
    }

    /// Logs when the receiver begins to fail and when it accepts again, and what it refuses.
    fn log(&mut self, before: &WebhookState, now: Mono) {
        let webhook = self.config.id.as_str();
        let was_failing = matches!(before, WebhookState::Failing { .. });
        match &self.queue.state {
            WebhookState::Failing { reason, .. } if !was_failing => {
                tracing::warn!(
                    webhook,
                    reason,
                    "event not posted; it is posted again until the receiver accepts it"
                );
            }
            WebhookState::Refusing { reason } => {
                if let Some(suppressed) = self.refusals.admit((), now) {
                    let suppressed = (suppressed > 0).then_some(suppressed);
                    tracing::warn!(
                        webhook,
                        reason,
                        suppressed,
                        "the receiver refused an event, which is dropped"
                    );
                }
            }
            WebhookState::Accepting if was_failing => {
                let waiting = self.queue.len();
                tracing::info!(webhook, waiting, "the receiver accepts events again");
            }
            _ => {}
        }
    }

    fn report(&self) {
        self.status.send_if_modified(|status| {
            let now = WebhookStatus {
                id: self.config.id.clone(),
                address: self.config.address.clone(),
                state: self.queue.state.clone(),
                counters: self.queue.counters,
                waiting: self.queue.len() as u64,
                disk_trouble: self.store.trouble.clone(),
            };
            let is_news = *status != now;
            *status = now;
            is_news
        });
    }

    fn is_over(&self) -> bool {
        match self.phase {
            TaskPhase::Runs => false,
            TaskPhase::Removed => true,
            TaskPhase::Stopping(limit) => {
                let is_idle = !self.queue.is_posting();
                is_idle || limit <= self.clock.now()
            }
        }
    }

    async fn end(&mut self) -> Option<()> {
        let is_removed = self.phase == TaskPhase::Removed;
        let work = move |store: &mut PostStore| match is_removed {
            true => store.remove_all(),
            false => store.sync(),
        };
        self.on_disk(work).await?;
        None
    }

    /// Runs on a blocking thread; `None` when the runtime is ending.
    async fn on_disk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut PostStore) -> T + Send + 'static,
    ) -> Option<T> {
        let mut store = std::mem::take(&mut self.store);
        let done = spawn_blocking(move || {
            let result = work(&mut store);
            (store, result)
        });
        let (store, result) = done.await.ok()?;
        self.store = store;
        Some(result)
    }
}

/// The answer to the running request; pending without one. `None`: its thread did not start, or panicked.
async fn answer(running: &mut Option<RunningPost>) -> Option<FinishedPost> {
    match running {
        Some(running) => (&mut running.answer).await.ok(),
        None => std::future::pending().await,
    }
}

/// Blocks until the receiver has answered or the time is over.
fn carry_out(
    config: Arc<WebhookConfig>,
    client: Option<WebhookClient>,
    request: &PostRequest,
) -> FinishedPost {
    let client = match client.map_or_else(|| WebhookClient::new(config), Ok) {
        Ok(client) => client,
        Err(error) => {
            let outcome = PostOutcome::Failed {
                reason: error.to_string(),
                after: None,
            };
            return FinishedPost {
                outcome,
                client: None,
            };
        }
    };
    let outcome = client.post(request);
    let is_failed = matches!(outcome, PostOutcome::Failed { .. });
    FinishedPost {
        outcome,
        client: (!is_failed).then_some(client),
    }
}
