//! What docs/page.md says about the cost of the history.
//!
//! `cargo test -p spotter-history --lib measurement -- --include-ignored --nocapture --test-threads=1`

use std::time::Instant;

use spotter_core::{AnswerBody, FoundObject, Prompt, ScoreSource, testing::answer_to};
use spotter_events::track::Tracker;

use super::*;
use crate::records::RecordWrite;

/// Bytes that this process gave to the disk's page cache, by the kernel's count.
fn write_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let (_, rest) = text.split_once("\nwrite_bytes: ").unwrap();
    rest.lines().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn bytes_of_an_event_and_time_of_the_loop() {
    let rig = Rig::new();
    rig.happened(0, HOUR_MS, |_| {});
    rig.until_stored(1);
    let (before, totals) = (write_bytes(), rig.history.status().totals);
    let mut calls = Vec::new();
    for number in 1..=200 {
        let begun = begun(number, NOW_MS);
        let frame = frame("gate", number);
        let looks = [seen(&begun, 0), seen(&begun, 1000)];
        let end = ended(&begun);
        let mut timed = |call: &dyn Fn()| {
            let start = Instant::now();
            call();
            calls.push(start.elapsed());
        };
        timed(&|| {
            rig.history
                .event(&message(&begun, "a red car", Some(&frame)))
        });
        (0..10).for_each(|_| timed(&|| rig.history.looks(&looks)));
        rig.until(|rig| rig.history.status().totals.events > number);
        rig.until(|rig| {
            rig.history
                .reader()
                .picture(begun.track.as_str())
                .unwrap()
                .is_some()
        });
        timed(&|| rig.history.event(&message(&end, "a red car", None)));
    }
    rig.until_stored(201);
    let stored = rig.history.status().totals.unjudged() - totals.unjudged();
    let written = write_bytes() - before;
    calls.sort_unstable();
    let file = fs::metadata(rig.folder.path().join("state.db"))
        .unwrap()
        .len();
    println!(
        "of each of 200 events: {} bytes counted, {} written without the picture; state.db {file} bytes; a call: median {:?}, 99 % {:?}",
        stored / 200,
        written / 200 - JPEG_BYTES as u64,
        calls[calls.len() / 2],
        calls[calls.len() * 99 / 100],
    );
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn time_of_queries_over_100_000_events() {
    let rig = Rig::with(1 << 40, 0);
    rig.happened(0, HOUR_MS, |_| {});
    rig.until_stored(1);
    let sql = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
         INSERT INTO history (number, id, place, camera, prompt, revision, words, start_ms, end_ms, last_seen_ms, score, top_score, location, width, height,
         zones, description, looks, picture, picture_bytes, bytes, written) SELECT NULL, 'a-' || n, 0, 'cam' || (n % 16), 'person', 1, 'a person with a parcel', {NOW_MS} - n * 6048, {NOW_MS} - n * 6048 + 5000,
         {NOW_MS} - n * 6048 + 5000, 0.8, 0.8, '[0.1,0.1,0.2,0.2]', 2560, 1440, ' drive ', 'A man in a red jacket carries a large parcel to the door.', 20, 1, 200000, 201000, 230000 FROM n"
    );
    rig.store.execute(move |it| it.execute(&sql, [])).unwrap();
    let place = "UPDATE history SET place = CASE WHEN number % 4 > 0 THEN number - number % 4 ELSE number END";
    rig.store.execute(move |it| it.execute(place, [])).unwrap();
    for query in [
        "",
        "camera=cam3&limit=100",
        "zone=drive&text=parcel",
        "text=nothing+of+it",
        &format!("to_ms={}", NOW_MS - 6 * 24 * HOUR_MS),
        &format!("from_ms={}", NOW_MS - 7 * 24 * HOUR_MS),
    ] {
        let start = Instant::now();
        let count = ids(&rig.list(query)).len();
        println!("{query:?}: {count} events in {:?}", start.elapsed());
    }
}

/// A place as the model gives it: centre and size are steps of its scales, here one of three each.
fn trembling(random: &mut fastrand::Rng, centre: f64) -> NormBox {
    let mut step = |from: f64| from + random.i8(-1..=1) as f64;
    let [x, y] = [step(1024.0 * centre) / 1024.0, step(600.0) / 1024.0];
    let [width, height] = [step(700.0), step(650.0)].map(|bin| (bin / 1023.0 * 10.0 - 10.0).exp2());
    NormBox::from_centre(x, y, width, height)
}

/// Packed bytes that a day of this many things that stay has, and looks of it.
fn recorded_day(things: u32, looks_a_second: u64) -> (u64, u64) {
    let camera =
        spotter_config::testing::camera("gate", vec![spotter_config::testing::prompt("car")]);
    let prompt = &camera.prompts[0];
    let asked = Arc::new(Prompt {
        view: camera.view_of(prompt),
        ..Prompt::new(prompt.id.clone(), 1, prompt.task.clone())
    });
    let mut tracker = Tracker::recording("b7c1".into(), std::slice::from_ref(&camera));
    let mut random = fastrand::Rng::with_seed(1);
    // A twelfth of a day, which is cut once or more.
    let looks = 7200 * looks_a_second;
    let mut bytes = 0;
    for look in 0..looks {
        let mut found = |thing: u32| FoundObject {
            place: trembling(&mut random, f64::from(thing + 1) / f64::from(things + 1)),
            score: 0.6 + 0.3 * random.f64(),
            source: ScoreSource::Calibrated,
            sharpness: 0.5,
        };
        let found = (0..things).map(&mut found).collect();
        let at = Duration::from_nanos(1_000_000_000 / looks_a_second * look + look % 977 * 1013);
        let frame = frame_at(&camera.id, at);
        tracker.update(&frame, &answer_to(&asked, AnswerBody::Boxes(found)));
        let chunks = tracker.take_records();
        bytes += chunks
            .iter()
            .map(|chunk| RecordWrite::new(chunk).bytes())
            .sum::<u64>();
    }
    tracker.shutdown(WallTime::default());
    let chunks = tracker.take_records();
    bytes += chunks
        .iter()
        .map(|chunk| RecordWrite::new(chunk).bytes())
        .sum::<u64>();
    (12 * bytes, 12 * looks)
}

#[test]
#[ignore = "a measurement"]
fn bytes_of_recorded_looks() {
    for (things, looks_a_second) in [(1, 1), (1, 2), (5, 1), (5, 2)] {
        let (bytes, looks) = recorded_day(things, looks_a_second);
        println!(
            "{things} things, {looks_a_second} looks a second: {} bytes a look, {:.1} MB a day",
            bytes / looks,
            bytes as f64 / 1e6
        );
    }
}
