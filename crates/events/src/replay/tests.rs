//! Replays are compared with a tracker that runs live over the same looks: objects that appear, move, cross, flicker and leave, wrong
//! and doubled ones, gaps, parts of the picture, answers to `verify` that come late or never, engines that are lost.

use std::time::Duration;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use spotter_config::{LineConfig, ZoneConfig, ZonePoint, testing};
use spotter_core::{
    DirectionId, EndReason, EventStep, Frame, LineId, NormBox, PromptRegion, ScoreSource, ZoneId,
    testing::{answer_to, cases, frame_at, share},
};

use super::*;
use crate::{record::RecordChunk, track::Tracker};

/// What a tracker gets, in order.
#[derive(Clone, Debug)]
enum Input {
    Look {
        at: Duration,
        found: Vec<FoundObject<NormBox>>,
        part: Option<NormBox>,
    },
    /// If a question is under way, this is its answer; `None`: it was late.
    Verify {
        at: Duration,
        answer: Option<&'static str>,
    },
    Tick(Duration),
    EngineLost(Duration),
}

/// An object on its way.
struct Walker {
    from: u64,
    until: u64,
    place: [f64; 4],
    speed: [f64; 2],
    score: f64,
}

impl Walker {
    fn new(random: &mut Pcg32, looks: u64) -> Self {
        let from = random.random_range(0..looks);
        let speed = match random.random_bool(0.4) {
            true => [0.0; 2],
            false => [
                random.random_range(-0.05..0.05),
                random.random_range(-0.02..0.02),
            ],
        };
        let (width, height) = (
            random.random_range(0.05..0.2),
            random.random_range(0.1..0.3),
        );
        let place = [
            random.random::<f64>() * 0.8,
            random.random::<f64>() * 0.7,
            width,
            height,
        ];
        Self {
            from,
            until: from + 1 + random.random_range(0..25),
            place,
            speed,
            score: random.random_range(0.2..0.9),
        }
    }

    fn at(&self, look: u64, random: &mut Pcg32) -> Option<FoundObject<NormBox>> {
        if !(self.from..self.until).contains(&look) || random.random_bool(0.2) {
            return None;
        }
        let done = (look - self.from) as f64;
        let [x, y, width, height] = self.place;
        let (x, y) = (x + self.speed[0] * done, y + self.speed[1] * done);
        let mut near = |value: f64| value + random.random_range(-0.01..0.01);
        let (x0, y0, x1, y1) = (near(x), near(y), near(x + width), near(y + height));
        let place = NormBox::from_corners(x0, y0, x1, y1);
        Some(found(
            place,
            (self.score + random.random_range(-0.2..0.2)).clamp(0.0, 1.0),
        ))
    }
}

fn found(place: NormBox, score: f64) -> FoundObject<NormBox> {
    FoundObject {
        place,
        score,
        source: ScoreSource::TokenProb,
        sharpness: 0.5,
    }
}

/// What the model finds in one look.
fn found_in(walkers: &[Walker], look: u64, random: &mut Pcg32) -> Vec<FoundObject<NormBox>> {
    let seen = walkers.iter().filter_map(|walker| walker.at(look, random));
    let mut all = Vec::from_iter(seen);
    if random.random_bool(0.1) {
        let walker = Walker::new(random, 1);
        all.extend(walker.at(0, random));
    }
    if random.random_bool(0.1)
        && let Some(first) = all.first().copied()
    {
        let NormBox { x0, y0, x1, y1 } = first.place;
        let twice = NormBox::from_corners(x0 + 0.001, y0, x1, y1);
        all.push(found(twice, random.random::<f64>()));
    }
    all
}

