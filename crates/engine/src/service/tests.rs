//! The engine with words, against a backend that decides by a script and checks the contract of every step.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future as _,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};

use proptest::prelude::*;

use super::{Engine, EngineError, handle, requests::RequestMaker};
use crate::{
    scheduler::{
        Options,
        backend::{
            Backend, BackendError, BackendLimits, DecoderInput, Feed, PageId, Pick, Row, RowMask,
            SlotId, Step, StepResult, StepTimes,
        },
        request::{LookRequest, Work},
        sequence::Bounds,
        still::{PictureDetail, ReuseRule},
    },
    testing::{
        self,
        script::{END, coord, size, token},
    },
};
use spotter_core::{
    AdapterId, Answer, AnswerBody, AnswerPiece, CameraId, Clock as _, FoundObject, Look,
    LookFailure, LookNews, ManualClock, Mono, NormBox, Outcome, Picture, Prompt, PromptId,
    PromptRegion, PromptView, RegionBox, ScoreMap, ScoreMaps, ScoreSource, ScoredKind, Strip,
    StripShape, Task, WallTime, WholeLook,
};

mod follow_ups;
mod next_looks;
mod pieces;

const BOUNDS: Bounds = Bounds {
    max_objects: 5,
    max_tokens: 8,
};

/// What the scripted backend saw.
#[derive(Default)]
struct Seen {
    images: usize,
    /// Sizes of the pictures, in the order of their steps.
    pictures: Vec<(usize, usize)>,
    steps: usize,
    rows: usize,
    in_use: HashSet<PageId>,
    /// Of each prepared shape, the images of the step that ran meanwhile; `None` between steps.
    prepared: Vec<Option<usize>>,
}

/// Ends every detect row after as many boxes as its prompt has tokens modulo three, answers a question with a text, and checks each step.
struct Scripted {
    limits: BackendLimits,
    clock: ManualClock,
    /// Tokens that are not chosen yet; then the end.
    text: VecDeque<u32>,
    seen: Arc<Mutex<Seen>>,
    ready: Option<StepResult>,
    fail_at_step: Option<usize>,
}

fn follows_a_size(row: &Row) -> bool {
    matches!(&row.inputs, Feed::Host(inputs) if matches!(inputs[..], [DecoderInput::Size(..)]))
}

impl Backend for Scripted {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        assert_eq!(slot, SlotId(0));
        assert!(
            self.ready.is_none(),
            "a slot is launched again before its commit"
        );
        let mut seen = self.seen.lock().expect("one thread");
        seen.steps += 1;
        seen.images += step.images.len();
        let sizes = step.images.iter().map(|image| image.picture.size());
        seen.pictures.extend(sizes);
        seen.rows += step.rows.len();
        if self.fail_at_step == Some(seen.steps) {
            return Err(BackendError::Device("the device fell off the bus".into()));
        }
        assert!(!step.rows.is_empty() && step.rows.len() <= self.limits.rows);
        let mut own = HashSet::new();
        for row in &step.rows {
            let past_prefix = row.position + row.inputs.positions() - row.kv.prefix_positions;
            assert!(
                row.kv.own.len() * self.limits.page_tokens >= past_prefix,
                "positions without a page"
            );
            // Full pages of a text that began alike may be read by several.
            let from = (row.position - row.kv.prefix_positions) / self.limits.page_tokens;
            assert!(
                row.kv.own[from..].iter().all(|page| own.insert(*page)),
                "two rows write a page"
            );
            assert!(row.kv.prefix.iter().all(|page| !own.contains(page)));
        }
        seen.in_use = own;
        self.clock.advance(Duration::from_millis(10));
        let picked = step
            .rows
            .iter()
            .map(|row| match row.picks[0] {
                Pick::CoordOrEnd if row.position % 3 == 0 && follows_a_size(row) => END,
                // Objects of different rows differ by their places.
                Pick::CoordOrEnd | Pick::Coord => coord((row.position * 13 % 1000) as u16),
                Pick::Size => size(900, 900),
                _ => token(self.text.pop_front().unwrap_or_default()),
            })
            .map(|picked| vec![picked])
            .collect();
        let times = StepTimes {
            prepare: Duration::from_millis(2),
            encode: Duration::from_millis(5),
            ..StepTimes::default()
        };
        let model_sizes = step.images.iter().map(|_| (84, 84)).collect();
        self.ready = Some(StepResult {
            picked,
            model_sizes,
            times,
            ..StepResult::default()
        });
        Ok(())
    }

    fn finalize(&mut self, _: SlotId, _: Vec<RowMask>) -> Result<(), BackendError> {
        Err(BackendError::Step("no row wants a mask".into()))
    }

    fn commit(&mut self, _: SlotId) -> Result<StepResult, BackendError> {
        Ok(self.ready.take().expect("commit without launch"))
    }

    fn prepare_shape(&mut self) -> Result<bool, BackendError> {
        let images = self.ready.as_ref().map(|ready| ready.model_sizes.len());
        self.seen.lock().expect("one thread").prepared.push(images);
        Ok(false)
    }
}

