//! The structure of the pipeline against published figures: given a device's step costs and nothing else, the engine's
//! periods and gains must be those that were measured and predicted on that device.

use std::time::Duration;

use super::{
    CONFIGURATIONS, PublishedConfiguration, PublishedDevice, ms, request, run, step, worker,
};
use spotter_core::{ManualClock, WallTime};
use spotter_engine::scheduler::cost::Costs;

/// Allowed difference, percent: a published period contains some microseconds of launch that no published cost names.
const POINTS: f64 = 2.0;

#[test]
fn periods_and_gains_match_the_published_ones() {
    for published in CONFIGURATIONS {
        let [block, pipe] = [1, 2].map(|depth| run(&published, depth).expect("a sound device"));
        let near = |what: &str, got: f64, want: f64| {
            let name = format!("{} x {}: {what}", published.device.name, published.streams);
            println!("{name} {got:.2}, published {want:.2}");
            assert!((got - want).abs() <= POINTS, "{name} {got:.2}, {want:.2}");
        };
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        // The simulated host works after the step's end, so none of it overlaps with the device.
        assert_eq!(block.cost.exposed_ms, block.cost.bookkeeping_ms);
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

/// Steady costs of a device and host with these milliseconds, in a run where no stream begins or ends.
fn steady(forward_ms: f64, sampling_ms: f64, bookkeeping_ms: f64) -> Costs {
    const TURNS: usize = 50;
    let configuration = PublishedConfiguration {
        device: PublishedDevice {
            steps: [step(forward_ms, sampling_ms); 3],
            ..CONFIGURATIONS[1].device
        },
        blocking_ms: forward_ms + sampling_ms + bookkeeping_ms,
        ..CONFIGURATIONS[1]
    };
    let clock = ManualClock::at(WallTime::default());
    let mut worker = worker(&configuration, 2, clock);
    for stream in 0..configuration.streams {
        worker.admit(request(stream, 0));
    }
    for turn in 0..2 * TURNS {
        if turn == TURNS {
            worker.reset_costs();
        }
        worker.turn().expect("a sound device");
    }
    worker.costs().clone()
}

#[test]
fn a_slow_host_delays_the_masks_as_the_cost_model_says() {
    for (forward, sampling, bookkeeping) in [(2.0, 0.5, 5.0), (4.0, 0.25, 4.5), (5.0, 0.5, 2.0)] {
        let costs = steady(forward, sampling, bookkeeping);
        let per_step = costs.per_step();
        let late = (bookkeeping - forward).max(0.0);
        assert_eq!(per_step.pipelined_ms(), forward.max(bookkeeping) + sampling);
        assert_eq!(costs.idle.masks, ms(late) * costs.steps as u32);
        assert_eq!(costs.idle.host, Duration::ZERO);
        assert!(
            (per_step.period_ms - per_step.pipelined_ms()).abs() < 1e-9,
            "{per_step:?}"
        );
    }
}
