//! The answer router beside a sampler, with made-up answers and without a broker.
//!
//! Faults: K16.

use std::{
    ops::ControlFlow,
    sync::mpsc::{Sender, channel},
    time::Duration,
};

use super::*;
use crate::app::testing;
use spotter_cameras::sampler::{CameraShare, Sampler};
use spotter_config::PromptConfig;
use spotter_core::{
    AnswerBody, AnswerPiece, Clock, ColourMatrix, ColourRange, EventStep, FoundObject, FrameEnd,
    Look, LookFailure, ManualClock, Mono, NormBox, NormPoint, Outline, Picture, PictureLayout,
    PixelFormat, PromptId, ScoreSource, Task, WallTime, testing::FakeDevicePlanes,
};
use spotter_events::replay::{ReplayRules, replay};
use spotter_history::{History, HistoryFilter, PictureLinks, RecordFilter, StoredRecord};
use spotter_state::StateStore;
use tempfile::TempDir;

/// A camera with two prompts, of which one has doubts.
const CONFIG: &str = r#"
mqtt.url = "mqtt://127.0.0.1:1"
http.listen = "off"
[camera.gate]
url = "test://"
rate = 1
prompt.person = { detect = "person", snapshot = true }
prompt.parcel = { detect = "parcel", snapshot = true, verify = "Is there a parcel?" }
"#;

struct Site {
    clock: ManualClock,
    sampler: Arc<Sampler>,
    share: Arc<CameraShare>,
    router: AnswerRouter,
    gate: CameraId,
    frames: u64,
}

impl Site {
    fn new(text: &str) -> Self {
        let config = testing::config(text);
        let clock = ManualClock::default();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let handles = testing::handles(&config, &shared);
        let sampler = Arc::clone(&handles.sampler);
        let share = sampler.share(testing::no_limits());
        let ids = config.cameras.iter().map(|camera| camera.id.clone());
        sampler.assign(&share, &Vec::from_iter(ids));
        let store = testing::config_store(&config, &*shared);
        let model = AnsweringModel {
            name: "a model".into(),
            precision: "f32".into(),
        };
        let router = AnswerRouter::new(&store, model, "b7c1".into(), handles);
        Self {
            clock,
            sampler,
            share,
            router,
            gate: config.cameras[0].id.clone(),
            frames: 0,
        }
    }

    /// A frame comes, so long after the last one; what is asked of it.
    fn frame(&mut self, after_ms: u64) -> Option<Look> {
        self.clock.advance(Duration::from_millis(after_ms));
        self.frames += 1;
        let frame =
            spotter_core::testing::frame_at(&self.gate, self.clock.now().since(Mono::default()));
        self.sampler.camera_sink(&self.gate).unwrap()(Frame {
            number: self.frames,
            ..frame
        });
        testing::look(&self.share)
    }

    /// A look is answered: there is a thing for every prompt, and `verdict` to every question.
    fn answered(&mut self, look: Look, verdict: &str) {
        self.answered_with(look, &[found(place())], verdict);
    }

    fn answered_with(&mut self, mut look: Look, things: &[FoundObject<NormBox>], verdict: &str) {
        let body = |prompt: &Prompt| match &prompt.task {
            Task::Detect { .. } => AnswerBody::Boxes(things.to_vec()),
            _ => AnswerBody::Text {
                text: verdict.into(),
                score: 0.5,
                source: ScoreSource::TokenProb,
            },
        };
        for prompt in &look.prompts {
            let answered = testing::answered(&look.frame, prompt, body(prompt));
            self.router.news(&answered);
        }
        self.router
            .news(&LookNews::ShortAnswered(look.frame.clone()));
        look.token.end(FrameEnd::Looked);
        self.end(Outcome::Answered(look.frame));
    }

    fn end(&mut self, mut outcome: Outcome) {
        let end = outcome.frame_end();
        if let Outcome::Late(look) | Outcome::Failed(look, _) = &mut outcome {
            look.token.end(end);
        }
        self.router.news(&LookNews::Ended(outcome));
    }

    /// Frames, one a second, until a question comes with one; after how many seconds.
    fn until_question(&mut self) -> (u64, Look) {
        for second in 1..1000 {
            let look = self.frame(1000).unwrap();
            if questions(&look) == 1 {
                return (second, look);
            }
            self.answered(look, "");
        }
        panic!("no question is pending");
    }

