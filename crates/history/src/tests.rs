//! The whole way: events to files, and back through queries.

mod marks;
mod measurement;
mod records;

use std::{fs, path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use spotter_core::{
    CameraId, Clock, EndReason, Event, EventStep, Frame, Location, ManualClock, NormBox, Picture,
    PromptId, TrackId, TrackedObject, UpdateReason, WallTime, ZoneId,
    testing::{event, frame_at},
};
use spotter_pictures::{RgbPixels, jpeg_photo};
use spotter_state::StateStore;
use tempfile::TempDir;

use crate::{
    DeletedBeside, History, HistoryFilter, HistoryMessage, HistoryReader, HistorySelection,
    PictureLinks, SeriesKey, delete_beside, export, limits::HistoryLimits, recorded::WriterParts,
    testing::message, writer,
};

const NOW_MS: i64 = 1_787_393_730_000;
const HOUR_MS: i64 = 3_600_000;
const JPEG_BYTES: usize = 20_000;

/// The history of a daemon.
struct Rig {
    folder: TempDir,
    clock: Arc<ManualClock>,
    store: StateStore,
    history: History,
}

fn limits(size: u64) -> HistoryLimits {
    HistoryLimits {
        keep_ms: 24 * 7 * HOUR_MS,
        size,
        judged: size,
        near: 2,
    }
}

fn parts(size: u64, free_min_bytes: u64, clock: &Arc<ManualClock>) -> WriterParts {
    WriterParts {
        limits: limits(size),
        free_min_bytes,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
    }
}

/// The first pixel in each byte, so that a test knows the frame.
fn encode(picture: &Picture) -> anyhow::Result<Vec<u8>> {
    Ok(vec![picture.row(0, 0)[0]; JPEG_BYTES])
}

impl Rig {
    fn new() -> Self {
        Self::with(1 << 30, 0)
    }

    fn with(size: u64, free_min_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(WallTime::from_unix_millis(NOW_MS)));
        let parts = parts(size, free_min_bytes, &clock);
        Self::in_folder(folder, clock, parts)
    }

    fn in_folder(folder: TempDir, clock: Arc<ManualClock>, parts: WriterParts) -> Self {
        let store = StateStore::open(folder.path(), clock.clone()).unwrap();
        let history = History::start_with(&store, parts, encode).unwrap();
        Self {
            folder,
            clock,
            store,
            history,
        }
    }

    /// Ends the process in order, and begins another one in its directory.
    async fn restart(self, size: u64) -> Self {
        let Self {
            folder,
            clock,
            store,
            history,
        } = self;
        history.close().await;
        store.close().await;
        let parts = parts(size, 0, &clock);
        Self::in_folder(folder, clock, parts)
    }

    /// An event with a picture that began so long ago.
    fn happened(&self, number: u64, ago_ms: i64, change: impl FnOnce(&mut Event)) -> TrackId {
        let mut begun = begun(number, NOW_MS - ago_ms);
        change(&mut begun);
        // One frame of each camera, so that it waits once.
        let frame = frame(begun.camera.as_str(), 1);
        self.history
            .event(&message(&begun, "a red car", Some(&frame)));
        let ended = ended(&begun);
        self.history.event(&message(&ended, "a red car", None));
        begun.track
    }

    /// Waits until this is so.
    fn until(&self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if is_so(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?} {:?}", self.history.status(), ids(&self.list("")));
    }

    fn until_stored(&self, events: u64) {
        self.until(|rig| {
            let listed = rig.list("limit=500");
            let has_picture = |event: &Value| event["picture"].is_string();
            let listed = listed["events"].as_array().unwrap();
            rig.history.status().totals.events == events && listed.iter().all(has_picture)
        });
    }

    fn list(&self, query: &str) -> Value {
        list(self.history.reader(), query)
    }

    /// Waits until the totals in memory are those of the rows.
    fn until_totals_fit(&self) {
        self.until(|rig| {
            let known = rig.history.status().totals;
            rig.store.execute(|it| writer::totals(it)).unwrap() == known
        });
    }

    fn files(&self) -> Vec<String> {
        files(self.folder.path())
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("history")).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn list(reader: &HistoryReader, query: &str) -> Value {
    let filter = HistoryFilter::read(query).unwrap();
    let page = reader.list(&filter, PictureLinks::Page, NOW_MS).unwrap();
    serde_json::to_value(page).unwrap()
}

fn ids(page: &Value) -> Vec<String> {
    let events = page["events"].as_array().unwrap();
    events
        .iter()
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect()
}

/// At a place that no other number has.
fn begun(number: u64, start_ms: i64) -> Event {
    let (x, y) = (
        (number % 20) as f64 / 20.0,
        (number / 20 % 20) as f64 / 20.0,
    );
    Event {
        started: WallTime::from_unix_millis(start_ms),
        last_seen: WallTime::from_unix_millis(start_ms + 100),
        location: Location::Box(NormBox::from_corners(x, y, x + 0.05, y + 0.05)),
        ..event("gate", number, EventStep::New)
    }
}

fn ended(begun: &Event) -> Event {
    let over = WallTime::from_unix_millis(begun.started.unix_millis() + 5000);
    Event {
        step: EventStep::End(EndReason::Left),
        last_seen: over,
        ended: Some(over),
        ..begun.clone()
    }
}

/// The object of an event on a look, so long after the first one.
fn seen(event: &Event, age_ms: u64) -> TrackedObject {
    TrackedObject {
        location: event.location,
        score: event.score,
        score_source: event.score_source,
        sharpness: 1.0,
        track: event.track.clone(),
        age: Duration::from_millis(age_ms),
        zones: Vec::new(),
        dwell: Vec::new(),
        outline: None,
    }
}

/// At the upper left corner.
fn square(side: f64) -> Vec<(f64, f64)> {
    vec![(0.0, 0.0), (side, 0.0), (side, side), (0.0, side)]
}

fn frame(camera: &str, number: u64) -> Frame {
    let camera = CameraId::new(camera).unwrap();
    let picture = Picture::from_rgb(2, 2, vec![number as u8; 12]).unwrap();
    Frame {
        number,
        picture,
        ..frame_at(&camera, Duration::from_secs(number))
    }
}

fn bytes_with(folder: &Path, words: &[u8]) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let with_words = entries.filter(|entry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        bytes.windows(words.len()).any(|part| part == words)
    });
    with_words
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn stored_event_has_its_best_picture_times_zones_and_looks() {
    let rig = Rig::new();
    let mut event = begun(1, NOW_MS);
    rig.history
        .event(&message(&event, "a red car", Some(&frame("gate", 7))));
    rig.history.looks(&[seen(&event, 0), seen(&event, 400)]);
    rig.until_stored(1);
    let open = &rig.list("")["events"][0];
    assert_eq!(
        (&open["end_ms"], &open["picture"]),
        (&Value::Null, &json!("events/b7c1-gate-1.jpg?v=1"))
    );
    // A better look, whose place the row gets with its picture; a worse one in another zone.
    event.step = EventStep::Update(UpdateReason::Better);
    event.location = Location::Box(NormBox::from_corners(0.5, 0.5, 0.75, 0.75));
    (event.score, event.top_score, event.looks) = (0.9, 0.9, 2);
    rig.history
        .event(&message(&event, "", Some(&frame("gate", 8))));
    event.step = EventStep::Update(UpdateReason::Described);
    event.entered_zones = vec![ZoneId::new("drive").unwrap(), ZoneId::new("yard").unwrap()];
    event.description = Some("It waves.".into());
    event.score = 0.4;
    rig.history
        .event(&message(&event, "", Some(&frame("gate", 9))));
    rig.history.looks(&[seen(&event, 900)]);
    rig.history.event(&message(&ended(&event), "", None));
    rig.until(|rig| rig.list("")["events"][0]["end_ms"].is_number());
    let id = "b7c1-gate-1";
    let stored = rig.history.reader().event(id, PictureLinks::Api).unwrap();
    assert_eq!(
        serde_json::to_value(stored).unwrap(),
        json!({
            "id": id, "camera": "gate", "prompt": "person", "words": "a red car", "start_ms": NOW_MS, "end_ms": NOW_MS + 5000,
            "score": 0.9, "top_score": 0.9, "box": [0.5, 0.5, 0.75, 0.75], "size": [2560, 1440], "zones": ["drive", "yard"],
            "description": "It waves.", "looks": 2, "picture": "/v1/events/b7c1-gate-1/picture?v=2", "mark": null, "repeats": 0,
            "near": false, "drawn": false, "objects": null, "all_found": false, "others": [],
            "seen": [
                {"ms": 0, "score": 0.83, "box": [0.05, 0.0, 0.1, 0.05]}, {"ms": 400, "score": 0.83, "box": [0.05, 0.0, 0.1, 0.05]},
                {"ms": 900, "score": 0.4, "box": [0.5, 0.5, 0.75, 0.75]},
            ],
        })
    );
    let has_run = |boot: &str| rig.history.reader().has_run(boot).unwrap();
    assert_eq!(
        ["b7c1", "b7c", "b7c10", "a000"].map(has_run),
        [true, false, false, false]
    );
    assert_eq!(rig.files(), ["b7c1-gate-1.2.jpg"]);
    let picture = rig.history.reader().picture(id).unwrap().unwrap();
    assert_eq!((picture.jpeg, picture.number), (vec![8; JPEG_BYTES], 2));
}

