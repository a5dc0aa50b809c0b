//! All webhooks of the daemon: one task each, which a reload starts, changes or ends without touching the others.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    client::{WebhookTlsError, check_authorities},
    status::{WebhookCounters, WebhookState, WebhookStatus},
    store::remove_folder,
    task::{self, WebhookInput, WebhookTaskParts},
    timing::WebhookTiming,
    webhook_event::{WebhookEvent, WebhookPicture},
};
use spotter_config::WebhookConfig;
use spotter_core::{Clock, Event, WebhookId};

/// Below the state directory.
const FOLDER: &str = "webhooks";
/// Inputs that wait while the disk is slow; after a crash, each open track ends at once.
const INBOX: usize = 8192;
/// While this many inputs wait, pictures are left out: they are large.
const INBOX_WITH_PICTURES: usize = 16;
/// A task whose disk hangs is not waited for longer than this.
const END_LIMIT: Duration = Duration::from_secs(3);

/// See the module's documentation.
pub struct Webhooks {
    running: BTreeMap<WebhookId, RunningWebhook>,
    folder: PathBuf,
    timing: WebhookTiming,
    clock: Arc<dyn Clock>,
}

struct RunningWebhook {
    config: Arc<WebhookConfig>,
    inbox: mpsc::Sender<WebhookInput>,
    status: watch::Receiver<WebhookStatus>,
    /// Events dropped because the inbox was full.
    overflowed: u64,
    task: JoinHandle<()>,
}

impl Webhooks {
    /// Finds out whether the certificate authority can be used. Blocks on the disk.
    pub fn check(config: &WebhookConfig) -> Result<(), WebhookTlsError> {
        let ca = config.ca.as_ref();
        ca.map_or(Ok(()), |path| check_authorities(path))
    }

    /// Starts the tasks on the current tokio runtime. Events that an earlier run left in `state_dir` are posted first; those of webhooks
    /// that are not configured any more are removed. Blocks on the disk.
    pub fn start(configs: &[WebhookConfig], state_dir: &Path, clock: Arc<dyn Clock>) -> Self {
        Self::start_with(configs, state_dir, clock, WebhookTiming::default())
    }

    pub(crate) fn start_with(
        configs: &[WebhookConfig],
        state_dir: &Path,
        clock: Arc<dyn Clock>,
        timing: WebhookTiming,
    ) -> Self {
        let mut webhooks = Self {
            running: BTreeMap::new(),
            folder: state_dir.join(FOLDER),
            timing,
            clock,
        };
        webhooks.remove_unconfigured(configs);
        for config in configs {
            webhooks.begin(config);
        }
        webhooks
    }

    fn remove_unconfigured(&self, configs: &[WebhookConfig]) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return; // There is none yet; a task reports what is wrong with its own.
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_configured = configs.iter().any(|config| name == config.id.as_str());
            if !is_configured && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_folder(&entry.path());
            }
        }
    }

    fn begin(&mut self, config: &WebhookConfig) {
        let config = Arc::new(config.clone());
        let (inbox, inputs) = mpsc::channel(INBOX);
        let (status, seen) = watch::channel(WebhookStatus {
            id: config.id.clone(),
            address: config.address.clone(),
            state: WebhookState::default(),
            counters: WebhookCounters::default(),
            waiting: 0,
            disk_trouble: None,
        });
        let task = tokio::spawn(task::run(WebhookTaskParts {
            config: Arc::clone(&config),
            timing: self.timing,
            folder: self.folder.join(config.id.as_str()),
            inbox: inputs,
            status,
            clock: Arc::clone(&self.clock),
        }));
        let running = RunningWebhook {
            inbox,
            status: seen,
            overflowed: 0,
            task,
            config,
        };
        self.running.insert(running.config.id.clone(), running);
    }

    /// Applies a new configuration: an unchanged webhook goes on, a changed one keeps its waiting events, those of a removed one are
    /// removed.
    pub fn change(&mut self, configs: &[WebhookConfig]) {
        let is_kept = |id: &WebhookId| configs.iter().any(|config| config.id == *id);
        let removed = self.running.extract_if(.., |id, _| !is_kept(id));
        for (_, webhook) in removed.collect::<Vec<_>>() {
            drop(tokio::spawn(webhook.end_with(WebhookInput::Remove)));
        }
        for config in configs {
            match self.running.get_mut(&config.id) {
                Some(webhook) if *webhook.config == *config => webhook.send(WebhookInput::TryAgain),
                Some(webhook) => webhook.configure(config),
                None => self.begin(config),
            }
        }
    }

    /// A webhook wants this event.
    pub fn is_wanted(&self, event: &Event) -> bool {
        let mut all = self.running.values();
        all.any(|webhook| webhook.config.filter.accepts(event))
    }

    /// Gives an event to the webhooks that want it. Never waits.
    pub fn post(&mut self, event: WebhookEvent) {
        let event = Arc::new(event);
        for webhook in self.running.values_mut() {
            if webhook.config.filter.accepts(&event.event) {
                webhook.send(WebhookInput::Event(Arc::clone(&event)));
            }
        }
    }

    /// Gives the picture of an event, after the event. Never waits.
    pub fn add_picture(&mut self, picture: &WebhookPicture) {
        for webhook in self.running.values_mut() {
            let waiting = webhook.inbox.max_capacity() - webhook.inbox.capacity();
            if webhook.config.snapshot && waiting < INBOX_WITH_PICTURES {
                webhook.send(WebhookInput::Picture(picture.clone()));
            }
        }
    }

    /// All webhooks now, by name.
    pub fn statuses(&self) -> Vec<WebhookStatus> {
        let all = self.running.values();
        all.map(RunningWebhook::status).collect()
    }

    /// Ends all tasks at once, as the end of the process does.
    #[cfg(test)]
    pub(crate) fn kill(self) {
        for webhook in self.running.values() {
            webhook.task.abort();
        }
    }

    /// Posts the last events if the receivers answer in time, and writes the others to the disk. Ends within some seconds.
    pub async fn stop(&mut self) {
        let all = std::mem::take(&mut self.running).into_values();
        let ends: Vec<_> = all
            .map(|webhook| tokio::spawn(webhook.end_with(WebhookInput::Stop)))
            .collect();
        for end in ends {
            // A panic logs itself.
            _ = end.await;
        }
    }
}

impl RunningWebhook {
    fn send(&mut self, input: WebhookInput) {
        let is_event = matches!(input, WebhookInput::Event(_));
        if self.inbox.try_send(input).is_err() {
            self.overflowed += u64::from(is_event);
        }
    }

    fn configure(&mut self, config: &WebhookConfig) {
        self.config = Arc::new(config.clone());
        let changed = WebhookInput::Config(Arc::clone(&self.config));
        if self.inbox.try_send(changed).is_err() {
            let webhook = config.id.as_str();
            tracing::error!(
                webhook,
                "the disk does not finish; the webhook keeps its earlier configuration until the next reload"
            );
        }
    }

    fn status(&self) -> WebhookStatus {
        let mut status = self.status.borrow().clone();
        status.counters.over_bound += self.overflowed;
        status
    }

    async fn end_with(self, last: WebhookInput) {
        let Self {
            config,
            inbox,
            mut task,
            ..
        } = self;
        let end = async {
            // An error means that the task has ended.
            _ = inbox.send(last).await;
            _ = (&mut task).await;
        };
        if timeout(END_LIMIT, end).await.is_err() {
            let webhook = config.id.as_str();
            tracing::warn!(webhook, "disk did not finish in time; events may be lost");
            task.abort();
        }
    }
}
