//! Webhooks against a real receiver on loopback.

use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    WebhookEvent, WebhookPicture, WebhookState, WebhookStatus, Webhooks,
    signature::{SignedRequest, signature},
    testing::{bounds, event, track},
    timing::WebhookTiming,
};
use spotter_config::{EventFilter, EventKind, Secret, WebhookConfig, signing_key};
use spotter_core::{EndReason, EventStep, SystemClock, WebhookId};
use spotter_scripted::{
    receiver::{
        ReceivedRequest,
        ReceiverFault::{self, Close, Silence, Status},
        ScriptedReceiver,
    },
    tls::{certificates, tls_server},
};

const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

fn config(id: &str, url: &str) -> WebhookConfig {
    WebhookConfig {
        id: WebhookId::new(id).unwrap(),
        url: Secret::new(url.to_owned()),
        is_url_secret: false,
        address: "receiver".into(),
        ca: None,
        secret: Some(Secret::new(SECRET.to_owned())),
        bearer: None,
        filter: EventFilter::default(),
        snapshot: true,
        timeout: PATIENCE,
        spool: bounds(100),
    }
}

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

struct Site {
    state: TempDir,
}

impl Site {
    fn new() -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
        }
    }

    fn start(&self, configs: &[WebhookConfig]) -> Webhooks {
        let clock = Arc::new(SystemClock::new());
        Webhooks::start_with(configs, self.state.path(), clock, quick())
    }

    fn files(&self, id: &str) -> usize {
        let folder = fs::read_dir(self.state.path().join("webhooks").join(id));
        folder.map_or(0, Iterator::count)
    }

    fn has_on_disk(&self, id: &str, event: &str) -> bool {
        let folder = fs::read_dir(self.state.path().join("webhooks").join(id));
        let mut files = folder.into_iter().flatten().flatten();
        files.any(|file| {
            let name = file.file_name();
            let is_whole = name.to_str().is_some_and(|name| name.ends_with(".json"));
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            is_whole && text.contains(event)
        })
    }
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

async fn status(webhooks: &Webhooks, wanted: impl Fn(&WebhookStatus) -> bool) -> WebhookStatus {
    until("the state of a webhook", || {
        webhooks
            .statuses()
            .into_iter()
            .find(|status| wanted(status))
    })
    .await
}

fn begins(number: u64) -> WebhookEvent {
    event(number, EventStep::New)
}

/// With `snapshot`: its picture follows.
fn pictured(number: u64) -> WebhookEvent {
    let mut event = begins(number);
    event.event.snapshot = true;
    event
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
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let mut door = config("door", &receiver.url());
    door.bearer = Some(Secret::new("canary".into()));
    let mut webhooks = site.start(&[door]);
    webhooks.post(pictured(1));
    webhooks.add_picture(&WebhookPicture {
        track: track(1),
        jpeg: Arc::from([0xff, 0xd8, 7]),
    });
    let request = received(&receiver, 1).await.remove(0);
    assert_eq!(request.path, "/hook");
    let header = |name: &str| request.headers[name].as_str();
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("authorization"), "Bearer canary");
    let key = signing_key(SECRET).unwrap();
    let signed = SignedRequest {
        id: header("webhook-id"),
        unix_s: header("webhook-timestamp").parse().unwrap(),
        body: &request.body,
    };
    assert_eq!(
        signature(&key, signed).unwrap(),
        header("webhook-signature")
    );
    let body = body(&request);
    assert_eq!(
        (&body["snapshot_jpeg"], &body["delayed"]),
        (&"/9gH".into(), &false.into())
    );
    assert_eq!(body["score"], 0.83);
    let status = status(&webhooks, |status| status.counters.posted == 1).await;
    assert_eq!((status.waiting, status.trouble()), (0, None));
    webhooks.stop().await;
    assert_eq!(site.files("door"), 0);
}

#[tokio::test]
async fn failures_are_retried_in_order_with_the_same_id() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let busy = Status(503, "Retry-After: 0\r\n");
    receiver.will([Status(500, ""), Close, busy, Status(429, "")]);
    let mut webhooks = site.start(&[config("door", &receiver.url())]);
    for number in 1..=3 {
        webhooks.post(begins(number));
    }
    let requests = received(&receiver, 7).await;
    assert_eq!(numbers(&requests), [1, 1, 1, 1, 1, 2, 3]);
    let status = status(&webhooks, |status| status.counters.posted == 3).await;
    assert_eq!((status.counters.retried, status.counters.dropped()), (4, 0));
    assert_eq!(status.state, WebhookState::Accepting);
}

