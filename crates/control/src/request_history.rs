//! Requests that arrive twice: a client that got no reply repeats the request with the same id. Pure.

use std::{collections::VecDeque, time::Duration};

use spotter_core::Mono;

/// Within this time a repetition is the same request.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Beyond this number the oldest requests are forgotten.
const REQUESTS_MAX: usize = 1000;

/// The replies of the last minutes. `K` identifies a request; the id that its sender gave it is not enough, because senders do not know each
/// other.
#[derive(Clone, Debug)]
pub struct RequestHistory<K, A>(VecDeque<(K, Mono, Option<A>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestStatus<A> {
    /// The history does not have this request.
    New,
    /// Executed now; its reply follows.
    Running,
    Answered(A),
}

impl<K: PartialEq, A: Clone> RequestHistory<K, A> {
    pub fn register(&mut self, request: K, now: Mono) -> RequestStatus<A> {
        while self.0.len() >= REQUESTS_MAX || self.is_old(now) {
            self.0.pop_front();
        }
        match self.0.iter().find(|(known, ..)| *known == request) {
            Some((.., Some(answer))) => RequestStatus::Answered(answer.clone()),
            Some((.., None)) => RequestStatus::Running,
            None => {
                self.0.push_back((request, now, None));
                RequestStatus::New
            }
        }
    }

    pub fn answer(&mut self, request: &K, answer: A) {
        if let Some(asked) = self.0.iter_mut().find(|(known, ..)| known == request) {
            asked.2 = Some(answer);
        }
    }

    fn is_old(&self, now: Mono) -> bool {
        let first = self.0.front();
        first.is_some_and(|(_, asked, _)| now.since(*asked) > REMEMBERED)
    }
}

impl<K, A> Default for RequestHistory<K, A> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_request_runs_once_with_the_same_reply() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut seen = RequestHistory::default();
        assert_eq!(seen.register(-1, at(0)), RequestStatus::New);
        assert_eq!(seen.register(-1, at(1)), RequestStatus::Running);
        seen.answer(&-1, 7);
        assert_eq!(seen.register(-1, at(600)), RequestStatus::Answered(7));
        assert_eq!(seen.register(-1, at(601)), RequestStatus::New);
        for request in 0..5000 {
            assert_eq!(seen.register(request, at(602)), RequestStatus::New);
        }
        assert!(seen.0.len() <= REQUESTS_MAX);
    }
}
