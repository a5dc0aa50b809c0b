//! An answer is the answer that the same request gets alone, with other requests around it, and with steps that fail.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;

use super::{BOUNDS, grammar};
use crate::{
    model::{OutputPiece, SequenceOutput, Skill, Tiling},
    scheduler::{
        backend::{
            AdapterNumber, Backend, BackendError, BackendLimits, DecoderInput, LoadedAdapter,
        },
        constraint::Choices,
        draft::DraftKey,
        request::{Ask, Decide, LookEvent, LookFault, LookId, LookRequest, MeasuredView, Options},
        sequence::Sequence,
        still::{PictureDetail, PictureMeasure, ReuseRule, ViewKey},
        worker::Worker,
    },
    sim::{SimBackend, SimCosts, SimModel, strips},
    testing::simulated::{DeviceCall, FaultyDevice},
};
use spotter_core::{
    CameraId, Clock as _, ManualClock, Mono, Picture, Prompt, PromptId, Task, WallTime,
};

pub(super) const LIMITS: BackendLimits = BackendLimits {
    slots: 3,
    rows: 6,
    pages: 60,
    page_tokens: 4,
    context: 60,
    prefix_positions: 6,
    images: 2,
    positions: 400,
    tokens: 100,
    picks: 100,
    picture_pixels: usize::MAX,
    kept_crops: 20,
    adapters: usize::MAX,
};

pub(super) const MODEL: SimModel = SimModel {
    vocab: 24,
    objects: 4,
    crops: 3,
    memory: true,
};

/// A look of the schedule; small numbers, so that cameras, pictures and prompts come again.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Turns before it arrives.
    pub wait: usize,
    pub camera: u8,
    /// `None` for text alone.
    pub picture: Option<u8>,
    pub prompts: Vec<(u8, u8)>,
    /// Limits until the start and until the answer, milliseconds.
    pub limits_ms: [Option<u64>; 2],
    /// Turns until it is cancelled.
    pub cancel: Option<usize>,
    /// 0: none.
    pub adapter: u8,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = (
        0_usize..6,
        0_u8..3,
        prop::option::weighted(0.9, 0_u8..4),
        prop::collection::vec((0_u8..7, 0_u8..12), 1..5),
        [
            prop::option::weighted(0.2, 0_u64..60),
            prop::option::weighted(0.2, 0_u64..150),
        ],
        prop::option::weighted(0.1, 0_usize..12),
        0_u8..3,
    )
        .prop_map(
            |(wait, camera, picture, prompts, limits_ms, cancel, adapter)| Plan {
                wait,
                camera,
                picture,
                prompts,
                limits_ms,
                cancel,
                adapter,
            },
        );
    prop::collection::vec(plan, 1..9)
}

/// A picture of three strips of which only the last changes with `look`.
fn picture(look: u8) -> Picture {
    let bytes = (0..6).flat_map(|y| [if y < 4 { 7 } else { look }; 6]);
    Picture::from_rgb(2, 6, bytes.collect()).expect("a picture")
}

/// True for the kinds of prompts whose answer is a free text.
fn is_free_text(kind: u8) -> bool {
    matches!(kind, 3 | 5 | 6)
}

/// Its answers are another's.
fn adapter(number: u8) -> Option<Arc<LoadedAdapter>> {
    let adapter = LoadedAdapter {
        number: AdapterNumber(number.into()),
        weights: Default::default(),
    };
    (number > 0).then(|| Arc::new(adapter))
}

fn ask(plan: &Plan, index: usize, (kind, words): (u8, u8)) -> Ask {
    // The first tokens are those of a template, so that texts begin alike.
    let template = [20 + u32::from(kind % 2), 5, 9, 9, 8];
    let words = (0..words).map(|i| u32::from(i % 3) + 10);
    let prompt = template.into_iter().chain(words).map(DecoderInput::Token);
    let skill = match kind {
        0 | 1 => Skill::Detect,
        2 => Skill::Point,
        5 => Skill::Segment,
        6 => Skill::ReasonedText,
        _ => Skill::Text,
    };
    let mut sequence = Sequence::new(grammar(skill), prompt.collect(), BOUNDS);
    if kind == 4 {
        let choices = Choices::new([&[11, 12][..], &[11, 13, 14], &[15]]);
        sequence = sequence.choices(Arc::new(choices.expect("texts")));
    }
    let prompt = Prompt {
        view: Default::default(),
        id: PromptId::new(&format!("p{index}-{kind}")).expect("id"),
        revision: 1,
        task: Task::Caption {
            length: Default::default(),
        },
        adapter: None,
    };
    let (key, adapter) = (
        DraftKey::new(&camera_id(plan.camera), &prompt),
        adapter(plan.adapter),
    );
    Ask {
        sequence,
        draft: Some(key.with_adapter(adapter.map(|adapter| adapter.number))),
    }
}

fn camera_id(camera: u8) -> CameraId {
    CameraId::new(&format!("c{camera}")).expect("id")
}

