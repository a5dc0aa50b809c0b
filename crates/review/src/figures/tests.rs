//! Visitors and things that look like some, their history, and a second run with a higher `min_score`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;
use serde_json::{Value, json};
use spotter_config::{CameraConfig, testing, with_shapes};
use spotter_core::{
    CameraShapes, Clock, Event, EventMark, EventStep, EventVerdict, ManualClock, MarkOrder,
    NormBox, TrackId,
    testing::{frame_at, share},
};
use spotter_events::track::Tracker;
use spotter_history::{History, HistoryMessage};
use spotter_quality::AnsweringModel;
use tempfile::TempDir;

use super::*;
use crate::testing::{CameraVisitor, LOOKS, SlowClock, VISIT, after, run, week_of_history};

const VISITORS: usize = 60;
/// Every third visitor is no person, and has lower scores.
fn is_right(number: usize) -> bool {
    !number.is_multiple_of(3)
}

fn visitors() -> Vec<CameraVisitor> {
    let mut random = Pcg32::seed_from_u64(7);
    let visitor = |number: usize| {
        // At places that no other one has, so that none repeats another.
        let (x0, y0) = ((number % 10) as f64 * 0.09, (number / 10) as f64 * 0.12);
        let scores = if is_right(number) {
            0.5..0.95
        } else {
            0.35..0.6
        };
        CameraVisitor {
            place: NormBox::from_corners(x0, y0, x0 + 0.1, y0 + 0.25),
            scores: [(); LOOKS].map(|()| random.random_range(scores.clone())),
        }
    };
    (0..VISITORS).map(visitor).collect()
}

fn camera(min_score: f64) -> CameraConfig {
    let mut person = testing::prompt("person");
    person.min_score = share(min_score);
    testing::camera("gate", vec![person])
}

fn model() -> AnsweringModel {
    let [name, precision] = ["a model", "f32"].map(Arc::from);
    AnsweringModel { name, precision }
}

/// The number of each event's visitor, with its track.
fn begun(events: &[Event]) -> BTreeMap<usize, TrackId> {
    let first = frame_at(&events[0].camera, Duration::ZERO);
    let number = |event: &Event| {
        let since_s = event.started.seconds_since(first.times.received_wall);
        (since_s / VISIT.as_secs_f64()) as usize
    };
    let begun = events.iter().filter(|event| event.step == EventStep::New);
    begun
        .map(|event| (number(event), event.track.clone()))
        .collect()
}

/// A history in which all alarms are drawn and judged.
async fn judged_history(folder: &TempDir) -> (History, BTreeMap<usize, TrackId>) {
    let (camera, visitors, model) = (camera(0.3), visitors(), model());
    let history = week_of_history(folder, after(VISITORS, &camera.id));
    let mut tracker = Tracker::recording("b7c1".into(), std::slice::from_ref(&camera));
    let events = run(&mut tracker, &camera, &visitors);
    let judged = JudgedPrompt::all_of(&camera, &model).next().unwrap();
    let key = judged.key();
    // One frame for all, so that it waits once.
    let frame = frame_at(&camera.id, Duration::ZERO);
    for event in &events {
        history.event(&HistoryMessage {
            is_near: false,
            event,
            words: "person",
            series: &key.series,
            frame: Some(&frame),
            objects: &[],
        });
    }
    history.records(tracker.take_records());
    let tracks = begun(&events);
    let is_stored = |alarm: &StoredAlarm| alarm.has_picture && alarm.record_ms.is_some();
    loop {
        let alarms = history.reader().series(&key).unwrap().alarms;
        if alarms.len() == tracks.len() && alarms.iter().all(is_stored) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(history.draw(key, VISITORS).await, Ok(tracks.len()));
    for (number, event) in &tracks {
        let verdict = match is_right(*number) {
            true => EventVerdict::Right,
            false => EventVerdict::Wrong,
        };
        let mark = EventMark {
            verdict: Some(verdict),
            all_found: false,
        };
        let event = event.clone();
        let picture = None;
        let order = MarkOrder {
            event,
            mark,
            picture,
        };
        history.mark(order).await.unwrap();
    }
    (history, tracks)
}

#[tokio::test]
async fn replayed_min_score_gives_the_alarms_of_a_second_run() {
    let folder = tempfile::tempdir().unwrap();
    let (history, tracks) = judged_history(&folder).await;
    let (now, model) = (camera(0.3), model());
    let judged = JudgedPrompt::all_of(&now, &model).next().unwrap();
    let alarms = history.reader().series(&judged.key()).unwrap().alarms;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(alarms[0].place.at));
    let replays = MinScoreReplays::new(clock);
    let replayed = replays
        .of(history.reader(), &judged, &Vec::from_iter(&alarms))
        .unwrap();
    assert!(replayed.is_finished);
    let count = replayed.sample.count_with_repeats(|_| true);
    assert_eq!(count.judged as usize, tracks.len());
    let mut fewer = 0;
    for replay in replayed.by_min_score {
        let higher = camera(replay.min_score);
        let mut tracker = Tracker::new("c0de".into(), std::slice::from_ref(&higher));
        let events = run(&mut tracker, &higher, &visitors());
        let expected = match events.is_empty() {
            true => BTreeMap::new(),
            false => begun(&events),
        };
        let comes = alarms
            .iter()
            .zip(&replay.comes)
            .filter(|(_, comes)| **comes);
        let comes = Vec::from_iter(comes.map(|(alarm, _)| &alarm.id));
        let expected = Vec::from_iter(expected.keys().map(|number| &tracks[number]));
        assert_eq!(comes, expected, "{}", replay.min_score);
        fewer += usize::from((1..tracks.len()).contains(&comes.len()));
    }
    assert!(fewer > 5, "{fewer}");
}