    /// Stream messages so far.
    fn streams(&self) -> u64 {
        self.router.handles.publisher.counters().dropped_offline
    }

    /// The prompt of the next snapshot, which is one of an event, and its JPEG.
    async fn snapshot(&mut self) -> (String, Vec<u8>) {
        let taken = self.router.snapshots.next().await;
        let Some((Update::Snapshot { prompt, jpeg, .. }, Some(_))) =
            self.router.snapshots.update(taken)
        else {
            panic!("no picture of an event")
        };
        (prompt.to_string(), jpeg.to_vec())
    }

    /// The events that are open, by prompt.
    fn open(&self) -> Vec<(&str, ScoreSource, bool)> {
        let open = self.router.tracker.open_events();
        let mut open: Vec<_> = open
            .map(|event| (event.prompt.as_str(), event.score_source, event.snapshot))
            .collect();
        open.sort_by_key(|(prompt, ..)| *prompt);
        open
    }
}

fn place() -> NormBox {
    NormBox::from_corners(0.1, 0.2, 0.3, 0.4)
}

fn questions(look: &Look) -> usize {
    let is = |prompt: &&Arc<Prompt>| prompt.task.text() == "Is there a parcel?";
    look.prompts.iter().filter(is).count()
}

fn found<T>(place: T) -> FoundObject<T> {
    FoundObject {
        place,
        score: 0.75,
        source: ScoreSource::TokenProb,
        sharpness: 0.25,
    }
}

#[tokio::test]
async fn verified_event_waits_for_question_at_next_frame() {
    let mut site = Site::new(CONFIG);
    for _ in 0..2 {
        let look = site.frame(1000).unwrap();
        assert_eq!((look.prompts.len(), questions(&look)), (2, 0));
        site.answered(look, "");
    }
    let person = ("person", ScoreSource::TokenProb, true);
    assert_eq!(site.open(), [person], "one of them has no doubts");

    // Nothing else is due on the next frame. It is late, and its question is asked again.
    let look = site.frame(40).unwrap();
    assert_eq!((look.prompts.len(), questions(&look)), (1, 1));
    site.end(Outcome::Late(look));
    assert!(site.frame(40).is_none());
    let (seconds, look) = site.until_question();
    assert!((10..=12).contains(&seconds), "{seconds}");
    // The same with one that the engine cannot do.
    let failed = Outcome::Failed(look, LookFailure::EngineStopped);
    site.end(failed);
    let (_, look) = site.until_question();
    site.answered(look, "No");
    assert_eq!(site.open(), [person]);
    let (_, look) = site.until_question();
    site.answered(look, "Yes");
    let parcel = ("parcel", ScoreSource::Verify, true);
    assert_eq!(site.open(), [parcel, person]);

    let [(_, frame_counters)] = &site.sampler.counters()[..] else {
        panic!("one camera")
    };
    assert!(
        frame_counters.balanced() && frame_counters.in_flight == 0,
        "{frame_counters:?}"
    );
    assert_eq!((frame_counters.late, frame_counters.failed), (1, 1));
}

#[tokio::test]
async fn events_of_one_look_have_a_snapshot_each() {
    // The broker keeps them.
    let config = CONFIG.replace(", verify = \"Is there a parcel?\"", "");
    let mut site = Site::new(&format!("mqtt.retain_snapshots = true\n{config}"));
    for _ in 0..2 {
        let look = site.frame(1000).unwrap();
        site.answered(look, "");
    }
    let token_prob = ScoreSource::TokenProb;
    assert_eq!(
        site.open(),
        [("parcel", token_prob, true), ("person", token_prob, true)]
    );
    // A command's snapshot, which is not retained.
    let gate = site.gate.clone();
    site.router.snapshots.request(&gate);
    let look = site.frame(1000).unwrap();
    site.answered(look, "");
    let mut of = Vec::new();
    for _ in 0..3 {
        let taken = site.router.snapshots.next().await;
        let Some((Update::Snapshot { prompt, retain, .. }, _)) =
            site.router.snapshots.update(taken)
        else {
            panic!("no picture")
        };
        of.push((prompt.to_string(), retain));
    }
    let of: Vec<_> = of
        .iter()
        .map(|(id, retain)| (id.as_str(), *retain))
        .collect();
    assert_eq!(of, [("person", true), ("parcel", true), ("person", false)]);
}

