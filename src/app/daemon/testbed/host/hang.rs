//! A device that answers no more.

use super::*;

/// What systemd gives the loops, here, and the daemon its engine.
const WATCHDOG: Duration = Duration::from_secs(4);

/// The only engine. With it the daemon ends by itself, in order, so that whoever started it can start it again.
#[test]
fn hanging_device_ends_the_daemon_in_order() {
    let test = "app::daemon::field::host::hang::hanging_device_ends_the_daemon_in_order";
    let limit_us = WATCHDOG.as_micros().to_string();
    if is_alone_with(test, &[("WATCHDOG_USEC", &*limit_us)], |_| {}) {
        crate::app::runtime().unwrap().block_on(hangs());
    }
}

async fn hangs() {
    let (servers, field) = field_of_good().await;
    let story = async {
        all_see(&field).await;
        field.stage.hang(true);
    };
    let run = field.run(machine_clock(), engines_of(&field.stage));
    let (ended, ()) = tokio::join!(timeout(PATIENCE, run), story);
    let why = ended.expect("it ends").unwrap_err().to_string();
    assert_eq!(why, "engine on cpu: the device returns no more results");
    assert_eq!(field.retained("status").as_deref(), Some("offline"));
    until("closed", || {
        servers.iter().all(|server| server.memory().open == 0)
    })
    .await;
    for server in &servers {
        let memory = server.memory();
        assert_eq!(memory.connections, 1, "no camera suffers from it before");
        assert_eq!(memory.torn_down, memory.sessions, "{memory:?}");
    }
    let events = field.broker.consumed();
    let ends = events.iter().filter(|message| stop::is_end(message));
    assert_eq!(ends.count(), CAMERAS.len(), "all stays end with it");
    field.stage.hang(false);
}
