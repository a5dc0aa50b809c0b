//! The API over loopback HTTP. The test is the engine.

use std::future::Future;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::*;
use spotter_config::Secret;
use spotter_core::{
    Answer, AnswerBody, AnswerPiece, GroundedSpan, ManualClock, NormBox, NormPoint, Outline,
    Reasoning, StageTimes, SystemClock, Task, TokenCounts,
};
use spotter_history::testing::{EVENT_ID, stored_event};
use spotter_pictures::{RgbPixels, png_file};
use spotter_requests::{BegunRequest, RequestNews};

/// Generous, because it says nothing about speed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes too long")
}

/// An API with room for one request and a model called `md3` with these adapters.
async fn served(adapters: &[&str]) -> ServedApi {
    let api = served_to(&[]).await;
    let adapters = adapters.iter().map(|name| AdapterId::new(name).unwrap());
    api.set_adapters(adapters.collect::<Vec<_>>().iter());
    api
}

/// The same for clients with these tokens.
async fn served_to(tokens: &[&str]) -> ServedApi {
    let tokens = tokens.iter().map(|token| Secret::new((*token).into()));
    let config = ApiConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tokens: tokens.collect(),
        rate_hz: 1000.0,
        max_body_mb: 1,
        requests: 1,
        wait: PATIENCE,
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let api = ServedApi::start(Some(&config), HostNames::default(), &Arc::default(), &clock).await;
    let api = api.unwrap().expect("an API");
    api.open("md3");
    api
}

/// The API shows an event with a picture.
fn open_events(api: &ServedApi) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let history = stored_event(folder.path());
    api.open_events(EventAnswers::new(
        Some(history),
        Arc::new(SystemClock::new()),
    ));
    folder
}

#[tokio::test]
async fn stored_events_are_shown_and_deleted_with_a_token_alone() {
    let token = "a-token-of-the-api-for-tests";
    let (open, closed) = (served(&[]).await, served_to(&[token]).await);
    let _folders = [&open, &closed].map(open_events);
    let event = format!("/v1/events/{EVENT_ID}");
    let picture = format!("{event}/picture?v=1");
    let mark = format!("{event}/mark");
    for (api, method, path, expected) in [
        (&open, "GET", &*event, 403),
        (&open, "GET", "/v1/events.zip", 403),
        (&open, "GET", &picture, 403),
        (&open, "DELETE", &event, 403),
        (&open, "POST", &mark, 403),
        (&closed, "GET", "/v1/events", 401),
        (&closed, "GET", "/v1/events.zip", 401),
        (&closed, "GET", &event, 401),
        (&closed, "GET", &picture, 401),
        (&closed, "DELETE", &event, 401),
        (&closed, "POST", &mark, 401),
        (&closed, "DELETE", "/v1/events?camera=gate", 401),
    ] {
        let (status, body) = call(api, method, path, &Value::Null).await;
        assert_eq!(status, expected, "{method} {path}: {body}");
    }
}

/// A client that reads as the answer comes.
struct StreamClient {
    stream: TcpStream,
    answer: String,
}

impl StreamClient {
    async fn send(api: &ServedApi, method: &str, path: &str, body: &Value) -> Self {
        let (address, body) = (api.state.address, body.to_string());
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = String::new();
        Self { stream, answer }
    }

    /// A question in one of the shapes, about a small picture, whose answer is sent as it is written.
    async fn ask(api: &ServedApi, is_chat: bool) -> Self {
        let body = match is_chat {
            false => json!({"image_url": picture(), "question": "What is it?", "stream": true}),
            true => chat_body(
                "md3",
                json!({"stream": true, "stream_options": {"include_usage": true}}),
            ),
        };
        let path = ["/v1/query", CHAT][usize::from(is_chat)];
        Self::send(api, "POST", path, &body).await
    }

    /// Reads until the answer has the part; false when it ends before.
    async fn until(&mut self, part: &str) -> bool {
        let mut bytes = [0; 4096];
        while !self.answer.contains(part) {
            match within(self.stream.read(&mut bytes)).await {
                Ok(0) | Err(_) => return false,
                Ok(count) => self.answer += std::str::from_utf8(&bytes[..count]).unwrap(),
            }
        }
        true
    }
}

const CHAT: &str = "/v1/chat/completions";

fn chat_body(model: &str, mut more: Value) -> Value {
    let image = json!({"type": "image_url", "image_url": {"url": picture()}});
    let parts = json!([{"type": "text", "text": "What is it?"}, image]);
    more["messages"] = json!([{"role": "user", "content": parts}]);
    more["model"] = json!(model);
    more
}

