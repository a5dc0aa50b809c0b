//! A device that returns no more results.

use super::*;

/// The watchdog of systemd, from which the daemon derives the limit of the engine.
const WATCHDOG: Duration = Duration::from_secs(4);

// Faults: D9, H9.
/// Without its only engine the daemon shuts down in order, so that systemd can restart it.
#[test]
fn hanging_device_ends_the_daemon_in_order() {
    let test = "app::daemon::testbed::host::hang::hanging_device_ends_the_daemon_in_order";
    let limit_us = WATCHDOG.as_micros().to_string();
    if is_alone(test, &[("WATCHDOG_USEC", &*limit_us)], |_| {}) {
        crate::app::runtime().unwrap().block_on(hangs());
    }
}

async fn hangs() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let scenario = async {
        all_see(&testbed).await;
        let ready = || get(testbed.page, "/readyz");
        assert_eq!(ready().0, 200);
        testbed.scene.hang(true);
        let stalled = (503, "no engine makes progress\n".to_owned());
        until("not ready", || ready() == stalled).await;
    };
    let run = testbed.run(machine_clock(), engines_of(&testbed.scene));
    let (ended, ()) = tokio::join!(timeout(PATIENCE, run), scenario);
    let why = ended.expect("it ends").unwrap_err().to_string();
    assert_eq!(why, "engine on cpu: the device returns no more results");
    assert_eq!(testbed.retained("status").as_deref(), Some("offline"));
    until_disconnected(&servers).await;
    for server in &servers {
        let memory = server.memory();
        assert_eq!(
            memory.connections, 1,
            "the cameras stay connected until then"
        );
        assert_eq!(memory.torn_down, memory.sessions, "{memory:?}");
    }
    let events = testbed.broker.consumed();
    let ends = events.iter().filter(|message| stop::is_end(message));
    assert_eq!(ends.count(), CAMERAS.len(), "all events end with it");
    testbed.scene.hang(false);
}
