//! The model's figures, and hand-made spans of host and device, in microseconds.

use proptest::prelude::*;

use super::*;

const NO_TIMES: StepCost = StepCost {
    forward_ms: 0.0,
    sampling_ms: 0.0,
    bookkeeping_ms: 0.0,
    exposed_ms: 0.0,
    period_ms: 0.0,
};

#[test]
fn the_model_gives_the_published_gain() {
    // B200, 32 streams (architecture.md section 3, item 9): 5.55 ms blocking, 3.80 + 0.14 ms on the device.
    let cost = StepCost {
        forward_ms: 3.80,
        sampling_ms: 0.14,
        bookkeeping_ms: 5.55 - 3.94,
        exposed_ms: 5.55 - 3.94,
        ..NO_TIMES
    };
    assert!((cost.predicted_speedup(1.0 / 110.0) - 1.391).abs() < 0.02);
}

#[test]
fn a_slow_host_bounds_the_pipeline() {
    let cost = StepCost {
        forward_ms: 1.0,
        sampling_ms: 0.5,
        bookkeeping_ms: 4.0,
        ..NO_TIMES
    };
    assert_eq!(cost.pipelined_ms(), 4.5);
}

#[test]
fn overlapped_host_work_blocks_only_beyond_the_forward_pass() {
    let cost = StepCost {
        forward_ms: 1.0,
        sampling_ms: 0.5,
        bookkeeping_ms: 1.25,
        exposed_ms: 0.25,
        ..NO_TIMES
    };
    assert_eq!((cost.blocking_ms(), cost.pipelined_ms()), (1.75, 1.75));
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn at(us: u64) -> Mono {
    Mono::from_nanos(us * 1_000)
}

/// A step on the device: forward pass, wait for masks, sampling.
fn step(started: u64, (forward, mask_wait, sampling): (u64, u64, u64)) -> StepTimes {
    StepTimes {
        started: at(started),
        rows: us(forward),
        mask_wait: us(mask_wait),
        sampling: us(sampling),
        ..StepTimes::default()
    }
}

/// What happened, in the order in which the worker reports it.
enum Reported {
    Host(Host, u64, u64),
    Step(StepTimes, u64),
}

fn costs(reported: impl IntoIterator<Item = Reported>) -> Costs {
    let mut costs = Costs::default();
    for reported in reported {
        match reported {
            Reported::Host(what, began, ended) => {
                let (began, ended) = (at(began), at(ended));
                costs.host(what, TimeSpan { began, ended });
            }
            Reported::Step(times, settled) => costs.step(times, at(settled)),
        }
    }
    costs
}

#[test]
fn a_launch_that_overlaps_half_is_half_exposed() {
    let reported = [
        Reported::Host(Host::Plan, 0, 10),
        Reported::Host(Host::Launch, 10, 30),
        Reported::Host(Host::Wait, 30, 120),
        Reported::Step(step(20, (90, 0, 10)), 120),
    ];
    let costs = costs(reported);
    assert_eq!((costs.bookkeeping, costs.exposed()), (us(30), us(20)));
}

#[test]
fn a_commit_after_the_end_of_the_device_is_exposed() {
    let reported = || {
        [
            Reported::Host(Host::Launch, 0, 20),
            Reported::Host(Host::Wait, 20, 100),
            Reported::Host(Host::Commit, 100, 115),
            Reported::Step(step(0, (90, 0, 10)), 115),
        ]
    };
    // Of a commit that the device has not been heard of since, nothing ran beside it.
    assert_eq!(costs(reported()).exposed(), us(15));
    let next = [
        Reported::Host(Host::Plan, 115, 120),
        Reported::Host(Host::Launch, 120, 140),
        Reported::Host(Host::Commit, 230, 240),
        Reported::Step(step(130, (90, 0, 10)), 240),
    ];
    let both = costs(reported().into_iter().chain(next));
    assert_eq!(both.bookkeeping, us(20 + 15 + 5 + 20 + 10));
    assert_eq!(both.exposed(), us(15 + 5 + 10 + 10));
    assert_eq!(both.idle.host, us(30), "no more than this");
    let per_step = both.per_step();
    assert!((per_step.exposed_ms - 0.020).abs() < 1e-12);
    assert!((per_step.blocking_ms() - 0.120).abs() < 1e-12);
}

#[test]
fn mask_work_is_exposed_only_when_the_device_waits() {
    let reported = [
        Reported::Host(Host::Launch, 0, 10),
        Reported::Host(Host::Finalize, 10, 60),
        Reported::Step(step(10, (30, 20, 10)), 70),
    ];
    let costs = costs(reported);
    assert_eq!((costs.bookkeeping, costs.exposed()), (us(60), us(10 + 20)));
}

#[test]
fn pipelined_host_work_runs_during_the_next_step() {
    let reported = [
        Reported::Host(Host::Launch, 0, 10),
        Reported::Host(Host::Launch, 10, 20),
        Reported::Host(Host::Commit, 100, 115),
        Reported::Step(step(10, (80, 0, 10)), 115),
        Reported::Host(Host::Launch, 115, 130),
        Reported::Host(Host::Commit, 190, 205),
        Reported::Step(step(100, (80, 0, 10)), 205),
        // The third step began with the second one's end.
        Reported::Step(step(190, (80, 0, 10)), 300),
    ];
    assert_eq!(costs(reported).exposed(), us(10), "the first launch alone");
}

#[test]
fn late_step_times_shift_exposed_spans_without_changing_them() {
    let with = |late: u64| {
        costs((0..10).flat_map(|turn| {
            let from = turn * 150;
            let times = step(from + 20 + late, (90, 0, 10));
            [
                Reported::Host(Host::Launch, from, from + 50),
                Reported::Host(Host::Commit, from + 120 + late, from + 150),
                Reported::Step(times, from + 150),
            ]
        }))
    };
    let (exact, late) = (with(0), with(5));
    assert_eq!((exact.exposed(), late.exposed()), (us(500), us(500)));
    assert_eq!((exact.bookkeeping, late.bookkeeping), (us(800), us(750)));
}

/// Steps of the device, each reported `lag` after its end at the earliest, and spans of the host between them.
fn reported(steps: &[StepTimes], spans: &[(u64, u64)], lag: Duration) -> Vec<Reported> {
    let mut steps = steps.iter().peekable();
    let mut reported = Vec::new();
    for &(began, ended) in spans {
        while let Some(times) = steps.next_if(|times| times.ended().after(lag) <= at(began)) {
            reported.push(Reported::Step(*times, began));
        }
        reported.push(Reported::Host(Host::Plan, began, ended));
    }
    reported.extend(steps.map(|times| Reported::Step(*times, u64::MAX >> 16)));
    reported
}

proptest! {
    #[test]
    fn exposed_time_is_host_time_without_device_time(
        steps in prop::collection::vec((0_u64..30, 0_u64..30, 0_u64..20, 0_u64..10), 0..20),
        spans in prop::collection::vec((0_u64..20, 0_u64..40), 0..60),
        lag in 0_u64..100,
    ) {
        let mut free = 0;
        let steps: Vec<StepTimes> = steps.into_iter().map(|(idle, forward, mask_wait, sampling)| {
            let times = step(free + idle, (forward, mask_wait, sampling));
            free += idle + forward + mask_wait + sampling;
            times
        }).collect();
        let mut now = 0;
        let spans: Vec<(u64, u64)> = spans.into_iter().map(|(pause, length)| {
            let began = now + pause;
            now = began + length;
            (began, now)
        }).collect();

        let costs = costs(reported(&steps, &spans, us(lag)));

        let works = |moment: Mono| {
            let mut working = steps.iter().flat_map(working);
            working.any(|span| span.began <= moment && moment < span.ended)
        };
        let exposed = spans.iter().flat_map(|&(began, ended)| began..ended);
        let exposed = exposed.filter(|&moment| !works(at(moment))).count();
        prop_assert_eq!(costs.exposed(), us(exposed as u64));
        prop_assert!(costs.exposed() <= costs.bookkeeping);
    }

    #[test]
    fn host_work_during_device_idle_is_all_exposed(
        turns in prop::collection::vec((0_u64..30, 1_u64..30), 1..20),
    ) {
        let mut now = 0;
        let reported = turns.into_iter().flat_map(|(host, device)| {
            let began = now;
            now += host + device;
            [Reported::Host(Host::Plan, began, began + host), Reported::Step(step(began + host, (device, 0, 0)), now)]
        });
        let costs = costs(reported);
        prop_assert_eq!(costs.exposed(), costs.bookkeeping);
    }
}

#[test]
fn device_with_stopped_clock_does_not_accumulate_spans() {
    let mut costs = Costs::default();
    for i in 0..10_000 {
        let span = TimeSpan {
            began: at(100 + i),
            ended: at(101 + i),
        };
        costs.host(Host::Commit, span);
        costs.step(step(0, (1, 0, 0)), at(101 + i));
    }
    assert_eq!(costs.open.len(), OPEN_MAX);
    assert_eq!(costs.exposed(), us(10_000), "all of it");
}
