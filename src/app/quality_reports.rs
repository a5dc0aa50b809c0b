//! Publishes how right the alarms of each camera are: at the start, once a day, and after marks and changes, at most once a minute.

use std::{future::pending, time::Duration};

use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    notice::StageNotice,
    stage::{Handles, Stage, StageContext, StageFuture},
};
use spotter_config::{CameraConfig, ConfigChange};
use spotter_core::{CameraId, Mono, PromptQuality};
use spotter_history::{History, HistoryError, HistoryReader};
use spotter_mqtt::{CameraQuality, Update};
use spotter_quality::AnsweringModel;
use spotter_review::{JudgedPrompt, quality};

const EVERY: Duration = Duration::from_hours(24);
const PAUSE: Duration = Duration::from_secs(60);

type ReadQualities = Result<Vec<(CameraId, CameraQuality)>, HistoryError>;

/// Without a history there is none.
pub struct QualityReports {
    history: History,
    model: AnsweringModel,
    handles: Handles,
    schedule: QualitySchedule,
    reading: Option<JoinHandle<ReadQualities>>,
}

/// When it is published next. Pure.
#[derive(Debug, Default)]
struct QualitySchedule {
    last: Option<Mono>,
    /// Marks of this run that the last one has.
    marks: u64,
    /// Prompts are others.
    is_changed: bool,
}

impl QualitySchedule {
    fn is_due(&mut self, marks: u64, now: Mono) -> bool {
        let since = self.last.map(|last| now.since(last));
        let is_outdated = self.is_changed || self.marks != marks;
        let is_due = since.is_none_or(|since| since >= EVERY || is_outdated && since >= PAUSE);
        if is_due {
            *self = Self {
                last: Some(now),
                marks,
                is_changed: false,
            };
        }
        is_due
    }
}

impl QualityReports {
    pub fn new(history: History, model: AnsweringModel, handles: Handles) -> Self {
        Self {
            history,
            model,
            handles,
            schedule: QualitySchedule::default(),
            reading: None,
        }
    }

    fn publish(&mut self, read: ReadQualities) {
        match read {
            Ok(qualities) => {
                for (camera, quality) in qualities {
                    let update = Update::Quality { camera, quality };
                    self.handles.publisher.publish(update);
                }
            }
            Err(error) => {
                self.schedule.is_changed = true;
                let pause_s = PAUSE.as_secs();
                tracing::warn!(%error, pause_s, "the topics quality are not published; the next attempt follows after the pause");
            }
        }
    }
}

/// Of the cameras with prompts that find objects. Blocks.
fn read_qualities(
    reader: &HistoryReader,
    cameras: &[CameraConfig],
    model: &AnsweringModel,
) -> ReadQualities {
    let mut read = Vec::new();
    for camera in cameras {
        let prompts = JudgedPrompt::all_of(camera, model).map(|judged| {
            let quality: PromptQuality = quality(reader, &judged)?;
            Ok((judged.prompt.id.clone(), quality))
        });
        let prompts = prompts.collect::<Result<_, HistoryError>>()?;
        let quality = CameraQuality { prompts };
        if !quality.prompts.is_empty() {
            read.push((camera.id.clone(), quality));
        }
    }
    Ok(read)
}

impl Stage for QualityReports {
    /// The history was read.
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            let Some(reading) = &mut self.reading else {
                return pending().await;
            };
            let read = reading.await;
            self.reading = None;
            // A panic is in the log.
            if let Ok(read) = read {
                self.publish(read);
            }
            Vec::new()
        })
    }

    fn apply(&mut self, _change: &ConfigChange, _context: &mut StageContext<'_>) {
        self.schedule.is_changed = true;
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let marks = self.history.status().marks;
        if self.reading.is_none() && self.schedule.is_due(marks, context.now) {
            let reader = self.history.reader().clone();
            let (cameras, model) = (context.config.cameras().to_vec(), self.model.clone());
            let read = spawn_blocking(move || read_qualities(&reader, &cameras, &model));
            self.reading = Some(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_is_due_daily_and_a_minute_after_the_last() {
        let mut schedule = QualitySchedule::default();
        let mut due = |seconds: u64, marks: u64| {
            let now = Mono::from_nanos(seconds * 1_000_000_000);
            schedule.is_due(marks, now)
        };
        assert!(due(5, 0) && !due(6, 0));
        // Marks of a minute are published together.
        assert!(!due(30, 1) && !due(64, 20) && due(65, 20));
        assert!(!due(200, 20) && due(201, 21));
        let day = 24 * 60 * 60;
        assert!(!due(day + 200, 21) && due(day + 201, 21));
    }
}
