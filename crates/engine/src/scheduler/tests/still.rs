//! Looks of a camera whose picture does not change.

use std::time::Duration;

use super::equality::{LIMITS, Plan, request, worker};
use crate::scheduler::{
    backend::BackendLimits,
    request::{LookEvent, Options, PromptResult, Work},
    still::{CompareBy, ReuseRule},
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
                detail: CompareBy::Bytes,
                max_age: MAX_AGE,
            }),
            ..Options::default()
        };
        let (worker, clock) = worker(limits, options, Duration::ZERO);
        Self { worker, clock }
    }

    /// The answers of a look of one camera, and the work that it took.
    fn look(&mut self, picture: u8, prompts: &[(u8, u8)]) -> (Vec<PromptResult>, Work) {
        let plan = Plan {
            wait: 0,
            camera: 0,
            picture: Some(picture),
            prompts: prompts.to_vec(),
            limits_ms: [None; 2],
            cancel: None,
        };
        let before = self.worker.work();
        self.worker.admit(request(&plan, self.clock.now()));
        let mut answers = None;
        while answers.is_none() {
            for event in self.worker.turn().expect("a sound engine") {
                match event {
                    LookEvent::Answered { findings, .. } => answers = Some(findings),
                    LookEvent::Object(..) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        while !self.worker.is_idle() {
            self.worker.turn().expect("a sound engine");
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
        (answers.unwrap_or_default(), work)
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
fn kept_prefix_gives_way_when_a_look_needs_pages() {
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
