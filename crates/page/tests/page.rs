//! The page as people and programs get it: over HTTP, and in a headless Chromium.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[path = "page/board.rs"]
mod board;
#[path = "page/chromium.rs"]
mod chromium;
#[path = "page/devtools.rs"]
mod devtools;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use board::{Painted, api, fleet, long_name, site, webhooks};
use devtools::Browser;

use spotter_config::HttpConfig;
use spotter_core::{Clock, StreamCounters, SystemClock, TriggerId, TriggerReport};
use spotter_page::{Readiness, ServedPage, Status};

/// The page on loopback, which ends with the test.
struct Served {
    address: SocketAddr,
    readiness: Readiness,
    page: ServedPage,
    _runtime: tokio::runtime::Runtime,
}

fn serve(status: Status) -> Served {
    let served = starting();
    served.page.open(Arc::new(Painted::new(status)));
    served
}

/// A page of a daemon that has not started yet.
fn starting() -> Served {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let readiness = Readiness::new(Arc::clone(&clock));
    let config = HttpConfig {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        names: vec!["nvr.example".into()],
    };
    let page = runtime.block_on(ServedPage::start(&config, readiness.clone(), &clock));
    let page = page.expect("a free port").expect("a page");
    Served {
        address: page.address(),
        readiness,
        page,
        _runtime: runtime,
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    answer_with(address, path, &format!("Host: {address}\r\n"))
}

/// Head and body of an answer.
fn parts(answer: &str) -> (String, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
    (head.to_ascii_lowercase(), body)
}

#[test]
fn page_answers_its_paths_and_rejects_others() {
    let served = serve(site(2));
    let ask = |path: &str| get(served.address, path);
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml; charset=utf-8"),
        ("/status.json", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/camera/gate.jpg?look=7", "image/jpeg"),
        ("/healthz", "text/plain; charset=utf-8"),
    ] {
        let answer = ask(path);
        let (head, _) = parts(&answer);
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        assert!(
            head.contains(&format!("content-type: {kind}\r\n")),
            "{path}: {head}"
        );
        for header in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header} is not in {head}");
        }
    }
    for path in [
        "/camera/dock.jpg",
        "/camera/gate.png",
        "/camera/..%2f..",
        "/nothing",
    ] {
        assert!(ask(path).starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(ask("/healthz").ends_with("ok\n"));
    assert!(ask("/readyz").starts_with("HTTP/1.1 503"));
    served.readiness.turned(true);
    assert!(ask("/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn health_has_a_line_for_each_trouble() {
    let troubles = ["camera yard: login refused", "broker: login refused"];
    let served = serve(Status {
        troubles: troubles.map(str::to_owned).to_vec(),
        ..site(2)
    });
    let sick = get(served.address, "/healthz");
    assert!(sick.starts_with("HTTP/1.1 503"), "{sick}");
    assert!(
        sick.ends_with(&format!("{}\n", troubles.join("\n"))),
        "{sick}"
    );
    // Health has lines of its own, and `/status.json` the states that they come from.
    assert!(!get(served.address, "/status.json").contains("troubles"));
}

#[test]
fn page_of_a_starting_daemon_says_so() {
    let served = starting();
    for path in ["/status.json", "/metrics", "/healthz", "/readyz"] {
        let answer = get(served.address, path);
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.ends_with("the model is being opened\n"),
            "{path}: {answer}"
        );
    }
}

/// The page's answer to a request with these headers.
fn answer_with(address: SocketAddr, path: &str, headers: &str) -> String {
    request(address, "GET", path, headers)
}

fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

// Faults: H7.
#[test]
fn page_answers_its_names_and_no_others() {
    let served = serve(site(1));
    for (host, status) in [
        ("nvr.example", "200"),
        ("localhost:9464", "200"),
        ("192.0.2.1:9464", "200"),
        ("evil.example", "421"),
        ("localhost.evil.example", "421"),
        ("", "421"),
    ] {
        for path in ["/", "/camera/gate.jpg", "/healthz"] {
            let answer = answer_with(served.address, path, &format!("Host: {host}\r\n"));
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{host} {path}: {answer}"
            );
        }
    }
    for (method, status) in [("HEAD", "200"), ("POST", "405"), ("OPTIONS", "405")] {
        let answer = request(served.address, method, "/", "Host: localhost\r\n");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

/// Everything that a node may have.
fn everything(cameras: usize) -> Status {
    let mut status = site(cameras);
    status.cameras[0].triggers = vec![TriggerReport {
        id: TriggerId::new("bell").expect("an id"),
        is_active: false,
        activations: 3,
    }];
    status.fleet = Some(fleet());
    status.webhooks = webhooks();
    status.api = Some(api());
    status
}

// Faults: H13.
#[test]
fn page_without_script_links_status_json() {
    let page = get(starting().address, "/");
    let (head, html) = parts(&page);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (_, note) = html.split_once("<noscript>").expect("a note");
    let (note, _) = note.split_once("</noscript>").expect("its end");
    assert!(
        note.contains("JavaScript") && note.contains("href=\"/status.json\""),
        "{note}"
    );
}

/// Of version 1; a key is never removed.
const KEYS: &str = include_str!("page/status_keys.txt");

#[test]
fn status_json_has_each_key_of_its_version() {
    let served = serve(everything(16));
    let answer = get(served.address, "/status.json");
    let json: serde_json::Value = serde_json::from_str(parts(&answer).1).expect("JSON");
    let mut keys = BTreeSet::new();
    add_keys("", &json, &mut keys);
    for key in KEYS.lines() {
        assert!(keys.contains(key), "{key} is not in {keys:#?}");
    }
    assert_eq!(
        keys.len(),
        KEYS.lines().count(),
        "a new key: add it to the list"
    );

    let camera = &json["cameras"][0];
    assert_eq!((&json["v"], &camera["id"]), (&1.into(), &"gate".into()));
    assert!(camera["look"]["found"][0]["place"]["box"][3].is_number());
    assert_eq!(json["cameras"][1]["state"], "auth_failed");
    assert_eq!(camera["prompts"][0]["lines"]["kerb"]["out"], 9);
    let kerb = serde_json::json!({"id": "kerb", "points": [[0.46, 0.55], [0.42, 0.95]], "directions": ["in", "out"]});
    assert_eq!(camera["lines"], serde_json::json!([kerb]));
    assert_eq!(
        camera["zones"][0]["polygon"][2],
        serde_json::json!([0.99, 0.97])
    );
    assert_eq!(camera["frames"]["open"], 3);
    assert_eq!(
        json["broker"]["dropped"][0],
        serde_json::json!(["offline", 12])
    );
    assert_eq!(json["fleet"]["nodes"][0]["cameras"][1], "yard");
    assert_eq!(json["webhooks"][0]["waiting"], 12);
    assert_eq!(json["api"]["answered"], 1203);
}

/// `.cameras[].look.frame`
fn add_keys(path: &str, value: &serde_json::Value, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                add_keys(&format!("{path}.{key}"), value, keys);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                add_keys(&format!("{path}[]"), item, keys);
            }
        }
        _ => _ = keys.insert(path.to_owned()),
    }
}