// Faults: S15.
#[tokio::test]
async fn killed_run_leaves_no_open_event_and_no_lone_file() {
    let rig = Rig::new();
    rig.history
        .event(&message(&begun(1, NOW_MS), "car", Some(&frame("gate", 1))));
    rig.happened(2, 0, |_| {});
    rig.until_stored(2);
    let folder = rig.folder.path().join("history");
    fs::write(folder.join("b7c1-gate-3.1.jpg"), "of no row").unwrap();
    fs::remove_file(folder.join("b7c1-gate-2.1.jpg")).unwrap();
    let rig = rig.restart(1 << 30).await;
    rig.until(|rig| rig.files() == ["b7c1-gate-1.1.jpg"]);
    rig.until(|rig| (20_000..30_000).contains(&rig.history.status().totals.unjudged()));
    let events = rig.list("")["events"].clone();
    let [second, first] = [&events[0], &events[1]];
    assert_eq!(
        (&first["end_ms"], &second["picture"]),
        (&json!(NOW_MS + 100), &Value::Null)
    );
}

#[test]
fn events_of_a_place_within_a_day_are_one_row() {
    let rig = Rig::new();
    let place = NormBox::from_corners(0.2, 0.2, 0.4, 0.4);
    let near = NormBox::from_corners(0.25, 0.2, 0.45, 0.4);
    for (number, ago_h, there) in [(1, 30, place), (2, 20, near), (3, 10, place), (4, 5, near)] {
        rig.happened(number, ago_h * HOUR_MS, |event| {
            event.location = Location::Box(there)
        });
    }
    rig.happened(5, HOUR_MS, |event| {
        event.location = Location::Box(place);
        event.prompt = PromptId::new("dog").unwrap();
    });
    rig.until_stored(5);
    let repeats = |query: &str| {
        let page = rig.list(query);
        let repeats = page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["repeats"].clone());
        ids(&page)
            .into_iter()
            .zip(repeats.collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let row = |number: u64, repeats: u64| (format!("b7c1-gate-{number}"), json!(repeats));
    // The fourth is more than a day after the first one there, and begins a place of its own.
    assert_eq!(repeats(""), [row(5, 0), row(4, 0), row(3, 2)]);
    let to_ms = NOW_MS - 15 * HOUR_MS;
    assert_eq!(repeats(&format!("to_ms={to_ms}")), [row(2, 1)]);
    assert_eq!(
        ids(&rig.list("of=b7c1-gate-3")),
        ["b7c1-gate-2", "b7c1-gate-1"]
    );
    let bars = &rig.list(&format!("from_ms={}&to_ms={NOW_MS}", NOW_MS - 48 * HOUR_MS))["bars"];
    let counted: Vec<_> = (0..24).filter(|bar| bars[bar] == 1).collect();
    assert_eq!(counted, [9, 14, 19, 21, 23]);
}

#[test]
fn list_is_filtered_searched_and_paged() {
    let rig = Rig::new();
    for number in 1..=9 {
        rig.happened(number, number as i64 * HOUR_MS, |event| {
            if number % 2 == 0 {
                event.camera = CameraId::new("yard").unwrap();
                event.track = TrackId::new("b7c1", &event.camera, number);
            }
            event.entered_zones =
                vec![ZoneId::new(if number < 4 { "drive" } else { "drive2" }).unwrap()];
            event.description = (number == 5).then(|| "Jemand trägt 100% ÄPFEL.".to_owned());
        });
    }
    rig.until_stored(9);
    let numbers = |query: &str| {
        let ids = ids(&rig.list(query)).into_iter();
        ids.map(|id| id.rsplit('-').next().unwrap().parse().unwrap())
            .collect::<Vec<u64>>()
    };
    assert_eq!(numbers(""), (1..=9).collect::<Vec<_>>());
    assert_eq!(numbers("camera=yard"), [2, 4, 6, 8]);
    assert_eq!(numbers("zone=drive"), [1, 2, 3]);
    assert_eq!(numbers("prompt=dog"), [0; 0]);
    assert_eq!(numbers("text=100%25+%C3%A4pfel"), [5]);
    assert_eq!(numbers("text=RED").len(), 9);
    assert_eq!(numbers("text=%25"), [5]);
    assert_eq!(numbers("mark=any"), [0; 0]);
    let (from, to) = (NOW_MS - 4 * HOUR_MS, NOW_MS - 2 * HOUR_MS);
    assert_eq!(numbers(&format!("from_ms={from}&to_ms={to}")), [3, 4]);
    let first = rig.list("limit=4&zone=drive2");
    let next = first["next"].as_str().unwrap();
    assert_eq!(ids(&first).len(), 4);
    let last = rig.list(&format!("limit=4&zone=drive2&before={next}"));
    assert_eq!(
        (ids(&last), &last["next"]),
        (
            vec!["b7c1-yard-8".into(), "b7c1-gate-9".into()].split_off(0),
            &Value::Null
        )
    );
}

#[tokio::test]
async fn deleted_events_leave_no_text_and_no_picture() {
    let rig = Rig::new();
    for number in 1..=4 {
        rig.happened(number, number as i64 * HOUR_MS, |event| {
            event.description = Some("a secret garden".into())
        });
    }
    let open = begun(5, NOW_MS);
    rig.history
        .event(&message(&open, "a secret garden", Some(&frame("gate", 5))));
    rig.until_stored(5);
    let words = b"secret garden";
    assert!(!bytes_with(rig.folder.path(), words).is_empty());
    let delete = async |selection| rig.history.delete(selection).await.unwrap().events;
    let one = HistorySelection {
        id: Some("b7c1-gate-2".into()),
        ..HistorySelection::default()
    };
    assert_eq!(delete(one.clone()).await, 1);
    assert_eq!(delete(one).await, 0);
    let range = HistorySelection {
        from_ms: Some(NOW_MS - 3 * HOUR_MS),
        to_ms: Some(NOW_MS - HOUR_MS),
        ..HistorySelection::default()
    };
    assert_eq!(delete(range).await, 1);
    let camera = HistorySelection {
        camera: Some("gate".into()),
        ..HistorySelection::default()
    };
    assert_eq!(delete(camera).await, 3);
    // It goes on, and is not stored again.
    rig.history.event(&message(
        &ended(&open),
        "a secret garden",
        Some(&frame("gate", 6)),
    ));
    rig.happened(6, 0, |_| {});
    rig.until_stored(1);
    assert_eq!(ids(&rig.list("")), ["b7c1-gate-6"]);
    assert_eq!(rig.files(), ["b7c1-gate-6.1.jpg"]);
    assert_eq!(bytes_with(rig.folder.path(), words), [""; 0]);
}

#[test]
fn empty_selection_is_refused() {
    let refused = |text: &str| {
        let selection: HistorySelection = serde_json::from_str(text).unwrap();
        selection.check().err().unwrap_or_default()
    };
    for whole in [
        r#"{"id": "b7c1-gate-1"}"#,
        r#"{"camera": "gate", "from_ms": 1}"#,
        r#"{"from_ms": 1, "to_ms": 2}"#,
    ] {
        assert_eq!(refused(whole), "");
    }
    assert!(refused("{}").starts_with("name an id, a camera, or"));
    for empty in [r#"{"camera": ""}"#, r#"{"id": "", "camera": "gate"}"#] {
        assert!(refused(empty).contains("is empty; leave it out"));
    }
    let no_time = refused(r#"{"camera": "gate", "from_ms": 2, "to_ms": 2}"#);
    assert!(no_time.contains("its end must be later"), "{no_time}");
}

#[tokio::test]
async fn larger_mask_removes_the_stored_pictures_of_its_camera() {
    let rig = Rig::new();
    let open = begun(1, NOW_MS);
    rig.history
        .event(&message(&open, "car", Some(&frame("gate", 1))));
    rig.happened(2, HOUR_MS, |event| {
        event.camera = CameraId::new("yard").unwrap();
        event.track = TrackId::new("b7c1", &event.camera, 2);
    });
    rig.until_stored(2);
    let gate = CameraId::new("gate").unwrap();
    let now = frame("gate", 100).times.received;
    let picture = |id| rig.history.reader().picture(id).unwrap();
    rig.history.mask(&gate, &[square(0.5)], now);
    assert!(picture("b7c1-gate-1").is_none() && picture("b7c1-yard-2").is_some());
    rig.history.removed().await;
    assert_eq!(rig.files(), ["b7c1-yard-2.1.jpg"]);
    // A look that was under way has a frame from before.
    for number in [99, 100] {
        let mut better = open.clone();
        better.step = EventStep::Update(UpdateReason::Better);
        rig.history
            .event(&message(&better, "", Some(&frame("gate", number))));
    }
    rig.until(|rig| rig.files() == ["b7c1-gate-1.2.jpg", "b7c1-yard-2.1.jpg"]);
    rig.until_stored(2);
    assert_eq!(picture("b7c1-gate-1").unwrap().jpeg[0], 100);
    assert_eq!(rig.history.status().pictures_dropped, 1);
}

// Faults: S16.
#[tokio::test]
async fn mask_that_grew_while_stopped_removes_the_stored_pictures() {
    let mut rig = Rig::new();
    let gate = CameraId::new("gate").unwrap();
    let steps = [
        (vec![], true),
        (vec![square(0.5)], false),
        (vec![square(0.5)], true),
        // Later pictures show what a smaller one leaves.
        (vec![square(0.2)], true),
        (vec![square(0.5)], false),
        (vec![square(0.5), square(0.4)], true),
    ];
    for (number, (areas, stays)) in (1..).zip(steps) {
        let before = rig.files();
        rig = rig.restart(1 << 30).await;
        let now = frame("gate", 0).times.received;
        rig.history.mask(&gate, &areas, now);
        rig.history.removed().await;
        let expected = if stays { before } else { Vec::new() };
        assert_eq!(rig.files(), expected, "{areas:?}");
        rig.happened(number, 0, |_| {});
        let name = format!("b7c1-gate-{number}.1.jpg");
        rig.until(|rig| rig.files().contains(&name));
    }
}

#[test]
fn another_process_deletes_beside_the_daemon() {
    let rig = Rig::new();
    let open = begun(1, NOW_MS);
    rig.history
        .event(&message(&open, "a secret garden", Some(&frame("gate", 1))));
    for number in 2..=4 {
        rig.happened(number, HOUR_MS, |_| {});
    }
    rig.until_stored(4);
    let selection = HistorySelection {
        from_ms: Some(NOW_MS),
        ..HistorySelection::default()
    };
    let delete = || {
        let deleted = delete_beside(rig.folder.path(), &selection, NOW_MS).unwrap();
        let DeletedBeside { events, left } = deleted.unwrap();
        (events.events, events.pictures, left)
    };
    assert_eq!(delete(), (1, 1, None));
    assert_eq!(bytes_with(rig.folder.path(), b"secret garden"), [""; 0]);
    // The daemon finds that the row is gone, and removes the picture that came meanwhile.
    let better = Event {
        step: EventStep::Update(UpdateReason::Better),
        ..open.clone()
    };
    rig.history
        .event(&message(&better, "", Some(&frame("gate", 2))));
    rig.happened(5, 0, |_| {});
    rig.until(|rig| ids(&rig.list("")).len() == 4);
    rig.until(|rig| rig.files().len() == 4);
    assert!(
        rig.files()
            .iter()
            .all(|name| !name.starts_with("b7c1-gate-1."))
    );
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(
        delete_beside(nothing.path(), &selection, NOW_MS).unwrap(),
        None
    );
}

// Faults: S17.
#[tokio::test]
async fn deletion_beside_a_reader_cuts_the_log_later() {
    let rig = Rig::new();
    for number in 1..=2 {
        rig.happened(number, HOUR_MS, |event| {
            event.description = Some("a secret garden".into())
        });
    }
    rig.until_stored(2);
    let reader = spotter_state::open_reader(rig.folder.path())
        .unwrap()
        .unwrap();
    let reading = reader.unchecked_transaction().unwrap();
    let count = || -> u32 {
        let sql = "SELECT count(*) FROM history";
        reading.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(), 2);
    let one = |number: u64| HistorySelection {
        id: Some(format!("b7c1-gate-{number}")),
        ..HistorySelection::default()
    };
    let deleted = delete_beside(rig.folder.path(), &one(1), NOW_MS)
        .unwrap()
        .unwrap();
    let left = deleted.left.unwrap();
    assert!(left.contains("run the command again then"), "{left}");
    assert_eq!(rig.files(), ["b7c1-gate-2.1.jpg"]);
    let error = rig.history.delete(one(2)).await.unwrap_err();
    assert!(error.contains("deleted, but another program"), "{error}");
    assert_eq!((rig.files().len(), count()), (0, 2));
    assert!(!bytes_with(rig.folder.path(), b"secret garden").is_empty());
    drop(reading);
    drop(reader);
    // Without an event, at the look of a minute: a mask of another camera begins a turn.
    rig.clock.advance(Duration::from_secs(61));
    let yard = CameraId::new("yard").unwrap();
    rig.history.mask(&yard, &[square(0.5)], rig.clock.now());
    rig.until(|rig| bytes_with(rig.folder.path(), b"secret garden").is_empty());
}

// Faults: S18.
#[tokio::test]
async fn picture_that_cannot_be_removed_is_reported_and_tried_again() {
    let rig = Rig::new();
    let gate = CameraId::new("gate").unwrap();
    for number in 1..=2 {
        rig.happened(number, HOUR_MS, |_| {});
    }
    rig.until_stored(2);
    // A folder in the place of a file cannot be unlinked.
    let path = |number: u64| {
        rig.folder
            .path()
            .join(format!("history/b7c1-gate-{number}.1.jpg"))
    };
    for number in 1..=2 {
        fs::remove_file(path(number)).unwrap();
        fs::create_dir(path(number)).unwrap();
    }
    let one = HistorySelection {
        id: Some("b7c1-gate-1".into()),
        ..HistorySelection::default()
    };
    let error = rig.history.delete(one).await.unwrap_err();
    assert!(error.contains("deleted, but 1 of its pictures"), "{error}");
    rig.history.mask(&gate, &[square(0.5)], rig.clock.now());
    rig.until(|rig| rig.history.status().pictures_left == 2);
    assert!(rig.history.is_removing());
    rig.clock.advance(Duration::from_secs(61));
    fs::remove_dir(path(1)).unwrap();
    fs::remove_dir(path(2)).unwrap();
    rig.history.removed().await;
    rig.until(|rig| rig.history.status().pictures_left == 0);
}

// Faults: S13.
#[test]
fn oldest_events_make_room_under_load() {
    let rig = Rig::with(10 * (JPEG_BYTES as u64 + 1000), 0);
    for number in 1..=60 {
        rig.happened(number, HOUR_MS - number as i64 * 1000, |event| {
            event.camera = CameraId::new(&format!("cam{number}")).unwrap();
            event.track = TrackId::new("b7c1", &event.camera, number);
        });
        // The encoder has room for 32 frames. Rows that come while room is made count when room is made next.
        rig.until(|rig| {
            let status = rig.history.status();
            assert!(
                status.totals.unjudged() <= 10 * (JPEG_BYTES as u64 + 1000) + 20_000,
                "{status:?}"
            );
            number % 20 > 0
                || rig
                    .files()
                    .iter()
                    .any(|name| name.starts_with(&format!("b7c1-cam{number}-")))
        });
    }
    rig.until(|rig| {
        let listed = rig.list("");
        listed["events"][0]["picture"].is_string() && listed["reach"]["limit"] == "size"
    });
    assert_eq!(ids(&rig.list(""))[0], "b7c1-cam60-60");
    assert!((5..=10).contains(&rig.files().len()), "{:?}", rig.files());
}

#[test]
fn events_that_are_too_old_are_removed_each_minute() {
    let rig = Rig::new();
    rig.happened(1, 6 * 24 * HOUR_MS, |_| {});
    rig.happened(2, HOUR_MS, |_| {});
    rig.until_stored(2);
    assert_eq!(rig.list("")["reach"]["limit"], "start");
    rig.clock.advance(Duration::from_hours(25));
    rig.happened(3, 0, |_| {});
    rig.until(|rig| ids(&rig.list("")) == ["b7c1-gate-3", "b7c1-gate-2"]);
    rig.until(|rig| rig.files() == ["b7c1-gate-2.1.jpg", "b7c1-gate-3.1.jpg"]);
}

// Faults: S14.
#[test]
fn full_disk_stops_pictures_and_no_events() {
    let rig = Rig::new();
    rig.happened(1, 2000, |_| {});
    rig.until_stored(1);
    // A folder in the way of the next file, as a disk that cannot be written.
    let way = rig.folder.path().join("history/b7c1-gate-2.1.jpg");
    fs::create_dir(&way).unwrap();
    rig.happened(2, 1000, |_| {});
    rig.until(|rig| rig.history.status().pictures_stopped.is_some());
    rig.happened(3, 0, |_| {});
    rig.until(|rig| rig.history.status().pictures_dropped == 2);
    rig.until(|rig| ids(&rig.list("")).len() == 3);
    let reach = &rig.list("")["reach"];
    let why = reach["pictures_stopped"].as_str().unwrap();
    assert!(why.starts_with("cannot write to "), "{why}");
    rig.clock.advance(Duration::from_secs(11));
    rig.happened(4, 0, |_| {});
    rig.until(|rig| rig.history.status().pictures_stopped.is_none());
    assert!(rig.files().contains(&"b7c1-gate-4.1.jpg".to_owned()));
}

#[test]
fn folder_that_opens_later_ends_no_open_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    fs::write(&path, "a file in the way").unwrap();
    let clock = Arc::new(ManualClock::at(WallTime::from_unix_millis(NOW_MS)));
    let rig = Rig::in_folder(folder, clock.clone(), parts(1 << 30, 0, &clock));
    let open = begun(1, NOW_MS);
    rig.history.event(&message(&open, "car", None));
    rig.until(|rig| rig.history.status().totals.events == 1);
    fs::remove_file(&path).unwrap();
    rig.clock.advance(Duration::from_secs(11));
    rig.happened(2, 0, |_| {});
    rig.until(|rig| rig.files() == ["b7c1-gate-2.1.jpg"]);
    let stored = rig.list("");
    let events = stored["events"].as_array().unwrap();
    let open = events.iter().find(|event| event["id"] == "b7c1-gate-1");
    assert_eq!(open.unwrap()["end_ms"], Value::Null);
}

// Faults: S14.
#[test]
fn rows_wait_in_memory_while_the_database_cannot_be_written() {
    let rig = Rig::new();
    rig.happened(1, 2000, |_| {});
    rig.until_stored(1);
    rig.store
        .execute(|it| it.execute("ALTER TABLE history RENAME TO away", []))
        .unwrap();
    rig.happened(2, 1000, |_| {});
    rig.until(|rig| rig.history.status().rows_stopped.is_some());
    rig.store
        .execute(|it| it.execute("ALTER TABLE away RENAME TO history", []))
        .unwrap();
    rig.until_stored(2);
    assert!(rig.history.status().rows_stopped.is_none());
    assert_eq!(
        rig.list("")["events"][0]["picture"],
        "events/b7c1-gate-2.jpg?v=1"
    );
}

fn zip_entries(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let archive = rawzip::ZipArchive::from_slice(file).unwrap();
    let mut entries = archive.entries();
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().unwrap() {
        let name = String::from_utf8(entry.file_path().as_bytes().to_vec()).unwrap();
        let entry = archive.get_entry(entry.wayfinder()).unwrap();
        found.push((name, entry.data().to_vec()));
    }
    found
}

#[test]
fn export_has_events_and_pictures() {
    let rig = Rig::new();
    let place = Location::Box(NormBox::from_corners(0.2, 0.2, 0.4, 0.4));
    for number in 1..=3 {
        rig.happened(number, number as i64 * HOUR_MS, |event| {
            event.location = place
        });
    }
    rig.until_stored(3);
    let mut file = Vec::new();
    let filter = HistoryFilter::read("text=car").unwrap();
    assert_eq!(export(rig.history.reader(), &filter, &mut file).unwrap(), 3);
    let found = zip_entries(&file);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let picture = |number: u64| format!("pictures/b7c1-gate-{number}.jpg");
    assert_eq!(
        names,
        ["events.json", &picture(1), &picture(2), &picture(3)]
    );
    let events: Value = serde_json::from_slice(&found[0].1).unwrap();
    assert_eq!(
        (events.as_array().unwrap().len(), &events[0]["picture"]),
        (3, &json!(picture(1)))
    );
    assert_eq!(found[2].1, vec![1; JPEG_BYTES]);
    let nothing = tempfile::tempdir().unwrap();
    let mut file = Vec::new();
    let reader = HistoryReader::new(nothing.path());
    assert_eq!(
        export(&reader, &HistoryFilter::default(), &mut file).unwrap(),
        0
    );
}

/// An object below `min_score`, with a picture.
fn near(rig: &Rig, number: u64) -> Event {
    let event = begun(number, NOW_MS);
    let frame = frame("gate", number);
    rig.history.event(&HistoryMessage {
        is_near: true,
        ..message(&event, "a red car", Some(&frame))
    });
    event
}

#[tokio::test]
async fn objects_below_min_score_are_few_and_no_alarms() {
    let rig = Rig::new();
    rig.happened(9, 0, |_| {});
    rig.until_stored(1);
    let first = near(&rig, 1);
    // At its place, and no repeat of it.
    rig.happened(5, 0, |event| event.location = first.location);
    near(&rig, 2);
    near(&rig, 3);
    let listed = |rig: &Rig| ids(&rig.list("near=only"));
    rig.until(|rig| listed(rig).len() == 2 && rig.files().len() == 4);
    rig.until_stored(2);
    let page = rig.list("");
    assert_eq!(ids(&page), ["b7c1-gate-5", "b7c1-gate-9"]);
    assert_eq!(
        (&page["events"][0]["repeats"], &page["reach"]["events"]),
        (&json!(0), &json!(2))
    );
    let bars = page["bars"].as_array().unwrap().iter();
    assert_eq!(bars.filter_map(Value::as_u64).sum::<u64>(), 2);
    let rig = rig.restart(1 << 30).await;
    rig.happened(6, 0, |_| {});
    rig.until_stored(3);
    near(&rig, 4);
    rig.happened(7, 0, |_| {});
    rig.until_stored(4);
    assert_eq!(listed(&rig), ["b7c1-gate-2", "b7c1-gate-1"]);
}

#[test]
fn full_history_still_has_the_newest_objects_below_min_score() {
    let rig = Rig::with(12 * JPEG_BYTES as u64, 0);
    rig.happened(9, HOUR_MS, |_| {});
    rig.until_stored(1);
    (1..=2).for_each(|number| drop(near(&rig, number)));
    rig.until(|rig| rig.files().len() == 3);
    for number in 10..25 {
        rig.happened(number, 0, |_| {});
        rig.until(|rig| ids(&rig.list(""))[0] == format!("b7c1-gate-{number}"));
    }
    rig.until(|rig| ids(&rig.list("near=only")) == ["b7c1-gate-2"]);
    rig.until_totals_fit();
    let totals = rig.history.status().totals;
    assert!(totals.near > JPEG_BYTES as u64 && totals.unjudged() <= 12 * JPEG_BYTES as u64);
    assert_eq!(rig.list("")["reach"]["limit"], "size");
}

#[tokio::test]
async fn object_that_gets_an_alarm_is_not_near() {
    let rig = Rig::new();
    rig.happened(9, 0, |_| {});
    rig.until_stored(1);
    let events = [1, 2].map(|number| near(&rig, number));
    rig.until(|rig| rig.files().len() == 3);
    let judge = "UPDATE history SET mark = 'right' WHERE id = 'b7c1-gate-2'";
    rig.store
        .execute(|transaction| transaction.execute(judge, []))
        .unwrap();
    events
        .iter()
        .for_each(|event| rig.history.withdraw(&event.track));
    rig.until(|rig| rig.files() == ["b7c1-gate-2.1.jpg", "b7c1-gate-9.1.jpg"]);
    assert_eq!(ids(&rig.list("near=only")), ["b7c1-gate-2"]);
    // Its place among those of the day is free.
    let better = Event {
        step: EventStep::Update(UpdateReason::Better),
        ..events[0].clone()
    };
    rig.history
        .event(&message(&better, "", Some(&frame("gate", 8))));
    near(&rig, 3);
    rig.until(|rig| ids(&rig.list("near=only")) == ["b7c1-gate-3", "b7c1-gate-2"]);
    rig.until(|rig| {
        rig.files()
            == [
                "b7c1-gate-2.1.jpg",
                "b7c1-gate-3.1.jpg",
                "b7c1-gate-9.1.jpg",
            ]
    });
    rig.clock.advance(Duration::from_secs(61));
    rig.happened(8, 0, |_| {});
    rig.until(|rig| rig.files().len() == 4);
    // A judged one keeps its place, however often its object has an alarm.
    rig.history.withdraw(&events[1].track);
    rig.happened(4, 0, |_| {});
    rig.until(|rig| rig.files().len() == 5);
    near(&rig, 5);
    let all = HistorySelection {
        from_ms: Some(0),
        ..HistorySelection::default()
    };
    rig.until_totals_fit();
    let deleted = rig.history.delete(all).await.unwrap();
    rig.until_totals_fit();
    assert_eq!((deleted.events, deleted.pictures), (3, 5));
}

#[tokio::test]
async fn request_after_the_end_is_refused() {
    let rig = Rig::new();
    let history = rig.history.clone();
    rig.history.close().await;
    let one = HistorySelection {
        id: Some("b7c1-gate-1".into()),
        ..HistorySelection::default()
    };
    let refused = history.delete(one).await.unwrap_err();
    assert_eq!(refused, "Spotter is stopping; try again");
    let key = SeriesKey {
        camera: CameraId::new("gate").unwrap(),
        prompt: PromptId::new("person").unwrap(),
        series: String::new(),
    };
    assert!(history.draw(key, 1).await.is_err());
}

#[test]
fn export_has_labels_of_judged_events() {
    let rig = Rig::new();
    (1..=3).for_each(|number| drop(rig.happened(number, 0, |_| {})));
    rig.until_stored(3);
    near(&rig, 4);
    rig.until(|rig| rig.files().len() == 4);
    // The others are no JPEG.
    let [width, height] = [800, 400];
    let rgb = &vec![0; 3 * width * height];
    let pixels = RgbPixels { width, height, rgb };
    let jpeg = jpeg_photo(pixels, 50).unwrap();
    for number in [1, 2, 4] {
        let name = format!("history/b7c1-gate-{number}.1.jpg");
        fs::write(rig.folder.path().join(name), &jpeg).unwrap();
    }
    let judge = "UPDATE history SET mark = 'right' WHERE id <> 'b7c1-gate-2'";
    rig.store
        .execute(|transaction| transaction.execute(judge, []))
        .unwrap();
    let labels = |filter: HistoryFilter| {
        let mut file = Vec::new();
        let events = export(rig.history.reader(), &filter, &mut file).unwrap();
        let mut found = zip_entries(&file);
        let (name, labels) = found.pop().unwrap();
        assert_eq!((&*name, found.len()), ("labels.json", 1 + events as usize));
        let labels: Value = serde_json::from_slice(&labels).unwrap();
        let images = labels["images"].as_array().unwrap().iter();
        let names = images.map(|image| image["file_name"].as_str().unwrap().to_owned());
        (events, Vec::from_iter(names))
    };
    let picture = |number: u64| format!("pictures/b7c1-gate-{number}.jpg");
    assert_eq!(labels(HistoryFilter::default()), (3, vec![picture(1)]));
    let judged = HistoryFilter::default().judged();
    assert_eq!(labels(judged.clone()), (3, vec![picture(1), picture(4)]));
    // As `spotter eval` reads it.
    let set = rig.history.reader().judged_set(&judged).unwrap().unwrap();
    let set = json!(set);
    assert_eq!(set["images"][0]["file_name"], "b7c1-gate-1.1.jpg");
    assert_eq!(
        set["annotations"][0]["bbox"],
        json!([40.0, 0.0, 40.0, 20.0])
    );
    assert!(
        rig.history
            .reader()
            .pictures()
            .join("b7c1-gate-1.1.jpg")
            .exists()
    );
}