fn inputs(random: &mut Pcg32, follows_motion: bool) -> Vec<Input> {
    let looks = 20 + random.random_range(0..120);
    let walkers = 1 + random.random_range(0..1 + looks / 12);
    let walkers = Vec::from_iter((0..walkers).map(|_| Walker::new(random, looks)));
    let (mut inputs, mut at) = (Vec::new(), Duration::from_secs(1));
    for look in 0..looks {
        let step_ms = match random.random_range(0..40) {
            0 => 31_000 + random.random_range(0..60_000),
            1..=3 => 5_000,
            _ => 200 + random.random_range(0..1300),
        };
        if random.random_bool(0.3) {
            inputs.push(Input::Tick(at + Duration::from_millis(step_ms * 9 / 10)));
        }
        at += Duration::from_millis(step_ms) + Duration::from_nanos(random.random_range(0..1000));
        let part = (follows_motion && random.random_bool(0.5)).then(|| {
            let x0 = random.random_range(0.0..0.5);
            NormBox::from_corners(x0, 0.0, x0 + 0.5, 1.0)
        });
        let mut found = found_in(&walkers, look, random);
        found.retain(|object| part.is_none_or(|part| part.contains(object.place.centre())));
        inputs.push(Input::Look { at, found, part });
        if random.random_bool(0.3) {
            let answers = [Some("Yes"), Some("Yes"), Some("No"), Some("perhaps"), None];
            let answer = answers[random.random_range(0..5) as usize];
            let at = at + Duration::from_millis(random.random_range(0..300));
            inputs.push(Input::Verify { at, answer });
        }
        if random.random_bool(0.005) {
            inputs.push(Input::EngineLost(at));
        }
    }
    inputs
}

/// A camera with two zones and a line, and its prompt.
fn site(random: &mut Pcg32) -> CameraConfig {
    let mut prompt = testing::prompt("person");
    let n = 1 + random.random_range(0..6) as u32;
    prompt.events.confirm = (1 + random.random_range(0..u64::from(n)) as u32, n);
    prompt.events.end_after = Duration::from_millis(random.random_range(0..6000));
    prompt.events.still_after = Duration::from_millis(1000 + random.random_range(0..9000));
    prompt.min_score = share(random.random_range(0.0..0.4));
    prompt.verify = random
        .random_bool(0.3)
        .then(|| "Is it a person?".to_owned());
    if random.random_bool(0.3) {
        prompt.region = PromptRegion::Motion;
    }
    let zone = |id, x0: f64| ZoneConfig {
        id: ZoneId::new(id).unwrap(),
        polygon: vec![(x0, 0.0), (x0 + 0.5, 0.0), (x0 + 0.5, 1.0), (x0, 1.0)],
        point: ZonePoint::Bottom,
    };
    let mut camera = testing::camera("gate", Vec::new());
    camera.zones = vec![zone("left", 0.0), zone("middle", 0.25)];
    camera.lines = vec![LineConfig {
        id: LineId::new("door").unwrap(),
        points: vec![(0.5, 0.0), (0.5, 1.0)],
        directions: DirectionId::in_and_out(),
        point: ZonePoint::Centre,
        reset: None,
    }];
    if random.random_bool(0.5) {
        prompt.lines = vec![camera.lines[0].id.clone()];
        let time = Duration::from_secs(random.random_range(0..5));
        prompt.dwell = [(camera.zones[0].id.clone(), time)].into();
    }
    camera.prompts = vec![prompt];
    camera
}

/// Some of the objects that passed do not pass any more.
fn stricter(camera: &CameraConfig, random: &mut Pcg32) -> CameraConfig {
    let mut camera = camera.clone();
    let prompt = &mut camera.prompts[0];
    let min_score = prompt.min_score.get() + random.random_range(0.0..0.4);
    prompt.min_score = share(min_score);
    match random.random_range(0..4) {
        0 => prompt.zones = vec![camera.zones[0].id.clone()],
        1 => prompt.min_area = 0.02,
        _ => {}
    }
    camera
}

struct LiveRun {
    camera: CameraConfig,
    tracker: Tracker,
    question: Option<Arc<Prompt>>,
    events: Vec<Event>,
    chunks: Vec<RecordChunk>,
}

impl LiveRun {
    fn new(camera: &CameraConfig) -> Self {
        let cameras = std::slice::from_ref(camera);
        Self {
            camera: camera.clone(),
            tracker: Tracker::recording("b7c1".into(), cameras),
            question: None,
            events: Vec::new(),
            chunks: Vec::new(),
        }
    }

    fn of(camera: &CameraConfig, inputs: &[Input]) -> Self {
        let mut run = Self::new(camera);
        inputs.iter().for_each(|input| run.take(input));
        run.end();
        run
    }

    fn frame(&self, at: Duration) -> Frame {
        frame_at(&self.camera.id, at)
    }