fn engine(
    limits: BackendLimits,
    fail_at_step: Option<usize>,
) -> (Engine, ManualClock, Arc<Mutex<Seen>>) {
    writing_engine(limits, fail_at_step, Vec::new())
}

/// An engine that answers a question with these tokens.
fn writing_engine(
    limits: BackendLimits,
    fail_at_step: Option<usize>,
    text: Vec<u32>,
) -> (Engine, ManualClock, Arc<Mutex<Seen>>) {
    let clock = ManualClock::at(WallTime::default());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let backend = Scripted {
        limits,
        clock: clock.clone(),
        text: VecDeque::from(text),
        seen: Arc::clone(&seen),
        ready: None,
        fail_at_step,
    };
    let (model, shared) = (testing::micro_model(), Arc::new(clock.clone()));
    let engine = Engine::new(Box::new(backend), model, BOUNDS, shared);
    (engine, clock, seen)
}

/// An engine that answers from what is known of unchanged pictures.
fn reusing_engine(limits: BackendLimits) -> (Engine, Arc<Mutex<Seen>>) {
    let (mut engine, _, seen) = engine(limits, None);
    let reuse = Some(ReuseRule {
        detail: PictureDetail::Bytes,
        max_age: Duration::from_secs(3600),
    });
    engine.restart(
        BOUNDS,
        Options {
            reuse,
            ..Options::default()
        },
    );
    (engine, seen)
}

/// The answers of a look that is alone in the engine.
fn answered(engine: &mut Engine, look: Look) -> Vec<Answer> {
    let mut whole = WholeLook::new(&look);
    engine.submit(look).expect("valid prompts");
    while whole.outcome.is_none() {
        for (_, news) in engine.turn().expect("the device works") {
            whole.add(news);
        }
    }
    whole.into_answers().expect("answered")
}

const LIMITS: BackendLimits = BackendLimits {
    slots: 1,
    rows: 4,
    pages: 64,
    page_tokens: 4,
    context: 200,
    prefix_positions: 37,
    images: 1,
    positions: 400,
    tokens: 400,
    picks: usize::MAX,
    picture_pixels: usize::MAX,
    kept_crops: 0,
    adapters: 0,
};

fn look(prompts: usize, start_by: Mono) -> Look {
    let picture = Picture::from_rgb(4, 4, vec![0; 48]).expect("a small picture");
    let prompt = |i: usize| {
        Prompt::new(
            PromptId::new(&format!("p{i}")).expect("id"),
            1,
            Task::Detect {
                object: "x".repeat(i % 7 + 1),
            },
        )
    };
    Look {
        prompts: (0..prompts).map(|i| Arc::new(prompt(i))).collect(),
        start_by,
        ..Look::still(picture, [])
    }
}

/// A look at a picture of 400 x 300 pixels whose prompts, all with the same words, have these regions.
fn look_at_regions(regions: &[PromptRegion]) -> Look {
    let picture = Picture::from_rgb(400, 300, vec![0; 400 * 300 * 3]).expect("a picture");
    let template = look(1, Mono::from_nanos(u64::MAX));
    let prompt = |(index, &region): (usize, &PromptRegion)| {
        let view = PromptView {
            region,
            ..PromptView::default()
        };
        Arc::new(Prompt {
            id: PromptId::new(&format!("p{index}")).expect("id"),
            view,
            ..(*template.prompts[0]).clone()
        })
    };
    Look {
        prompts: regions.iter().enumerate().map(prompt).collect(),
        frame: Look::still(picture, []).frame,
        ..template
    }
}

