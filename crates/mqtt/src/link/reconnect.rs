//! Keeps a connection to the broker: one after the other, with a pause in between.

use super::{
    connection::{BrokerConnection, ReconnectState},
    policy::{BrokerState, ReconnectPolicy},
    task::{BrokerTask, asked_to_stop},
};
use spotter_core::LogThrottle;

/// Runs until stopped: one connection after the other, with a pause in between.
pub(crate) async fn keep_connected(task: BrokerTask) {
    task.show(BrokerState::Connecting);
    if !task.is_stopped() {
        connect_until_stopped(&task).await;
    }
    task.shared.outbox().disconnected();
    task.show(BrokerState::Stopped);
}

async fn connect_until_stopped(task: &BrokerTask) {
    let version = task.target.mqtt.broker.version;
    let mut policy = ReconnectPolicy::new(task.target.timing.clone(), version);
    // The log repeats once a minute that attempts fail.
    let mut failures = LogThrottle::default();
    let mut memory = ReconnectState::new(&task.target);
    let mut again = task.again.clone();
    loop {
        // A request from here on leads to one more attempt: this one may have read the TLS files already.
        again.mark_unchanged();
        memory.renew_trust(task.clock.now()).await;
        let (connection, events) = BrokerConnection::new(task, &policy, &mut memory);
        let Some(end) = connection.run(events, &mut policy).await else {
            return;
        };
        task.shared.outbox().disconnected();
        if task.state.borrow().is_online() {
            // A request during the connection has no effect.
            again.mark_unchanged();
            failures = LogThrottle::default();
        }
        let now = task.clock.now();
        let state = policy.ended(end, now, fastrand::f64());
        let retry_at = state.retry_at();
        let reason = state.trouble().map(str::to_owned);
        let is_logged = task.show(state);
        let repeated = failures.admit((), now).filter(|_| !is_logged);
        if let Some(suppressed) = repeated {
            let attempts = suppressed + 1;
            tracing::warn!(attempts, reason, "broker still unavailable");
        }
        let mut stop = task.stop.clone();
        tokio::select! {
            () = task.pause(retry_at) => {}
            Ok(()) = again.changed() => {}
            () = asked_to_stop(&mut stop) => return,
        }
    }
}