    fn take(&mut self, input: &Input) {
        let change = match input {
            Input::Look { at, found, part } => return self.look(*at, found, *part),
            Input::Verify { at, answer } => self.verify(*at, *answer),
            Input::Tick(at) => {
                let times = self.frame(*at).times;
                self.tracker.tick(times.received, times.received_wall)
            }
            Input::EngineLost(at) => {
                let wall = self.frame(*at).times.received_wall;
                let reason = EndReason::EngineLost;
                self.tracker.lose(&self.camera.id, reason, wall)
            }
        };
        self.events
            .extend(change.into_iter().flat_map(|change| change.events));
        self.chunks.extend(self.tracker.take_records());
    }

    fn look(&mut self, at: Duration, found: &[FoundObject<NormBox>], part: Option<NormBox>) {
        let prompt = &self.camera.prompts[0];
        let asked = Prompt {
            view: self.camera.view_of(prompt),
            ..Prompt::new(prompt.id.clone(), 1, prompt.task.clone())
        };
        let answer = Answer {
            region: part,
            ..answer_to(&Arc::new(asked), AnswerBody::Boxes(found.to_vec()))
        };
        let tracked = self.tracker.update(&self.frame(at), &answer).unwrap();
        self.events.extend(tracked.change.events);
        self.question = tracked
            .change
            .questions
            .first()
            .cloned()
            .or(self.question.take());
        self.chunks.extend(self.tracker.take_records());
    }

    fn verify(&mut self, at: Duration, answer: Option<&str>) -> Vec<crate::track::PromptChange> {
        let Some(question) = self.question.take() else {
            return Vec::new();
        };
        let frame = self.frame(at);
        let Some(text) = answer else {
            return self.tracker.unanswered(&frame, &[question]);
        };
        let body = AnswerBody::Text {
            text: text.into(),
            score: 0.75,
            source: ScoreSource::TokenProb,
        };
        let settled = self.tracker.settled(&frame, &answer_to(&question, body));
        settled.into_iter().collect()
    }

    fn end(&mut self) {
        let wall = WallTime::from_unix_millis(1_000_000_000);
        self.events.extend(self.tracker.shutdown(wall));
        self.chunks.extend(self.tracker.take_records());
    }

    fn replay(&self, camera: &CameraConfig) -> Vec<ReplayedEvent> {
        let rules = ReplayRules {
            camera,
            prompt: &camera.prompts[0],
            added_masks: &[],
        };
        replay(&rules, self.chunks.iter().map(|chunk| &chunk.bytes[..])).unwrap()
    }

    /// The messages of each event, in the order of their starts.
    fn messages(&self) -> Vec<Vec<Event>> {
        let mut tracks: Vec<TrackId> = Vec::new();
        let mut messages: Vec<Vec<Event>> = Vec::new();
        for event in &self.events {
            match tracks.iter().position(|track| *track == event.track) {
                Some(index) => messages[index].push(comparable(event)),
                None => {
                    tracks.push(event.track.clone());
                    messages.push(vec![comparable(event)]);
                }
            }
        }
        messages
    }
}

/// Without what a replay cannot know: the id of its track, and earlier counts at a line.
fn comparable(event: &Event) -> Event {
    let mut event = event.clone();
    event.track = TrackId::new("any", &event.camera, 0);
    if let Some(crossing) = &mut event.crossing {
        crossing.count = 0;
    }
    event
}

fn messages_of(events: &[ReplayedEvent]) -> Vec<Vec<Event>> {
    let messages = |event: &ReplayedEvent| event.messages.iter().map(comparable).collect();
    events.iter().map(messages).collect()
}

