//! `dwell` of a prompt.

use super::*;

const ZONES: &str = "[camera.gate.zone.drive]\npolygon = [[0, 0], [1, 0], [1, 1]]\n\
    [camera.gate.zone.door]\npolygon = [[0, 0], [1, 1], [0, 1]]\n";

fn with(dwell: &str) -> String {
    person(&format!("{dwell}\n{ZONES}"))
}

/// The times of the zones, in seconds.
fn times(dwell: &str) -> Vec<(String, u64)> {
    let config = loaded(&with(dwell)).config;
    let times = config.cameras[0].prompts[0].dwell.iter();
    times
        .map(|(zone, time)| (zone.to_string(), time.as_secs()))
        .collect()
}

#[test]
fn dwell_is_one_time_for_all_zones_or_one_each() {
    let of = |zone: &str, seconds| (zone.to_owned(), seconds);
    assert_eq!(times(""), []);
    assert_eq!(times("dwell = \"30s\""), [of("door", 30), of("drive", 30)]);
    assert_eq!(
        times("dwell = \"1m\"\nzones = [\"drive\"]"),
        [of("drive", 60)]
    );
    assert_eq!(times("dwell = { door = \"5s\" }"), [of("door", 5)]);
}
