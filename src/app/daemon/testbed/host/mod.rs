//! What happens to the machine and to the process: the clock is set, the disk is full, reloads without end, and a signal to
//! stop at every moment.

mod hang;
mod stop;

use std::{
    cell::RefCell,
    io::Write as _,
    sync::atomic::{AtomicI64, Ordering},
};

use serde_json::Value;

use super::*;
use crate::ops::process;
use spotter_core::{Mono, WallTime};

/// What the unit gives a stop (`TimeoutStopSec`).
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The machine's clocks, and somebody who sets UTC.
struct Set {
    machine: SystemClock,
    by_s: AtomicI64,
}

impl Clock for Set {
    fn now(&self) -> Mono {
        self.machine.now()
    }

    fn wall(&self) -> WallTime {
        let by_s = self.by_s.load(Ordering::Relaxed);
        self.machine.wall().plus_seconds(by_s as f64)
    }
}

pub(super) fn all_present(field: &Field) -> bool {
    CAMERAS.iter().all(|camera| {
        field
            .retained(&format!("cam/{camera}/present/thing"))
            .as_deref()
            == Some("ON")
    })
}

/// The thing is before all cameras, and all are known to see it.
pub(super) async fn all_see(field: &Field) {
    for camera in CAMERAS {
        field.stage.show(camera, true);
    }
    until("all see it", || all_present(field)).await;
}

#[test]
fn wall_clock_set_by_an_hour_changes_nothing() {
    let test = "app::daemon::field::host::wall_clock_set_by_an_hour_changes_nothing";
    alone_without_an_error(test, clock_is_set());
}

