//! Which triggers are active, and so which cameras are looked at. Pure: a signal of any source goes in, and time passes.
//!
//! One rule serves all sources: a trigger is active until a time. A signal of a moment sets it to `for` from now; one that something
//! is on to `at_most` from now, and the one that it is over to `for` from now.
//!
//! Commands request looks of a camera although none of its triggers is active: all that are due until a time, or one.

use spotter_config::{CameraConfig, ConfigChange, TriggerConfig, TriggerSource};
use spotter_core::{
    CameraId, LookNews, Mono, Outcome, Prompt, TriggerId, TriggerReport, TriggerSignal,
    TriggeredLooks,
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
    requested: RequestedLooks,
}

/// The looks that commands request of a camera.
#[derive(Clone, Debug, Default)]
struct RequestedLooks {
    all_until: Mono,
    one: Option<RequestedLook>,
}

/// One look that a command requests.
#[derive(Clone, Debug)]
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

/// One trigger.
#[derive(Clone, Debug)]
pub struct TriggerState {
    config: TriggerConfig,
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
        set.apply(&ConfigChange::between(&[], cameras));
        set
    }

    /// Other cameras, or other triggers of them. A trigger that has the same source as before stays active; other times apply from its next
    /// signal on. Returns the sources of all others, which have said nothing yet.
    pub fn apply(&mut self, change: &ConfigChange) -> Vec<TriggerSource> {
        let mut unheard = Vec::new();
        for (id, change) in change.cameras() {
            let place = self.cameras.iter().position(|known| known.id == *id);
            let before = place.map(|place| self.cameras.remove(place));
            let triggers = change.camera().map_or(&[][..], |camera| &camera.triggers);
            if triggers.is_empty() {
                continue;
            }
            let known = |config: &TriggerConfig| {
                let mut old = before.iter().flat_map(|before| &before.triggers);
                old.find(|old| old.config.id == config.id && old.config.source == config.source)
            };
            let state = |config: &TriggerConfig| match known(config) {
                Some(old) => TriggerState {
                    config: config.clone(),
                    ..old.clone()
                },
                None => {
                    unheard.push(config.source.clone());
                    TriggerState::new(config)
                }
            };
            let triggers = triggers.iter().map(state).collect();
            self.cameras.push(TriggeredCamera {
                id: id.clone(),
                triggers,
                requested: before.map(|before| before.requested).unwrap_or_default(),
            });
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
        self.find(camera, trigger)?.signal(signal, now);
        Ok(())
    }

    fn find(
        &mut self,
        camera: &CameraId,
        trigger: &TriggerId,
    ) -> Result<&mut TriggerState, UnknownTrigger> {
        let Some(index) = self.cameras.iter().position(|known| known.id == *camera) else {
            let names = known(self.cameras.iter().map(|known| &known.id));
            return Err(UnknownTrigger(format!(
                "no camera {camera} has triggers; those that have some: {names}"
            )));
        };
        let triggers = &mut self.cameras[index].triggers;
        let names = known(triggers.iter().map(|known| &known.config.id));
        let found = triggers
            .iter_mut()
            .find(|known| known.config.id == *trigger);
        let unknown = || format!("camera {camera} has no trigger {trigger}; it has {names}");
        found.ok_or_else(|| UnknownTrigger(unknown()))
    }

    /// A command requests all looks of a camera that are due until then. No effect on a camera without triggers.
    pub fn request_looks(&mut self, camera: &CameraId, until: Mono) {
        if let Some(requested) = self.requested(camera) {
            requested.all_until = until;
        }
    }

    /// A command requests one look of a camera, until then. No effect on a camera without triggers.
    pub fn request_one_look(&mut self, camera: &CameraId, until: Mono) {
        if let Some(requested) = self.requested(camera) {
            requested.one = Some(RequestedLook {
                until,
                answered: None,
            });
        }
    }

    fn requested(&mut self, camera: &CameraId) -> Option<&mut RequestedLooks> {
        let mut cameras = self.cameras.iter_mut();
        let camera = cameras.find(|known| known.id == *camera)?;
        Some(&mut camera.requested)
    }

    /// A look has news: is it the end of one that a command requested? A question that is asked once has looks of its own.
    pub fn on_look(&mut self, news: &LookNews) -> Option<RequestedLookEnd> {
        let is_due = |prompt: &Prompt| prompt.revision != Prompt::ONCE;
        let (frame, is_answered) = match news {
            LookNews::Answer { frame, answer, .. } => {
                let one = self.requested(&frame.camera)?.one.as_mut()?;
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
        let requested = self.requested(&camera)?;
        let one = requested.one.as_mut()?;
        if is_answered {
            one.answered.take_if(|number| *number == frame.number)?;
            requested.one = None;
        }
        Some(RequestedLookEnd {
            camera,
            is_answered,
        })
    }

    /// The cameras that have triggers, with their looks at `now`.
    pub fn looks(&self, now: Mono) -> impl Iterator<Item = (&CameraId, TriggeredLooks)> {
        self.cameras.iter().map(move |camera| {
            let is_active = camera.triggers.iter().any(|trigger| trigger.is_active(now));
            let RequestedLooks { all_until, one } = &camera.requested;
            let looks = if is_active || now < *all_until {
                TriggeredLooks::All
            } else if one.as_ref().is_some_and(|one| now < one.until) {
                TriggeredLooks::One
            } else {
                TriggeredLooks::None
            };
            (&camera.id, looks)
        })
    }

    /// The next time after `now` at which a trigger or requested looks end, if nothing is said before.
    pub fn next_end(&self, now: Mono) -> Option<Mono> {
        let ends = self.cameras.iter().flat_map(|camera| {
            let RequestedLooks { all_until, one } = &camera.requested;
            let triggers = camera.triggers.iter().map(|trigger| trigger.until);
            let one = one.as_ref().map(|one| one.until);
            triggers.chain([*all_until]).chain(one)
        });
        ends.filter(|end| now < *end).min()
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
