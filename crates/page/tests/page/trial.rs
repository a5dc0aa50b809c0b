//! The view "Try". The test is the camera, the engine and the daemon's loop.

use std::{
    future::ready,
    sync::{Mutex, PoisonError},
};

use spotter_config::{CameraConfig, PromptConfig};
use spotter_core::{
    Answer, AnswerBody, CameraId, FoundObject, Look, Mono, NormBox, Picture, PromptRegion,
    ScoreSource, StageTimes, Task, testing::answer_to,
};
use spotter_page::{
    CameraPicture, NextPicture, PageQuestion, PageReply, PromptCost, ShownAreas, TrialParts,
    TrialSource,
};
use spotter_pictures::{RgbPixels, jpeg_file};
use spotter_requests::{BegunRequest, RequestNews, RequestQueue};
use tokio::runtime::Handle;

use super::*;
use site::{SIZE, street};

const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1440, 900);
const SHIFT: u32 = 8;
/// An answer that attacks the page.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";
/// These words have no answer.
const UNANSWERED: &str = "nothing ever";

/// The camera gate with a prompt.
struct Gate;

impl TrialSource for Gate {
    fn camera(&self, camera: &str) -> Option<CameraConfig> {
        let car = PromptConfig {
            task: Task::Detect {
                object: "car".into(),
            },
            min_score: spotter_core::Share::nearest(0.5),
            ..spotter_config::testing::prompt("car")
        };
        (camera == "gate").then(|| spotter_config::testing::camera("gate", vec![car]))
    }

    fn next_picture(&self, _: &CameraId, _: ShownAreas) -> NextPicture {
        let picture = Picture::from_rgb(SIZE.0 as usize, SIZE.1 as usize, street());
        let picture = picture.expect("a picture");
        let camera_size = SIZE;
        Box::pin(ready(Some(CameraPicture {
            picture,
            camera_size,
        })))
    }

    fn unfit(&self, _: &CameraConfig, _: &PromptConfig) -> Option<String> {
        None
    }

    fn cost(&self, _: &CameraConfig, _: (usize, usize)) -> Option<PromptCost> {
        Some(PromptCost {
            pixels: (640, 360),
            crops: 2,
            tflop: 0.0061,
            share: Some(0.125),
            ..PromptCost::default()
        })
    }

    fn jpeg(&self, picture: &Picture) -> anyhow::Result<Vec<u8>> {
        let (width, height) = picture.size();
        let rgb: Vec<u8> = (0..height)
            .flat_map(|y| picture.row(0, y).to_vec())
            .collect();
        let pixels = RgbPixels {
            rgb: &rgb,
            width,
            height,
        };
        Ok(jpeg_file(pixels, 75)?)
    }
}

/// What was asked: the words, and the part.
type Asked = Arc<Mutex<Vec<(String, Option<[f64; 4]>)>>>;

/// Finds two objects; answers questions with an attack.
async fn answer_all(queue: Arc<RequestQueue>, asked: Asked) {
    let mut unanswered = Vec::new();
    loop {
        let request = queue.next().await;
        let BegunRequest { look, reply } = &request;
        let prompt = &look.prompts[0];
        let words = prompt.task.text().to_owned();
        let part = match prompt.view.region {
            PromptRegion::Fixed(part) => Some(part.norm_box().rounded()),
            _ => None,
        };
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unanswered = words == UNANSWERED;
        asked.push((words, part));
        drop(asked);
        if is_unanswered {
            unanswered.push(request);
            continue;
        }
        let news = RequestNews::Answer(Box::new(answer(look)));
        // The page may have given up.
        let _ = reply.try_send(Ok(news));
    }
}

