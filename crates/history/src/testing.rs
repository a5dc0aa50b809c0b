//! A history with an event, for tests of those who show it.

use std::{path::Path, sync::Arc, time::Duration};

use spotter_config::HistoryConfig;
use spotter_core::{
    CameraId, Clock, EndReason, Event, EventStep, Frame, SystemClock,
    testing::{event, frame_at},
};
use spotter_state::StateStore;

use crate::{History, HistoryMessage, PictureLinks};

/// Events of [`stored_events`] that have a picture, the first ones: the queue of frames is short.
const PICTURES: usize = 4;

const SERIES: &str = "5e71e5";

/// The id of [`stored_event`].
pub const EVENT_ID: &str = "b7c1-gate-1";

/// A history in this directory with one event, whose picture is these bytes: `picture`. Blocks until it is stored.
pub fn stored_event(state_dir: &Path) -> History {
    stored_events(state_dir, &[("gate", 1)])
}

/// The same with events of these cameras and numbers, all at one place of their camera.
pub fn stored_events(state_dir: &Path, events: &[(&str, u64)]) -> History {
    stored_alarms(state_dir, SERIES, events)
}

/// The same of this series.
pub fn stored_alarms(state_dir: &Path, series: &str, events: &[(&str, u64)]) -> History {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = StateStore::open(state_dir, Arc::clone(&clock)).unwrap();
    let day = Duration::from_hours(24);
    let config = HistoryConfig {
        keep: 3650 * day,
        size: 1 << 30,
        judged: 1 << 30,
        near: 0,
    };
    let history = History::start(&store, &config, |_| Ok(b"picture".to_vec()), clock).unwrap();
    for (index, &(camera, number)) in events.iter().enumerate() {
        let frame = frame_at(&CameraId::new(camera).unwrap(), Duration::ZERO);
        let frame = (index < PICTURES).then_some(&frame);
        let begun = event(camera, number, EventStep::New);
        history.event(&HistoryMessage {
            series,
            ..message(&begun, "a red car", frame)
        });
        let ended = Event {
            step: EventStep::End(EndReason::Left),
            ended: Some(begun.last_seen),
            ..begun
        };
        history.event(&message(&ended, "a red car", None));
    }
    for (index, &(camera, number)) in events.iter().enumerate() {
        let track = event(camera, number, EventStep::New).track;
        let is_stored = || match history.reader().event(track.as_str(), PictureLinks::Page) {
            Ok(Some(stored)) => {
                stored.end_ms.is_some() && (index >= PICTURES || stored.picture.is_some())
            }
            _ => false,
        };
        while !is_stored() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    history
}

/// A message with no other objects on its frame.
pub(crate) fn message<'a>(
    event: &'a Event,
    words: &'a str,
    frame: Option<&'a Frame>,
) -> HistoryMessage<'a> {
    HistoryMessage {
        event,
        words,
        series: SERIES,
        frame,
        objects: &[],
        is_near: false,
    }
}
