//! What all parts of the daemon have in common, and what they say to each other.
//!
//! ```text
//!   next ──▶ StageNotice ──▶ hear, of every stage in its order ──▶ further notices …
//!                                  └─ when all are heard, and cameras are others ──▶ apply, of every stage
//! ```
//!
//! A stage knows no other stage. It owns its state, says what happened in it, and hears what happened in others.

use std::{collections::VecDeque, future::pending, pin::Pin, sync::Arc};

use super::notice::StageNotice;
use spotter_cameras::sampler::Sampler;
use spotter_config::ConfigChange;
use spotter_control::ConfigStore;
use spotter_core::{Clock, Mono, WallTime};
use spotter_history::History;
use spotter_mqtt::Publisher;
use spotter_page::{Board, Status};
use spotter_state::StateStore;

/// A future that is polled on the daemon's loop.
pub type StageFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What stages share. Clones are the same things.
#[derive(Clone)]
pub struct Handles {
    pub publisher: Publisher,
    pub sampler: Arc<Sampler>,
    pub state: StateStore,
    /// `None`: no events are stored.
    pub history: Option<History>,
    pub board: Board,
    pub clock: Arc<dyn Clock>,
}

/// What a stage may read and change besides its own state.
pub struct StageContext<'a> {
    pub config: &'a mut ConfigStore,
    pub now: Mono,
    pub wall: WallTime,
    /// The figures of this second, while the stages [tick](Stage::tick): each adds its own.
    pub status: Status,
    notices: VecDeque<StageNotice>,
    has_other_cameras: bool,
}

impl<'a> StageContext<'a> {
    pub fn new(config: &'a mut ConfigStore, now: Mono, wall: WallTime) -> Self {
        Self {
            config,
            now,
            wall,
            status: Status::default(),
            notices: VecDeque::new(),
            has_other_cameras: false,
        }
    }

    /// All stages hear it when those before are heard.
    pub fn say(&mut self, notice: StageNotice) {
        self.notices.push_back(notice);
    }

    pub fn say_all(&mut self, notices: impl IntoIterator<Item = StageNotice>) {
        self.notices.extend(notices);
    }

    /// The cameras or their settings may be others: all stages [apply](Stage::apply) them when all notices are heard.
    pub fn cameras_changed(&mut self) {
        self.has_other_cameras = true;
    }

    /// What is said and not heard yet.
    pub fn next_notice(&mut self) -> Option<StageNotice> {
        self.notices.pop_front()
    }

    /// Whether cameras or settings may be others since the last call.
    pub fn take_cameras_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_other_cameras)
    }
}

/// A part of the daemon. No method but the futures waits for anything.
pub trait Stage {
    /// What the stage says next to the others. Dropping the future loses nothing.
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(pending())
    }

    fn hear(&mut self, _notice: &mut StageNotice, _context: &mut StageContext<'_>) {}

    /// Cameras or their settings are others; `change` may be empty. Stages that take frames come before those that deliver answers.
    fn apply(&mut self, _change: &ConfigChange, _context: &mut StageContext<'_>) {}

    /// Once a second.
    fn tick(&mut self, _context: &mut StageContext<'_>) {}

    /// The operator asks to stop. True: the stage finishes something first and then says [`StageNotice::End`].
    fn leave(&mut self, _now: Mono) -> bool {
        false
    }

    /// Takes nothing more, and hands on what it has. One stage after the other.
    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async { Vec::new() })
    }

    /// Frees what it holds. All stages at the same time. After it, another run begins in this process, or the process ends.
    fn close(&mut self, _is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async { Vec::new() })
    }
}
