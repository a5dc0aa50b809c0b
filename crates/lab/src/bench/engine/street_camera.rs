//! The demo's camera as a load: its frames, its prompts, and the loop that keeps its looks in the engine.
//!
//! The street is drawn, passes through H.264 as it does in the demo, and two frames a second of drawn time are looked at. The
//! speed of the engine does not change what it sees: each camera's next frame comes when its last one is answered.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::bench::{
    ask::{MeasureError, answers_of},
    clip::{HEIGHT, WIDTH},
    progress::ProgressLine,
};
use spotter_core::{CameraId, Clock, Look, Mono, Outcome, Picture, Task, WallTime};
use spotter_engine::{
    scheduler::{Options, request::LookId},
    service::{Engine, LookNews},
};
use spotter_street::{
    Street, draw_i420,
    h264::{Encoding, through_h264},
};

/// Builds an engine with these options; returns it with the name of its model, or what is wrong.
pub type EngineBuilder<'a> = dyn FnMut(Options) -> Result<(Engine, String), String> + 'a;

/// The demo's street, stream and rate.
const SEED: u64 = 7;
const FPS: u64 = 15;
const KBIT_PER_S: u32 = 1000;
const LOOKS_PER_S: u64 = 2;
/// Time of the first frame: 2026-01-01 11:00 UTC.
const BEGIN: WallTime = WallTime::from_unix_millis(1_767_265_200_000);

/// How the street moves that the camera shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreetMotion {
    /// The street with its traffic.
    Moving,
    /// The same street standing still. The encoder's pictures of it still differ a little.
    Still,
    /// One picture again and again, to the bit.
    Frozen,
}

impl StreetMotion {
    pub fn name(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Still => "still",
            Self::Frozen => "frozen",
        }
    }

    /// The first `count` frames that are looked at. Blocks.
    pub fn frames(self, count: usize) -> Result<Arc<[Picture]>, MeasureError> {
        match self {
            Self::Moving => filmed(Street::new(SEED), count),
            Self::Still => filmed(Street::still(SEED, BEGIN), count),
            Self::Frozen => filmed(Street::new(SEED), 1)
                .map(|one| one.into_iter().cycle().take(count).collect()),
        }
        .map(Arc::from)
    }
}

/// The first `count` frames of the street that are looked at, as the camera sends them.
fn filmed(street: Street, count: usize) -> Result<Vec<Picture>, MeasureError> {
    let at = |number: u64| number * FPS / LOOKS_PER_S;
    let drawn = (0..=at(count.saturating_sub(1) as u64)).map(move |number| {
        let wall = BEGIN.unix_nanos() + (number * 1_000_000_000 / FPS) as i64;
        draw_i420(&street.at(WallTime::from_unix_nanos(wall)), WIDTH, HEIGHT)
    });
    let encoding = Encoding {
        width: WIDTH as usize,
        height: HEIGHT as usize,
        fps: FPS as u32,
        kbit_per_s: KBIT_PER_S,
    };
    let broken = |source| MeasureError::Codec { seed: SEED, source };
    let mut due = (0..count as u64).map(at).peekable();
    let mut frames = Vec::with_capacity(count);
    for (number, picture) in (0..).zip(through_h264(encoding, drawn).map_err(broken)?) {
        let picture = picture.map_err(broken)?;
        if due.next_if_eq(&number).is_some() {
            frames.push(picture);
        }
    }
    match frames.len() {
        found if found == count => Ok(frames),
        found => Err(MeasureError::FramesLost {
            seed: SEED,
            found,
            sent: count,
        }),
    }
}

/// How the prompts of a frame share looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptGrouping {
    /// All in one look, which shares the picture's prefix.
    Together,
    /// Each in a look of its own.
    Apart,
}

/// A camera with its prompts.
pub(super) struct StreetCamera {
    id: CameraId,
    tasks: Vec<Task>,
    grouping: PromptGrouping,
    frames: Arc<[Picture]>,
    next: usize,
}

impl StreetCamera {
    /// Shows the frames in order, and begins again after the last.
    pub fn new(
        number: usize,
        tasks: Vec<Task>,
        grouping: PromptGrouping,
        frames: Arc<[Picture]>,
    ) -> Result<Self, MeasureError> {
        Ok(Self {
            id: CameraId::new(&format!("street-{number}"))?,
            tasks,
            grouping,
            frames,
            next: 0,
        })
    }

