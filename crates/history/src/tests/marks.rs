//! What people say of events.

use super::*;
use crate::{HistoryMessage, JudgingError, SeriesKey};
use spotter_core::{EventMark, EventVerdict, MarkOrder};

const DAY: Duration = Duration::from_hours(24);

fn order(number: u64, mark: Value) -> MarkOrder {
    let gate = CameraId::new("gate").unwrap();
    MarkOrder {
        event: TrackId::new("b7c1", &gate, number),
        mark: serde_json::from_value(mark).unwrap(),
    }
}

fn better(begun: &Event) -> Event {
    Event {
        step: EventStep::Update(UpdateReason::Better),
        ..begun.clone()
    }
}

impl Rig {
    fn event(&self, event: &Event, frame: Option<&Frame>) {
        self.history.event(&message(event, "", frame));
    }

    async fn mark(&self, number: u64, mark: Value) -> Result<(), JudgingError> {
        self.history.mark(order(number, mark)).await
    }

    fn shown(&self, number: u64) -> Value {
        let id = order(number, json!({"mark": "none"})).event;
        let event = self.history.reader().event(id.as_str(), PictureLinks::Page);
        json!(event.unwrap())
    }

    fn key(&self) -> SeriesKey {
        SeriesKey {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new("person").unwrap(),
            series: "5e71e5".to_owned(),
        }
    }
}

#[tokio::test]
async fn mark_of_an_open_event_stays_and_keeps_its_picture() {
    let rig = Rig::new();
    let open = begun(1, NOW_MS);
    rig.event(&open, Some(&frame("gate", 1)));
    rig.until_stored(1);
    let place = json!([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.75, 1.0]]);
    let corrected = json!({"mark": "corrected", "objects": place, "all_found": true});
    assert_eq!(rig.mark(1, corrected).await, Ok(()));
    let totals = rig.history.status().totals;
    assert!(totals.unjudged == 0 && totals.judged > JPEG_BYTES as u64);
    rig.event(&better(&open), Some(&frame("gate", 2)));
    rig.event(&ended(&open), None);
    rig.until(|rig| rig.shown(1)["end_ms"].is_number());
    let shown = rig.shown(1);
    assert_eq!(
        (&shown["mark"], &shown["objects"], &shown["all_found"]),
        (&json!("corrected"), &place, &json!(true))
    );
    assert_eq!(rig.files(), ["b7c1-gate-1.1.jpg"]);
    let judged = rig.history.status().totals;
    assert!(
        judged.unjudged == 0 && judged.judged >= totals.judged,
        "{judged:?}"
    );
    assert_eq!(rig.mark(1, json!({"mark": "none"})).await, Ok(()));
    let shown = rig.shown(1);
    assert_eq!(
        (&shown["mark"], &shown["objects"], &shown["all_found"]),
        (&Value::Null, &Value::Null, &json!(false))
    );
    assert_eq!(rig.history.status().totals.judged, 0);
}

#[tokio::test]
async fn event_without_its_mark_gets_better_pictures_again() {
    let rig = Rig::new();
    let open = begun(1, NOW_MS);
    rig.event(&open, Some(&frame("gate", 1)));
    rig.until_stored(1);
    for mark in ["wrong", "none"] {
        assert_eq!(rig.mark(1, json!({"mark": mark})).await, Ok(()));
    }
    rig.event(&better(&open), Some(&frame("gate", 2)));
    rig.until(|rig| rig.files() == ["b7c1-gate-1.2.jpg"]);
}

// Faults: S14.
#[tokio::test]
async fn mark_that_cannot_be_stored_is_refused() {
    let rig = Rig::new();
    rig.happened(1, 0, |_| {});
    rig.until_stored(1);
    let right = json!({"mark": "right"});
    assert_eq!(rig.mark(2, right).await, Err(JudgingError::Unknown));
    let points = json!({"mark": "corrected", "objects": [[0.1, 0.2]]});
    let refused = rig.mark(1, points).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "objects: those of this event are boxes, [x0, y0, x1, y1]"
    );
    assert_eq!(rig.shown(1)["mark"], Value::Null);
    let sql = "ALTER TABLE history RENAME TO away";
    rig.store.execute(|it| it.execute(sql, [])).unwrap();
    let right = rig.mark(1, json!({"mark": "right"})).await;
    assert!(
        matches!(right, Err(JudgingError::NotStored(_))),
        "{right:?}"
    );
}

#[tokio::test]
async fn judged_events_outlive_keep_up_to_their_own_limit() {
    let rig = Rig::with(4 * JPEG_BYTES as u64, 0);
    for number in 1..=3 {
        rig.happened(number, HOUR_MS, |_| {});
        rig.until_stored(number);
    }
    for number in [1, 3] {
        assert_eq!(rig.mark(number, json!({"mark": "right"})).await, Ok(()));
    }
    rig.clock.advance(8 * DAY);
    rig.happened(4, -8 * DAY.as_millis() as i64, |_| {});
    let (first, third, fourth) = (
        "b7c1-gate-1.1.jpg",
        "b7c1-gate-3.1.jpg",
        "b7c1-gate-4.1.jpg",
    );
    rig.until(|rig| rig.files() == [first, third, fourth]);
    assert_eq!(rig.mark(4, json!({"mark": "wrong"})).await, Ok(()));
    for number in [5, 6] {
        rig.happened(number, -8 * DAY.as_millis() as i64, |_| {});
        rig.until(|rig| rig.shown(number)["picture"].is_string());
        assert_eq!(rig.mark(number, json!({"mark": "wrong"})).await, Ok(()));
    }
    // Five are beyond the limit: the oldest two go.
    rig.happened(7, -8 * DAY.as_millis() as i64, |_| {});
    rig.until(|rig| rig.shown(1).is_null() && rig.shown(3).is_null());
    assert!(!rig.shown(4).is_null());
}

