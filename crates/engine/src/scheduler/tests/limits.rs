//! What a device cannot run is not planned; what it does not run fails its look, and a lost device ends the engine.

use std::time::Duration;

use super::{
    equality::{LIMITS, MODEL, Plan, request, worker_on},
    grammar,
};
use crate::{
    model::Skill,
    scheduler::{
        backend::{Backend, BackendError, BackendLimits, DecoderInput},
        draft::DraftKey,
        request::{Ask, LookEvent, LookFault, LookRequest, Options},
        sequence::{Bounds, Sequence},
        worker::Worker,
    },
    sim::{SimBackend, SimCosts, SimModel},
    testing::simulated::{DeviceCall, FaultyDevice},
};
use spotter_core::{
    CameraId, Clock as _, ManualClock, Mono, Picture, Prompt, PromptId, Task, WallTime,
};

/// Those of a GPU with 4 GiB for Moondream 2.
const SMALL_GPU: BackendLimits = BackendLimits {
    slots: 2,
    rows: 8,
    pages: 1100,
    page_tokens: 16,
    context: 2048,
    prefix_positions: 730,
    images: 1,
    positions: 2048,
    tokens: 64,
    picks: 1280,
    ..LIMITS
};

/// A device whose answers have as many objects as they may.
fn endless(limits: BackendLimits) -> (Worker, ManualClock) {
    let clock = ManualClock::at(WallTime::default());
    let model = SimModel {
        objects: u64::MAX,
        ..MODEL
    };
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let device = SimBackend::new(limits, model, costs, clock.clone());
    let options = Options::default();
    let worker = Worker::new(
        Box::new(device),
        MODEL.vocab,
        options,
        std::sync::Arc::new(clock.clone()),
    );
    (worker, clock)
}

fn look(prompts: usize, max_objects: usize) -> LookRequest {
    let camera = CameraId::new("gate").unwrap();
    let ask = |index: usize| {
        let prompt = Prompt::new(
            PromptId::new(&format!("p{index}")).unwrap(),
            1,
            Task::Detect {
                object: "car".into(),
            },
        );
        let bounds = Bounds {
            max_objects,
            max_tokens: 8,
        };
        let inputs = vec![DecoderInput::Token(index as u32); 5];
        Ask {
            sequence: Sequence::new(grammar(Skill::Detect), inputs, bounds),
            draft: Some(DraftKey::new(&camera, &prompt)),
            in_pieces: false,
            has_follow_up: false,
        }
    };
    LookRequest {
        crops: 1,
        view: Default::default(),
        picture: Picture::from_rgb(2, 3, vec![7; 18]).ok(),
        measured: None,
        start_by: Mono::from_nanos(u64::MAX),
        answer_by: Mono::from_nanos(u64::MAX),
        asks: (0..prompts).map(ask).collect(),
        camera: Some(camera),
        adapter: None,
    }
}

/// The answers of a look; panics when it fails.
fn answers(worker: &mut Worker, request: LookRequest) -> usize {
    worker.admit(request);
    let mut answers = 0;
    loop {
        for event in worker.turn().expect("a sound engine") {
            match event {
                LookEvent::Answer { .. } => answers += 1,
                LookEvent::Answered { .. } => return answers,
                LookEvent::Failed { why, .. } => panic!("{why}"),
                _ => {}
            }
        }
    }
}

// Faults: E5.
#[test]
fn drafts_of_many_objects_fit_into_a_small_gpu() {
    for (prompts, objects) in [(8, 54), (8, 60), (1, 427)] {
        let (mut worker, _) = endless(SMALL_GPU);
        for _ in 0..3 {
            assert_eq!(answers(&mut worker, look(prompts, objects)), prompts);
        }
        assert!(worker.work().accepted > 1000, "drafts were verified");
    }
}

