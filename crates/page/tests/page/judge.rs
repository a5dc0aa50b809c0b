//! The view "Judge", by mouse and keys. The browser has a scripted daemon (`judging.js`) for what the page asks it.

use super::*;

const SCRIPTED_DAEMON: &str = include_str!("judging.js");
const CONTROL: u32 = 2;
const SHIFT: u32 = 8;

struct Judging {
    browser: Browser,
    _served: Served,
}

impl Judging {
    /// For someone who has logged in, with the daemon as these statements leave it.
    fn open((width, height): (u32, u32), view: &str, statements: &str) -> Self {
        let served = starting_with(with_login());
        served.page.open(Arc::new(Painted::new(site(1))));
        let mut browser = Browser::start();
        browser.before_each_page(&format!("{SCRIPTED_DAEMON}\n{statements}"));
        let page = format!("http://{}/{view}", served.address);
        browser.load(&page, width, height);
        browser.until("document.getElementById('token') !== null");
        browser.says(&format!(
            "(() => {{ const field = document.getElementById('token'); field.focus(); field.value = '{TOKEN}' }})()"
        ));
        browser.press("Enter", 13);
        browser.until("document.querySelector('#view-judge .judge') !== null");
        Self {
            browser,
            _served: served,
        }
    }

    fn begin(size: (u32, u32), statements: &str) -> Self {
        let mut judging = Self::open(size, "#judge/gate/person", statements);
        judging
            .browser
            .until("document.getElementById('judge-begin')");
        judging.click("#judge-begin");
        judging.is_at("1 of 4");
        judging
    }

    fn click(&mut self, selector: &str) {
        self.browser
            .says(&format!("document.querySelector('{selector}').click()"));
    }

    /// Waits for a picture, until it may be marked.
    fn is_at(&mut self, progress: &str) {
        self.shows(progress);
        self.browser
            .until("document.getElementById('mark-right')?.ariaDisabled === null");
    }

    fn shows(&mut self, progress: &str) {
        self.browser.until(&format!(
            "document.querySelector('.progress')?.textContent.includes('{progress}')"
        ));
    }

    /// Marks with a letter, and waits for the next picture.
    fn press(&mut self, letter: &str, progress: &str) {
        let code = u32::from(letter.to_ascii_uppercase().as_bytes()[0]);
        self.browser.press(letter, code);
        self.is_at(progress);
    }

    /// What was sent to the daemon.
    fn sent(&mut self) -> Value {
        self.browser.says("daemon.sent.splice(0)")
    }

    /// Drags with the mouse between two places of the picture.
    fn drag(&mut self, from: [f64; 2], to: [f64; 2]) {
        for (kind, [x, y]) in [
            ("mousePressed", from),
            ("mouseMoved", to),
            ("mouseReleased", to),
        ] {
            let spot = self.browser.says(&format!(
                "(({{ left, top, width, height }}) => [left + {x} * width, top + {y} * height])(document.querySelector('.judged .still').getBoundingClientRect())"
            ));
            let spot = serde_json::from_value(spot).expect("two numbers");
            self.browser.mouse(kind, spot);
        }
    }

    fn objects(&mut self) -> u64 {
        let count = self
            .browser
            .says("document.querySelectorAll('.object').length");
        count.as_u64().expect("a number")
    }
}

fn marked(id: &str, mark: &str, all_found: bool) -> Value {
    json!(["events/mark", {"id": id, "mark": mark, "all_found": all_found, "picture": 7}])
}

