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

#[test]
fn mistakes_of_dwell_are_reported_at_their_places() {
    let key = "camera.gate.prompt.person.dwell";
    for (dwell, message) in [
        (
            "dwell = 30",
            "8:9 KEY: 30 has no unit; write \"5s\", \"500ms\" or \"1m\"",
        ),
        ("dwell = \"25h\"", "8:9 KEY: 25h is above 24h"),
        (
            "dwell = { drve = \"5s\" }",
            "8:18 KEY.drve: \"drve\" is not a zone of this prompt; did you mean \"drive\"?",
        ),
        (
            "dwell = { drive = \"5\" }",
            "8:19 KEY.drive: \"5\" has no unit; write \"5s\", \"500ms\" or \"1m\"",
        ),
        (
            "dwell = { door = \"5s\" }\nzones = [\"drive\"]",
            "8:18 KEY.door: \"door\" is not a zone of this prompt; has: drive",
        ),
    ] {
        assert_eq!(said(&with(dwell)), [message.replace("KEY", key)]);
    }
    let alone = said(&person("dwell = \"30s\""));
    assert!(
        alone.len() == 1 && alone[0].contains("the camera has no zone"),
        "{alone:?}"
    );
    let question = with("dwell = \"30s\"").replace("detect = \"person\"", "query = \"Open?\"");
    assert!(said(&question)[0].contains("person.dwell: has no effect on an answer"));
}
