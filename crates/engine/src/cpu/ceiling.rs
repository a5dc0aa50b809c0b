//! What the processor reaches in a product that suits it, for benchmarks: no look is faster than its work at this speed.

use super::gemm::PackedLinear;
use spotter_core::Clock;

/// Rows, inputs and outputs of the product: larger than any of the embedded model, small enough for the caches.
const SIDE: usize = 1024;
/// The best of this many counts: other work of the machine only slows it down.
const TRIES: usize = 20;

/// GFLOP/s of a large product on all cores, through the same library as the model's. Blocks for a fraction of a second.
pub fn product_gflop_per_s(clock: &dyn Clock) -> f64 {
    let layer = PackedLinear::new(&vec![0.5; SIDE * SIDE], vec![0.0; SIDE]);
    let rows = vec![0.25; SIDE * SIDE];
    let speed = |_| {
        let began = clock.now();
        std::hint::black_box(layer.forward(std::hint::black_box(&rows)));
        let took = clock.now().since(began);
        2.0 * (SIDE as f64).powi(3) / took.as_secs_f64().max(1e-9) / 1e9
    };
    (0..TRIES).map(speed).fold(0.0, f64::max)
}
