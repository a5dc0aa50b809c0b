//! The history of events as a stage of the daemon. `AnswerRouter` hands events to it; the page and the API ask it themselves.

use std::sync::Arc;

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext, StageFuture},
};
use spotter_config::{CameraConfig, ConfigChange};
use spotter_core::Clock;
use spotter_history::History;
use spotter_page::{Trouble, TroubleKind};

pub struct EventHistory {
    history: History,
    clock: Arc<dyn Clock>,
}

impl EventHistory {
    pub fn new(history: History, cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Self {
        let stage = Self { history, clock };
        stage.mask(cameras);
        stage
    }

    /// What is masked must not be seen in pictures from before.
    fn mask<'a>(&self, cameras: impl IntoIterator<Item = &'a CameraConfig>) {
        for camera in cameras {
            let (areas, now) = (&camera.mask, self.clock.now());
            self.history.mask(&camera.id, areas, now);
        }
    }
}

impl Stage for EventHistory {
    /// The sampler, an earlier stage, has the masks now.
    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        self.mask(change.configured());
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let status = self.history.status();
        let pictures = (status.pictures_stopped)
            .map(|why| format!("events are stored without pictures: {why}"));
        let rows = status
            .rows_stopped
            .map(|why| format!("events are not stored: {why}"));
        let left = (status.pictures_left > 0).then(|| {
            let count = status.pictures_left;
            format!("{count} deleted pictures of events cannot be removed from the disk")
        });
        let stopped = pictures.into_iter().chain(rows).chain(left);
        let troubles = stopped.map(|text| Trouble::new(TroubleKind::HistoryStopped, text));
        context.status.troubles.extend(troubles);
    }

    /// Writes the last events. Ends within some seconds.
    fn close(&mut self, _is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        let history = self.history.clone();
        Box::pin(async {
            history.close().await;
            Vec::new()
        })
    }
}
