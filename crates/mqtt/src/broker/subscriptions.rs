//! The filters of one connection: which to subscribe to and which to unsubscribe from. Pure.

use std::collections::VecDeque;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionChange {
    Subscribe(String),
    Unsubscribe(String),
}

/// The filters of one connection, none at first.
#[derive(Clone, Debug, Default)]
pub(super) struct Subscriptions {
    filters: Vec<String>,
    due: VecDeque<SubscriptionChange>,
}

impl Subscriptions {
    /// Replaces the wanted filters.
    pub(super) fn want(&mut self, filters: Vec<String>) {
        // Undoes changes that were not requested yet.
        for change in std::mem::take(&mut self.due) {
            match change {
                SubscriptionChange::Subscribe(filter) => {
                    self.filters.retain(|asked| *asked != filter)
                }
                SubscriptionChange::Unsubscribe(filter) => self.filters.push(filter),
            }
        }
        let gone = self.filters.iter().filter(|has| !filters.contains(has));
        self.due
            .extend(gone.cloned().map(SubscriptionChange::Unsubscribe));
        let new = filters.iter().filter(|want| !self.filters.contains(want));
        self.due
            .extend(new.cloned().map(SubscriptionChange::Subscribe));
        self.filters = filters;
    }

    pub(super) fn next(&mut self) -> Option<SubscriptionChange> {
        self.due.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn only_differences_are_asked_for() {
        let subscribe = |name: &str| Some(SubscriptionChange::Subscribe(name.into()));
        let mut subscriptions = Subscriptions::default();
        subscriptions.want(filters(&["status", "cmd"]));
        assert_eq!(subscriptions.next(), subscribe("status"));
        // `cmd` was not requested yet and is no longer wanted.
        subscriptions.want(filters(&["status", "cam"]));
        assert_eq!(subscriptions.next(), subscribe("cam"));
        assert_eq!(subscriptions.next(), None);
        subscriptions.want(filters(&["status"]));
        // Wanted again before it was unsubscribed.
        subscriptions.want(filters(&["status", "cam"]));
        assert_eq!(subscriptions.next(), None);
        subscriptions.want(filters(&["status"]));
        assert_eq!(
            subscriptions.next(),
            Some(SubscriptionChange::Unsubscribe("cam".into()))
        );
    }
}
