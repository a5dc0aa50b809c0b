//! Events of the machine and the process: UTC is set, the disk is full, hundreds of reloads, a signal to stop at every moment.

mod hang;
mod stop;

use std::{
    cell::RefCell,
    io::Write as _,
    sync::atomic::{AtomicI64, Ordering},
};

use super::*;
use crate::ops::process;
use spotter_core::{Mono, WallTime};

/// `TimeoutStopSec` of the unit file.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The machine's clocks with a wall clock that the test sets.
struct ShiftedClock {
    machine: SystemClock,
    by_s: AtomicI64,
}

impl Clock for ShiftedClock {
    fn now(&self) -> Mono {
        self.machine.now()
    }

    fn wall(&self) -> WallTime {
        let by_s = self.by_s.load(Ordering::Relaxed);
        self.machine.wall().plus_seconds(by_s as f64)
    }
}

pub(super) fn all_present(testbed: &Testbed) -> bool {
    CAMERAS.iter().all(|camera| {
        testbed
            .retained(&format!("cam/{camera}/present/thing"))
            .as_deref()
            == Some("ON")
    })
}

/// Shows the object on all cameras and waits until all are published as present.
pub(super) async fn all_see(testbed: &Testbed) {
    for camera in CAMERAS {
        testbed.scene.show(camera, true);
    }
    until("all see it", || all_present(testbed)).await;
}

// Faults: D2.
#[test]
fn wall_clock_set_by_an_hour_changes_nothing() {
    let test = "app::daemon::testbed::host::wall_clock_set_by_an_hour_changes_nothing";
    alone_without_an_error(test, clock_is_set());
}

async fn clock_is_set() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let clock = Arc::new(ShiftedClock {
        machine: SystemClock::new(),
        by_s: AtomicI64::new(0),
    });
    let scenario = async {
        all_see(&testbed).await;
        drop(testbed.broker.consumed());
        let mut received = Vec::new();
        for by_s in [3600, 0, -3600, 0] {
            clock.by_s.store(by_s, Ordering::Relaxed);
            // Long enough for an error in sender reports, presence, the end of an event, or figures to show.
            sleep(Duration::from_secs(5)).await;
            let step = RefCell::new(testbed.broker.consumed());
            until("looks go on", || {
                let mut step = step.borrow_mut();
                step.extend(testbed.broker.consumed());
                CAMERAS.iter().all(|camera| looks_at(&step, camera) >= 5)
            })
            .await;
            received.append(&mut step.into_inner());
        }
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_while(clock.clone(), scenario).await;
    assert!(report.balanced(), "{report}");
    for message in received {
        let topic: Vec<&str> = message.topic.split('/').skip(2).collect();
        let text = String::from_utf8_lossy(&message.payload);
        match topic[..] {
            ["cam", _, "det", _] => {
                let json: Value = serde_json::from_str(&text).unwrap();
                for (scene, ms) in json["lat_ms"].as_object().unwrap() {
                    let sane = ms.is_null() || (0.0..30_000.0).contains(&ms.as_f64().unwrap());
                    assert!(sane, "{scene}: {json}");
                }
            }
            ["cam", _, "present", _] => assert_eq!(text, "ON", "{topic:?}"),
            ["cam", _, "status"] => assert_eq!(text, "online", "{topic:?}"),
            ["cam", _, "event", _] => assert!(!text.contains("\"end\""), "{text}"),
            _ => {}
        }
    }
    for server in &servers {
        assert_eq!(server.memory().connections, 1);
    }
}

fn looks_at(messages: &[Publish], camera: &str) -> usize {
    let topic = format!("/cam/{camera}/det/");
    let its = messages.iter().filter(|one| one.topic.contains(&topic));
    its.count()
}

// Faults: D3.
#[test]
fn full_disk_loses_no_event_and_is_reported() {
    let test = "app::daemon::testbed::host::full_disk_loses_no_event_and_is_reported";
    // The database of the events has the settings too.
    alone_with_errors(test, &["events are in memory only"], disk_is_full());
}

/// Mounts a small disk at the state directory. `false` where the process may not mount.
fn tiny_disk(at: &Path) -> bool {
    fs::create_dir_all(at).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(at)
        .status();
    mount.is_ok_and(|done| done.success())
}