#[test]
fn alarms_are_judged_corrected_and_taken_back_by_keys() {
    let mut judging = Judging::open((1440, 900), "#judge", "");
    judging.browser.until(
        "document.querySelector('.prompts a')?.textContent.includes('17 of 20 drawn are judged')",
    );
    judging
        .browser
        .says("document.querySelector('.prompts a').focus()");
    judging.browser.press("Enter", 13);
    judging
        .browser
        .until("document.querySelector('.sentences b')?.textContent === '71 of 100 alarms are right' && document.querySelector('.sentences code').textContent === 'min_score'");
    judging
        .browser
        .says("document.getElementById('judge-begin').focus()");
    judging.browser.press("Enter", 13);
    judging.is_at("1 of 4");
    judging
        .browser
        .until("document.activeElement.textContent === 'Is this a “person”?'");
    judging.press("r", "2 of 4");
    judging.browser.press("f", 70);
    judging.press("n", "3 of 4");
    assert_eq!(
        judging.sent(),
        json!([
            ["judge/draw", {"camera": "gate", "prompt": "person", "wanted": 20}],
            marked("a", "right", false),
            marked("b", "wrong", true),
        ])
    );
    judging.press("u", "2 of 4");
    judging.browser.press_with("z", 90, CONTROL);
    judging.is_at("1 of 4");
    let none = |id| json!(["events/mark", {"id": id, "mark": "none"}]);
    assert_eq!(judging.sent(), json!([none("b"), none("a")]));

    // A corner moves by 1 %, the box that was found too is added and removed again.
    judging.browser.press("c", 67);
    judging
        .browser
        .until("document.activeElement.id === 'object-0'");
    judging
        .browser
        .says("document.getElementById('object-corner-3').focus()");
    judging.browser.press_with("ArrowRight", 39, SHIFT);
    judging
        .browser
        .says("document.getElementById('other-0').focus()");
    judging.browser.press(" ", 32);
    judging
        .browser
        .until("document.activeElement.id === 'object-1'");
    judging.browser.press("Delete", 46);
    judging.browser.press("Enter", 13);
    judging.is_at("2 of 4");
    let corrected = json!(["events/mark", {"id": "a", "mark": "corrected", "all_found": false, "picture": 7, "objects": [[0.2, 0.2, 0.41, 0.6]]}]);
    assert_eq!(judging.sent(), json!([corrected]));

    judging.press("s", "3 of 4");
    judging.press("w", "4 of 4");
    let text = "document.getElementById('judging').textContent";
    let text = judging.browser.says(text);
    assert!(
        text.as_str()
            .is_some_and(|text| text.contains("below min_score: no alarm")),
        "{text}"
    );
    judging.browser.press("y", 89);
    judging.browser.until("document.querySelector('#figures [role=status]')?.textContent === '3 pictures judged.' && document.activeElement.id === 'h-judge'");
    assert_eq!(judging.browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn boxes_are_dragged_drawn_and_added_on_a_phone() {
    let mut judging = Judging::begin((390, 844), "");
    let sizes = "[...document.querySelectorAll('.marks button')].map((button) => button.getBoundingClientRect()).every(({ width, height }) => width >= 44 && height >= 44)";
    assert_eq!(judging.browser.says(sizes), true);
    let widths = "[innerWidth, document.documentElement.scrollWidth]";
    assert_eq!(judging.browser.says(widths), json!([390, 390]));
    judging.click("#mark-correct");
    judging.drag([0.4, 0.6], [0.5, 0.7]);
    judging.drag([0.8, 0.1], [0.95, 0.5]);
    assert_eq!(judging.objects(), 2);
    // A tap adds what was found too; Ctrl+Z takes one step back.
    judging.drag([0.65, 0.4], [0.65, 0.4]);
    assert_eq!(judging.objects(), 3);
    judging.browser.press_with("z", 90, CONTROL);
    assert_eq!(judging.objects(), 2);
    let nodes = judging.browser.accessible_nodes();
    let nameless: Vec<_> = nodes.iter().filter(|node| node.name.is_empty()).collect();
    assert!(nameless.is_empty(), "{nameless:#?}");
    judging.click("#mark-found");
    judging.click("#mark-save");
    judging.is_at("2 of 4");
    let sent = judging.sent();
    let mark = &sent[1][1];
    assert_eq!(mark["all_found"], true);
    let objects: Vec<[f64; 4]> =
        serde_json::from_value(mark["objects"].clone()).expect("two boxes");
    for (object, expected) in objects
        .iter()
        .zip([[0.2, 0.2, 0.5, 0.7], [0.8, 0.1, 0.95, 0.5]])
    {
        let is_near = object
            .iter()
            .zip(expected)
            .all(|(at, wanted)| (at - wanted).abs() < 0.01);
        assert!(is_near, "{object:?} {expected:?}");
    }
    assert_eq!(objects.len(), 2);
}

#[test]
fn refused_mark_keeps_the_picture() {
    let mut judging = Judging::begin((390, 844), "");
    judging
        .browser
        .says("daemon.refusals.push([503, { error: 'the disk is full' }])");
    judging.click("#mark-wrong");
    judging.browser.until("document.querySelector('.marks [role=alert]')?.textContent === 'Not marked: the disk is full.'");
    judging.is_at("1 of 4");
    judging.press("w", "2 of 4");
    judging
        .browser
        .says("window.fetch = () => Promise.reject(new Error())");
    judging.browser.press("r", 82);
    judging.browser.until("document.querySelector('.marks [role=alert]')?.textContent === 'Not known whether it is marked: No answer from Spotter.'");
    judging.is_at("2 of 4");
}

#[test]
fn second_press_marks_no_picture_before_it_is_seen() {
    // Pictures that never load.
    let mut judging = Judging::begin((390, 844), "");
    judging
        .browser
        .says("HTMLImageElement.prototype.decode = () => new Promise((loaded) => (window.loaded = loaded))");
    judging.click("#mark-right");
    judging.shows("2 of 4");
    judging
        .browser
        .until("document.getElementById('mark-right').ariaDisabled === 'true' && window.loaded");
    judging.sent();
    for act in ["#mark-right", "#judge-skip"] {
        judging.click(act);
    }
    judging.browser.press("w", 87);
    judging.browser.press("s", 83);
    judging.shows("2 of 4");
    judging.browser.says("window.loaded()");
    judging.is_at("2 of 4");
    judging.browser.says("document.getElementById('mark-right').dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 2 }))");
    let held = "document.getElementById('mark-right').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', repeat: true, bubbles: true, cancelable: true }))";
    assert_eq!(judging.browser.says(held), false, "it is used up");
    assert_eq!(judging.sent(), json!([]));
    judging.browser.says("delete HTMLImageElement.prototype.decode; HTMLImageElement.prototype.decode = () => Promise.resolve()");
    judging.press("w", "3 of 4");
    // The same key, held down.
    judging.browser.says("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'w', repeat: true, bubbles: true }))");
    assert_eq!(judging.sent(), json!([marked("b", "wrong", false)]));
}

#[test]
fn refused_figures_are_read_again_without_a_late_answer() {
    let statements = "daemon.refusals.push([503, { error: 'the disk is slow' }]); window.due = []; \
         window.timeout = setTimeout; window.setTimeout = (work, ms) => (ms === 5000 ? due.push(work) : timeout(work, ms))";
    let mut judging = Judging::open((390, 844), "#judge/gate/person", statements);
    judging.browser.until("document.querySelector('.judge > [role=alert]')?.textContent === 'the disk is slow.' && due.length > 0");
    judging.browser.says("due.forEach((work) => work())");
    judging.browser.until(
        "document.getElementById('judge-begin') && !document.querySelector('.judge > [role=alert]')",
    );

    judging
        .browser
        .says("void (daemon.held = new Promise((answer) => (daemon.answer = answer)))");
    judging.click("#judge-begin");
    judging.browser.until("daemon.sent.length === 1");
    judging.browser.says("location.hash = '#judge'");
    judging
        .browser
        .until("document.querySelector('.prompts a')");
    // The page has read the late answer when one that was asked for after it is there.
    judging
        .browser
        .says("daemon.answer(), fetch('judge.json').then((got) => got.text()).then(() => new Promise((done) => timeout(done, 0)))");
    judging.browser.says("location.hash = '#judge/gate/person'");
    judging.browser.until(
        "document.getElementById('judge-begin')?.ariaDisabled === null && !document.getElementById('judging')",
    );
}

#[test]
fn better_picture_refuses_the_mark_and_is_shown() {
    let mut judging = Judging::begin((390, 844), "");
    judging
        .browser
        .says("daemon.refusals.push([409, { error: 'the event has a better picture now' }])");
    judging.click("#mark-right");
    judging
        .browser
        .until("document.querySelector('.judged img')?.src.endsWith('v=8')");
    let alert = "document.querySelector('.marks [role=alert]').textContent";
    assert_eq!(
        judging.browser.says(alert),
        "Not marked: the event has a better picture now."
    );
    judging.is_at("1 of 4");
    judging.sent();
    judging.press("r", "2 of 4");
    assert_eq!(judging.sent()[0][1]["picture"], 8);
}

#[test]
fn unsaved_correction_asks_before_it_is_left() {
    let mut judging = Judging::begin((390, 844), "");
    judging.browser.press("c", 67);
    judging
        .browser
        .until("document.activeElement.id === 'object-0'");
    judging.browser.press("ArrowRight", 39);
    judging.browser.says("location.hash = '#judge'");
    judging
        .browser
        .until("document.activeElement.id === 'mark-discard'");
    judging.browser.press("Escape", 27);
    judging
        .browser
        .until("!document.getElementById('unsaved') && location.hash === '#judge/gate/person'");
    judging.browser.says("location.hash = '#judge'");
    judging
        .browser
        .until("document.activeElement.id === 'mark-discard'");
    judging.click("#mark-discard");
    judging
        .browser
        .until("location.hash === '#judge' && document.querySelector('.prompts')");
    // The next visit begins with the figures.
    judging.browser.says("location.hash = '#judge/gate/person'");
    judging
        .browser
        .until("document.activeElement.id === 'h-judge' && document.getElementById('judge-begin')");
}

#[test]
fn proposal_is_used_after_a_question() {
    let mut judging = Judging::open((1440, 900), "#judge/gate/person", "");
    judging.browser.until("document.getElementById('use-80')");
    assert_eq!(
        judging.browser.says("document.getElementById('use-90')"),
        Value::Null
    );
    judging.click("#use-80");
    judging
        .browser
        .until("document.activeElement.id === 'use-yes'");
    let question = judging
        .browser
        .says("document.getElementById('question').textContent");
    let question = question.as_str().expect("a text");
    for part in ["becomes 0.6 instead of 0.4", "2 right and 4 wrong"] {
        assert!(question.contains(part), "{question}");
    }
    judging.browser.press("Escape", 27);
    judging
        .browser
        .until("!document.getElementById('question') && document.activeElement.id === 'use-80'");
    assert_eq!(judging.sent(), json!([]));
    judging.browser.press("Enter", 13);
    judging
        .browser
        .until("document.activeElement.id === 'use-yes'");
    judging.browser.press("Enter", 13);
    judging.browser.until(
        "document.querySelector('.sentences')?.textContent.startsWith('Promised: at least 80')",
    );
    let said = judging
        .browser
        .says("document.querySelector('#figures [role=status]').textContent");
    assert_eq!(said, "min_score is 0.6 now. A new count begins.");
    let used =
        json!({"camera": "gate", "prompt": "person", "target_percent": 80, "min_score": 0.6});
    assert_eq!(judging.sent(), json!([["judge/use", used]]));
}

#[test]
fn words_of_others_stay_text_and_no_history_offers_lines() {
    let hostile = "<img src=x onerror=alert(1)>";
    let statements = format!(
        "daemon.figures.words = daemon.queue[0].words = daemon.figures.sentences[0] = '**{hostile}**'"
    );
    let mut judging = Judging::begin((390, 844), &statements);
    let heading = judging
        .browser
        .says("document.getElementById('h-judge').textContent");
    assert!(
        heading.as_str().is_some_and(|text| text.contains(hostile)),
        "{heading}"
    );
    judging.click("#judge-stop");
    judging.browser.until(&format!(
        "document.querySelector('.sentences b')?.textContent === '{hostile}'"
    ));
    assert_eq!(judging.browser.complaints(), Vec::<&Value>::new());

    let mut judging = Judging::open((390, 844), "#judge", "daemon.is_on = false");
    judging
        .browser
        .until("document.getElementById('toml')?.value.startsWith('[history]')");
    judging.click("#logout button");
    judging
        .browser
        .until("document.getElementById('h-refusal') && !document.getElementById('toml')");
}
