//! The places in the engine: at most as many looks are inside as there are places, and their number changes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Clones share the places.
#[derive(Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// Places that are taken and are to vanish when they become free.
    excess: Arc<AtomicUsize>,
    count: watch::Sender<usize>,
}

/// A place in the engine; free again when it is dropped.
pub(super) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    excess: Arc<AtomicUsize>,
}

impl Places {
    pub fn new(count: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            excess: Arc::default(),
            count: watch::Sender::new(count),
        }
    }

    /// Waits for a free place.
    pub async fn take(&self) -> Place {
        let permit = match Arc::clone(&self.free).acquire_owned().await {
            Ok(permit) => permit,
            // The semaphore is never closed; if it were, no place would ever come.
            Err(_) => std::future::pending().await,
        };
        Place {
            permit: Some(permit),
            excess: Arc::clone(&self.excess),
        }
    }

    /// Their number, and how it changes.
    pub fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Changes their number; a place that is taken vanishes when it becomes free. Called by one thread.
    pub fn set(&self, to: usize) {
        let from = *self.count.borrow();
        if from == to {
            return;
        }
        self.count.send_replace(to);
        for _ in from..to {
            if !self.take_excess() {
                self.free.add_permits(1);
            }
        }
        let fewer = from.saturating_sub(to);
        let forgotten = self.free.forget_permits(fewer);
        self.excess.fetch_add(fewer - forgotten, Ordering::SeqCst);
    }

    fn take_excess(&self) -> bool {
        take_one(&self.excess)
    }
}

/// Takes one from the count; false when it is zero.
fn take_one(count: &AtomicUsize) -> bool {
    let less = |count: usize| count.checked_sub(1);
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .is_ok()
}

impl Drop for Place {
    fn drop(&mut self) {
        let permit = self.permit.take();
        if take_one(&self.excess)
            && let Some(permit) = permit
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(places: &Places) -> Option<Place> {
        use std::task::{Context, Poll, Waker};
        let mut waiting = std::pin::pin!(places.take());
        match waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Take,
        Free(usize),
        Set(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => Just(Act::Take),
            2 => (0_usize..8).prop_map(Act::Free),
            1 => (0_usize..8).prop_map(Act::Set),
        ]
    }

    proptest! {
        #[test]
        fn taken_places_never_exceed_the_number_at_that_time(acts in prop::collection::vec(act(), 1..80)) {
            let places = Places::new(2);
            let (mut taken, mut count) = (Vec::new(), 2);
            for act in acts {
                match act {
                    Act::Take => {
                        let place = take(&places);
                        prop_assert_eq!(place.is_some(), taken.len() < count);
                        taken.extend(place);
                    }
                    Act::Free(index) if !taken.is_empty() => drop(taken.swap_remove(index % taken.len())),
                    Act::Free(_) => {}
                    Act::Set(to) => {
                        places.set(to);
                        count = to;
                    }
                }
            }
        }
    }
}