/// Status and body of the answer of an engine that says which adapter answers; `broken` cannot be read.
async fn call(api: &ServedApi, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut client = StreamClient::send(api, method, path, body).await;
    let engine = async {
        let BegunRequest { look, reply } = api.state.queue.next().await;
        let adapter = look.prompts[0].adapter.clone();
        let _ = reply.try_send(match adapter {
            Some(id) if id.as_str() == "broken" => Err(UnansweredRequest::Adapter {
                id,
                reason: "its file is cut off".into(),
            }),
            adapter => answered(&look, adapter.as_ref().map_or("none", AdapterId::as_str)),
        });
        pending::<()>().await;
    };
    let answer = tokio::select! {
        _ = client.until("never sent") => client.answer,
        () = engine => unreachable!("the engine goes on"),
    };
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap())
}

fn picture() -> String {
    let pixels = RgbPixels {
        rgb: &[9; 48],
        width: 4,
        height: 4,
    };
    let file = BASE64_STANDARD.encode(png_file(pixels).unwrap());
    format!("data:image/png;base64,{file}")
}

fn piece(text: &str) -> Result<RequestNews, UnansweredRequest> {
    Ok(RequestNews::Piece(AnswerPiece::Text(text.into())))
}

fn answered(look: &Look, text: &str) -> Result<RequestNews, UnansweredRequest> {
    let body = AnswerBody::Text {
        text: text.into(),
        score: 0.5,
        source: Default::default(),
    };
    Ok(RequestNews::Answer(Box::new(answer(look, body))))
}

fn answer(look: &Look, body: AnswerBody) -> Answer {
    Answer {
        prompt: Arc::clone(&look.prompts[0]),
        region: None,
        body,
        truncated: false,
        unchanged: false,
        reasoning: None,
        tokens: TokenCounts {
            prompt: 740,
            answer: 3,
        },
        marks: StageTimes::default(),
    }
}

/// The last part of a body that is complete.
const END: &str = "\r\n0\r\n\r\n";

