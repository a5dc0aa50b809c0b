//! The page as people and programs get it: over HTTP, and in a headless Chromium.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

#[path = "page/devtools.rs"]
mod devtools;
#[path = "page/draw.rs"]
mod draw;
#[path = "page/events.rs"]
mod events;
#[path = "page/judge.rs"]
mod judge;
#[path = "page/memory.rs"]
mod memory;
#[path = "page/site.rs"]
mod site;
#[path = "page/trial.rs"]
mod trial;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use devtools::Browser;
use serde_json::{Value, json};
use site::{LONG_NAME, Painted, site, streaming_site};
use spotter_config::{HttpConfig, Secret};
use spotter_core::{Clock, NodeId, StreamCounters, StreamFault, SystemClock};
use spotter_page::{Readiness, ServedPage, TroubleKind};
use strum::{IntoEnumIterator as _, VariantArray as _};

/// The page on loopback, which ends with the test.
struct Served {
    address: SocketAddr,
    readiness: Readiness,
    page: ServedPage,
    _runtime: tokio::runtime::Runtime,
}

fn serve(site: Value) -> Served {
    let served = starting();
    served.page.open(Arc::new(Painted::new(site)));
    served
}

/// A page of a daemon that has not started yet.
fn starting() -> Served {
    starting_with(HttpConfig::default())
}

