//! Looks that begin when others have ended.

use super::*;
use crate::{
    service::look_limit::LookRule,
    sim::{SimBackend, SimCosts, SimModel},
};

/// A device that encodes one picture a step, for many seconds of its clock, and finds nothing.
fn slow_encoder() -> Engine {
    let clock = ManualClock::default();
    let limits = BackendLimits { slots: 2, ..LIMITS };
    let (model, shared) = (testing::micro_model(), Arc::new(clock.clone()));
    let simulated = SimModel {
        vocab: model.config.text.vocab_size,
        objects: 1,
        crops: 1,
        memory: true,
    };
    let costs = SimCosts {
        crops: Arc::new(|_| Duration::from_secs(40)),
        ..SimCosts::constant(Duration::from_millis(1), Duration::ZERO, Duration::ZERO)
    };
    let backend = SimBackend::new(limits, simulated, costs, clock);
    Engine::new(Box::new(backend), model, BOUNDS, shared)
}

#[tokio::test]
async fn looks_for_free_places_join_the_next_step() {
    let (handle, _end, mut turns) = handle::start_here(slow_encoder(), LookRule::fixed(3));
    let asked = || look(1, Mono::from_nanos(u64::MAX));
    let mut first = handle.permit().await.look(asked());
    let _second = handle.permit().await.look(asked());
    // The second turn waits for the step of the first look, with the second one's behind it.
    turns.turn().expect("a device");
    turns.turn().expect("a device");
    assert!(!first.next().await.is_empty(), "it has ended");
    // One for its place, one for a place that was free before.
    let others = tokio::task::spawn_blocking(move || {
        let next = || tokio::runtime::Handle::current().block_on(handle.permit());
        [(); 2].map(|()| next().look(asked()))
    });
    turns.wait_for_next_looks();
    assert!(!turns.has_free_place());
    turns.turn().expect("a device");
    assert_eq!(turns.engine().worker().work().images, 3);
    drop(others.await.expect("two looks"));
}