fn plan(camera: u8, picture: u8) -> Plan {
    Plan {
        wait: 0,
        camera,
        picture: Some(picture),
        prompts: vec![(0, 3), (4, 2)],
        limits_ms: [None; 2],
        cancel: None,
        adapter: 0,
        follow_up: None,
    }
}

/// Runs looks on a device with this fault at the call of that number. Returns how they ended, or why the engine did.
fn ends(
    call: DeviceCall,
    nth: usize,
    error: BackendError,
) -> Result<Vec<Option<LookFault>>, String> {
    let mut calls = 0;
    let fault = move |of: DeviceCall| {
        calls += usize::from(of == call);
        (of == call && calls == nth).then(|| error.clone())
    };
    let wrap =
        |device| -> Box<dyn Backend> { Box::new(FaultyDevice::new(Box::new(device), fault)) };
    let (mut worker, clock) = worker_on(LIMITS, Options::default(), Duration::ZERO, wrap);
    let mut ends = Vec::new();
    for camera in 0..4 {
        worker.admit(request(&plan(camera, camera), clock.now()));
    }
    while !worker.is_idle() {
        for event in worker.turn().map_err(|error| error.to_string())? {
            match event {
                LookEvent::Answered { .. } => ends.push(None),
                LookEvent::Failed { why, .. } => ends.push(Some(why)),
                _ => {}
            }
        }
    }
    assert_eq!(worker.pages_in_use(), 0);
    assert_eq!(ends.len(), 4, "every look ends once");
    Ok(ends)
}

// Faults: E1.
#[test]
fn step_without_results_fails_its_looks_with_the_reason() {
    for call in [DeviceCall::Launch, DeviceCall::Finalize, DeviceCall::Commit] {
        for nth in 1..4 {
            let error = BackendError::Step("too little memory".into());
            let ends = ends(call, nth, error).unwrap();
            let failed: Vec<_> = ends.iter().flatten().collect();
            assert!(!failed.is_empty(), "{call:?} {nth}: {ends:?}");
            // A step has two images at most.
            let is_first_launch = (call, nth) == (DeviceCall::Launch, 1);
            assert!(!is_first_launch || failed.len() == 2, "{ends:?}");
            let reason = LookFault::Step("too little memory".into());
            assert!(
                failed.iter().all(|why| **why == reason),
                "{call:?} {nth}: {ends:?}"
            );
        }
    }
}

// Faults: E3.
#[test]
fn picture_that_is_refused_fails_its_look_alone() {
    let error = BackendError::Image {
        image: 1,
        reason: "too large".into(),
    };
    let ends = ends(DeviceCall::Launch, 1, error).unwrap();
    let failed: Vec<_> = ends.iter().flatten().collect();
    assert_eq!(failed, [&LookFault::Picture("too large".into())]);
}

// Faults: E4.
#[test]
fn lost_device_ends_the_engine() {
    for call in [DeviceCall::Launch, DeviceCall::Finalize, DeviceCall::Commit] {
        let error = BackendError::Device("it fell off the bus".into());
        assert_eq!(
            ends(call, 2, error).unwrap_err(),
            "device: it fell off the bus"
        );
    }
}

// Faults: E4.
/// Every step without results, but the device answers: it counts as lost, and the engine ends.
#[test]
fn device_that_completes_no_step_is_lost() {
    let fault = |call| match call {
        DeviceCall::Commit => Some(BackendError::Step("no numbers".into())),
        DeviceCall::Launch | DeviceCall::Finalize => None,
    };
    let wrap =
        |device| -> Box<dyn Backend> { Box::new(FaultyDevice::new(Box::new(device), fault)) };
    let (mut worker, clock) = worker_on(LIMITS, Options::default(), Duration::ZERO, wrap);
    let mut failed = 0;
    let error = loop {
        worker.admit(request(&plan(0, 0), clock.now()));
        match worker.turn() {
            Ok(events) => failed += events.len(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(failed > 0, "the looks before failed one by one");
    assert!(
        error.contains("8 steps in a row have no results; the last one: no numbers"),
        "{error}"
    );
}