fn starting_with(config: HttpConfig) -> Served {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let readiness = Readiness::new(Arc::clone(&clock));
    let config = HttpConfig {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        names: vec!["nvr.example".into()],
        ..config
    };
    let node = NodeId::new("edge1").expect("a name");
    let page = runtime.block_on(ServedPage::start(&node, &config, readiness.clone(), &clock));
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
        ("/main.js", "text/javascript; charset=utf-8"),
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
    let served = starting();
    let mut painted = Painted::new(site(1));
    painted.troubles = troubles.map(str::to_owned).into();
    served.page.open(Arc::new(painted));
    let sick = get(served.address, "/healthz");
    assert!(sick.starts_with("HTTP/1.1 503"), "{sick}");
    assert!(
        sick.ends_with(&format!("{}\n", troubles.join("\n"))),
        "{sick}"
    );
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
        for path in ["/", "/status.json", "/healthz"] {
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

// Faults: H13.
#[test]
fn page_without_script_links_status_json() {
    let page = get(starting().address, "/");
    let (head, html) = parts(&page);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (_, note) = html.split_once("<noscript>").expect("a note");
    let (note, _) = note.split_once("</noscript>").expect("its end");
    assert!(
        note.contains("JavaScript") && note.contains("href=\"status.json\""),
        "{note}"
    );
}

// Faults: H14.
/// The script runs, nothing is refused by the policy or asked of another machine, and the page follows what happens.
#[test]
fn browser_draws_status_json_and_loads_nothing_from_elsewhere() {
    let mut site = site(4);
    site["cameras"][2]["id"] = LONG_NAME.into();
    site["config"]["errors"] = json!(["site.toml:4:1 unknown key"]);
    let served = serve(site);
    let page = format!("http://{}/", served.address);
    let mut browser = Browser::start();
    browser.open(&page, 390, 844);
    browser.follow();
    let dom = browser.says("document.documentElement.outerHTML");
    let dom = dom.as_str().expect("a text");
    for part in [
        "<h2 id=\"h-cameras\">Cameras</h2>",
        "role=\"status\"",
        "1 of 4 cameras streaming",
        "<a href=\"#cam-yard\">yard</a>",
        &format!("h-{LONG_NAME}"),
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
        "Until then Spotter tries rarely",
        "<a href=\"#help/webhooks.md/delivery\">More about “webhook failing”</a>",
        "<summary>2 cameras</summary><p><a href=\"#draw/gate\">gate</a>, <a href=\"#draw/yard\">yard</a></p>",
        "points=\"0.4600,0.5500 0.4200,0.9500\"",
        "<tspan class=\"ink0\">12</tspan> <tspan class=\"plain\">in</tspan>",
        "<tspan class=\"plain\">corner</tspan>",
        "<li>site.toml:4:1 unknown key</li>",
        "id=\"away\" class=\"away\" role=\"alert\" hidden",
    ] {
        assert!(dom.contains(part), "{part} is not in\n{dom}");
    }
    assert!(!dom.contains("noscript"), "{dom}");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
    let asked = browser.asked();
    for path in [
        "page.css",
        "main.js",
        "dom.js",
        "now.js",
        "status.json?pictured",
        "status.events?pictured",
    ] {
        assert!(asked.contains(&&*format!("{page}{path}")), "{asked:?}");
    }
    assert!(asked.iter().all(|url| url.starts_with(&page)), "{asked:?}");
}

// Faults: H12.
#[test]
fn browser_of_a_starting_daemon_shows_why_it_is_empty() {
    let (served, mut browser) = (starting(), Browser::start());
    browser.load(&format!("http://{}/", served.address), 390, 844);
    browser.until("document.querySelector('[role=alert]').textContent.startsWith('Spotter is starting: the model is being opened')");
    served.page.open(Arc::new(Painted::new(site(1))));
    browser.until("document.querySelector('footer') !== null");
}

#[test]
fn page_shows_each_counter_of_a_stream() {
    let script = include_str!("../src/assets/now.js");
    for counter in StreamCounters::ALL {
        let shown = format!("stream.{})", counter.key);
        assert!(script.contains(&shown), "{shown}");
    }
}

/// Modules of the page whose functions are tested by themselves.
const MODULES: [&str; 6] = ["dom", "format", "overlay", "plots", "shapes", "zone"];

/// What to do about each kind of trouble is in the documentation that the program contains, under the heading that the page links.
#[test]
fn each_trouble_links_a_heading_of_the_documentation() {
    let (served, mut browser) = (serve(site(1)), Browser::start());
    browser.open(&format!("http://{}/", served.address), 390, 844);
    let of_cameras = StreamFault::VARIANTS.iter().copied();
    for kind in TroubleKind::iter().chain(of_cameras.map(TroubleKind::Camera)) {
        let Some((_, paragraph)) = kind.advice() else {
            continue;
        };
        let (page, heading) = paragraph.split_once('#').expect("a heading");
        let shown = format!("doc-{page}-{heading}");
        browser.says(&format!("location.hash = 'help/{page}/{heading}'"));
        browser.until(&format!("document.getElementById('{shown}')"));
        let is_part = format!(
            "((text) => text.includes('the whole page') && text.length > 200)(document.getElementById('{shown}').textContent)"
        );
        assert_eq!(browser.says(&is_part), true, "{paragraph}");
    }
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

/// A browser with the page's modules, as `page` of an expression.
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
    fn says(&mut self, expression: &str) -> Value {
        let modules = MODULES
            .map(|name| format!("import('/{name}.js')"))
            .join(",");
        self.browser.says(&format!(
            "Promise.all([{modules}]).then((all) => Object.assign({{}}, ...all)).then((page) => {expression})"
        ))
    }
}

#[test]
fn people_read_two_units_three_digits_and_round_scales() {
    let mut script = PageScript::load();
    for (expression, expected) in [
        (
            "[59, 60, 187, 7500, 788400].map(page.duration)",
            json!(["59 s", "1 min", "3 min 7 s", "2 h 5 min", "9 d 3 h"]),
        ),
        (
            "[420, 41000].map(page.ago)",
            json!(["0.4 s ago", "41 s ago"]),
        ),
        (
            "[page.clockTime, page.machineTime].map((text) => text(1787393730123))",
            json!(["10:15:30", "2026-08-22T10:15:30Z"]),
        ),
        (
            "[0.004, 0.9951, 9.94, 9.96, 999.4, 999.6, 20000].map(page.millis)",
            json!([
                "0.00 ms", "1.0 ms", "9.9 ms", "10 ms", "999 ms", "1.0 s", "20 s"
            ]),
        ),
        (
            "[7, 48211, 1000000].map(page.number)",
            json!(["7", "48\u{202f}211", "1\u{202f}000\u{202f}000"]),
        ),
        (
            "[1, 0].map((n) => page.counted(n, 'camera'))",
            json!(["1 camera", "0 cameras"]),
        ),
        (
            "[0, 1, 1.1, 20, 20.1, 66, 1000, 1000.1].map(page.roundUp)",
            json!([1, 1, 2, 20, 50, 100, 1000, 2000]),
        ),
        ("page.short('ä'.repeat(15))", json!("ä".repeat(14) + "…")),
    ] {
        assert_eq!(script.says(expression), expected, "{expression}");
    }
}

/// In summer and winter, with half hours, and of a zone that no browser knows.
#[test]
fn times_are_those_of_the_box() {
    let mut script = PageScript::load();
    let zone = "((name, offset, at) => { const zone = new page.TimeZone(name, offset); \
         return [zone.minute(at), zone.unixMs(zone.field(at)) === at] })";
    for (arguments, shown) in [
        (
            "'Europe/Berlin', 60, Date.UTC(2026, 6, 1, 10)",
            "Wed 2026-07-01 12:00",
        ),
        (
            "'Europe/Berlin', 120, Date.UTC(2026, 11, 1, 23, 30)",
            "Wed 2026-12-02 00:30",
        ),
        (
            "'Asia/Kolkata', 330, Date.UTC(2026, 6, 1, 10)",
            "Wed 2026-07-01 15:30",
        ),
        (
            "'UTC+03', 180, Date.UTC(2026, 6, 1, 10)",
            "Wed 2026-07-01 13:00",
        ),
    ] {
        let said = script.says(&format!("{zone}({arguments})"));
        assert_eq!(said, json!([shown, true]), "{arguments}");
    }
    let sizes = script.says("[0, 999, 99_600, 1_234_567, 8.1e9].map(page.bytes)");
    assert_eq!(sizes, json!(["0 B", "999 B", "100 kB", "1.2 MB", "8.1 GB"]));
}

/// What has an id keeps its element, and with it the focus, where others are added before it, removed, or exchanged.
#[test]
fn elements_with_an_id_stay_when_others_change() {
    let mut script = PageScript::load();
    for wanted in ["abc", "xabc", "bc", "-b-", "xby", "b", "a-b", "cb"] {
        let followed = script.says(&format!(
            "((list) => {{ const make = (ids) => page.h('ul', {{}}, [...ids].map((id) => id === '-' ? page.h('li', {{}}, 'none') : \
               page.h('li', {{ id }}, page.h('button', {{}}, id)))); \
             const shown = make(list); document.body.append(shown); const kept = shown.querySelector('#b'); kept.firstChild.focus(); \
             page.follow(shown, make('{wanted}')); \
             const text = [...shown.children].map((item) => item.id || '-').join(''); \
             const has = [shown.querySelector('#b') === kept, document.activeElement === kept.firstChild]; shown.remove(); return [text, ...has] }})('a-bc')"
        ));
        // An element that moves loses the focus.
        assert_eq!(
            followed,
            json!([wanted, true, wanted != "cb" || followed[2] == true]),
            "{wanted}"
        );
    }
}

#[test]
fn overlapping_looks_use_different_lanes() {
    let mut script = PageScript::load();
    let lanes = "(bars) => { \
         const looks = bars.map(([from, to]) => ({ camera: 'gate', marks_ms: [from, from, from, from, to] })); \
         const plot = page.timeline({ bars: looks, span_ms: 100, device: 'cpu', busy_pct: 0 }); \
         return [plot.getAttribute('class'), [...plot.querySelectorAll('rect')].map((look) => look.getAttribute('y'))] }";
    let four = script.says(&format!(
        "({lanes})([[0, 10], [5, 15], [10, 20], [11, 12]])"
    ));
    let expected = json!(["timeline lanes3", ["1", "13", "1", "25"]]);
    assert_eq!(four, expected);
    let none = script.says(&format!("({lanes})([])"));
    assert_eq!(none, json!(["timeline lanes1", []]));
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
    let expected = json!([
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
    assert_eq!(is_inside, json!([true, true, true, true]));
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
        assert_eq!(sides, json!([[0.5, 0.5], side, left]), "{points}");
    }
    // 0.4 across on a screen of twice the width is as long as 0.8 down.
    let middle = script.says(
        "[0.5, 0.75, 1].map((share) => page.lineSpot({ points: [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]] }, 2, share)) \
         .map(({ x, y }) => [x, y].map((at) => Math.round(at * 1e9) / 1e9))",
    );
    assert_eq!(middle, json!([[0.5, 0.1], [0.5, 0.5], [0.5, 0.9]]));
}

/// Cameras whose pictures were asked for, in the order of the requests.
fn pictured(browser: &Browser) -> Vec<String> {
    let asked = browser.asked();
    let pictures = asked.iter().filter_map(|url| url.split_once("/camera/"));
    let cameras = pictures.filter_map(|(_, picture)| picture.split_once(".jpg"));
    cameras.map(|(camera, _)| camera.to_owned()).collect()
}

/// Of 32 cameras, those in view: each look once. They are other ones after scrolling.
#[test]
fn pictures_of_cameras_in_view_alone_are_asked_for() {
    let in_view = "[...document.querySelectorAll('.still')].filter((still) => { \
         const { top, bottom } = still.getBoundingClientRect(); return bottom > 0 && top < innerHeight \
       }).map((still) => still.dataset.camera)";
    let served = serve(streaming_site(32));
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", served.address), 1440, 900);
    browser.follow();
    let cameras = |browser: &mut Browser| -> BTreeSet<String> {
        let shown = browser.says(in_view);
        let shown = shown.as_array().expect("a list").iter();
        shown
            .filter_map(|id| id.as_str().map(str::to_owned))
            .collect()
    };
    let first = cameras(&mut browser);
    assert!((4..=8).contains(&first.len()), "{first:?}");
    assert_eq!(BTreeSet::from_iter(pictured(&browser)), first);
    let addresses: Vec<&str> = browser.asked();
    let pictures = addresses.iter().filter(|url| url.contains("/camera/"));
    let unique: BTreeSet<_> = pictures.clone().collect();
    assert_eq!(unique.len(), pictures.count(), "{addresses:?}");

    browser.says("document.getElementById('cam-camera31').scrollIntoView()");
    browser.until("document.querySelector('[data-camera=camera31] img')?.complete");
    let before = pictured(&browser).len();
    let shown = browser.says("document.querySelector('[data-camera=camera31] img').src");
    browser.until(&format!(
        "document.querySelector('[data-camera=camera31] img').src !== {shown}"
    ));
    let last = cameras(&mut browser);
    let asked = pictured(&browser).split_off(before);
    assert_eq!(BTreeSet::from_iter(asked), last);
    assert!(last.is_disjoint(&first), "{last:?}");
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
    let mut site = site(6);
    site["cameras"][1]["id"] = LONG_NAME.into();
    let long = "x".repeat(90);
    site["config"]["errors"] = json!([format!("site.toml:4:1 camera.{long}: unknown key")]);
    let served = serve(site);
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
        let cut = "[...document.querySelectorAll('.card')] \
             .filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.textContent)";
        let opened = "document.querySelectorAll('details').forEach((d) => (d.open = true))";
        for _ in 0..2 {
            assert_eq!(browser.says(widths), json!([width, width]));
            assert_eq!(browser.says(cut), json!([]), "{width}");
            browser.says(opened);
        }
    }

    let controls = browser.says(&format!("{CONTROLS}.length"));
    let controls = controls.as_u64().expect("a number");
    assert!(controls > 6, "{controls} controls");
    for control in 0..controls {
        browser.press("Tab", 9);
        let focus = browser.says(&FOCUS.replace("CONTROLS", CONTROLS));
        assert_eq!(focus, json!([control, true]));
    }
    // Enter on details closes them, and the keyboard stays there over what comes next.
    browser.says("document.querySelector('summary').focus()");
    browser.press("Enter", 13);
    browser.follow();
    let stays = "[document.activeElement.tagName, document.querySelector('details').open]";
    assert_eq!(browser.says(stays), json!(["SUMMARY", false]));

    let nodes = browser.accessible_nodes();
    let of = |is: fn(&devtools::AccessibleNode) -> bool| nodes.iter().filter(move |node| is(node));
    let focusable = of(|node| node.is_focusable).count() as u64;
    assert_eq!(focusable, controls, "{nodes:#?}");
    assert!(of(|node| node.role == "image").count() > 4, "{nodes:#?}");
    let nameless: Vec<_> = of(|node| node.name.is_empty()).collect();
    assert!(nameless.is_empty(), "{nameless:#?}");

    // What comes and goes before them leaves the details as they are.
    browser.press("Enter", 13);
    browser.says("window.parse = JSON.parse; JSON.parse = (text) => { const status = parse(text); status.troubles = []; status.cameras[0].reason = 'slow'; return status }");
    browser.until("document.querySelector('.card .reason')?.textContent.startsWith('slow') && !document.getElementById('h-problems')");
    assert_eq!(browser.says(stays), json!(["SUMMARY", true]));
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
        assert_eq!(browser.says(UNREADABLE), json!([]), "{width}");
    }
}

/// A camera with people, cars, a zone and a line.
fn readme() -> Value {
    let mut site = site(1);
    site["troubles"] = json!([]);
    site["cameras"][0]["triggers"] = json!([]);
    for key in ["fleet", "webhooks", "api"] {
        site.as_object_mut().expect("an object").remove(key);
    }
    let found = site["cameras"][0]["look"]["found"].as_array_mut();
    found.expect("marks").pop();
    site
}

/// The picture of the README.
#[test]
#[ignore = "rewrites target/tmp/status-page.png for docs/status-page.png"]
fn readme_picture_is_drawn() {
    let served = serve(readme());
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", served.address), 1000, 700);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("status-page.png");
    fs::write(path, browser.screenshot()).expect("a picture");
}

/// A browser behind a proxy that leaves the path in requests draws the page; one that strips it is served too.
#[test]
fn page_below_a_path_asks_for_nothing_outside_of_it() {
    let served = starting_with(HttpConfig {
        url: "https://nvr.example/video/spotter".parse().ok(),
        ..HttpConfig::default()
    });
    served.page.open(Arc::new(Painted::new(site(1))));
    let moved = get(served.address, "/video/spotter");
    let (head, _) = parts(&moved);
    assert!(
        head.starts_with("http/1.1 308") && head.contains("location: spotter/\r\n"),
        "{head}"
    );
    let page = format!("http://{}/video/spotter/", served.address);
    let mut browser = Browser::start();
    browser.open(&page, 390, 844);
    browser.follow();
    let asked = browser.asked();
    assert!(asked.iter().all(|url| url.starts_with(&page)), "{asked:?}");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
    assert!(get(served.address, "/page.css").starts_with("HTTP/1.1 200"));
}

#[test]
fn url_with_the_path_of_a_route_changes_no_route() {
    let served = starting_with(HttpConfig {
        url: "https://nvr.example/metrics".parse().ok(),
        ..HttpConfig::default()
    });
    assert!(get(served.address, "/metrics").starts_with("HTTP/1.1 503"));
}

/// A proxy on loopback that keeps the events of the page back. It ends with the process.
fn keeping_proxy(page: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    in_thread(move || {
        for client in listener.incoming() {
            let client = client.expect("a browser");
            in_thread(move || pass_whole_answer(client, page));
        }
    });
    address
}

fn in_thread(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name("proxy".into()).spawn(work);
    thread.expect("a thread");
}

/// Passes on a request, and the answer when it has ended. Events end when the connection does, so they never come.
fn pass_whole_answer(mut client: TcpStream, page: SocketAddr) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match client.read(&mut byte) {
            Ok(1) => head.extend(byte),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).replace("keep-alive", "close");
    let mut server = TcpStream::connect(page).expect("the page");
    server.write_all(head.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    _ = server.read_to_end(&mut answer);
    _ = client.write_all(&answer);
}

// Faults: H19.
#[test]
fn page_behind_a_proxy_that_keeps_events_asks() {
    let served = serve(site(1));
    let mut browser = Browser::start();
    let page = format!("http://{}/", keeping_proxy(served.address));
    browser.load(&page, 390, 844);
    browser.until("performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('status.json?pictured')).length > 2");
    let asked = browser.asked();
    let events = asked.iter().filter(|url| url.contains("status.events"));
    assert_eq!(events.count(), 1, "{asked:?}");
}

const TOKEN: &str = "a-token-of-the-page-for-tests";

/// A page with a token.
fn with_login() -> HttpConfig {
    HttpConfig {
        tokens: vec![Secret::new(TOKEN.into())],
        ..HttpConfig::default()
    }
}

/// By keys: a wrong token, the right one, pictures, and out again.
#[test]
fn browser_logs_in_and_out() {
    let served = starting_with(with_login());
    served.page.open(Arc::new(Painted::new(site(1))));
    let mut browser = Browser::start();
    browser.load(&format!("http://{}/", served.address), 390, 844);
    browser.until("document.getElementById('token') !== null");
    let hidden = "document.querySelector('.still:not(.empty)') === null";
    assert_eq!(browser.says(hidden), true);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-login.png");
    fs::write(path, browser.screenshot()).expect("a picture");
    let submit = |browser: &mut Browser, token: &str| {
        browser.says(&format!(
            "(() => {{ const field = document.getElementById('token'); field.focus(); field.value = '{token}' }})()"
        ));
        browser.press("Enter", 13);
    };
    submit(&mut browser, "another-token-for-tests");
    browser.until(
        "document.getElementById('login-error')?.textContent.includes('no token of http.tokens')",
    );
    submit(&mut browser, TOKEN);
    browser
        .until("document.querySelector('.still:not(.empty)') && document.getElementById('logout')");
    assert_eq!(
        browser.says("document.cookie"),
        "",
        "scripts do not read the cookie"
    );
    browser.says("document.querySelector('#logout button').focus()");
    browser.press("Enter", 13);
    browser.until(&format!("document.getElementById('token') && {hidden}"));
}

// Faults: H18.
#[test]
fn cross_site_forms_and_wrong_origins_change_nothing() {
    let served = starting_with(with_login());
    let body = format!("{{\"token\":\"{TOKEN}\"}}");
    let login = |headers: &str| {
        let headers = format!(
            "Host: nvr.example\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        // The body follows the last header.
        request_with_body(served.address, "/login", &headers)
    };
    let json = "Content-Type: application/json\r\nConnection: close\r\n";
    let known = "Origin: https://nvr.example\r\n";
    let fine = login(&format!("{json}{known}"));
    let (head, _) = parts(&fine);
    assert!(head.starts_with("http/1.1 204"), "{head}");
    for part in ["httponly", "samesite=strict", "; secure", "path=/;"] {
        assert!(head.contains(part), "{part}: {head}");
    }
    for (headers, status) in [
        (format!("{json}Origin: https://evil.example\r\n"), "403"),
        (format!("{json}Origin: null\r\n"), "403"),
        (json.to_owned(), "403"),
        (
            format!("Content-Type: text/plain\r\nConnection: close\r\n{known}"),
            "422",
        ),
        (
            format!(
                "Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n{known}"
            ),
            "422",
        ),
    ] {
        let answer = login(&headers);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{headers}: {answer}"
        );
        assert!(
            !answer.to_ascii_lowercase().contains("set-cookie"),
            "{headers}"
        );
    }
}

fn request_with_body(address: SocketAddr, path: &str, head_and_body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "POST {path} HTTP/1.1\r\n{head_and_body}").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}