fn answer(look: &Look) -> Answer {
    let prompt = &look.prompts[0];
    let found = |x0: f64, score| FoundObject {
        place: NormBox::from_corners(x0, 0.5, x0 + 0.2, 0.75),
        score,
        source: ScoreSource::TokenProb,
        sharpness: 1.0,
    };
    let body = match prompt.task {
        Task::Query { .. } => AnswerBody::Text {
            text: HOSTILE.into(),
            score: 0.5,
            source: ScoreSource::TokenProb,
        },
        _ => AnswerBody::Boxes(vec![found(0.1, 0.25), found(0.6, 0.875)]),
    };
    let marks = StageTimes {
        generated: Mono::from_nanos(123_000_000),
        ..StageTimes::default()
    };
    Answer {
        marks,
        ..answer_to(prompt, body)
    }
}

/// A browser that has logged in, at the view "Try" of the camera gate.
struct Visitor {
    browser: Browser,
    served: Served,
    asked: Asked,
}

impl Visitor {
    fn open(size: (u32, u32)) -> Self {
        Self::open_with(size, "")
    }

    /// With a script before those of the page.
    fn open_with((width, height): (u32, u32), script: &str) -> Self {
        let served = starting_with(with_login());
        served.page.open(Arc::new(Painted::new(site(1))));
        let (queue, asked) = (Arc::<RequestQueue>::default(), Asked::default());
        served.page.open_trials(TrialParts {
            source: Arc::new(Gate),
            queue: Arc::clone(&queue),
        });
        let engine: &Handle = served._runtime.handle();
        engine.spawn(answer_all(queue, Arc::clone(&asked)));
        let mut browser = Browser::start();
        browser.before_each_page(script);
        let page = format!("http://{}/#try/gate", served.address);
        browser.load(&page, width, height);
        browser.until("document.getElementById('token') !== null");
        browser.says(&format!(
            "(() => {{ const field = document.getElementById('token'); field.focus(); field.value = '{TOKEN}' }})()"
        ));
        browser.press("Enter", 13);
        browser.until("document.getElementById('try-prompt') !== null && document.getElementById('try-picture-0').naturalWidth === 640");
        Self {
            browser,
            served,
            asked,
        }
    }

    /// Writes into a field.
    fn fill(&mut self, field: &str, text: &str) {
        self.browser.says(&format!(
            "((field) => {{ field.focus(); field.value = '{text}'; for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {{ bubbles: true }})) }})(document.getElementById('{field}'))"
        ));
    }

    fn press_button(&mut self, id: &str) {
        self.browser
            .says(&format!("document.getElementById('{id}').click()"));
    }

    /// Asks by the Enter key, and waits for this many answers.
    fn ask(&mut self, answers: usize) {
        self.browser
            .says("document.getElementById('try-words-0').focus()");
        self.browser.press("Enter", 13);
        self.browser.until(&format!(
            "document.querySelectorAll('.answer').length === {answers} && document.querySelector('#try-form .main').textContent === 'Try'"
        ));
    }

    fn text(&mut self, selector: &str) -> String {
        let text = self.browser.says(&format!(
            "document.querySelector('{selector}')?.textContent ?? ''"
        ));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// What was asked since the last call.
    fn take_asked(&self) -> Vec<(String, Option<[f64; 4]>)> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut asked)
    }

    /// The command that the page sends, which is executed.
    fn command(&mut self) -> Value {
        let Served { page, _runtime, .. } = &mut self.served;
        let request = _runtime.block_on(page.next_request());
        let PageQuestion::Command(command) = request.asked else {
            panic!("no command: {:?}", request.asked);
        };
        let reply = PageReply {
            status: 200,
            json: b"{\"ok\":true}".to_vec(),
        };
        request.reply.try_send(reply).expect("the page waits");
        command
    }

    fn expect_no_complaints(&self) {
        let complaints = self.browser.complaints().into_iter();
        // Advice about the form of the login.
        let complaints = complaints.filter(|one| one["params"]["entry"]["level"] != "verbose");
        assert_eq!(Vec::from_iter(complaints), [&json!(null); 0]);
    }
}

