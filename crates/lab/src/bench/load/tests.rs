//! Every part with the smallest golden model: requests, answers and counters, but no times.

use std::{sync::Arc, time::Duration};

use clap::Parser as _;

use super::{
    Ceiling, Load, LoadReport, LoadSubject, MachineCeilings,
    closed::{Clients, closed_loop},
    frames::noise,
    looks::tasks,
};
use crate::{
    args::{LabArguments, LabCommand},
    bench::tests::{micro_endless_engine, micro_engine},
};
use spotter_core::{Clock, Look, SystemClock};
use spotter_engine::{
    network::format::Number,
    scheduler::{Options, sequence::Bounds},
    service::Engine,
};

const SIZES: [(usize, usize); 2] = [(84, 84), (160, 120)];

fn engine() -> (Engine, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    (micro_endless_engine(&clock), clock)
}

fn ceiling(per_s: f64) -> Option<Ceiling> {
    Some(Ceiling {
        per_s,
        strain: None,
    })
}

fn measure(part: &str) -> LoadReport {
    let (mut engine, clock) = engine();
    let sizes = ["--size=84x84,160x120", "--clients=1,3", "--objects=1,5"];
    let command = ["spotter-lab", "load", "--part", part]
        .into_iter()
        .chain(sizes);
    let LabCommand::Load(args) = LabArguments::parse_from(command).command else {
        panic!("another command")
    };
    let load = Load {
        engine: &mut engine,
        experts: Number::E4m3,
        clock: clock.as_ref(),
        gauge: None,
        ceilings: MachineCeilings {
            product_tflop: ceiling(0.5),
            fp8_tflop: None,
            copy_gb: ceiling(20.0),
        },
        subject: LoadSubject {
            model: "micro".into(),
            device: "cpu, f32".into(),
            permits: 2,
        },
        args: &args,
        load: Duration::ZERO,
    };
    load.run().expect("a report")
}

#[test]
fn each_request_is_answered_or_cancelled_with_all_objects() {
    let (mut engine, clock) = engine();
    for (objects, clients) in [(1, 1), (4, 3)] {
        let bounds = Bounds {
            max_objects: objects,
            max_tokens: 1,
        };
        engine.restart(bounds, Options::default());
        let frames = noise(SIZES[0].0, SIZES[0].1).expect("frames");
        let mut submitted = 0;
        let mut next = |_| {
            submitted += 1;
            let frame = frames[submitted % frames.len()].clone();
            Ok(Look::still(frame, tasks(2)))
        };
        let clients = Clients {
            count: clients,
            next: &mut next,
            objects,
        };
        let count = clients.count;
        let window = closed_loop(&mut engine, clients, Duration::ZERO, clock.as_ref());
        let window = window.expect("answers");
        let counters = window.counters;
        assert_eq!(counters.asked, submitted);
        assert_eq!(counters.asked, counters.answered + counters.left);
        assert_eq!(counters.left, count, "every client submits again");
        assert!(window.request_ms.len() >= count);
        let found = window.work[1].objects;
        assert!(found >= (counters.answered * 2 * objects) as u64);
        assert!(window.steps.len() as u64 >= window.count(|work| work.steps));
        assert!(engine.is_idle());
    }
}

/// The work of a model that ends its answers by itself is not that of the table.
#[test]
fn a_model_that_ends_its_answers_is_rejected() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut engine = micro_engine(&clock);
    let frames = noise(SIZES[0].0, SIZES[0].1).expect("frames");
    let mut next = |_| Ok(Look::still(frames[0].clone(), tasks(1)));
    let clients = Clients {
        count: 1,
        next: &mut next,
        // The engine's own bound is 2.
        objects: 3,
    };
    let rejected = closed_loop(&mut engine, clients, Duration::ZERO, clock.as_ref());
    let error = rejected.expect_err("too few objects").to_string();
    assert!(error.contains("must have 3"), "{error}");
}

#[test]
fn looks_by_size_objects_and_clients() {
    let report = measure("looks");
    let rows = report.looks.iter();
    let kinds = rows.map(|row| (row.case.size, row.case.objects, row.case.clients));
    let of_size = |size| [(size, 1, 1), (size, 1, 3), (size, 5, 1), (size, 5, 3)];
    assert_eq!(kinds.collect::<Vec<_>>(), SIZES.map(of_size).concat());
    for row in &report.looks {
        assert!(row.requests >= row.case.clients.max(4));
        assert!(row.counters.answered >= row.requests + row.case.clients);
        let counters = row.counters;
        assert_eq!(counters.asked, counters.answered + counters.left);
        // A single request has a step for its prompt and one for each further decision.
        if row.case.clients == 1 {
            assert!(row.steps_per_request >= (3 * row.case.objects) as f64 - 1e-9);
        }
        let (floor, alone) = (row.floor_ms.unwrap(), row.floor_alone_ms.unwrap());
        assert!((floor - row.gflop / 0.5).abs() < 1e-9 && alone > 0.0);
        assert!(row.busy_percent > 0.0 && row.busy_percent <= 100.0 + 1e-9);
        assert_eq!((row.floor_fp8_ms, row.joules), (None, None));
    }
    let gflop = |row: usize| report.looks[row].gflop;
    assert!(gflop(2) > gflop(0), "more objects");
    assert!(gflop(4) > gflop(0), "more crops");
    assert_eq!(report.to_string().matches("160x120").count(), 4);
}

#[test]
fn prompts_share_a_frame() {
    let report = measure("prompts");
    let prompts: Vec<usize> = report
        .prompts
        .iter()
        .map(|row| row.load.case.prompts)
        .collect();
    assert_eq!(prompts, [1, 2, 4, 8]);
    assert_eq!(report.prompts[0].ratio, 1.0);
    let gflop = |i: usize| report.prompts[i].load.gflop;
    assert!(gflop(3) < 8.0 * gflop(0), "the picture is encoded once");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["prompts"][3]["prompts"], 8);
    assert!(json["prompts"][3]["ratio"].is_number() && json.get("looks").is_none());
    for field in ["cpu", "spotter", "commit"] {
        assert!(json["machine"].get(field).is_some(), "{field}");
    }
    assert_eq!(json["ceilings"]["copy_gb"]["per_s"], 20.0);
}
