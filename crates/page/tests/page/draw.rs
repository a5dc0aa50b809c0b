//! The editor of shapes, by mouse, fingers and keys. The browser has a scripted daemon (`drawing.js`) for what the page asks it.

use spotter_core::{check_polygon, check_polyline};

use super::*;

const SCRIPTED_DAEMON: &str = include_str!("drawing.js");
const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1440, 900);
const CONTROL: u32 = 2;
const SHIFT: u32 = 8;

/// The view "Draw" of the camera gate.
struct Editor {
    browser: Browser,
    _served: Served,
}

impl Editor {
    /// For someone who has logged in, with the daemon as these statements leave it.
    fn open(size: (u32, u32), statements: &str) -> Self {
        let mut editor = Self::start(with_login(), statements);
        editor.show(size, "#now");
        let login = json!({"token": TOKEN});
        let login = format!(
            "fetch('login', {{method: 'POST', headers: {{'content-type': 'application/json'}}, body: JSON.stringify({login})}}).then(({{ status }}) => status)"
        );
        assert_eq!(editor.browser.says(&login), 204);
        editor.show(size, "#draw/gate");
        editor.browser.until("document.querySelector('.canvas image') !== null && document.querySelector('.shape-list') !== null");
        editor
    }

    fn start(config: HttpConfig, statements: &str) -> Self {
        let served = starting_with(config);
        let mut site = site(2);
        site["history"] = json!(true);
        site["cameras"][1]["drawn_size"] = json!([640, 480]);
        served.page.open(Arc::new(Painted::new(site)));
        let mut browser = Browser::start();
        browser.before_each_page(&format!("{SCRIPTED_DAEMON}\n{statements}"));
        Self {
            browser,
            _served: served,
        }
    }

    fn show(&mut self, (width, height): (u32, u32), view: &str) {
        let page = format!("http://{}/?{}{view}", self._served.address, view.len());
        self.browser.load(&page, width, height);
        self.browser
            .until("document.querySelector('footer') !== null");
    }

    /// Where a place of the picture is on the screen.
    fn spot(&mut self, x: f64, y: f64) -> [f64; 2] {
        let spot = self.browser.says(&format!(
            "(({{ left, top, width, height }}) => [left + {x} * width, top + {y} * height])(document.getElementById('canvas').getBoundingClientRect())"
        ));
        serde_json::from_value(spot).expect("two numbers")
    }

    fn click(&mut self, x: f64, y: f64) {
        self.drag(&[[x, y]]);
    }

    /// Presses the mouse at the first place and lets it go at the last one.
    fn drag(&mut self, places: &[[f64; 2]]) {
        let spots: Vec<_> = places.iter().map(|&[x, y]| self.spot(x, y)).collect();
        self.browser.mouse("mousePressed", spots[0]);
        for &spot in &spots[1..] {
            self.browser.mouse("mouseMoved", spot);
        }
        self.browser.mouse("mouseReleased", spots[spots.len() - 1]);
    }

    fn touch(&mut self, fingers: &[&[[f64; 2]]]) {
        let steps: Vec<Vec<_>> = fingers
            .iter()
            .map(|step| step.iter().map(|&[x, y]| self.spot(x, y)).collect())
            .collect();
        self.browser.touch("touchStart", &steps[0]);
        for step in &steps[1..] {
            self.browser.touch("touchMove", step);
        }
        self.browser.touch("touchEnd", &[]);
    }

    /// Presses a button by what it does.
    fn act(&mut self, action: &str) {
        self.browser.says(&format!(
            "document.querySelector('[data-do={action}]').click()"
        ));
    }

    /// Writes into a field: `input` while it is typed, `change` when the field is left.
    fn fill(&mut self, field: &str, text: &str, event: &str) {
        self.browser.says(&format!(
            "((field) => {{ field.focus(); field.value = '{text}'; field.dispatchEvent(new Event('{event}', {{ bubbles: true }})) }})(document.querySelector('[name={field}]'))"
        ));
    }

    fn text(&mut self, selector: &str) -> Value {
        self.browser.says(&format!(
            "document.querySelector('{selector}')?.textContent ?? null"
        ))
    }

    fn spoken(&mut self) -> String {
        let spoken = self.text(".editor > [role=status]");
        spoken.as_str().unwrap_or_default().to_owned()
    }