#[test]
fn words_are_tried_by_keys_and_two_answers_are_compared() {
    let mut visitor = Visitor::open(PHONE);
    visitor.fill("try-prompt", "car");
    assert_eq!(
        visitor
            .browser
            .says("document.getElementById('try-words-0').value"),
        "car"
    );
    visitor.fill("try-beside", "words");
    visitor.fill("try-kind-1", "query");
    visitor.fill("try-words-1", "Is it dark?");
    visitor.ask(2);
    let asked = [("car".to_owned(), None), ("Is it dark?".to_owned(), None)];
    assert_eq!(visitor.take_asked(), asked);

    // The highest score first; one object is left at the prompt's min_score.
    let scores =
        "[...document.querySelectorAll('#tried-0 .scores li')].map((one) => one.textContent)";
    assert_eq!(
        visitor.browser.says(scores),
        json!(["0.88", "0.25 below min_score"])
    );
    let first = visitor.text("#tried-0 .answer");
    for part in [
        "2 objects, 1 at min_score 0.5 or more",
        "123 ms · 2 crops · 640 × 360 pixels · 0.0061 TFLOP · 13 % of the box at 1 looks/s",
    ] {
        assert!(first.contains(part), "{first}");
    }
    assert_eq!(
        visitor
            .browser
            .says("document.querySelectorAll('#tried-0 .overlay rect.line').length"),
        2
    );
    // The same frame is beside it, and the text of the model is text.
    assert!(visitor.text("#tried-1 .answer").contains(HOSTILE));
    let pictures = "(() => { const all = [...document.images].map((one) => one.src); return [all.length, new Set(all).size] })()";
    assert_eq!(visitor.browser.says(pictures), json!([2, 1]));
    let spoken = visitor.text("main [role=status]");
    let expected =
        format!("car: 2 objects, best score 0.88, 123 ms. Is it dark?: {HOSTILE}, 123 ms.");
    assert_eq!(spoken, expected);
    let fits = "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('.try button, .try input, .try select')].every((one) => one.offsetHeight === 0 || one.offsetHeight >= 44)";
    assert_eq!(visitor.browser.says(fits), true);
    visitor.expect_no_complaints();
}

#[test]
fn drawn_part_is_compared_and_becomes_a_prompt() {
    let mut visitor = Visitor::open(DESKTOP);
    visitor.fill("try-words-0", "Red \"car\"");
    visitor.press_button("try-part");
    let at_the_top = "document.getElementById('region').scrollIntoView({ block: 'center' })";
    visitor.browser.says(at_the_top);
    let spot = |visitor: &mut Visitor, x: f64, y: f64| -> [f64; 2] {
        let spot = visitor.browser.says(&format!(
            "(({{ left, top, width, height }}) => [left + {x} * width, top + {y} * height])(document.getElementById('region').getBoundingClientRect())"
        ));
        serde_json::from_value(spot).expect("two numbers")
    };
    for (kind, x, y) in [
        ("mousePressed", 0.875, 0.8),
        ("mouseMoved", 0.6, 0.6),
        ("mouseMoved", 0.125, 0.4),
        ("mouseReleased", 0.125, 0.4),
    ] {
        let at = spot(&mut visitor, x, y);
        visitor.browser.mouse(kind, at);
    }
    // By keys: the upper left corner, by one hundredth and by one thousandth.
    visitor
        .browser
        .says("document.getElementById('corner-0').focus()");
    visitor.browser.press_with("ArrowRight", 39, SHIFT);
    visitor.browser.press("ArrowUp", 38);
    visitor.ask(2);
    let [(_, part), (words, whole)] = &visitor.take_asked()[..] else {
        panic!("two asks");
    };
    assert_eq!((words.as_str(), whole), ("Red \"car\"", &None));
    let part = part.expect("a part");
    let expected = [0.135, 0.399, 0.875, 0.8];
    let is_near = part
        .iter()
        .zip(expected)
        .all(|(a, b)| (a - b).abs() < 0.002);
    assert!(is_near, "{part:?}");

    visitor.fill("try-score", "0.3");
    let numbers = part.map(|share| share.to_string()).join(", ");
    let lines = format!(
        "[camera.gate.prompt.red-car]\ndetect = \"Red \\\"car\\\"\"\nregion = [{numbers}]\nmin_score = 0.3"
    );
    assert_eq!(
        visitor
            .browser
            .says("document.getElementById('try-toml').value"),
        lines
    );
    visitor.press_button("try-add");
    let prompt =
        json!({"id": "red-car", "detect": "Red \"car\"", "region": part, "min_score": 0.3});
    assert_eq!(
        visitor.command(),
        json!({"op": "prompt_add", "cam": "gate", "prompt": prompt})
    );
    visitor.browser.until(
        "document.body.textContent.includes('asked for red-car now, until Spotter restarts')",
    );

    // A key removes the part, and so does a prompt without one.
    visitor
        .browser
        .says("document.getElementById('corner-1').focus()");
    visitor.browser.press("Delete", 46);
    let is_hidden = "document.getElementById('region').hidden";
    assert_eq!(visitor.browser.says(is_hidden), true);
    visitor.press_button("try-part");
    assert_eq!(visitor.browser.says(is_hidden), false);
    visitor.fill("try-prompt", "car");
    assert_eq!(visitor.browser.says(is_hidden), true);
    visitor.fill("try-words-0", "blue car");
    visitor.ask(1);
    assert_eq!(visitor.take_asked(), [("blue car".to_owned(), None)]);
    // What is lost is said before.
    visitor.press_button("try-change");
    let loss = visitor.text(".loss");
    assert!(loss.contains("tracks and open events of car end"), "{loss}");
    visitor.press_button("try-confirm");
    let set =
        json!({"op": "set", "cam": "gate", "prompt": "car", "field": "text", "value": "blue car"});
    assert_eq!(visitor.command(), set);
    visitor
        .browser
        .until("document.body.textContent.includes('Prompt car has the new words')");
    visitor.expect_no_complaints();
}