pub(super) fn request(plan: &Plan, now: Mono) -> LookRequest {
    let asks = plan.prompts.iter().enumerate();
    let [start_by, answer_by] = plan.limits_ms.map(|limit_ms| match limit_ms {
        Some(ms) => now.after(Duration::from_millis(ms)),
        None => Mono::from_nanos(u64::MAX),
    });
    let picture = plan.picture.map(picture);
    let measured = picture.as_ref().map(|picture| MeasuredView {
        view: ViewKey {
            camera: camera_id(plan.camera),
            part: None,
            strip: None,
            tiling: Tiling { rows: 1, cols: 1 },
        },
        measure: PictureMeasure::of_regions(picture, &strips(picture, MODEL.crops), (84, 84)),
    });
    LookRequest {
        view: Default::default(),
        camera: Some(camera_id(plan.camera)),
        picture,
        measured,
        start_by,
        answer_by,
        asks: asks.map(|(i, &kind)| ask(plan, i, kind)).collect(),
        in_pieces: true,
        adapter: adapter(plan.adapter),
    }
}

/// On a device whose crops cost `crop`.
pub(super) fn worker(
    limits: BackendLimits,
    options: Options,
    crop: Duration,
) -> (Worker, ManualClock) {
    worker_on(limits, options, crop, |device| Box::new(device))
}

/// The same on what `wrap` makes of the device.
pub(super) fn worker_on(
    limits: BackendLimits,
    options: Options,
    crop: Duration,
    wrap: impl FnOnce(SimBackend) -> Box<dyn Backend>,
) -> (Worker, ManualClock) {
    let clock = ManualClock::at(WallTime::default());
    let ms = Duration::from_millis;
    let costs = SimCosts {
        crops: Arc::new(move |crops| crop * crops as u32),
        ..SimCosts::constant(ms(4), ms(1), ms(2))
    };
    let backend = SimBackend::new(limits, MODEL, costs, clock.clone());
    let shared = Arc::new(clock.clone());
    (
        Worker::new(wrap(backend), MODEL.vocab, options, shared),
        clock,
    )
}

/// The same request alone, in the simplest engine: `None` when it does not fit.
fn alone(plan: &Plan, limits: BackendLimits) -> Option<Vec<SequenceOutput>> {
    let options = Options {
        depth: 1,
        decide: Decide::Host,
        draft: false,
        reuse: None,
    };
    let (mut worker, clock) = worker(limits, options, Duration::ZERO);
    let plan = Plan {
        limits_ms: [None; 2],
        ..plan.clone()
    };
    worker.admit(request(&plan, clock.now()));
    let mut found = vec![SequenceOutput::default(); plan.prompts.len()];
    loop {
        for event in worker.turn().expect("a sound engine") {
            match event {
                LookEvent::Answer { prompt, result, .. } => found[prompt] = result.found,
                LookEvent::Answered { .. } => return Some(found),
                LookEvent::Failed { .. } => return None,
                LookEvent::Late { .. } | LookEvent::Piece(..) | LookEvent::ShortAnswered { .. } => {
                }
            }
        }
    }
}

/// The reason of a scripted fault.
const SCRIPTED: &str = "the script says so";
/// Fewer steps in a row than those after which a device counts as lost.
const LOST_MAX: usize = 5;

/// A fault for each call of the device, as long as there are any: which of the images, or the step.
fn script(faults: Vec<Option<u8>>) -> impl FnMut(DeviceCall) -> Option<BackendError> {
    let (mut faults, mut lost) = (faults.into_iter(), 0);
    move |call| {
        let reason = SCRIPTED.to_owned();
        let fault = faults.next().flatten().filter(|_| lost < LOST_MAX);
        let error = fault.map(|fault| match (call, usize::from(fault)) {
            (DeviceCall::Launch, image @ 0..2) => BackendError::Image { image, reason },
            _ => BackendError::Step(reason),
        });
        match (call, &error) {
            (DeviceCall::Launch, _) | (DeviceCall::Finalize, None) => {}
            (_, Some(_)) => lost += 1,
            (DeviceCall::Commit, None) => lost = 0,
        }
        error
    }
}