// Faults: H14.
#[test]
fn browser_draws_the_values_of_status_json() {
    let mut status = everything(2);
    status.config.errors = vec!["site.toml:4:1 unknown key".into()];
    let served = serve(status);
    let seen = chromium::dump(&format!("http://{}/", served.address));
    for part in [
        "<h2 id=\"h-cameras\">Cameras</h2>",
        "role=\"status\"",
        "1 of 2 cameras streaming",
        "<a href=\"#cam-yard\">yard</a>",
        "alt=\"Camera gate at 10:15:30 UTC: ",
        "login refused",
        "waiting for a trigger",
        "a man &amp; a &lt;dog&gt;",
        "<caption>Frames since the start</caption>",
        "1\u{202f}203",
        "not trusted: looks like time zone",
        "fleet hall incomplete",
        "webhook door failing",
        "answered with HTTP 503. Next try in 32 s.",
        "127.0.0.1:2020, 2 tokens",
        "<p>No box has: vault.</p>",
        "<summary>2 cameras</summary><p>gate, yard</p>",
        "points=\"0.4600,0.5500 0.4200,0.9500\"",
        "<tspan class=\"ink0\">12</tspan> <tspan class=\"plain\">in</tspan>",
        "<tspan class=\"plain\">corner</tspan>",
        "<li>site.toml:4:1 unknown key</li>",
    ] {
        assert!(seen.dom.contains(part), "{part} is not in\n{}", seen.dom);
    }
    assert!(!seen.dom.contains("noscript"), "{}", seen.dom);
}

