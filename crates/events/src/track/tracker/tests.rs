use std::time::Duration;

use super::*;
use crate::track::filter::tests::found;
use spotter_config::{ZoneConfig, ZonePoint, testing::prompt};
use spotter_core::{
    AnswerBody, EventStep, FoundObject, Location, NormBox, NormPoint, ObjectOutline, Presence,
    PromptState, ScoreSource, Task, TrackId, UpdateReason, ZoneDwell, ZoneId, duration_from_secs,
    testing::{answer_to, frame_at, share},
};

mod describe;
mod events;
mod lines;
mod names;
mod properties;
mod stories;
mod street;
mod verify;

pub(in crate::track) fn camera() -> CameraConfig {
    spotter_config::testing::camera("gate", vec![prompt("person"), prompt("dog")])
}

fn gate() -> CameraId {
    CameraId::new("gate").unwrap()
}

fn tracker(camera: CameraConfig) -> Tracker {
    Tracker::new("b7c1".into(), &[camera])
}

fn asked(revision: u32, task: Task) -> Arc<Prompt> {
    spotter_core::testing::asked("person", revision, task)
}

fn detect(object: &str) -> Task {
    let object = object.to_owned();
    Task::Detect { object }
}

fn answer(revision: u32, body: AnswerBody) -> Answer {
    answer_to(&asked(revision, detect("person")), body)
}

/// The answer `text` to this question.
fn says(question: &Arc<Prompt>, text: &str) -> Answer {
    let body = AnswerBody::Text {
        text: text.into(),
        score: 0.75,
        source: ScoreSource::TokenProb,
    };
    answer_to(question, body)
}

/// A look at that second with these prompts, which is late.
fn late(tracker: &mut Tracker, second: f64, prompts: &[Arc<Prompt>]) -> Vec<PromptChange> {
    let frame = frame_at(&gate(), seconds(second));
    tracker.unanswered(&frame, prompts)
}

/// What the answer `text` to a question asked once leads to; `None` when the question is settled.
fn hear(
    tracker: &mut Tracker,
    second: f64,
    question: &Arc<Prompt>,
    text: &str,
) -> Option<PromptChange> {
    let frame = frame_at(&gate(), seconds(second));
    tracker.settled(&frame, &says(question, text))
}

fn people(revision: u32, count: usize) -> Answer {
    let column = |i: usize| found(0.1 * i as f64, 0.2, 0.1 * i as f64 + 0.05, 0.5, 0.9);
    let boxes = (0..count).map(column).collect();
    answer(revision, AnswerBody::Boxes(boxes))
}

fn seconds(seconds: f64) -> Duration {
    duration_from_secs(seconds)
}

fn at(after: f64) -> (Mono, WallTime) {
    let now = Mono::default().after(seconds(after));
    (now, WallTime::from_unix_nanos(now.as_nanos() as i64))
}

/// Updates the tracker with an answer at that second.
fn look(tracker: &mut Tracker, second: f64, answer: &Answer) -> TrackedAnswer {
    let frame = frame_at(&gate(), seconds(second));
    tracker.update(&frame, answer).unwrap()
}

/// Updates the tracker with these boxes at that second.
fn see(tracker: &mut Tracker, second: f64, boxes: Vec<FoundObject<NormBox>>) -> TrackedAnswer {
    look(tracker, second, &answer(1, AnswerBody::Boxes(boxes)))
}

/// A person at `x` with feet at 0.8.
fn person_at(x: f64) -> Vec<FoundObject<NormBox>> {
    vec![found(x - 0.05, 0.4, x + 0.05, 0.8, 0.9)]
}

fn present(change: &PromptChange) -> Option<Presence> {
    change.states.iter().find_map(|state| match state {
        PromptState::Presence(presence) => Some(*presence),
        _ => None,
    })
}

fn count(change: &PromptChange) -> Option<Option<u32>> {
    change.states.iter().find_map(|state| match state {
        PromptState::Count(count) => Some(*count),
        _ => None,
    })
}

fn all_events(changes: &[PromptChange]) -> Vec<Event> {
    changes.iter().flat_map(|c| c.events.clone()).collect()
}