#[tokio::test]
async fn nothing_is_proposed_until_all_looks_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (history, tracks) = judged_history(&folder).await;
    let (camera, model) = (camera(0.3), model());
    let judged = JudgedPrompt::all_of(&camera, &model).next().unwrap();
    let clock = SlowClock(ManualClock::default(), Duration::from_millis(100));
    let replays = MinScoreReplays::new(Arc::new(clock));
    let shown = || json!(figures(history.reader(), &judged, &replays, 0).unwrap());
    // Some records a time.
    let is_proposed = |shown: &Value| shown["proposals"] != json!([]);
    let mut answers = (0..tracks.len()).map(|_| shown());
    let before = Vec::from_iter(answers.by_ref().take_while(|shown| !is_proposed(shown)));
    assert!(
        (5..tracks.len()).contains(&before.len()),
        "{}",
        before.len()
    );
    for shown in before {
        let sentences = shown["sentences"].to_string();
        assert!(sentences.contains("being replayed"), "{sentences}");
    }
}

#[tokio::test]
async fn record_that_takes_minutes_counts_for_the_share_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (history, tracks) = judged_history(&folder).await;
    let (camera, model) = (camera(0.3), model());
    let judged = JudgedPrompt::all_of(&camera, &model).next().unwrap();
    let clock = SlowClock(ManualClock::default(), Duration::from_secs(10));
    let replays = MinScoreReplays::new(Arc::new(clock));
    let shown = || json!(figures(history.reader(), &judged, &replays, 0).unwrap());
    let last = (1..tracks.len()).fold(shown(), |_, _| shown());
    assert_eq!(last["judged"], json!(tracks.len()));
    assert_eq!(last["proposals"], json!([]));
    let sentences = last["sentences"].to_string();
    assert!(!sentences.contains("being replayed"), "{sentences}");
}

#[tokio::test]
async fn other_zones_of_the_camera_begin_the_replays_again() {
    let folder = tempfile::tempdir().unwrap();
    let (history, tracks) = judged_history(&folder).await;
    let (camera, model) = (camera(0.3), model());
    let keys =
        "zone.left.polygon = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]\nprompt.person.zones = ['left']";
    let left = with_shapes(&camera, &CameraShapes(keys.parse().unwrap())).unwrap();
    let replays = MinScoreReplays::new(Arc::new(ManualClock::default()));
    let replayed = |camera: &CameraConfig| {
        let judged = JudgedPrompt::all_of(camera, &model).next().unwrap();
        let alarms = history.reader().series(&judged.key()).unwrap().alarms;
        let replayed = replays.of(history.reader(), &judged, &Vec::from_iter(&alarms));
        let sample = replayed.unwrap().sample;
        sample.count_with_repeats(|_| true).judged as usize
    };
    assert_eq!(replayed(&camera), tracks.len());
    assert!((1..tracks.len()).contains(&replayed(&left)));
    assert_eq!(replayed(&camera), tracks.len());
}

