//! What people say of events.

use super::*;
use crate::{
    HistoryMessage, JudgingError, SeriesKey, StoredAlarm, StoredPromise, marks::JudgingChange,
};
use rusqlite::{Transaction, params};
use spotter_core::{EventMark, EventVerdict, MarkOrder};
use spotter_quality::Judgement;

const DAY: Duration = Duration::from_hours(24);

fn order(number: u64, mark: Value) -> MarkOrder {
    let gate = CameraId::new("gate").unwrap();
    MarkOrder {
        event: TrackId::new("b7c1", &gate, number),
        mark: serde_json::from_value(mark).unwrap(),
        picture: None,
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
    assert!(totals.unjudged() == 0 && totals.judged > JPEG_BYTES as u64);
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
        judged.unjudged() == 0 && judged.judged >= totals.judged,
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
async fn mark_of_an_earlier_picture_is_refused() {
    let rig = Rig::new();
    let open = begun(1, NOW_MS);
    rig.event(&open, Some(&frame("gate", 1)));
    rig.until_stored(1);
    rig.event(&better(&open), Some(&frame("gate", 2)));
    rig.until(|rig| rig.files() == ["b7c1-gate-1.2.jpg"]);
    let mark = async |picture| {
        let order = order(1, json!({"mark": "wrong"}));
        let picture = Some(picture);
        rig.history.mark(MarkOrder { picture, ..order }).await
    };
    assert_eq!(mark(1).await, Err(JudgingError::OtherPicture));
    assert_eq!(rig.shown(1)["mark"], Value::Null);
    assert_eq!(mark(2).await, Ok(()));
    assert_eq!(rig.shown(1)["mark"], "wrong");
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
    for mark in ["right", "none", "wrong"] {
        assert_eq!(rig.mark(1, json!({"mark": mark})).await, Ok(()));
    }
    let gate = CameraId::new("gate").unwrap();
    let now = frame("gate", 100).times.received;
    rig.until_totals_fit();
    rig.history.mask(&gate, &[square(0.5)], now);
    rig.history.removed().await;
    rig.until_totals_fit();
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
    // One without a picture, one that goes on, and one of another series.
    rig.event(&begun(9, NOW_MS), None);
    rig.event(&begun(11, NOW_MS), Some(&frame("gate", 11)));
    rig.until(|rig| rig.shown(11)["picture"].is_string());
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
    let waiting = || rig.history.reader().series(&key).unwrap().waiting;
    let first = queue();
    assert_eq!((first.len(), waiting()), (3, 3));
    let judged = first[0].id.rsplit('-').next().unwrap().parse().unwrap();
    assert_eq!(rig.mark(judged, json!({"mark": "right"})).await, Ok(()));
    assert_eq!(draw(3).await, 1);
    // The rest: seven with pictures are not judged before, of which one is judged now.
    assert_eq!(draw(50).await, 3);
    assert_eq!((queue().len(), waiting()), (6, 6));
    let alarms = rig.history.reader().series(&key).unwrap().alarms;
    let drawn = alarms.iter().filter(|alarm| alarm.is_drawn).count();
    assert_eq!((alarms.len(), drawn), (10, 8));
    let promise = || rig.history.reader().series(&key).unwrap().promise;
    assert_eq!(promise(), None);
    rig.history.promise(key.clone(), 90).await.unwrap();
    rig.history.promise(key.clone(), 80).await.unwrap();
    let since_ms = NOW_MS;
    let percent = 80;
    assert_eq!(promise(), Some(StoredPromise { percent, since_ms }));
}

/// A day with ten alarms, of which the first two are wrong; a person marks one of these at once. Events without a mark are kept for a week.
fn day_with_alarms(transaction: &Transaction<'_>, day: i64) -> rusqlite::Result<()> {
    let mut alarm = transaction.prepare(
        "INSERT INTO history (id, place, camera, prompt, revision, words, series, start_ms, end_ms, last_seen_ms, score, top_score, location, width, height,
             zones, looks, picture, picture_bytes, bytes, written, mark)
         VALUES (?1, 0, 'gate', 'person', 1, '', '5e71e5', ?2, ?2, ?2, 0.5, 0.5, ?3, 9, 9, '', 9, 1, 9, 9, 9, ?4)",
    )?;
    for number in 0..10 {
        let at_ms = day * DAY.as_millis() as i64 + number * HOUR_MS;
        let mark = (number == 0).then_some("wrong");
        let left = 0.09 * number as f64;
        let place = json!([left, 0.1, left + 0.08, 0.2]).to_string();
        let id = format!("b7c1-gate-{}", 10 * day + number);
        alarm.execute(params![id, at_ms, place, mark])?;
    }
    let old_ms = (day - 7) * DAY.as_millis() as i64;
    let sql = "DELETE FROM history WHERE mark IS NULL AND last_seen_ms < ?1";
    transaction.execute(sql, [old_ms]).map(drop)
}

#[test]
fn drawn_share_stays_true_though_marked_events_outlive_others() {
    let rig = Rig::new();
    let (key, draw) = (rig.key(), JudgingChange::Draw(rig.key(), 20));
    let judge = "UPDATE history SET mark = iif(number % 10 IN (1, 2), 'wrong', 'right') WHERE drawn_ms IS NOT NULL AND mark IS NULL";
    let months = rig.store.execute(move |transaction| {
        for day in 0..180 {
            day_with_alarms(transaction, day)?;
            // As few people do: once a month.
            if day % 30 == 29 {
                let drawn = draw.execute(transaction, day)?;
                assert_eq!(drawn, Ok(20));
                transaction.execute(judge, [])?;
            }
        }
        Ok(())
    });
    months.unwrap();
    let alarms = rig.history.reader().series(&key).unwrap().alarms;
    let drawn = Vec::from_iter(alarms.iter().filter(|alarm| alarm.is_drawn));
    let right = drawn
        .iter()
        .filter(|alarm| alarm.judgement == Some(Judgement::Right));
    let share = right.count() as f64 / drawn.len() as f64;
    // 80 of 100 are right; four standard deviations.
    assert!(drawn.len() >= 120 && (share - 0.8).abs() < 0.14, "{share}");
}

#[tokio::test]
async fn count_begins_after_marks_that_were_removed() {
    let rig = Rig::with(4 * JPEG_BYTES as u64, 0);
    let mark = async |number| rig.mark(number, json!({"mark": "wrong"})).await;
    let numbers = |alarms: &[StoredAlarm]| {
        let places = alarms.iter().map(|alarm| alarm.place.at.unix_millis());
        Vec::from_iter(places.map(|at_ms| (NOW_MS - at_ms) / HOUR_MS))
    };
    // Nine hours ago and later; a person marks wrong ones alone.
    for number in [9, 8, 7, 6, 5] {
        rig.happened(number, number as i64 * HOUR_MS, |_| {});
        rig.until(|rig| rig.shown(number)["picture"].is_string());
        if number % 2 == 1 {
            assert_eq!(mark(number).await, Ok(()));
        }
    }
    let key = rig.key();
    assert_eq!(rig.history.draw(key.clone(), 5).await, Ok(2));
    let series = || rig.history.reader().series(&key).unwrap();
    assert_eq!(
        (numbers(&series().alarms), series().waiting),
        (vec![9, 8, 7, 6, 5], 2)
    );
    // Room for three marks with their pictures: those of nine and seven hours ago go.
    for number in [3, 2] {
        rig.happened(number, number as i64 * HOUR_MS, |_| {});
        rig.until(|rig| rig.shown(number)["picture"].is_string());
        assert_eq!(mark(number).await, Ok(()));
    }
    rig.happened(1, HOUR_MS, |_| {});
    rig.until(|rig| rig.shown(7).is_null() && rig.shown(1)["picture"].is_string());
    assert!(rig.shown(8)["drawn"] == true);
    assert_eq!(
        (numbers(&series().alarms), series().waiting),
        (vec![6, 5, 3, 2, 1], 1)
    );
    let asked = rig.history.reader().judging_queue(&key).unwrap();
    assert_eq!(asked[0].id, "b7c1-gate-6");
    // A promise changes nothing of it.
    rig.history.promise(key.clone(), 90).await.unwrap();
    assert_eq!(series().alarms.len(), 5);
}

#[tokio::test]
async fn corrected_alarm_is_right_where_its_box_overlaps() {
    let rig = Rig::new();
    rig.happened(1, HOUR_MS, |_| {});
    rig.until_stored(1);
    // Its box is from 0.05 to 0.1, at the upper edge.
    for (left, judgement) in [(0.06, Judgement::Right), (0.08, Judgement::Wrong)] {
        let objects = json!([[left, 0.0, left + 0.05, 0.05], [0.5, 0.5, 0.75, 1.0]]);
        let mark = json!({"mark": "corrected", "objects": objects});
        assert_eq!(rig.mark(1, mark).await, Ok(()));
        let alarms = rig.history.reader().series(&rig.key()).unwrap().alarms;
        assert_eq!(alarms[0].judgement, Some(judgement), "{left}");
    }
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
