//! All webhooks of the daemon: one task each, which a reload starts, changes or ends without touching the others.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;

use crate::{
    client::{UnusableWebhook, authorities},
    queue::{PostPicture, PostQueue, QueuedPost},
    status::WebhookStatus,
    task::{SharedWebhook, WebhookTask},
    timing::WebhookTiming,
};
use spotter_config::WebhookConfig;
use spotter_core::{Clock, TrackId, WebhookId};
use spotter_state::{EventLog, EventReceiver, FoundEvents, OfferEvent, OpenedEvents};

/// See the module's documentation. Dropping it ends all tasks at once.
pub struct Webhooks {
    running: BTreeMap<WebhookId, RunningWebhook>,
    log: EventLog,
    timing: WebhookTiming,
    clock: Arc<dyn Clock>,
}

struct RunningWebhook {
    shared: Arc<SharedWebhook>,
    /// Of one task, which ends with it.
    task: JoinSet<()>,
}

impl Webhooks {
    /// Finds out whether the certificate authorities can be used. Blocks on the disk.
    pub fn check(configs: &[WebhookConfig]) -> Result<(), UnusableWebhook> {
        for config in configs {
            let id = config.id.clone();
            let checked = config.ca.as_ref().map(|path| authorities(path));
            checked
                .transpose()
                .map_err(|error| UnusableWebhook { id, error })?;
        }
        Ok(())
    }

    /// Starts the tasks on the current tokio runtime. Events that an earlier run left are posted first; those of webhooks that are not
    /// configured any more are removed.
    pub fn start(configs: &[WebhookConfig], events: &OpenedEvents, clock: Arc<dyn Clock>) -> Self {
        Self::start_with(WebhookTiming::default(), configs, events, clock)
    }

    pub(crate) fn start_with(
        timing: WebhookTiming,
        configs: &[WebhookConfig],
        events: &OpenedEvents,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut webhooks = Self {
            running: BTreeMap::new(),
            log: events.log.clone(),
            timing,
            clock,
        };
        for config in configs {
            webhooks.begin(config, &events.found);
        }
        webhooks.subscribe();
        webhooks
    }

    fn begin(&mut self, config: &WebhookConfig, found: &FoundEvents) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let receiver = EventReceiver::webhook(&config.id);
        let mut queue = PostQueue::new(Arc::new(config.clone()), self.timing);
        queue.counters.unreadable = found.unreadable.get(&receiver).copied().unwrap_or(0);
        for waiting in found.waiting_for(&receiver) {
            let left = waiting.logged.time_left(config.spool.max_age, wall);
            queue.push(QueuedPost {
                logged: Arc::clone(&waiting.logged),
                since: None,
                expires: now.after(left),
                picture: match waiting.picture_bytes {
                    0 => PostPicture::None,
                    bytes => PostPicture::Stored { bytes },
                },
            });
        }
        let events = queue.status().waiting;
        if events > 0 {
            let webhook = config.id.as_str();
            tracing::info!(
                webhook,
                events,
                "events of an earlier run wait for the receiver"
            );
        }
        let (log, clock) = (self.log.clone(), Arc::clone(&self.clock));
        let shared = Arc::new(SharedWebhook::new(queue, log, clock));
        let mut task = JoinSet::new();
        task.spawn(WebhookTask::new(Arc::clone(&shared)).run());
        let running = RunningWebhook { shared, task };
        self.running.insert(config.id.clone(), running);
    }

    /// From now on, the log has events for these webhooks and no others.
    fn subscribe(&self) {
        let running = self.running.values().map(|webhook| &webhook.shared);
        let offers = running.map(|shared| {
            let (receiver, shared) = (shared.receiver.clone(), Arc::clone(shared));
            let offer: OfferEvent =
                Arc::new(move |logged| shared.change(|queue, now| queue.offer(logged, now)));
            (receiver, offer)
        });
        self.log.set_webhooks(offers.collect());
    }

    /// Applies a new configuration: an unchanged webhook goes on and ends its pause, a changed one keeps its waiting events, those of a removed
    /// one are removed.
    pub fn change(&mut self, configs: &[WebhookConfig]) {
        self.running
            .retain(|id, _| configs.iter().any(|config| config.id == *id));
        for config in configs {
            match self.running.get(&config.id) {
                Some(webhook) => webhook.shared.change(|queue, _| {
                    queue.try_again();
                    if *queue.config != *config {
                        queue.config = Arc::new(config.clone());
                    }
                }),
                None => self.begin(config, &FoundEvents::default()),
            }
        }
        self.subscribe();
    }

    /// Gives the picture of an event, after the event. Never waits.
    pub fn add_picture(&self, track: &TrackId, jpeg: &Arc<[u8]>) {
        for webhook in self.running.values() {
            let add = |queue: &mut PostQueue, now| queue.add_picture(track, jpeg, now);
            webhook.shared.change(add);
        }
    }

    /// All webhooks now, by name.
    pub fn statuses(&self) -> Vec<WebhookStatus> {
        let all = self.running.values();
        all.map(|webhook| webhook.shared.queue().status()).collect()
    }

    /// Posts the last events if the receivers answer in time; the others stay in the log.
    pub async fn stop(&mut self) {
        for webhook in self.running.values() {
            webhook.shared.change(PostQueue::stop);
        }
        for mut webhook in std::mem::take(&mut self.running).into_values() {
            // A panic logs itself.
            _ = webhook.task.join_next().await;
        }
    }
}
