//! Where ranks wait for each other and exchange values.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A rank has ended, so the others would wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another rank of the engine has ended")]
pub struct RankLeft;

impl RankLeft {
    /// True for an error with this one as its cause.
    pub fn is_in(error: &str) -> bool {
        error.contains(&Self.to_string())
    }
}

/// The place of one rank. Dropping it ends the meeting for all.
pub struct Seat<T> {
    rank: usize,
    meeting: Arc<Meeting<T>>,
}

struct Meeting<T> {
    round: Mutex<Round<T>>,
    changed: Condvar,
}

struct Round<T> {
    /// What each rank has brought.
    brought: Vec<Option<T>>,
    /// Ranks that have everything.
    done: usize,
    has_left: bool,
}

impl<T: Clone> Seat<T> {
    /// One for each rank, in their order.
    pub fn all(ranks: usize) -> Vec<Self> {
        let meeting = Arc::new(Meeting {
            round: Mutex::new(Round {
                brought: vec![None; ranks],
                done: 0,
                has_left: false,
            }),
            changed: Condvar::new(),
        });
        let seat = |rank| Self {
            rank,
            meeting: Arc::clone(&meeting),
        };
        (0..ranks).map(seat).collect()
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Brings a value and waits for the others': all of them, in the order of ranks.
    pub fn exchange(&self, value: T) -> Result<Vec<T>, RankLeft> {
        let mut round = self
            .meeting
            .wait(|round| round.brought[self.rank].is_none())?;
        round.brought[self.rank] = Some(value);
        self.meeting.changed.notify_all();
        drop(round);
        let mut round = self
            .meeting
            .wait(|round| round.brought.iter().all(Option::is_some))?;
        let all = round.brought.iter().flatten().cloned().collect();
        round.done += 1;
        if round.done == round.brought.len() {
            round.done = 0;
            round.brought.fill(None);
            self.meeting.changed.notify_all();
        }
        Ok(all)
    }
}

impl<T> Meeting<T> {
    fn lock(&self) -> MutexGuard<'_, Round<T>> {
        // A rank that panicked has left; what it brought is whole.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(
        &self,
        is_ready: impl Fn(&Round<T>) -> bool,
    ) -> Result<MutexGuard<'_, Round<T>>, RankLeft> {
        let mut round = self.lock();
        while !is_ready(&round) {
            if round.has_left {
                return Err(RankLeft);
            }
            round = self
                .changed
                .wait(round)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(round)
    }
}

impl<T> Drop for Seat<T> {
    fn drop(&mut self) {
        self.meeting.lock().has_left = true;
        self.meeting.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn ranks_see_the_values_of_each_round_in_order() {
        thread::scope(|scope| {
            for (rank, seat) in Seat::all(3).into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..100 {
                        let all = seat.exchange((round, rank)).unwrap();
                        assert_eq!(all, [(round, 0), (round, 1), (round, 2)]);
                    }
                });
            }
        });
    }

    #[test]
    fn rank_that_ends_is_not_waited_for() {
        let mut seats = Seat::all(2);
        let other = seats.pop();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || seats.remove(0).exchange(1));
            drop(other);
            assert_eq!(waiting.join().unwrap(), Err(RankLeft));
        });
    }
}