// Faults: H12.
#[test]
fn browser_of_a_starting_daemon_shows_why_it_is_empty() {
    let served = starting();
    let seen = chromium::dump(&format!("http://{}/", served.address));
    let starting = "role=\"alert\">Spotter is starting: the model is being opened";
    assert!(seen.dom.contains(starting), "{}", seen.dom);
}

#[test]
fn page_shows_each_counter_of_a_stream() {
    let script = include_str!("../src/assets/page.js");
    for counter in StreamCounters::ALL {
        let shown = format!("stream.{})", counter.key);
        assert!(script.contains(&shown), "{shown}");
    }
}

#[test]
fn each_metric_of_the_dashboard_exists() {
    let served = serve(everything(2));
    let page = get(served.address, "/metrics");
    let exposed: BTreeSet<&str> = parts(&page)
        .1
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let dashboard = include_str!("../../../configs/grafana/spotter.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 8, "{} panels", panels.len());
    let mut used = BTreeMap::new();
    for panel in panels {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("a query");
            let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for name in words.filter(|word| word.starts_with("spotter_")) {
                used.insert(name.to_owned(), query.to_owned());
            }
        }
    }
    assert!(used.len() >= 10, "{used:?}");
    for (name, query) in used {
        assert!(
            exposed.contains(name.as_str()),
            "{name} of {query} is not in {exposed:?}"
        );
    }
}

/// What a browser makes of it: the script runs, nothing is refused by the policy or asked of another machine, and the
/// page follows what happens.
#[test]
fn page_in_a_browser_updates_and_loads_nothing_from_elsewhere() {
    let name = long_name();
    let mut view = site(4);
    view.cameras[2].id.clone_from(&name);
    let served = serve(view);
    let seen = chromium::dump(&format!("http://{}/", served.address));
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    assert!(seen.elsewhere.is_empty(), "{:?}", seen.elsewhere);
    let paths: Vec<&str> = seen.asked.iter().map(String::as_str).collect();
    for path in ["/page.css", "/page.js", "/icon.svg"] {
        assert!(
            paths.iter().any(|asked| asked.ends_with(path)),
            "{path}: {paths:?}"
        );
    }
    let polls = paths
        .iter()
        .filter(|asked| asked.ends_with("/status.json?pictured"));
    assert!(
        polls.count() >= 2,
        "the figures are asked for again: {paths:?}"
    );
    // Each view is a look later than the one before.
    assert!(seen.dom.contains(&format!("h-{name}")), "{}", seen.dom);
    let first = "/camera/gate.jpg?look=1\"";
    assert!(!seen.dom.contains(first), "it did not follow: {}", seen.dom);
    assert!(
        seen.dom
            .contains("id=\"away\" class=\"away\" role=\"alert\" hidden"),
        "{}",
        seen.dom
    );
}

/// A browser with the page's script, as `page` of an expression.
struct PageScript {
    browser: Browser,
    _served: Served,
}

impl PageScript {
    fn load() -> Self {
        let (mut browser, served) = (Browser::start(), starting());
        browser.load(&format!("http://{}/", served.address), 390, 844);
        Self {
            browser,
            _served: served,
        }
    }

