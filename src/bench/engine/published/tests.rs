//! The structure of the pipeline against published figures: given a device's step costs and nothing else, the engine's
//! periods and gains must be those that were measured and predicted on that device.

use super::{CONFIGURATIONS, run};

/// Of the published figures; a published period holds some microseconds of launch that no published cost names.
const POINTS: f64 = 2.0;

#[test]
fn periods_and_gains_are_the_published_ones() {
    for published in CONFIGURATIONS {
        let [block, pipe] = [1, 2].map(|depth| run(&published, depth).expect("a sound device"));
        let near = |what: &str, got: f64, want: f64| {
            let name = format!("{} x {}: {what}", published.name, published.streams);
            println!("{name} {got:.2}, published {want:.2}");
            assert!((got - want).abs() <= POINTS, "{name} {got:.2}, {want:.2}");
        };
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        near(
            "blocking period, % off",
            percent(block.cost.period_ms / published.blocking_ms),
            0.0,
        );
        near(
            "pipelined period, % off",
            percent(pipe.cost.period_ms / published.pipelined_ms),
            0.0,
        );
        near(
            "steady gain, %",
            percent(pipe.steady_tokens_per_s / block.steady_tokens_per_s),
            published.predicted_gain_percent,
        );
        near(
            "model's gain, %",
            percent(block.cost.predicted_speedup(pipe.zombies)),
            published.predicted_gain_percent,
        );
        let whole = percent(block.whole.as_secs_f64() / pipe.whole.as_secs_f64());
        println!(
            "  whole run {whole:.1}, published {}",
            published.measured_gain_percent
        );
    }
}
