//! The history of events as a stage of the daemon. `AnswerRouter` hands events to it; the page and the API ask it themselves.

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext, StageFuture},
};
use spotter_history::History;
use spotter_page::{Trouble, TroubleKind};

pub struct EventHistory(pub History);

impl Stage for EventHistory {
    fn tick(&mut self, context: &mut StageContext<'_>) {
        let status = self.0.status();
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
        let history = self.0.clone();
        Box::pin(async {
            history.close().await;
            Vec::new()
        })
    }
}