    /// What the expression gives.
    fn says(&mut self, expression: &str) -> serde_json::Value {
        self.browser
            .says(&format!("import('/page.js').then((page) => {expression})"))
    }
}

#[test]
fn people_read_two_units_and_three_digits() {
    let mut script = PageScript::load();
    let durations = script.says("[59, 60, 187, 7500, 788400].map(page.duration)");
    let expected = ["59 s", "1 min", "3 min 7 s", "2 h 5 min", "9 d 3 h"];
    assert_eq!(durations, serde_json::json!(expected));
    let times = script.says(
        "[420, 41000].map(page.ago).concat(page.clockTime(1787393730123), page.machineTime(1787393730123))",
    );
    let expected = ["0.4 s ago", "41 s ago", "10:15:30", "2026-08-22T10:15:30Z"];
    assert_eq!(times, serde_json::json!(expected));
    let latencies =
        script.says("[0.004, 0.9951, 9.94, 9.96, 999.4, 999.6, 20000].map(page.millis)");
    let expected = [
        "0.00 ms", "1.0 ms", "9.9 ms", "10 ms", "999 ms", "1.0 s", "20 s",
    ];
    assert_eq!(latencies, serde_json::json!(expected));
    let numbers = script.says(
        "[7, 48211, 1000000].map(page.number).concat([1, 0].map((n) => page.counted(n, 'camera')))",
    );
    let expected = [
        "7",
        "48\u{202f}211",
        "1\u{202f}000\u{202f}000",
        "1 camera",
        "0 cameras",
    ];
    assert_eq!(numbers, serde_json::json!(expected));
}

#[test]
fn scales_are_round_and_overlapping_looks_use_different_lanes() {
    let mut script = PageScript::load();
    let tops = script.says("[0, 1, 1.1, 20, 20.1, 66, 1000, 1000.1].map(page.roundUp)");
    assert_eq!(tops, serde_json::json!([1, 1, 2, 20, 50, 100, 1000, 2000]));
    let lanes = "(bars) => { \
         const looks = bars.map(([from, to]) => ({ camera: 'gate', marks_ms: [from, from, from, from, to] })); \
         const plot = page.timeline({ bars: looks, span_ms: 100, device: 'cpu', busy_pct: 0 }); \
         return [plot.getAttribute('class'), [...plot.querySelectorAll('rect')].map((look) => look.getAttribute('y'))] }";
    let four = script.says(&format!(
        "({lanes})([[0, 10], [5, 15], [10, 20], [11, 12]])"
    ));
    let expected = serde_json::json!(["timeline lanes3", ["1", "13", "1", "25"]]);
    assert_eq!(four, expected);
    let none = script.says(&format!("({lanes})([])"));
    assert_eq!(none, serde_json::json!(["timeline lanes1", []]));
    let crowd = script.says(&format!("({lanes})(Array(40).fill([0, 1]))[0]"));
    assert_eq!(crowd, "timeline lanes16");
}

