//! How long the daemon's loop takes for what woke it. Meanwhile it does nothing else: no answer is handed on, no command executed.

use std::{future::poll_fn, pin::pin, time::Duration};

use spotter_core::Clock;

/// Longer turns are logged: the loop is meant to have at most one in a thousand.
const LONG: Duration = Duration::from_millis(20);

/// Runs a loop, of which each poll is a turn, and logs at its end how many turns were long.
pub async fn timed<F: Future>(clock: &dyn Clock, run: F) -> F::Output {
    let mut run = pin!(run);
    let (mut turns, mut long, mut longest) = (0_u64, 0_u64, Duration::ZERO);
    let output = poll_fn(|context| {
        let began = clock.now();
        let turn = run.as_mut().poll(context);
        let took = clock.now().since(began);
        turns += 1;
        longest = longest.max(took);
        if took > LONG {
            long += 1;
            tracing::debug!(?took, "the daemon's loop was busy for long");
        }
        turn
    })
    .await;
    let long_pct = 100.0 * long as f64 / turns as f64;
    tracing::debug!(turns, long_pct, ?longest, "turns of the daemon's loop");
    output
}
