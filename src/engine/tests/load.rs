//! More than the engine can do: ages stay bounded, losses are counted, and a flood drowns its own camera only.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    BOUNDS,
    equality::{LIMITS, MODEL},
    ids,
};
use crate::{
    domain::{CameraId, Clock as _, ManualClock, Mono, Picture, WallTime},
    engine::{
        backend::{Input, Limits},
        request::{Ask, Event, LookId, Options, Request},
        sequence::{Sequence, Skill},
        worker::Worker,
    },
    sim::{SimBackend, SimCosts},
};

const MS: Duration = Duration::from_millis(1);

struct Rig {
    worker: Worker,
    clock: ManualClock,
    asked: HashMap<LookId, (u8, Mono)>,
}

/// How a look ended: camera, age of the frame, answered or late.
type End = (u8, Duration, bool);

impl Rig {
    fn new() -> Self {
        let clock = ManualClock::at(WallTime::default());
        let limits = Limits {
            pages: 400,
            rows: 16,
            ..LIMITS
        };
        let mut costs = SimCosts::constant(4 * MS, MS, 2 * MS);
        costs.crop = 5 * MS;
        let backend = SimBackend::new(limits, MODEL, costs, clock.clone());
        let options = Options {
            tile_reuse: false,
            draft: false,
            ..Options::default()
        };
        let shared = Arc::new(clock.clone());
        Self {
            worker: Worker::new(Box::new(backend), MODEL.vocab, options, shared),
            clock,
            asked: HashMap::new(),
        }
    }

    /// A look at a frame received at `received`.
    fn ask(&mut self, camera: u8, received: Mono, budget: Duration) {
        let bytes = received.as_nanos().to_le_bytes().repeat(3);
        let sequence = Sequence::new(
            Skill::Detect,
            vec![Input::Token(7), Input::Token(9)],
            ids(),
            BOUNDS,
        );
        let id = self.worker.admit(Request {
            camera: CameraId::new(&format!("c{camera}")).ok(),
            picture: Picture::from_rgb(2, 4, bytes).ok(),
            deadline: received.after(budget),
            asks: vec![Ask {
                sequence,
                draft: None,
            }],
            objects: false,
        });
        self.asked.insert(id, (camera, received));
    }

    fn turn(&mut self) -> Vec<End> {
        let events = self.worker.turn().expect("a sound engine");
        let end = |event| {
            let (look, answered) = match event {
                Event::Answered { look, .. } => (look, true),
                Event::Late { look } => (look, false),
                other => panic!("{other:?}"),
            };
            let (camera, received) = self.asked.remove(&look).expect("asked once");
            (camera, self.clock.now().since(received), answered)
        };
        events.into_iter().map(end).collect()
    }

    /// Time of a look alone.
    fn service_time() -> Duration {
        let mut longest = Duration::ZERO;
        for at in 0..40 {
            let mut rig = Self::new();
            rig.clock.advance(at * MS);
            rig.ask(0, rig.clock.now(), Duration::MAX / 4);
            while !rig.worker.is_idle() {
                for (_, age, _) in rig.turn() {
                    longest = longest.max(age);
                }
            }
        }
        longest
    }
}

/// Cameras whose newest frame is taken when a permit is free, as the sampler does, at three times what the engine can.
#[test]
fn at_three_times_the_capacity_answers_are_younger_than_two_service_times() {
    const CAMERAS: u8 = 6;
    const PERMITS: usize = 2;
    let service = Rig::service_time();
    // The engine answers about a look in half a service time, so this is three times too many.
    let every = service * u32::from(CAMERAS) / 6;
    let mut rig = Rig::new();
    let (mut next_frame, mut waiting) = (vec![Mono::default(); CAMERAS as usize], HashMap::new());
    let (mut frames, mut replaced, mut ends) = (0, 0, Vec::new());
    while rig.clock.now() < Mono::default().after(100 * service) {
        for camera in 0..CAMERAS {
            let due = &mut next_frame[camera as usize];
            while *due <= rig.clock.now() {
                frames += 1;
                replaced += usize::from(waiting.insert(camera, *due).is_some());
                *due = due.after(every);
            }
        }
        while rig.asked.len() < PERMITS {
            let oldest = waiting.iter().min_by_key(|(c, at)| (**at, **c));
            let Some((camera, at)) = oldest.map(|(c, at)| (*c, *at)) else {
                break;
            };
            waiting.remove(&camera);
            rig.ask(camera, at, 2 * service);
        }
        match rig.asked.is_empty() {
            true => rig.clock.advance(MS),
            false => ends.extend(rig.turn()),
        }
    }
    let answered: Vec<Duration> = ends.iter().filter(|e| e.2).map(|e| e.1).collect();
    let late = ends.len() - answered.len();
    assert_eq!(
        frames,
        replaced + waiting.len() + rig.asked.len() + late + answered.len()
    );
    assert!(
        replaced > frames / 3,
        "{replaced} of {frames} frames: no overload"
    );
    let mut sorted = answered;
    sorted.sort();
    let oldest = sorted[sorted.len() - 1];
    assert!(
        oldest <= 2 * service + every,
        "{oldest:?}, service {service:?}"
    );
    let median = sorted[sorted.len() / 2];
    assert!(median < 2 * service, "{median:?}, service {service:?}");
}

#[test]
fn a_flood_of_one_camera_costs_another_no_more_than_its_share() {
    let service = Rig::service_time();
    let mut rig = Rig::new();
    for _ in 0..60 {
        rig.ask(0, rig.clock.now(), Duration::MAX / 4);
    }
    for _ in 0..5 {
        rig.turn();
    }
    rig.ask(1, rig.clock.now(), Duration::MAX / 4);
    let mut before = 0;
    loop {
        let ends = rig.turn();
        if let Some((_, age, _)) = ends.iter().find(|end| end.0 == 1) {
            assert!(
                *age < 4 * service,
                "{age:?} beside the flood, {service:?} alone"
            );
            break;
        }
        before += ends.len();
    }
    assert!(before < 20, "{before} looks of the flood went first");
}

#[test]
fn a_look_that_starts_too_late_is_counted_and_not_begun() {
    let mut rig = Rig::new();
    let received = rig.clock.now();
    rig.clock.advance(10 * MS);
    rig.ask(0, received, 5 * MS);
    assert_eq!(rig.turn(), [(0, 10 * MS, false)]);
    assert_eq!(rig.worker.work().steps, 0);
}
