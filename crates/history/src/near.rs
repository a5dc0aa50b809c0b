//! How many objects below `min_score` are stored of each prompt a day. Pure.

use std::collections::BTreeMap;

use jiff::civil::Date;
use spotter_core::{CameraId, PromptId};

/// A prompt of a camera.
pub(crate) type NearPrompt = (CameraId, PromptId);

/// Counts of one day. Without what earlier runs stored, none may be.
#[derive(Debug, Default)]
pub(crate) struct NearCounts {
    /// A day and prompt.
    most: u32,
    day: Date,
    /// `None`: the database was not read yet.
    stored: Option<BTreeMap<NearPrompt, u32>>,
}

impl NearCounts {
    pub fn new(most: u16) -> Self {
        Self {
            most: most.into(),
            ..Self::default()
        }
    }

    /// Begins with what earlier runs stored of this day. Later calls change nothing.
    pub fn begin(&mut self, day: Date, stored: impl IntoIterator<Item = (NearPrompt, u32)>) {
        if self.stored.is_none() {
            self.day = day;
            self.stored = Some(stored.into_iter().collect());
        }
    }

    /// Counts one more. False: the prompt has as many of this day as it may.
    pub fn admit(&mut self, prompt: NearPrompt, day: Date) -> bool {
        let Some(stored) = &mut self.stored else {
            return false;
        };
        // One that began before midnight counts for the day on which it is stored.
        if day > self.day {
            self.day = day;
            stored.clear();
        }
        let count = stored.entry(prompt).or_default();
        let is_admitted = *count < self.most;
        *count += u32::from(is_admitted);
        is_admitted
    }

    /// One that was counted on this day is removed again.
    pub fn withdraw(&mut self, prompt: &NearPrompt, day: Date) {
        let stored = self.stored.as_mut().filter(|_| day == self.day);
        if let Some(count) = stored.and_then(|stored| stored.get_mut(prompt)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn key(prompt: &str) -> NearPrompt {
        let camera = CameraId::new("gate").unwrap();
        (camera, PromptId::new(prompt).unwrap())
    }

    #[test]
    fn each_prompt_has_its_number_a_day_over_restarts() {
        let (monday, tuesday) = (date(2026, 11, 30), date(2026, 12, 1));
        let mut counts = NearCounts::new(2);
        assert!(!counts.admit(key("person"), monday));
        counts.begin(monday, [(key("person"), 2), (key("car"), 1)]);
        counts.begin(monday, []);
        assert!(!counts.admit(key("person"), monday) && counts.admit(key("car"), monday));
        assert!(!counts.admit(key("car"), monday));
        counts.withdraw(&key("car"), monday);
        assert!(counts.admit(key("car"), monday) && !counts.admit(key("car"), monday));
        let on_tuesday = [(); 3].map(|()| counts.admit(key("person"), tuesday));
        assert_eq!(on_tuesday, [true, true, false]);
        counts.withdraw(&key("person"), monday);
        let days = [monday, tuesday];
        assert!(days.iter().all(|day| !counts.admit(key("person"), *day)));
    }
}
