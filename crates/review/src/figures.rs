//! How right the alarms of a prompt are, from those that a person judged, and which `min_score` would be better.

use jiff::{Timestamp, Zoned, tz::TimeZone};
use serde::Serialize;
use spotter_core::{PromptQuality, rounded};
use spotter_history::{
    EventJson, HistoryError, HistoryReader, StoredAlarm, StoredPromise, StoredSeries, time_zone,
};
use spotter_quality::{
    DrawnSample, Outlook, Promise, QualityFigures, ShareInterval, outlook, words,
};

use crate::{
    judged_prompt::{JudgedPrompt, judged_alarm},
    min_score_replays::MinScoreReplays,
};

/// Numbers of the alarms of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct AlarmCounts {
    alarms: u32,
    /// Of these, those that were drawn by chance; the following ones are of these.
    drawn: u32,
    judged: u32,
    right: u32,
    wrong: u32,
}

/// A prompt in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptSummary {
    camera: String,
    prompt: String,
    words: String,
    kind: &'static str,
    min_score: f64,
    #[serde(flatten)]
    counts: AlarmCounts,
    /// Events that a person is asked about.
    pub waiting: u64,
}

/// All that the page shows of a prompt.
#[derive(Debug, Serialize)]
pub struct PromptFigures {
    #[serde(flatten)]
    summary: PromptSummary,
    sentences: Vec<String>,
    share: Option<SharePercent>,
    proposals: Vec<ProposedMinScore>,
    queue: Vec<EventJson>,
    time_zone: String,
    offset_min: i32,
}

/// Of 100 alarms, so many are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct SharePercent {
    percent: u32,
    low: u32,
    high: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct ProposedMinScore {
    target_percent: u8,
    /// `None`: the present one.
    min_score: Option<f64>,
    right_lost: u32,
    wrong_lost: u32,
}

impl PromptFigures {
    /// Whether this is one of the proposals.
    pub fn proposes(&self, target_percent: u8, min_score: f64) -> bool {
        let is_it = |proposal: &ProposedMinScore| {
            // Those of steps of 0.05 went through JSON.
            let is_near = |value: f64| (value - min_score).abs() < 1e-9;
            proposal.target_percent == target_percent && proposal.min_score.is_some_and(is_near)
        };
        self.proposals.iter().any(is_it)
    }
}

impl AlarmCounts {
    fn of(alarms: &[StoredAlarm], sample: &DrawnSample) -> Self {
        let drawn = alarms.iter().filter(|alarm| alarm.is_drawn).count();
        let count = sample.count_with_repeats(|_| true);
        Self {
            alarms: alarms.len() as u32,
            drawn: drawn as u32,
            judged: count.judged,
            right: count.right,
            wrong: count.wrong(),
        }
    }
}

/// Blocks.
pub fn summary(
    reader: &HistoryReader,
    judged: &JudgedPrompt<'_>,
) -> Result<PromptSummary, HistoryError> {
    let read = reader.series(&judged.key())?;
    Ok(summary_of(judged, &read, &sample(&read.alarms)))
}

/// Blocks.
pub fn quality(
    reader: &HistoryReader,
    judged: &JudgedPrompt<'_>,
) -> Result<PromptQuality, HistoryError> {
    let alarms = reader.series(&judged.key())?.alarms;
    let count = sample(&alarms).count();
    let unmarked = alarms.iter().filter(|alarm| alarm.judgement.is_none());
    let ShareInterval { low, high } = count.interval();
    Ok(PromptQuality {
        right: count.right,
        wrong: count.wrong(),
        unmarked: unmarked.count() as u32,
        interval: (count.judged > 0).then(|| [low, high].map(|share| rounded(share, 3))),
    })
}

