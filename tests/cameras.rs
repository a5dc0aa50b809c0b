//! `spotter bench cameras` as a user runs it, for seconds: its figures fit together, and nothing of it is left behind.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod support;

use serde_json::Value;
use support::{DONE, spotter};

#[test]
fn cameras_are_measured_and_their_server_ends() {
    let arguments = [
        "bench",
        "cameras",
        "--cameras=1,2",
        "--seconds=10",
        "--json",
    ];
    let ended = spotter(arguments).expect(DONE);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(
        report["floor"]["ms_per_picture"].as_f64() > Some(0.0),
        "{report}"
    );
    let rows = report["rows"].as_array().expect("rows");
    let numbers: Vec<_> = rows.iter().map(|row| row["cameras"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
    for row in rows {
        let of = |name: &str| row["frames"][name].as_u64().expect("a number");
        let ends = ["skipped", "replaced", "gated", "late", "looked", "failed"];
        let ended: u64 = ends.iter().map(|end| of(end)).sum();
        // Of each camera one may wait and one be looked at, before the measurement and after it.
        let open = 2 * row["cameras"].as_u64().expect("a number");
        assert!(of("arrived").abs_diff(ended) <= open, "{row}");
        assert!(of("arrived") > 0 && of("looked") > 0, "{row}");
        assert_eq!((of("failed"), of("gated")), (0, 0), "{row}");
        assert!(row["decode"]["p95_ms"].as_f64() > Some(0.0), "{row}");
        let own = |row: &Value| row["cpu_pct"].as_f64() > Some(0.0);
        let threads = row["threads"].as_array().expect("threads");
        assert!(own(row) && threads.iter().any(own), "{row}");
        assert!(row["rss_mib"].as_f64() > Some(1.0), "{row}");
    }
    assert!(
        !ended.stderr.contains("WARN") && !ended.stderr.contains("ERROR"),
        "{ended:#?}"
    );
}
