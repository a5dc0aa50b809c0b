//! What docs/page.md says about the cost of the history.
//!
//! `cargo test -p spotter-history --lib measurement -- --include-ignored --nocapture --test-threads=1`

use std::time::Instant;

use super::*;

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
    let stored = rig.history.status().totals.unjudged - totals.unjudged;
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
