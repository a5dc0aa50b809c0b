//! Requests that arrive twice: a client that got no reply repeats the request with the same id. Pure.

use std::{collections::VecDeque, time::Duration};

use spotter_core::Mono;
use spotter_mqtt::{Reply, Requester};

/// Within this time a repetition is the same request.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Beyond this number the oldest requests are forgotten.
const REQUESTS_MAX: usize = 1000;

/// The requests of the last minutes that have an id, with their replies.
#[derive(Default)]
pub struct RequestHistory(VecDeque<KnownRequest>);

struct KnownRequest {
    key: RequestKey,
    at: Mono,
    reply: Option<Reply>,
}

/// Two clients may choose the same id: they do not know each other.
#[derive(Clone, PartialEq)]
struct RequestKey {
    reply_topic: Option<String>,
    id: String,
    op: String,
}

impl RequestKey {
    fn of(requester: &Requester) -> Option<Self> {
        Some(Self {
            reply_topic: requester.reply_to.as_ref().map(|to| to.topic.clone()),
            id: requester.head.id.clone()?,
            op: requester.head.op.clone(),
        })
    }
}

#[derive(Debug, PartialEq)]
pub enum RequestStatus {
    New,
    /// Executed now; its reply follows.
    Running,
    Answered(Box<Reply>),
}

impl RequestHistory {
    pub fn register(&mut self, requester: &Requester, now: Mono) -> RequestStatus {
        let Some(key) = RequestKey::of(requester) else {
            return RequestStatus::New;
        };
        let is_old = |known: &KnownRequest| now.since(known.at) > REMEMBERED;
        while self.0.len() >= REQUESTS_MAX || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        match self.0.iter().find(|known| known.key == key) {
            Some(known) => match &known.reply {
                Some(reply) => RequestStatus::Answered(Box::new(reply.clone())),
                None => RequestStatus::Running,
            },
            None => {
                let (at, reply) = (now, None);
                self.0.push_back(KnownRequest { key, at, reply });
                RequestStatus::New
            }
        }
    }

    pub fn answer(&mut self, requester: &Requester, reply: &Reply) {
        let key = RequestKey::of(requester);
        let mut all = self.0.iter_mut();
        if let Some(known) = all.find(|known| Some(&known.key) == key.as_ref()) {
            known.reply = Some(reply.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::WallTime;
    use spotter_mqtt::{ReplyTo, ReplyValue, RequestHead};

    fn requester(id: usize, op: &str, topic: Option<&str>) -> Requester {
        let head = RequestHead {
            id: Some(id.to_string()),
            op: op.into(),
            ..RequestHead::default()
        };
        let reply_to = topic.map(|topic| ReplyTo {
            topic: topic.into(),
            correlation: None,
        });
        Requester { head, reply_to }
    }

    fn reply(requester: &Requester, revision: u32) -> Reply {
        Reply {
            head: requester.head.clone(),
            result: Ok(ReplyValue::Revision(revision)),
            at: WallTime::default(),
        }
    }

    // Faults: B22.
    #[test]
    fn repeated_request_runs_once_for_each_client() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut history = RequestHistory::default();
        let desk = Some("spotter/desk");
        let requests = [("ask", desk), ("ask", None), ("get", desk), ("get", None)];
        let requests = requests.map(|(op, topic)| requester(1, op, topic));
        for (revision, request) in (0..).zip(&requests) {
            assert_eq!(history.register(request, at(0)), RequestStatus::New);
            assert_eq!(history.register(request, at(1)), RequestStatus::Running);
            history.answer(request, &reply(request, revision));
        }
        for (revision, request) in (0..).zip(&requests) {
            let answered = RequestStatus::Answered(Box::new(reply(request, revision)));
            assert_eq!(history.register(request, at(600)), answered);
        }
        assert_eq!(history.register(&requests[0], at(601)), RequestStatus::New);
        for id in 2..5000 {
            let request = requester(id, "get", None);
            assert_eq!(history.register(&request, at(602)), RequestStatus::New);
        }
        assert!(history.0.len() <= REQUESTS_MAX);
    }
}
