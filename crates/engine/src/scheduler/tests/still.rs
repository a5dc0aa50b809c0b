//! Looks of a camera whose picture does not change.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::equality::{LIMITS, Plan, request, worker};
use crate::scheduler::{
    backend::BackendLimits,
    request::{LookEvent, Options, PromptResult, Work},
    still::{PictureDetail, ReuseRule},
    worker::Worker,
};
use spotter_core::{Clock as _, ManualClock};

const MAX_AGE: Duration = Duration::from_secs(1);

struct StillRig {
    worker: Worker,
    clock: ManualClock,
}

impl StillRig {
    fn new(limits: BackendLimits) -> Self {
        let options = Options {
            reuse: Some(ReuseRule {
                detail: PictureDetail::Bytes,
                max_age: MAX_AGE,
            }),
            ..Options::default()
        };
        let (worker, clock) = worker(limits, options, Duration::ZERO);
        Self { worker, clock }
    }

    /// The answers of a look of one camera, and the work that it took.
    fn look(&mut self, picture: u8, prompts: &[(u8, u8)]) -> (Vec<PromptResult>, Work) {
        self.look_with(0, picture, prompts)
    }

    /// The same with an adapter.
    fn look_with(
        &mut self,
        adapter: u8,
        picture: u8,
        prompts: &[(u8, u8)],
    ) -> (Vec<PromptResult>, Work) {
        let plan = Plan {
            wait: 0,
            camera: 0,
            picture: Some(picture),
            prompts: prompts.to_vec(),
            limits_ms: [None; 2],
            cancel: None,
            adapter,
            follow_up: None,
        };
        let before = self.worker.work();
        self.worker.admit(request(&plan, self.clock.now()));
        let mut answers = BTreeMap::new();
        while !self.worker.is_idle() {
            for event in self.worker.turn().expect("a sound engine") {
                if let LookEvent::Answer { prompt, result, .. } = event {
                    answers.insert(prompt, result);
                }
            }
        }
        let after = self.worker.work();
        let work = Work {
            steps: after.steps - before.steps,
            images: after.images - before.images,
            crops_encoded: after.crops_encoded - before.crops_encoded,
            crops_reused: after.crops_reused - before.crops_reused,
            prefixes_reused: after.prefixes_reused - before.prefixes_reused,
            unchanged: after.unchanged - before.unchanged,
            ..Work::default()
        };
        (answers.into_values().collect(), work)
    }
}

#[test]
fn unchanged_picture_needs_no_image_and_known_prompts_no_step() {
    let mut rig = StillRig::new(LIMITS);
    let (car, dog) = ((0, 3), (2, 5));
    let (first, work) = rig.look(1, &[car]);
    assert_eq!((work.images, work.crops_encoded), (1, 3));
    assert!(!first[0].unchanged);

    let (again, work) = rig.look(1, &[car]);
    assert_eq!((work.steps, work.unchanged), (0, 1));
    assert!(again[0].unchanged && again[0].found == first[0].found);
    let marks = again[0].marks;
    assert_eq!(
        [marks.taken, marks.prefilled, marks.generated],
        [rig.clock.now(); 3]
    );

    // A further prompt runs behind the prefix; the known one has its answer.
    let (both, work) = rig.look(1, &[car, dog]);
    assert_eq!(
        (work.images, work.prefixes_reused, work.unchanged),
        (0, 1, 1)
    );
    assert!(both[0].unchanged && !both[1].unchanged);
    assert_eq!(rig.look(1, &[car, dog]).1.steps, 0);

    // A change in one of three crops.
    let (_, work) = rig.look(2, &[car]);
    assert_eq!(
        (work.images, work.crops_encoded, work.crops_reused),
        (1, 1, 2)
    );
    rig.clock.advance(MAX_AGE);
    let (_, work) = rig.look(2, &[car]);
    assert_eq!((work.images, work.crops_encoded), (1, 3));
    assert_eq!(rig.worker.pages_in_use(), 0);
}

#[test]
fn kept_prefix_yields_its_pages_to_another_look() {
    // Two pages for the image, the rest for one row: too few for a second image beside it.
    let limits = BackendLimits { pages: 9, ..LIMITS };
    let mut rig = StillRig::new(limits);
    rig.look(1, &[(0, 1)]);
    assert_eq!(rig.worker.pages_in_use(), 0);
    let (answers, work) = rig.look(3, &[(0, 9)]);
    assert_eq!((answers.len(), work.images), (1, 1));
    let (_, work) = rig.look(3, &[(1, 9)]);
    assert_eq!(work.images + work.prefixes_reused, 1);
    assert_eq!(rig.worker.pages_in_use(), 0);
}

// Faults: E12.
#[test]
fn adapters_share_features_but_no_prefix_and_no_answer() {
    let mut rig = StillRig::new(LIMITS);
    let (car, dog) = ((0, 3), (2, 5));
    let (plain, work) = rig.look(1, &[car]);
    assert_eq!((work.images, work.crops_encoded), (1, 3));

    let (adapted, work) = rig.look_with(1, 1, &[car]);
    assert!(!adapted[0].unchanged && adapted[0].found != plain[0].found);
    assert_eq!(
        (work.images, work.prefixes_reused),
        (1, 0),
        "its own prefix"
    );
    assert_eq!(
        (work.crops_encoded, work.crops_reused),
        (0, 3),
        "no encoding"
    );

    // Each has its own answer and its own prefix, and neither drove the other's out.
    for (adapter, known) in [(0, &plain), (1, &adapted)] {
        let (again, work) = rig.look_with(adapter, 1, &[car]);
        assert_eq!((work.steps, work.unchanged), (0, 1));
        assert_eq!(again[0].found, known[0].found);
        let (_, work) = rig.look_with(adapter, 1, &[dog]);
        assert_eq!((work.images, work.prefixes_reused), (0, 1));
    }

    // A picture that changes drives out the prefixes and answers of both.
    rig.look_with(1, 2, &[car]);
    let (_, work) = rig.look(2, &[car]);
    assert_eq!((work.images, work.unchanged), (1, 0));
    assert_eq!(rig.worker.pages_in_use(), 0);
}

#[test]
fn adapter_is_released_when_its_last_row_has_left() {
    let mut rig = StillRig::new(LIMITS);
    let plan = Plan {
        wait: 0,
        camera: 0,
        picture: Some(1),
        prompts: vec![(0, 3), (3, 4)],
        limits_ms: [None; 2],
        cancel: None,
        adapter: 1,
        follow_up: None,
    };
    let request = request(&plan, rig.clock.now());
    let adapter = request.adapter.as_ref().map(Arc::downgrade);
    let adapter = adapter.expect("a plan with an adapter");
    rig.worker.admit(request);
    while !rig.worker.is_idle() {
        assert!(adapter.upgrade().is_some(), "rows may still run");
        rig.worker.turn().expect("a sound engine");
    }
    assert!(adapter.upgrade().is_none());
}
