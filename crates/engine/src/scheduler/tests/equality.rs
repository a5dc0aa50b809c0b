//! An answer is the answer that the same request gets alone, with other requests around it, and with steps that fail: of the simulated
//! model, and of a small Moondream 3 on the CPU.

mod moondream;

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;

use super::{BOUNDS, grammar};
use crate::{
    model::{AnswerGrammar, Formats, OutputPiece, SequenceOutput, Skill, Tiling},
    network::format::Format,
    ranks::{RankBuild, RankGroup},
    scheduler::{
        backend::{
            AdapterNumber, Backend, BackendError, BackendLimits, DecoderInput, LoadedAdapter,
        },
        constraint::Choices,
        draft::DraftKey,
        request::{
            Ask, Decide, LookEvent, LookFault, LookId, LookRequest, MeasuredView, Options, Work,
        },
        sequence::Sequence,
        still::{PictureDetail, PictureMeasure, ReuseRule, ViewKey},
        worker::Worker,
    },
    sim::{SimBackend, SimCosts, SimModel, strips},
    testing::simulated::{DeviceCall, FaultyDevice},
};
use moondream::SmallMoondream;
use spotter_core::{
    CameraId, Clock as _, ManualClock, Mono, Picture, Prompt, PromptId, PromptView, Task, WallTime,
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

/// A model on a device, as the looks of a schedule ask it.
pub(super) trait ScheduledModel {
    /// Ids of the vocabulary.
    fn vocab(&self) -> usize;

    /// Those of a device that has room for all answers of a schedule.
    fn limits(&self) -> BackendLimits;

    /// A new device, whose time is the clock's.
    fn device(&self, limits: BackendLimits, clock: &ManualClock) -> Box<dyn Backend>;

    fn grammar(&self, skill: Skill) -> AnswerGrammar;

    /// Pictures with other numbers are others; some have crops in common.
    fn picture(&self, number: u8) -> Picture;

    fn seen(&self, picture: &Picture) -> SeenPicture;

    /// Its answers are another's; 0: none.
    fn adapter(&self, number: u8) -> Option<Arc<LoadedAdapter>>;
}

/// [`SimulatedModel`] on ranks. The faults are of each rank of the first device.
struct OnRanks {
    ranks: usize,
    faults: RefCell<Vec<Option<u8>>>,
}

impl ScheduledModel for OnRanks {
    fn vocab(&self) -> usize {
        SimulatedModel.vocab()
    }

    fn limits(&self) -> BackendLimits {
        SimulatedModel.limits()
    }

    /// The clock is the leader's alone.
    fn device(&self, limits: BackendLimits, clock: &ManualClock) -> Box<dyn Backend> {
        let faults = self.faults.take();
        let build = |clock: ManualClock| -> RankBuild {
            let script = script(faults.clone());
            Box::new(move || {
                let device = SimulatedModel.device(limits, &clock);
                Ok(Box::new(FaultyDevice::new(device, script)))
            })
        };
        let others = (1..self.ranks).map(|_| build(ManualClock::at(WallTime::default())));
        let group = RankGroup::build(build(clock.clone()), others.collect());
        Box::new(group.expect("simulated devices"))
    }

    fn grammar(&self, skill: Skill) -> AnswerGrammar {
        SimulatedModel.grammar(skill)
    }

    fn picture(&self, number: u8) -> Picture {
        SimulatedModel.picture(number)
    }

    fn seen(&self, picture: &Picture) -> SeenPicture {
        SimulatedModel.seen(picture)
    }

    fn adapter(&self, number: u8) -> Option<Arc<LoadedAdapter>> {
        SimulatedModel.adapter(number)
    }
}

/// How a model sees a picture.
pub(super) struct SeenPicture {
    pub view: PromptView,
    pub tiling: Tiling,
    pub measure: PictureMeasure,
}

/// [`MODEL`].
pub(super) struct SimulatedModel;

impl ScheduledModel for SimulatedModel {
    fn vocab(&self) -> usize {
        MODEL.vocab
    }

    fn limits(&self) -> BackendLimits {
        LIMITS
    }

    fn device(&self, limits: BackendLimits, clock: &ManualClock) -> Box<dyn Backend> {
        Box::new(simulated(limits, Duration::ZERO, clock))
    }

    fn grammar(&self, skill: Skill) -> AnswerGrammar {
        grammar(skill)
    }

    /// Three strips of which only the last changes.
    fn picture(&self, number: u8) -> Picture {
        let bytes = (0..6).flat_map(|y| [if y < 4 { 7 } else { number }; 6]);
        Picture::from_rgb(2, 6, bytes.collect()).expect("a picture")
    }

    fn seen(&self, picture: &Picture) -> SeenPicture {
        let strips = strips(picture, MODEL.crops);
        SeenPicture {
            view: PromptView::default(),
            tiling: Tiling { rows: 1, cols: 1 },
            measure: PictureMeasure::of_regions(picture, &strips, (84, 84)),
        }
    }

    fn adapter(&self, number: u8) -> Option<Arc<LoadedAdapter>> {
        let adapter = LoadedAdapter {
            number: AdapterNumber(number.into()),
            weights: Default::default(),
        };
        (number > 0).then(|| Arc::new(adapter))
    }
}

/// The simplest engine.
const HOST: Options = Options {
    depth: 1,
    decide: Decide::Host,
    draft: false,
    reuse: None,
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
    pub follow_up: Option<PlannedFollowUp>,
}

/// What follows the answer of one prompt of a look.
#[derive(Clone, Debug)]
pub(super) struct PlannedFollowUp {
    /// Index of the answered prompt, modulo their number.
    to: usize,
    /// Turns after the answer; `None`: it is not asked.
    wait: Option<usize>,
    /// Free texts, or none.
    prompts: Vec<(u8, u8)>,
}

impl Plan {
    /// Index of the prompt that others follow.
    fn followed(&self) -> Option<usize> {
        Some(self.follow_up.as_ref()?.to % self.prompts.len())
    }

    /// The look with all its prompts from the beginning.
    fn at_once(&self) -> Self {
        let follow_up = self.follow_up.iter();
        let prompts = follow_up.flat_map(|follow_up| &follow_up.prompts);
        Self {
            prompts: self.prompts.iter().chain(prompts).copied().collect(),
            follow_up: None,
            ..self.clone()
        }
    }
}

fn follow_up() -> impl Strategy<Value = PlannedFollowUp> {
    let text = (prop::sample::select(vec![3_u8, 5, 6]), 0_u8..12);
    let drawn = (
        0_usize..4,
        prop::option::weighted(0.8, 0_usize..12),
        prop::collection::vec(text, 0..4),
    );
    drawn.prop_map(|(to, wait, prompts)| PlannedFollowUp { to, wait, prompts })
}

fn plan() -> impl Strategy<Value = Plan> {
    let prompts = prop::collection::vec((0_u8..7, 0_u8..12), 1..5);
    let limits_ms = [
        prop::option::weighted(0.2, 0_u64..60),
        prop::option::weighted(0.2, 0_u64..150),
    ];
    (
        0_usize..6,
        0_u8..3,
        prop::option::weighted(0.9, 0_u8..4),
        prompts,
        limits_ms,
        prop::option::weighted(0.1, 0_usize..12),
        0_u8..3,
        prop::option::weighted(0.4, follow_up()),
    )
        .prop_map(
            |(wait, camera, picture, prompts, limits_ms, cancel, adapter, follow_up)| Plan {
                wait,
                camera,
                picture,
                prompts,
                limits_ms,
                cancel,
                adapter,
                follow_up,
            },
        )
}

/// Some looks ask what one before them asks, of the same picture or of another, as those of a camera do.
fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let again = prop::option::weighted(0.5, (any::<prop::sample::Index>(), any::<bool>()));
    prop::collection::vec((plan(), again), 1..9).prop_map(|drawn| {
        let mut plans: Vec<Plan> = Vec::new();
        for (mut plan, again) in drawn {
            if let (Some((of, is_still)), false) = (again, plans.is_empty()) {
                let before = of.get(&plans).clone();
                plan = Plan {
                    camera: before.camera,
                    prompts: before.prompts,
                    adapter: before.adapter,
                    picture: if is_still {
                        before.picture
                    } else {
                        plan.picture
                    },
                    ..plan
                };
            }
            plans.push(plan);
        }
        plans
    })
}

