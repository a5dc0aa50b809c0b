//! What an engine did: its time with a look in progress, its batches, and the looks that it finished in the last seconds. Pure.

use std::{collections::VecDeque, time::Duration};

use spotter_core::{CameraId, Mono, StageTimes};
use spotter_page::{EngineStatus, LookBar};

/// Length of the timeline at most.
const SPAN: Duration = Duration::from_secs(5);
/// Looks that are kept; with a fast engine they span less time than [`SPAN`].
const LOOKS: usize = 160;

#[derive(Clone, Debug, Default)]
pub struct EngineUsage {
    looks: VecDeque<EngineLook>,
    busy: Duration,
    busy_until: Mono,
    batches: Batches,
}

/// A finished look: taken, prepared, encoded, first prompt prefilled, last prompt answered.
#[derive(Clone, Debug)]
struct EngineLook {
    camera: CameraId,
    times: [Mono; 5],
}

impl EngineLook {
    fn ended(&self) -> Mono {
        self.times[4]
    }
}

/// Images that vision encoders encoded, and the steps that encoded them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    pub images: u64,
    /// Steps with at least one.
    pub steps: u64,
}

impl Batches {
    /// Of all engines together.
    pub fn of_all(engines: &[EngineStatus]) -> Self {
        Self {
            images: engines.iter().map(|engine| engine.images).sum(),
            steps: engines.iter().map(|engine| engine.encoding_steps).sum(),
        }
    }

    /// Images a step since `before`; `None` without a step, or when engines were removed since.
    pub fn mean_since(self, before: Self) -> Option<f64> {
        let steps = self.steps.checked_sub(before.steps)?;
        let images = self.images.checked_sub(before.images)?;
        (steps > 0).then(|| images as f64 / steps as f64)
    }
}

impl EngineUsage {
    /// A prompt of a look was answered, in these stages.
    pub fn answer(&mut self, camera: &CameraId, marks: &StageTimes) {
        let &StageTimes {
            taken,
            prepared,
            encoded,
            prefilled,
            generated,
            ..
        } = marks;
        // Answers come almost in the order of their ends; what is out of order counts too little rather than twice.
        self.busy += generated.since(taken.max(self.busy_until));
        self.busy_until = self.busy_until.max(generated);
        // The image is shared; the first prompt to begin and the last to end frame the answering.
        let same = |look: &&mut EngineLook| {
            look.camera == *camera && look.times[0] == taken && look.times[2] == encoded
        };
        if let Some(look) = self.looks.iter_mut().rev().find(same) {
            look.times[3] = look.times[3].min(prefilled);
            look.times[4] = look.times[4].max(generated);
            return;
        }
        // Images of one step are all encoded at the same nanosecond, those of two steps are not.
        let in_a_known_step = self.looks.iter().any(|look| look.times[2] == encoded);
        self.batches.images += 1;
        self.batches.steps += u64::from(!in_a_known_step);
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(EngineLook {
            camera: camera.clone(),
            times: [taken, prepared, encoded, prefilled, generated],
        });
    }

    /// Bars and times; the caller adds the rest. Spans the looks that are kept, or [`SPAN`] when they are older.
    pub fn status(&self, now: Mono) -> EngineStatus {
        // When full, looks before the oldest were dropped.
        let oldest = self.looks.front().filter(|_| self.looks.len() == LOOKS);
        let from = oldest.map_or(now.before(SPAN), |look| now.before(SPAN).max(look.ended()));
        let span = now.since(from);
        let from_ms = from.as_nanos() as f64 / 1e6;
        let ms = |at: Mono| ((at.as_nanos() as f64 / 1e6 - from_ms) * 100.0).round() / 100.0;
        let shown = self.looks.iter().filter(|look| look.ended() > from);
        let bars: Vec<LookBar> = shown
            .map(|look| LookBar {
                camera: look.camera.to_string(),
                marks_ms: look.times.map(ms),
            })
            .collect();
        EngineStatus {
            busy_pct: busy_pct(&bars, span.as_secs_f64() * 1e3),
            span_ms: span.as_millis() as u64,
            bars,
            busy: self.busy,
            images: self.batches.images,
            encoding_steps: self.batches.steps,
            ..EngineStatus::default()
        }
    }
}

/// Share of the span that bars cover; overlaps count once.
fn busy_pct(bars: &[LookBar], span_ms: f64) -> f64 {
    let mut pieces: Vec<(f64, f64)> = bars
        .iter()
        .map(|bar| (bar.marks_ms[0].max(0.0), bar.marks_ms[4].min(span_ms)))
        .collect();
    pieces.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut covered, mut until) = (0.0, 0.0_f64);
    for (from, to) in pieces {
        covered += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    if span_ms > 0.0 {
        (covered / span_ms * 1000.0).round() / 10.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(from_ms: u64, to_ms: u64) -> StageTimes {
        let at = |ms| Mono::default().after(Duration::from_millis(ms));
        StageTimes {
            taken: at(from_ms),
            prepared: at(from_ms + 1),
            encoded: at(from_ms + 2),
            prefilled: at(from_ms + 3),
            generated: at(to_ms),
            device: Duration::ZERO,
        }
    }

    #[test]
    fn overlapping_looks_are_busy_once_and_old_ones_are_dropped() {
        let gate = CameraId::new("gate").unwrap();
        let mut engine = EngineUsage::default();
        for (from, to) in [(0, 500), (5200, 6200), (5700, 6700), (8000, 8500)] {
            engine.answer(&gate, &marks(from, to));
            engine.answer(&gate, &marks(from, to - 9));
        }
        let now = Mono::default().after(Duration::from_secs(10));
        let view = engine.status(now);
        assert_eq!((view.bars.len(), view.span_ms), (3, 5000));
        assert_eq!(view.bars[0].marks_ms, [200.0, 201.0, 202.0, 203.0, 1200.0]);
        assert_eq!(view.busy_pct, 40.0);
        assert_eq!(engine.busy, Duration::from_millis(2500));
        assert_eq!(
            engine.batches,
            Batches {
                images: 4,
                steps: 4
            }
        );
    }

    #[test]
    fn images_encoded_at_one_time_are_one_batch() {
        let [gate, yard, door] = ["gate", "yard", "door"].map(|id| CameraId::new(id).unwrap());
        let mut engine = EngineUsage::default();
        let before = engine.batches;
        assert_eq!(before.mean_since(before), None);
        // Three in one step, of which the last is answered after the next step's; then one alone.
        engine.answer(&gate, &marks(0, 10));
        engine.answer(&yard, &marks(0, 12));
        engine.answer(&yard, &marks(0, 20));
        engine.answer(&gate, &marks(15, 30));
        engine.answer(&door, &marks(0, 40));
        let after = engine.batches;
        assert_eq!(
            after,
            Batches {
                images: 4,
                steps: 2
            }
        );
        assert_eq!(after.mean_since(before), Some(2.0));
    }

    #[test]
    fn fast_engine_shows_a_shorter_span_without_a_gap() {
        let gate = CameraId::new("gate").unwrap();
        let mut engine = EngineUsage::default();
        let looks = 2 * LOOKS as u64;
        for look in 0..looks {
            engine.answer(&gate, &marks(look * 10, look * 10 + 10));
        }
        let view = engine.status(Mono::default().after(Duration::from_millis(looks * 10)));
        assert_eq!(view.span_ms, (LOOKS as u64 - 1) * 10);
        assert_eq!((view.busy_pct, view.bars.len()), (100.0, LOOKS - 1));
    }
}