async fn clock_is_set() {
    let (servers, field) = field_of_good().await;
    let clock = Arc::new(Set {
        machine: SystemClock::new(),
        by_s: AtomicI64::new(0),
    });
    let story = async {
        all_see(&field).await;
        // Of the start, when nothing was known yet.
        drop(field.broker.consumed());
        let mut heard = Vec::new();
        for by_s in [3600, 0, -3600, 0] {
            clock.by_s.store(by_s, Ordering::Relaxed);
            // Long enough for sender reports, presence, a stay's end and figures to go wrong.
            sleep(Duration::from_secs(5)).await;
            let step = RefCell::new(field.broker.consumed());
            until("looks go on", || {
                let mut step = step.borrow_mut();
                step.extend(field.broker.consumed());
                CAMERAS.iter().all(|camera| looks_at(&step, camera) >= 5)
            })
            .await;
            heard.append(&mut step.into_inner());
        }
        signal("-TERM");
        heard
    };
    let (report, heard) = field.run_while(clock.clone(), story).await;
    assert!(report.balanced(), "{report}");
    for message in heard {
        let topic: Vec<&str> = message.topic.split('/').skip(2).collect();
        let text = String::from_utf8_lossy(&message.payload);
        match topic[..] {
            ["cam", _, "det", _] => {
                let json: Value = serde_json::from_str(&text).unwrap();
                for (stage, ms) in json["lat_ms"].as_object().unwrap() {
                    let sane = ms.is_null() || (0.0..30_000.0).contains(&ms.as_f64().unwrap());
                    assert!(sane, "{stage}: {json}");
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

#[test]
fn full_disk_loses_no_event_and_is_reported() {
    let test = "app::daemon::field::host::full_disk_loses_no_event_and_is_reported";
    alone_without_an_error(test, disk_is_full());
}

/// The state's folder on a disk of its own, which a process may have in a place of its own; where that is not allowed,
/// nothing is to be seen here, and `false` is returned.
fn tiny_disk(at: &Path) -> bool {
    fs::create_dir_all(at).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(at)
        .status();
    mount.is_ok_and(|done| done.success())
}

async fn disk_is_full() {
    let (_servers, field) = field_of_good().await;
    if !tiny_disk(&field.state()) {
        println!("a disk of our own may not be mounted here: not tested");
        return;
    }
    let filler = field.state().join("filler");
    let judge = RefCell::new(Judge::default());
    let hear = || {
        let mut judge = judge.borrow_mut();
        field
            .broker
            .consumed()
            .iter()
            .for_each(|message| judge.hear(message));
        (judge.stays(), judge.open().len())
    };
    let story = async {
        all_see(&field).await;
        // Full to the last byte.
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
        while file.write_all(&[0; 1]).is_ok() {}
        until("the first ones are told", || {
            hear() == (CAMERAS.len(), CAMERAS.len())
        })
        .await;
        field.broker.leave();
        let health_says = |words| get(field.page, "/healthz").contains(words);
        let is_told = || health_says("cannot keep events");
        // Of the first ones, some may have been taken without that we heard it. What waits is told together with the health.
        until("it knows that the broker is away", || {
            health_says("broker: ")
        })
        .await;
        until("figures", || kept(field.page).is_some()).await;
        let waiting = kept(field.page).unwrap();
        for round in 1..=4 {
            for camera in CAMERAS {
                field.stage.show(camera, round % 2 == 0);
            }
            // An end or a new one of each.
            let all = waiting + round * CAMERAS.len();
            until("events are kept", || kept(field.page) >= Some(all)).await;
        }
        until("health says so", is_told).await;
        field.broker.come_back().await;
        // Three stays before each camera, of which the last goes on.
        let all = (3 * CAMERAS.len(), CAMERAS.len());
        until("all that happened is told", || hear() == all).await;
        drop(file);
        fs::remove_file(&filler).unwrap();
        until("health says that it is over", || !is_told()).await;
        signal("-TERM");
    };
    let (report, ()) = field.run_while(machine_clock(), story).await;
    assert_eq!(hear(), (3 * CAMERAS.len(), 0), "all end with it");
    let (judge, messages) = (judge.borrow(), &report.messages);
    assert_eq!(judge.faults(), [""; 0]);
    assert_eq!(
        (judge.events(), 0),
        (messages.events_acked, messages.spool_dropped())
    );
    umount(&field.state());
}

/// How many events wait for the broker, as the metrics say.
fn kept(page: SocketAddr) -> Option<usize> {
    let metrics = get(page, "/metrics");
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("spotter_publish_spooled_messages "));
    count?.parse().ok()
}

fn umount(at: &Path) {
    assert!(Command::new("umount").arg(at).status().unwrap().success());
}

#[test]
fn two_hundred_reloads_keep_connections_and_memory() {
    let test = "app::daemon::field::host::two_hundred_reloads_keep_connections_and_memory";
    if is_alone(test, |log| {
        assert_eq!(lines_but(log, " ERROR ", &[]), [""; 0]);
        let done = log
            .lines()
            .filter(|line| line.contains("configuration changed"))
            .count();
        assert!(done >= RELOADS, "{done} reloads");
    }) {
        crate::app::runtime().unwrap().block_on(reload_storm());
    }
}

const RELOADS: usize = 200;
/// What reloads may leave behind in memory, all of them together.
const LEFT_MIB: u64 = 12;

async fn reload_storm() {
    let (servers, field) = field_of_good().await;
    let text = field.text();
    let hash = || {
        let config: Value = serde_json::from_str(&field.retained("config").unwrap()).unwrap();
        config["hash"].clone()
    };
    let resident = || process::resident_bytes().unwrap() >> 20;
    let story = async {
        all_see(&field).await;
        let mut early = 0;
        for round in 0..RELOADS {
            let before = hash();
            // Of one prompt the words, of the other the events, of a camera the rate.
            let edited = match round % 2 {
                0 => text
                    .replace("\"Is it dark?\"", "\"Is it dark outside?\"")
                    .replace("rate = 5", "rate = 8"),
                _ => text.clone(),
            };
            field.write(&edited);
            signal("-HUP");
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
                "nobody was connected to again"
            );
        }
        assert!(all_present(&field));
        // Restarts, for another state directory and another budget.
        for round in 0..3 {
            let before = hash();
            let state = field.directory.path().join(format!("state-{round}"));
            let (from, to) = (format!("{:?}", field.state()), format!("{state:?}"));
            let budget = format!("budget = \"{}s\"", 6 + round);
            let text = text.replace("budget = \"5s\"", &budget);
            field.write(&text.replace(&from, &to));
            signal("-HUP");
            until("all stages run again", || {
                hash() != before && all_present(&field)
            })
            .await;
        }
        until("all are connected to again", || {
            servers.iter().all(|server| server.memory().open == 1)
        })
        .await;
        signal("-TERM");
    };
    let (report, ()) = field.run_while(machine_clock(), story).await;
    assert!(report.balanced(), "{report}");
    until("closed", || {
        servers.iter().all(|server| server.memory().open == 0)
    })
    .await;
    for server in &servers {
        let memory = server.memory();
        assert_eq!(
            (memory.open, memory.torn_down),
            (0, memory.sessions),
            "{memory:?}"
        );
    }
}
