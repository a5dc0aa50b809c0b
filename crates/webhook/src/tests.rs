//! Webhooks against a real receiver on loopback.

use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    WebhookStatus, Webhooks,
    signature::{PostRequest, signature},
    testing::{SECRET, config, event, id, track},
    timing::WebhookTiming,
};
use spotter_config::{Secret, WebhookConfig, signing_key};
use spotter_core::{EndReason, Event, EventKind, EventStep, SystemClock, WebhookId};
use spotter_scripted::{
    receiver::{
        ReceivedRequest,
        ReceiverFault::{self, Close, Silence, Status},
        ScriptedReceiver,
    },
    tls::{certificates, tls_server},
};
use spotter_state::{EventLog, EventReceiver, LoggedEvent, OpenedEvents, StateStore};

const PATIENCE: Duration = Duration::from_secs(60);

/// Pauses of milliseconds; a picture is waited for as long as the test waits.
fn quick() -> WebhookTiming {
    WebhookTiming {
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(20),
        picture_within: PATIENCE,
        delayed_after: PATIENCE,
        stop_within: Duration::from_millis(200),
    }
}

/// A state directory and the webhooks of one run.
struct Site {
    folder: TempDir,
    store: StateStore,
    log: EventLog,
    webhooks: Webhooks,
}

impl Site {
    fn start(configs: &[WebhookConfig]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), configs)
    }

    fn start_in(folder: TempDir, configs: &[WebhookConfig]) -> Self {
        let clock = Arc::new(SystemClock::new());
        let store = StateStore::open(folder.path(), Arc::clone(&clock) as _).unwrap();
        let events = OpenedEvents::of(&store);
        Self {
            folder,
            store,
            webhooks: Webhooks::start_with(quick(), configs, &events, clock),
            log: events.log,
        }
    }

    fn post(&self, number: u64, event: Event) {
        let logged = LoggedEvent::new(id(number), &event, None);
        let logged = self.log.append(logged);
        self.log.done(&EventReceiver::broker(), [logged.number]);
    }

    /// The events with these numbers begin.
    fn begin(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.post(number, event(number, EventStep::New));
        }
    }

    /// An event begins, with its picture.
    fn begin_pictured(&self, number: u64) {
        let mut event = event(number, EventStep::New);
        event.snapshot = true;
        self.post(number, event);
        let jpeg = Arc::from([0xff, 0xd8, 7]);
        self.webhooks.add_picture(&track(number), &jpeg);
    }

    async fn stop(mut self) -> TempDir {
        self.webhooks.stop().await;
        self.store.close().await;
        self.folder
    }

    /// As the end of the process does.
    async fn kill(self) -> TempDir {
        drop(self.webhooks);
        self.store.close().await;
        self.folder
    }
}

/// The number of events that wait for the webhook on the disk.
async fn waiting(folder: &TempDir, id: &str) -> usize {
    let clock = Arc::new(SystemClock::new());
    let store = StateStore::open(folder.path(), clock).unwrap();
    let found = OpenedEvents::of(&store).found;
    let receiver = EventReceiver::webhook(&WebhookId::new(id).unwrap());
    store.close().await;
    found.waiting_for(&receiver).count()
}

async fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / 5 {
        if let Some(value) = attempt() {
            return value;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("{PATIENCE:?} went by without {what}")
}

/// The requests when there are as many.
async fn received(receiver: &ScriptedReceiver, count: usize) -> Vec<ReceivedRequest> {
    let what = format!("{count} requests");
    let all = || Some(receiver.requests()).filter(|all| all.len() >= count);
    until(&what, all).await
}

async fn status(site: &Site, wanted: impl Fn(&WebhookStatus) -> bool) -> WebhookStatus {
    until("the state of a webhook", || {
        site.webhooks
            .statuses()
            .into_iter()
            .find(|status| wanted(status))
    })
    .await
}

fn body(request: &ReceivedRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// The numbers of the events' tracks.
fn numbers(requests: &[ReceivedRequest]) -> Vec<u64> {
    let number = |request: &ReceivedRequest| {
        let body = body(request);
        let id = &request.headers["webhook-id"];
        assert_eq!(body["id"], id.as_str());
        let track = body["event"].as_str().unwrap();
        track.rsplit('-').next().unwrap().parse().unwrap()
    };
    requests.iter().map(number).collect()
}

#[tokio::test]
async fn request_is_signed_json_with_id_time_and_picture() {
    let receiver = ScriptedReceiver::start();
    let mut door = config("door", &receiver.url());
    door.bearer = Some(Secret::new("canary".into()));
    let site = Site::start(&[door]);
    site.begin_pictured(1);
    let request = received(&receiver, 1).await.remove(0);
    assert_eq!(request.path, "/hook");
    let header = |name: &str| request.headers[name].as_str();
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("authorization"), "Bearer canary");
    let key = signing_key(SECRET).unwrap();
    let signed = PostRequest {
        id: header("webhook-id").to_owned(),
        unix_s: header("webhook-timestamp").parse().unwrap(),
        body: request.body.clone(),
    };
    let expected = signature(&key, &signed).unwrap();
    assert_eq!(expected, header("webhook-signature"));
    let body = body(&request);
    assert_eq!(
        (&body["snapshot_jpeg"], &body["delayed"]),
        (&"/9gH".into(), &false.into())
    );
    let status = status(&site, |status| status.counters.posted == 1).await;
    assert_eq!((status.waiting, status.trouble()), (0, None));
    assert_eq!(waiting(&site.stop().await, "door").await, 0);
}

// Faults: W1.
#[tokio::test]
async fn failures_are_retried_in_order_with_the_same_id() {
    let receiver = ScriptedReceiver::start();
    let busy = Status(503, "Retry-After: 0\r\n");
    receiver.will([Status(500, ""), Close, busy, Status(429, "")]);
    let site = Site::start(&[config("door", &receiver.url())]);
    site.begin(1..=3);
    let requests = received(&receiver, 7).await;
    assert_eq!(numbers(&requests), [1, 1, 1, 1, 1, 2, 3]);
    let status = status(&site, |status| status.counters.posted == 3).await;
    assert_eq!((status.counters.retried, status.counters.dropped()), (4, 0));
}

// Faults: W4.
#[tokio::test]
async fn refused_event_is_dropped_and_the_next_is_posted() {
    let receiver = ScriptedReceiver::start();
    let elsewhere = ScriptedReceiver::start();
    let location = format!("Location: {}\r\n", elsewhere.url());
    receiver.will([Status(400, ""), Status(307, location.leak())]);
    let site = Site::start(&[config("door", &receiver.url())]);
    site.begin(1..=2);
    let refusing = status(&site, |status| status.counters.refused == 2).await;
    let trouble = refusing.trouble().unwrap();
    assert!(
        trouble.contains("webhook door: receiver answered with HTTP 307"),
        "{trouble}"
    );
    site.begin([3]);
    let accepting = status(&site, |status| status.counters.posted == 1).await;
    assert_eq!(accepting.trouble(), None);
    assert_eq!(numbers(&receiver.requests()), [1, 2, 3]);
    assert!(elsewhere.requests().is_empty(), "a redirect was followed");
}

// Faults: W3.
#[tokio::test]
async fn silent_receiver_delays_no_other_webhook_and_no_stop() {
    let (silent, door) = (ScriptedReceiver::start(), ScriptedReceiver::start());
    silent.will([Silence]);
    let site = Site::start(&[config("silent", &silent.url()), config("door", &door.url())]);
    site.begin([1]);
    received(&silent, 1).await;
    site.begin(2..=4);
    assert_eq!(numbers(&received(&door, 4).await), [1, 2, 3, 4]);
    status(&site, |status| {
        status.id.as_str() == "silent" && status.waiting == 4
    })
    .await;
    status(&site, |status| status.counters.posted == 4).await;
    let folder = site.stop().await;
    assert_eq!(waiting(&folder, "silent").await, 4);
    assert_eq!(waiting(&folder, "door").await, 0);
    // A webhook that the next run does not have keeps none.
    let folder = Site::start_in(folder, &[]).stop().await;
    assert_eq!(waiting(&folder, "silent").await, 0);
}

// Faults: W3.
#[tokio::test]
async fn request_without_an_answer_in_time_is_repeated() {
    let receiver = ScriptedReceiver::start();
    receiver.will([Silence]);
    let mut door = config("door", &receiver.url());
    door.timeout = Duration::from_millis(50);
    let site = Site::start(&[door]);
    site.begin([1]);
    assert_eq!(numbers(&received(&receiver, 2).await), [1, 1]);
}

// Faults: W6.
#[tokio::test]
async fn events_of_an_earlier_run_are_posted_first_as_delayed() {
    let receiver = ScriptedReceiver::start();
    let failing: Vec<ReceiverFault> = vec![Status(500, ""); 1000];
    receiver.will(failing);
    let site = Site::start(&[config("door", &receiver.url())]);
    site.begin_pictured(1);
    site.begin([2]);
    status(&site, |status| {
        status.waiting == 2 && status.counters.retried > 0
    })
    .await;
    let folder = site.stop().await;

    let receiver = ScriptedReceiver::start();
    let site = Site::start_in(folder, &[config("door", &receiver.url())]);
    site.begin([3]);
    let requests = received(&receiver, 3).await;
    assert_eq!(numbers(&requests), [1, 2, 3]);
    let bodies: Vec<Value> = requests.iter().map(body).collect();
    let delayed: Vec<&Value> = bodies.iter().map(|body| &body["delayed"]).collect();
    assert_eq!(delayed, [true, true, false]);
    assert_eq!(bodies[0]["snapshot_jpeg"], "/9gH");
    assert_eq!(bodies[0]["id"], id(1));
}

// Faults: W2.
#[tokio::test]
async fn faults_and_kills_lose_no_event_and_keep_the_order() {
    let receiver = ScriptedReceiver::start();
    let mut folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut last = 0;
    for life in 0..12 {
        let faults = [Status(500, ""), Close, Status(429, "")];
        receiver.will((0..random.usize(..8)).map(|_| faults[random.usize(..3)].clone()));
        let site = Site::start_in(folder, &[config("door", &receiver.url())]);
        let first = last + 1;
        last += random.u64(1..9);
        site.begin(first..=last);
        site.log.written().await;
        folder = match life % 4 {
            0 => site.stop().await,
            _ => site.kill().await,
        };
    }
    let site = Site::start_in(folder, &[config("door", &receiver.url())]);
    status(&site, |_| {
        numbers(&receiver.requests()).last() == Some(&last)
    })
    .await;
    let all = numbers(&receiver.requests());
    let mut seen = BTreeSet::new();
    let first: Vec<u64> = all.iter().copied().filter(|n| seen.insert(*n)).collect();
    assert_eq!(first, (1..=last).collect::<Vec<_>>());
    assert!(all.len() > first.len(), "the script had no effect");
}

#[tokio::test]
async fn reload_changes_adds_and_removes_webhooks_alone() {
    let [silent, old, new] = std::array::from_fn(|_| ScriptedReceiver::start());
    silent.will([Silence]);
    old.will(vec![Status(500, ""); 1000]);
    let configs = |door: &str, third: &str| {
        [
            ("silent", silent.url()),
            ("door", door.to_owned()),
            (third, new.url()),
        ]
        .map(|(id, url)| config(id, &url))
    };
    let mut site = Site::start(&configs(&old.url(), "third")[..2]);
    site.begin(1..=2);
    status(&site, |status| {
        status.id.as_str() == "door" && status.waiting == 2
    })
    .await;
    received(&silent, 1).await;

    site.webhooks.change(&configs(&new.url(), "third"));
    let requests = received(&new, 2).await;
    assert_eq!(
        numbers(&requests),
        [1, 2],
        "what waited goes to the new URL"
    );
    site.begin([3]);
    assert_eq!(
        received(&new, 4).await.len(),
        4,
        "the added webhook has it too"
    );
    assert_eq!(silent.requests().len(), 1, "an unchanged request goes on");

    site.webhooks.change(&configs(&new.url(), "third")[1..2]);
    assert_eq!(site.webhooks.statuses().len(), 1);
    let folder = site.stop().await;
    assert_eq!(waiting(&folder, "silent").await, 0);
}

#[tokio::test]
async fn webhook_gets_the_events_that_it_wants() {
    let receiver = ScriptedReceiver::start();
    let mut door = config("door", &receiver.url());
    door.filter.kinds = vec![EventKind::End];
    let site = Site::start(&[door]);
    site.begin([1]);
    site.post(2, event(2, EventStep::End(EndReason::Left)));
    assert_eq!(numbers(&received(&receiver, 1).await), [2]);
}

// Faults: W5.
#[tokio::test]
async fn tls_accepts_its_authority_only_and_reads_it_again() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let receiver = ScriptedReceiver::start_with(tls_server(folder.path()));
    let ca = folder.path().join("chosen.pem");
    fs::copy(folder.path().join("other.pem"), &ca).unwrap();
    let url = format!("https://localhost:{}/hook", receiver.address().port());
    let mut door = config("door", &url);
    door.ca = Some(ca.clone());
    Webhooks::check(&[door.clone()]).unwrap();
    let site = Site::start(&[door]);
    site.begin([1]);
    let failing = status(&site, |status| status.trouble().is_some()).await;
    let trouble = failing.trouble().unwrap();
    assert!(
        trouble.contains("certificate") && trouble.contains("check ca"),
        "{trouble}"
    );
    assert!(receiver.requests().is_empty());
    fs::copy(folder.path().join("ca.pem"), &ca).unwrap();
    assert_eq!(numbers(&received(&receiver, 1).await), [1]);
}
