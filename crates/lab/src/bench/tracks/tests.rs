use std::sync::Arc;

use super::*;
use crate::bench::tests::{assert_compressed, boxes_answer, found};
use spotter_config::{self as config, ModelSource};
use spotter_core::{Clock, ScoreSource, SystemClock};
use spotter_street::truth::Visibility;

fn options(looks_per_s: u32) -> TrackOptions {
    TrackOptions {
        model: "embedded".into(),
        minutes: 1,
        looks_per_s,
        seed: 1 << 41,
        kbit_per_s: None,
    }
}

fn place(left: f64) -> NormBox {
    NormBox::from_corners(left, 0.2, left + 0.2, 0.8)
}

fn person(slot: i64, left: f64) -> SeenObject {
    SeenObject {
        identity: ObjectIdentity::Passing {
            route: 0,
            slot,
            rider: false,
        },
        class: Class::Person,
        colour: None,
        box_in_frame: place(left),
        visible: 1.0,
        visibility: Visibility::Present,
    }
}

fn object(track: u64, left: f64) -> TrackedObject {
    TrackedObject {
        location: Location::Box(place(left)),
        score: 0.9,
        score_source: ScoreSource::TokenProb,
        sharpness: 0.9,
        track: track_id(track),
        age: Duration::ZERO,
        zones: Vec::new(),
        dwell: Vec::new(),
        outline: None,
    }
}

fn track_id(track: u64) -> TrackId {
    let camera = camera(1).expect("a camera");
    TrackId::new("eval", &camera.id, track)
}

fn slots(shown: Vec<(TrackId, ObjectIdentity)>) -> Vec<(TrackId, i64)> {
    let slot = |(track, who)| match who {
        ObjectIdentity::Passing { slot, .. } => (track, slot),
        other => panic!("{other:?}"),
    };
    let mut slots: Vec<_> = shown.into_iter().map(slot).collect();
    slots.sort();
    slots
}

#[test]
fn a_track_keeps_its_object_while_the_box_fits() {
    let (one, two) = (person(1, 0.30), person(2, 0.36));
    let seen = [&one, &two];
    let unknown = |_| None;
    // By overlap alone.
    let fresh = shown_objects(&[object(7, 0.35), object(8, 0.31)], &seen, unknown);
    assert_eq!(slots(fresh), [(track_id(7), 2), (track_id(8), 1)]);
    // One box fits both: its track keeps its object, though the other one is nearer.
    let of = |identity: ObjectIdentity| (identity == one.identity).then(|| track_id(7));
    let kept = shown_objects(&[object(7, 0.35)], &seen, of);
    assert_eq!(slots(kept), [(track_id(7), 1)]);
    // It does not fit its object any more.
    let far = person(1, 0.70);
    let moved = shown_objects(&[object(7, 0.35)], &[&far, &two], of);
    assert_eq!(slots(moved), [(track_id(7), 2)]);
    // A box of nothing shows no object.
    assert!(shown_objects(&[object(9, 0.0)], &[&far, &two], unknown).is_empty());
}

/// The embedded model looks at a minute of the street, uncompressed because encoding 900 frames takes a third of the time. A
/// minute has about 25 stays, so one of them is already 4 %: one switch and one event too many are allowed here. Ten minutes
/// (`spotter-lab eval --track`) meet the requirements.
#[test]
fn the_embedded_model_keeps_track_ids_for_a_minute() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let settings = config::ModelSettings {
        device: config::DevicePreference::Cpu,
        ..config::ModelSettings::of(ModelSource::Embedded)
    };
    let (mut engine, _) = Engine::open(&settings, Vec::new, clock).expect("the embedded model");
    let report = track(&mut engine, &options(1), &mut ProgressLine::default()).expect("a report");
    println!("{report}");
    let sum = |of: fn(&report::ClassStays) -> usize| report.classes.iter().map(of).sum::<usize>();
    let (stays, events, switches) = (sum(|c| c.stays), sum(|c| c.events), sum(|c| c.switches));
    assert!(stays >= 20, "{report}");
    assert!(events.abs_diff(stays) <= 1 && switches <= 1, "{report}");
    let value = |name| {
        let figure = report.figures.iter().find(|figure| figure.name == name);
        figure.and_then(|figure| figure.value).expect(name)
    };
    assert!(value("event by the second look") >= 0.9, "{report}");
    assert!(value("detect F1 at IoU 0.5") >= 0.9, "{report}");
}

#[test]
fn compressed_pictures_show_the_moments_of_the_looks() {
    let plain = options(1);
    let compressed = TrackOptions {
        kbit_per_s: Some(1000),
        ..plain.clone()
    };
    let plain = pictures(&plain).expect("pictures");
    let compressed = pictures(&compressed).expect("an encoder");
    for (plain, compressed) in plain.zip(compressed).take(3) {
        assert_compressed(&plain.expect("a picture"), &compressed.expect("a picture"));
    }
}

/// Answers to the camera's prompts when only the one for people finds a box, at `left`.
fn people(watched: &WatchedStreet, left: f64) -> Vec<Answer> {
    let answer = |prompt: &config::PromptConfig| {
        let finds = prompt.id.as_str() == "person";
        boxes_answer(
            prompt,
            finds.then(|| found(place(left))).into_iter().collect(),
        )
    };
    watched.camera.prompts.iter().map(answer).collect()
}

#[test]
fn a_person_with_two_track_ids_misses_the_requirements() {
    let options = options(1);
    let scene = street_at(options.seed, Duration::ZERO);
    let score = |places: &[f64]| {
        let mut watched = WatchedStreet::new(&options).expect("a camera");
        for (look, &left) in places.iter().enumerate() {
            let pixel = Picture::from_rgb(1, 1, vec![0; 3]).expect("a pixel");
            let frame = watched.frame(look as u32, pixel);
            let truth = Truth {
                seen: vec![person(1, left)],
                ..truth(&scene)
            };
            let answers = people(&watched, left);
            let answered = watched.score(look as u32, &frame, &answers, &truth);
            answered.expect("a detection");
        }
        TrackReport::new(&options, &watched.stays, &watched.boxes)
    };
    let missed = |report: &TrackReport| {
        let missed = report.figures.iter().filter(|f| f.missed_by.is_some());
        missed.map(|figure| figure.name).collect::<Vec<_>>()
    };
    let standing = score(&[0.1; 6]);
    assert!(missed(&standing).is_empty(), "{standing}");
    let values: Vec<_> = standing.figures.iter().map(|figure| figure.value).collect();
    let [no, all] = [Some(0.0), Some(1.0)];
    // Two looks confirm, so no event starts with the first.
    assert_eq!(values, [no, all, no, all, all, all, all]);
    // No person crosses half of the picture in a second: to the tracker it is another one, to the truth it is not.
    let jumps = score(&[0.1, 0.1, 0.1, 0.7, 0.7, 0.7]);
    assert_eq!(missed(&jumps), ["names that switched", "events a stay"]);
    assert_eq!(jumps.figures[1].value, Some(2.0));
    assert_eq!(jumps.figures[1].missed_by, Some(0.95));
    assert_eq!((jumps.classes.len(), jumps.classes[0].switches), (1, 1));
}
