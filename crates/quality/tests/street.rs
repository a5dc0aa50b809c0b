//! How often the figures and proposals are right: simulated marks of the alarms of a weak prompt at the drawn street.
//!
//! The things are those that pass in five minutes. The prompt asks for people and takes some of the other things for people: of three
//! alarms, about one is wrong. Each thing has a score, which changes from look to look; a tenth of the things come eight times within a day.
//! The real tracker makes alarms of the looks, and its replay says which of them a higher `min_score` leaves. Marks are drawn by
//! chance, by the code of the product. All alarms of the street give the truth.
//!
//! One street in `make test`; `SPOTTER_CASES_FACTOR=5` has all five of the table in `docs/scores.md`, and their goals.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests panic with what is wrong"
)]

use std::{collections::BTreeMap, fmt::Write, sync::Arc, thread, time::Duration};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use spotter_config::{CameraConfig, testing};
use spotter_core::{
    AnswerBody, FoundObject, NormBox, Prompt, ScoreSource, WallTime,
    testing::{answer_to, cases, frame_at, share},
};
use spotter_events::{
    replay::{ReplayRules, ReplayedEvent, SeenObjects, replay},
    track::Tracker,
};
use spotter_quality::{
    AlarmChoice, AlarmPlace, DrawableAlarm, DrawnSample, JudgedAlarm, Judgement, Outlook,
    ReplayedMinScore, ReplayedSample, TARGETS_PERCENT, draw, min_scores_above, outlook,
};
use spotter_street::{Street, scene::Class, truth, truth::Visibility};

/// The prompt's `min_score`.
const MIN_SCORE: f64 = 0.4;
const MARKS: [usize; 4] = [50, 100, 200, 400];
/// Streets of the table; seeds of each street, and things that pass there.
const STREETS: u32 = 5;
const SEEDS: u64 = 100;
const THINGS: u64 = 4000;

/// What a thing's score is like, as a logit: the mean and the deviation among things, and that among the looks of one thing.
const SCORE_OF_PERSON: (f64, f64) = (1.3, 1.0);
const SCORE_OF_OTHER: (f64, f64) = (0.0, 0.8);
const SCORE_OF_LOOK: f64 = 0.5;
/// The share of other things that the prompt takes for people.
const MISTAKEN: f64 = 0.2;
/// The share of things that repeat, and how often they come.
const REPEATED: f64 = 0.1;
const REPEATS: u64 = 8;

/// A thing on its way, one box a second.
struct Passage {
    is_person: bool,
    boxes: Vec<NormBox>,
}

/// What passes the street in five minutes.
fn passages(street: u64) -> Vec<Passage> {
    let mut things: BTreeMap<_, Passage> = BTreeMap::new();
    let scenes = Street::new(street);
    for second in 0..300 {
        let scene = scenes.at(WallTime::from_unix_millis(second * 1000));
        for seen in truth(&scene).seen {
            // What stays for ever is another thing every half minute.
            let thing = (seen.identity, second / 30);
            let thing = things.entry(thing).or_insert_with(|| Passage {
                is_person: seen.class == Class::Person,
                boxes: Vec::new(),
            });
            if seen.visibility == Visibility::Present {
                thing.boxes.push(seen.box_in_frame);
            }
        }
    }
    let mut all = Vec::from_iter(things.into_values());
    all.retain(|passage| passage.boxes.len() >= 4);
    all
}

fn site() -> CameraConfig {
    let mut camera = testing::camera("gate", vec![testing::prompt("person")]);
    camera.prompts[0].min_score = share(MIN_SCORE);
    camera
}

/// Close enough to a normal distribution.
fn normal(random: &mut Pcg32) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// An alarm with all that is true of it.
struct StreetAlarm {
    place: AlarmPlace,
    judgement: Judgement,
    /// For each of the values above the prompt's `min_score`: it comes with that value, too.
    comes: Vec<bool>,
}

impl StreetAlarm {
    fn judged(&self, choice: AlarmChoice) -> JudgedAlarm {
        JudgedAlarm {
            place: self.place,
            judgement: self.judgement,
            choice,
        }
    }
}

