//! A short soak on the CPU: behaviour alone, no times.

use super::*;
use crate::bench::tests::micro_parts;
use spotter_core::ManualClock;
use spotter_engine::scheduler::backend::{
    BackendError, BackendLimits, PickResult, RowMask, SlotId, Step, StepResult,
};

fn subject(clock: &Arc<dyn Clock>, exact: bool) -> SoakSubject {
    let (backend, config, tokenizer) = micro_parts(Arc::clone(clock));
    SoakSubject {
        backend,
        config,
        tokenizer,
        exact,
        device: "cpu".into(),
        model: "micro".into(),
        clock: Arc::clone(clock),
    }
}

/// A clock that does not advance: which looks are inside together does not depend on the speed of the machine.
fn stopped_clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

fn run(subject: SoakSubject, looks: u64) -> SoakReport {
    let options = SoakOptions {
        time: Duration::MAX,
        looks,
        seed: 5,
    };
    soak(subject, &options, |_| {}).unwrap()
}

#[test]
fn answers_under_load_are_those_of_the_request_alone() {
    let clock = stopped_clock();
    let report = run(subject(&clock, true), 110);
    assert_eq!(report.problems(), [""; 0], "{report}");
    let tally = report.tally;
    assert!(tally.asked >= 110 && tally.is_balanced(), "{tally:?}");
    assert!(tally.answered > 50 && tally.cancelled > 0, "{tally:?}");
    assert_eq!(tally.near + tally.close + tally.wrong, 0);
    assert_eq!((report.pages_lost, report.never_ended), (0, 0));
}

/// Changes a bin in every third step.
struct Liar {
    device: Box<dyn Backend>,
    steps: u64,
}

impl Backend for Liar {
    fn limits(&self) -> BackendLimits {
        self.device.limits()
    }
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        self.device.launch(slot, step)
    }
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.finalize(slot, masks)
    }
    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let mut committed = self.device.commit(slot)?;
        self.steps += 1;
        if self.steps.is_multiple_of(3) {
            for picked in committed.picked.iter_mut().flatten() {
                if let PickResult::Size { width_bin, .. } = picked {
                    *width_bin ^= 1;
                }
            }
        }
        Ok(committed)
    }
}

#[test]
fn a_changed_answer_is_found() {
    let clock = stopped_clock();
    let honest = subject(&clock, true);
    let liar = SoakSubject {
        backend: Box::new(Liar {
            device: honest.backend,
            steps: 0,
        }),
        ..honest
    };
    let report = run(liar, 60);
    assert!(report.tally.wrong > 0, "{report}");
    assert!(report.first_wrong.is_some());
}