/// Reads and computes all of a prompt. Blocks; `replays` has what was computed before.
pub fn figures(
    reader: &HistoryReader,
    judged: &JudgedPrompt<'_>,
    replays: &MinScoreReplays,
    now_ms: i64,
) -> Result<PromptFigures, HistoryError> {
    let key = judged.key();
    let read = reader.series(&key)?;
    let counted = read.alarms.iter();
    let counted = counted.filter(|alarm| alarm.is_drawn && alarm.judgement.is_some());
    let replayed = replays.of(reader, judged, &Vec::from_iter(counted))?;
    let sample = sample(&read.alarms);
    let outlook = outlook(&sample, &replayed);
    let summary = summary_of(judged, &read, &sample);
    let sentences = words(&QualityFigures {
        sample: &sample,
        outlook: &outlook,
        drawn: summary.counts.drawn,
        days: &drawn_days(&read.alarms, &TimeZone::system()),
        kept_from: judged.prompt.min_score.get(),
        promise: (read.promise).map(|promise| compared(promise, &read.alarms)),
    });
    let (time_zone, offset_min) = time_zone(now_ms);
    Ok(PromptFigures {
        summary,
        sentences,
        share: share(&sample),
        proposals: proposals(&outlook),
        queue: reader.judging_queue(&key)?,
        time_zone,
        offset_min,
    })
}

fn summary_of(
    judged: &JudgedPrompt<'_>,
    read: &StoredSeries,
    sample: &DrawnSample,
) -> PromptSummary {
    let JudgedPrompt { camera, prompt, .. } = judged;
    PromptSummary {
        camera: camera.id.to_string(),
        prompt: prompt.id.to_string(),
        words: prompt.task.text().to_owned(),
        kind: prompt.task.kind(),
        min_score: prompt.min_score.get(),
        counts: AlarmCounts::of(&read.alarms, sample),
        waiting: read.waiting,
    }
}

fn sample(alarms: &[StoredAlarm]) -> DrawnSample {
    DrawnSample::new(&Vec::from_iter(alarms.iter().filter_map(judged_alarm)))
}

/// With the alarms that came since then.
fn compared(promise: StoredPromise, alarms: &[StoredAlarm]) -> Promise {
    let is_before = |alarm: &StoredAlarm| alarm.place.at.unix_millis() < promise.since_ms;
    // The oldest is the first.
    let since = alarms.partition_point(is_before);
    Promise {
        target_percent: promise.percent,
        since: sample(&alarms[since..]).count(),
    }
}

fn share(sample: &DrawnSample) -> Option<SharePercent> {
    let count = sample.count();
    let percent = |share: f64| (share * 100.0).round() as u32;
    let interval = count.interval();
    count.share().map(|share| SharePercent {
        percent: percent(share),
        low: percent(interval.low),
        high: percent(interval.high),
    })
}

fn proposals(outlook: &Outlook) -> Vec<ProposedMinScore> {
    let Outlook::Proposals(proposals) = outlook else {
        return Vec::new();
    };
    let proposed = proposals.iter().map(|proposal| {
        let lost = proposal.change.map(|change| change.lost);
        let lost = lost.unwrap_or_default();
        ProposedMinScore {
            target_percent: proposal.target_percent,
            min_score: proposal.change.map(|change| change.min_score),
            right_lost: lost.right,
            wrong_lost: lost.wrong(),
        }
    });
    proposed.collect()
}

/// The days of the drawn alarms; empty without any.
fn drawn_days(alarms: &[StoredAlarm], zone: &TimeZone) -> String {
    let drawn = alarms.iter().filter(|alarm| alarm.is_drawn);
    let mut times = drawn.map(|alarm| alarm.place.at.unix_millis());
    let Some(first) = times.next() else {
        return String::new();
    };
    days_text(first, times.next_back().unwrap_or(first), zone)
}

/// Such as `3–24 November`.
fn days_text(first_ms: i64, last_ms: i64, zone: &TimeZone) -> String {
    let day = |ms: i64| {
        let at = Timestamp::from_millisecond(ms).unwrap_or_default();
        at.to_zoned(zone.clone())
    };
    let (first, last): (Zoned, Zoned) = (day(first_ms), day(last_ms));
    let until = last.strftime("%-d %B");
    if first.date() == last.date() {
        until.to_string()
    } else if first.year() != last.year() {
        format!(
            "{} – {}",
            first.strftime("%-d %B %Y"),
            last.strftime("%-d %B %Y")
        )
    } else if first.month() != last.month() {
        format!("{} – {until}", first.strftime("%-d %B"))
    } else {
        format!("{}–{until}", first.day())
    }
}

#[cfg(test)]
mod tests;