/// The alarms of one thing that comes at this second, by the tracker and its replay.
fn alarms_of(
    camera: &CameraConfig,
    passage: &Passage,
    scores: &[f64],
    second: u64,
) -> Vec<StreetAlarm> {
    let cameras = std::slice::from_ref(camera);
    let mut tracker = Tracker::recording("b7c1".into(), cameras);
    let prompt = &camera.prompts[0];
    let asked = Prompt {
        view: camera.view_of(prompt),
        ..Prompt::new(prompt.id.clone(), 1, prompt.task.clone())
    };
    let asked = Arc::new(asked);
    let found = passage.boxes.iter().zip(scores);
    let found = found.map(|(place, score)| {
        vec![FoundObject {
            place: *place,
            score: *score,
            source: ScoreSource::TokenProb,
            sharpness: 0.5,
        }]
    });
    let nothing = std::iter::repeat_n(Vec::new(), 8);
    for (second, found) in (second..).zip(found.chain(nothing)) {
        let frame = frame_at(&camera.id, Duration::from_secs(second));
        tracker.update(&frame, &answer_to(&asked, AnswerBody::Boxes(found)));
    }
    let records = tracker.take_records();
    let events_with = |min_score: f64| {
        let mut prompt = prompt.clone();
        prompt.min_score = share(min_score);
        let rules = ReplayRules {
            camera,
            prompt: &prompt,
            added_masks: &[],
        };
        let chunks = records.iter().map(|chunk| &chunk.bytes[..]);
        replay(&rules, chunks).expect("own records")
    };
    let events = events_with(MIN_SCORE);
    if events.is_empty() {
        return Vec::new();
    }
    let higher = Vec::from_iter(min_scores_above(MIN_SCORE).map(events_with));
    let comes = |event: &ReplayedEvent, with: &[ReplayedEvent]| SeenObjects::of(with).has(event);
    let alarm = |event: &ReplayedEvent| StreetAlarm {
        place: place_of(event),
        judgement: match passage.is_person {
            true => Judgement::Right,
            false => Judgement::Wrong,
        },
        comes: higher.iter().map(|with| comes(event, with)).collect(),
    };
    events.iter().map(alarm).collect()
}

/// Where and when the best look saw it.
fn place_of(event: &ReplayedEvent) -> AlarmPlace {
    let looks = event.looks.iter();
    let best = looks.max_by(|a, b| a.score.total_cmp(&b.score));
    let best = best.expect("an event has looks");
    AlarmPlace {
        location: best.location,
        at: best.wall,
    }
}

/// All alarms of the weak prompt at a street.
struct WeakPrompt {
    alarms: Vec<StreetAlarm>,
    sample: DrawnSample,
}

impl WeakPrompt {
    fn new(street: u64) -> Self {
        let (camera, passages) = (site(), passages(street));
        let mut random = Pcg32::seed_from_u64(street);
        let mut alarms = Vec::new();
        for thing in 0..THINGS {
            let passage = &passages[random.random_range(0..passages.len())];
            if !passage.is_person && !random.random_bool(MISTAKEN) {
                continue;
            }
            let (mean, deviation) = match passage.is_person {
                true => SCORE_OF_PERSON,
                false => SCORE_OF_OTHER,
            };
            let of_thing = mean + deviation * normal(&mut random);
            let times = if random.random_bool(REPEATED) {
                REPEATS
            } else {
                1
            };
            for time in 0..times {
                let scores = passage.boxes.iter().map(|_| {
                    let logit = of_thing + SCORE_OF_LOOK * normal(&mut random);
                    1.0 / (1.0 + (-logit).exp())
                });
                let scores = Vec::from_iter(scores);
                // Things are six hours apart, and one that repeats comes each hour.
                let second = (6 * thing + time) * 3600;
                alarms.extend(alarms_of(&camera, passage, &scores, second));
            }
        }
        let judged = alarms.iter().map(|alarm| alarm.judged(AlarmChoice::Drawn));
        let sample = DrawnSample::new(&Vec::from_iter(judged));
        Self { alarms, sample }
    }