/// The first event ends for this reason.
fn assert_end(events: &[Event], reason: EndReason) {
    assert_eq!(events[0].step, EventStep::End(reason));
}

fn assert_unknown(change: &PromptChange) {
    assert_eq!(present(change), Some(Presence::Unknown));
    assert_eq!(count(change), Some(None));
}

/// An answer at that second changes nothing.
fn assert_ignored(tracker: &mut Tracker, second: f64, answer: &Answer) {
    let frame = frame_at(&gate(), seconds(second));
    assert_eq!(tracker.update(&frame, answer), None);
}

fn tick(tracker: &mut Tracker, second: f64) -> Vec<PromptChange> {
    tracker.tick(at(second).0, at(second).1)
}

/// A tracker of this camera that has confirmed `number` people in the seconds 0 and 1.
fn with_people(camera: CameraConfig, number: usize) -> Tracker {
    let mut tracker = tracker(camera);
    states(&mut tracker, 0, &[people(1, number), people(1, number)]);
    tracker
}

fn open_tracks(tracker: &Tracker) -> BTreeSet<TrackId> {
    let events = tracker.open_events();
    events.map(|event| event.track.clone()).collect()
}

fn tracks(answer: &TrackedAnswer) -> Vec<TrackId> {
    let objects = answer.body.objects().iter();
    objects.map(|object| object.track.clone()).collect()
}

/// Presence and count after each answer, one a second.
fn states(
    tracker: &mut Tracker,
    from: u64,
    answers: &[Answer],
) -> Vec<(Option<Presence>, Option<Option<u32>>)> {
    let mut next = |(index, answer): (usize, &Answer)| {
        let news = look(tracker, (from + index as u64) as f64, answer).change;
        (present(&news), count(&news))
    };
    answers.iter().enumerate().map(&mut next).collect()
}

/// The events of looks with these boxes, one look per second; each event with its second.
fn steps(tracker: &mut Tracker, looks: &[Vec<FoundObject<NormBox>>]) -> Vec<(usize, Event)> {
    let mut published = Vec::new();
    for (second, boxes) in looks.iter().enumerate() {
        let events = see(tracker, second as f64, boxes.clone()).change.events;
        published.extend(events.into_iter().map(|event| (second, event)));
    }
    published
}

fn zone(id: &str, x0: f64, x1: f64) -> ZoneConfig {
    ZoneConfig {
        id: ZoneId::new(id).unwrap(),
        polygon: vec![(x0, 0.0), (x1, 0.0), (x1, 1.0), (x0, 1.0)],
        point: ZonePoint::Centre,
    }
}

fn zoned() -> CameraConfig {
    let mut site = camera();
    // They overlap between 0.45 and 0.55.
    site.zones = vec![zone("right", 0.45, 1.0), zone("left", 0.0, 0.55)];
    site
}

#[test]
fn new_words_start_from_nothing_and_old_answers_are_dropped() {
    let mut tracker = with_people(camera(), 1);
    let news = look(&mut tracker, 2.0, &people(2, 1)).change;
    assert_unknown(&news);
    assert_end(&news.events, EndReason::PromptChanged);
    assert_ignored(&mut tracker, 3.0, &people(1, 3));
    let news = look(&mut tracker, 4.0, &people(2, 1)).change;
    assert_eq!(present(&news), Some(Presence::On));
    assert_eq!(news.events[0].revision, 2);
}

#[test]
fn a_question_has_an_answer_and_no_presence() {
    let mut site = camera();
    let task = Task::question("Is the gate open?");
    site.prompts[0].task = task.clone();
    let question = asked(1, task);
    let mut tracker = tracker(site);
    let says = |text: &str| says(&question, text);
    assert_eq!(look(&mut tracker, 0.0, &says("Yes")).change.states, []);
    let yes = PromptState::Answer(Some("yes".into()));
    assert_eq!(look(&mut tracker, 1.0, &says("Yes.")).change.states, [yes]);
    assert_eq!(look(&mut tracker, 2.0, &says("No")).change.states, []);
    let lost = tick(&mut tracker, 40.0);
    let states: Vec<_> = lost.iter().flat_map(|change| &change.states).collect();
    assert_eq!(states, [&PromptState::Answer(None)]);
}