#[test]
fn prompts_of_one_region_share_one_image() {
    let (mut engine, _, seen) = engine(LIMITS, None);
    let area = NormBox::from_corners(0.25, 0.5, 0.75, 1.0);
    let region = RegionBox::new(area);
    let (fixed, whole) = (PromptRegion::Fixed(region), PromptRegion::Whole);
    let mut asked = look_at_regions(&[fixed, whole, PromptRegion::Motion, fixed]);
    asked.moved = Some(region);
    let whole = engine.look(asked.clone()).expect("a device");
    let answers = whole.into_answers().expect("answered");
    let pictures = seen.lock().expect("one thread").pictures.clone();
    assert_eq!(pictures, [(200, 150), (400, 300)]);
    let ids: Vec<&str> = answers.iter().map(|a| a.prompt.id.as_str()).collect();
    assert_eq!(ids, ["p0", "p1", "p2", "p3"]);
    let boxes = |index: usize| match &answers[index].body {
        AnswerBody::Boxes(found) => found.iter().map(|f| f.place).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let in_part: Vec<NormBox> = boxes(1).iter().map(|b| area.box_in_picture(b)).collect();
    assert!(!in_part.is_empty());
    for index in [0, 2, 3] {
        assert_eq!(answers[index].region, Some(area), "{index}");
        assert_eq!(boxes(index), in_part, "{index}");
    }
    assert_eq!(answers[1].region, None);
    // Nothing moved: the prompt that follows motion sees the whole picture.
    let moved = None;
    assert_answered(engine.look(Look { moved, ..asked }));
    assert_eq!(seen.lock().expect("one thread").pictures.len(), 4);
    assert!(engine.is_idle());
}

#[test]
fn score_map_applies_to_answers_of_its_kind() {
    let (mut engine, _, _) = engine(LIMITS, None);
    let map = ScoreMap::try_from(vec![[0.0, 0.25], [1.0, 0.25]]).expect("a map");
    let mut scores = |kind| {
        let mut maps = ScoreMaps::default();
        maps.insert(kind, map.clone());
        engine.set_score_maps(maps);
        let answered = engine.look(look(1, Mono::from_nanos(u64::MAX)));
        let answers = answered.expect("a device").into_answers();
        match &answers.expect("answered")[0].body {
            AnswerBody::Boxes(found) => (found[0].score, found[0].source),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(scores(ScoredKind::Detect), (0.25, ScoreSource::Calibrated));
    let (score, source) = scores(ScoredKind::Query);
    assert!(score != 0.25 && source == ScoreSource::TokenProb);
}

#[test]
fn late_view_leaves_the_answers_of_the_others() {
    let (mut engine, clock, _) = engine(LIMITS, None);
    let fixed = PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(0.0, 0.0, 0.5, 0.5)));
    let look = |answer_by| Look {
        start_by: answer_by,
        answer_by,
        ..look_at_regions(&[fixed, PromptRegion::Whole])
    };
    let ids = |late: &Look| -> Vec<String> {
        let prompts = late.prompts.iter();
        prompts.map(|prompt| prompt.id.to_string()).collect()
    };
    let began = clock.now();
    assert_answered(engine.look(look_at_regions(&[fixed])));
    let first_view = clock.now().since(began);
    // A step takes ten milliseconds, and each image has a step of its own, so the other view ends a step later.
    let answer_by = clock.now().after(first_view - Duration::from_millis(5));
    let whole = engine.look(look(answer_by)).expect("a device");
    let answered: Vec<String> = (whole.answers.iter().map(|a| a.prompt.id.to_string())).collect();
    let Some(Outcome::Late(late)) = whole.outcome else {
        panic!("{:?}", whole.outcome)
    };
    assert_eq!(
        (answered, ids(&late)),
        (vec!["p0".into()], vec!["p1".into()])
    );
    assert!(engine.is_idle());
    // The look is not begun when its first view is late; a step may carry the other one already.
    let whole = engine.look(Look {
        start_by: Mono::from_nanos(0),
        ..look(Mono::from_nanos(u64::MAX))
    });
    let whole = whole.expect("a device");
    let Some(Outcome::Late(late)) = whole.outcome else {
        panic!("{:?}", whole.outcome)
    };
    assert_eq!((whole.answers.len(), ids(&late).len()), (0, 2));
    while !engine.is_idle() {
        assert!(engine.turn().expect("the device works").is_empty());
    }
}

// Faults: E11.
#[test]
fn view_that_cannot_be_answered_fails_its_own_prompts() {
    let (mut engine, clock, _) = engine(LIMITS, None);
    let mut asked = look(3, clock.now());
    let broken = AdapterId::new("plates").expect("an id");
    // The first view too, which decides when the look begins.
    for index in [0, 2] {
        Arc::make_mut(&mut asked.prompts[index]).adapter = Some(broken.clone());
    }
    let whole = engine.look(asked.clone()).expect("one view fits");
    let answered: Vec<_> = whole.answers.iter().map(|a| a.prompt.id.as_str()).collect();
    assert_eq!(answered, ["p1"]);
    let Some(Outcome::Failed(unanswered, LookFailure::Adapter { id, .. })) = whole.outcome else {
        panic!("{:?}", whole.outcome)
    };
    let ids: Vec<_> = unanswered.prompts.iter().map(|p| p.id.as_str()).collect();
    assert_eq!((id, ids), (broken, vec!["p0", "p2"]));
    clock.advance(Duration::from_millis(1));
    let late = engine.look(asked).expect("one view fits").outcome;
    assert!(matches!(late, Some(Outcome::Failed(late, _)) if late.prompts.len() == 3));
}

#[test]
fn cancelled_look_leaves_no_view_inside() {
    let (mut engine, _, _) = engine(LIMITS, None);
    let fixed = PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(0.0, 0.0, 0.5, 0.5)));
    let look = look_at_regions(&[fixed, PromptRegion::Whole]);
    let id = engine.submit(look).expect("valid prompts");
    engine.turn().expect("the device works");
    engine.cancel(id);
    while !engine.is_idle() {
        assert!(engine.turn().expect("the device works").is_empty());
    }
}