#[test]
fn own_picture_is_tried_and_refusals_are_words() {
    let mut visitor = Visitor::open(DESKTOP);
    let drop_file = |visitor: &mut Visitor, file: &str| {
        visitor.browser.says(&format!(
            "(async () => {{ const files = new DataTransfer(); files.items.add({file}); document.dispatchEvent(new DragEvent('drop', {{ dataTransfer: files, bubbles: true, cancelable: true }})) }})()"
        ));
    };
    let wrong = |visitor: &mut Visitor, text: &str| {
        visitor.browser.until(&format!(
            "document.querySelector('.try .wrong')?.textContent.includes('{text}') === true"
        ));
    };
    drop_file(
        &mut visitor,
        "new File(['text'], 'a.txt', { type: 'text/plain' })",
    );
    wrong(&mut visitor, "must be a JPEG or PNG");
    drop_file(
        &mut visitor,
        "new File([new Uint8Array(10_000_001)], 'a.png', { type: 'image/png' })",
    );
    wrong(&mut visitor, "more than 10 MB");
    drop_file(
        &mut visitor,
        "new File([await (await fetch('camera/gate/now.jpg')).blob()], '<b>mine</b>.jpg', { type: 'image/jpeg' })",
    );
    visitor.browser.until("document.querySelector('#try-picture-0').src.startsWith('blob:') && document.querySelector('#try-picture-0').naturalWidth === 640");
    assert!(visitor.text("#try-camera").contains("<b>mine</b>"));
    visitor.fill("try-words-0", "person");
    visitor.ask(1);
    assert_eq!(visitor.take_asked(), [("person".to_owned(), None)]);
    assert!(!visitor.text("#tried-0 .answer").contains("% of the box"));
    assert_eq!(visitor.text("#keep"), "", "it is of no camera");

    // Others use all places.
    let ask = json!({"cam": "gate", "asks": [{"kind": "query", "words": UNANSWERED}]});
    visitor.browser.says(&format!(
        "(() => {{ for (let i = 0; i < 4; i += 1) void fetch('try', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: JSON.stringify({ask}) }}) }})()"
    ));
    while visitor
        .asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .len()
        < 4
    {
        thread::yield_now();
    }
    visitor
        .browser
        .says("document.getElementById('try-words-0').focus()");
    visitor.browser.press("Enter", 13);
    wrong(
        &mut visitor,
        "4 other requests with pictures are in progress; try again in a moment. Try again in 1 second.",
    );
}

