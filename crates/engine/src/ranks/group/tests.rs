use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::*;
use crate::{
    ranks::Seat,
    scheduler::backend::{DecoderInput, Feed, KvTable, Pick, Row},
    sim::{SimBackend, SimCosts, SimModel},
    testing::simulated::{DeviceCall, FaultyDevice},
};
use spotter_core::ManualClock;

const LIMITS: BackendLimits = BackendLimits {
    slots: 2,
    rows: 2,
    pages: 4,
    page_tokens: 4,
    context: 8,
    prefix_positions: 1,
    images: 1,
    positions: 8,
    tokens: 4,
    picks: 4,
    picture_pixels: usize::MAX,
    kept_crops: 0,
    adapters: 0,
};

/// A device whose x decisions are all the end (1), or none is.
fn simulated(objects: u64) -> Box<dyn Backend> {
    let model = SimModel {
        vocab: 24,
        objects,
        crops: 1,
        memory: true,
    };
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let clock = ManualClock::default();
    Box::new(SimBackend::new(LIMITS, model, costs, clock))
}

/// What goes wrong in a rank.
#[derive(Clone, Debug)]
enum Fault {
    Error(DeviceCall, BackendError),
    Panic(DeviceCall),
    OtherDecisions,
}

/// A rank with these faults in its first step.
fn rank(fault: Option<Fault>) -> Box<dyn Backend> {
    let device = simulated(match fault {
        Some(Fault::OtherDecisions) => 1,
        _ => u64::MAX,
    });
    let mut fault = fault.clone();
    let script = move |call| match fault.take_if(|fault| match fault {
        Fault::Error(wanted, _) | Fault::Panic(wanted) => *wanted == call,
        Fault::OtherDecisions => false,
    }) {
        Some(Fault::Error(_, error)) => Some(error),
        Some(Fault::Panic(_)) => panic!("as the test wants"),
        _ => None,
    };
    Box::new(FaultyDevice::new(device, script))
}

/// Ranks with these faults.
fn group(faults: &[Option<Fault>]) -> RankGroup {
    let mut builds: Vec<RankBuild> = Vec::new();
    for fault in &faults[1..] {
        let fault = fault.clone();
        builds.push(Box::new(|| Ok(rank(fault))));
    }
    let leader = faults[0].clone();
    RankGroup::build(|| Ok(rank(leader)), builds).unwrap()
}

/// Two tokens, and what comes after the second one.
fn step() -> Step {
    let row = Row {
        inputs: Feed::Host(vec![DecoderInput::Token(3), DecoderInput::Token(4)]),
        position: 0,
        kv: KvTable {
            own: vec![PageId(0)],
            ..KvTable::default()
        },
        picks: vec![Pick::CoordOrEnd],
        adapter: None,
    };
    Step {
        images: Vec::new(),
        rows: vec![row],
    }
}

/// Launches and commits a step.
fn run(group: &mut RankGroup) -> Result<StepResult, BackendError> {
    group.release(&[PageId(0)]);
    group.launch(SlotId(0), step())?;
    group.commit(SlotId(0))
}

