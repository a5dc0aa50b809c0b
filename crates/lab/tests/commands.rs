//! `spotter-lab` as a user runs it.

#![expect(clippy::expect_used, reason = "a failed setup ends the test")]

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `spotter-lab` in the repository's root to its end.
fn lab<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_spotter-lab"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

#[track_caller]
fn done(ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    ended
}

#[test]
fn each_command_explains_its_options() {
    let commands: [(&str, &[&str]); 8] = [
        ("engine", &["--json"]),
        ("load", &["--size", "--clients", "--json"]),
        ("steps", &["--shape", "--seconds", "--json"]),
        ("cameras", &["--cameras", "--seconds", "--json"]),
        ("fleet", &["--boxes", "--nats", "--minutes", "--calm"]),
        ("soak", &["--seconds", "--seed", "--json"]),
        ("eval", &["--scenes", "--track", "--minutes", "--rate"]),
        ("eval", &["--seed", "--bitrate"]),
    ];
    let overview = done(lab(["--help"])).stdout;
    for (command, options) in commands {
        assert!(overview.contains(command), "{overview}");
        let help = done(lab([command, "--help"])).stdout;
        for option in options {
            assert!(help.contains(option), "{option} is not in\n{help}");
        }
    }
}

#[test]
fn host_work_per_step_is_printed_as_json() {
    let ended = done(lab(["engine", "--json"]));
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(report["step"]["step_rows"], 32, "{ended:#?}");
}

#[test]
fn the_engine_s_load_is_printed_as_json() {
    let load = ["load", "--device", "cpu", "--part", "looks"];
    let least = ["--size", "84x84", "--clients", "2", "--objects", "1"];
    let short = ["--seconds", "0", "--json"];
    let ended = done(lab(load.into_iter().chain(least).chain(short)));
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let row = &report["looks"][0];
    assert_eq!(row["clients"], 2, "{ended:#?}");
    let counters = ["asked", "answered", "left"].map(|part| row["books"][part].as_u64());
    let [Some(asked), Some(answered), Some(left)] = counters else {
        panic!("{ended:#?}")
    };
    assert_eq!(asked, answered + left);
    assert!(row["floor_ms"].is_number() && row["strain"].is_null());
    assert!(report["ceilings"]["product_tflop"]["per_s"].is_number());
}

#[test]
fn cameras_are_measured_and_their_server_ends() {
    let arguments = ["cameras", "--cameras=1,2", "--seconds=2", "--json"];
    let ended = done(lab(arguments));
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let floor_ms = report["floor"]["ms_per_picture"].as_f64();
    assert!(floor_ms > Some(0.0), "{report}");
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
    for level in ["WARN", "ERROR"] {
        assert!(!ended.stderr.contains(level), "{ended:#?}");
    }
}

#[test]
fn fleet_with_faults_has_one_box_for_each_epoch() {
    let size = ["fleet", "--boxes=3", "--cameras=12"];
    let faults = ["--minutes=0.25", "--seed=1", "--json"];
    let ended = lab(size.into_iter().chain(faults));
    // The exit status also depends on times.
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let faults = report["faults"].as_array().expect("faults");
    let faults = faults.iter().filter_map(|row| row["faults"].as_u64());
    assert!(faults.sum::<u64>() > 0, "{ended:#?}");
    assert_eq!(report["doubled"], 0, "{ended:#?}");
    assert_eq!(report["unwatched_at_the_end"], 0, "{ended:#?}");
}

/// `spotter-lab … | head -0`.
#[test]
fn a_closed_stdout_is_no_error() {
    for arguments in [&["engine"][..], &["eval", "--scenes", "1", "--json"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_spotter-lab"))
            .args(arguments)
            .stdout(writer)
            .output()
            .expect("the program starts");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("spotter: "), "{arguments:?}: {stderr}");
    }
}