/// A history of four events, of which one has no picture and one other words, and what the model says of the others: the cameras need the engine at first.
const EVENTS: &str = r#"
const eventOf = (id, mark, box, picture, words = "car") => ({ id, mark, box, picture, words, prompt: "car", start_ms: 1.78e12, size: [640, 360] });
const stored = [
  { ...eventOf("a", "corrected", [0.8, 0.8, 0.9, 0.9], "camera/gate/now.jpg?a"), objects: [[0.1, 0.1, 0.3, 0.3]] },
  eventOf("b", "wrong", [0.5, 0.5, 0.7, 0.7], "camera/gate/now.jpg?b"),
  eventOf("c", "wrong", [0.5, 0.5, 0.7, 0.7], null),
  eventOf("d", "wrong", [0.5, 0.5, 0.7, 0.7], "camera/gate/now.jpg?d", "van"),
];
const found = { a: [{ box: [0.1, 0.1, 0.3, 0.28], score: 0.9 }], b: [{ box: [0.1, 0.1, 0.3, 0.3], score: 0.9 }, { box: [0.5, 0.5, 0.7, 0.7], score: 0.4 }] };
const asked = [];
const answer = (body, status) => Promise.resolve(new Response(JSON.stringify(body), { status }));
const real = fetch;
fetch = (path, options) => {
  if (path.startsWith("events.json")) {
    asked.push(path);
    const events = stored.filter(({ mark }) => path.includes(`mark=${mark}&`));
    return answer(path.includes("mark=") ? { is_on: true, time_zone: "Asia/Kolkata", offset_min: 330, events } : { is_on: false, toml: "[history]" }, 200);
  }
  const body = path === "try" ? JSON.parse(options.body) : {};
  if (!body.event) return real(path, options);
  asked.push(body);
  if (asked.length === 4) return answer({ error: "no room", retry_after_s: 0.01 }, 429);
  return answer({ size: [640, 360], answers: [{ objects: found[body.event] }] }, 200);
};
"#;

#[test]
fn words_are_tried_on_judged_events_and_keep_verdicts() {
    let mut visitor = Visitor::open_with(PHONE, EVENTS);
    visitor.fill("try-prompt", "car");
    visitor.press_button("try-judged");
    let summary =
        "Something found in 2 of 2 pictures. 1 of 1 right ones found, 1 of 1 wrong ones gone.";
    visitor.browser.until(&format!(
        "document.querySelector('#sheet [role=status]').textContent === '{summary}'"
    ));
    let caption = visitor.text("#sheet-a p:last-child");
    assert_eq!(
        caption,
        "car · Fri 2026-05-29 01:56 Asia/Kolkata · corrected"
    );
    let ask = json!({"kind": "detect", "words": "car"});
    let of = |event: &str| json!({"cam": "gate", "event": event, "asks": [ask]});
    let list = |mark| format!("events.json?camera=gate&prompt=car&mark={mark}&limit=50");
    let lists = ["right", "corrected", "wrong"].map(list);
    let asked = json!([lists[0], lists[1], lists[2], of("a"), of("a"), of("b")]);
    assert_eq!(visitor.browser.says("asked"), asked);
    // With a lower min_score, the wrong one would come.
    visitor.press_button("try-events");
    visitor
        .browser
        .until("document.querySelector('#sheet pre')?.textContent === '[history]'");
    let verdicts = |score: f64| {
        format!(
            "import('/sheet.js').then(({{ verdicts }}) => verdicts(stored.slice(0, 2), new Map(Object.entries(found).map(([id, objects]) => [id, {{ objects }}])), {score}))"
        )
    };
    for (score, kept, gone) in [(0.3, 1, 0), (0.5, 1, 1), (0.95, 0, 1)] {
        let expected = json!({"right": 1, "kept": kept, "wrong": 1, "gone": gone});
        assert_eq!(visitor.browser.says(&verdicts(score)), expected, "{score}");
    }
    visitor.expect_no_complaints();
}
