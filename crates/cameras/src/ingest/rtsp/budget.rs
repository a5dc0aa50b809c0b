//! How often a camera is connected to, however it answers. Pure.

use std::{collections::VecDeque, time::Duration};

use crate::push_bounded;
use spotter_core::Mono;

/// No two connections are closer than this.
const SPACING: Duration = Duration::from_secs(1);
/// At most [`BURST`] connections are made in this time: four seconds, and what a network or a busy machine may hold one up.
const BURST_TIME: Duration = Duration::from_millis(4500);
const BURST: usize = 4;
/// One connection in this time on average, which is ten a minute.
const AVERAGE: Duration = Duration::from_secs(6);
/// Connections that may be made sooner than the average, after a time with fewer.
const CREDIT: u32 = 10;

/// The connections to one camera, over all its sessions.
#[derive(Clone, Debug, Default)]
pub struct ConnectionBudget {
    latest: VecDeque<Mono>,
    /// When all credit is there again.
    settled: Mono,
}

impl ConnectionBudget {
    /// Counts a connection that is made now. `Err` with the time until it may be made.
    pub fn connect(&mut self, now: Mono) -> Result<(), Duration> {
        let spaced = self.latest.back().map(|last| last.after(SPACING));
        let burst = match self.latest.len() < BURST {
            true => None,
            false => self.latest.front().map(|first| first.after(BURST_TIME)),
        };
        // With credit for one more, the time at which all is there again is at most that of the rest away.
        let debt = self.settled.since(now);
        let average = debt.saturating_sub(AVERAGE * (CREDIT - 1));
        let due = [spaced, burst, Some(now.after(average))];
        let due = due.into_iter().flatten().max().unwrap_or(now);
        if due > now {
            return Err(due.since(now));
        }
        push_bounded(&mut self.latest, now, BURST);
        self.settled = self.settled.max(now).after(AVERAGE);
        Ok(())
    }

    /// An operator asks for connections: the average begins again, the distance of two connections stays.
    pub fn begin_again(&mut self) {
        self.settled = Mono::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The times of connections by a client that wants one more after each of these pauses.
    fn made(pauses_ms: &[u64]) -> Vec<Duration> {
        let (mut budget, mut now) = (ConnectionBudget::default(), Mono::default());
        let mut times = Vec::new();
        for pause_ms in pauses_ms {
            now = now.after(Duration::from_millis(*pause_ms));
            while let Err(wait) = budget.connect(now) {
                assert!(wait <= AVERAGE, "{wait:?}");
                now = now.after(wait);
            }
            times.push(now.since(Mono::default()));
        }
        times
    }

    #[test]
    fn eager_client_gets_one_connection_in_six_seconds() {
        let times = made(&[0; 40]);
        assert_eq!(times[..4], [0, 1, 2, 3].map(Duration::from_secs));
        let late: Vec<Duration> = times[20..]
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        assert_eq!(late, [AVERAGE; 19]);
    }

    #[test]
    fn operator_begins_the_average_again_and_not_the_spacing() {
        let (mut budget, mut now) = (ConnectionBudget::default(), Mono::default());
        for _ in 0..40 {
            budget.begin_again();
            let wait = budget.connect(now).err().unwrap_or_default();
            assert!(wait <= BURST_TIME);
            now = now.after(wait.max(Duration::from_millis(1)));
        }
    }

    proptest! {
        // Faults: C9.
        #[test]
        fn no_client_exceeds_the_bounds(pauses_ms in proptest::collection::vec(0u64..20_000, 1..80)) {
            let times = made(&pauses_ms);
            for (first, start) in times.iter().enumerate() {
                let within = |limit: Duration| times[first..].iter().filter(|time| **time - *start <= limit).count();
                prop_assert!(within(Duration::from_secs(4)) <= BURST);
                for minutes in 1..5 {
                    let most = CREDIT as usize + 1 + 10 * minutes;
                    prop_assert!(within(Duration::from_secs(60 * minutes as u64)) <= most);
                }
            }
        }
    }
}