/// Runs a schedule; every look ends in one way, and each answer is the one that it gets alone. Looks fail by `faults` alone.
fn check(
    plans: &[Plan],
    limits: BackendLimits,
    options: Options,
    faults: Vec<Option<u8>>,
) -> Result<(), TestCaseError> {
    let (mut worker, clock) = worker_on(limits, options, Duration::ZERO, |device| {
        Box::new(FaultyDevice::new(device, script(faults)))
    });
    let mut inside: HashMap<LookId, (usize, Option<usize>)> = HashMap::new();
    let mut shown: HashMap<(LookId, usize), SequenceOutput> = HashMap::new();
    let mut answers: HashMap<(LookId, usize), SequenceOutput> = HashMap::new();
    let mut short_answered = HashSet::new();
    let mut next = plans.iter().enumerate().peekable();
    let (mut pause, mut ended, mut turns) = (0, 0, 0);
    while next.peek().is_some() || !worker.is_idle() {
        turns += 1;
        prop_assert!(turns < 20_000, "something waits for ever");
        while let Some((i, plan)) = next.next_if(|(_, plan)| plan.wait <= pause) {
            inside.insert(worker.admit(request(plan, clock.now())), (i, plan.cancel));
            pause = 0;
        }
        pause += 1;
        for (id, (_, cancel)) in &mut inside {
            *cancel = cancel.map(|turns| turns.saturating_sub(1));
            if *cancel == Some(0) {
                prop_assert!(worker.cancel(*id));
            }
        }
        let before = inside.len();
        inside.retain(|_, (_, cancel)| *cancel != Some(0));
        ended += before - inside.len();
        let events = worker.turn();
        let events = events.map_err(|e| TestCaseError::fail(e.to_string()))?;
        for event in events {
            match event {
                LookEvent::Piece(look, index, piece) => {
                    let shown = shown.entry((look, index)).or_default();
                    match piece {
                        OutputPiece::Object(object) => shown.objects.push(object),
                        OutputPiece::Thoughts(tokens) => shown.thoughts.tokens.extend(tokens),
                        OutputPiece::Values(values) => shown.values.extend(values),
                        OutputPiece::Tokens(tokens) => shown.tokens.extend(tokens),
                    }
                }
                LookEvent::Answer {
                    look,
                    prompt,
                    result,
                    ..
                } => {
                    prop_assert!(inside.contains_key(&look), "after the end, or a cancel");
                    let shown = shown.remove(&(look, prompt)).unwrap_or_default();
                    prop_assert_eq!(&shown.objects, &result.found.objects);
                    prop_assert_eq!(&shown.thoughts.tokens, &result.found.thoughts.tokens);
                    prop_assert_eq!(&shown.tokens, &result.found.tokens);
                    let before = answers.insert((look, prompt), result.found);
                    prop_assert_eq!(before, None, "answered twice");
                }
                LookEvent::ShortAnswered { look } => {
                    let (i, _) = &inside[&look];
                    let mut prompts = plans[*i].prompts.iter().enumerate();
                    let is_left = |(index, (kind, _)): (usize, &(u8, u8))| {
                        !is_free_text(*kind) && !answers.contains_key(&(look, index))
                    };
                    prop_assert!(!prompts.any(is_left), "a short answer is left");
                    prop_assert!(short_answered.insert(look), "once");
                }
                LookEvent::Answered { look } => {
                    let Some((i, _)) = inside.remove(&look) else {
                        return Err(TestCaseError::fail("answered twice, or after a cancel"));
                    };
                    let found =
                        (0..plans[i].prompts.len()).map(|index| answers.remove(&(look, index)));
                    let found: Option<Vec<_>> = found.collect();
                    prop_assert!(found.is_some(), "an answer is missing");
                    prop_assert_eq!(found, alone(&plans[i], limits), "{:?}", plans[i]);
                    prop_assert!(short_answered.contains(&look), "before the end");
                    ended += 1;
                }
                LookEvent::Late { look } => {
                    let (i, _) = inside.remove(&look).expect("a look that is inside");
                    prop_assert!(
                        !short_answered.contains(&look),
                        "no other look waited for it"
                    );
                    prop_assert!(plans[i].limits_ms.iter().any(Option::is_some));
                    ended += 1;
                }
                LookEvent::Failed { look, why } => {
                    let (i, _) = inside.remove(&look).expect("a look that is inside");
                    match why {
                        LookFault::Prompt(_) => {
                            prop_assert_eq!(
                                alone(&plans[i], limits),
                                None,
                                "failed, but fits alone"
                            );
                        }
                        LookFault::Picture(why) | LookFault::Step(why) => {
                            prop_assert_eq!(why, SCRIPTED);
                        }
                    }
                    ended += 1;
                }
            }
        }
    }
    prop_assert_eq!(ended, plans.len(), "the books balance");
    prop_assert!(inside.is_empty());
    prop_assert_eq!(worker.pages_in_use(), 0, "every page came back");
    Ok(())
}

fn options() -> impl Strategy<Value = Options> {
    (1_usize..4, any::<[bool; 3]>()).prop_map(|(depth, [device, draft, reuse])| Options {
        depth,
        decide: match device {
            true => Decide::Device,
            false => Decide::Host,
        },
        draft,
        reuse: reuse.then_some(ReuseRule {
            detail: PictureDetail::Bytes,
            max_age: Duration::from_millis(40),
        }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: spotter_core::testing::cases(5_000), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn batched_answer_equals_the_answer_alone(plans in plans(), options in options(), pages in 10_usize..60, rows in 1_usize..7, positions in 60_usize..200, drafted in 0_usize..20, kept_crops in 0_usize..12, spare_picks in 0_usize..20) {
        let limits = BackendLimits { pages, rows, positions, tokens: rows + drafted, picks: rows + spare_picks, kept_crops, ..LIMITS };
        check(&plans, limits, options, Vec::new())?;
    }

    #[test]
    fn failed_steps_fail_their_looks_and_nothing_else(plans in plans(), options in options(), pages in 20_usize..60, rows in 1_usize..7, kept_crops in 0_usize..12, faults in prop::collection::vec(prop::option::weighted(0.2, 0_u8..4), 0..60)) {
        check(&plans, BackendLimits { pages, rows, kept_crops, ..LIMITS }, options, faults)?;
    }
}
