//! The shell of one webhook: requests as the queue decides, and the event log behind it.
//!
//! A request has a thread that nothing waits for: at a stop, one that hangs is left behind. Its event stays in the log.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

use crate::{
    client::{PostOutcome, WebhookClient},
    queue::{NextPost, PostPicture, PostQueue, QueuedPost},
    signature::PostRequest,
    status::WebhookState,
};
use spotter_config::WebhookConfig;
use spotter_core::{Clock, LogThrottle, Mono};
use spotter_state::{EventLog, EventReceiver};

/// What the task shares with [`Webhooks`](crate::Webhooks). The lock is held for an operation of the queue; no call of the event log is made
/// under it, which calls the queue under its own.
pub(crate) struct SharedWebhook {
    queue: Mutex<PostQueue>,
    changed: Notify,
    pub(crate) receiver: EventReceiver,
    log: EventLog,
    clock: Arc<dyn Clock>,
}

impl SharedWebhook {
    pub(crate) fn new(queue: PostQueue, log: EventLog, clock: Arc<dyn Clock>) -> Self {
        Self {
            receiver: EventReceiver::webhook(&queue.config.id),
            queue: Mutex::new(queue),
            changed: Notify::new(),
            log,
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

    /// Waits for `work`; `None` when the time of a stop is over before.
    async fn before_stop<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            self.write_changes();
            let stop_at = self.queue().stop_at;
            let left = stop_at.map_or(Duration::MAX, |at| at.since(self.clock.now()));
            tokio::select! {
                done = &mut work => return Some(done),
                () = sleep(left), if stop_at.is_some() => return None,
                () = self.changed.notified() => {}
            }
        }
    }
}

/// See the module's documentation.
pub(crate) struct WebhookTask {
    shared: Arc<SharedWebhook>,
    /// To be used again; `None` after a failure, so that the certificate authorities are read again.
    client: Option<WebhookClient>,
    refusals: LogThrottle<()>,
}

impl WebhookTask {
    pub(crate) fn new(shared: Arc<SharedWebhook>) -> Self {
        Self {
            shared,
            client: None,
            refusals: LogThrottle::default(),
        }
    }

    /// Runs until the queue [stops](PostQueue::stop).
    pub(crate) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let now = shared.clock.now();
            let (next, stops) = {
                let mut queue = shared.queue();
                (queue.next(now), queue.stop_at.is_some())
            };
            shared.write_changes();
            let pause = match next {
                NextPost::Post {
                    config,
                    post,
                    is_delayed,
                } => {
                    let posting = self.post(config, post, is_delayed);
                    let Some(outcome) = shared.before_stop(posting).await else {
                        return shared.write_changes();
                    };
                    self.finish(outcome);
                    continue;
                }
                _ if stops => return,
                NextPost::At(at) => at.since(now),
                NextPost::Nothing => Duration::MAX,
            };
            tokio::select! {
                () = shared.changed.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Posts an event in a thread.
    async fn post(
        &mut self,
        config: Arc<WebhookConfig>,
        post: QueuedPost,
        is_delayed: bool,
    ) -> PostOutcome {
        let QueuedPost {
            logged, picture, ..
        } = post;
        let log = &self.shared.log;
        let jpeg = match picture {
            PostPicture::InMemory(jpeg) => Some(jpeg),
            PostPicture::Stored { .. } => log.picture(logged.number).await.map(Arc::from),
            PostPicture::None | PostPicture::Awaited(_) => None,
        };
        let request = PostRequest {
            id: logged.id.clone(),
            unix_s: self.shared.clock.wall().unix_millis().div_euclid(1000),
            body: logged.payload(is_delayed, jpeg.as_deref()),
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
        match answer.await {
            Ok((outcome, client)) => {
                self.client = client;
                outcome
            }
            Err(_) => {
                PostOutcome::failed("the thread of the request could not be started".to_owned())
            }
        }
    }

    /// Logs when the receiver begins to fail and when it accepts again, and what it refuses.
    fn finish(&mut self, outcome: PostOutcome) {
        let now = self.shared.clock.now();
        let mut queue = self.shared.queue();
        let was_failing = matches!(queue.state, WebhookState::Failing { .. });
        queue.finish(outcome, now, fastrand::f64());
        let webhook = queue.config.id.as_str();
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

/// Blocks until the receiver has answered or the time is over.
fn carry_out(
    config: Arc<WebhookConfig>,
    client: Option<WebhookClient>,
    request: &PostRequest,
) -> (PostOutcome, Option<WebhookClient>) {
    match client.map_or_else(|| WebhookClient::new(config), Ok) {
        Ok(client) => match client.post(request) {
            failed @ PostOutcome::Failed { .. } => (failed, None),
            outcome => (outcome, Some(client)),
        },
        Err(reason) => (PostOutcome::failed(reason), None),
    }
}
