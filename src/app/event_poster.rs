//! The webhooks: events that the publisher accepted, and their pictures, to receivers over HTTP.
//!
//! The publisher decides which events these are: in a fleet, those of cameras that this node owns for certain. Neither the broker nor a
//! receiver delays the other.

use std::{future::pending, sync::Arc};

use anyhow::Context as _;
use tokio::sync::mpsc;

use super::{
    notice::Notice,
    stage::{Stage, StageContext, Work},
    status,
};
use spotter_config::{Config, WebhookConfig};
use spotter_core::Clock;
use spotter_mqtt::PublishedEvent;
use spotter_webhook::{WebhookEvent, WebhookPicture, WebhookStatus, Webhooks};

/// See the module's documentation.
pub struct EventPoster {
    events: mpsc::Receiver<PublishedEvent>,
    webhooks: Webhooks,
}

impl EventPoster {
    /// Finds errors of files that the webhooks name. Blocks on the disk.
    pub fn check(webhooks: &[WebhookConfig]) -> anyhow::Result<()> {
        for webhook in webhooks {
            Webhooks::check(webhook).with_context(|| format!("webhook.{}", webhook.id))?;
        }
        Ok(())
    }

    /// Events that an earlier run left are posted first. Blocks on the disk.
    pub fn start(
        events: mpsc::Receiver<PublishedEvent>,
        config: &Config,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let (webhooks, state_dir) = (&config.webhooks, &config.node.state_dir);
        Self {
            events,
            webhooks: Webhooks::start(webhooks, state_dir, Arc::clone(clock)),
        }
    }

    /// Gives the event to the webhooks that want it. Never waits.
    fn post(&mut self, event: &PublishedEvent) {
        if !self.webhooks.is_wanted(event.event()) {
            return;
        }
        // An event is a JSON object.
        if let Some(event) = WebhookEvent::new(event.id(), event.event(), &event.to_json()) {
            self.webhooks.post(event);
        }
    }

    /// Adds a picture to its event, which was published before. Never waits.
    fn add_picture(&mut self, picture: &WebhookPicture) {
        self.post_all();
        self.webhooks.add_picture(picture);
    }

    fn post_all(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.post(&event);
        }
    }
}

impl Stage for EventPoster {
    fn next(&mut self) -> Work<'_, Vec<Notice>> {
        Box::pin(async {
            let Some(event) = self.events.recv().await else {
                // The publisher has ended.
                return pending().await;
            };
            self.post(&event);
            Vec::new()
        })
    }

    fn hear(&mut self, notice: &mut Notice, context: &mut StageContext<'_>) {
        match notice {
            Notice::PictureTaken(picture) => self.add_picture(picture),
            // An unchanged webhook ends its pause.
            Notice::FileApplied => self.webhooks.change(&context.config.file().webhooks),
            _ => {}
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let statuses = self.webhooks.statuses();
        let troubles = statuses.iter().filter_map(WebhookStatus::trouble);
        context.status.troubles.extend(troubles);
        let lines = statuses.iter().map(|it| status::webhook(it, context.now));
        context.status.webhooks = lines.collect();
    }

    /// Posts the last events, or keeps them for the next start. Ends within some seconds.
    fn close(&mut self, _is_restart: bool) -> Work<'_, Vec<Notice>> {
        self.post_all();
        Box::pin(async {
            self.webhooks.stop().await;
            Vec::new()
        })
    }
}
