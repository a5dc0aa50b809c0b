//! Keeps a connection to the broker: one after the other, with a pause in between.

use tokio::sync::watch;

use super::{
    connection::{BrokerConnection, ReconnectState},
    policy::{BrokerState, ReconnectPolicy},
    shared::{Shared, asked_to_stop},
};
use spotter_core::LogThrottle;

/// Runs until `stop` is true or its sender is dropped.
pub(crate) async fn keep_connected(shared: &Shared, stop: watch::Receiver<bool>) {
    shared.show(BrokerState::Connecting);
    if !*stop.borrow() && stop.has_changed().is_ok() {
        connect_until_stopped(shared, stop).await;
    }
    shared.outbox().disconnected();
    shared.show(BrokerState::Stopped);
}

async fn connect_until_stopped(shared: &Shared, mut stop: watch::Receiver<bool>) {
    let target = &shared.target;
    let mut policy = ReconnectPolicy::new(target.timing.clone(), target.mqtt.broker.version);
    // The log repeats once a minute that attempts fail.
    let mut failures = LogThrottle::default();
    let mut memory = ReconnectState::new(target);
    let mut again = shared.again.subscribe();
    loop {
        // A request from here on leads to one more attempt: this one may have read the TLS files already.
        again.mark_unchanged();
        memory.renew_trust(shared.now()).await;
        let (connection, events) = BrokerConnection::new(shared, &policy, &mut memory);
        let Some(end) = connection.run(events, &mut policy, &mut stop).await else {
            return;
        };
        shared.outbox().disconnected();
        if shared.state.borrow().is_online() {
            // A request during the connection has no effect.
            again.mark_unchanged();
            failures = LogThrottle::default();
        }
        let now = shared.now();
        let state = policy.ended(end, now, fastrand::f64());
        let retry_at = state.retry_at();
        let reason = state.trouble().map(str::to_owned);
        let is_logged = shared.show(state);
        let repeated = failures.admit((), now).filter(|_| !is_logged);
        if let Some(suppressed) = repeated {
            let attempts = suppressed + 1;
            tracing::warn!(attempts, reason, "broker still unavailable");
        }
        tokio::select! {
            () = shared.pause(retry_at) => {}
            Ok(()) = again.changed() => {}
            () = asked_to_stop(&mut stop) => return,
        }
    }
}
