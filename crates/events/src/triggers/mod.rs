//! Which triggers are active, and so which cameras are looked at. Pure: a signal of any source goes in, and time passes.
//!
//! One rule serves all sources: a trigger is active until a time. A signal of a moment sets it to `for` from now; one that something
//! is on to `at_most` from now, and the one that it is over to `for` from now.

use spotter_core::{
    CameraId, Mono, TriggerId, TriggerSignal,
    config::{CameraConfig, TriggerConfig, TriggerSource},
};

/// The triggers of all cameras.
#[derive(Debug, Default)]
pub struct TriggerSet {
    cameras: Vec<TriggeredCamera>,
}

#[derive(Debug)]
struct TriggeredCamera {
    id: CameraId,
    triggers: Vec<TriggerState>,
}

/// One trigger.
#[derive(Clone, Debug)]
pub struct TriggerState {
    config: TriggerConfig,
    until: Mono,
    is_on: bool,
    activations: u64,
}

/// A trigger at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerReport {
    pub id: TriggerId,
    pub is_active: bool,
    /// Times that it became active since the start.
    pub activations: u64,
}

/// A signal for a trigger that no camera has, or that has another source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownTrigger {
    #[error("no camera {camera} has triggers; those that have some: {}", known(.with_triggers))]
    Camera {
        camera: CameraId,
        with_triggers: Vec<CameraId>,
    },
    #[error("camera {camera} has no trigger {trigger}; it has {}", known(.triggers))]
    Trigger {
        camera: CameraId,
        trigger: TriggerId,
        triggers: Vec<TriggerId>,
    },
    #[error("trigger {trigger} of camera {camera} has another source; calls need http = true")]
    NotCalled {
        camera: CameraId,
        trigger: TriggerId,
    },
}

fn known<T: ToString>(names: &[T]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => {
            let names: Vec<String> = names.iter().map(T::to_string).collect();
            names.join(", ")
        }
    }
}

impl TriggerState {
    fn new(config: &TriggerConfig) -> Self {
        Self {
            config: config.clone(),
            until: Mono::default(),
            is_on: false,
            activations: 0,
        }
    }

    fn is_active(&self, now: Mono) -> bool {
        now < self.until
    }

    fn signal(&mut self, signal: TriggerSignal, now: Mono) {
        let was_active = self.is_active(now);
        let hold = now.after(self.config.hold);
        match signal {
            TriggerSignal::Momentary => self.until = self.until.max(hold),
            TriggerSignal::On => (self.is_on, self.until) = (true, now.after(self.config.at_most)),
            // The end of something that `at_most` ended before begins nothing.
            TriggerSignal::Off if self.is_on && was_active => self.until = hold,
            TriggerSignal::Off => {}
        }
        if signal == TriggerSignal::Off {
            self.is_on = false;
        }
        self.activations += u64::from(!was_active && self.is_active(now));
    }

    fn report(&self, now: Mono) -> TriggerReport {
        TriggerReport {
            id: self.config.id.clone(),
            is_active: self.is_active(now),
            activations: self.activations,
        }
    }
}

impl TriggerSet {
    pub fn new(cameras: &[CameraConfig]) -> Self {
        let mut set = Self::default();
        set.change(cameras);
        set
    }

    /// Replaces the triggers. One that has the same source as before stays active; other times apply from its next signal on.
    pub fn change(&mut self, cameras: &[CameraConfig]) {
        let before = std::mem::take(&mut self.cameras);
        let known = |camera: &CameraId, config: &TriggerConfig| {
            let old = before.iter().find(|old| old.id == *camera)?;
            let mut old = old.triggers.iter();
            old.find(|old| old.config.id == config.id && old.config.source == config.source)
        };
        for camera in cameras.iter().filter(|camera| !camera.triggers.is_empty()) {
            let state = |config: &TriggerConfig| match known(&camera.id, config) {
                Some(old) => TriggerState {
                    config: config.clone(),
                    ..old.clone()
                },
                None => TriggerState::new(config),
            };
            self.cameras.push(TriggeredCamera {
                id: camera.id.clone(),
                triggers: camera.triggers.iter().map(state).collect(),
            });
        }
    }

    /// The source of a trigger says something.
    pub fn signal(
        &mut self,
        camera: &CameraId,
        trigger: &TriggerId,
        signal: TriggerSignal,
        now: Mono,
    ) -> Result<(), UnknownTrigger> {
        self.find(camera, trigger)?.signal(signal, now);
        Ok(())
    }

    fn find(
        &mut self,
        camera: &CameraId,
        trigger: &TriggerId,
    ) -> Result<&mut TriggerState, UnknownTrigger> {
        let Some(index) = self.cameras.iter().position(|known| known.id == *camera) else {
            let with_triggers = self.cameras.iter().map(|known| known.id.clone());
            return Err(UnknownTrigger::Camera {
                camera: camera.clone(),
                with_triggers: with_triggers.collect(),
            });
        };
        let triggers = &mut self.cameras[index].triggers;
        let place = triggers
            .iter()
            .position(|known| known.config.id == *trigger);
        match place {
            Some(place) => Ok(&mut triggers[place]),
            None => Err(UnknownTrigger::Trigger {
                camera: camera.clone(),
                trigger: trigger.clone(),
                triggers: triggers
                    .iter()
                    .map(|known| known.config.id.clone())
                    .collect(),
            }),
        }
    }

    /// Every trigger with its camera and source.
    pub fn sources(&self) -> impl Iterator<Item = (&CameraId, &TriggerId, &TriggerSource)> {
        self.cameras.iter().flat_map(|camera| {
            let triggers = camera.triggers.iter();
            triggers.map(|trigger| (&camera.id, &trigger.config.id, &trigger.config.source))
        })
    }

    /// The cameras that have triggers, with all of them.
    pub fn reports(&self, now: Mono) -> impl Iterator<Item = (&CameraId, Vec<TriggerReport>)> {
        self.cameras.iter().map(move |camera| {
            let triggers = camera.triggers.iter();
            (
                &camera.id,
                triggers.map(|trigger| trigger.report(now)).collect(),
            )
        })
    }
}

#[cfg(test)]
mod tests;
