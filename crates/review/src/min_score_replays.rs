//! Which judged alarms would come with a higher `min_score`: the tracker runs again over their recorded looks.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use spotter_config::{CameraConfig, PromptConfig};
use spotter_core::{CameraId, Clock, Share, TrackId, WallTime};
use spotter_events::replay::{ReplayRules, ReplayedEvent, SeenObjects};
use spotter_history::{
    HistoryError, HistoryReader, RecordFilter, SeriesKey, StoredAlarm, StoredRecord,
};
use spotter_quality::{DrawnSample, ReplayedMinScore, ReplayedSample, min_scores_above};

use crate::{
    judged_prompt::{JudgedPrompt, judged_alarm},
    replayed::{replayed_while, stored_ids},
};

/// Time that a reader waits. What is not replayed then is left for the next one.
const REPLAY_WITHIN: Duration = Duration::from_secs(5);
/// A record that takes longer is given up: of many things that stand still for hours, each of some twenty replays takes seconds.
const RECORD_WITHIN: Duration = Duration::from_secs(60);
/// Alarms whose replays are kept, of all prompts.
const ALARMS_MAX: usize = 20_000;

/// The results of replays, which do not change while the rules of their camera stay.
pub struct MinScoreReplays {
    known: Mutex<KnownReplays>,
    clock: Arc<dyn Clock>,
    /// Records from before have no further parts: this run does not go on with them.
    begun: WallTime,
}

/// Of cameras as they are now.
#[derive(Default)]
struct KnownReplays {
    cameras: HashMap<CameraId, CameraConfig>,
    alarms: HashMap<(SeriesKey, TrackId), ComingAlarm>,
}

impl KnownReplays {
    /// Forgets what other rules of the camera gave, and all where there is no room for `more`.
    fn prepare(&mut self, camera: &CameraConfig, more: usize) {
        let before = self.cameras.insert(camera.id.clone(), camera.clone());
        if before.is_some_and(|before| before != *camera) {
            self.alarms.retain(|(key, _), _| key.camera != camera.id);
        }
        if self.alarms.len() + more > ALARMS_MAX {
            self.alarms.clear();
        }
    }
}

/// Whether an alarm comes with each value above the `min_score` of its series. `None`: the rules of the replay do not give it, because
/// zones or the like are others now, or its record takes too long.
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
        let begun = clock.wall();
        Self {
            known,
            clock,
            begun,
        }
    }

    pub(crate) fn of(
        &self,
        reader: &HistoryReader,
        judged: &JudgedPrompt<'_>,
        alarms: &[&StoredAlarm],
    ) -> Result<ReplayedSample, HistoryError> {
        let key = judged.key();
        let unknown = self.unknown(judged, alarms);
        let new = self.replay(reader, judged, &unknown)?;
        let mut known = self.known();
        let replays = new.alarms.into_iter();
        known
            .alarms
            .extend(replays.map(|(id, comes)| ((key.clone(), id), comes)));
        let replayed = alarms.iter().filter_map(|alarm| {
            let comes = known
                .alarms
                .get(&(key.clone(), alarm.id.clone()))?
                .clone()?;
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

    fn unknown(&self, judged: &JudgedPrompt<'_>, alarms: &[&StoredAlarm]) -> Vec<TrackId> {
        let (mut known, key) = (self.known(), judged.key());
        known.prepare(judged.camera, alarms.len());
        let ids = alarms.iter().map(|alarm| alarm.id.clone());
        ids.filter(|id| !known.alarms.contains_key(&(key.clone(), id.clone())))
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
            prompts: Some(vec![judged.prompt.id.clone()]),
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
            let is_whole = record.has_end || record.record_ms < self.begun.unix_millis();
            let given_up = self.clock.now().after(RECORD_WITHIN);
            let goes_on = || self.clock.now() < given_up;
            let replayed = replayed_alarms(&record, judged, wanted, &goes_on);
            let settled = replayed.into_iter().filter(|it| is_whole || it.has_ended);
            let alarms = settled.map(|it| (it.id, it.comes));
            replays.alarms.extend(alarms);
            ControlFlow::Continue(())
        })?;
        Ok(replays)
    }
}

/// An alarm in a record.
struct ReplayedAlarm {
    id: TrackId,
    /// It does not change with further parts of the record.
    has_ended: bool,
    comes: ComingAlarm,
}

/// The wanted alarms of a record, which is given up when it no longer `goes_on`.
fn replayed_alarms(
    record: &StoredRecord,
    judged: &JudgedPrompt<'_>,
    wanted: &[TrackId],
    goes_on: &dyn Fn() -> bool,
) -> Vec<ReplayedAlarm> {
    let with = |prompt: &PromptConfig| {
        let rules = ReplayRules {
            camera: judged.camera,
            prompt,
            added_masks: &[],
        };
        replayed_while(record, &rules, goes_on).unwrap_or_default()
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
        let seen = SeenObjects::of(&higher);
        for (_, alarm, comes) in &mut alarms {
            comes.push(alarm.is_some_and(|alarm| seen.has(alarm)));
        }
    }
    let is_given_up = !goes_on();
    let all_ended = base.iter().all(has_ended);
    let replayed = alarms.into_iter().map(|(id, alarm, comes)| ReplayedAlarm {
        id: id.clone(),
        // One that goes on may still come with another value, and one that is missing may be in a later part.
        has_ended: is_given_up || alarm.map_or(all_ended, has_ended),
        comes: alarm.filter(|_| !is_given_up).map(|_| comes),
    });
    replayed.collect()
}

fn has_ended(event: &ReplayedEvent) -> bool {
    let last = event.messages.last();
    last.is_some_and(|message| message.ended.is_some())
}