/// True for the kinds of prompts whose answer is a free text.
fn is_free_text(kind: u8) -> bool {
    matches!(kind, 3 | 5 | 6)
}

fn ask(model: &impl ScheduledModel, plan: &Plan, index: usize, (kind, words): (u8, u8)) -> Ask {
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
    let mut sequence = Sequence::new(model.grammar(skill), prompt.collect(), BOUNDS);
    if kind == 4 {
        let choices = Choices::new([&[11, 12][..], &[11, 13, 14], &[15]]);
        sequence = sequence.choices(Arc::new(choices.expect("texts")));
    }
    let prompt = Prompt::new(
        PromptId::new(&format!("p{index}-{kind}")).expect("id"),
        1,
        Task::Caption {
            length: Default::default(),
        },
    );
    let (key, adapter) = (
        DraftKey::new(&camera_id(plan.camera), &prompt),
        model.adapter(plan.adapter),
    );
    Ask {
        sequence,
        draft: Some(key.with_adapter(adapter.map(|adapter| adapter.number))),
        in_pieces: true,
        has_follow_up: plan.followed() == Some(index),
    }
}

fn camera_id(camera: u8) -> CameraId {
    CameraId::new(&format!("c{camera}")).expect("id")
}

/// To the simulated model.
pub(super) fn request(plan: &Plan, now: Mono) -> LookRequest {
    request_to(&SimulatedModel, plan, now)
}

