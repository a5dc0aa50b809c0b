//! Which judged alarms would come with a higher `min_score`: the tracker runs again over their recorded looks.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use spotter_config::PromptConfig;
use spotter_core::{Clock, Share, TrackId};
use spotter_events::replay::{ReplayRules, ReplayedEvent};
use spotter_history::{
    HistoryError, HistoryReader, RecordFilter, SeriesKey, StoredAlarm, StoredRecord,
};
use spotter_quality::{DrawnSample, ReplayedMinScore, ReplayedSample, min_scores_above};

use crate::{
    judged_prompt::{JudgedPrompt, judged_alarm},
    replayed::{replayed, stored_ids},
};

/// Time that a reader waits. What is not replayed then is left for the next one.
const REPLAY_WITHIN: Duration = Duration::from_secs(5);
/// Alarms whose replays are kept, of all prompts.
const ALARMS_MAX: usize = 20_000;

/// The results of replays, which never change.
pub struct MinScoreReplays {
    known: Mutex<KnownReplays>,
    clock: Arc<dyn Clock>,
}

type KnownReplays = HashMap<(SeriesKey, TrackId), ComingAlarm>;

/// Whether an alarm comes with each value above the `min_score` of its series. `None`: the rules of the replay do not give it, because
/// zones or the like are others now.
type ComingAlarm = Option<Vec<bool>>;

/// What was replayed of the wanted alarms.
#[derive(Debug, Default)]
struct NewReplays {
    alarms: Vec<(TrackId, ComingAlarm)>,
    /// There was no time for further records.
    is_cut: bool,
}

impl MinScoreReplays {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let known = Mutex::default();
        Self { known, clock }
    }

    pub(crate) fn of(
        &self,
        reader: &HistoryReader,
        judged: &JudgedPrompt<'_>,
        alarms: &[&StoredAlarm],
    ) -> Result<ReplayedSample, HistoryError> {
        let key = judged.key();
        let unknown = self.unknown(&key, alarms);
        let new = self.replay(reader, judged, &unknown)?;
        let mut known = self.known();
        let replays = new.alarms.into_iter();
        known.extend(replays.map(|(id, comes)| ((key.clone(), id), comes)));
        let replayed = alarms.iter().filter_map(|alarm| {
            let comes = known.get(&(key.clone(), alarm.id.clone()))?.clone()?;
            Some((judged_alarm(alarm)?, comes))
        });
        let (judged_alarms, comes): (Vec<_>, Vec<Vec<bool>>) = replayed.unzip();
        let min_scores = min_scores_above(judged.prompt.min_score.get()).enumerate();
        let by_min_score = min_scores.map(|(index, min_score)| ReplayedMinScore {
            min_score,
            comes: comes.iter().map(|of_alarm| of_alarm[index]).collect(),
        });
        Ok(ReplayedSample {
            sample: DrawnSample::new(&judged_alarms),
            by_min_score: by_min_score.collect(),
            is_finished: !new.is_cut,
        })
    }

    fn known(&self) -> MutexGuard<'_, KnownReplays> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unknown(&self, key: &SeriesKey, alarms: &[&StoredAlarm]) -> Vec<TrackId> {
        let mut known = self.known();
        if known.len() + alarms.len() > ALARMS_MAX {
            known.clear();
        }
        let ids = alarms.iter().map(|alarm| alarm.id.clone());
        ids.filter(|id| !known.contains_key(&(key.clone(), id.clone())))
            .collect()
    }

    /// As many as there is time for.
    fn replay(
        &self,
        reader: &HistoryReader,
        judged: &JudgedPrompt<'_>,
        wanted: &[TrackId],
    ) -> Result<NewReplays, HistoryError> {
        let mut replays = NewReplays::default();
        if wanted.is_empty() {
            return Ok(replays);
        }
        let filter = RecordFilter {
            camera: Some(judged.camera.id.clone()),
            prompt: Some(judged.prompt.id.clone()),
            events: Some(wanted.iter().map(ToString::to_string).collect()),
            ..RecordFilter::default()
        };
        let until = self.clock.now().after(REPLAY_WITHIN);
        let mut is_first = true;
        reader.each_record(&filter, |record| {
            // At least one a time.
            if !is_first && self.clock.now() >= until {
                replays.is_cut = true;
                return ControlFlow::Break(());
            }
            is_first = false;
            let alarms = replayed_alarms(&record, judged, wanted);
            replays.alarms.extend(alarms);
            ControlFlow::Continue(())
        })?;
        Ok(replays)
    }
}

/// The wanted alarms of a record, as far as they do not change any more.
fn replayed_alarms(
    record: &StoredRecord,
    judged: &JudgedPrompt<'_>,
    wanted: &[TrackId],
) -> Vec<(TrackId, ComingAlarm)> {
    let with = |prompt: &PromptConfig| {
        let rules = ReplayRules {
            camera: judged.camera,
            prompt,
            added_masks: &[],
        };
        replayed(record, &rules).unwrap_or_default()
    };
    let base = with(judged.prompt);
    let ids = stored_ids(record, &base);
    let started = record.started.iter().map(|event| &event.track);
    let alarms = started.filter(|id| wanted.contains(id)).map(|id| {
        let at = ids.iter().position(|known| *known == Some(id));
        (id, at.map(|at| &base[at]), Vec::new())
    });
    let mut alarms = Vec::from_iter(alarms);
    // All are from 0 to 1.
    for min_score in min_scores_above(judged.prompt.min_score.get()).flat_map(Share::new) {
        let higher = with(&PromptConfig {
            min_score,
            ..judged.prompt.clone()
        });
        for (_, alarm, comes) in &mut alarms {
            let is_of = |event: &ReplayedEvent| alarm.is_some_and(|alarm| event.is_of(alarm));
            comes.push(higher.iter().any(is_of));
        }
    }
    // One that goes on may still come with another value, and one that is missing may be in a later part.
    let is_whole = base.iter().all(has_ended);
    let settled = alarms.into_iter().filter_map(|(id, alarm, comes)| {
        let is_settled = alarm.map_or(is_whole, has_ended);
        is_settled.then(|| (id.clone(), alarm.map(|_| comes)))
    });
    settled.collect()
}

fn has_ended(event: &ReplayedEvent) -> bool {
    let last = event.messages.last();
    last.is_some_and(|message| message.ended.is_some())
}
