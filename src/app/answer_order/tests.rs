//! Looks whose engine answers in an order of its own.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::app::testing::{answered, frame, scene};
use spotter_config::{PromptConfig, testing::prompt};
use spotter_core::{
    AnswerBody, AnswerPiece, Frame, LookFailure, Mono, Outcome, Prompt, testing::look_at,
};

type Topic = (CameraId, PromptId);

struct PlannedLook {
    look: Look,
    /// What the engine has not said, in the order in which it will.
    left: Vec<LookNews>,
}

/// A look at a camera with some of three prompts, of which the third is a free text. The engine answers them in an order of its
/// own, short ones first, and ends.
fn planned(number: u64, camera: usize, prompts: u8, order: usize, is_late: bool) -> PlannedLook {
    let camera = CameraId::new(&format!("c{camera}")).unwrap();
    let all = [prompt("person"), prompt("car"), scene()].into_iter();
    let chosen = all.enumerate().filter(|(i, _)| prompts >> i & 1 == 1);
    let prompt =
        |(_, prompt): (usize, PromptConfig)| Arc::new(Prompt::new(prompt.id, 1, prompt.task));
    let frame = frame(&camera, number, Mono::default());
    let look = look_at(frame, &Vec::from_iter(chosen.map(prompt)));
    let answer =
        |prompt: &Arc<Prompt>| answered(&look.frame, prompt, AnswerBody::Boxes(Vec::new()));
    let (texts, mut short): (Vec<_>, Vec<_>) =
        (look.prompts.iter()).partition(|prompt| prompt.task.is_free_text());
    let turns = order % short.len().max(1);
    short.rotate_left(turns);
    let mut left: Vec<_> = short.iter().map(|prompt| answer(prompt)).collect();
    if is_late {
        left.truncate(order % (short.len() + 1));
        let mut unanswered = look.clone();
        let is_answered =
            |prompt: &Arc<Prompt>| short[..left.len()].iter().any(|s| Arc::ptr_eq(s, prompt));
        unanswered.prompts.retain(|prompt| !is_answered(prompt));
        left.push(LookNews::Ended(Outcome::Late(unanswered)));
    } else {
        left.push(LookNews::ShortAnswered(look.frame.clone()));
        left.extend(
            texts
                .into_iter()
                .flat_map(|text| [piece(&look.frame, text), answer(text)]),
        );
        left.push(LookNews::Ended(Outcome::Answered(look.frame.clone())));
    }
    PlannedLook { look, left }
}

fn piece(frame: &Frame, prompt: &Arc<Prompt>) -> LookNews {
    LookNews::Piece {
        frame: frame.id(),
        prompt: Arc::clone(prompt),
        piece: AnswerPiece::Text("a".into()),
    }
}

proptest! {
    /// However the news of looks are mixed, each topic keeps its order, no topic waits for another, and the end of a look comes
    /// once and last.
    #[test]
    fn order_is_kept_per_topic_and_every_look_ends_once(
        looks in prop::collection::vec((0_usize..2, 1_u8..8, 0_usize..6, prop::bool::weighted(0.2)), 1..20),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 120),
        overlap in 1_usize..6,
    ) {
        let mut order = AnswerOrder::default();
        let mut next = looks.iter().zip(1..);
        let mut open: Vec<(u64, PlannedLook)> = Vec::new();
        // The frames of each topic; whether the engine has answered, or will not.
        let mut asked = BTreeMap::<Topic, Vec<(u64, Option<bool>)>>::new();
        let mut handed = BTreeMap::<Topic, Vec<u64>>::new();
        let (mut short, mut ended) = (Vec::new(), Vec::new());
        let topic = |frame: &Frame, prompt: &Prompt| (frame.camera.clone(), prompt.id.clone());
        for pick in picks {
            while open.len() < overlap && let Some((&(camera, prompts, turns, is_late), number)) = next.next() {
                let planned = planned(number, camera, prompts, turns, is_late);
                for prompt in &planned.look.prompts {
                    let frames = asked.entry(topic(&planned.look.frame, prompt)).or_default();
                    frames.push((number, None));
                }
                open.push((order.take(&planned.look), planned));
            }
            if open.is_empty() {
                break;
            }
            let index = pick.index(open.len());
            let (number, planned) = &mut open[index];
            let news = planned.left.remove(0);
            let (settled, is_answer) = match &news {
                LookNews::Answer { answer, .. } => (vec![&answer.prompt], true),
                LookNews::Ended(Outcome::Late(look)) => (look.prompts.iter().collect(), false),
                _ => (Vec::new(), false),
            };
            let frame = &planned.look.frame;
            for prompt in settled {
                let mut frames = asked.get_mut(&topic(frame, prompt)).unwrap().iter_mut();
                frames.find(|(of, _)| *of == frame.number).unwrap().1 = Some(is_answer);
            }
            for news in order.hear(*number, news) {
                match news {
                    LookNews::Answer { frame, answer, .. } => {
                        prop_assert!(!ended.contains(&frame.number), "an answer after the end");
                        let is_text = answer.prompt.task.is_free_text();
                        prop_assert!(is_text || !short.contains(&frame.number));
                        handed.entry(topic(&frame, &answer.prompt)).or_default().push(frame.number);
                    }
                    LookNews::Piece { frame, prompt, .. } => {
                        let topic = (frame.camera, prompt.id.clone());
                        let is_open = |(number, answer): &(u64, Option<bool>)| *number < frame.number && answer.is_none();
                        prop_assert!(!asked[&topic].iter().any(is_open), "an earlier look may still answer");
                        prop_assert!(!handed.get(&topic).is_some_and(|of| of.contains(&frame.number)), "before its answer");
                    }
                    LookNews::ShortAnswered(frame) => short.push(frame.number),
                    LookNews::Ended(outcome) => {
                        let is_whole = matches!(outcome, Outcome::Answered(_));
                        let frame = match outcome {
                            Outcome::Answered(frame) => frame,
                            Outcome::Late(look) | Outcome::Failed(look, _) => look.frame,
                        };
                        prop_assert!(!is_whole || short.contains(&frame.number));
                        prop_assert!(!ended.contains(&frame.number), "once");
                        ended.push(frame.number);
                    }
                }
            }
            if planned.left.is_empty() {
                open.swap_remove(index);
            }
            for (topic, frames) in &asked {
                let settled = frames.iter().map_while(|(frame, answer)| Some((*frame, (*answer)?)));
                let expected: Vec<u64> = settled.filter(|(_, is_answer)| *is_answer).map(|(frame, _)| frame).collect();
                prop_assert_eq!(handed.get(topic).cloned().unwrap_or_default(), expected);
            }
        }
        // Each look that is left fails, and nothing waits any more.
        let mut left = 0;
        for (number, planned) in &open {
            let failed = Outcome::Failed(planned.look.clone(), LookFailure::EngineStopped);
            let news = order.hear(*number, LookNews::Ended(failed));
            left += news.iter().filter(|news| matches!(news, LookNews::Ended(_))).count();
        }
        prop_assert!(left >= open.len() && order.is_empty());
    }
}