    /// The share of right ones with this `min_score`; `None`: the present one. Repeats count once.
    fn truth(&self, min_score: Option<f64>) -> f64 {
        let value = |min_score| min_scores_above(MIN_SCORE).position(|value| value == min_score);
        let value = min_score.map(|min_score| value(min_score).expect("a proposed value"));
        let comes = |index: usize| value.is_none_or(|value| self.alarms[index].comes[value]);
        self.sample.count_of(comes).share().unwrap_or(0.0)
    }
}

/// What became of the seeds.
#[derive(Clone, Copy, Default)]
struct Tally {
    seeds: u32,
    /// Wilson's interval has the truth; and that of all marks, drawn or given, would.
    covered: u32,
    covered_by_all: u32,
    /// By target.
    proposed: [u32; 2],
    right: [u32; 2],
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.covered += other.covered;
        self.covered_by_all += other.covered_by_all;
        for target in 0..2 {
            self.proposed[target] += other.proposed[target];
            self.right[target] += other.right[target];
        }
    }
}

/// Which alarms have a mark that a person gave before any was drawn.
#[derive(Clone, Copy)]
enum GivenMarks {
    None,
    /// Six of ten wrong ones, one of ten right ones.
    MainlyWrong,
}

impl GivenMarks {
    fn chance(self, judgement: Judgement) -> f64 {
        match (self, judgement) {
            (Self::None, _) => 0.0,
            (Self::MainlyWrong, Judgement::Wrong) => 0.6,
            (Self::MainlyWrong, Judgement::Right) => 0.1,
        }
    }
}

/// Draws marks by chance, and judges what is made of the first 50, 100, … of them.
fn run(prompt: &WeakPrompt, given: GivenMarks, seed: u64) -> [Tally; MARKS.len()] {
    let mut random = Pcg32::seed_from_u64(seed);
    let alarms = prompt.alarms.iter();
    let mut drawable = Vec::from_iter(alarms.map(|alarm| {
        let is_given = random.random_bool(given.chance(alarm.judgement));
        DrawableAlarm {
            place: alarm.place,
            choice: is_given.then_some(AlarmChoice::Given),
        }
    }));
    let mut drawn = 0;
    MARKS.map(|marks| {
        // At most twenty at a time, as people do.
        while drawn < marks {
            let wanted = (marks - drawn).min(20);
            let next = draw(&drawable, wanted, |n| random.random_range(0..n));
            for index in next.to_judge.into_iter().chain(next.judged_before) {
                drawable[index].choice = Some(AlarmChoice::Drawn);
                drawn += 1;
            }
        }
        judge(prompt, &drawable)
    })
}

fn judge(prompt: &WeakPrompt, marks: &[DrawableAlarm]) -> Tally {
    let alarms = prompt.alarms.iter().zip(marks);
    let marked = alarms.filter_map(|(alarm, mark)| Some((alarm, mark.choice?)));
    let marked = Vec::from_iter(marked);
    let judged = marked.iter().map(|(alarm, choice)| alarm.judged(*choice));
    let sample = DrawnSample::new(&Vec::from_iter(judged));
    let all = marked
        .iter()
        .map(|(alarm, _)| alarm.judged(AlarmChoice::Drawn));
    let all = DrawnSample::new(&Vec::from_iter(all));
    let replays = min_scores_above(MIN_SCORE).enumerate();
    let replays = replays.map(|(value, min_score)| ReplayedMinScore {
        min_score,
        comes: marked.iter().map(|(alarm, _)| alarm.comes[value]).collect(),
    });
    let truth = prompt.truth(None);
    let covers = |sample: &DrawnSample| {
        let interval = sample.count().interval();
        u32::from(interval.low <= truth && truth <= interval.high)
    };
    let mut tally = Tally {
        seeds: 1,
        covered: covers(&sample),
        covered_by_all: covers(&all),
        ..Tally::default()
    };
    let replayed = ReplayedSample {
        sample: sample.clone(),
        by_min_score: replays.collect(),
        is_finished: true,
    };
    let Outlook::Proposals(proposals) = outlook(&sample, &replayed) else {
        return tally;
    };
    for (index, target) in TARGETS_PERCENT.into_iter().enumerate() {
        let mut reaching = proposals.iter().filter(|p| p.target_percent >= target);
        if let Some(proposal) = reaching.next() {
            let min_score = proposal.change.map(|change| change.min_score);
            tally.proposed[index] = 1;
            tally.right[index] = u32::from(prompt.truth(min_score) >= f64::from(target) / 100.0);
        }
    }
    tally
}