#[test]
fn picture_from_no_camera_is_never_in_a_hurry() {
    let gate = CameraId::new("gate").expect("an id");
    for (camera, is_in_a_hurry) in [(gate, true), (CameraId::of_still(), false)] {
        let (mut engine, clock, _) = engine(LIMITS, None);
        engine.worker().hurry_after(Duration::from_millis(1));
        let mut look = look(1, Mono::from_nanos(u64::MAX));
        look.frame.camera = camera;
        engine.submit(look).expect("a valid prompt");
        while !engine.is_idle() {
            clock.advance(Duration::from_millis(10));
            if engine.worker().is_in_a_hurry() {
                break;
            }
            engine.turn().expect("the device works");
        }
        assert_eq!(!engine.is_idle(), is_in_a_hurry);
    }
}

/// The places of an answer are relative to its region, so a kept answer is one of the same region.
#[test]
fn still_scene_is_unchanged_in_the_same_region_alone() {
    let limits = BackendLimits {
        kept_crops: 64,
        ..LIMITS
    };
    let (mut engine, seen) = reusing_engine(limits);
    let part = |x0| RegionBox::new(NormBox::from_corners(x0, 0.0, x0 + 0.5, 0.5));
    let mut unchanged_on = |camera: CameraId, region, moved| {
        let mut look = Look {
            moved,
            ..look_at_regions(&[region])
        };
        look.frame.camera = camera;
        let answers = answered(&mut engine, look);
        let images = seen.lock().expect("one thread").pictures.len();
        (answers[0].unchanged, images)
    };
    let gate = || CameraId::new("gate").expect("an id");
    let mut unchanged = |region, moved| unchanged_on(gate(), region, moved);
    let fixed = |x0| PromptRegion::Fixed(part(x0));
    // The picture is grey all over.
    assert_eq!(unchanged(fixed(0.0), None), (false, 1));
    assert_eq!(unchanged(fixed(0.0), None), (true, 1));
    assert_eq!(unchanged(fixed(0.5), None), (false, 2));
    assert_eq!(unchanged(fixed(0.0), None), (true, 2));
    assert_eq!(unchanged(PromptRegion::Whole, None), (false, 3));
    // Where something moves, nothing is kept.
    for images in [4, 5] {
        let moved = Some(part(0.25));
        assert_eq!(unchanged(PromptRegion::Motion, moved), (false, images));
    }
    // Nothing moves: the prompt sees the whole picture, to which its answer is known.
    assert_eq!(unchanged(PromptRegion::Motion, None), (true, 5));
    // Of a picture from no camera nothing is remembered.
    for images in [6, 7] {
        let still = unchanged_on(CameraId::of_still(), PromptRegion::Whole, None);
        assert_eq!(still, (false, images));
    }
}

