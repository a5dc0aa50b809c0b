//! Answers of a topic in the order in which its looks were taken; the engine may give them in another order. A topic is one
//! prompt of one camera. Presence and counts are about time, so an older picture must not have the last word on a prompt.
//!
//! ```text
//!   taken   gate/person 1   gate/scene 1   gate/person 2   gate/person 3
//!
//!   ended   person 3 ─▶ waits for person 2
//!           person 1 ─▶ handed on
//!           person 2 ─▶ handed on, and person 3 after it: topics do not delay each other, here by scene 1
//! ```
//!
//! Pure. Nothing waits for ever, because every look ends; so what waits is bounded by the time a look may take.

use std::collections::{BTreeMap, VecDeque};

use spotter_core::{CameraId, PromptId};

type Topic = (CameraId, PromptId);

/// Holds answers back until those of the topic's earlier looks are there.
#[derive(Debug)]
pub struct InOrder<T> {
    taken: u64,
    /// Of each topic, what is not handed on yet, in the order in which it was taken. The first is always under way.
    open: BTreeMap<Topic, VecDeque<OrderedAnswer<T>>>,
}

#[derive(Debug)]
struct OrderedAnswer<T> {
    number: u64,
    /// `None` while it is under way.
    answer: Option<T>,
}

/// Belongs to one prompt of one look; ends it exactly once.
#[derive(Debug)]
pub struct AnswerTicket {
    topic: Topic,
    number: u64,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self {
            taken: 0,
            open: BTreeMap::new(),
        }
    }
}

impl<T> InOrder<T> {
    /// A prompt was asked on a look at `camera`, after all that were taken before.
    pub fn take(&mut self, camera: &CameraId, prompt: &PromptId) -> AnswerTicket {
        self.taken += 1;
        let number = self.taken;
        let topic = (camera.clone(), prompt.clone());
        let answers = self.open.entry(topic.clone()).or_default();
        answers.push_back(OrderedAnswer {
            number,
            answer: None,
        });
        AnswerTicket { topic, number }
    }

    /// A prompt of a look is answered, or will not be. Returns what is to be handed on now, in order: nothing while an earlier
    /// answer of the topic is under way.
    pub fn end(&mut self, ticket: AnswerTicket, answer: T) -> Vec<T> {
        let AnswerTicket { topic, number } = ticket;
        let answers = self.open.entry(topic.clone()).or_default();
        match answers.iter_mut().find(|open| open.number == number) {
            Some(open) => open.answer = Some(answer),
            // Given up before it ended; nothing earlier is waited for any more.
            None => return vec![answer],
        }
        let mut ready = Vec::new();
        while let Some(answer) = answers.front_mut().and_then(|open| open.answer.take()) {
            ready.push(answer);
            answers.pop_front();
        }
        if answers.is_empty() {
            // Questions that are asked once have topics of their own.
            self.open.remove(&topic);
        }
        ready
    }

    /// Forgets the answers under way and returns those that waited for them.
    pub fn give_up(&mut self) -> Vec<T> {
        let open = std::mem::take(&mut self.open);
        let answers = open.into_values().flatten();
        answers.filter_map(|open| open.answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two prompts on one camera, and the first of them on another.
    fn topic(index: usize) -> Topic {
        let camera = CameraId::new(&format!("c{}", index / 2)).unwrap();
        let prompt = PromptId::new(&format!("p{}", index % 2)).unwrap();
        (camera, prompt)
    }

    proptest! {
        /// Answers are returned for the longest prefix of a topic's looks that has ended, independent of other topics.
        #[test]
        fn each_topic_in_its_order_at_once_and_nothing_lost(
            taken in prop::collection::vec(0usize..3, 1..40),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 40),
            overlap in 1usize..9,
            given_up_after in 0usize..60,
        ) {
            let mut order = InOrder::default();
            let mut under_way: Vec<(usize, usize, AnswerTicket)> = Vec::new();
            let mut ended = [const { Vec::new() }; 3];
            let mut handed_on = [const { Vec::new() }; 3];
            let mut looks = [0; 3];
            let mut next = taken.iter();
            for end in ends.iter().take(given_up_after) {
                while under_way.len() < overlap && let Some(&index) = next.next() {
                    under_way.push((index, looks[index], {
                        let (camera, prompt) = topic(index);
                        order.take(&camera, &prompt)
                    }));
                    looks[index] += 1;
                }
                if under_way.is_empty() {
                    break;
                }
                let (index, look, ticket) = under_way.swap_remove(end.index(under_way.len()));
                ended[index].push(look);
                for (of, look) in order.end(ticket, (index, look)) {
                    handed_on[of].push(look);
                }
                for (ended, handed_on) in ended.iter().zip(&handed_on) {
                    let run = (0..).take_while(|look| ended.contains(look));
                    prop_assert_eq!(handed_on, &run.collect::<Vec<_>>());
                }
            }
            // Those that waited for a look which never ended come in their order, too, and nothing comes twice.
            for (of, look) in order.give_up() {
                handed_on[of].push(look);
            }
            for (mut ended, handed_on) in ended.into_iter().zip(handed_on) {
                ended.sort_unstable();
                prop_assert_eq!(ended, handed_on);
            }
            for (index, look, ticket) in under_way {
                prop_assert_eq!(order.end(ticket, (index, look)), vec![(index, look)]);
            }
        }
    }
}