#[tokio::test]
async fn refused_event_is_dropped_and_the_next_is_posted() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let elsewhere = ScriptedReceiver::start();
    let location = format!("Location: {}\r\n", elsewhere.url());
    receiver.will([Status(400, ""), Status(307, location.leak())]);
    let mut webhooks = site.start(&[config("door", &receiver.url())]);
    for number in 1..=2 {
        webhooks.post(begins(number));
    }
    let refusing = status(&webhooks, |status| status.counters.refused == 2).await;
    let trouble = refusing.trouble().unwrap();
    assert!(
        trouble.contains("webhook door: receiver answered with HTTP 307"),
        "{trouble}"
    );
    webhooks.post(begins(3));
    let accepting = status(&webhooks, |status| status.counters.posted == 1).await;
    assert_eq!(accepting.trouble(), None);
    assert_eq!(numbers(&receiver.requests()), [1, 2, 3]);
    assert!(elsewhere.requests().is_empty(), "a redirect was followed");
}

#[tokio::test]
async fn silent_receiver_delays_no_other_webhook_and_no_stop() {
    let (site, silent, door) = (
        Site::new(),
        ScriptedReceiver::start(),
        ScriptedReceiver::start(),
    );
    silent.will([Silence]);
    let configs = [config("silent", &silent.url()), config("door", &door.url())];
    let mut webhooks = site.start(&configs);
    webhooks.post(begins(1));
    received(&silent, 1).await;
    for number in 2..=4 {
        webhooks.post(begins(number));
    }
    assert_eq!(numbers(&received(&door, 4).await), [1, 2, 3, 4]);
    status(&webhooks, |status| {
        status.id.as_str() == "silent" && status.waiting == 4
    })
    .await;
    webhooks.stop().await;
    assert_eq!((site.files("silent"), site.files("door")), (4, 0));
}

#[tokio::test]
async fn request_without_an_answer_in_time_is_repeated() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    receiver.will([Silence]);
    let mut door = config("door", &receiver.url());
    door.timeout = Duration::from_millis(50);
    let mut webhooks = site.start(&[door]);
    webhooks.post(begins(1));
    assert_eq!(numbers(&received(&receiver, 2).await), [1, 1]);
}

#[tokio::test]
async fn events_of_an_earlier_run_are_posted_first_as_delayed() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let failing: Vec<ReceiverFault> = vec![Status(500, ""); 1000];
    receiver.will(failing);
    let mut webhooks = site.start(&[config("door", &receiver.url())]);
    webhooks.post(pictured(1));
    let jpeg = Arc::from([0xff, 0xd8, 7]);
    let picture = WebhookPicture {
        track: track(1),
        jpeg,
    };
    webhooks.add_picture(&picture);
    webhooks.post(begins(2));
    status(&webhooks, |status| {
        status.waiting == 2 && status.counters.retried > 0
    })
    .await;
    webhooks.stop().await;

    let receiver = ScriptedReceiver::start();
    let mut webhooks = site.start(&[config("door", &receiver.url())]);
    webhooks.post(begins(3));
    let requests = received(&receiver, 3).await;
    assert_eq!(numbers(&requests), [1, 2, 3]);
    let bodies: Vec<Value> = requests.iter().map(body).collect();
    let delayed: Vec<&Value> = bodies.iter().map(|body| &body["delayed"]).collect();
    assert_eq!(delayed, [true, true, false]);
    assert_eq!(bodies[0]["snapshot_jpeg"], "/9gH");
    assert_eq!(bodies[0]["id"], begins(1).id.as_str());
}

#[tokio::test]
async fn damaged_file_is_counted_and_the_next_event_posted() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let folder = site.state.path().join("webhooks/door");
    fs::create_dir_all(&folder).unwrap();
    let later = 4_000_000_000_000_i64;
    fs::write(folder.join(format!("000000000001-{later}.json")), "").unwrap();
    let (event, id) = (begins(2), begins(2).id);
    let post = serde_json::json!({"id": id, "body": event.body});
    let whole = folder.join(format!("000000000002-{later}.json"));
    fs::write(whole, post.to_string()).unwrap();
    let webhooks = site.start(&[config("door", &receiver.url())]);
    let status = status(&webhooks, |status| status.counters.posted == 1).await;
    assert_eq!((status.counters.unreadable, status.waiting), (1, 0));
    assert_eq!(numbers(&receiver.requests()), [2]);
    assert_eq!(site.files("door"), 0);
}

