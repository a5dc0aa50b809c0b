//! A short soak on the CPU: behaviour alone, no times.

use super::*;
use crate::bench::tests::micro_parts;
use spotter_core::ManualClock;

fn soaked(clock: &Arc<dyn Clock>, exact: bool) -> Soaked {
    let (backend, config, tokenizer) = micro_parts(Arc::clone(clock));
    Soaked {
        backend,
        config,
        tokenizer: Some(tokenizer),
        exact,
        device: "cpu".into(),
        model: "micro".into(),
    }
}

/// Time that stands still: what comes together, and so whether pages run short, does not hang on how busy the machine is.
fn still() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

fn run(soaked: Soaked, clock: &Arc<dyn Clock>, looks: u64) -> SoakReport {
    let options = SoakOptions {
        time: Duration::MAX,
        looks,
        seed: 5,
    };
    soak(soaked, &options, clock, || None, |_| {}).unwrap()
}

#[test]
fn whatever_happens_answers_are_those_of_the_request_alone() {
    let clock = still();
    let report = run(soaked(&clock, true), &clock, 110);
    assert_eq!(report.problems(), [""; 0], "{report}");
    let tally = report.tally;
    assert!(tally.asked >= 110 && tally.balanced(), "{tally:?}");
    assert!(tally.answered > 50 && tally.cancelled > 0, "{tally:?}");
    assert_eq!(
        tally.same,
        tally.same + tally.near + tally.close + tally.wrong
    );
    assert!(report.evicted > 0, "the cache was never short: {report}");
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
    fn commit(&mut self, slot: SlotId) -> Result<Committed, BackendError> {
        use spotter_engine::scheduler::backend::Picked;
        let mut committed = self.device.commit(slot)?;
        self.steps += 1;
        if self.steps.is_multiple_of(3) {
            for picked in committed.picked.iter_mut().flatten() {
                if let Picked::Size { width_bin, .. } = picked {
                    *width_bin ^= 1;
                }
            }
        }
        Ok(committed)
    }
}

#[test]
fn an_answer_that_is_another_one_is_found() {
    let clock = still();
    let honest = soaked(&clock, true);
    let liar = Soaked {
        backend: Box::new(Liar {
            device: honest.backend,
            steps: 0,
        }),
        ..honest
    };
    let report = run(liar, &clock, 60);
    assert!(report.tally.wrong > 0, "{report}");
    assert!(report.first_wrong.is_some());
}