#[test]
fn strip_is_its_own_image_with_its_own_words() {
    let limits = BackendLimits {
        kept_crops: 64,
        context: 400,
        ..LIMITS
    };
    let (mut engine, seen) = reusing_engine(limits);
    let shape = StripShape {
        frames: 4,
        over: Duration::from_secs(2),
    };
    let grey =
        |grey: u8| Picture::from_rgb(400, 300, vec![grey; 400 * 300 * 3]).expect("a picture");
    // Of the frame's size, and at first equal to it in every byte.
    let strip = |picture| Strip {
        shape,
        region: PromptRegion::Whole,
        picture,
    };
    let mut look = look_at_regions(&[PromptRegion::Whole, PromptRegion::Whole]);
    look.frame.camera = CameraId::new("gate").expect("id");
    let task = Task::question("What?");
    for (index, prompt) in look.prompts.iter_mut().enumerate() {
        let view = PromptView {
            strip: (index == 1).then_some(shape),
            ..PromptView::default()
        };
        *prompt = Arc::new(Prompt {
            task: task.clone(),
            view,
            ..(**prompt).clone()
        });
    }
    let mut looked = |picture| {
        let look = Look {
            strips: vec![strip(picture)],
            ..look.clone()
        };
        let answers = answered(&mut engine, look);
        let images = seen.lock().expect("one thread").pictures.len();
        (answers[0].unchanged, answers[1].unchanged, images)
    };
    assert_eq!(looked(grey(0)), (false, false, 2));
    assert_eq!(looked(grey(0)), (true, true, 2));
    // An older frame changes the strip alone.
    assert_eq!(looked(grey(9)), (true, false, 3));
    let maker = engine.request_maker();
    let mut asked = Look {
        strips: vec![strip(grey(0))],
        ..look.clone()
    };
    let fed = |request: &LookRequest| {
        request.asks[0]
            .sequence
            .feed()
            .map(|next| next.inputs.len())
    };
    let tokens = |maker: &RequestMaker| -> Vec<usize> {
        let requests = maker.requests(&asked).expect("valid prompts");
        let fed = requests.fit.iter().filter_map(|(_, request)| fed(request));
        fed.collect()
    };
    let explained = tokens(&maker);
    assert!(explained[1] > explained[0] + 10, "{explained:?}");
    let mut plain = (*maker).clone();
    plain.model.explains_strips = false;
    assert_eq!(tokens(&plain), [explained[0]; 2]);
    asked.strips.clear();
    let requests = maker.requests(&asked).expect("the frame is there");
    let missing = requests.unfit.map(|error| error.to_string());
    assert!(
        missing.is_some_and(|why| why.contains("its look has no strip")),
        "the prompt that sees it has none"
    );
}

