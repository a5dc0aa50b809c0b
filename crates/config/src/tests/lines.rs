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
