//! Four cameras and a broker with random faults, for a minute in every run of the tests, for an hour with `make soak`; and at
//! the end, when the faults are over, everything is back and the books balance.
//!
//! `SPOTTER_SOAK_MINUTES` says for how long there are faults, `SPOTTER_SOAK_SEED` which.

mod commands;
mod faults;
mod holds;
mod story;
mod verdict;

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use faults::{Chance, Diary, Tapes};
use holds::Holds;
use story::Story;

use super::*;

/// Kinds of draws.
const OF_CAMERAS: u64 = 1;
const OF_BROKER: u64 = 2;
const OF_PEOPLE: u64 = 3;
const OF_STAGE: u64 = 4;
const OF_SERVERS: u64 = 5;

/// Faults last for so long in every run of the tests.
const SHORT: Duration = Duration::from_secs(60);
/// After the last fault: the longest pause of a camera that refused a login (5 min) and its connection; that of all others
/// and of the broker is a minute.
const BACK_WITHIN: Duration = Duration::from_secs(310);
/// An operator asks for a new connection when a camera is not back by then, so that the short soak stays short.
const HURRIED_AFTER: Duration = Duration::from_secs(20);
/// Of a camera that sends whole pictures; a busy machine needs some of it to connect and to decode.
const ONLINE_WITHIN: Duration = Duration::from_secs(30);
/// Above what there was when all was quiet at the start: pools of threads and their queues.
const MORE_THREADS: u64 = 6;
const MORE_FILES: u64 = 6;
/// What memory may grow by over the second half: events that the consumer remembers, and what malloc keeps.
const MORE_MIB: f64 = 16.0;

#[test]
fn minute_of_faults_loses_nothing() {
    let test = "app::daemon::field::soak::minute_of_faults_loses_nothing";
    // A bad file; and a broker that cuts again and again, which looks like it.
    let refused = [
        "new configuration rejected",
        "gopher",
        "another client has our id",
    ];
    if is_alone(test, |log| {
        let errors = lines_but(log, " ERROR ", &refused);
        assert!(errors.is_empty(), "{errors:#?}");
        println!(
            "log: {} lines, {} warnings, no error that was not asked for",
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

/// What all parts of a soak share.
#[derive(Clone)]
struct Soak {
    seed: u64,
    long: bool,
    tapes: Tapes,
    /// From now on nothing goes wrong any more.
    peace: Arc<AtomicBool>,
    diary: Diary,
}

impl Soak {
    fn peace(&self) -> bool {
        self.peace.load(Ordering::Relaxed)
    }

    /// The longest pause between two faults of one kind, milliseconds.
    fn pause_ms(&self) -> u64 {
        if self.long { 15_000 } else { 3_000 }
    }

    /// Waits for a while, less when it is over.
    async fn pause(&self, chance: &mut Chance, least_ms: u64, most_ms: u64) {
        let until = tokio::time::Instant::now() + chance.ms(least_ms, most_ms);
        while !self.peace() && tokio::time::Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn soak(length: Duration, seed: u64) {
    let long = length > 2 * SHORT;
    let soak = Soak {
        seed,
        long,
        tapes: Tapes::record(long),
        peace: Arc::default(),
        diary: Diary::default(),
    };
    let servers: Servers = Arc::default();
    let mut urls = Vec::new();
    for camera in 0..CAMERAS.len() {
        let server = serve(&soak, camera, 0, None).await;
        urls.push(server.url());
        servers.lock().unwrap().push(Some(server));
    }
    let field = Arc::new(Field::new(urls, QUICK).await);
    let judge = Arc::<Mutex<Judge>>::default();
    let told = {
        let (field, judge) = (Arc::clone(&field), Arc::clone(&judge));
        tokio::spawn(async move {
            loop {
                for message in field.broker.consumed() {
                    judge.lock().unwrap().hear(&message);
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let story = Story {
        soak,
        field: Arc::clone(&field),
        servers,
        judge: Arc::clone(&judge),
        clock: Arc::clone(&clock),
    };
    let (report, quiet) = field.run_while(clock, story.told(length)).await;
    told.abort();
    let closed = || {
        let servers = story.servers.lock().unwrap();
        servers.iter().flatten().all(|s| s.memory().open == 0)
    };
    story.until("closed", BACK_WITHIN, closed).await;
    for message in field.broker.consumed() {
        judge.lock().unwrap().hear(&message);
    }
    story.end(&report, &quiet);
}

type Servers = Arc<Mutex<Vec<Option<Server>>>>;

/// A camera that draws what each connection comes to. The `life` counts its restarts.
async fn serve(soak: &Soak, camera: usize, life: u64, at: Option<SocketAddr>) -> Server {
    let soak = soak.clone();
    let script = move |connection: usize| {
        if soak.peace() || (life == 0 && connection == 0) {
            return soak.tapes.good();
        }
        let number = life << 32 | (connection as u64) << 8 | camera as u64;
        let mut chance = Chance::new(soak.seed, OF_CAMERAS, number);
        let (script, name) = soak.tapes.script(&mut chance);
        soak.diary.note(&format!("camera: {name}"));
        script
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start_at(at.unwrap_or(any), script).await
}
