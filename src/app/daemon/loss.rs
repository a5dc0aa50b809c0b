//! An engine is lost, and opened again while the others go on.
//!
//! ```text
//!   runs ─┬─ it failed ─────────▶ lost ──10 s──▶ is being opened ─┬─▶ runs
//!    ▲    └─ it stands still ─▶    ▲  then 1, 5, 15 min           │
//!    │                             └──────── it failed ◀──────────┤
//!    └────────────────────────────────────────────────────────────┘
//! ```
//!
//! Its cameras are off meanwhile, and say why. Each of several engines is a process, so another one begins with a fresh driver.
//! The last engine that is lost ends the daemon: it may be a thread of this very process, whose driver is spoilt, and whoever
//! starts us again (systemd) does all of this.

use std::{collections::BTreeMap, future::pending, time::Duration};

use tokio::time::timeout;

use super::{Daemon, LAST_LOOK_LIMIT, Opening, START_LIMIT};
use crate::app::{
    engines::{Opened, Plan},
    seats::Seats,
    station::{Loss, names},
};
use spotter_core::Mono;
use spotter_engine::service::handle::EngineStopped;
use spotter_mqtt::Update;

/// Pauses before the tries; the last one before all that follow. Each try loads a model beside the looks of the others.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(900),
];
/// An engine that ran for so long was good: when it is lost again, that is not for the reason of the last time.
const GOOD_AFTER: Duration = Duration::from_secs(3600);

/// Engines that were lost, by their labels, and when each is to be opened again. Pure: takes `now`.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    tries: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Lost { due: Mono },
    Back { since: Mono },
}

impl Losses {
    /// An engine was lost, or could not be opened again. Returns the pause before the next try.
    fn lose(&mut self, label: &str, now: Mono) -> Duration {
        let tries = match self.0.get(label) {
            Some(Known {
                state: State::Back { since },
                ..
            }) if now.since(*since) >= GOOD_AFTER => 0,
            Some(known) => known.tries,
            None => 0,
        };
        let pause = PAUSES[tries.min(PAUSES.len() - 1)];
        let known = Known {
            tries: tries + 1,
            state: State::Lost {
                due: now.after(pause),
            },
        };
        self.0.insert(label.to_owned(), known);
        pause
    }

    /// It runs again.
    fn regain(&mut self, label: &str, now: Mono) {
        if let Some(known) = self.0.get_mut(label) {
            known.state = State::Back { since: now };
        }
    }

    /// One that is to be opened now.
    fn due(&self, now: Mono) -> Option<&str> {
        let is_due = |known: &Known| matches!(known.state, State::Lost { due } if due <= now);
        let mut due = self.0.iter().filter(|(_, known)| is_due(known));
        due.next().map(|(label, _)| label.as_str())
    }
}

/// A lost engine is being opened.
pub(super) struct Reopening {
    label: String,
    opening: Opening,
}

impl Reopening {
    /// Nobody wants it any more. It has to be open before it can be let go.
    pub(super) async fn give_up(self) {
        if let Ok(Ok(opened)) = timeout(START_LIMIT, self.opening).await {
            opened.let_go().await;
        }
    }
}

/// Ready when the engine is open or cannot be opened; never while none is being opened. Dropping the future loses nothing.
pub(super) async fn ready(reopening: &mut Option<Reopening>) -> anyhow::Result<Opened> {
    match reopening {
        Some(reopening) => (&mut reopening.opening).await,
        None => pending().await,
    }
}

impl Daemon {
    /// An engine has ended, or is waited for no longer. With the last one the daemon ends.
    pub(super) async fn on_lost(&mut self, loss: Loss) -> anyhow::Result<()> {
        let why = format!("engine on {}: {}", loss.label, loss.reason);
        let (label, lost) = (loss.label.clone(), loss.cameras.clone());
        let left = !self.engines.all_lost();
        let sampler = self.engines.sampler();
        loss.settle(sampler, LAST_LOOK_LIMIT).await;
        self.cameras.lose(&lost, &why);
        for (asker, refused) in self.asks.lose(&lost, &why) {
            self.reply(asker, refused);
        }
        anyhow::ensure!(left, "{why}");
        let retry_s = self.losses.lose(&label, self.clock.now()).as_secs();
        let cameras = names(lost.iter());
        tracing::error!(
            cameras,
            retry_s,
            "{why}; these cameras are off until it is opened again, the others go on"
        );
        self.tell_of_gpus();
        Ok(())
    }