fn simulate(streets: u32, given: GivenMarks) -> [Tally; MARKS.len()] {
    let of_street = |street: u64| {
        let prompt = WeakPrompt::new(street);
        let seeds = 0..SEEDS;
        let runs = seeds.map(|seed| run(&prompt, given, street * SEEDS + seed));
        sum(runs)
    };
    thread::scope(|scope| {
        let streets = (1..=u64::from(streets)).map(|street| scope.spawn(move || of_street(street)));
        let streets = Vec::from_iter(streets).into_iter();
        sum(streets.map(|street| street.join().expect("a street")))
    })
}

fn sum(tallies: impl Iterator<Item = [Tally; MARKS.len()]>) -> [Tally; MARKS.len()] {
    let mut sums = [Tally::default(); MARKS.len()];
    for one in tallies {
        let pairs = sums.iter_mut().zip(&one);
        pairs.for_each(|(sum, one)| sum.add(one));
    }
    sums
}

fn percent(part: u32, all: u32) -> f64 {
    100.0 * f64::from(part) / f64::from(all)
}

fn table(tallies: &[Tally]) -> String {
    let mut table = String::from(
        "marks  target  interval has the truth %  proposed %  false %  right % of proposals\n",
    );
    for (tally, marks) in tallies.iter().zip(MARKS) {
        for (index, target) in TARGETS_PERCENT.into_iter().enumerate() {
            let (proposed, right) = (tally.proposed[index], tally.right[index]);
            let _ = writeln!(
                table,
                "{marks:>5}  {target:>6}  {:>24.1}  {:>10.1}  {:>7.1}  {:>20.1}",
                percent(tally.covered, tally.seeds),
                percent(proposed, tally.seeds),
                percent(proposed - right, tally.seeds),
                percent(right, proposed),
            );
        }
    }
    table
}

/// The goals of the whole table; one street alone has to come near.
fn assert_goals(tallies: &[Tally; MARKS.len()], streets: u32) {
    let near = if streets == STREETS { 0.0 } else { 8.0 };
    for (tally, marks) in tallies.iter().zip(MARKS) {
        assert!(
            percent(tally.covered, tally.seeds) >= 93.0 - near,
            "{marks} marks"
        );
        for (proposed, right) in tally.proposed.into_iter().zip(tally.right) {
            assert!(
                percent(proposed - right, tally.seeds) <= 10.0 + near,
                "{marks} marks"
            );
            let is_right = proposed == 0 || percent(right, proposed) >= 85.0;
            assert!(
                is_right || marks < 100 || streets < STREETS,
                "{marks} marks"
            );
        }
    }
    let [_, hundred, ..] = tallies;
    assert!(percent(hundred.proposed[0], hundred.seeds) >= 70.0 - near);
}

fn streets() -> u32 {
    cases(1).min(STREETS)
}

#[test]
fn figures_of_marks_drawn_by_chance_are_true() {
    let tallies = simulate(streets(), GivenMarks::None);
    println!("{}", table(&tallies));
    assert_goals(&tallies, streets());
}

#[test]
fn marks_of_mainly_wrong_alarms_change_no_figure() {
    let tallies = simulate(streets(), GivenMarks::MainlyWrong);
    println!("{}", table(&tallies));
    assert_goals(&tallies, streets());
    // They would, if they counted.
    let by_all = tallies.map(|tally| percent(tally.covered_by_all, tally.seeds));
    println!("interval of all marks has the truth %: {by_all:?}");
    assert!(by_all.iter().all(|covered| *covered < 20.0));
}