#[test]
fn words_go_to_a_free_place_inside_the_picture() {
    let mut script = PageScript::load();
    let places = "(words, chars, places) => { \
         words.write([['plain', 'x'.repeat(chars)]], places.map(([x, y]) => ({ x, y, dx: 0, dy: 0, anchor: 'start' }))); \
         const text = words.drawn.at(-1); return [text.getAttribute('x'), text.getAttribute('y')] }";
    // Without a free place, the one that covers least.
    let found = script.says(&format!(
        "((write, words) => [write(words, 6, [[0.4, 0.5], [0.42, 0.5], [0.4, 0.7]]), write(words, 6, [[0.4, 0.5], [0.42, 0.5], [0.4, 0.7]]), \
         words.keepFree(0.5, 0.2, 20), write(words, 3, [[0.5, 0.2], [0.5, 0.3]]), write(words, 3, [[0.5, 0.3], [0.5, 0.33]])])({places}, new page.PictureWords(16 / 9))"
    ));
    let expected = serde_json::json!([
        ["40%", "50%"],
        ["40%", "70%"],
        null,
        ["50%", "30%"],
        ["50%", "33%"]
    ]);
    assert_eq!(found, expected);
    let is_inside = script.says(
        "((words) => [[-0.1, 0], [0.99, 0.5], [0.5, 1], [1, 0.02]].map(([x, y]) => { \
         const { left, top, right, bottom } = words.area(8, words.inside(8, { x, y, dx: 0, dy: 0, anchor: 'start' })); \
         return left >= 0 && top >= 0 && right <= words.whole.right && bottom <= words.whole.bottom }))(new page.PictureWords(16 / 9))",
    );
    assert_eq!(is_inside, serde_json::json!([true, true, true, true]));
    assert_eq!(
        script.says("page.short('ä'.repeat(15))"),
        "ä".repeat(14) + "…"
    );
}

#[test]
fn first_direction_is_named_to_the_right_of_the_line() {
    let mut script = PageScript::load();
    // Seen from its first point, along it, on a screen of twice the width.
    for (points, side) in [
        ("[[0.2, 0.5], [0.8, 0.5]]", [0, 1]),
        ("[[0.8, 0.5], [0.2, 0.5]]", [0, -1]),
        ("[[0.5, 0.2], [0.5, 0.8]]", [-1, 0]),
        ("[[0.5, 0.8], [0.5, 0.2]]", [1, 0]),
        ("[[0.25, 0], [0.75, 1]]", [-1, 1]),
    ] {
        let sides = script.says(&format!(
            "((spot) => [[spot.x, spot.y], ...page.bothSides(spot, 16).map(({{ dx, dy }}) => [dx, dy - 4.5].map((pixels) => \
             Math.abs(pixels) < 1 ? 0 : Math.sign(pixels)))])(page.lineSpot({{ points: {points} }}, 2, 0.5))"
        ));
        let left = side.map(|way: i32| -way);
        assert_eq!(
            sides,
            serde_json::json!([[0.5, 0.5], side, left]),
            "{points}"
        );
    }
    // 0.4 across on a screen of twice the width is as long as 0.8 down.
    let middle = script.says(
        "[0.5, 0.75, 1].map((share) => page.lineSpot({ points: [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]] }, 2, share)) \
         .map(({ x, y }) => [x, y].map((at) => Math.round(at * 1e9) / 1e9))",
    );
    assert_eq!(
        middle,
        serde_json::json!([[0.5, 0.1], [0.5, 0.5], [0.5, 0.9]])
    );
}

/// All controls; those in a `noscript` are for browsers without scripts.
const CONTROLS: &str = "[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')] \
     .filter((control) => !control.closest('noscript'))";
/// Where the keyboard is: which control, and whether it shows.
const FOCUS: &str = "(() => { const at = document.activeElement; \
     return [CONTROLS.indexOf(at), getComputedStyle(at).outlineStyle !== 'none'] })()";