fn request_to(model: &impl ScheduledModel, plan: &Plan, now: Mono) -> LookRequest {
    let asks = plan.prompts.iter().enumerate();
    let [start_by, answer_by] = plan.limits_ms.map(|limit_ms| match limit_ms {
        Some(ms) => now.after(Duration::from_millis(ms)),
        None => Mono::from_nanos(u64::MAX),
    });
    let picture = plan.picture.map(|number| model.picture(number));
    let seen = picture.as_ref().map(|picture| model.seen(picture));
    LookRequest {
        crops: 1,
        view: seen.as_ref().map(|seen| seen.view).unwrap_or_default(),
        camera: Some(camera_id(plan.camera)),
        measured: seen.map(|seen| MeasuredView {
            view: ViewKey {
                camera: camera_id(plan.camera),
                part: None,
                strip: None,
                tiling: seen.tiling,
            },
            measure: seen.measure,
        }),
        picture,
        start_by,
        answer_by,
        asks: asks.map(|(i, &kind)| ask(model, plan, i, kind)).collect(),
        adapter: model.adapter(plan.adapter),
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
    let device = wrap(simulated(limits, crop, &clock));
    let shared = Arc::new(clock.clone());
    (Worker::new(device, MODEL.vocab, options, shared), clock)
}

fn simulated(limits: BackendLimits, crop: Duration, clock: &ManualClock) -> SimBackend {
    let ms = Duration::from_millis;
    let costs = SimCosts {
        crops: Arc::new(move |crops| crop * crops as u32),
        ..SimCosts::constant(ms(4), ms(1), ms(2))
    };
    SimBackend::new(limits, MODEL, costs, clock.clone())
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

/// A prompt with all that its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AskedPrompt {
    picture: Option<u8>,
    adapter: u8,
    prompt: (u8, u8),
}

/// Runs schedules on a model.
struct Schedules<M> {
    model: M,
    /// `None` where the answer has no room there.
    alone: RefCell<HashMap<AskedPrompt, Option<SequenceOutput>>>,
}

impl<M: ScheduledModel> Schedules<M> {
    fn new(model: M) -> Self {
        Self {
            model,
            alone: RefCell::default(),
        }
    }

    /// The answers to a look alone, in the simplest engine: `None` when it does not fit.
    fn run_alone(&self, plan: &Plan, limits: BackendLimits) -> Option<Vec<SequenceOutput>> {
        let clock = ManualClock::at(WallTime::default());
        let device = self.model.device(limits, &clock);
        let mut worker = Worker::new(device, self.model.vocab(), HOST, Arc::new(clock));
        let plan = Plan {
            limits_ms: [None; 2],
            ..plan.clone()
        };
        let plan = plan.at_once();
        worker.admit(request_to(&self.model, &plan, worker.now()));
        let mut found = vec![SequenceOutput::default(); plan.prompts.len()];
        loop {
            for event in worker.turn().expect("a sound engine") {
                match event {
                    LookEvent::Answer { prompt, result, .. } => found[prompt] = result.found,
                    LookEvent::Answered { .. } => return Some(found),
                    LookEvent::Failed { .. } => return None,
                    LookEvent::Late { .. }
                    | LookEvent::Piece(..)
                    | LookEvent::ShortAnswered { .. } => {}
                }
            }
        }
    }

    /// The answer to each prompt of a look when it is asked alone.
    fn answers_alone(&self, plan: &Plan) -> Option<Vec<SequenceOutput>> {
        let answer = |&prompt: &(u8, u8)| {
            let asked = AskedPrompt {
                picture: plan.picture,
                adapter: plan.adapter,
                prompt,
            };
            let mut known = self.alone.borrow_mut();
            let answer = known.entry(asked).or_insert_with(|| {
                let alone = Plan {
                    prompts: vec![prompt],
                    follow_up: None,
                    ..plan.clone()
                };
                self.run_alone(&alone, self.model.limits())?.pop()
            });
            answer.clone()
        };
        plan.prompts.iter().map(answer).collect()
    }

    /// Runs a schedule; every look ends in one way, and each answer is the one that it gets alone. Looks fail by `faults` alone.
    /// Returns the work done.
    fn check(
        &self,
        plans: &[Plan],
        limits: BackendLimits,
        options: Options,
        faults: Vec<Option<u8>>,
    ) -> Result<Work, TestCaseError> {
        let clock = ManualClock::at(WallTime::default());
        let device = self.model.device(limits, &clock);
        let device = FaultyDevice::new(device, script(faults));
        let (vocab, shared) = (self.model.vocab(), Arc::new(clock.clone()));
        let mut worker = Worker::new(Box::new(device), vocab, options, shared);
        let mut inside: HashMap<LookId, (usize, Option<usize>)> = HashMap::new();
        let mut shown: HashMap<(LookId, usize), SequenceOutput> = HashMap::new();
        let mut answers: HashMap<(LookId, usize), SequenceOutput> = HashMap::new();
        let mut short_answered = HashSet::new();
        // Turns until they are asked.
        let mut follow_ups: HashMap<LookId, usize> = HashMap::new();
        let mut followed: HashSet<LookId> = HashSet::new();
        let mut next = plans.iter().enumerate().peekable();
        let (mut pause, mut ended, mut turns) = (0, 0, 0);
        while next.peek().is_some() || !worker.is_empty() || !worker.is_idle() {
            turns += 1;
            prop_assert!(turns < 20_000, "something waits for ever");
            while let Some((i, plan)) = next.next_if(|(_, plan)| plan.wait <= pause) {
                inside.insert(
                    worker.admit(request_to(&self.model, plan, clock.now())),
                    (i, plan.cancel),
                );
                pause = 0;
            }
            pause += 1;
            if worker.is_idle() && follow_ups.is_empty() {
                // Time passes for what is not asked.
                clock.advance(Duration::from_millis(100));
            }
            let is_due = |_: &LookId, turns: &mut usize| {
                let is_due = *turns == 0;
                *turns = turns.saturating_sub(1);
                is_due
            };
            for (look, _) in follow_ups.extract_if(is_due) {
                let plan = inside.get(&look).map(|(i, _)| &plans[*i]);
                let Some((plan, follow_up)) =
                    plan.and_then(|plan| Some((plan, plan.follow_up.as_ref()?)))
                else {
                    prop_assert!(!worker.follow_up(look, 0, Vec::new()), "it has ended");
                    continue;
                };
                let prompts = (plan.prompts.len()..).zip(&follow_up.prompts);
                let asks = prompts.map(|(index, &prompt)| ask(&self.model, plan, index, prompt));
                let to = plan.followed().unwrap_or_default();
                if worker.follow_up(look, to, asks.collect()) {
                    followed.insert(look);
                }
                prop_assert!(!worker.follow_up(look, to, Vec::new()), "once");
            }
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
                        let plan = &plans[inside[&look].0];
                        if plan.followed() == Some(prompt) && !result.unchanged {
                            let wait = plan.follow_up.as_ref().and_then(|of| of.wait);
                            follow_ups.extend(wait.map(|turns| (look, turns)));
                        }
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
                        let asked = match followed.contains(&look) {
                            true => plans[i].at_once(),
                            false => plans[i].clone(),
                        };
                        let found =
                            (0..asked.prompts.len()).map(|index| answers.remove(&(look, index)));
                        let found: Option<Vec<_>> = found.collect();
                        prop_assert!(found.is_some(), "an answer is missing");
                        prop_assert_eq!(found, self.answers_alone(&asked), "{:?}", asked);
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
                                    self.run_alone(&plans[i], limits),
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
        Ok(worker.work())
    }
}

fn options() -> impl Strategy<Value = Options> {
    let drawn = (1_usize..4, any::<[bool; 3]>(), 40_u64..400);
    drawn.prop_map(|(depth, [device, draft, reuse], max_age_ms)| Options {
        depth,
        decide: match device {
            true => Decide::Device,
            false => Decide::Host,
        },
        draft,
        reuse: reuse.then_some(ReuseRule {
            detail: PictureDetail::Bytes,
            max_age: Duration::from_millis(max_age_ms),
        }),
    })
}

/// Limits of a case, below those of the model; mostly with so few pages that rows wait for them and are evicted.
fn narrow(limits: BackendLimits) -> impl Strategy<Value = BackendLimits> {
    let least = 8 + limits.prefix_positions.div_ceil(limits.page_tokens);
    let drawn = (
        prop_oneof![3 => least..least + 12, 1 => least..limits.pages],
        1..limits.rows + 1,
        limits.context..limits.positions / 2,
        0_usize..20,
        0_usize..12,
        0_usize..20,
        1_usize..3,
    );
    drawn.prop_map(
        move |(pages, rows, positions, drafted, kept_crops, spare_picks, adapters)| BackendLimits {
            adapters,
            pages,
            rows,
            positions,
            tokens: rows + drafted,
            picks: rows + spare_picks,
            kept_crops,
            ..limits
        },
    )
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: spotter_core::testing::cases(cases),
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    }
}

// Faults: E12.
#[test]
fn batched_answer_equals_the_answer_alone() {
    let schedules = Schedules::new(SimulatedModel);
    proptest!(config(5_000), |(plans in plans(), options in options(), limits in narrow(LIMITS))| {
        schedules.check(&plans, limits, options, Vec::new())?;
    });
}

// Faults: E1.
#[test]
fn failed_steps_fail_their_looks_and_nothing_else() {
    let schedules = Schedules::new(SimulatedModel);
    proptest!(config(5_000), |(plans in plans(), options in options(), pages in 20_usize..60, rows in 1_usize..7, kept_crops in 0_usize..12, faults in prop::collection::vec(prop::option::weighted(0.2, 0_u8..4), 0..60))| {
        schedules.check(&plans, BackendLimits { pages, rows, kept_crops, ..LIMITS }, options, faults)?;
    });
}

#[test]
fn ranks_answer_and_fail_as_one_device() {
    for ranks in [2, 4] {
        let faults = RefCell::default();
        let on_ranks = Schedules::new(OnRanks { ranks, faults });
        let on_one = Schedules::new(SimulatedModel);
        proptest!(config(100), |(plans in plans(), options in options(), limits in narrow(LIMITS), faults in prop::collection::vec(prop::option::weighted(0.1, 0_u8..4), 0..60))| {
            on_ranks.model.faults.replace(faults.clone());
            let work = on_ranks.check(&plans, limits, options, Vec::new())?;
            prop_assert_eq!(work, on_one.check(&plans, limits, options, faults)?);
        });
    }
}

// Faults: E13.
#[test]
fn moondream_in_any_schedule_answers_as_alone() {
    let in_int8 = Formats::F32.with_large(Format::INT8, None);
    let done = RefCell::new(Vec::new());
    for formats in [Formats::F32, in_int8] {
        let schedules = Schedules::new(SmallMoondream::new(formats));
        let limits = schedules.model.limits();
        proptest!(config(50), |(plans in plans(), options in options(), limits in narrow(limits))| {
            let work = schedules.check(&plans, limits, options, Vec::new())?;
            done.borrow_mut().push(work);
        });
    }
    let done = done.into_inner();
    let sum = |of: fn(&Work) -> u64| done.iter().map(of).sum::<u64>();
    let kept = sum(|work| work.crops_reused + work.prefixes_reused + work.unchanged);
    let counts = [sum(|work| work.accepted), kept, sum(|work| work.evicted)];
    assert!(!counts.contains(&0), "drafts, kept, evicted: {counts:?}");
}

/// A look with one prompt.
fn look(camera: u8, picture: Option<u8>, prompt: (u8, u8)) -> Plan {
    Plan {
        wait: 0,
        camera,
        picture,
        prompts: vec![prompt],
        limits_ms: [None; 2],
        cancel: None,
        adapter: 0,
        follow_up: None,
    }
}

const REUSE: Option<ReuseRule> = Some(ReuseRule {
    detail: PictureDetail::Bytes,
    max_age: Duration::from_millis(40),
});

/// Runs a schedule that a property found.
#[track_caller]
fn assert_passes(plans: &[Plan], limits: BackendLimits, options: Options, faults: Vec<Option<u8>>) {
    let checked = Schedules::new(SimulatedModel).check(plans, limits, options, faults);
    checked.unwrap_or_else(|error| panic!("{plans:?}: {error}"));
}

#[test]
fn schedules_that_failed_once_answer_as_alone() {
    let late = [
        Plan {
            limits_ms: [None, Some(42)],
            prompts: vec![(2, 3), (0, 1)],
            ..look(0, Some(3), (2, 3))
        },
        Plan {
            wait: 2,
            ..look(0, Some(0), (0, 11))
        },
    ];
    let limits = BackendLimits {
        pages: 16,
        rows: 3,
        ..LIMITS
    };
    assert_passes(&late, limits, HOST, Vec::new());

    let one_row = BackendLimits {
        pages: 10,
        rows: 1,
        positions: 60,
        tokens: 1,
        picks: 1,
        kept_crops: 3,
        ..LIMITS
    };
    let kept = [
        look(0, None, (0, 0)),
        Plan {
            wait: 4,
            limits_ms: [None, Some(28)],
            ..look(0, None, (0, 0))
        },
        look(2, Some(0), (0, 0)),
        Plan {
            wait: 5,
            limits_ms: [Some(49), None],
            ..look(2, Some(0), (3, 0))
        },
    ];
    let options = Options {
        reuse: REUSE,
        ..HOST
    };
    assert_passes(&kept, one_row, options, Vec::new());

    let ahead = [
        Plan {
            adapter: 1,
            ..look(0, Some(2), (1, 2))
        },
        Plan {
            wait: 2,
            ..look(1, Some(0), (0, 4))
        },
        Plan {
            wait: 4,
            limits_ms: [Some(50), None],
            adapter: 2,
            ..look(0, Some(2), (6, 11))
        },
    ];
    let options = Options {
        depth: 2,
        decide: Decide::Device,
        ..HOST
    };
    assert_passes(&ahead, one_row, options, Vec::new());
}

// Faults: E2.
/// The second look waits with the prefix that the first one's step encodes when that step is lost: its own was not launched.
#[test]
fn prefix_of_a_lost_step_is_encoded_again() {
    let limits = BackendLimits {
        pages: 20,
        rows: 4,
        kept_crops: 6,
        ..LIMITS
    };
    let options = Options {
        depth: 2,
        reuse: REUSE,
        ..HOST
    };
    for cancel in [None, Some(2), Some(3)] {
        let plans = [
            Plan {
                cancel,
                ..look(1, Some(0), (3, 0))
            },
            Plan {
                wait: 1,
                ..look(1, Some(0), (3, 0))
            },
            look(0, Some(0), (0, 0)),
            Plan {
                wait: 2,
                ..look(0, None, (0, 0))
            },
        ];
        assert_passes(&plans, limits, options, vec![None, Some(0), Some(0)]);
    }
}

// Faults: E2.
/// A look runs with one adapter when the step is not launched that encodes the prefix of the same picture with another.
#[test]
fn prefix_with_another_adapter_outlives_a_failed_step() {
    let of = |wait, adapter, words| Plan {
        wait,
        adapter,
        ..look(0, Some(0), (0, words))
    };
    let options = Options {
        depth: 2,
        reuse: REUSE,
        ..HOST
    };
    for call in 0..12 {
        let mut faults = vec![None; call];
        faults.push(Some(0));
        let plans = [of(0, 1, 2), of(1, 1, 5), of(1, 0, 0)];
        assert_passes(&plans, LIMITS, options, faults);
    }
}
