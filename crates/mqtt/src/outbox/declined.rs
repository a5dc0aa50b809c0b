//! What the broker did not take: no right to a topic, a limit, too large. It may take it later, so it is tried again once a
//! minute; a node's status that was refused in a bad moment must not leave everybody else unavailable for hours.

use std::time::Duration;

use super::{Carried, Outbox, Ticket, states::Phase};
use spotter_core::Mono;

/// After the first refusal everything that was refused is tried again when so long has passed.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

impl Outbox {
    /// The broker does not take the message: it said so, or it is larger than it allows. A state is tried again when it
    /// changes, and with the events after a while; a reply never.
    pub(crate) fn declined(&mut self, ticket: Ticket, now: Mono) {
        match self.in_flight.remove(&ticket) {
            Some((Carried::State(topic), _)) => {
                self.tally.states_declined += 1;
                self.decline_state(&topic);
            }
            Some((Carried::Event(number), _)) => self.events.declined(number, &mut self.tally),
            Some((Carried::Reply(_), _)) => {
                self.tally.replies_dropped += 1;
                self.replies.settled();
            }
            Some((Carried::Farewell(_), _)) | None => {}
        }
        self.declined_again.get_or_insert(now.after(AGAIN_AFTER));
    }

    fn decline_state(&mut self, topic: &str) {
        match self.states.get_mut(topic).map(|state| &mut state.phase) {
            Some(Phase::InFlight { newer: true }) => self.make_pending(topic),
            Some(phase @ Phase::InFlight { newer: false }) => *phase = Phase::Declined,
            Some(Phase::Pending { .. } | Phase::Settled { .. } | Phase::Declined) | None => {}
        }
    }

    /// Once in a while. Whoever says farewell does not wait for it.
    pub(super) fn try_declined(&mut self, now: Mono) {
        let is_time = self.declined_again.take_if(|at| *at <= now).is_some();
        if !is_time || self.farewell.is_some() || self.said_farewell {
            return;
        }
        let states = self.states.iter();
        let declined = states.filter(|(_, state)| state.phase == Phase::Declined);
        let declined: Vec<String> = declined.map(|(topic, _)| topic.clone()).collect();
        for topic in declined {
            self.make_pending(&topic);
        }
        self.events.try_declined();
    }
}
