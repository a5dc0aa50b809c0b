//! The whole publisher over several runs, without a broker.
//!
//! Faults: B9.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::Duration,
};

use tokio::time::timeout;

use super::*;
use crate::testing::{event, happened, identity};
use spotter_config::{MqttConfig, SpoolConfig};
use spotter_core::{EndReason, Event, EventStep, SystemClock};
use spotter_state::StateStore;

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

/// A run of the process.
struct Run {
    state: StateStore,
    publisher: Publisher,
    task: JoinHandle<()>,
}

impl Run {
    fn start(mqtt: &MqttConfig, folder: &Path) -> Self {
        let clock = Arc::new(SystemClock::new());
        let state = StateStore::open(folder, clock.clone()).unwrap();
        let (publisher, task) =
            Publisher::start(mqtt, &OpenedEvents::of(&state), &identity(), clock).unwrap();
        Self {
            state,
            publisher,
            task,
        }
    }

    /// An event of now: its age counts over restarts.
    fn say(&self, number: u64, step: EventStep) {
        let now = SystemClock::new().wall();
        let event = event("gate", number, step);
        self.publisher.publish(happened(Event {
            last_seen: now,
            ended: event.ended.map(|_| now),
            ..event
        }));
    }

    async fn stop(self) {
        self.publisher.stop();
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
        self.state.close().await;
    }
}

async fn an_outage_over_three_lives() {
    let state = tempfile::tempdir().unwrap();
    let mqtt = nowhere(100);
    let run = Run::start(&mqtt, state.path());
    for number in 1..=3 {
        run.say(number, EventStep::New);
    }
    run.say(2, EventStep::End(EndReason::Left));
    assert_eq!(run.publisher.spool_msgs(), 4);
    assert!(run.state.troubles().is_empty());
    run.stop().await;

    // Tracks 1 and 3 had not ended: the first restart adds one event for each, the second none.
    for _ in 0..2 {
        let run = Run::start(&mqtt, state.path());
        assert_eq!(run.publisher.spool_msgs(), 4 + 2);
        assert_eq!(run.publisher.counters().dropped(), 0);
        run.stop().await;
    }

    // Another configuration allows fewer events: the newest stay, the dropped ones are counted.
    let run = Run::start(&nowhere(5), state.path());
    assert_eq!(run.publisher.spool_msgs(), 5);
    assert_eq!(run.publisher.counters().events_over_bound, 1);
    run.stop().await;
}

async fn killed_without_a_word() {
    let state = tempfile::tempdir().unwrap();
    let mqtt = nowhere(100);
    let run = Run::start(&mqtt, state.path());
    run.say(1, EventStep::New);
    run.state.pending().finished().await;
    // A copy of the files of a running process is what a killed process leaves.
    let left = tempfile::tempdir().unwrap();
    for file in ["state.db", "state.db-wal"] {
        fs::copy(state.path().join(file), left.path().join(file)).unwrap();
    }
    let second = Run::start(&mqtt, left.path());
    // The start of the track and its end by the restart.
    assert_eq!(second.publisher.spool_msgs(), 2);
    second.stop().await;
    run.stop().await;
}

#[tokio::test]
async fn events_outlive_the_process() {
    tokio::join!(an_outage_over_three_lives(), killed_without_a_word());
}
