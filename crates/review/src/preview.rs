//! How many stored events other shapes on their camera would have counted.

use std::{ops::ControlFlow, time::Duration};

use serde::Serialize;
use spotter_config::{CameraConfig, shapes_of, with_shapes};
use spotter_core::{CameraShapes, Clock, Mono};
use spotter_events::replay::{ReplayRules, ReplayedEvent, SeenObjects};
use spotter_history::{HistoryError, HistoryReader, RecordFilter, StoredRecord};

use crate::{
    narrowing::{NarrowedPrompt, narrowed},
    replayed::replayed_while,
};

const DAYS: u32 = 7;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Time after which no further looks are replayed, those of a part of a record at most; the newest records are the first.
const REPLAY_WITHIN: Duration = Duration::from_secs(3);

/// The answer to "how many events would have counted".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ShapesPreview {
    Counted {
        /// With the shapes in force.
        events: u64,
        /// Of these, with the other shapes.
        counted: u64,
        #[serde(flatten)]
        reach: PreviewReach,
    },
    /// Why it is not known.
    Unknown { reason: String },
}

/// The last time that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PreviewReach {
    Days(u32),
    Hours(u32),
}

impl ShapesPreview {
    fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown {
            reason: reason.into(),
        }
    }
}

/// Replays the recorded looks of the last seven days with the shapes of `camera`, which are in force, and with the others. Both use the rules of
/// now, so that the shapes alone make a difference. Blocks for some seconds.
pub fn preview(
    reader: &HistoryReader,
    camera: &CameraConfig,
    shapes: &CameraShapes,
    clock: &dyn Clock,
) -> Result<ShapesPreview, HistoryError> {
    // Masks of the file have to stay when shapes are saved; here they may not become smaller either.
    let unmasked = CameraConfig {
        mask: Vec::new(),
        ..camera.clone()
    };
    // Those in force with the digits of the others.
    let both = [&shapes_of(camera), shapes].map(|shapes| with_shapes(&unmasked, shapes));
    let [Ok(before), Ok(after)] = both else {
        return Ok(ShapesPreview::unknown(
            "These shapes have mistakes, which \"Save\" shows.",
        ));
    };
    let prompts = match narrowed(&before, &after) {
        Ok(prompts) => prompts,
        Err(wider) => {
            return Ok(ShapesPreview::unknown(format!(
                "How many events these shapes would have counted is known only for narrower ones, and {wider}."
            )));
        }
    };
    if prompts.is_empty() {
        return Ok(ShapesPreview::unknown(
            "These changes make no event more or less.",
        ));
    }
    let now_ms = clock.wall().unix_millis();
    let mut count = PreviewCount {
        cameras: [&before, &after],
        prompts: &prompts,
        since_ms: now_ms - i64::from(DAYS) * DAY_MS,
        oldest_ms: now_ms,
        clock,
        until: clock.now().after(REPLAY_WITHIN),
        is_cut: false,
        events: 0,
        counted: 0,
    };
    let filter = RecordFilter {
        camera: Some(camera.id.clone()),
        prompts: Some(prompts.iter().map(|it| it.before.id.clone()).collect()),
        since_ms: Some(count.since_ms),
        ..RecordFilter::default()
    };
    reader.each_record(&filter, |record| count.add(&record))?;
    if count.events == 0 && count.is_cut {
        return Ok(ShapesPreview::unknown(
            "Only the newest looks were replayed within 3 s, and they have no complete event.",
        ));
    }
    if count.events == 0 {
        return Ok(ShapesPreview::unknown(
            "The last 7 days have no event with recorded looks of these prompts.",
        ));
    }
    Ok(ShapesPreview::Counted {
        events: count.events,
        counted: count.counted,
        reach: count.reach(now_ms),
    })
}

struct PreviewCount<'a> {
    /// With the shapes in force, and with the others.
    cameras: [&'a CameraConfig; 2],
    prompts: &'a [NarrowedPrompt<'a>],
    since_ms: i64,
    /// When the oldest record of those that were replayed began.
    oldest_ms: i64,
    clock: &'a dyn Clock,
    until: Mono,
    is_cut: bool,
    events: u64,
    counted: u64,
}

impl PreviewCount<'_> {
    fn add(&mut self, record: &StoredRecord) -> ControlFlow<()> {
        let mut prompts = self.prompts.iter();
        let Some(prompt) = prompts.find(|prompt| prompt.before.id.as_str() == record.prompt) else {
            return ControlFlow::Continue(());
        };
        let [before, after] = self.cameras;
        let events = self.replayed(
            record,
            &ReplayRules {
                camera: before,
                prompt: prompt.before,
                added_masks: &[],
            },
        );
        let narrower = self.replayed(
            record,
            &ReplayRules {
                camera: after,
                prompt: prompt.after,
                added_masks: &prompt.hidden,
            },
        );
        // Events of a part of a record would be too few of one or the other.
        if !self.has_time() {
            self.is_cut = true;
            return ControlFlow::Break(());
        }
        let began = |event: &ReplayedEvent| {
            let first = event.messages.first();
            first.map(|message| message.started.unix_millis())
        };
        let recent = |event: &&ReplayedEvent| began(event) >= Some(self.since_ms);
        let events = Vec::from_iter(events.iter().filter(recent));
        let narrower = SeenObjects::of(&narrower);
        let counted = events.iter().filter(|event| narrower.has(event));
        self.counted += counted.count() as u64;
        self.events += events.len() as u64;
        self.oldest_ms = record.record_ms;
        ControlFlow::Continue(())
    }

    fn replayed(&self, record: &StoredRecord, rules: &ReplayRules<'_>) -> Vec<ReplayedEvent> {
        replayed_while(record, rules, || self.has_time()).unwrap_or_default()
    }

    fn has_time(&self) -> bool {
        self.clock.now() < self.until
    }

    fn reach(&self, now_ms: i64) -> PreviewReach {
        let ago_ms = now_ms - self.oldest_ms;
        let whole = |unit_ms| u32::try_from(ago_ms / unit_ms).unwrap_or_default();
        match self.is_cut {
            false => PreviewReach::Days(DAYS),
            true if ago_ms >= DAY_MS => PreviewReach::Days(whole(DAY_MS)),
            true => PreviewReach::Hours(whole(HOUR_MS).max(1)),
        }
    }
}

#[cfg(test)]
mod measurement;
#[cfg(test)]
mod tests;