#[tokio::test]
async fn lost_engine_ends_events_and_the_next_answers_count() {
    let mut site = Site::new(CONFIG);
    for _ in 0..2 {
        let look = site.frame(1000).unwrap();
        site.answered(look, "");
    }
    assert_eq!(site.open().len(), 1);
    let gate = site.gate.clone();
    let changes = site.router.lose(&[gate]);
    let events = changes.into_iter().flat_map(|change| change.events);
    let steps: Vec<EventStep> = events.map(|event| event.step).collect();
    assert_eq!(steps, [EventStep::End(EndReason::EngineLost)]);
    assert_eq!(site.open(), []);
    for _ in 0..2 {
        let look = site.frame(1000).unwrap();
        site.answered(look, "");
    }
    assert_eq!(site.open().len(), 1);
}

/// Without a broker, each part is dropped and counted.
#[tokio::test]
async fn pieces_of_a_description_are_parts_with_one_last_part() {
    let describing = "detect = \"person\", describe = \"What is it doing?\"";
    let mut site = Site::new(&CONFIG.replace("detect = \"person\"", describing));
    let is_description = |prompt: &&Arc<Prompt>| prompt.task.text() == "What is it doing?";
    for _ in 0..2 {
        let look = site.frame(1000).unwrap();
        site.answered(look, "");
    }
    let look = site.frame(1000).unwrap();
    let description = Arc::clone(look.prompts.iter().find(is_description).unwrap());
    let verification = Arc::new(Prompt {
        id: PromptId::new("verify-9").unwrap(),
        ..(*description).clone()
    });
    let (frame, before) = (look.frame.id(), site.streams());
    let mut hear = |prompt: &Arc<Prompt>| {
        site.router.news(&LookNews::Piece {
            frame: frame.clone(),
            prompt: Arc::clone(prompt),
            piece: AnswerPiece::Text("It waves.".into()),
        });
        site.streams()
    };
    assert_eq!(hear(&verification), before);
    assert_eq!(hear(&description), before + 1);
    site.end(Outcome::Late(look));
    assert_eq!(site.streams(), before + 2, "the last part");
}

/// Outlines of people.
fn segmented() -> String {
    CONFIG.replace("detect = \"person\"", "segment = \"person\"")
}

/// A found thing, about which the engine can be asked further.
fn askable(frame: &Frame, prompt: &Arc<Prompt>, asked: &Sender<Vec<Arc<Prompt>>>) -> LookNews {
    let mut news = testing::answered(frame, prompt, AnswerBody::Boxes(vec![found(place())]));
    if let LookNews::Answer { follow_up, .. } = &mut news {
        let asked = asked.clone();
        *follow_up = Some(FollowUp::new(move |prompts| asked.send(prompts).unwrap()));
    }
    news
}

/// A triangle in the place of the found things.
fn triangle() -> Outline {
    let corners = [(0.1, 0.2), (0.3, 0.2), (0.2, 0.4)].map(|(x, y)| NormPoint::new(x, y));
    Outline {
        bounds: Some(place()),
        path: "M 0 0 L 1 0 L 0.5 1 Z".into(),
        polygons: vec![corners.into()],
        parse_error: None,
        score: 0.5,
    }
}

/// A grey picture of 640 x 360 pixels.
fn grey(planes: &Arc<FakeDevicePlanes>) -> Picture {
    let layout = PictureLayout {
        format: PixelFormat::Nv12,
        size: (640, 360),
        strides: [640, 640, 0],
        colour: (ColourMatrix::Bt709, ColourRange::Limited),
    };
    Picture::new(layout, planes.clone()).unwrap()
}

/// What is drawn into a snapshot of a grey picture.
fn is_drawn(jpeg: &[u8], (x, y): (usize, usize)) -> bool {
    let image = spotter_pictures::decode(jpeg, usize::MAX).unwrap();
    let pixel = &image.row(0, y)[x * 3..x * 3 + 3];
    pixel.iter().any(|value| value.abs_diff(130) > 60)
}

