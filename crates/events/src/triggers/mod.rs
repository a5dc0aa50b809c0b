//! Which triggers are active, and so which cameras are looked at. Pure: a signal of any source goes in, and time passes.
//!
//! One rule serves all sources: a trigger is active until a time. A signal of a moment sets it to `for` from now; one that something
//! is on to `at_most` from now, and the one that it is over to `for` from now.
//!
//! Commands request looks of a camera although none of its triggers is active: all that are due until a time, or one.

use std::collections::BTreeMap;

use spotter_config::{CameraConfig, ConfigChange, TriggerConfig, TriggerSource};
use spotter_core::{
    CameraId, LookNews, Mono, Outcome, Prompt, TriggerId, TriggerReport, TriggerSignal,
    TriggeredLooks,
};

/// The cameras that have triggers.
#[derive(Debug, Default)]
pub struct TriggerSet(BTreeMap<CameraId, TriggeredCamera>);

#[derive(Debug, Default)]
struct TriggeredCamera {
    triggers: Vec<Trigger>,
    /// A command requests all looks until then.
    all_until: Mono,
    /// A command requests one look.
    one: Option<RequestedLook>,
}

/// One look that a command requests.
#[derive(Debug)]
struct RequestedLook {
    until: Mono,
    /// Its frame, once a prompt has an answer.
    answered: Option<u64>,
}

/// The one look that a command requested has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedLookEnd {
    pub camera: CameraId,
    /// False: it was late or failed, and is still requested.
    pub is_answered: bool,
}

#[derive(Debug)]
struct Trigger {
    config: TriggerConfig,
    state: TriggerState,
}

#[derive(Clone, Copy, Debug, Default)]
struct TriggerState {
    until: Mono,
    is_on: bool,
    activations: u64,
}

/// Why there is no such trigger, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownTrigger(pub String);

fn known<T: ToString>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

impl Trigger {
    fn is_active(&self, now: Mono) -> bool {
        now < self.state.until
    }

    fn signal(&mut self, signal: TriggerSignal, now: Mono) {
        let was_active = self.is_active(now);
        let hold = now.after(self.config.hold);
        let state = &mut self.state;
        match signal {
            TriggerSignal::Momentary => state.until = state.until.max(hold),
            TriggerSignal::On => state.until = now.after(self.config.at_most),
            // The end of something that `at_most` ended before begins nothing.
            TriggerSignal::Off if state.is_on && was_active => state.until = hold,
            TriggerSignal::Off => {}
        }
        if signal != TriggerSignal::Momentary {
            state.is_on = signal == TriggerSignal::On;
        }
        state.activations += u64::from(!was_active && now < state.until);
    }

    fn report(&self, now: Mono) -> TriggerReport {
        TriggerReport {
            id: self.config.id.clone(),
            is_active: self.is_active(now),
            activations: self.state.activations,
        }
    }
}

impl TriggerSet {
    pub fn new(cameras: &[CameraConfig]) -> Self {
        let mut set = Self::default();
        set.apply(&ConfigChange::between(&[], cameras));
        set
    }

    /// Other cameras, or other triggers of them. A trigger that has the same source as before stays active; other times apply from its next
    /// signal on. Returns the sources of all others, which have said nothing yet.
    pub fn apply(&mut self, change: &ConfigChange) -> Vec<TriggerSource> {
        let mut unheard = Vec::new();
        for (id, change) in change.cameras() {
            let mut camera = self.0.remove(id).unwrap_or_default();
            let before = std::mem::take(&mut camera.triggers);
            for config in change.camera().iter().flat_map(|camera| &camera.triggers) {
                let is_same = |old: &&Trigger| {
                    (&old.config.id, &old.config.source) == (&config.id, &config.source)
                };
                let known = before.iter().find(is_same).map(|old| old.state);
                if known.is_none() {
                    unheard.push(config.source.clone());
                }
                camera.triggers.push(Trigger {
                    config: config.clone(),
                    state: known.unwrap_or_default(),
                });
            }
            if !camera.triggers.is_empty() {
                self.0.insert(id.clone(), camera);
            }
        }
        unheard
    }

