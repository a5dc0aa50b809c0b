//! A site with visitors, its history, and a second run with other shapes.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;
use spotter_config::testing;
use spotter_core::{Event, EventStep, ManualClock, NormBox, WallTime};
use spotter_events::track::Tracker;
use spotter_history::{History, HistoryMessage};
use tempfile::TempDir;

use super::*;
use crate::{
    replayed::stored_ids,
    testing::{CameraVisitor, LOOKS, SlowClock, after, run, week_of_history},
};

const VISITORS: usize = 31;
fn visitors(seed: u64) -> Vec<CameraVisitor> {
    let mut random = Pcg32::seed_from_u64(seed);
    let mut visitor = || {
        let [x0, y1] = [random.random_range(0.0..0.9), random.random_range(0.3..1.0)];
        CameraVisitor {
            place: NormBox::from_corners(x0, y1 - 0.25, x0 + 0.1, y1),
            scores: [0.8; LOOKS],
        }
    };
    (0..VISITORS).map(|_| visitor()).collect()
}

fn starts(events: &[Event]) -> usize {
    let starts = events.iter().filter(|event| event.step == EventStep::New);
    starts.count()
}

struct Site {
    camera: CameraConfig,
    visitors: Vec<CameraVisitor>,
    history: History,
    now: WallTime,
    _folder: TempDir,
}

impl Site {
    fn new(camera: CameraConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let visitors = visitors(1);
        let now = after(VISITORS, &camera.id);
        let history = week_of_history(&folder, now);
        let mut tracker = Tracker::recording("b7c1".into(), std::slice::from_ref(&camera));
        for event in run(&mut tracker, &camera, &visitors) {
            history.event(&HistoryMessage {
                is_near: false,
                event: &event,
                words: "person",
                series: "",
                frame: None,
                objects: &[],
            });
        }
        history.records(tracker.take_records());
        let site = Self {
            camera,
            visitors,
            history,
            now,
            _folder: folder,
        };
        while site.records().len() < VISITORS {
            std::thread::sleep(Duration::from_millis(10));
        }
        site
    }

    fn records(&self) -> Vec<StoredRecord> {
        let mut records = Vec::new();
        let all = RecordFilter::default();
        let read = self.history.reader().each_record(&all, |record| {
            records.push(record);
            ControlFlow::Continue(())
        });
        read.unwrap();
        records
    }

    fn preview(&self, keys: &str) -> ShapesPreview {
        let shapes = CameraShapes(keys.parse().unwrap());
        let clock = ManualClock::at(self.now);
        preview(self.history.reader(), &self.camera, &shapes, &clock).unwrap()
    }

    /// The events of another daemon with these shapes.
    fn second_run(&self, keys: &str) -> usize {
        let shapes = CameraShapes(keys.parse().unwrap());
        let camera = with_shapes(&self.camera, &shapes).unwrap();
        let mut tracker = Tracker::new("c0de".into(), std::slice::from_ref(&camera));
        starts(&run(&mut tracker, &camera, &self.visitors))
    }
}

fn camera() -> CameraConfig {
    testing::camera("gate", vec![testing::prompt("person")])
}

const ZONE: &str = "zone.drive.polygon = [[0.1, 0.4], [0.6, 0.4], [0.8, 1], [0.1, 1]]\nprompt.person.zones = ['drive']";

#[test]
fn preview_is_what_a_second_run_with_the_shapes_gives() {
    let site = Site::new(camera());
    let in_zone = site.second_run(ZONE);
    assert!((8..24).contains(&in_zone), "{in_zone}");
    let counted = |counted: usize| ShapesPreview::Counted {
        events: VISITORS as u64,
        counted: counted as u64,
        reach: PreviewReach::Days(7),
    };
    assert_eq!(site.preview(ZONE), counted(in_zone));
    let hidden = "mask = [[[0, 0], [0.5, 0], [0.5, 1], [0, 1]]]";
    let is_seen = |visitor: &&CameraVisitor| visitor.place.centre().x > 0.5;
    let seen = site.visitors.iter().filter(is_seen).count();
    assert_eq!(site.preview(hidden), counted(seen));
    assert_eq!(
        site.preview("prompt.person.region = [0.5, 0, 1, 1]"),
        counted(seen)
    );
    let json = serde_json::to_value(site.preview(ZONE)).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"events": 31, "counted": in_zone, "days": 7})
    );
    let no_change = site.preview("zone.drive.polygon = [[0, 0], [1, 0], [1, 1]]");
    assert_eq!(
        no_change,
        ShapesPreview::unknown("These changes make no event more or less.")
    );
}

#[test]
fn preview_without_time_has_the_newest_events() {
    let site = Site::new(camera());
    let shapes = CameraShapes(ZONE.parse().unwrap());
    let preview = |step_ms| {
        let clock = SlowClock(ManualClock::at(site.now), Duration::from_millis(step_ms));
        preview(site.history.reader(), &site.camera, &shapes, &clock).unwrap()
    };
    // The clock is asked five times a record of one part.
    let shown = preview(200);
    let reach = PreviewReach::Hours(1);
    assert!(
        matches!(shown, ShapesPreview::Counted { events: 2, reach: it, .. } if it == reach),
        "{shown:?}"
    );
    let no_event =
        "Only the newest looks were replayed within 3 s, and they have no complete event.";
    assert_eq!(preview(2000), ShapesPreview::unknown(no_event));
}

#[test]
fn replayed_events_have_the_ids_of_the_stored_ones() {
    let site = Site::new(camera());
    let rules = ReplayRules {
        camera: &site.camera,
        prompt: &site.camera.prompts[0],
        added_masks: &[],
    };
    for record in site.records() {
        let events = replayed_while(&record, &rules, || true).unwrap();
        let ids = stored_ids(&record, &events);
        assert_eq!(ids, [Some(&record.started[0].track)]);
        let mut other = record.clone();
        other.started[0].first_look = WallTime::from_unix_millis(5);
        assert_eq!(stored_ids(&other, &events), [None]);
        other.chunks[0].truncate(9);
        assert_eq!(replayed_while(&other, &rules, || true), None);
    }
}