fn device_error(result: Result<StepResult, BackendError>) -> String {
    match result {
        Err(BackendError::Device(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn group_returns_what_one_rank_returns() {
    let mut alone = simulated(u64::MAX);
    alone.launch(SlotId(0), step()).unwrap();
    let expected = alone.commit(SlotId(0)).unwrap();
    for ranks in [2, 4] {
        let mut group = group(&vec![None; ranks]);
        assert_eq!(group.limits(), LIMITS);
        for _ in 0..3 {
            assert_eq!(run(&mut group), Ok(expected.clone()));
        }
    }
}

#[test]
fn refusal_of_all_ranks_is_that_of_the_group() {
    let reason = || "the driver refused".to_owned();
    let image = BackendError::Image {
        image: 0,
        reason: reason(),
    };
    for (call, error) in [
        (DeviceCall::Launch, image),
        (DeviceCall::Launch, BackendError::Step(reason())),
        (DeviceCall::Commit, BackendError::Step(reason())),
    ] {
        let fault = Some(Fault::Error(call, error.clone()));
        let mut group = group(&vec![fault; 3]);
        assert_eq!(run(&mut group), Err(error));
        assert!(run(&mut group).is_ok(), "it goes on");
    }
}

// Faults: D13.
#[test]
fn rank_that_fails_alone_is_the_end_of_the_group() {
    use DeviceCall::{Commit, Launch};
    let image = |image| BackendError::Image {
        image,
        reason: "it is too long".into(),
    };
    let refused = || BackendError::Step("the driver refused".into());
    let lost = || BackendError::Device("it fell off the bus".into());
    let error = |call, error| Some(Fault::Error(call, error));
    let other = "rank 1 of 2 ";
    for (faults, expected) in [
        (
            [None, error(Launch, lost())],
            "rank 1 of 2 is lost: it fell off the bus",
        ),
        (
            [None, error(Commit, lost())],
            "rank 1 of 2 is lost: it fell off the bus",
        ),
        ([error(Launch, lost()), None], "it fell off the bus"),
        ([error(Commit, lost()), None], "it fell off the bus"),
        (
            [None, error(Launch, refused())],
            "rank 1 of 2 refused (the driver refused) a step that rank 0 ran",
        ),
        (
            [None, error(Commit, refused())],
            "rank 1 of 2 refused (the driver refused) a step that rank 0 ran",
        ),
        ([None, Some(Fault::Panic(Launch))], "rank 1 of 2 panicked"),
        ([None, Some(Fault::Panic(Commit))], "rank 1 of 2 panicked"),
        ([None, Some(Fault::OtherDecisions)], "rank 1 of 2 decided "),
    ] {
        let reason = device_error(run(&mut group(&faults)));
        assert!(reason.starts_with(expected), "{faults:?}: {reason}");
    }
    // What the leader refuses is known at once, and what the others did when their replies are there, with the next step at the latest.
    for faults in [
        [error(Launch, image(0)), None],
        [error(Launch, image(0)), error(Launch, image(1))],
    ] {
        let mut group = group(&faults);
        let mut failed = run(&mut group);
        if failed == Err(image(0)) {
            failed = run(&mut group);
        }
        let reason = device_error(failed);
        assert!(reason.starts_with(other), "{faults:?}: {reason}");
    }
}

/// Ranks that `build` makes of a seat.
fn built(
    ranks: usize,
    build: impl Fn(usize, Seat<usize>) -> BuiltRank + Clone + Send + 'static,
) -> Result<RankGroup, String> {
    let seats = Seat::all(ranks).into_iter().enumerate();
    let builds = seats.map(|(rank, seat)| {
        let build = build.clone();
        Box::new(move || build(rank, seat)) as RankBuild
    });
    let mut builds = Vec::from_iter(builds);
    let leader = builds.remove(0);
    RankGroup::build(leader, builds)
}

#[test]
fn group_names_the_rank_that_others_wait_for() {
    for failing in 0..3 {
        let group = built(3, move |rank, seat| {
            let lost = |reason: String| Some(BackendError::Device(reason));
            let script = move |call| match call {
                DeviceCall::Commit if rank == failing => lost("it fell off the bus".into()),
                DeviceCall::Commit => lost(seat.exchange(0).err()?.to_string()),
                _ => None,
            };
            Ok(Box::new(FaultyDevice::new(simulated(1), script)))
        });
        let reason = device_error(run(&mut group.unwrap()));
        assert!(reason.ends_with("it fell off the bus"), "{reason}");
    }
}

#[test]
fn rank_that_is_not_built_ends_the_builds_of_others() {
    let error_of = |failing| {
        let group = built(3, move |rank, seat| {
            if rank == failing {
                return Err(format!("GPU {rank} has no room"));
            }
            let met = seat.exchange(0);
            met.map_err(|left| format!("GPU {rank}: {left}"))?;
            Ok(simulated(1))
        });
        group.err()
    };
    for failing in 0..3 {
        assert_eq!(
            error_of(failing),
            Some(format!("GPU {failing} has no room"))
        );
    }
    assert_eq!(error_of(3), None);
}

#[test]
fn panic_in_a_build_is_an_error() {
    let others: Vec<RankBuild> = vec![Box::new(|| panic!("as the test wants"))];
    let error = RankGroup::build(|| Ok(simulated(1)), others).err().unwrap();
    assert!(error.starts_with("rank 1 of 2 panicked"), "{error}");
}

/// Waits for the other ranks when its rank ends.
struct WaitForOthers(Seat<usize>, Arc<AtomicUsize>);

impl Drop for WaitForOthers {
    fn drop(&mut self) {
        self.0.exchange(0).unwrap();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn ranks_may_wait_for_each_other_when_they_end() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let group = built(3, move |_, seat| {
        let wait = WaitForOthers(seat, Arc::clone(&count));
        let script = move |_| {
            let _held = &wait;
            None
        };
        Ok(Box::new(FaultyDevice::new(simulated(1), script)))
    });
    drop(group.unwrap());
    assert_eq!(
        ended.load(Ordering::Relaxed),
        3,
        "all threads are waited for"
    );
}
