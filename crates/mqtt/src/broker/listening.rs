//! What we are subscribed to, and what has to be asked for or given up. Pure.

use std::collections::VecDeque;

/// One request to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Subscribe(String),
    Unsubscribe(String),
}

/// The filters of one connection. A new one begins with none.
#[derive(Clone, Debug, Default)]
pub(super) struct Listening {
    filters: Vec<String>,
    due: VecDeque<Change>,
}

impl Listening {
    /// From now on these and no others.
    pub(super) fn want(&mut self, filters: Vec<String>) {
        // What was due but not yet asked for is worked out anew.
        for change in std::mem::take(&mut self.due) {
            match change {
                Change::Subscribe(filter) => self.filters.retain(|asked| *asked != filter),
                Change::Unsubscribe(filter) => self.filters.push(filter),
            }
        }
        let gone = self.filters.iter().filter(|has| !filters.contains(has));
        self.due.extend(gone.cloned().map(Change::Unsubscribe));
        let new = filters.iter().filter(|want| !self.filters.contains(want));
        self.due.extend(new.cloned().map(Change::Subscribe));
        self.filters = filters;
    }

    /// The next request.
    pub(super) fn next(&mut self) -> Option<Change> {
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
        let subscribe = |name: &str| Some(Change::Subscribe(name.into()));
        let mut listening = Listening::default();
        listening.want(filters(&["status", "cmd"]));
        assert_eq!(listening.next(), subscribe("status"));
        // `cmd` was not asked for yet, and is not wanted any more.
        listening.want(filters(&["status", "cam"]));
        assert_eq!(listening.next(), subscribe("cam"));
        assert_eq!(listening.next(), None);
        listening.want(filters(&["status"]));
        // Wanted again before it was given up.
        listening.want(filters(&["status", "cam"]));
        assert_eq!(listening.next(), None);
        listening.want(filters(&["status"]));
        assert_eq!(listening.next(), Some(Change::Unsubscribe("cam".into())));
    }
}