    /// The shapes of the last command.
    fn saved(&mut self) -> Value {
        self.browser.until("document.querySelector('.state').textContent === 'All saved' && daemon.commands.length > 0");
        self.browser.says("daemon.commands.at(-1).shapes")
    }

    /// Selects a zone or another shape in the list.
    fn select(&mut self, key: &str) {
        self.browser.says(&format!(
            "document.querySelector('[data-do=select][data-key=\"{key}\"]').click()"
        ));
    }

    fn screenshot(&mut self, name: &str) {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(path, self.browser.screenshot()).expect("a picture");
    }
}

/// Paths with points on a coarse grid, so that many touch, and on the fine one of the editor.
fn paths() -> Vec<Vec<(f64, f64)>> {
    let mut state = 7_u64;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let path = |index: usize| {
        let steps = if index.is_multiple_of(4) { 10_000 } else { 4 };
        let count = next(6) + 1;
        let mut share = || next(steps + 1) as f64 / steps as f64;
        (0..count).map(|_| (share(), share())).collect()
    };
    (0..3000).map(path).collect()
}

/// The editor shows while one draws what the file would refuse, in the same words.
#[test]
fn editor_and_file_have_one_rule_for_paths() {
    let mut script = PageScript::load();
    for is_closed in [true, false] {
        let check = if is_closed {
            check_polygon
        } else {
            check_polyline
        };
        let paths = paths();
        let expected: Vec<_> = paths.iter().map(|path| check(path).err()).collect();
        let wrong = expected.iter().flatten().count();
        assert!((500..2900).contains(&wrong), "{wrong} wrong paths");
        let found = script.says(&format!(
            "{}.map((path) => page.pathProblem(path, {is_closed})?.text ?? null)",
            json!(paths)
        ));
        let found: Vec<Option<String>> = serde_json::from_value(found).expect("texts");
        for ((path, expected), found) in paths.iter().zip(&expected).zip(&found) {
            assert_eq!(found, expected, "{path:?}");
        }
    }
}

#[test]
fn shapes_change_with_what_names_them() {
    let mut script = PageScript::load();
    let shapes = "page.complete({ zone: { a: { polygon: [[0, 0], [1, 0], [1, 1]], point: 'bottom' }, b: { polygon: [[0, 0], [0.5, 0], [0.5, 0.5]], point: 'centre' } }, \
         line: { l: { points: [[0, 0.5], [1, 0.5]], directions: ['in', 'out'], point: 'bottom' } }, mask: [[[0, 0], [0.1, 0], [0, 0.1]]], \
         prompt: { person: { zones: ['a', 'b'], lines: ['l'], region: 'a' }, car: { zones: ['a'] }, dog: {} } })";
    for (expression, expected) in [
        ("shapes.prompt.dog ?? null", json!(null)),
        (
            "[page.renamed(shapes, 'zone:a', 'c')].map(({ zone, prompt }) => [Object.keys(zone), prompt])[0]",
            json!([["c", "b"], {"person": {"zones": ["c", "b"], "lines": ["l"], "region": "c"}, "car": {"zones": ["c"]}}]),
        ),
        (
            "page.without(shapes, 'zone:a').prompt",
            json!({"person": {"zones": ["b"], "lines": ["l"]}}),
        ),
        (
            "page.without(shapes, 'region:person').prompt.person.region ?? null",
            json!(null),
        ),
        (
            "page.withUser(page.withUser(shapes, 'zone:b', 'dog', true), 'zone:a', 'car', false).prompt",
            json!({"person": {"zones": ["a", "b"], "lines": ["l"], "region": "a"}, "dog": {"zones": ["b"]}}),
        ),
        (
            "page.withValues(shapes, 'line:l', { reset: null }).line.l",
            json!({"points": [[0, 0.5], [1, 0.5]], "directions": ["in", "out"], "point": "bottom"}),
        ),
        (
            "['', 'Drive', 'b', 'a', 'motion', 'c'].map((name) => page.nameProblem(shapes, 'zone', name, 'a') === null)",
            json!([false, false, false, true, false, true]),
        ),
        (
            "page.moved([[0.1, 0.2], [0.9, 0.8]], 0.5, -0.5)",
            json!([[0.2, 0], [1, 0.6]]),
        ),
        // A corner of a region stops at the one across.
        (
            "page.withPoint({ kind: 'region', points: [[0.2, 0.2], [0.4, 0.2], [0.4, 0.4], [0.2, 0.4]] }, 0, [0.7, 0.1])",
            json!([[0.39, 0.1], [0.4, 0.1], [0.4, 0.4], [0.39, 0.4]]),
        ),
        ("page.grabSpot([0, 200], [366, 206], 22)", json!([22, 184])),
        (
            "page.differences(shapes, page.renamed(shapes, 'line:l', 'm')).map(({ key }) => key)",
            json!(["line:l", "line:m"]),
        ),
        (
            "['zone.drive.polygon: edges cross', 'prompt.person.region: x', 'mask: x'].map(page.errorKey)",
            json!(["zone:drive", "region:person", null]),
        ),
    ] {
        let found = script.says(&format!("((shapes) => {expression})({shapes})"));
        assert_eq!(found, expected, "{expression}");
    }
}