    /// The same camera, with frame `first` as its first one.
    pub fn starting_at(mut self, first: usize) -> Self {
        self.next = first;
        self
    }

    /// The looks at the next frame.
    fn looks(&mut self) -> Result<Vec<Look>, MeasureError> {
        let picture = self.frames[self.next % self.frames.len()].clone();
        self.next += 1;
        let mut look = Look::still(picture, self.tasks.iter().cloned())?;
        look.frame.camera = self.id.clone();
        look.frame.number = self.next as u64;
        let alone = |prompt| Look {
            prompts: vec![prompt],
            ..look.clone()
        };
        Ok(match self.grouping {
            PromptGrouping::Together => vec![look],
            PromptGrouping::Apart => look.prompts.iter().cloned().map(alone).collect(),
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DriveTimes {
    /// From the start of a frame's looks to its last answer, milliseconds.
    pub frame_ms: Vec<f64>,
    pub took: Duration,
}

/// Submits the looks of cameras to an engine and counts their frames.
pub(super) struct StreetDriver<'a> {
    pub clock: &'a dyn Clock,
    pub progress: &'a mut ProgressLine,
}

impl StreetDriver<'_> {
    /// Submits `frames` frames in all, each camera its share. A camera has one frame in the engine at a time, and its next
    /// one is submitted when all prompts on it are answered. Blocks for the whole work.
    pub fn drive(
        &mut self,
        engine: &mut Engine,
        cameras: &mut [StreetCamera],
        frames: usize,
    ) -> Result<DriveTimes, MeasureError> {
        let clock = self.clock;
        let mut times = DriveTimes::default();
        let began = clock.now();
        let count = cameras.len();
        let mut remaining: Vec<usize> = (0..count).map(|i| share(frames, i, count)).collect();
        let mut inside = FramesInEngine::new(count);
        for i in 0..count {
            if remaining[i] > 0 {
                inside.submit(engine, i, &mut cameras[i], clock.now())?;
            }
        }
        while !inside.is_empty() {
            for (id, news) in engine.turn()? {
                let LookNews::Ended(outcome) = news else {
                    continue;
                };
                let Some(i) = inside.end_look(id, outcome)? else {
                    continue;
                };
                let age = clock.now().since(inside.frames[i].began);
                times.frame_ms.push(age.as_secs_f64() * 1e3);
                self.progress.step();
                remaining[i] -= 1;
                if remaining[i] > 0 {
                    inside.submit(engine, i, &mut cameras[i], clock.now())?;
                }
            }
        }
        times.took = clock.now().since(began);
        // The next measurement would count steps that are still in flight.
        while !engine.is_idle() {
            engine.turn()?;
        }
        Ok(times)
    }
}

/// Part `i` of `count` parts of `all`, as equal as possible; the parts add up to `all`.
pub(super) fn share(all: usize, i: usize, count: usize) -> usize {
    all * (i + 1) / count - all * i / count
}

/// A camera's frame in the engine.
#[derive(Clone, Debug, Default)]
struct FrameInEngine {
    began: Mono,
    /// Looks without an answer so far.
    unanswered: usize,
}

/// Of each camera at most one.
struct FramesInEngine {
    /// By camera.
    frames: Vec<FrameInEngine>,
    camera_of_look: HashMap<LookId, usize>,
}

impl FramesInEngine {
    fn new(cameras: usize) -> Self {
        Self {
            frames: vec![FrameInEngine::default(); cameras],
            camera_of_look: HashMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.camera_of_look.is_empty()
    }

    /// Submits the next frame of camera `i`.
    fn submit(
        &mut self,
        engine: &mut Engine,
        i: usize,
        camera: &mut StreetCamera,
        now: Mono,
    ) -> Result<(), MeasureError> {
        let looks = camera.looks()?;
        self.frames[i] = FrameInEngine {
            began: now,
            unanswered: looks.len(),
        };
        for look in looks {
            self.camera_of_look.insert(engine.submit(look, false)?, i);
        }
        Ok(())
    }

    /// The camera whose frame this look completes.
    fn end_look(&mut self, id: LookId, outcome: Outcome) -> Result<Option<usize>, MeasureError> {
        let Some(i) = self.camera_of_look.remove(&id) else {
            return Ok(None);
        };
        answers_of(outcome)?;
        self.frames[i].unanswered -= 1;
        Ok((self.frames[i].unanswered == 0).then_some(i))
    }
}
