//! Requests that come twice: a consumer that heard no answer asks again, with the same id. Pure.

use std::{collections::VecDeque, time::Duration};

use spotter_core::Mono;

/// For so long an id means the same request.
const REMEMBERED: Duration = Duration::from_secs(600);
/// So many are remembered; beyond it the oldest are forgotten.
const MOST: usize = 1000;

/// The answers of the last minutes, by the ids of their requests.
#[derive(Clone, Debug)]
pub struct Repeated<A>(VecDeque<(String, Mono, Option<A>)>);

/// What is known of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<A> {
    /// It is new, and noted now.
    New,
    /// It is being done; its answer will come.
    UnderWay,
    /// It was done; its answer.
    Answered(A),
}

impl<A: Clone> Repeated<A> {
    /// A request came. One that is new is to be done.
    pub fn ask(&mut self, id: &str, now: Mono) -> Known<A> {
        while self.0.len() >= MOST || self.is_old(now) {
            self.0.pop_front();
        }
        match self.0.iter().find(|(known, ..)| known == id) {
            Some((.., Some(answer))) => Known::Answered(answer.clone()),
            Some((.., None)) => Known::UnderWay,
            None => {
                self.0.push_back((id.to_owned(), now, None));
                Known::New
            }
        }
    }

    /// Its answer.
    pub fn answer(&mut self, id: &str, answer: A) {
        if let Some(asked) = self.0.iter_mut().find(|(known, ..)| known == id) {
            asked.2 = Some(answer);
        }
    }

    fn is_old(&self, now: Mono) -> bool {
        let first = self.0.front();
        first.is_some_and(|(_, asked, _)| now.since(*asked) > REMEMBERED)
    }
}

impl<A> Default for Repeated<A> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_done_once_in_ten_minutes_and_answered_each_time() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut seen = Repeated::default();
        assert_eq!(seen.ask("a", at(0)), Known::New);
        assert_eq!(seen.ask("a", at(1)), Known::UnderWay);
        seen.answer("a", 7);
        assert_eq!(seen.ask("a", at(600)), Known::Answered(7));
        assert_eq!(seen.ask("a", at(601)), Known::New);
        for n in 0..5000 {
            assert_eq!(seen.ask(&format!("flood {n}"), at(602)), Known::New);
        }
        assert!(seen.0.len() <= MOST);
    }
}
