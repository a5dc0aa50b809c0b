//! More than the engine can do: ages stay bounded, losses are counted, and a flood drowns its own camera only.

use std::{collections::HashMap, time::Duration};

use super::{
    BOUNDS,
    equality::{LIMITS, worker},
    grammar,
};
use crate::{
    model::Skill,
    scheduler::{
        backend::{BackendLimits, DecoderInput},
        request::{Ask, LookEvent, LookId, LookRequest, Options},
        sequence::Sequence,
        worker::Worker,
    },
};
use spotter_core::{CameraId, Clock as _, ManualClock, Mono, Picture};

const MS: Duration = Duration::from_millis(1);
const EVER: [Duration; 2] = [Duration::from_secs(1_000_000); 2];

struct Rig {
    worker: Worker,
    clock: ManualClock,
    asked: HashMap<LookId, (u8, Mono)>,
}

/// How a look ended: camera, age of the frame, answered or late.
type End = (u8, Duration, bool);

impl Rig {
    fn new() -> Self {
        let limits = BackendLimits {
            pages: 400,
            rows: 16,
            ..LIMITS
        };
        let options = Options {
            draft: false,
            ..Options::default()
        };
        let (worker, clock) = worker(limits, options, 5 * MS);
        Self {
            worker,
            clock,
            asked: HashMap::new(),
        }
    }

    /// A look at a frame received at `received`, to be started and to be answered so long after.
    fn ask(&mut self, camera: u8, received: Mono, [start, answer]: [Duration; 2]) {
        let bytes = received.as_nanos().to_le_bytes().repeat(3);
        let sequence = Sequence::new(
            grammar(Skill::Detect),
            vec![DecoderInput::Token(7), DecoderInput::Token(9)],
            BOUNDS,
        );
        let id = self.worker.admit(LookRequest {
            crops: 1,
            view: Default::default(),
            camera: CameraId::new(&format!("c{camera}")).ok(),
            picture: Picture::from_rgb(2, 4, bytes).ok(),
            measured: None,
            start_by: received.after(start),
            answer_by: received.after(answer),
            asks: vec![Ask {
                sequence,
                draft: None,
                in_pieces: false,
                has_follow_up: false,
            }],
            adapter: None,
        });
        self.asked.insert(id, (camera, received));
    }

    fn turn(&mut self) -> Vec<End> {
        let events = self.worker.turn().expect("a sound engine");
        let end = |event| {
            let (look, answered) = match event {
                LookEvent::Answer { .. } | LookEvent::ShortAnswered { .. } => return None,
                LookEvent::Answered { look } => (look, true),
                LookEvent::Late { look } => (look, false),
                other => panic!("{other:?}"),
            };
            let (camera, received) = self.asked.remove(&look).expect("asked once");
            Some((camera, self.clock.now().since(received), answered))
        };
        events.into_iter().filter_map(end).collect()
    }

    /// Time of a look alone.
    fn service_time() -> Duration {
        let mut longest = Duration::ZERO;
        for at in 0..40 {
            let mut rig = Self::new();
            rig.clock.advance(at * MS);
            rig.ask(0, rig.clock.now(), EVER);
            while !rig.worker.is_idle() {
                for (_, age, _) in rig.turn() {
                    longest = longest.max(age);
                }
            }
        }
        longest
    }
}

/// The answers of looks that share steps report the time of the device, each its part; rows that ran on for nothing are left out.
#[test]
fn answers_report_what_their_looks_cost() {
    let mut rig = Rig::new();
    for camera in 0..6 {
        rig.clock.advance(MS);
        rig.ask(camera, rig.clock.now(), EVER);
    }
    let mut costs: HashMap<LookId, Duration> = HashMap::new();
    while !rig.worker.is_idle() {
        for event in rig.worker.turn().expect("a sound engine") {
            if let LookEvent::Answer { look, result, .. } = event {
                *costs.entry(look).or_default() += result.marks.device;
            }
        }
    }
    let (sum, busy): (Duration, _) = (costs.values().sum(), rig.worker.work().busy);
    assert!(
        costs.len() == 6 && costs.values().all(|cost| *cost > MS),
        "{costs:?}"
    );
    assert!(
        sum <= busy && sum >= busy.mul_f64(0.8),
        "{sum:?} of {busy:?}"
    );
}

/// Cameras whose newest frame is taken when a permit is free, as the sampler does, at three times what the engine can:
/// a look is begun within a service time or never, and stopped after two.
#[test]
fn triple_load_answers_are_younger_than_two_service_times() {
    const CAMERAS: u8 = 6;
    const PERMITS: usize = 2;
    let service = Rig::service_time();
    let answered_alone = saturated(service, PERMITS);
    // So many looks in a service time that three times the capacity is asked for.
    let every = service * u32::from(CAMERAS) * 100 / (3 * answered_alone) as u32;
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
            rig.ask(camera, at, [service, 2 * service]);
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
        frames > 5 * answered.len() / 2,
        "{} of {frames} frames answered: no overload",
        answered.len()
    );
    let oldest = answered.iter().max().expect("answers");
    assert!(*oldest < 2 * service, "{oldest:?}, service {service:?}");
    // What is dropped is dropped for freshness and not for want of order: the engine answers as many as it ever can.
    assert!(
        answered.len() * 10 > answered_alone * 8,
        "{} of {answered_alone} answered, {late} late",
        answered.len()
    );
}

/// Looks answered in a hundred service times when there is always a fresh one.
fn saturated(service: Duration, permits: usize) -> usize {
    let (mut rig, mut answered) = (Rig::new(), 0);
    while rig.clock.now() < Mono::default().after(100 * service) {
        while rig.asked.len() < permits {
            rig.ask(0, rig.clock.now(), EVER);
        }
        answered += rig.turn().len();
    }
    answered
}

#[test]
fn flood_of_one_camera_costs_others_only_their_share() {
    let service = Rig::service_time();
    let mut rig = Rig::new();
    for _ in 0..60 {
        rig.ask(0, rig.clock.now(), EVER);
    }
    for _ in 0..5 {
        rig.turn();
    }
    rig.ask(1, rig.clock.now(), EVER);
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
fn look_that_would_start_too_late_is_counted_and_dropped() {
    let mut rig = Rig::new();
    let received = rig.clock.now();
    rig.clock.advance(10 * MS);
    rig.ask(0, received, [5 * MS, EVER[1]]);
    assert_eq!(rig.turn(), [(0, 10 * MS, false)]);
    assert_eq!(rig.worker.work().steps, 0);
}

#[test]
fn look_over_its_budget_is_stopped_and_frees_its_pages() {
    let mut rig = Rig::new();
    rig.ask(0, rig.clock.now(), [EVER[0], 12 * MS]);
    let mut ends = Vec::new();
    while ends.is_empty() {
        ends = rig.turn();
    }
    assert!(!ends[0].2 && ends[0].1 > 12 * MS, "{ends:?}");
    assert!(rig.worker.work().steps > 0, "it had begun");
    while !rig.worker.is_idle() {
        assert_eq!(rig.turn(), []);
    }
    assert_eq!(rig.worker.pages_in_use(), 0);
}