/// A zone is asked for, drawn, named, given to a prompt and saved; what is drawn already is seen meanwhile.
#[test]
fn mouse_draws_and_saves_a_zone() {
    let mut editor = Editor::open(DESKTOP, "");
    let labels = "[...document.querySelectorAll('.label text')].map((label) => label.textContent)";
    let names = json!([
        "drive",
        "in",
        "out",
        "kerb",
        "mask 1",
        "mask 2",
        "person, closer"
    ]);
    assert_eq!(editor.browser.says(labels), names);
    assert_eq!(editor.browser.says("daemon.pictures"), json!(["unmasked"]));
    editor.click(0.8, 0.3);
    let wishes =
        "[...document.querySelectorAll('dialog[open] .wishes b')].map((wish) => wish.textContent)";
    assert_eq!(
        editor.browser.says(wishes),
        json!([
            "Only alarms here",
            "Hide this place from every picture",
            "Look closer here",
            "Count who passes"
        ])
    );
    editor.act("wish");
    editor.click(0.95, 0.3);
    editor.click(0.8, 0.45);
    editor.click(0.95, 0.45);
    assert_eq!(
        editor.text(".hint"),
        "Click the corners in order. The first one, or Enter, ends it."
    );
    editor.click(0.87, 0.25);
    let crossing = editor.text(".hint .wrong");
    assert!(
        crossing.as_str().expect("words").starts_with("Edges cross"),
        "{crossing}"
    );
    editor.screenshot("draw-crossing.png");
    editor.browser.press_with("z", 90, CONTROL);
    editor.browser.press_with("z", 90, CONTROL);
    editor.browser.press_with("z", 90, CONTROL);
    editor.click(0.95, 0.45);
    editor.click(0.8, 0.3);
    assert_eq!(editor.spoken(), "Zone zone1 added");
    editor.fill("name", "drive", "input");
    assert_eq!(
        editor.text("#name-error"),
        "There is a zone named drive already."
    );
    editor.browser.says("document.activeElement.blur()");
    editor.act("save");
    let unsaved = "[daemon.commands.length, document.querySelector('[name=name]').value]";
    assert_eq!(editor.browser.says(unsaved), json!([0, "drive"]));
    editor.fill("name", "steps", "change");
    editor
        .browser
        .says("document.querySelector('[name=\"user car\"]').click()");
    editor
        .browser
        .says("document.querySelector('[name=point][value=centre]').click()");
    editor.screenshot("draw-zone.png");
    editor.act("save");
    let saved = editor.saved();
    assert_eq!(
        saved["zone"]["steps"],
        json!({"polygon": [[0.8, 0.3], [0.95, 0.3], [0.95, 0.45]], "point": "centre"})
    );
    assert_eq!(saved["prompt"]["car"], json!({"zones": ["steps"]}));
    let command = "(({ op, cam, seen }) => [op, cam, seen])(daemon.commands[0])";
    assert_eq!(
        editor.browser.says(command),
        json!(["shapes_set", "gate", "1"])
    );
    // Also after it was saved.
    editor.browser.says("document.activeElement.blur()");
    for _ in 0..4 {
        editor.browser.press_with("z", 90, CONTROL);
    }
    editor.act("save");
    editor.browser.until("daemon.commands.length === 2");
    assert_eq!(editor.saved()["zone"]["steps"], json!(null));
    assert_eq!(editor.browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn mouse_draws_a_line_a_mask_and_a_region() {
    let mut editor = Editor::open(DESKTOP, "");
    let begin = |editor: &mut Editor, kind: &str| {
        editor.act("add");
        editor.browser.says(&format!(
            "document.querySelector('[data-kind={kind}]').click()"
        ));
    };
    begin(&mut editor, "line");
    editor.click(0.7, 0.3);
    editor.click(0.95, 0.35);
    editor.browser.press("Enter", 13);
    editor.act("swap");
    begin(&mut editor, "mask");
    for [x, y] in [[0.1, 0.2], [0.2, 0.2], [0.2, 0.3], [0.1, 0.3], [0.1, 0.2]] {
        editor.click(x, y);
    }
    begin(&mut editor, "region");
    editor
        .browser
        .says("document.querySelector('[data-prompt=car]').click()");
    editor.drag(&[[0.75, 0.9], [0.6, 0.8], [0.55, 0.65]]);
    editor.act("save");
    let saved = editor.saved();
    assert_eq!(
        saved["line"]["line1"],
        json!({"points": [[0.7, 0.3], [0.95, 0.35]], "directions": ["out", "in"], "point": "bottom"})
    );
    assert_eq!(
        saved["mask"][2],
        json!([[0.1, 0.2], [0.2, 0.2], [0.2, 0.3], [0.1, 0.3]])
    );
    assert_eq!(
        saved["prompt"]["car"],
        json!({"region": [0.55, 0.65, 0.75, 0.9]})
    );
    // One of the file stays.
    editor.select("mask:0");
    assert_eq!(
        editor
            .browser
            .says("document.querySelector('[data-do=remove]')"),
        json!(null)
    );
    editor.select("mask:2");
    editor.act("remove");
    let focused = "document.activeElement.dataset.key";
    assert_eq!(editor.browser.says(focused), "region:person");
    editor.act("save");
    editor.browser.until("daemon.commands.length === 2");
    assert_eq!(editor.saved()["mask"].as_array().map(Vec::len), Some(2));
}

#[test]
fn keys_move_add_remove_and_undo_points() {
    for size in [PHONE, DESKTOP] {
        let mut editor = Editor::open(size, "");
        editor
            .browser
            .says("document.querySelector('[data-key=\"zone:drive\"]').focus()");
        editor.browser.press("Enter", 13);
        let place = |editor: &mut Editor| {
            editor
                .browser
                .says("document.activeElement.getAttribute('aria-label')")
        };
        let point = |number: u32, of: u32, x: &str, y: &str| {
            format!("Point {number} of {of} of zone drive: {x} % from the left, {y} % from the top")
        };
        assert_eq!(place(&mut editor), point(1, 4, "5", "55"));
        editor.browser.press("Tab", 9);
        assert_eq!(place(&mut editor), point(2, 4, "60", "55"));
        editor.browser.press("ArrowLeft", 37);
        editor.browser.press_with("ArrowDown", 40, SHIFT);
        assert_eq!(place(&mut editor), point(2, 4, "59.9", "56"));
        assert_eq!(editor.spoken(), point(2, 4, "59.9", "56"));
        editor.browser.press("Insert", 45);
        assert_eq!(place(&mut editor), point(3, 5, "59.95", "78"));
        editor.browser.press("Delete", 46);
        editor.browser.press("Delete", 46);
        assert_eq!(place(&mut editor), point(3, 3, "0", "100"));
        editor.browser.press("Delete", 46);
        assert_eq!(editor.spoken(), "This shape needs all its points");
        for _ in 0..4 {
            editor.browser.press_with("z", 90, CONTROL);
        }
        editor.browser.press_with("Z", 90, CONTROL | SHIFT);
        assert_eq!(place(&mut editor), point(3, 4, "60", "100"));
        // The edges are after the points.
        editor.browser.press("Tab", 9);
        editor.browser.press("Tab", 9);
        assert_eq!(place(&mut editor), "Add a point between 1 and 2");
        editor.browser.press("Enter", 13);
        assert_eq!(place(&mut editor), point(2, 5, "32.45", "55.5"));
        editor.browser.press("Escape", 27);
        assert_eq!(
            editor.browser.says("document.querySelector('.point')"),
            json!(null)
        );
        // A shape without a mouse.
        editor
            .browser
            .says("document.querySelector('[data-do=add]').focus()");
        editor.browser.press("Enter", 13);
        editor.browser.press("Tab", 9);
        editor.browser.press("Enter", 13);
        assert_eq!(editor.text(":focus"), "Put one in the middle");
        editor.browser.press("Enter", 13);
        let middle = place(&mut editor);
        assert_eq!(
            middle,
            "Point 1 of 4 of mask 3: 35 % from the left, 35 % from the top"
        );
        assert_eq!(editor.browser.complaints(), Vec::<&Value>::new());
    }
}

#[test]
fn fingers_move_a_corner_zoom_and_remove_a_point() {
    let mut editor = Editor::open(PHONE, "");
    editor.touch(&[&[[0.3, 0.8]]]);
    editor
        .browser
        .until("document.querySelectorAll('.point').length === 4");
    // All targets are in the picture and large enough, also of the corner of the picture.
    let targets = "((whole) => [...document.querySelectorAll('.point .target')].map((target) => target.getBoundingClientRect()) \
         .every((at) => at.width >= 44 && at.height >= 44 && at.left >= whole.left - 1 && at.top >= whole.top - 1 && at.right <= whole.right + 1 && at.bottom <= whole.bottom + 1)) \
         (document.getElementById('canvas').getBoundingClientRect())";
    assert_eq!(editor.browser.says(targets), true);
    editor.screenshot("draw-phone.png");
    editor.touch(&[&[[0.01, 0.99]], &[[0.06, 0.94]], &[[0.11, 0.89]]]);
    let corner = "document.getElementById('point-3').getAttribute('aria-label')";
    assert_eq!(
        editor.browser.says(corner),
        "Point 4 of 4 of zone drive: 10 % from the left, 90 % from the top"
    );
    editor.touch(&[&[[0.1, 0.9]]]);
    editor.act("remove-point");
    assert_eq!(editor.spoken(), "Point 4 removed");
    let before = editor
        .browser
        .says("document.querySelector('.canvas image').getAttribute('width')");
    editor.touch(&[
        &[[0.4, 0.3], [0.6, 0.3]],
        &[[0.3, 0.3], [0.7, 0.3]],
        &[[0.2, 0.3], [0.8, 0.3]],
    ]);
    let after = editor
        .browser
        .says("document.querySelector('.canvas image').getAttribute('width')");
    let [before, after] = [before, after].map(|width| {
        width
            .as_str()
            .and_then(|width| width.parse::<f64>().ok())
            .expect("a width")
    });
    assert!(
        (2.9..3.1).contains(&(after / before)),
        "{before} to {after}"
    );
    assert_eq!(editor.text(".state"), "Not saved yet");
}

#[test]
fn escape_ends_a_drag_where_it_began() {
    let mut editor = Editor::open(DESKTOP, "");
    editor.select("zone:drive");
    let [from, to] = [editor.spot(0.05, 0.55), editor.spot(0.2, 0.4)];
    editor.browser.mouse("mousePressed", from);
    editor.browser.mouse("mouseMoved", to);
    assert_eq!(editor.text(".state"), "Not saved yet");
    editor.browser.press("Escape", 27);
    assert_eq!(editor.text(".state"), "All saved");
    editor.browser.mouse("mouseReleased", to);
    assert_eq!(editor.text(".state"), "All saved");
}

/// Another browser has saved meanwhile: both versions are shown, and either is kept.
#[test]
fn editor_shows_both_versions_of_a_conflict() {
    let mut editor = Editor::open(
        DESKTOP,
        "const theirs = structuredClone(daemon.answer.now); theirs.zone.drive.polygon = [[0.1, 0.7], [0.5, 0.7], [0.5, 1]]; \
         const conflict = () => daemon.refusals.push([409, { ok: false, error: { code: 'conflict', text: 'other shapes', now: theirs, version: '7' } }]);",
    );
    let colours = "['selected', 'theirs'].map((one) => getComputedStyle(document.querySelector(`.shape.${one} .stroke`)).stroke)";
    for keep in [false, true] {
        editor.select("zone:drive");
        editor.drag(&[[0.3, 0.8], [0.32, 0.75]]);
        let mine = editor
            .browser
            .says("document.querySelector('.shape.selected polygon').getAttribute('points')");
        editor.browser.says("conflict()");
        editor.act("save");
        editor
            .browser
            .until("document.querySelector('.conflict') !== null");
        assert_eq!(editor.text(".conflict li"), "Zone drive: not the same");
        let colours = editor.browser.says(colours);
        assert_ne!(colours[0], colours[1]);
        editor.screenshot("draw-conflict.png");
        editor.act(if keep { "keep" } else { "take" });
        if keep {
            let saved = editor.saved();
            assert_ne!(
                saved["zone"]["drive"]["polygon"],
                json!([[0.1, 0.7], [0.5, 0.7], [0.5, 1]])
            );
            assert_eq!(editor.browser.says("daemon.commands.at(-1).seen"), "7");
        } else {
            assert_eq!(editor.text(".state"), "All saved");
            // Mine is one step back.
            editor.act("undo");
            editor.select("zone:drive");
            let back = editor
                .browser
                .says("document.querySelector('.shape.selected polygon').getAttribute('points')");
            assert_eq!(back, mine);
            editor.select("zone:drive");
            editor.act("redo");
        }
    }
}

#[test]
fn refusals_are_shown_beside_their_shapes() {
    let mut editor = Editor::open(
        DESKTOP,
        "daemon.refusals.push([422, { ok: false, error: { code: 'bad_value', text: 'two mistakes', errors: ['line.kerb.reset: no time', 'mask: too many'] } }]);",
    );
    editor.select("line:kerb");
    editor.fill("reset", "noon", "change");
    editor.act("save");
    editor
        .browser
        .until("document.querySelector('.editor-foot [role=alert]') !== null");
    assert_eq!(
        editor
            .browser
            .says("document.getElementById('row-line:kerb').querySelector('.wrong').textContent"),
        "line.kerb.reset: no time"
    );
    assert_eq!(
        editor.text(".editor-foot [role=alert]"),
        "Not saved.mask: too many"
    );
    assert_eq!(editor.text(".state"), "Not saved yet");
}

#[test]
fn effect_on_stored_events_is_shown_before_saving() {
    let mut editor = Editor::open(
        PHONE,
        "daemon.preview = { events: 31, counted: 14, days: 7 };",
    );
    assert_eq!(editor.text(".preview"), json!(null));
    let narrow = |editor: &mut Editor| {
        editor.select("zone:drive");
        editor.drag(&[[0.6, 0.55], [0.5, 0.6]]);
    };
    narrow(&mut editor);
    let until = |editor: &mut Editor, words: &str| {
        editor.browser.until(&format!(
            "document.querySelector('.preview')?.textContent === {words:?}"
        ));
    };
    until(
        &mut editor,
        "Of 31 events of the last 7 days, 14 would have counted.",
    );
    editor
        .browser
        .says("daemon.preview = { reason: 'Only narrower shapes can be previewed.' }");
    editor.act("add-point");
    until(&mut editor, "Only narrower shapes can be previewed.");
    editor.browser.says("daemon.preview = null");
    editor.act("undo");
    editor
        .browser
        .until("document.querySelector('.preview') === null");
}

#[test]
fn leaving_with_unsaved_changes_asks() {
    // The shapes are read again after a failure.
    let mut editor = Editor::open(PHONE, "daemon.failures = 1;");
    editor
        .browser
        .until("document.querySelector('[data-key=\"line:kerb\"]')");
    editor.select("line:kerb");
    editor.act("swap");
    for stays in [true, false] {
        editor
            .browser
            .says("document.querySelector('.views a').click()");
        editor
            .browser
            .until("document.querySelector('dialog').open");
        assert_eq!(editor.browser.says("location.hash"), "#draw/gate");
        assert_eq!(editor.text("#dialog-title"), "Leave without saving?");
        editor.act(if stays { "cancel" } else { "leave" });
        if stays {
            assert_eq!(editor.text(".state"), "Not saved yet");
        }
    }
    editor
        .browser
        .until("document.getElementById('h-cameras') !== null");
}

/// Without a login, on another box of a fleet: everything is seen, nothing moves, and the page says what to do. A stream of another
/// form is said too.
#[test]
fn those_who_may_not_change_shapes_see_them() {
    let mut editor = Editor::start(
        HttpConfig::default(),
        "Object.assign(daemon.answer, { drawn_size: [640, 480], has_other_aspect: true });",
    );
    editor.show(DESKTOP, "#draw/gate");
    editor
        .browser
        .until("document.querySelector('.canvas image') !== null");
    assert_eq!(editor.browser.says("daemon.pictures"), json!(["now"]));
    let notes = editor.text(".notes");
    let notes = notes.as_str().expect("words");
    assert!(notes.contains("Set http.tokens"), "{notes}");
    assert!(
        notes.contains("1280 × 720 now; the shapes were drawn on 640 × 480"),
        "{notes}"
    );
    let mut owned = Editor::open(
        PHONE,
        "daemon.answer.owner = { name: 'edge2', url: 'http://edge2.example:9464/' };",
    );
    assert_eq!(
        owned
            .browser
            .says("document.querySelector('.notes a').href"),
        "http://edge2.example:9464/"
    );
    // The view is reached from the box that does not watch the camera.
    owned.show(PHONE, "#now");
    let link = "document.querySelector('[aria-labelledby=h-fleet] a[href=\"#draw/lobby\"]')";
    owned
        .browser
        .says(&format!("{link}.closest('details').open = true"));
    owned.browser.says(&format!("{link}.click()"));
    owned
        .browser
        .until("document.querySelector('.notes a') !== null && document.querySelector('[name=camera]').value === 'lobby'");
    owned.show(PHONE, "#draw/gate");
    owned
        .browser
        .until("document.querySelector('.canvas image') !== null && document.querySelector('.shape-list') !== null");
    for editor in [&mut editor, &mut owned] {
        editor.click(0.3, 0.8);
        assert_eq!(editor.text(".shape-row.selected b"), "drive");
        editor.drag(&[[0.3, 0.8], [0.4, 0.6]]);
        let controls = "[...document.querySelectorAll('.point, [data-do=save], [data-do=add], [data-do=remove], .inspector input:enabled')].length";
        assert_eq!(editor.browser.says(controls), 0);
        editor.act("copy");
        let text = editor
            .browser
            .says("document.querySelector('dialog textarea').value");
        assert!(
            text.as_str()
                .is_some_and(|text| text.starts_with("[camera.gate.zone.drive]")),
            "{text}"
        );
    }
}

/// At each size, with a shape selected: nothing is cut off, every control is reached by Tab, shows it and has a name.
#[test]
fn editor_fits_each_screen_and_keys_and_readers_reach_everything() {
    for size in [(320, 568), PHONE, DESKTOP] {
        let mut editor = Editor::open(size, "");
        editor.select("zone:drive");
        let widths = editor
            .browser
            .says("[innerWidth, document.documentElement.scrollWidth]");
        assert_eq!(widths, json!([size.0, size.0]));
        let small = "[...document.querySelectorAll('.editor button, .editor select, .editor .tick')].map((one) => [one.textContent, one.getBoundingClientRect()]) \
             .filter(([, at]) => at.height < 44 || at.width < 44).map(([text]) => text)";
        assert_eq!(editor.browser.says(small), json!([]));
        let controls = "[...document.querySelectorAll('.editor :is(button, input, select, [tabindex])')].filter((one) => one.type !== 'radio' || one.checked)";
        let count = editor
            .browser
            .says(&format!("{controls}.length"))
            .as_u64()
            .expect("a number");
        editor.browser.says(&format!("{controls}[0].focus()"));
        for control in 0..count {
            let at = editor
                .browser
                .says(&format!("{controls}.indexOf(document.activeElement)"));
            assert_eq!(at, control);
            editor.browser.press("Tab", 9);
        }
        let nodes = editor.browser.accessible_nodes();
        let nameless: Vec<_> = nodes.iter().filter(|node| node.name.is_empty()).collect();
        assert!(nameless.is_empty(), "{nameless:#?}");
        editor.screenshot(&format!("draw-{}.png", size.0));
        assert_eq!(editor.browser.complaints(), Vec::<&Value>::new());
    }
}

/// On its card in the first view, which links the view; saved as it is, it is as wanted.
#[test]
fn stream_of_another_form_is_said_on_its_card() {
    let mut editor = Editor::open(
        DESKTOP,
        "Object.assign(daemon.answer, { drawn_size: [640, 480], has_other_aspect: true });",
    );
    editor.act("save");
    editor.saved();
    editor.show(DESKTOP, "#now");
    let notes = editor.browser.says(
        "[...document.querySelectorAll('.card')].map((card) => card.querySelector('a[href^=\"#draw/\"]').closest('p').textContent)",
    );
    let notes = notes.as_array().expect("notes");
    assert_eq!(notes[0], "Draw gateTry gate");
    let note = notes[1].as_str().expect("words");
    assert!(
        note.contains("drawn on 640 × 480. Nothing moves by itself"),
        "{note}"
    );
    editor
        .browser
        .says("document.querySelector('#cam-yard .reason a[href=\"#draw/yard\"]').click()");
    editor
        .browser
        .until("document.querySelector('[name=camera]')?.value === 'yard'");
    assert_eq!(editor.browser.complaints(), Vec::<&Value>::new());
}
