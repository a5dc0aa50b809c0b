//! Events whose object is described.

use super::*;
use spotter_core::{PromptRegion, StripShape};

fn describing() -> CameraConfig {
    let mut site = camera();
    site.prompts[0].describe = Some("What is the person doing?".into());
    site.prompts[0].stream = true;
    site
}

fn hear(tracker: &mut Tracker, second: f64, question: &Arc<Prompt>, text: &str) -> PromptChange {
    super::hear(tracker, second, question, text).unwrap()
}

fn looks(tracker: &mut Tracker, seconds: std::ops::Range<u32>, count: usize) -> PromptChange {
    let looks = seconds.map(|second| look(tracker, f64::from(second), &people(1, count)).change);
    looks.last().unwrap()
}

/// The part of the picture that a question is about, and the object of its event: from left to right.
fn part_and_object(question: &Prompt, event: &Event) -> [(f64, f64); 2] {
    let (PromptRegion::Fixed(region), Location::Box(seen)) = (question.view.region, event.location)
    else {
        panic!("{question:?}");
    };
    [region.norm_box(), seen].map(|area| (area.x0, area.x1))
}

#[test]
fn description_of_a_new_event_is_an_update() {
    let mut site = describing();
    site.prompts[0].stream = true;
    let mut tracker = tracker(site);
    let change = looks(&mut tracker, 0..2, 1);
    let [new] = &change.events[..] else {
        panic!("{change:?}");
    };
    assert_eq!((new.step, &new.description), (EventStep::New, &None));
    let [question] = &change.questions[..] else {
        panic!("{change:?}");
    };
    assert_eq!(question.task.text(), "What is the person doing?");
    assert!(question.task.is_free_text() && question.view.width_max.is_none());
    assert!(question.in_pieces);
    let [(from, to), seen] = part_and_object(question, new);
    assert!(from <= seen.0 && seen.1 <= to && to - from <= 2.01 * (seen.1 - seen.0));

    let (camera, prompt) = (new.camera.clone(), new.prompt.clone());
    let subject = tracker.track_to_describe(&camera, question);
    assert_eq!(subject, Some((&prompt, &new.track)));
    let described = hear(&mut tracker, 1.2, question, " It waves. ");
    assert!(tracker.track_to_describe(&camera, question).is_none());
    let [update] = &described.events[..] else {
        panic!("{described:?}");
    };
    assert_eq!(update.step, EventStep::Update(UpdateReason::Described));
    assert_eq!(update.track, new.track);
    assert_eq!(update.description.as_deref(), Some("It waves."));
    // Later messages have it too, and it is not asked again.
    let end = looks(&mut tracker, 2..12, 0);
    let ended: Vec<_> = tracker.open_events().collect();
    assert!(ended.is_empty() && end.questions.is_empty());
}

#[test]
fn description_of_a_strip_sees_more_around_the_object() {
    let mut site = describing();
    let strip = Some(StripShape {
        frames: 9,
        over: seconds(4.0),
    });
    site.prompts[0].strip = strip;
    let mut tracker = tracker(site);
    let change = looks(&mut tracker, 0..2, 1);
    let question = &change.questions[0];
    assert_eq!(question.view.strip, strip);
    let [(_, to), seen] = part_and_object(question, &change.events[0]);
    let margin = (to - seen.1) / (seen.1 - seen.0);
    assert!((0.99..=1.01).contains(&margin), "{margin}");
}
