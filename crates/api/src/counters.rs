//! What became of the requests since the start.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
};

use spotter_core::{Clock, Mono};
use spotter_page::{ApiLine, RequestTotals};

/// The status that is counted when the client disconnects before its answer; as in nginx.
const CLIENT_GONE: u16 = 499;

/// Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct ApiCounters(Arc<Mutex<ApiCounts>>);

#[derive(Debug, Default)]
struct ApiCounts {
    open: u64,
    totals: BTreeMap<(&'static str, u16), RequestTotals>,
}

/// A request in progress; it is counted when it is dropped.
pub struct CountedRequest {
    counters: ApiCounters,
    clock: Arc<dyn Clock>,
    endpoint: &'static str,
    began: Mono,
    status: AtomicU16,
}

impl ApiCounters {
    pub fn begin(&self, endpoint: &'static str, clock: &Arc<dyn Clock>) -> CountedRequest {
        self.lock().open += 1;
        CountedRequest {
            counters: self.clone(),
            clock: Arc::clone(clock),
            endpoint,
            began: clock.now(),
            status: AtomicU16::new(CLIENT_GONE),
        }
    }

    pub fn status(&self, address: SocketAddr, tokens: usize) -> ApiLine {
        let counts = self.lock();
        // Without the probes of `/health`.
        let count = |statuses: RangeInclusive<u16>| {
            let totals = counts.totals.iter();
            let its = totals.filter(|((endpoint, status), _)| {
                *endpoint != "health" && statuses.contains(status)
            });
            its.map(|(_, totals)| totals.count).sum()
        };
        ApiLine {
            address: address.to_string(),
            tokens,
            open: counts.open,
            answered: count(0..=399),
            refused: count(400..=499),
            failed: count(500..=u16::MAX),
            totals: counts.totals.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ApiCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedRequest {
    /// The client gets an answer, or the beginning of one.
    pub fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let took = self.clock.now().since(self.began);
        let mut counts = self.counters.lock();
        counts.open = counts.open.saturating_sub(1);
        let totals = counts
            .totals
            .entry((self.endpoint, *self.status.get_mut()))
            .or_default();
        totals.count += 1;
        totals.time += took;
    }
}