#[tokio::test]
async fn faults_and_kills_lose_no_event_and_keep_the_order() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let mut random = fastrand::Rng::with_seed(7);
    let mut last = 0;
    for life in 0..12 {
        let faults = [Status(500, ""), Close, Status(429, "")];
        receiver.will((0..random.usize(..8)).map(|_| faults[random.usize(..3)].clone()));
        let mut webhooks = site.start(&[config("door", &receiver.url())]);
        for _ in 0..random.usize(1..9) {
            last += 1;
            webhooks.post(begins(last));
        }
        // All are on the disk or posted when the last one is.
        let is_posted = || numbers(&receiver.requests()).contains(&last);
        until("the last event", || {
            (is_posted() || site.has_on_disk("door", &begins(last).id)).then_some(())
        })
        .await;
        match life % 4 {
            0 => webhooks.stop().await,
            _ => webhooks.kill(),
        }
    }
    let webhooks = site.start(&[config("door", &receiver.url())]);
    status(&webhooks, |_| {
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
    let site = Site::new();
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
    let mut webhooks = site.start(&configs(&old.url(), "third")[..2]);
    webhooks.post(begins(1));
    webhooks.post(begins(2));
    status(&webhooks, |status| {
        status.id.as_str() == "door" && status.waiting == 2
    })
    .await;
    received(&silent, 1).await;

    webhooks.change(&configs(&new.url(), "third"));
    let requests = received(&new, 2).await;
    assert_eq!(
        numbers(&requests),
        [1, 2],
        "what waited goes to the new URL"
    );
    webhooks.post(begins(3));
    assert_eq!(
        received(&new, 4).await.len(),
        4,
        "the added webhook has it too"
    );
    assert_eq!(silent.requests().len(), 1, "an unchanged request goes on");

    webhooks.change(&configs(&new.url(), "third")[1..2]);
    assert_eq!((webhooks.statuses().len(), site.files("silent")), (1, 0));
    assert!(!site.state.path().join("webhooks/silent").exists());
    webhooks.stop().await;
    // Removed while the daemon was stopped.
    let folder = site.state.path().join("webhooks/gone");
    fs::create_dir_all(&folder).unwrap();
    drop(site.start(&[]));
    assert!(!folder.exists());
}

#[tokio::test]
async fn webhook_gets_the_events_that_it_wants() {
    let (site, receiver) = (Site::new(), ScriptedReceiver::start());
    let mut door = config("door", &receiver.url());
    door.filter.kinds = vec![EventKind::End];
    let mut webhooks = site.start(&[door]);
    assert!(!webhooks.is_wanted(&begins(1).event));
    webhooks.post(begins(1));
    webhooks.post(event(2, EventStep::End(EndReason::Left)));
    assert_eq!(numbers(&received(&receiver, 1).await), [2]);
}

#[tokio::test]
async fn tls_accepts_its_authority_only_and_reads_it_again() {
    let (site, folder) = (Site::new(), tempfile::tempdir().unwrap());
    certificates(folder.path());
    let receiver = ScriptedReceiver::start_with(tls_server(folder.path()));
    let ca = folder.path().join("chosen.pem");
    fs::copy(folder.path().join("other.pem"), &ca).unwrap();
    let url = format!("https://localhost:{}/hook", receiver.address().port());
    let mut door = config("door", &url);
    door.ca = Some(ca.clone());
    Webhooks::check(&door).unwrap();
    let mut webhooks = site.start(&[door]);
    webhooks.post(begins(1));
    let failing = status(&webhooks, |status| status.trouble().is_some()).await;
    let trouble = failing.trouble().unwrap();
    assert!(
        trouble.contains("certificate") && trouble.contains("check ca"),
        "{trouble}"
    );
    assert!(receiver.requests().is_empty());
    fs::copy(folder.path().join("ca.pem"), &ca).unwrap();
    assert_eq!(numbers(&received(&receiver, 1).await), [1]);
}
