//! The shell of one webhook: requests as the queue decides, and the event log behind it.
//!
//! A request has a thread that nothing waits for: at a stop, one that hangs is left behind. Its event stays in the log.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

use crate::{
    client::{PostOutcome, PostRequest, WebhookClient},
    queue::{NextPost, PostPicture, PostQueue, QueuedPost},
    status::WebhookState,
    webhooks::WritePayload,
};
use spotter_config::WebhookConfig;
use spotter_core::{Clock, LogThrottle, Mono};
use spotter_state::{EventLog, EventReceiver};

/// What the task shares with [`Webhooks`](crate::Webhooks). The lock is held for an operation of the queue; no call of the event log is made
/// under it, which calls the queue under its own.
pub(crate) struct SharedWebhook {
    queue: Mutex<PostQueue>,
    pub(crate) changed: Notify,
    pub(crate) receiver: EventReceiver,
    pub(crate) log: EventLog,
    pub(crate) payload: WritePayload,
    pub(crate) clock: Arc<dyn Clock>,
}

struct FinishedPost {
    outcome: PostOutcome,
    /// To be used again; `None` after a failure, so that the certificate authorities are read again.
    client: Option<WebhookClient>,
}

/// What woke the task.
enum WakeUp {
    /// `None`: its thread did not start, or panicked.
    Answer(Option<FinishedPost>),
    Other,
}

/// See the module's documentation.
struct WebhookTask {
    shared: Arc<SharedWebhook>,
    client: Option<WebhookClient>,
    running: Option<oneshot::Receiver<FinishedPost>>,
    refusals: LogThrottle<()>,
}

/// Runs until the queue [stops](PostQueue::stop).
pub(crate) async fn run(shared: Arc<SharedWebhook>) {
    let mut task = WebhookTask {
        shared,
        client: None,
        running: None,
        refusals: LogThrottle::default(),
    };
    while task.turn().await {}
}

impl SharedWebhook {
    pub(crate) fn new(
        queue: PostQueue,
        log: EventLog,
        payload: WritePayload,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            receiver: EventReceiver::webhook(&queue.config.id),
            queue: Mutex::new(queue),
            changed: Notify::new(),
            log,
            payload,
            clock,
        }
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, PostQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue and wakes the task.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut PostQueue, Mono) -> T) -> T {
        let result = change(&mut self.queue(), self.clock.now());
        self.changed.notify_one();
        result
    }

    fn write_changes(&self) {
        let changes = self.queue().take_changes();
        if !changes.done.is_empty() {
            self.log.done(&self.receiver, changes.done);
        }
        for (number, jpeg) in changes.pictures {
            self.log.add_picture(number, jpeg);
        }
    }
}

impl WebhookTask {
    /// One wake-up; false at the end.
    async fn turn(&mut self) -> bool {
        let now = self.shared.clock.now();
        let next = {
            let mut queue = self.shared.queue();
            queue.drop_excess(now);
            queue.next(now)
        };
        let at = match next {
            NextPost::Post { number, is_delayed } => {
                self.post(number, is_delayed).await;
                None
            }
            NextPost::At(at) => Some(at),
            NextPost::Nothing => None,
        };
        self.shared.write_changes();
        let (is_over, stop_at) = {
            let queue = self.shared.queue();
            (queue.is_over(now), queue.stop_at())
        };
        if is_over {
            return false;
        }
        let at = at.into_iter().chain(stop_at).min();
        let woken = tokio::select! {
            finished = answer(&mut self.running) => WakeUp::Answer(finished),
            () = self.shared.changed.notified() => WakeUp::Other,
            () = sleep(at.map_or(Duration::MAX, |at| at.since(now))), if at.is_some() => WakeUp::Other,
        };
        if let WakeUp::Answer(finished) = woken {
            self.on_answer(finished);
        }
        true
    }

    /// Starts the request of an event.
    async fn post(&mut self, number: u64, is_delayed: bool) {
        let begun = {
            let mut queue = self.shared.queue();
            let config = Arc::clone(&queue.config);
            queue.begin(number).map(|post| (post, config))
        };
        let Some((
            QueuedPost {
                logged, picture, ..
            },
            config,
        )) = begun
        else {
            return;
        };
        let jpeg = match picture {
            PostPicture::InMemory(jpeg) => Some(jpeg),
            PostPicture::Stored { .. } => self.shared.log.picture(number).await.map(Arc::from),
            PostPicture::None | PostPicture::Awaited(_) => None,
        };
        let request = PostRequest {
            id: logged.id.clone(),
            unix_s: self.shared.clock.wall().unix_millis().div_euclid(1000),
            body: (self.shared.payload)(&logged, is_delayed, jpeg.as_deref()),
        };
        let (sender, answer) = oneshot::channel();
        let client = self.client.take();
        let client = client.filter(|client| client.is_of(&config));
        let work = move || {
            // The task may have ended meanwhile.
            _ = sender.send(carry_out(config, client, &request));
        };
        let thread = thread::Builder::new().name("webhook".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::warn!(%error, "cannot start the thread of a request");
        }
        self.running = Some(answer);
    }

    fn on_answer(&mut self, finished: Option<FinishedPost>) {
        self.running = None;
        let finished = finished.unwrap_or_else(|| FinishedPost {
            outcome: PostOutcome::Failed {
                reason: "the thread of the request could not be started".to_owned(),
                after: None,
            },
            client: None,
        });
        self.client = finished.client;
        let now = self.shared.clock.now();
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue();
        let before = queue.state.clone();
        queue.finish(finished.outcome, now, fastrand::f64());
        self.log(&before, &queue, now);
    }

    /// Logs when the receiver begins to fail and when it accepts again, and what it refuses.
    fn log(&mut self, before: &WebhookState, queue: &PostQueue, now: Mono) {
        let webhook = queue.config.id.as_str();
        let was_failing = matches!(before, WebhookState::Failing { .. });
        match &queue.state {
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
                let waiting = queue.status().waiting;
                tracing::info!(webhook, waiting, "the receiver accepts events again");
            }
            _ => {}
        }
    }
}

/// The answer to the running request; pending without one.
async fn answer(running: &mut Option<oneshot::Receiver<FinishedPost>>) -> Option<FinishedPost> {
    match running {
        Some(running) => running.await.ok(),
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