#[test]
fn configuration_change_keeps_unaffected_tracks() {
    let mut site = zoned();
    let mut tracker = tracker(site.clone());
    states(&mut tracker, 0, &[1; 3].map(|n| people(1, n)));
    let track = tracker.open_events().next().unwrap().track.clone();
    // New limits, a new life cycle, one zone more and one moved: the object keeps its track.
    site.prompts[0].min_score = share(0.5);
    site.prompts[0].events.confirm = (1, 1);
    site.zones[0] = zone("right", 0.4, 1.0);
    site.zones.push(zone("all", 0.0, 1.0));
    let changes = tracker.configure(&site, at(3.0).1);
    let of = |changes: &[PromptChange], prompt: &str| {
        let mut changes = changes.iter();
        let found = changes.find(|change| change.prompt.as_str() == prompt);
        found.cloned().unwrap()
    };
    let states = ["right", "all"].map(|zone| {
        let (zone, count) = (ZoneId::new(zone).unwrap(), None);
        PromptState::ZoneCount { zone, count }
    });
    assert_eq!(of(&changes, "person").states, states);
    let answer = look(&mut tracker, 4.0, &people(1, 1));
    assert_eq!(tracks(&answer), std::slice::from_ref(&track));
    assert_eq!(tracker.open_events().count(), 1);
    // A new text starts new tracks.
    site.prompts[0].task = detect("child");
    let changes = tracker.configure(&site, at(5.0).1);
    let published = of(&changes, "person");
    assert_unknown(&published);
    assert_end(&published.events, EndReason::PromptChanged);
    // An answer to the old text.
    assert_ignored(&mut tracker, 6.0, &people(1, 1));
    let children = answer_to(&asked(2, detect("child")), people(2, 1).body);
    let answer = look(&mut tracker, 7.0, &children);
    // One look is enough now.
    assert_eq!(present(&answer.change), Some(Presence::On));
    assert_ne!(tracks(&answer), [track]);
    // The configuration replaces one prompt by another.
    site.prompts[0] = prompt("cat");
    let changes = tracker.configure(&site, at(8.0).1);
    assert_end(&of(&changes, "person").events, EndReason::PromptChanged);
    assert_eq!(present(&of(&changes, "cat")), Some(Presence::Unknown));
    let unchanged = tracker.configure(&site, at(9.0).1);
    assert_eq!(unchanged, []);
    assert_ignored(&mut tracker, 10.0, &children);
}

#[test]
fn one_prompt_is_switched_off_and_on() {
    let mut tracker = with_people(camera(), 1);
    let mut off = camera();
    off.prompts[0].enabled = false;
    let changes = tracker.configure(&off, at(2.0).1);
    assert_end(&all_events(&changes), EndReason::Disabled);
    assert_eq!(present(&changes[0]), Some(Presence::Unknown));
    assert_ignored(&mut tracker, 3.0, &people(1, 1));
    assert_eq!(tracker.configure(&camera(), at(4.0).1), []);
    let seen = states(&mut tracker, 5, &[people(1, 1), people(1, 1)]);
    assert_eq!(seen[1].0, Some(Presence::On));
}

#[test]
fn shutdown_ends_open_events_and_ids_are_not_reused() {
    let mut tracker = with_people(camera(), 2);
    let before = open_tracks(&tracker);
    assert_eq!(before.len(), 2);
    tracker.remove(&gate(), EndReason::Disabled, at(2.0).1);
    assert_ignored(&mut tracker, 3.0, &people(1, 2));
    tracker.configure(&camera(), at(3.0).1);
    states(&mut tracker, 4, &[people(1, 2), people(1, 2)]);
    let ends = tracker.shutdown(at(6.0).1);
    assert_eq!(ends.len(), 2);
    for end in ends {
        assert_eq!(end.step, EventStep::End(EndReason::Shutdown));
        assert!(!before.contains(&end.track));
    }
    assert_eq!(tracker.open_events().count(), 0);
}
