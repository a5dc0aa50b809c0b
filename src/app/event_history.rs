//! The history of events as a stage of the daemon. `AnswerRouter` hands events to it; the page and the API ask it themselves.

use std::{collections::HashMap, sync::Arc};

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext, StageFuture},
};
use spotter_config::{CameraConfig, ConfigChange};
use spotter_core::{CameraId, Clock};
use spotter_history::History;
use spotter_page::{Trouble, TroubleKind};

type MaskAreas = Vec<Vec<(f64, f64)>>;

pub struct EventHistory {
    history: History,
    masks: HashMap<CameraId, MaskAreas>,
    clock: Arc<dyn Clock>,
}

impl EventHistory {
    pub fn new(history: History, cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Self {
        let masks = cameras
            .iter()
            .map(|camera| (camera.id.clone(), camera.mask.clone()));
        Self {
            history,
            masks: masks.collect(),
            clock,
        }
    }
}

/// A polygon is new or another one.
fn is_larger(after: &MaskAreas, before: &MaskAreas) -> bool {
    after.iter().any(|polygon| !before.contains(polygon))
}

impl Stage for EventHistory {
    /// What is masked now must not be seen in pictures from before.
    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        for camera in change.configured() {
            let before = self.masks.insert(camera.id.clone(), camera.mask.clone());
            if before.is_some_and(|before| is_larger(&camera.mask, &before)) {
                // The sampler, an earlier stage, has the mask now.
                self.history.remove_pictures(&camera.id, self.clock.now());
            }
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let status = self.history.status();
        let pictures = (status.pictures_stopped)
            .map(|why| format!("events are stored without pictures: {why}"));
        let rows = status
            .rows_stopped
            .map(|why| format!("events are not stored: {why}"));
        let stopped = pictures.into_iter().chain(rows);
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
