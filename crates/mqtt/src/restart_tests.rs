//! The whole publisher over several runs, without a broker.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::*;
use crate::{
    contract::event::tests::event,
    testing::{happened, identity},
};
use spotter_config::MqttConfig;
use spotter_core::SystemClock;

const PATIENCE: Duration = Duration::from_secs(60);

/// Settings for a port on which no broker listens.
fn nowhere(events: usize) -> MqttConfig {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    MqttConfig {
        spool: SpoolConfig {
            events,
            max_age: Duration::from_secs(3600),
            max_mb: 1,
        },
        ..spotter_config::testing::mqtt(listener.local_addr().unwrap().port())
    }
}

fn start(mqtt: &MqttConfig, state: &Path) -> (Publisher, JoinHandle<()>) {
    let clock = Arc::new(SystemClock::new());
    Publisher::start(mqtt, Some(state), &identity(), clock).unwrap()
}

fn say(publisher: &Publisher, number: u64, step: EventStep) {
    publisher.publish(happened(event("gate", number, step)));
}

async fn stop(publisher: Publisher, task: JoinHandle<()>) {
    publisher.stop();
    timeout(PATIENCE, task).await.unwrap().unwrap();
}

/// Waits until the spool folder is free. A publisher that stops waits only two seconds for the disk.
async fn let_go(state: &Path) {
    let free = async {
        while Folder::open(&state.join("spool")).is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, free).await.unwrap();
}

async fn an_outage_over_three_lives() {
    let state = tempfile::tempdir().unwrap();
    let mqtt = nowhere(100);
    let (publisher, task) = start(&mqtt, state.path());
    for number in 1..=3 {
        say(&publisher, number, EventStep::New);
    }
    say(&publisher, 2, EventStep::End(EndReason::Left));
    assert_eq!(publisher.spool_msgs(), 4);
    assert_eq!(publisher.spool_trouble(), None);
    stop(publisher, task).await;
    let_go(state.path()).await;

    // Tracks 1 and 3 had not ended: the first restart adds one event for each, the second none.
    for _ in 0..2 {
        let (publisher, task) = start(&mqtt, state.path());
        assert_eq!(publisher.spool_msgs(), 4 + 2);
        assert_eq!(publisher.counters().dropped(), 0);
        stop(publisher, task).await;
        let_go(state.path()).await;
    }

    // Another configuration allows fewer events: the newest stay, the dropped ones are counted.
    let (publisher, task) = start(&nowhere(5), state.path());
    assert_eq!(publisher.spool_msgs(), 5);
    assert_eq!(publisher.counters().spool_dropped(), 1);
    stop(publisher, task).await;
}

async fn killed_without_a_word() {
    let state = tempfile::tempdir().unwrap();
    let mqtt = nowhere(100);
    let (publisher, task) = start(&mqtt, state.path());
    say(&publisher, 1, EventStep::New);
    let spool = state.path().join("spool");
    let files = || fs::read_dir(&spool).unwrap().flatten();
    let written = async {
        while files().all(|file| file.metadata().map_or(0, |data| data.len()) == 0) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, written).await.unwrap();
    // A copy of the files of a running process is what a killed process leaves.
    let left = tempfile::tempdir().unwrap();
    let copy = left.path().join("spool");
    fs::create_dir(&copy).unwrap();
    for file in files() {
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let (second, second_task) = start(&mqtt, left.path());
    // The start of the track and its end by the restart.
    assert_eq!(second.spool_msgs(), 2);
    stop(second, second_task).await;
    stop(publisher, task).await;
}

async fn a_directory_in_use_is_said_and_events_stay_in_memory() {
    let state = tempfile::tempdir().unwrap();
    let mqtt = nowhere(100);
    let (first, first_task) = start(&mqtt, state.path());
    let (second, second_task) = start(&mqtt, state.path());
    say(&second, 1, EventStep::New);
    assert_eq!(second.spool_msgs(), 1);
    let trouble = second.spool_trouble().unwrap();
    assert!(trouble.contains("another process"), "{trouble}");
    stop(second, second_task).await;
    stop(first, first_task).await;

    let file = state.path().join("a file");
    fs::write(&file, "").unwrap();
    let (third, third_task) = start(&mqtt, &file);
    say(&third, 1, EventStep::New);
    assert!(third.spool_msgs() == 1 && third.spool_trouble().is_some());
    stop(third, third_task).await;
}

#[tokio::test]
async fn events_outlive_the_process() {
    tokio::join!(
        an_outage_over_three_lives(),
        killed_without_a_word(),
        a_directory_in_use_is_said_and_events_stay_in_memory()
    );
}
