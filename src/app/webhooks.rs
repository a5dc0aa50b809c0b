//! The webhooks as a stage of the daemon. They take events from the event log themselves; the pictures of events come after them.

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext, StageFuture},
    status,
};
use spotter_webhook::Webhooks;

impl Stage for Webhooks {
    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        match notice {
            StageNotice::PictureTaken(track, jpeg) => self.add_picture(track, jpeg),
            StageNotice::FileApplied => self.change(&context.config.file().webhooks),
            _ => {}
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let statuses = self.statuses();
        let troubles = statuses.iter().filter_map(status::webhook_trouble);
        context.status.troubles.extend(troubles);
        let lines = statuses.iter().map(|it| status::webhook(it, context.now));
        context.status.webhooks = lines.collect();
    }

    /// Posts the last events, or keeps them for the next start. Ends within some seconds.
    fn close(&mut self, _is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            self.stop().await;
            Vec::new()
        })
    }
}