/// The page fits a phone, the narrowest screen that WCAG 2.2 requires (1.4.10) and a desktop, also with all details open, long
/// names and long errors. All controls are reached by keys and keep the focus over updates, and each control and picture has
/// an accessible name.
#[test]
fn it_fits_each_screen_and_keys_and_readers_reach_everything() {
    let mut view = site(6);
    view.cameras[1].id = long_name();
    view.fleet = Some(fleet());
    view.webhooks = webhooks();
    view.config.errors = vec![format!(
        "site.toml:4:1 camera.{}: unknown key",
        "x".repeat(90)
    )];
    let served = serve(view);
    let mut browser = Browser::start();
    for (width, height) in [(390, 844), (320, 568), (1200, 900)] {
        browser.open(&format!("http://{}/", served.address), width, height);
        let screen = browser.screenshot();
        let name = format!("page-{width}x{height}.png");
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, &screen).expect("a picture");
        println!("{}", path.display());
        let screen = spotter_pictures::read(&path).expect("a PNG");
        assert_eq!(screen.size(), (width as usize, height as usize));
        let rows = (0..screen.height()).map(|y| screen.row(0, y));
        let colours: BTreeSet<_> = rows.flat_map(|row| row.chunks(3)).collect();
        assert!(colours.len() > 100, "{} colours", colours.len());

        let widths = "[innerWidth, document.documentElement.scrollWidth]";
        let opened = "document.querySelectorAll('details').forEach((d) => (d.open = true))";
        for _ in 0..2 {
            assert_eq!(browser.says(widths), serde_json::json!([width, width]));
            browser.says(opened);
        }
    }

    let controls = browser.says(&format!("{CONTROLS}.length"));
    let controls = controls.as_u64().expect("a number");
    assert!(controls > 6, "{controls} controls");
    for control in 0..controls {
        browser.press("Tab", 9);
        let focus = browser.says(&FOCUS.replace("CONTROLS", CONTROLS));
        assert_eq!(focus, serde_json::json!([control, true]));
    }
    // Enter on details closes them, and the keyboard stays there over what comes next.
    browser.says("document.querySelector('summary').focus()");
    browser.press("Enter", 13);
    let first = browser.says("document.querySelector('.still img').src");
    let followed = format!(
        "new Promise((done) => {{ const look = () => document.querySelector('.still img').src === {first} \
         ? setTimeout(look, 50) : done(true); look() }})"
    );
    assert_eq!(browser.says(&followed), true);
    let stays = "[document.activeElement.tagName, document.querySelector('details').open]";
    assert_eq!(browser.says(stays), serde_json::json!(["SUMMARY", false]));

    let nodes = browser.accessible_nodes();
    let of = |is: fn(&devtools::AccessibleNode) -> bool| nodes.iter().filter(move |node| is(node));
    let focusable = of(|node| node.is_focusable).count() as u64;
    assert_eq!(focusable, controls, "{nodes:#?}");
    assert!(of(|node| node.role == "image").count() > 6, "{nodes:#?}");
    let nameless: Vec<_> = of(|node| node.name.is_empty()).collect();
    assert!(nameless.is_empty(), "{nameless:#?}");
}

/// Of all words over pictures: those that cover another one of their picture, and those that are cut off at its edge.
const UNREADABLE: &str = "[...document.querySelectorAll('.still')].flatMap((still) => { \
     const whole = still.getBoundingClientRect(); \
     const words = [...still.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]); \
     const covers = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom; \
     return words.filter(([, at], index) => words.slice(index + 1).some(([, other]) => covers(at, other)) \
       || at.left < whole.left || at.right > whole.right || at.top < whole.top || at.bottom > whole.bottom) \
       .map(([text]) => text) })";

/// The README's picture has as many words over it as are readable at all.
#[test]
fn words_over_a_picture_do_not_cover_each_other() {
    let served = serve(readme());
    let mut browser = Browser::start();
    for (width, height) in [(320, 568), (390, 844), (1200, 900)] {
        browser.open(&format!("http://{}/", served.address), width, height);
        let words = browser.says("document.querySelectorAll('.still text').length");
        assert!(words.as_u64() > Some(6), "{words} words");
        assert_eq!(browser.says(UNREADABLE), serde_json::json!([]), "{width}");
    }
}

/// A camera with people, cars, a zone and a line.
fn readme() -> Status {
    let mut status = site(1);
    if let Some(look) = &mut status.cameras[0].looks.look {
        look.found.pop();
    }
    status
}

/// The picture of the README.
#[test]
#[ignore = "rewrites target/tmp/status-page.png for docs/status-page.png"]
fn readme_picture_is_drawn() {
    let served = serve(readme());
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", served.address), 900, 640);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("status-page.png");
    fs::write(path, browser.screenshot()).expect("a picture");
}
