use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use spotter_config::{
    Secret,
    testing::{camera, prompt},
};
use spotter_core::SystemClock;
use spotter_history::testing::{EVENT_ID, stored_alarms, stored_event};
use spotter_quality::{AnsweringModel, Series};

use serde_json::json;

use super::*;
use crate::{
    Board, StatusRequest, Thumbnail, commands::COMMAND_MAX_BYTES, trial::tests::trial_parts,
};

const TOKEN: &str = "a-token-of-the-page-for-tests";

/// Answers with a picture and a text.
struct Source;

impl StatusSource for Source {
    fn status_json(&self, request: StatusRequest) -> String {
        serde_json::json!({ "visitor": request.visitor }).to_string()
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    fn thumbnail(&self, _: &str, _: Option<u64>) -> Option<Arc<Thumbnail>> {
        let jpeg = b"picture".as_slice().into();
        Some(Arc::new(Thumbnail { frame: 1, jpeg }))
    }
}

/// Asks from another machine, as a proxy says, with these headers.
fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    send(address, &format!("GET {path}"), headers, "")
}

fn send(address: SocketAddr, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let host = "Host: localhost\r\nVia: proxy\r\nConnection: close";
    let head = format!("{host}\r\n{headers}Content-Length: {}\r\n", body.len());
    write!(stream, "{request} HTTP/1.1\r\n{head}\r\n{body}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A phone behind a slow line loads the page in a moment.
#[test]
fn all_files_of_the_page_are_at_most_150_kilobytes() {
    let files = files::packed_files().unwrap();
    let bytes: usize = files.iter().map(|(_, file)| file.packed_len()).sum();
    assert!(bytes <= 150_000, "{bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_compressed_for_clients_that_read_that() {
    let page = served(None).await;
    let ask = |headers: &str| ask(page.address(), "/main.js", headers);
    for headers in [
        "Accept-Encoding: br, gzip, deflate\r\n",
        "accept-encoding: GZIP\r\n",
    ] {
        let packed = ask(headers);
        assert!(packed.contains("content-encoding: gzip\r\n"), "{packed}");
        assert!(!packed.contains("import "), "{packed}");
    }
    for headers in [
        "",
        "Accept-Encoding: gzip;q=0\r\n",
        "Accept-Encoding: br\r\n",
    ] {
        let plain = ask(headers);
        assert!(!plain.contains("content-encoding"), "{plain}");
        assert!(plain.contains("import "), "{plain}");
    }
}

/// A page whose visitors have this token; none without one.
async fn served(token: Option<&str>) -> ServedPage {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let config = HttpConfig {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        tokens: Vec::from_iter(token.map(|token| Secret::new(token.into()))),
        ..HttpConfig::default()
    };
    let node = NodeId::new("edge1").unwrap();
    let readiness = Readiness::new(Arc::clone(&clock));
    let page = ServedPage::start(&node, &config, readiness, &clock).await;
    page.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn status_is_made_once_a_second_for_all_streams() {
    let (streamed, source) = (figures::StreamedStatus::default(), Counted::default());
    let of = |visitor| StatusRequest {
        visitor,
        ..StatusRequest::default()
    };
    for second in 0..3 {
        for visitor in [Visitor::LoggedIn, Visitor::Stranger, Visitor::LoggedIn] {
            // Opened within the second.
            tokio::time::advance(Duration::from_millis(200)).await;
            let event = streamed.event(of(visitor), &source);
            let name = serde_json::to_string(&visitor).unwrap();
            let expected = format!("data: {name} {second}\n\n");
            assert_eq!(event, expected.as_bytes());
        }
        assert_eq!(source.0.load(Ordering::Relaxed), 2 * (second + 1));
        streamed.ticks().tick().await;
    }
}

/// Says who asks, and how often anyone like that has asked before.
#[derive(Default)]
struct Counted(AtomicUsize);

impl StatusSource for Counted {
    fn status_json(&self, request: StatusRequest) -> String {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        let visitor = serde_json::to_string(&request.visitor).unwrap();
        format!("{visitor} {}", asked / 2)
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    fn thumbnail(&self, _: &str, _: Option<u64>) -> Option<Arc<Thumbnail>> {
        None
    }
}

// Faults: H16.
#[tokio::test(flavor = "multi_thread")]
async fn no_route_shows_pictures_without_a_token() {
    let token = TOKEN;
    for has_tokens in [false, true] {
        let mut page = served(has_tokens.then_some(token)).await;
        page.open(Arc::new(Source));
        page.open_trials(trial_parts());
        let folder = open_events(&page);
        let address = page.address();
        let mut asked = tokio::task::spawn_blocking(move || {
            // A stream does not end by itself.
            let routes = routes();
            let routes = routes.filter(|(path, ..)| *path != "/status.events");
            for (path, shows, _) in routes {
                let path = path
                    .replace("{picture}", "gate.jpg")
                    .replace("{page}", "page.md")
                    .replace("{camera}", "gate")
                    .replace("{event}", &format!("{EVENT_ID}.jpg"));
                let answer = ask(address, &path, "");
                assert!(
                    !answer.contains("picture\0") && !answer.ends_with("picture"),
                    "{answer}"
                );
                let is_refused = ["HTTP/1.1 401", "HTTP/1.1 403"]
                    .iter()
                    .any(|head| answer.starts_with(head));
                let is_hidden = matches!(shows, Shows::Pictures | Shows::Change);
                assert_eq!(is_refused, is_hidden, "{path}: {answer}");
                let with_token = ask(
                    address,
                    &path,
                    &format!("Authorization: Bearer {token}\r\n"),
                );
                let is_picture = with_token.ends_with("picture");
                assert_eq!(
                    is_picture,
                    has_tokens && path.ends_with(".jpg"),
                    "{path}: {with_token}"
                );
            }
            // A collector may send a token that is meant for a proxy.
            let wrong = "Authorization: Bearer another-token-for-tests\r\n";
            for path in ["/metrics", "/healthz", "/readyz"] {
                let is_refused = ask(address, path, wrong).starts_with("HTTP/1.1 401");
                assert!(!is_refused, "{path}");
            }
            let is_refused = ask(address, "/status.json", wrong).starts_with("HTTP/1.1 401");
            assert_eq!(is_refused, has_tokens);
            let status = ask(address, "/status.json", "");
            assert!(status.contains("stranger"), "{status}");
        });
        loop {
            tokio::select! {
                done = &mut asked => break done.unwrap(),
                request = page.next_request() => {
                    let json = b"shapes".into();
                    request.reply.try_send(PageReply { status: 200, json }).unwrap();
                }
            }
        }
        page.close().await;
        drop(folder);
    }
}

/// The page shows an event with a picture.
fn open_events(page: &ServedPage) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let history = stored_event(folder.path());
    let clock = Arc::new(SystemClock::new());
    page.open_events(EventAnswers::new(Some(history), clock));
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_events_are_listed_shown_exported_and_deleted() {
    let page = served(Some(TOKEN)).await;
    page.open(Arc::new(Source));
    page.open_trials(trial_parts());
    let _folder = open_events(&page);
    let address = page.address();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let asked = tokio::task::spawn_blocking(move || {
        let get = |path: &str| ask(address, path, &bearer);
        let list = get("/events.json?text=RED&from_ms=0");
        let picture = format!("events/{EVENT_ID}.jpg?v=1");
        assert!(
            list.contains(&format!("\"picture\":\"{picture}\"")),
            "{list}"
        );
        for size in ["", "&width=320"] {
            let kept = get(&format!("/{picture}{size}"));
            let may_be_kept = "cache-control: private, max-age=86400, immutable";
            assert!(
                kept.contains(may_be_kept) && kept.ends_with("picture"),
                "{kept}"
            );
        }
        for other in ["", "?v=2", "?v=1&v=2"] {
            let shown = get(&format!("/events/{EVENT_ID}.jpg{other}"));
            assert!(
                shown.contains("cache-control: private, no-cache"),
                "{shown}"
            );
        }
        assert!(get(&format!("/events/{EVENT_ID}.json")).contains("\"seen\":[]"));
        let zip = get("/events.zip?camera=gate");
        assert!(
            zip.contains("application/zip") && zip.contains("events.json"),
            "{zip}"
        );
        let may = get("/export.json?camera=gate");
        assert!(
            may.starts_with("HTTP/1.1 200") && may.ends_with("\r\n\r\n"),
            "{may}"
        );
        let may_not = get("/export.json?limit=x");
        assert!(
            may_not.starts_with("HTTP/1.1 422") && may_not.contains("{\"error\":\"limit"),
            "{may_not}"
        );
        for (path, status) in [
            ("/events.json?camera=x'y", "422"),
            ("/events.zip?limit=x", "422"),
            (&format!("/{picture}&width=99999"), "422"),
            ("/events/..%2fstate.jpg", "404"),
            ("/events/none.json", "404"),
            ("/events/none", "404"),
        ] {
            let answer = get(path);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{path}: {answer}"
            );
        }
        let head = format!("{bearer}Content-Type: application/json\r\n");
        let delete = |body: &str| send(address, "POST /events/delete", &head, body);
        for nothing in ["{}", "{\"cam\":\"gate\"}", "[]"] {
            assert!(delete(nothing).starts_with("HTTP/1.1 422"), "{nothing}");
        }
        let preview = |camera: &str, body: &str| {
            let request = format!("POST /camera/{camera}/shapes-preview");
            send(address, &request, &head, body)
        };
        let mask = "{\"shapes\":{\"mask\":[[[0,0],[1,0],[1,1]]]}}";
        let previewed = preview("gate", mask);
        assert!(
            previewed.contains("no event with recorded looks"),
            "{previewed}"
        );
        for (camera, body, status) in [
            ("cellar", mask, "404"),
            ("gate", "{}", "422"),
            ("gate", "{\"shapes\":[]}", "422"),
        ] {
            let refused = format!("HTTP/1.1 {status}");
            assert!(preview(camera, body).starts_with(&refused), "{body}");
        }
        let deleted = delete("{\"camera\":\"gate\"}");
        assert!(
            deleted.contains("{\"events\":1,\"pictures\":1,"),
            "{deleted}"
        );
        assert!(get(&format!("/{picture}")).starts_with("HTTP/1.1 404"));
    });
    asked.await.unwrap();
    page.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_a_history_says_how_to_switch_it_on() {
    let page = served(Some(TOKEN)).await;
    page.open(Arc::new(Source));
    page.open_trials(trial_parts());
    page.open_events(EventAnswers::new(None, Arc::new(SystemClock::new())));
    let (address, bearer) = (page.address(), format!("Authorization: Bearer {TOKEN}\r\n"));
    let asked = tokio::task::spawn_blocking(move || {
        let list = ask(address, "/events.json", &bearer);
        assert!(
            list.contains("\"is_on\":false,\"toml\":\"[history]\\nkeep = "),
            "{list}"
        );
        let zip = ask(address, "/events.zip", &bearer);
        assert!(
            zip.starts_with("HTTP/1.1 404") && zip.contains("add [history]"),
            "{zip}"
        );
        let head = format!("{bearer}Content-Type: application/json\r\n");
        let request = "POST /camera/gate/shapes-preview";
        let preview = send(address, request, &head, "{\"shapes\":{}}");
        assert!(
            preview.contains("{\"reason\":\"no events are stored"),
            "{preview}"
        );
    });
    asked.await.unwrap();
    page.close().await;
}

/// The page shows four alarms at one place of camera gate, to be judged.
fn open_judging(page: &ServedPage) -> tempfile::TempDir {
    let [name, precision] = ["a model", "f32"].map(Arc::from);
    let model = AnsweringModel { name, precision };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let gate = camera("gate", vec![prompt("person")]);
    let series = Series::new(&gate.prompts[0], &model);
    let folder = tempfile::tempdir().unwrap();
    let alarms = [("gate", 1), ("gate", 2), ("gate", 3), ("gate", 4)];
    let history = stored_alarms(folder.path(), series.as_str(), &alarms);
    let board = Board::new(&[gate], Arc::clone(&clock), |_, _| Ok(Vec::new()), None);
    let events = EventAnswers::new(Some(history), clock);
    page.open_events(events.clone());
    page.open_judging(JudgingAnswers::new(board, model, events));
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_drawn_marked_and_unproposed_values_refused() {
    let page = served(Some(TOKEN)).await;
    page.open(Arc::new(Source));
    let _folder = open_judging(&page);
    let address = page.address();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let head = format!("{bearer}Content-Type: application/json\r\n");
    let json_of = |answer: &str| -> Value {
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap()
    };
    let of_prompt = "/judge.json?camera=gate&prompt=person";
    let get = move |path: &str| json_of(&ask(address, path, &bearer));
    let post = move |path: &str, body: Value| {
        let answer = send(address, &format!("POST {path}"), &head, &body.to_string());
        (answer[9..12].to_owned(), json_of(&answer))
    };
    let asked = tokio::task::spawn_blocking(move || {
        let person = json!({"camera": "gate", "prompt": "person"});
        let with = |more: Value| {
            let mut body = person.clone();
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            body
        };
        let listed = get("/judge.json");
        let counts = |drawn: u32, judged: u32, waiting: u32| {
            with(json!({
                "words": "person", "kind": "detect", "min_score": 0.0, "alarms": 4, "drawn": drawn,
                "judged": judged, "right": judged, "wrong": 0, "waiting": waiting,
            }))
        };
        let min_score = listed["prompts"][0]["min_score"].clone();
        let mut expected = counts(0, 0, 0);
        expected["min_score"] = min_score;
        assert_eq!(listed, json!({"is_on": true, "prompts": [expected]}));
        let (status, drawn) = post("/judge/draw", with(json!({"wanted": 5})));
        // They are repeats of one.
        assert_eq!(
            (&*status, &drawn["drawn_now"], &drawn["waiting"]),
            ("200", &json!(1), &json!(1))
        );
        let first = &drawn["queue"][0];
        assert_eq!(first["drawn"], true);
        let mut expected = json!({"id": first["id"], "mark": "right", "all_found": true});
        let mut mark = expected.clone();
        mark["picture"] = json!(1);
        let (status, marked) = post("/events/mark", mark);
        expected["objects"] = Value::Null;
        assert_eq!((&*status, marked), ("200", expected));
        let shown = get(of_prompt);
        assert_eq!(
            shown["share"],
            json!({"percent": 100, "low": 21, "high": 100})
        );
        assert_eq!((&shown["judged"], &shown["queue"]), (&json!(1), &json!([])));
        assert_eq!(
            shown["sentences"][0],
            "1 judged, 1 right. Too few for a proposal: judge about 10 more."
        );
        for (path, body, expected) in [
            (
                "/events/mark",
                json!({"id": "none", "mark": "right"}),
                "404",
            ),
            ("/events/mark", json!({"mark": "right"}), "422"),
            (
                "/events/mark",
                json!({"id": EVENT_ID, "mark": "right", "picture": 2}),
                "409",
            ),
            (
                "/events/mark",
                json!({"id": EVENT_ID, "mark": "right", "picture": "1"}),
                "422",
            ),
            (
                "/events/mark",
                json!({"id": EVENT_ID, "mark": "good"}),
                "422",
            ),
            (
                "/events/mark",
                json!({"id": EVENT_ID, "mark": "corrected", "objects": [[0.5, 0.5]]}),
                "422",
            ),
            ("/judge/draw", with(json!({"wanted": 51})), "422"),
            (
                "/judge/draw",
                json!({"camera": "gate", "prompt": "dog"}),
                "404",
            ),
            (
                "/judge/draw",
                json!({"camera": "yard", "prompt": "person"}),
                "404",
            ),
            (
                "/judge/use",
                with(json!({"target_percent": 90, "min_score": 1.5})),
                "422",
            ),
        ] {
            let (status, answer) = post(path, body);
            assert!(
                status == expected && answer["error"].is_string(),
                "{path}: {status} {answer}"
            );
        }
        // None is proposed now, so no command is sent.
        for target in [90, 95] {
            let other = with(json!({"target_percent": target, "min_score": 0.6}));
            let (status, refused) = post("/judge/use", other);
            let error = refused["error"].as_str().unwrap();
            assert!(
                status == "409" && error.contains("present proposals"),
                "{refused}"
            );
        }
    });
    asked.await.unwrap();
    page.close().await;
}

// Faults: H18, H24.
#[tokio::test(flavor = "multi_thread")]
async fn commands_of_strangers_and_foreign_pages_never_reach_the_daemon() {
    let json = "Content-Type: application/json\r\n";
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n{json}");
    let foreign = format!("Origin: https://elsewhere.example\r\n{bearer}");
    let form = bearer.replace("application/json", "text/plain");
    let long = format!("\"{}\"", "x".repeat(COMMAND_MAX_BYTES));
    let command = r#"{"op":"reload"}"#;
    for (token, headers, body, status) in [
        (None, json, command, "403"),
        (None, &*bearer, command, "403"),
        (Some(TOKEN), json, command, "401"),
        (Some(TOKEN), &foreign, command, "403"),
        (Some(TOKEN), &form, command, "422"),
        (Some(TOKEN), &bearer, "{", "422"),
        (Some(TOKEN), &bearer, &long, "422"),
        (Some(TOKEN), &bearer, command, "503"),
    ] {
        let mut page = served(token).await;
        // The last one: not before the daemon runs.
        if status != "503" {
            page.open(Arc::new(Source));
        }
        let (address, headers, body) = (page.address(), headers.to_owned(), body.to_owned());
        let sent = move || send(address, "POST /command", &headers, &body);
        let answer = tokio::task::spawn_blocking(sent).await.unwrap();
        let head = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&head), "{status}: {answer}");
        assert!(answer.contains("\"error\":"), "{answer}");
        assert!(page.requests.try_recv().is_err(), "{status}");
        page.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_of_a_token_is_answered_by_the_daemon() {
    let mut page = served(Some(TOKEN)).await;
    page.open(Arc::new(Source));
    let address = page.address();
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let sent = move || send(address, "POST /command", &headers, r#"{"op":"reload"}"#);
    let answer = tokio::task::spawn_blocking(sent);
    let PageRequest { asked, reply } = page.next_request().await;
    let reload = serde_json::json!({"op": "reload"});
    assert_eq!(asked, PageQuestion::Command(reload));
    let (status, json) = (409, b"{\"ok\":false}".to_vec());
    reply.try_send(PageReply { status, json }).unwrap();
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
    assert!(answer.ends_with("{\"ok\":false}"), "{answer}");
    page.close().await;
}

// Faults: H18.
#[tokio::test(flavor = "multi_thread")]
async fn words_of_strangers_and_foreign_pages_take_no_engine() {
    let json = "Content-Type: application/json\r\n";
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n{json}");
    let foreign = format!("Origin: https://elsewhere.example\r\n{bearer}");
    let form = bearer.replace("application/json", "text/plain");
    let words = r#"{"cam":"gate","asks":[{"kind":"detect","words":"person"}]}"#;
    let page = served(Some(TOKEN)).await;
    let parts = trial_parts();
    let queue = Arc::clone(&parts.queue);
    page.open_trials(parts);
    for (headers, body, status) in [
        (json, words, "401"),
        (&foreign, words, "403"),
        (&form, words, "422"),
        (&bearer, "{", "422"),
    ] {
        let (address, headers, body) = (page.address(), headers.to_owned(), body.to_owned());
        let sent = move || send(address, "POST /try", &headers, &body);
        let answer = tokio::task::spawn_blocking(sent).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert_eq!(queue.waiting(), 0);
    }
    page.close().await;
}
