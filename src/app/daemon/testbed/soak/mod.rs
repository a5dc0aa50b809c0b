//! Four cameras and a broker with random faults: one minute in `make test`, one hour with `make soak`. After the last fault
//! every camera streams again, no event is missing or doubled, and all counters balance.
//!
//! `SPOTTER_SOAK_MINUTES` sets the duration of the faults, `SPOTTER_SOAK_SEED` the random draws.

mod commands;
mod faults;
mod process_use;
mod scenario;

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use faults::{FaultLog, RandomDraws, Tapes};
use process_use::{ProcessUse, growth_mib};
use scenario::Scenario;

use super::*;

/// Streams of random draws: one for each source of faults.
const OF_CAMERAS: u64 = 1;
const OF_BROKER: u64 = 2;
const OF_COMMANDS: u64 = 3;
const OF_SCENE: u64 = 4;
const OF_SERVERS: u64 = 5;

/// Duration of the faults in `make test`.
const SHORT: Duration = Duration::from_secs(60);
/// Time to recover after the last fault: the longest back-off of a camera that refused a login (5 min) and its connection;
/// the longest back-off of other faults and of the broker is one minute.
const RECOVERED_WITHIN: Duration = Duration::from_secs(310);
/// In a short soak, the command `reconnect` is sent to each camera that is still offline then.
const RECONNECT_COMMAND_AFTER: Duration = Duration::from_secs(20);
/// A camera that sends undamaged pictures for this long must be online; a busy machine needs seconds to connect and decode.
const ONLINE_WITHIN: Duration = Duration::from_secs(30);
/// The end of a pipeline whose camera is silent takes seconds; what is in use for longer than this after the faults is a leak.
const TORN_DOWN_WITHIN: Duration = Duration::from_secs(60);
/// Allowed growth over the idle state before the faults: pools of threads and their queues.
const MORE_THREADS: u64 = 6;
const MORE_FILES: u64 = 6;
/// What a camera needs more over UDP than over TCP, which a cut before the first frame makes it try: sockets and their polls.
const MORE_FILES_OVER_UDP: u64 = 10;
const MORE_THREADS_OVER_UDP: u64 = 2;
/// Allowed growth of memory over the last quarter: events that the test's consumer keeps, and what malloc does not return.
const MORE_MIB: f64 = 8.0;

#[test]
fn minute_of_faults_loses_nothing() {
    let test = "app::daemon::testbed::soak::minute_of_faults_loses_nothing";
    // An invalid file; and a broker that repeatedly closes the connection, as it does when two clients share an id.
    let refused = [
        "new configuration rejected",
        "gopher",
        "another client uses this client id",
    ];
    if is_alone(test, &[], |log| {
        let errors = lines_but(log, " ERROR ", &refused);
        assert!(errors.is_empty(), "{errors:#?}");
        println!(
            "log: {} lines, {} warnings, no unexpected error",
            log.lines().count(),
            lines_but(log, " WARN ", &[]).len()
        );
    }) {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let minutes = number("SPOTTER_SOAK_MINUTES");
        let length = minutes.map_or(SHORT, |minutes| Duration::from_secs(60 * minutes));
        let seed = number("SPOTTER_SOAK_SEED").unwrap_or(1);
        crate::app::runtime().unwrap().block_on(soak(length, seed));
    }
}

#[derive(Clone)]
struct Soak {
    seed: u64,
    long: bool,
    tapes: Tapes,
    faults_are_over: Arc<AtomicBool>,
    fault_log: FaultLog,
}

impl Soak {
    fn faults_are_over(&self) -> bool {
        self.faults_are_over.load(Ordering::Relaxed)
    }

    /// The longest pause between two faults of one kind, milliseconds.
    fn pause_ms(&self) -> u64 {
        if self.long { 15_000 } else { 3_000 }
    }

    /// Waits a random time; returns early when the faults are over.
    async fn pause(&self, chance: &mut RandomDraws, least_ms: u64, most_ms: u64) {
        let until = tokio::time::Instant::now() + chance.ms(least_ms, most_ms);
        while !self.faults_are_over() && tokio::time::Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

// Faults: D1, K3.
async fn soak(length: Duration, seed: u64) {
    let long = length > 2 * SHORT;
    let soak = Soak {
        seed,
        long,
        tapes: Tapes::record(long),
        faults_are_over: Arc::default(),
        fault_log: FaultLog::default(),
    };
    let servers: Servers = Arc::default();
    let mut urls = Vec::new();
    for camera in 0..CAMERAS.len() {
        let server = serve(&soak, camera, 0, None).await;
        urls.push(server.url());
        servers.lock().unwrap().push(Some(server));
    }
    let testbed = Arc::new(Testbed::new(urls, QUICK).await);
    let consumer = Arc::<Mutex<Consumer>>::default();
    let receiving = {
        let (testbed, consumer) = (Arc::clone(&testbed), Arc::clone(&consumer));
        tokio::spawn(async move {
            loop {
                for message in testbed.broker.consumed() {
                    consumer.lock().unwrap().receive(&message);
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let scenario = Scenario {
        soak,
        testbed: Arc::clone(&testbed),
        servers,
        consumer: Arc::clone(&consumer),
        clock: Arc::clone(&clock),
    };
    let (report, during) = testbed.run_while(clock, scenario.run(length)).await;
    receiving.abort();
    let closed = || {
        let servers = scenario.servers.lock().unwrap();
        servers.iter().flatten().all(|s| s.memory().open == 0)
    };
    scenario.until("closed", RECOVERED_WITHIN, closed).await;
    for message in testbed.broker.consumed() {
        consumer.lock().unwrap().receive(&message);
    }
    scenario.check_end(&report, &during);
}

type Servers = Arc<Mutex<Vec<Option<Server>>>>;

/// A camera whose every connection follows a randomly drawn script. `restart` counts how often it was switched on.
async fn serve(soak: &Soak, camera: usize, restart: u64, at: Option<SocketAddr>) -> Server {
    let soak = soak.clone();
    let script = move |connection: usize| {
        if soak.faults_are_over() || (restart == 0 && connection == 0) {
            return soak.tapes.good();
        }
        let number = restart << 32 | (connection as u64) << 8 | camera as u64;
        let mut chance = RandomDraws::new(soak.seed, OF_CAMERAS, number);
        let (script, name) = soak.tapes.script(&mut chance);
        soak.fault_log.note(&format!("camera: {name}"));
        script
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start_at(at.unwrap_or(any), script).await
}
