//! Another place: everything that is true is told there anew, and where we are only goodbye is said.

use super::{Body, Carried, IN_FLIGHT_MAX, Outbox, Outgoing, Promise, states::Phase};
use crate::{
    Topics,
    message::{Content, Message},
};
use spotter_core::Mono;

/// What is still to be said on a connection that is left for another place.
#[derive(Clone, Debug)]
pub(super) enum Leave {
    /// After the answers that wait.
    ToSay(Message),
    /// Nothing more.
    Said,
}

impl Outbox {
    /// What waits is told with the topics of `there` from now on, on the next connection. The one that there may be now gets
    /// answers to requests and then the `farewell`; what was handed over already may still be acknowledged.
    pub(crate) fn leave(&mut self, here: &Topics, there: &Topics, farewell: Message) {
        // One that is being left already is left with its own words.
        self.leave.get_or_insert(Leave::ToSay(farewell));
        self.drop_streams();
        self.events.readdress(there);
        self.lines = std::mem::take(&mut self.lines)
            .into_iter()
            .map(|(topic, line)| (here.moved(&topic, there).unwrap_or(topic), line))
            .collect();
        self.pending.clear();
        // A topic that is to be cleared is that of the broker and not of the place.
        let moved = |topic: &String, payload: &[u8]| match payload {
            [] => None,
            _ => here.moved(topic, there),
        };
        let states = std::mem::take(&mut self.states).into_iter();
        let (stay, go): (Vec<_>, Vec<_>) = states
            .map(|(topic, state)| (moved(&topic, &state.payload), topic, state))
            .partition(|(moved, ..)| moved.is_none());
        // In this order: what is told at a topic counts, and not that another was to be cleared there.
        for (moved, topic, mut state) in stay.into_iter().chain(go) {
            state.phase = Phase::InFlight { newer: true };
            let topic = moved.unwrap_or(topic);
            self.states.insert(topic.clone(), state);
            self.make_pending(&topic);
        }
    }

    /// The next connection is one to the new place.
    pub(crate) fn arrive(&mut self) {
        self.leave = None;
    }

    /// As [`take`](Self::take), on a connection that is being left.
    pub(super) fn take_last(&mut self, now: Mono) -> Option<Outgoing> {
        if let Some(reply) = self.take_reply(now) {
            return Some(reply);
        }
        if !self.replies.is_settled() || self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let Some(Leave::ToSay(farewell)) = self.leave.replace(Leave::Said) else {
            return None;
        };
        let Content::State { payload, .. } = &farewell.content else {
            return None;
        };
        let (topic, payload) = (farewell.topic.clone(), payload.clone());
        let ticket = self.sends(Carried::Farewell(farewell), now);
        Some(Outgoing {
            topic,
            promise: Promise::State(ticket),
            body: Body::Bytes(payload),
            label: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Limits, Update, event::tests::event};
    use spotter_core::{CameraId, EventStep, NodeId, PromptId};

    fn topics(node: &str) -> Topics {
        Topics::new("spotter", &NodeId::new(node).unwrap())
    }

    fn push(outbox: &mut Outbox, topics: &Topics, update: Update) {
        outbox.push(Message::from_update(topics, update), Mono::default());
    }

    fn count(count: u32) -> Update {
        Update::State {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new("person").unwrap(),
            state: spotter_core::PromptState::Count(Some(count)),
        }
    }

    /// All that goes now, acknowledged at once: topic and payload.
    fn drain(outbox: &mut Outbox) -> Vec<(String, String)> {
        let mut all = Vec::new();
        while let Some(outgoing) = outbox.take(Mono::default()) {
            if let Some(ticket) = outgoing.promise.ticket() {
                outbox.acked(ticket, Mono::default());
            }
            let Body::Bytes(bytes) = outgoing.body else {
                panic!("a detection");
            };
            all.push((outgoing.topic, String::from_utf8(bytes.to_vec()).unwrap()));
        }
        all
    }

    fn pair(topic: &str, payload: &str) -> (String, String) {
        (topic.to_owned(), payload.to_owned())
    }

    #[test]
    fn what_is_true_goes_with_us_and_only_goodbye_stays() {
        let (here, there) = (topics("edge1"), topics("edge2"));
        let mut outbox = Outbox::new(Limits::default(), "b7c1".into(), 7);
        outbox.connected();
        push(&mut outbox, &here, count(3));
        push(&mut outbox, &here, Update::Clear("a/b".into()));
        outbox.push(Message::node_status(&here, true), Mono::default());
        let happened = Update::Event(Box::new(event("gate", 1, EventStep::New)));
        push(&mut outbox, &here, happened);
        let last = outbox.take(Mono::default()).unwrap();
        assert_eq!(last.topic, "a/b", "on its way when we leave");

        outbox.leave(&here, &there, Message::node_status(&here, false));
        push(&mut outbox, &there, count(4));
        outbox.leave(&there, &there, Message::node_status(&there, false));
        assert!(!outbox.is_settled());
        let farewell = [pair("spotter/edge1/status", "offline")];
        assert_eq!(drain(&mut outbox), farewell);
        outbox.acked(last.promise.ticket().unwrap(), Mono::default());
        assert!(outbox.is_settled());

        outbox.disconnected();
        outbox.arrive();
        outbox.connected();
        let told = drain(&mut outbox);
        assert_eq!(
            told[..3],
            [
                // What another broker may keep is cleared there too.
                pair("a/b", ""),
                pair("spotter/edge2/cam/gate/count/person", "4"),
                pair("spotter/edge2/status", "online")
            ]
        );
        let [(topic, _)] = &told[3..] else {
            panic!("one event: {told:?}");
        };
        assert_eq!(topic, "spotter/edge2/cam/gate/event/person");
    }

    #[test]
    fn goodbye_that_could_not_be_handed_over_is_said_again() {
        let here = topics("edge1");
        let mut outbox = Outbox::new(Limits::default(), "b7c1".into(), 7);
        outbox.connected();
        push(&mut outbox, &here, count(3));
        let refused = outbox.take(Mono::default()).unwrap();
        outbox.leave(&here, &here, Message::node_status(&here, false));
        outbox.declined(refused.promise.ticket().unwrap(), Mono::default());
        let first = outbox.take(Mono::default()).unwrap();
        let later = Mono::default().after(Duration::from_secs(3600));
        assert!(outbox.take(later).is_none());
        assert_eq!(outbox.next_at(later), None, "nothing is tried again here");
        outbox.failed(first.promise.ticket().unwrap());
        assert_eq!(
            drain(&mut outbox),
            [pair("spotter/edge1/status", "offline")]
        );
    }
}