/// What one seed has shown: events live, events with stricter rules, records.
fn check(seed: u64) -> (usize, usize, usize) {
    let mut random = Pcg32::seed_from_u64(seed);
    let camera = site(&mut random);
    let follows_motion = camera.prompts[0].region == PromptRegion::Motion;
    let inputs = inputs(&mut random, follows_motion);
    let live = LiveRun::of(&camera, &inputs);
    let same = live.replay(&camera);
    assert_eq!(messages_of(&same), live.messages(), "seed {seed}");
    let recorded = live.chunks.iter().flat_map(|chunk| &chunk.started);
    let starts = live.events.iter().filter(|e| e.step == EventStep::New);
    let recorded = recorded.map(|event| (&event.track, event.first_look));
    let starts = starts.map(|event| (&event.track, event.started));
    assert!(recorded.eq(starts), "seed {seed}");
    let firsts = live.chunks.iter().filter(|chunk| chunk.number == 0);
    let records = firsts.count();
    if camera.prompts[0].verify.is_some() {
        return (same.len(), 0, records);
    }
    let strict = stricter(&camera, &mut random);
    let second = LiveRun::of(&strict, &inputs);
    let replayed = live.replay(&strict);
    assert_eq!(messages_of(&replayed), second.messages(), "seed {seed}");
    (same.len(), replayed.len(), records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn replay_has_exactly_the_events_of_a_live_run(seed: u64) {
        check(seed);
    }
}

#[test]
fn compared_runs_have_events_and_several_records() {
    let all = (0..100).map(check);
    let sum = all.fold((0, 0, 0), |sum, one| {
        (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
    });
    assert!(sum.0 > 300 && sum.1 > 100 && sum.2 > 300, "{sum:?}");
}

/// A person who stays at one place, with these scores, then leaves.
fn stay(scores: &[f64], second: u64) -> Vec<Input> {
    let looks = scores.iter().map(Some).chain([None; 8]);
    let look = |(score, second): (Option<&f64>, u64)| Input::Look {
        at: Duration::from_secs(second),
        found: Vec::from_iter(score.map(|score| {
            let place = NormBox::from_corners(0.2, 0.3, 0.3, 0.8);
            found(place, *score)
        })),
        part: None,
    };
    looks.zip(second..).map(look).collect()
}

#[test]
fn event_with_other_rules_is_found_again_by_its_looks() {
    let mut camera = testing::camera("gate", vec![testing::prompt("person")]);
    let inputs = [stay(&[0.5, 0.8, 0.8, 0.4], 10), stay(&[0.5; 6], 100)].concat();
    let live = LiveRun::of(&camera, &inputs);
    let all = live.replay(&camera);
    assert_eq!(
        (all.len(), all[0].looks.len(), live.chunks.len()),
        (2, 4, 2)
    );
    camera.prompts[0].min_score = share(0.7);
    let strict = live.replay(&camera);
    assert_eq!((strict.len(), strict[0].looks.len()), (1, 2));
    let seen = SeenObjects::of(&strict[..1]);
    assert!(seen.has(&all[0]) && !seen.has(&all[1]));
}

#[test]
fn added_mask_removes_what_it_covers() {
    let camera = testing::camera("gate", vec![testing::prompt("person")]);
    let live = LiveRun::of(&camera, &stay(&[0.9; 6], 10));
    let events_with = |x1: f64| {
        let rules = ReplayRules {
            camera: &camera,
            prompt: &camera.prompts[0],
            added_masks: &[vec![(0.0, 0.0), (x1, 0.0), (x1, 1.0), (0.0, 1.0)]],
        };
        let chunks = live.chunks.iter().map(|chunk| &chunk.bytes[..]);
        replay(&rules, chunks).unwrap().len()
    };
    assert_eq!((events_with(0.2), events_with(0.3)), (1, 0));
}

#[test]
fn stay_of_hours_is_cut_into_chunks_that_replay() {
    let camera = testing::camera("gate", vec![testing::prompt("person")]);
    let mut random = Pcg32::seed_from_u64(1);
    let scores = Vec::from_iter((0..4000).map(|_| random.random_range(0.3..0.9)));
    let live = LiveRun::of(&camera, &stay(&scores, 10));
    assert!(
        live.chunks.len() > 2
            && live
                .chunks
                .iter()
                .all(|chunk| chunk.bytes.len() <= 64 * 1024)
    );
    assert_eq!(messages_of(&live.replay(&camera)), live.messages());
    let rules = ReplayRules {
        camera: &camera,
        prompt: &camera.prompts[0],
        added_masks: &[],
    };
    let without = |missing: usize| {
        let chunks = live.chunks.iter().enumerate();
        let left = chunks.filter(|(number, _)| *number != missing);
        replay(&rules, left.map(|(_, chunk)| &chunk.bytes[..]))
    };
    assert_eq!(without(0), Err(RecordError::Missing(0)));
    assert_eq!(without(1), Err(RecordError::Missing(1)));
}

/// A car that stays, and every ten minutes someone who passes for 20 s.
fn parked_car_and_passers_by(looks: u64) -> Vec<Input> {
    let car = found(NormBox::from_corners(0.1, 0.3, 0.3, 0.5), 0.8);
    let passer_by = found(NormBox::from_corners(0.7, 0.3, 0.8, 0.8), 0.9);
    let look = |number: u64| Input::Look {
        at: Duration::from_secs(10 + 2 * number),
        found: match number % 300 {
            100..110 => vec![car, passer_by],
            _ => vec![car],
        },
        part: None,
    };
    (0..looks).map(look).collect()
}

#[test]
fn record_of_days_is_cut_without_a_lost_event() {
    let mut camera = testing::camera("gate", vec![testing::prompt("person")]);
    let live = LiveRun::of(&camera, &parked_car_and_passers_by(45_000));
    let mut records: Vec<&[RecordChunk]> = Vec::new();
    let is_of_record = |one: &RecordChunk, next: &RecordChunk| one.record == next.record;
    records.extend(live.chunks.chunk_by(is_of_record));
    let is_whole = |record: &[RecordChunk]| {
        let is_last = record.iter().map(|chunk| chunk.is_last);
        is_last.eq((1..=record.len()).map(|number| number == record.len()))
    };
    assert!(records.len() > 4 && records.iter().all(|record| is_whole(record)));
    let recorded = live.chunks.iter().flat_map(|chunk| &chunk.started);
    let recorded = Vec::from_iter(recorded.map(|event| event.first_look));
    let started = |events: Vec<ReplayedEvent>| {
        let first_looks = events.iter().map(|event| event.messages[0].started);
        Vec::from_iter(first_looks)
    };
    // The car and 150 others.
    assert_eq!(recorded.len(), 151);
    assert_eq!(started(live.replay(&camera)), recorded);
    camera.prompts[0].min_score = share(0.85);
    assert_eq!(started(live.replay(&camera)), recorded[1..]);
}

#[test]
fn changed_rules_cut_a_record_and_the_next_one_replays() {
    let mut camera = testing::camera("gate", vec![testing::prompt("person")]);
    let inputs = parked_car_and_passers_by(1500);
    let mut live = LiveRun::new(&camera);
    let started = |chunks: &[RecordChunk]| {
        let started = chunks.iter().flat_map(|chunk| &chunk.started);
        Vec::from_iter(started.map(|event| event.first_look))
    };
    inputs[..450].iter().for_each(|input| live.take(input));
    live.tracker.configure(&camera, WallTime::default());
    assert_eq!(live.tracker.take_records(), []);
    camera.prompts[0].min_score = share(0.5);
    let (looks, window) = camera.prompts[0].events.confirm;
    camera.prompts[0].events.confirm = (looks, window + 2);
    live.tracker.configure(&camera, WallTime::default());
    let before = live.tracker.take_records();
    // The car and two that pass.
    assert_eq!(started(&before).len(), 3);
    // They change again while one passes that has no event yet: it is in no record, because the next one begins with a track of it.
    inputs[450..701].iter().for_each(|input| live.take(input));
    camera.prompts[0].min_score = share(0.6);
    live.tracker.configure(&camera, WallTime::default());
    inputs[701..].iter().for_each(|input| live.take(input));
    live.end();
    let records = live.chunks.iter().filter(|chunk| chunk.number == 0);
    assert_eq!(records.count(), 2);
    let replayed = live.replay(&camera);
    let first_looks = replayed.iter().map(|event| event.messages[0].started);
    assert_eq!(Vec::from_iter(first_looks), started(&live.chunks));
    let is_over = |event: &ReplayedEvent| event.messages.last().unwrap().ended.is_some();
    assert!(replayed.len() == 2 && replayed.iter().all(is_over));
}

/// Bytes of chunks that anyone may have changed: they are read to their end or to an error.
fn read_all(bytes: &[u8]) {
    let camera = testing::camera("gate", vec![testing::prompt("person")]);
    let rules = ReplayRules {
        camera: &camera,
        prompt: &camera.prompts[0],
        added_masks: &[],
    };
    let _ = replay(&rules, [bytes]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn damaged_records_are_read_or_refused(
        seed: u64, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), end: prop::sample::Index,
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut random = Pcg32::seed_from_u64(seed);
        let camera = site(&mut random);
        let inputs = inputs(&mut random, false);
        for chunk in LiveRun::of(&camera, &inputs).chunks {
            let mut bytes = chunk.bytes;
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            read_all(&bytes);
            bytes.truncate(end.index(bytes.len()));
            read_all(&bytes);
            bytes.extend(&noise);
            read_all(&bytes);
        }
        read_all(&noise);
    }
}