#[tokio::test]
async fn snapshot_on_a_gpu_is_made_again_with_an_outline() {
    let mut site = Site::new(&segmented());
    let look = site.frame(1000).unwrap();
    site.answered(look, "");
    let planes = vec![vec![128; 640 * 360], vec![128; 640 * 180]];
    let planes = Arc::new(FakeDevicePlanes::new(planes));
    let mut look = site.frame(1000).unwrap();
    look.frame.picture = grey(&planes);
    let (sender, asked) = channel();
    for prompt in &look.prompts {
        site.router.news(&askable(&look.frame, prompt, &sender));
    }
    let asked = Vec::from_iter(asked.try_iter().flatten());
    let [question] = &asked[..] else {
        panic!("only one prompt has outlines: {asked:?}")
    };
    let (prompt, with_box) = site.snapshot().await;
    assert_eq!(prompt, "person");
    let outline = AnswerBody::Outline(triangle());
    let answer = testing::answered(&look.frame, question, outline);
    site.router.news(&answer);
    let (prompt, with_outline) = site.snapshot().await;
    assert_eq!(prompt, "person");
    assert_eq!(site.router.snapshots.counters().taken, 2);
    // A side of the box, and one of the triangle in it.
    let drawn = |jpeg: &[u8]| [(64, 120), (106, 120)].map(|at| is_drawn(jpeg, at));
    assert_eq!(drawn(&with_box), [true, false]);
    assert_eq!(drawn(&with_outline), [false, true]);
    assert_eq!(planes.copies(), 1, "fetched from the GPU once");
}

#[tokio::test]
async fn outline_that_cannot_be_asked_for_waits_a_look() {
    let mut site = Site::new(&segmented());
    for _ in 0..3 {
        let look = site.frame(1000).unwrap();
        site.answered(look, "");
    }
    // The engine cannot be asked, and no question is left that others wait for.
    let look = site.frame(1000).unwrap();
    let (sender, asked) = channel();
    let person = look.prompts.iter().find(|prompt| prompt.outlines_max > 0);
    let news = askable(&look.frame, person.unwrap(), &sender);
    site.router.news(&news);
    assert_eq!(asked.try_iter().flatten().count(), 1);
}

/// As after an engine that waited too long for the questions.
#[tokio::test]
async fn outline_without_answer_is_asked_of_the_next_look() {
    let mut site = Site::new(&segmented());
    let look = site.frame(1000).unwrap();
    site.answered(look, "");
    let (sender, asked) = channel();
    for is_late in [false, true, false] {
        let mut look = site.frame(1000).unwrap();
        for prompt in look.prompts.clone() {
            site.router.news(&askable(&look.frame, &prompt, &sender));
        }
        assert_eq!(asked.try_iter().flatten().count(), 1);
        look.prompts.clear();
        site.end(match is_late {
            true => Outcome::Late(look),
            false => Outcome::Answered(look.frame),
        });
    }
}

/// The history of a site with this configuration, which the router has.
fn history(site: &mut Site, text: &str, folder: &TempDir) -> History {
    let clock: Arc<dyn Clock> = Arc::new(site.clock.clone());
    let store = StateStore::open(folder.path(), Arc::clone(&clock)).unwrap();
    let config = testing::config(text);
    let encode = |_: &Picture| Ok(b"jpeg".to_vec());
    let history = config.history.as_ref().unwrap();
    let history = History::start(&store, history, encode, clock).unwrap();
    site.router.handles.history = Some(history.clone());
    let model = site.router.model.clone();
    site.router.tracker = Tracker::recording("b7c1".into(), &config.cameras);
    site.router.near = NearEvents::new("b7c1", &config.cameras, model, Some(history.clone()));
    history
}

fn records(history: &History) -> Vec<StoredRecord> {
    let mut records = Vec::new();
    let read = history
        .reader()
        .each_record(&RecordFilter::default(), |record| {
            records.push(record);
            ControlFlow::Continue(())
        });
    read.unwrap();
    records
}

#[tokio::test]
async fn recorded_looks_replay_to_the_stored_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(CONFIG);
    let history = history(&mut site, &format!("{CONFIG}[history]"), &folder);
    for number in 0..100 {
        let look = site.frame(1000).unwrap();
        // Ten seconds of something, and thirty of nothing.
        let things = Vec::from_iter((number % 40 < 10).then_some(found(place())));
        site.answered_with(look, &things, "yes");
        site.router.store_records();
    }
    drop(site.router.finish());
    while records(&history).len() < 6 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let camera = &testing::config(CONFIG).cameras[0];
    for record in records(&history) {
        let is_of_record = |prompt: &&PromptConfig| prompt.id.as_str() == record.prompt;
        let rules = ReplayRules {
            camera,
            prompt: camera.prompts.iter().find(is_of_record).unwrap(),
            added_masks: &[],
        };
        let events = replay(&rules, record.chunks.iter().map(|chunk| &chunk[..])).unwrap();
        let [event] = &events[..] else {
            panic!("{events:?}")
        };
        let id = record.started[0].track.as_str();
        let stored = history.reader().event(id, PictureLinks::Page).unwrap();
        let (stored, end) = (stored.unwrap(), event.messages.last().unwrap().ended);
        assert_eq!(stored.start_ms, event.messages[0].started.unix_millis());
        assert_eq!(stored.end_ms, end.map(WallTime::unix_millis));
    }
}