#[tokio::test]
async fn mask_removes_a_judged_picture_and_a_deletion_all() {
    let rig = Rig::new();
    let open = begun(1, NOW_MS);
    rig.event(&open, Some(&frame("gate", 1)));
    rig.until_stored(1);
    assert_eq!(rig.mark(1, json!({"mark": "wrong"})).await, Ok(()));
    let gate = CameraId::new("gate").unwrap();
    let now = frame("gate", 100).times.received;
    rig.history.mask(&gate, &[square(0.5)], now);
    rig.history.removed().await;
    // What came later was not judged.
    rig.event(&better(&open), Some(&frame("gate", 101)));
    rig.event(&ended(&open), None);
    rig.until(|rig| rig.shown(1)["end_ms"].is_number());
    let shown = rig.shown(1);
    assert_eq!(
        (&shown["mark"], &shown["picture"]),
        (&json!("wrong"), &Value::Null)
    );
    assert_eq!(rig.files(), [""; 0]);
    let all = HistorySelection {
        camera: Some("gate".into()),
        ..HistorySelection::default()
    };
    assert_eq!(rig.history.delete(all).await.unwrap().events, 1);
    assert_eq!(rig.history.status().totals.judged, 0);
}

#[tokio::test]
async fn drawn_alarms_have_pictures_and_wait_until_they_are_judged() {
    let rig = Rig::new();
    for number in 1..=8 {
        rig.happened(number, number as i64 * HOUR_MS, |_| {});
        rig.until_stored(number);
    }
    // One without a picture, and one of another series.
    rig.event(&begun(9, NOW_MS), None);
    let other = begun(10, NOW_MS);
    rig.history.event(&HistoryMessage {
        event: &other,
        words: "",
        series: "another",
        frame: Some(&frame("gate", 10)),
        objects: &[],
        is_near: false,
    });
    rig.until(|rig| rig.shown(10)["picture"].is_string());
    assert_eq!(rig.mark(1, json!({"mark": "wrong"})).await, Ok(()));
    let key = rig.key();
    let draw = async |wanted| rig.history.draw(key.clone(), wanted).await.unwrap();
    assert_eq!(draw(3).await, 3);
    assert_eq!(draw(3).await, 0);
    let queue = || rig.history.reader().judging_queue(&key).unwrap();
    let first = queue();
    assert_eq!((first.events.len(), first.waiting), (3, 3));
    let judged = first.events[0]
        .id
        .rsplit('-')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(rig.mark(judged, json!({"mark": "right"})).await, Ok(()));
    assert_eq!(draw(3).await, 1);
    // The rest: seven with pictures are not judged before, of which one is judged now.
    assert_eq!(draw(50).await, 3);
    assert_eq!(queue().waiting, 6);
    let alarms = rig.history.reader().alarms(&key).unwrap();
    let drawn = alarms.iter().filter(|alarm| alarm.is_drawn).count();
    assert_eq!((alarms.len(), drawn), (9, 8));
    let promise = || rig.history.reader().promise(&key).unwrap();
    assert_eq!(promise(), None);
    rig.history.promise(key.clone(), 90).await.unwrap();
    rig.history.promise(key.clone(), 80).await.unwrap();
    assert_eq!(promise(), Some(80));
}

#[test]
fn mark_is_read_and_written_with_the_same_keys() {
    let read = |mark: Value| serde_json::from_value::<EventMark>(mark);
    let objects = json!([[0.25, 0.5], [0.75, 1.0]]);
    let keys = json!({"mark": "corrected", "objects": objects, "all_found": true});
    let mark = read(keys.clone()).unwrap();
    assert!(matches!(&mark.verdict, Some(EventVerdict::Corrected(objects)) if objects.len() == 2));
    assert_eq!(json!(mark), keys);
    let taken_back = read(json!({"mark": "none", "objects": [], "all_found": true}));
    assert_eq!(taken_back.unwrap(), EventMark::default());
    let many = vec![[0.5, 0.5]; 51];
    for (wrong, why) in [
        (json!({"mark": "right", "objects": objects}), "only a mark"),
        (json!({"mark": "corrected"}), "0 places"),
        (json!({"mark": "corrected", "objects": many}), "51 places"),
        (
            json!({"mark": "corrected", "objects": [[0.1, 0.2], [0.1, 0.2, 0.3, 0.4]]}),
            "together",
        ),
        (
            json!({"mark": "corrected", "objects": [[0.1, 0.2], [0.1, 1.2]]}),
            "objects[1]",
        ),
        (
            json!({"mark": "corrected", "objects": [[0.3, 0.2, 0.1, 0.4]]}),
            "objects[0]",
        ),
        (
            json!({"mark": "corrected", "objects": [[0.3]]}),
            "objects[0]",
        ),
        (json!({"mark": "good"}), "unknown variant"),
        (json!({"mark": "right", "found": true}), "unknown field"),
        (json!({}), "missing field"),
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