    /// The source of a trigger says something.
    pub fn signal(
        &mut self,
        camera: &CameraId,
        trigger: &TriggerId,
        signal: TriggerSignal,
        now: Mono,
    ) -> Result<(), UnknownTrigger> {
        let cameras = known(self.0.keys());
        let Some(found) = self.0.get_mut(camera) else {
            return Err(UnknownTrigger(format!(
                "no camera {camera} has triggers; those that have some: {cameras}"
            )));
        };
        let names = known(found.triggers.iter().map(|known| &known.config.id));
        let mut triggers = found.triggers.iter_mut();
        let found = triggers.find(|known| known.config.id == *trigger);
        let unknown = || format!("camera {camera} has no trigger {trigger}; it has {names}");
        let found = found.ok_or_else(|| UnknownTrigger(unknown()))?;
        found.signal(signal, now);
        Ok(())
    }

    /// A command requests all looks of a camera that are due until then. No effect on a camera without triggers.
    pub fn request_looks(&mut self, camera: &CameraId, until: Mono) {
        if let Some(camera) = self.0.get_mut(camera) {
            camera.all_until = until;
        }
    }

    /// A command requests one look of a camera, until then. No effect on a camera without triggers.
    pub fn request_one_look(&mut self, camera: &CameraId, until: Mono) {
        if let Some(camera) = self.0.get_mut(camera) {
            camera.one = Some(RequestedLook {
                until,
                answered: None,
            });
        }
    }

    /// A look has news: is it the end of one that a command requested? A question that is asked once has looks of its own.
    pub fn on_look(&mut self, news: &LookNews) -> Option<RequestedLookEnd> {
        let is_due = |prompt: &Prompt| prompt.revision != Prompt::ONCE;
        let (frame, is_answered) = match news {
            LookNews::Answer { frame, answer, .. } => {
                let one = self.0.get_mut(&frame.camera)?.one.as_mut()?;
                if is_due(&answer.prompt) {
                    one.answered = Some(frame.number);
                }
                return None;
            }
            LookNews::Piece { .. } | LookNews::ShortAnswered(_) => return None,
            LookNews::Ended(Outcome::Answered(frame)) => (frame, true),
            LookNews::Ended(Outcome::Late(look) | Outcome::Failed(look, _)) => {
                if !look.prompts.iter().any(|prompt| is_due(prompt)) {
                    return None;
                }
                (&look.frame, false)
            }
        };
        let camera = frame.camera.clone();
        let requested = &mut self.0.get_mut(&camera)?.one;
        let one = requested.as_mut()?;
        if is_answered {
            one.answered.take_if(|number| *number == frame.number)?;
            *requested = None;
        }
        Some(RequestedLookEnd {
            camera,
            is_answered,
        })
    }

    /// The cameras that have triggers, with their looks at `now`.
    pub fn looks(&self, now: Mono) -> impl Iterator<Item = (&CameraId, TriggeredLooks)> {
        self.0.iter().map(move |(id, camera)| {
            let is_active = camera.triggers.iter().any(|trigger| trigger.is_active(now));
            let looks = if is_active || now < camera.all_until {
                TriggeredLooks::All
            } else if camera.one.as_ref().is_some_and(|one| now < one.until) {
                TriggeredLooks::One
            } else {
                TriggeredLooks::None
            };
            (id, looks)
        })
    }

    /// The next time after `now` at which a trigger or requested looks end, if nothing is said before.
    pub fn next_end(&self, now: Mono) -> Option<Mono> {
        let ends = self.0.values().flat_map(|camera| {
            let triggers = camera.triggers.iter().map(|trigger| trigger.state.until);
            let one = camera.one.as_ref().map(|one| one.until);
            triggers.chain([camera.all_until]).chain(one)
        });
        ends.filter(|end| now < *end).min()
    }

    /// Every trigger with its camera and source.
    pub fn sources(&self) -> impl Iterator<Item = (&CameraId, &TriggerId, &TriggerSource)> {
        self.0.iter().flat_map(|(id, camera)| {
            let triggers = camera.triggers.iter();
            triggers.map(move |trigger| (id, &trigger.config.id, &trigger.config.source))
        })
    }

    /// The cameras that have triggers, with all of them.
    pub fn reports(&self, now: Mono) -> impl Iterator<Item = (&CameraId, Vec<TriggerReport>)> {
        self.0.iter().map(move |(id, camera)| {
            let triggers = camera.triggers.iter();
            let reports = triggers.map(|trigger| trigger.report(now));
            (id, reports.collect())
        })
    }
}

#[cfg(test)]
mod tests;