#[tokio::test]
async fn event_is_stored_with_frame_looks_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(CONFIG);
    let history = history(&mut site, &format!("{CONFIG}[history]"), &folder);
    for _ in 0..5 {
        let look = site.frame(1000).unwrap();
        site.answered(look, "no");
    }
    drop(site.router.finish());
    let reader = history.reader();
    let stored = || {
        let page = reader.list(&HistoryFilter::default(), PictureLinks::Page, 0);
        page.unwrap().events.into_iter().next()
    };
    let is_whole =
        || stored().is_some_and(|event| event.end_ms.is_some() && event.picture.is_some());
    while !is_whole() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let event = reader.event(&stored().unwrap().id, PictureLinks::Page);
    let event = serde_json::to_value(event.unwrap().unwrap()).unwrap();
    assert_eq!(
        (&event["prompt"], &event["words"]),
        (&"person".into(), &"person".into())
    );
    assert!(event["seen"].as_array().unwrap().len() > 1, "{event}");
    let picture = reader.picture(event["id"].as_str().unwrap()).unwrap();
    assert_eq!(picture.unwrap().jpeg, b"jpeg");
}

/// With `verify`, an object that is not below `min_score` is for the question to decide.
#[tokio::test]
async fn objects_below_min_score_are_stored_without_an_alarm() {
    let text = r#"
mqtt.url = "mqtt://127.0.0.1:1"
http.listen = "off"
[camera.gate]
url = "test://"
rate = 1
prompt.person = { detect = "person", min_score = 0.6 }
prompt.parcel = { detect = "parcel", min_score = 0.6, verify = "Is there a parcel?" }
[history]
near = 20
"#;
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(text);
    let history = history(&mut site, text, &folder);
    let listed = |query: &str| {
        let filter = HistoryFilter::read(query).unwrap();
        let page = history.reader().list(&filter, PictureLinks::Page, 0);
        let page = serde_json::to_value(page.unwrap()).unwrap();
        let event = |event: &serde_json::Value| {
            let x0 = event["box"][0].as_f64().unwrap();
            (event["prompt"] == "person", (x0 * 10.0) as i64)
        };
        let is_whole = |event: &&serde_json::Value| event["picture"].is_string();
        let events = page["events"].as_array().unwrap().iter();
        let mut events: Vec<_> = events.filter(is_whole).map(event).collect();
        events.sort_unstable();
        events
    };
    let until = |query: &str, expected: &[(bool, i64)]| {
        while listed(query) != expected {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // Left edges in tenths of the picture, and scores.
    let mut see = |objects: &[(f64, f64)]| {
        for _ in 0..3 {
            let look = site.frame(1000).unwrap();
            let object = |&(tenths, score): &(f64, f64)| {
                let left = tenths / 10.0 + 0.01;
                let place = NormBox::from_corners(left, 0.2, left + 0.08, 0.4);
                FoundObject {
                    score,
                    ..found(place)
                }
            };
            for prompt in look.prompts.iter().filter(|prompt| prompt.revision > 0) {
                let body = AnswerBody::Boxes(objects.iter().map(object).collect());
                let answered = testing::answered(&look.frame, prompt, body);
                site.router.news(&answered);
            }
            let ended = Outcome::Answered(look.frame.clone());
            site.end(ended);
        }
    };
    see(&[(1.0, 0.7)]);
    until("", &[(true, 1)]);
    // The second is too low, the third becomes an alarm of one prompt.
    see(&[(1.0, 0.5), (3.0, 0.2), (5.0, 0.4), (7.0, 0.4)]);
    until("near=only", &[(false, 5), (false, 7), (true, 5), (true, 7)]);
    see(&[(5.0, 0.7), (7.0, 0.4)]);
    until("near=only", &[(false, 5), (false, 7), (true, 7)]);
    until("", &[(true, 1), (true, 5)]);
}
