//! Events that wait for a second look.
//!
//! Faults: K16.

use proptest::prelude::*;

use super::*;

fn doubting() -> CameraConfig {
    let mut site = camera();
    site.prompts[0].verify = Some("Is it a person?".into());
    site
}

/// The events that start with the answer `text`; `None` when the question is settled.
fn hear(
    tracker: &mut Tracker,
    second: f64,
    question: &Arc<Prompt>,
    text: &str,
) -> Option<Vec<Event>> {
    let change = super::hear(tracker, second, question, text)?;
    assert_eq!(change.prompt.as_str(), "person");
    Some(change.events)
}

fn question(answer: &TrackedAnswer) -> Option<Arc<Prompt>> {
    answer.change.questions.first().cloned()
}

fn nothing_comes(tracker: &mut Tracker, second: f64, question: &Arc<Prompt>) {
    let prompts = [asked(1, detect("person")), Arc::clone(question)];
    late(tracker, second, &prompts);
}

/// Looks once a second at `count` people until a look causes a question. Returns its second and the question.
fn until_question(tracker: &mut Tracker, from: u64, count: usize) -> (u64, Arc<Prompt>) {
    for second in from..from + 1000 {
        let answer = look(tracker, second as f64, &people(1, count));
        assert_eq!(answer.change.events, [], "an event started without a yes");
        if let Some(question) = question(&answer) {
            return (second, question);
        }
    }
    panic!("no look caused a question");
}

#[test]
fn verification_retries_slowly_after_no_and_soon_without_answer() {
    let mut tracker = tracker(doubting());
    let (mut now, mut question) = until_question(&mut tracker, 0, 1);
    let mut pauses = Vec::new();
    for text in ["No", "No", "Perhaps", "no.", "", "No", "No", "No", "No"] {
        if text.is_empty() {
            nothing_comes(&mut tracker, now as f64, &question);
        } else {
            let begun = hear(&mut tracker, now as f64, &question, text);
            assert_eq!(begun, Some(vec![]));
        }
        let (then, next) = until_question(&mut tracker, now + 1, 1);
        assert_ne!(next.id, question.id);
        pauses.push(then - now);
        (now, question) = (then, next);
    }
    assert_eq!(pauses, [10, 20, 10, 40, 10, 80, 160, 300, 300]);
    let begun = hear(&mut tracker, now as f64, &question, "Yes");
    assert_eq!(begun.unwrap().len(), 1);
}

#[test]
fn a_verdict_that_comes_after_a_change_begins_nothing() {
    let changed = |tracker: &mut Tracker, change: fn(&mut spotter_config::PromptConfig)| {
        let mut site = doubting();
        change(&mut site.prompts[0]);
        tracker.configure(&site, at(2.0).1);
    };
    let changes: [&dyn Fn(&mut Tracker); 5] = [
        &|tracker| drop(tracker.suspend(&gate(), EndReason::Disabled, at(2.0).1)),
        &|tracker| changed(tracker, |person| person.enabled = false),
        &|tracker| changed(tracker, |person| person.task = detect("child")),
        &|tracker| {
            let child = asked(2, detect("child"));
            look(tracker, 2.0, &answer_to(&child, people(2, 1).body));
        },
        &|tracker| drop(tick(tracker, 40.0)),
    ];
    for change in changes {
        let mut tracker = tracker(doubting());
        let (_, question) = until_question(&mut tracker, 0, 1);
        change(&mut tracker);
        assert_eq!(hear(&mut tracker, 41.0, &question, "Yes"), None);
        assert_eq!(tracker.open_events().count(), 0);
    }
}

/// What happens to the question under way before a look.
#[derive(Clone, Copy, Debug)]
enum Comes {
    Nothing,
    Late,
    Text(&'static str),
    /// A second answer to the previous question.
    Old,
}

fn comes() -> impl Strategy<Value = Comes> {
    use Comes::{Late, Nothing, Old, Text};
    let weighted = [
        Nothing,
        Nothing,
        Late,
        Old,
        Text("Yes"),
        Text("No"),
        Text("maybe"),
    ];
    prop::sample::select(weighted.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(128)))]

    #[test]
    fn event_starts_only_after_yes(
        looks in prop::collection::vec((100u64..4000, 0usize..4, comes()), 1..60),
    ) {
        let mut tracker = tracker(doubting());
        let (mut now_ms, mut yeses) = (0, 0);
        let (mut open, mut under_way) = (BTreeSet::new(), None::<Arc<Prompt>>);
        let mut old = None::<Arc<Prompt>>;
        for (step_ms, count, comes) in looks {
            now_ms += step_ms;
            let second = now_ms as f64 / 1e3;
            if let (Comes::Old, Some(old)) = (comes, &old) {
                prop_assert_eq!(hear(&mut tracker, second, old, "Yes"), None);
            }
            if let (Comes::Late, Some(question)) = (comes, &under_way) {
                nothing_comes(&mut tracker, second, question);
                old = under_way.take();
            }
            if let (Comes::Text(text), Some(question)) = (comes, under_way.take_if(|_| matches!(comes, Comes::Text(_)))) {
                let begun = hear(&mut tracker, second, &question, text);
                yeses += usize::from(text == "Yes");
                for event in begun.into_iter().flatten() {
                    prop_assert_eq!((text, event.step), ("Yes", EventStep::New));
                    prop_assert_eq!(event.score_source, ScoreSource::Verify);
                    prop_assert!(open.insert(event.track), "the event started twice");
                }
                old = Some(question);
            }
            let answer = look(&mut tracker, second, &people(1, count));
            for event in &answer.change.events {
                prop_assert!(event.step != EventStep::New && open.contains(&event.track), "{event:?}");
            }
            if let Some(question) = question(&answer) {
                // A new question replaces only one that was lost.
                old = under_way.replace(question).or(old);
            }
        }
        prop_assert!(yeses > 0 || open.is_empty());
        // From now on the answer to every question is yes.
        let mut last = Vec::new();
        for _ in 0..400 {
            now_ms += 1000;
            let second = now_ms as f64 / 1e3;
            let answer = look(&mut tracker, second, &people(1, 2));
            last = tracks(&answer);
            if let Some(question) = question(&answer) {
                hear(&mut tracker, second, &question, "Yes");
            }
        }
        let open = open_tracks(&tracker);
        prop_assert!(last.iter().all(|track| open.contains(track)));
    }
}