    /// Engines that show no progress are lost, as if they had failed.
    pub(super) async fn give_up(&mut self, stuck: Vec<String>) -> anyhow::Result<()> {
        let reason = EngineStopped("the device gives no results any more".into());
        for label in stuck {
            if let Some(loss) = self.engines.give_up(&label, &reason) {
                self.on_lost(loss).await?;
            }
        }
        Ok(())
    }

    /// Begins to open a lost engine whose time has come: one at a time, and none while all are opened for another file.
    pub(super) fn reopen(&mut self) {
        if self.reopening.is_some() || self.swap.is_some() {
            return;
        }
        let Some(label) = self.losses.due(self.clock.now()) else {
            return;
        };
        let Some(device) = self.engines.device(label) else {
            return;
        };
        tracing::info!(device = label, "the lost engine is opened again");
        let seats = self.engines.seats();
        let its = |id| seats.get(id).is_some_and(|seat| seat == label);
        let cameras = self.force.cameras().iter();
        let cameras = cameras.filter(|camera| its(&camera.id)).cloned().collect();
        let plan = Plan {
            config: self.file.with_cameras(cameras),
            before: Seats::new(),
            sampler: self.engines.sampler().clone(),
            clock: self.clock.clone(),
            only: Some(device.clone()),
        };
        self.reopening = Some(Reopening {
            label: label.to_owned(),
            opening: (self.around.engines)(plan),
        });
    }

    /// The engine is open, or cannot be opened.
    pub(super) fn on_reopened(&mut self, opened: anyhow::Result<Opened>) {
        let Some(Reopening { label, .. }) = self.reopening.take() else {
            return;
        };
        let now = self.clock.now();
        match opened {
            Ok(Opened { stations, .. }) => {
                self.losses.regain(&label, now);
                for station in stations {
                    let ids = self.engines.put_back(station);
                    self.cameras.regain(ids);
                    let cameras = names(ids.iter());
                    tracing::info!(device = label, cameras, "the engine is back");
                }
                self.housekeeping.watch(&self.engines);
                self.tell_of_gpus();
            }
            Err(error) => {
                let retry_s = self.losses.lose(&label, now).as_secs();
                tracing::error!(
                    retry_s,
                    "engine on {label}: it cannot be opened again: {error:#}"
                );
            }
        }
    }

    fn tell_of_gpus(&mut self) {
        self.info.gpus = self.engines.gpus();
        self.publisher.publish(Update::Info(self.info.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn tries_grow_rare_and_never_cease() {
        let mut losses = Losses::default();
        assert_eq!(losses.due(at(1_000_000)), None);
        let mut now = 0;
        for pause in [10, 60, 300, 900, 900, 900] {
            assert_eq!(losses.lose("cuda 1", at(now)).as_secs(), pause);
            assert_eq!(losses.due(at(now + pause - 1)), None);
            now += pause;
            assert_eq!(losses.due(at(now)), Some("cuda 1"));
        }
    }

    #[test]
    fn an_engine_that_ran_long_enough_begins_anew_and_one_that_fails_at_once_does_not() {
        let mut losses = Losses::default();
        losses.lose("cuda 1", at(0));
        losses.regain("cuda 1", at(10));
        assert_eq!(losses.due(at(1_000_000)), None, "it runs");
        assert_eq!(losses.lose("cuda 1", at(11)).as_secs(), 60);
        losses.regain("cuda 1", at(71));
        assert_eq!(losses.lose("cuda 1", at(71 + 3600)).as_secs(), 10);
        assert_eq!(
            losses.lose("cuda 0", at(71 + 3600)).as_secs(),
            10,
            "its own"
        );
    }
}
