//! A history with an event, for tests of those who show it.

use std::{path::Path, sync::Arc, time::Duration};

use spotter_config::HistoryConfig;
use spotter_core::{
    CameraId, Clock, EventStep, SystemClock,
    testing::{event, frame_at},
};
use spotter_state::StateStore;

use crate::History;

/// The id of [`stored_event`].
pub const EVENT_ID: &str = "b7c1-gate-1";

/// A history in this directory with one event, whose picture is these bytes: `picture`. Blocks until it is stored.
pub fn stored_event(state_dir: &Path) -> History {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = StateStore::open(state_dir, Arc::clone(&clock)).unwrap();
    let day = Duration::from_hours(24);
    let config = HistoryConfig {
        keep: 3650 * day,
        size: 1 << 30,
        judged: 1 << 30,
    };
    let history = History::start(&store, &config, |_| Ok(b"picture".to_vec()), clock).unwrap();
    let frame = frame_at(&CameraId::new("gate").unwrap(), Duration::ZERO);
    let begun = event("gate", 1, EventStep::New);
    history.event(&begun, "a red car", Some(&frame));
    while history.reader().picture(EVENT_ID).unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    history
}