#[tokio::test]
async fn figures_propose_a_min_score_and_compare_its_promise() {
    let folder = tempfile::tempdir().unwrap();
    let (history, tracks) = judged_history(&folder).await;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let (replays, model) = (MinScoreReplays::new(clock), model());
    let shown = |camera: &CameraConfig| {
        let judged = JudgedPrompt::all_of(camera, &model).next().unwrap();
        json!(figures(history.reader(), &judged, &replays, 0).unwrap())
    };
    let shown_now = shown(&camera(0.3));
    let count = tracks.len() as u64;
    assert_eq!(
        (&shown_now["drawn"], &shown_now["judged"]),
        (&json!(count), &json!(count))
    );
    let best = &shown_now["proposals"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(best["target_percent"], 90, "{shown_now}");
    let (right, wrong) = (&best["right_lost"], &best["wrong_lost"]);
    let lost = format!(
        "Of the {count} judged alarms, {right} right and {wrong} wrong ones would not have come."
    );
    let sentences = shown_now["sentences"].as_array().unwrap();
    let says = |text: &str| {
        sentences
            .iter()
            .any(|said| said.as_str().unwrap().contains(text))
    };
    assert!(says(&lost) && says("drawn by chance"), "{sentences:?}");
    let present = camera(0.3);
    let judged = JudgedPrompt::all_of(&present, &model).next().unwrap();
    let all = figures(history.reader(), &judged, &replays, 0).unwrap();
    let min_score = best["min_score"].as_f64().unwrap();
    assert!(all.proposes(90, min_score) && !all.proposes(90, min_score + 0.05));
    // It is taken.
    let taken = camera(best["min_score"].as_f64().unwrap());
    let judged = JudgedPrompt::all_of(&taken, &model).next().unwrap();
    history.promise(judged.key(), 90).await.unwrap();
    let then = shown(&taken);
    assert_eq!(
        then["sentences"][0],
        "Promised: at least 90. None judged since then."
    );
    assert_eq!((&then["alarms"], &then["share"]), (&json!(0), &Value::Null));
    // A promise says nothing of the alarms before it.
    let key = JudgedPrompt::all_of(&camera(0.3), &model)
        .next()
        .unwrap()
        .key();
    history.promise(key, 80).await.unwrap();
    let since = &shown(&camera(0.3))["sentences"][0];
    assert_eq!(since, "Promised: at least 80. None judged since then.");
    let quality = quality(
        history.reader(),
        &JudgedPrompt::all_of(&camera(0.3), &model).next().unwrap(),
    );
    let quality = json!(quality.unwrap());
    assert_eq!(quality["unmarked"], 0);
    assert_eq!(
        quality["right"].as_u64().unwrap() + quality["wrong"].as_u64().unwrap(),
        count
    );
}

#[test]
fn days_are_those_of_the_time_zone() {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let text = |first: &str, last: &str| {
        let ms = |time: &str| time.parse::<Timestamp>().unwrap().as_millisecond();
        days_text(ms(first), ms(last), &zone)
    };
    for (first, last, expected) in [
        ("2026-11-03T12:00Z", "2026-11-24T12:00Z", "3–24 November"),
        // Half past midnight in Berlin.
        ("2026-11-02T23:30Z", "2026-11-03T12:00Z", "3 November"),
        (
            "2026-10-28T12:00Z",
            "2026-11-03T12:00Z",
            "28 October – 3 November",
        ),
        (
            "2026-12-28T12:00Z",
            "2026-12-31T23:30Z",
            "28 December 2026 – 1 January 2027",
        ),
    ] {
        assert_eq!(text(first, last), expected);
    }
}