async fn disk_is_full() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    if !tiny_disk(&testbed.state()) {
        println!("this process may not mount a disk: not tested");
        return;
    }
    let filler = testbed.state().join("filler");
    let consumer = RefCell::new(Consumer::default());
    let receive = || {
        let mut consumer = consumer.borrow_mut();
        testbed
            .broker
            .consumed()
            .iter()
            .for_each(|message| consumer.receive(message));
        (consumer.event_count(), consumer.open().len())
    };
    let scenario = async {
        all_see(&testbed).await;
        // Full to the last byte.
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
        while file.write_all(&[0; 1]).is_ok() {}
        until("the first events arrive", || {
            receive() == (CAMERAS.len(), CAMERAS.len())
        })
        .await;
        testbed.broker.leave();
        let is_reported = || testbed.health_says("cannot keep events");
        // The broker may have acknowledged some of the first events. The count of waiting messages is published with the health.
        until("the daemon reports that the broker is away", || {
            testbed.health_says("broker: ")
        })
        .await;
        until("figures", || kept(&testbed).is_some()).await;
        let waiting = kept(&testbed).unwrap();
        for round in 1..=4 {
            for camera in CAMERAS {
                testbed.scene.show(camera, round % 2 == 0);
            }
            // Each camera's event ends, or a new one begins.
            let all = waiting + round * CAMERAS.len();
            until("events are kept", || kept(&testbed) >= Some(all)).await;
        }
        until("health says so", is_reported).await;
        testbed.broker.come_back().await;
        // Three events of each camera, of which the last goes on.
        let all = (3 * CAMERAS.len(), CAMERAS.len());
        until("all events arrive", || receive() == all).await;
        drop(file);
        fs::remove_file(&filler).unwrap();
        until("health says that it is over", || !is_reported()).await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert_eq!(
        receive(),
        (3 * CAMERAS.len(), 0),
        "all events end at the shutdown"
    );
    let (consumer, messages) = (consumer.borrow(), &report.messages);
    assert_eq!(consumer.faults(), [""; 0]);
    assert_eq!(
        (consumer.message_count(), 0),
        (messages.events_acked, messages.events_over_bound)
    );
    umount(&testbed.state());
}

/// Events that wait for the broker, from the metrics.
fn kept(testbed: &Testbed) -> Option<usize> {
    let metrics = testbed.metrics();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("spotter_publish_spooled_messages "));
    count?.parse().ok()
}

fn umount(at: &Path) {
    assert!(Command::new("umount").arg(at).status().unwrap().success());
}

// Faults: D4.
#[test]
fn two_hundred_reloads_keep_connections_and_memory() {
    let test = "app::daemon::testbed::host::two_hundred_reloads_keep_connections_and_memory";
    if is_alone(test, &[], |log| {
        assert_eq!(lines_but(log, " ERROR ", &[]), [""; 0]);
        let done = log
            .lines()
            .filter(|line| line.contains("configuration changed"))
            .count();
        assert!(done >= RELOADS, "{done} reloads");
    }) {
        crate::app::runtime().unwrap().block_on(reload_repeatedly());
    }
}

const RELOADS: usize = 200;
/// Allowed growth of memory over all reloads.
const LEFT_MIB: u64 = 12;

async fn reload_repeatedly() {
    let (servers, testbed) = testbed_with_good_cameras().await;
    let text = testbed.text();
    let hash = || {
        let config: Value = serde_json::from_str(&testbed.retained("config").unwrap()).unwrap();
        config["hash"].clone()
    };
    let resident = || process::resident_mib().unwrap() as u64;
    let scenario = async {
        all_see(&testbed).await;
        let mut early = 0;
        for round in 0..RELOADS {
            let before = hash();
            // The text of a prompt and the rate of the cameras.
            let edited = match round % 2 {
                0 => text
                    .replace("\"Is it dark?\"", "\"Is it dark outside?\"")
                    .replace("rate = 5", "rate = 8"),
                _ => text.clone(),
            };
            testbed.reload(&edited);
            until("the reload is in force", || hash() != before).await;
            if round == RELOADS / 4 {
                early = resident();
            }
        }
        let late = resident();
        println!("memory: {early} MiB after a quarter of the reloads, {late} MiB after all");
        assert!(late <= early + LEFT_MIB, "{early} MiB, {late} MiB");
        for server in &servers {
            assert_eq!(
                server.memory().connections,
                1,
                "no camera was connected to again"
            );
        }
        assert!(all_present(&testbed));
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
}
