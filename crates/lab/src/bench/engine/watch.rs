//! The demo's camera as a load: its frames, its prompts, and the loop that keeps its looks in the engine.
//!
//! The street is drawn, passes through H.264 as it does in the demo, and is looked at twice a second of drawn time. How fast
//! the engine is does not matter to what it sees: each camera's next frame comes when its last one is answered.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::bench::{
    ask::MeasureError,
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

/// Makes an engine that works as the options say; returns it with the name of its model, or what is wrong.
pub type Build<'a> = dyn FnMut(Options) -> Result<(Engine, String), String> + 'a;

/// The demo's street, stream and rate.
const SEED: u64 = 7;
const FPS: u64 = 15;
const KBIT_PER_S: u32 = 1000;
const LOOKS_PER_S: u64 = 2;
/// When the camera begins to look: 2026-01-01 11:00 UTC.
const BEGIN: WallTime = WallTime::from_unix_millis(1_767_265_200_000);

/// What the camera shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedLook {
    /// The street with its traffic.
    Moving,
    /// The same street standing still. The encoder's pictures of it still differ a little.
    Still,
    /// One picture again and again, to the bit.
    Frozen,
}

impl WatchedLook {
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

/// How the prompts of a frame are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// In one look, which shares the picture's prefix.
    Together,
    /// Each in a look of its own.
    Apart,
}

/// A camera with its prompts.
pub(super) struct StreetWatch {
    camera: CameraId,
    tasks: Vec<Task>,
    asking: Asking,
    frames: Arc<[Picture]>,
    next: usize,
}

impl StreetWatch {
    /// Camera `number` begins with frame `first`, and with the first frame again after the last.
    pub fn new(
        (number, first): (usize, usize),
        (tasks, asking): (Vec<Task>, Asking),
        frames: Arc<[Picture]>,
    ) -> Result<Self, MeasureError> {
        Ok(Self {
            camera: CameraId::new(&format!("street-{number}"))?,
            tasks,
            asking,
            frames,
            next: first,
        })
    }

    /// The looks at the next frame.
    fn looks(&mut self) -> Result<Vec<Look>, MeasureError> {
        let picture = self.frames[self.next % self.frames.len()].clone();
        self.next += 1;
        let mut look = Look::still(picture, self.tasks.iter().cloned())?;
        look.frame.camera = self.camera.clone();
        look.frame.number = self.next as u64;
        let alone = |prompt| Look {
            prompts: vec![prompt],
            ..look.clone()
        };
        Ok(match self.asking {
            Asking::Together => vec![look],
            Asking::Apart => look.prompts.iter().cloned().map(alone).collect(),
        })
    }
}

/// What [`drive`] measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Driven {
    /// From a frame's coming to its last answer, milliseconds.
    pub frame_ms: Vec<f64>,
    /// All frames.
    pub took: Duration,
}

/// Shows the engine `frames` frames in all, each camera its share. A camera has one frame in the engine at a time, and its
/// next comes as soon as all prompts on it are answered. Blocks for the whole work.
pub(super) fn drive(
    engine: &mut Engine,
    cameras: &mut [StreetWatch],
    frames: usize,
    (clock, progress): (&dyn Clock, &mut ProgressLine),
) -> Result<Driven, MeasureError> {
    let mut driven = Driven::default();
    let began = clock.now();
    let count = cameras.len();
    let mut coming: Vec<usize> = (0..count).map(|i| share(frames, i, count)).collect();
    let mut open: Vec<OpenLook> = vec![OpenLook::default(); count];
    let mut of_look: HashMap<LookId, usize> = HashMap::new();
    for i in 0..count {
        if coming[i] > 0 {
            open[i] = OpenLook::begin(engine, &mut cameras[i], (i, &mut of_look), clock)?;
        }
    }
    while !of_look.is_empty() {
        for (id, news) in engine.turn()? {
            let LookNews::Ended(outcome) = news else {
                continue;
            };
            let Some(i) = of_look.remove(&id) else {
                continue;
            };
            answered(outcome)?;
            open[i].looks -= 1;
            if open[i].looks > 0 {
                continue;
            }
            let age = clock.now().since(open[i].began);
            driven.frame_ms.push(age.as_secs_f64() * 1e3);
            progress.step();
            coming[i] -= 1;
            if coming[i] > 0 {
                open[i] = OpenLook::begin(engine, &mut cameras[i], (i, &mut of_look), clock)?;
            }
        }
    }
    driven.took = clock.now().since(began);
    // Steps that run for nobody would be settled in the next measurement.
    while !engine.is_idle() {
        engine.turn()?;
    }
    Ok(driven)
}

/// EnginePart `i` of `count` parts of `all`, as equal as can be; the parts add up.
pub(super) fn share(all: usize, i: usize, count: usize) -> usize {
    all * (i + 1) / count - all * i / count
}

/// A camera's frame in the engine.
#[derive(Clone, Debug, Default)]
struct OpenLook {
    began: Mono,
    /// Not yet answered.
    looks: usize,
}

impl OpenLook {
    fn begin(
        engine: &mut Engine,
        camera: &mut StreetWatch,
        (i, of_look): (usize, &mut HashMap<LookId, usize>),
        clock: &dyn Clock,
    ) -> Result<Self, MeasureError> {
        let began = clock.now();
        let looks = camera.looks()?;
        let open = Self {
            began,
            looks: looks.len(),
        };
        for look in looks {
            of_look.insert(engine.submit(look, false)?, i);
        }
        Ok(open)
    }
}

fn answered(outcome: Outcome) -> Result<(), MeasureError> {
    match outcome {
        Outcome::Answered { .. } => Ok(()),
        Outcome::Late(_) => Err(MeasureError::Unanswered("the look came too late".into())),
        Outcome::Failed(_, reason) => Err(MeasureError::Unanswered(reason)),
    }
}
