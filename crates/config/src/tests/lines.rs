//! `[camera.NAME.line.NAME]` and `lines` of a prompt.

use super::*;

const LINE: &str = "[camera.gate.line.door]\npoints = [[0.3, 0.8], [0.7, 0.8]]\n";

/// A good file whose prompt counts at the line of `table`.
fn counted(table: &str) -> String {
    person(&format!("lines = [\"door\"]\n{table}"))
}

#[test]
fn line_has_its_defaults_and_prompts_name_it() {
    let camera = &loaded(&counted(LINE)).config.cameras[0];
    let [door] = &camera.lines[..] else {
        panic!("{:?}", camera.lines)
    };
    assert_eq!(door.points, [(0.3, 0.8), (0.7, 0.8)]);
    let directions = door.directions.each_ref().map(|name| name.as_str());
    assert_eq!(directions, ["in", "out"]);
    assert_eq!((door.point, &door.reset), (ZonePoint::Bottom, &None));
    assert_eq!(camera.lines_counted(&camera.prompts[0]).count(), 1);

    let more = "directions = [\"east\", \"west\"]\npoint = \"centre\"\nreset = \"Mon 06:00 UTC\"\n";
    let camera = &loaded(&counted(&format!("{LINE}{more}"))).config.cameras[0];
    let door = &camera.lines[0];
    assert_eq!(door.directions[1].as_str(), "west");
    assert_eq!(door.point, ZonePoint::Centre);
    let reset = door.reset.as_ref().expect("a time");
    assert_eq!(
        (reset.days[0], reset.days[1], reset.minute),
        (true, false, 360)
    );
}

#[test]
fn mistakes_of_a_line_are_reported_at_their_places() {
    let key = "camera.gate.line.door";
    for (more, message) in [
        (
            "points = [[0, 0.5]]",
            "10:10 KEY.points: needs at least 2 points, has 1",
        ),
        (
            "points = [[0, 0.5], [2, 0.5]]",
            "10:10 KEY.points: point 2 is [2, 0.5]; values are 0 to 1",
        ),
        (
            "points = [[0, 0.5], [0.8, 0.5], [0.4, 0.5]]",
            "10:10 KEY.points: the line crosses itself: the pieces that start at points 1 and 2 touch",
        ),
        (
            "",
            "9:1 KEY: no points; add points = [[x, y], [x, y]], shares of the picture",
        ),
        (
            "point = [[0, 0.5], [1, 0.5]]",
            "10:9 KEY.point: needs text in quotes, found a value of type array",
        ),
    ] {
        let file = counted(&format!("[camera.gate.line.door]\n{more}"));
        let all = said(&file);
        assert!(
            all.contains(&message.replace("KEY", key)),
            "{more}: {all:?}"
        );
    }
    for (more, message) in [
        (
            "directions = [\"in\"]",
            "needs two names, has 1; write [\"in\", \"out\"]",
        ),
        (
            "directions = [\"in\", \"in\"]",
            "both directions have the same name",
        ),
        (
            "directions = [\"in\", \"Going out\"]",
            "ids use a-z 0-9 _ -",
        ),
        (
            "reset = \"midnight\"",
            "\"midnight\" is not a time and a time zone",
        ),
        (
            "resets = \"00:00 UTC\"",
            "unknown key; did you mean \"reset\"?",
        ),
    ] {
        let all = said(&counted(&format!("{LINE}{more}")));
        assert!(
            all.len() == 1 && all[0].contains(message),
            "{more}: {all:?}"
        );
    }
}

#[test]
fn prompt_names_lines_that_exist() {
    let misspelt = counted(LINE).replace("lines = [\"door\"]", "lines = [\"dor\"]");
    let unused = "3:1 camera.gate: warning: no prompt counts at line door; add lines = [\"door\"] to a prompt";
    let unknown = "8:10 camera.gate.prompt.person.lines: \"dor\" is not a line of this camera; did you mean \"door\"?";
    assert_eq!(said(&misspelt), [unused, unknown]);
    assert_eq!(said(&person(LINE)), [unused]);
    let question = counted(LINE).replace("detect = \"person\"", "query = \"Is it open?\"");
    let all = said(&question);
    assert!(
        all[0].contains("person.lines: has no effect on an answer without boxes"),
        "{all:?}"
    );
}