#[track_caller]
fn assert_answered(look: Result<WholeLook, EngineError>) {
    let answers = look.map(WholeLook::into_answers);
    assert!(matches!(answers, Ok(Ok(_))), "{answers:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(64)))]
    #[test]
    fn prompts_are_answered_in_order_with_one_image_encoding(prompts in 1_usize..11) {
        let (mut engine, clock, seen) = engine(LIMITS, None);
        for round in 1..4 {
            let whole = engine.look(look(prompts, clock.now())).expect("enough pages, round after round");
            let model_size = whole.model_size;
            let answers = whole.into_answers().expect("answered");
            let asked: Vec<_> = answers.iter().map(|a| a.prompt.id.to_string()).collect();
            prop_assert_eq!(asked, (0..prompts).map(|i| format!("p{i}")).collect::<Vec<_>>());
            prop_assert_eq!(model_size, (84, 84));
            prop_assert_eq!(seen.lock().expect("one thread").images, round);
            for answer in &answers {
                let m = answer.marks;
                prop_assert!(m.taken <= m.prepared && m.prepared <= m.encoded);
                prop_assert!(m.encoded <= m.prefilled && m.prefilled <= m.generated);
                prop_assert!(matches!(&answer.body, AnswerBody::Boxes(found) if !found.is_empty()));
            }
        }
    }
}

#[test]
fn a_restarted_engine_works_by_other_bounds_and_remembers_nothing() {
    let (mut engine, _, _) = engine(LIMITS, None);
    let boxes = |engine: &mut Engine| {
        let whenever = Mono::from_nanos(u64::MAX);
        let whole = engine.look(look(3, whenever)).expect("a device");
        let answers = whole.into_answers().expect("answered");
        let counts = answers.iter().filter_map(|answer| answer.body.count());
        counts.max()
    };
    assert!(boxes(&mut engine) > Some(1));
    let bounds = Bounds {
        max_objects: 1,
        ..BOUNDS
    };
    engine.restart(bounds, Options::default());
    assert_eq!(engine.worker().work(), Work::default());
    assert_eq!(boxes(&mut engine), Some(1));
    assert_eq!(engine.worker().work().objects, 3);
}

#[test]
fn prompts_share_steps() {
    let (mut engine, clock, seen) = engine(LIMITS, None);
    engine.look(look(4, clock.now())).expect("answered");
    let Seen { rows, steps, .. } = *seen.lock().expect("one thread");
    assert!(rows > steps, "{rows} rows in {steps} steps");
}

#[test]
fn streamed_objects_equal_those_of_the_answer() {
    let (mut engine, clock, _) = engine(LIMITS, None);
    let look = look(3, clock.now()).in_pieces();
    let mut whole = WholeLook::new(&look);
    let asked = engine.submit(look).expect("a prompt");
    let mut reported: HashMap<PromptId, Vec<FoundObject<NormBox>>> = HashMap::new();
    let mut turns_with_objects = Vec::new();
    for turn in 0.. {
        for (id, news) in engine.turn().expect("a device") {
            assert_eq!(id, asked);
            match news {
                LookNews::Piece {
                    prompt,
                    piece: AnswerPiece::Box(found),
                    ..
                } => {
                    reported.entry(prompt.id.clone()).or_default().push(found);
                    turns_with_objects.push(turn);
                }
                news => {
                    if let LookNews::Answer { answer, .. } = &news {
                        let reported = reported.remove(&answer.prompt.id).expect("an object");
                        assert_eq!(answer.body, AnswerBody::Boxes(reported));
                    }
                    whole.add(news);
                }
            }
        }
        if whole.outcome.is_some() {
            let answers = whole.into_answers().expect("answered");
            assert!(answers.iter().any(|a| a.body.count() > Some(2)));
            assert!(reported.is_empty(), "{reported:?}");
            assert!(turns_with_objects[0] + 2 < turn, "{turns_with_objects:?}");
            assert!(engine.is_idle());
            return;
        }
    }
}

#[test]
fn a_late_look_is_not_begun() {
    let (mut engine, clock, seen) = engine(LIMITS, None);
    let start_by = clock.now();
    clock.advance(Duration::from_millis(1));
    let outcome = engine.look(look(1, start_by)).expect("a device").outcome;
    assert!(matches!(outcome, Some(Outcome::Late(_))), "{outcome:?}");
    assert_eq!(seen.lock().expect("one thread").steps, 0);
}

#[test]
fn a_look_that_never_fits_fails_alone() {
    let limits = BackendLimits {
        pages: 18,
        ..LIMITS
    };
    let (mut engine, clock, _) = engine(limits, None);
    let mut long = look(1, clock.now());
    let words = "every single red car with a dent and a broken light that is parked at the kerb";
    let object = words.into();
    long.prompts = vec![Arc::new(Prompt {
        task: Task::Detect { object },
        ..(*long.prompts[0]).clone()
    })];
    let outcome = engine.look(long).expect("a device").outcome;
    let Some(Outcome::Failed(_, why)) = outcome else {
        panic!("eight pages are enough for this prompt");
    };
    let expected = "look with 1 prompts: prompt 0 does not fit into the 18 KV pages";
    assert!(
        matches!(&why, LookFailure::Unfit(text) if text.starts_with(expected)),
        "{why}"
    );
    // Four prompts take turns in what one needs.
    for prompts in [1, 4] {
        assert_answered(engine.look(look(prompts, clock.now())));
    }
}

#[test]
fn look_with_too_many_crops_fails_alone() {
    let (mut engine, clock, seen) = engine(LIMITS, None);
    let mut long = look(1, clock.now());
    long.frame.picture = Picture::from_rgb(4000, 90, vec![0; 4000 * 90 * 3]).expect("a picture");
    let error = engine.submit(long).expect_err("21 crops").to_string();
    let expected =
        "a picture of 4000 x 90 pixels is too long: it needs 21 crops, a step has room for 13";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(seen.lock().expect("one thread").steps, 0);
    assert_answered(engine.look(look(1, clock.now())));
}

#[test]
fn a_broken_device_is_fatal() {
    let (mut engine, clock, _) = engine(LIMITS, Some(2));
    let outcome = engine.look(look(1, clock.now()));
    let error = outcome.expect_err("the device failed");
    assert!(matches!(error, EngineError::Device(_)));
    assert!(error.to_string().contains("fell off the bus"), "{error}");
}

#[tokio::test]
async fn engine_admits_the_configured_number_of_looks() {
    let build = || Ok((engine(LIMITS, None).0, 3));
    let (handle, _) = handle::start(build).await.expect("an engine");
    let mut permits = vec![handle.permit().await, handle.permit().await];
    permits.push(handle.permit().await);
    let mut fourth = pin!(handle.permit());
    let mut context = Context::from_waker(Waker::noop());
    assert!(fourth.as_mut().poll(&mut context).is_pending());
    // A permit is free again when its look is answered.
    let permit = permits.pop().expect("three");
    let whole = permit.whole_look(look(1, Mono::from_nanos(u64::MAX))).await;
    assert_answered(Ok(whole));
    assert!(fourth.poll(&mut context).is_ready());
}

#[tokio::test]
async fn device_failure_is_reported_to_waiting_and_later_looks() {
    let build = || Ok((engine(LIMITS, Some(3)).0, 2));
    let (handle, mut end) = handle::start(build).await.expect("an engine");
    let ask = |permit: handle::Permit| permit.whole_look(look(1, Mono::from_nanos(u64::MAX)));
    let (one, two) = (handle.permit().await, handle.permit().await);
    for whole in <[_; 2]>::from(tokio::join!(ask(one), ask(two))) {
        assert!(
            matches!(whole.outcome, Some(Outcome::Failed(..))),
            "{whole:?}"
        );
    }
    let reason = end.reason().await.to_string();
    assert_eq!(reason, "device: the device fell off the bus");
    let late = ask(handle.permit().await).await;
    assert!(
        matches!(late.outcome, Some(Outcome::Failed(..))),
        "{late:?}"
    );
    end.over().await;
}

/// Never before a launch, and never beside a short step: the answer would wait for it.
#[test]
fn shapes_are_prepared_beside_images_and_while_idle() {
    let (mut engine, clock, seen) = engine(LIMITS, None);
    let start_by = clock.now().after(Duration::from_secs(1));
    engine.submit(look(2, start_by)).expect("a look");
    while !engine.is_idle() {
        engine.turn().expect("a sound device");
    }
    let steps = seen.lock().expect("one thread").steps;
    assert!(steps > 3, "{steps}");
    assert_eq!(seen.lock().expect("one thread").prepared, [Some(1)]);
    engine.prepare_shape().expect("a sound device");
    assert_eq!(seen.lock().expect("one thread").prepared, [Some(1), None]);
}