#[tokio::test]
async fn text_is_sent_piece_by_piece_in_both_shapes() {
    let api = served(&[]).await;
    for (is_chat, last) in [
        (false, "\"completed\":true"),
        (true, "\"total_tokens\":743}}\n\ndata: [DONE]\n\n"),
    ] {
        let mut client = StreamClient::ask(&api, is_chat).await;
        let BegunRequest { look, reply } = within(api.state.queue.next()).await;
        assert!(look.prompts[0].in_pieces);
        // Each arrives before the next is there.
        for text in ["two", " cars"] {
            reply.try_send(piece(text)).unwrap();
            assert!(client.until(&format!("\"{text}\"")).await);
            assert!(!client.answer.contains(last), "{}", client.answer);
        }
        reply.try_send(answered(&look, "two cars")).unwrap();
        assert!(client.until(END).await, "{}", client.answer);
        assert!(client.answer.contains(last), "{}", client.answer);
        assert!(client.answer.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(client.answer.contains("content-type: text/event-stream"));
    }
    api.close().await;
}

#[test]
fn thoughts_and_outlines_have_the_shapes_of_the_cloud() {
    let pixel = Picture::from_rgb(1, 1, vec![0; 3]).unwrap();
    let look = Look::still(pixel, [Task::Detect { object: "".into() }]);
    let reply = |skill| SkillReply {
        skill,
        request_id: "1".into(),
    };
    let segment = reply(ApiSkill::Segment);
    let bounds = NormBox::from_corners(0.0, 0.25, 0.5, 1.0);
    let outline = AnswerBody::Outline(Outline {
        bounds: Some(bounds),
        path: "M 0 0 L 1 0 1 1".into(),
        polygons: vec![vec![NormPoint::new(0.0, 0.25)]],
        parse_error: None,
        score: 0.5,
    });
    let bbox = json!({"x_min": 0.0, "y_min": 0.25, "x_max": 0.5, "y_max": 1.0});
    let path = AnswerPiece::Path("M 0 0".into());
    for (piece, expected) in [
        (
            AnswerPiece::Bounds(bounds),
            json!({"type": "bbox", "bbox": bbox}),
        ),
        (
            path,
            json!({"type": "path_delta", "chunk": "M 0 0", "completed": false}),
        ),
        (
            AnswerPiece::Thought("two".into()),
            json!({"reasoning": {"chunk": "two"}}),
        ),
    ] {
        assert_eq!(segment.piece(&piece), format!("data: {expected}\n\n"));
    }
    let mut expected = json!({
        "path": "M 0 0 L 1 0 1 1", "bbox": bbox, "polygons": [[[0.0, 0.25]]], "score": 0.5, "request_id": "1",
    });
    let outline = answer(&look, outline);
    assert_eq!(segment.whole(&outline), expected);
    let end = segment.end(&outline);
    let end: Value = serde_json::from_str(end.strip_prefix("data: ").unwrap()).unwrap();
    expected.as_object_mut().unwrap().remove("request_id");
    (expected["type"], expected["completed"]) = ("final".into(), true.into());
    assert_eq!(end, expected);

    let mut text = answer(&look, AnswerBody::Boxes(Vec::new()));
    text.reasoning = Some(Reasoning {
        text: "two".into(),
        grounding: vec![GroundedSpan {
            start: 0,
            end: 3,
            points: vec![NormPoint::new(0.25, 0.5)],
        }],
    });
    let expected = json!({
        "text": "two",
        "grounding": [{"start_idx": 0, "end_idx": 3, "points": [[0.25, 0.5]]}],
    });
    let reply = reply(ApiSkill::Query);
    assert_eq!(reply.whole(&text)["reasoning"], expected);
    assert!(reply.end(&text).contains(&expected.to_string()));
}

// Faults: K6.
#[tokio::test]
async fn client_that_leaves_a_stream_gives_back_its_place() {
    let api = served(&[]).await;
    let mut client = StreamClient::ask(&api, false).await;
    let BegunRequest { reply, .. } = within(api.state.queue.next()).await;
    reply.try_send(piece("two")).unwrap();
    assert!(client.until("two").await);
    assert_eq!(api.status().open, 1, "until its end");
    drop(client);
    within(reply.closed()).await;
    // The place is free, and the request is counted, in the same moment.
    assert_eq!(api.state.places.available_permits(), 1);
    assert_eq!(api.status().open, 0);
    api.close().await;
}

// Faults: K8.
#[tokio::test]
async fn early_failure_has_its_status_late_one_is_an_event() {
    let api = served(&[]).await;
    let mut client = StreamClient::ask(&api, false).await;
    let BegunRequest { reply, .. } = within(api.state.queue.next()).await;
    let why = UnansweredRequest::Unfit("the text has 3000 tokens".into());
    reply.try_send(Err(why)).unwrap();
    assert!(client.until("3000 tokens").await);
    assert!(client.answer.starts_with("HTTP/1.1 400"));
    for is_chat in [false, true] {
        let mut client = StreamClient::ask(&api, is_chat).await;
        let BegunRequest { reply, .. } = within(api.state.queue.next()).await;
        reply.try_send(piece("two")).unwrap();
        assert!(client.until("two").await);
        // The engine is lost. The body is cut.
        drop(reply);
        assert!(client.until("data: {\"error\":").await, "{}", client.answer);
        assert!(!client.until(END).await, "{}", client.answer);
        assert!(client.answer.contains("the engine stopped"));
        assert!(!client.answer.contains("[DONE]") && !client.answer.contains("completed"));
    }
    api.close().await;
}

fn question(variant: Value) -> Value {
    json!({"image_url": picture(), "question": "What?", "settings": {"variant": variant}})
}

#[tokio::test]
async fn request_names_its_adapter_or_gets_the_names() {
    let api = served(&["plates", "dogs"]).await;
    let without = served(&[]).await;
    let chat = |model: &str| chat_body(model, json!({}));
    for (api, path, body, status, expected) in [
        (&api, "/v1/query", question(json!("dogs")), 200, "dogs"),
        (&api, "/v1/query", question(json!(null)), 200, "none"),
        (&api, CHAT, chat("plates"), 200, "plates"),
        (&api, CHAT, chat("md3"), 200, "none"),
        (
            &api,
            "/v1/query",
            question(json!("cats")),
            404,
            "no adapter \"cats\"; there are: plates, dogs",
        ),
        (
            &api,
            CHAT,
            chat("gpt"),
            404,
            "no adapter \"gpt\"; there are: md3, plates, dogs",
        ),
        (&without, CHAT, chat("any"), 200, "none"),
        (
            &without,
            "/v1/query",
            question(json!("plates")),
            404,
            "no adapter is configured; leave \"variant\" out",
        ),
    ] {
        let (found, answer) = call(api, "POST", path, &body).await;
        assert_eq!(found, status, "{answer}");
        let texts = [
            &answer["answer"],
            &answer["choices"][0]["message"]["content"],
            &answer["error"]["message"],
        ];
        assert!(texts.contains(&&json!(expected)), "{expected}: {answer}");
    }
    let (_, models) = call(&api, "GET", "/v1/models", &json!(null)).await;
    let data = models["data"].as_array().unwrap();
    let listed = data.iter().map(|one| json!([one["id"], one["parent"]]));
    let expected = json!([["md3", null], ["plates", "md3"], ["dogs", "md3"]]);
    assert_eq!(listed.collect::<Value>(), expected);
}

// Faults: E11.
#[tokio::test]
async fn broken_adapter_fails_its_requests_alone() {
    let api = served(&["plates", "broken"]).await;
    let ask = async |name: &str| call(&api, "POST", "/v1/query", &question(json!(name))).await;
    assert_eq!(ask("plates").await.0, 200);
    let (status, body) = ask("broken").await;
    let message = "adapter broken: its file is cut off";
    assert_eq!((status, &body["error"]["message"]), (500, &json!(message)));
    assert_eq!(ask("plates").await.0, 200);
}
