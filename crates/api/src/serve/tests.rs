//! The API over loopback HTTP. The test is the engine.

mod adapters;

use std::future::Future;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::*;
use crate::{BegunRequest, RequestNews, UnansweredRequest};
use spotter_core::{
    Answer, AnswerBody, AnswerPiece, GroundedSpan, ManualClock, NormBox, NormPoint, Outline,
    Reasoning, StageTimes, Task, TokenCounts,
};
use spotter_pictures::{RgbPixels, png_file};

/// Generous, because it says nothing about speed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes too long")
}

/// An API with room for one request.
async fn served() -> ServedApi {
    let config = ApiConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tokens: Vec::new(),
        rate_hz: 1000.0,
        max_body_mb: 1,
        requests: 1,
        wait: PATIENCE,
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let api = ServedApi::start(Some(&config), HostNames::default(), &clock).await;
    let api = api.unwrap().expect("an API");
    api.open("md2", &[]);
    api
}

/// A client that reads as the answer comes.
struct StreamClient {
    stream: TcpStream,
    answer: String,
}

impl StreamClient {
    /// Sends the keys with a small picture.
    async fn post(api: &ServedApi, path: &str, body: Value) -> Self {
        let (address, body) = (api.state.address, body.to_string());
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = String::new();
        Self { stream, answer }
    }

    async fn query(api: &ServedApi) -> Self {
        let body = json!({"image_url": picture(), "question": "What is it?", "stream": true});
        Self::post(api, "/v1/query", body).await
    }

    async fn chat(api: &ServedApi) -> Self {
        let image = json!({"type": "image_url", "image_url": {"url": picture()}});
        let parts = json!([{"type": "text", "text": "What is it?"}, image]);
        let messages = json!([{"role": "user", "content": parts}]);
        let options = json!({"include_usage": true});
        let body = json!({"messages": messages, "stream": true, "stream_options": options});
        Self::post(api, "/v1/chat/completions", body).await
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

fn picture() -> String {
    let pixels = RgbPixels {
        rgb: &[9; 48],
        width: 4,
        height: 4,
    };
    let file = BASE64_STANDARD.encode(png_file(pixels).unwrap());
    format!("data:image/png;base64,{file}")
}

fn thought(text: &str) -> Result<RequestNews, UnansweredRequest> {
    Ok(RequestNews::Piece(AnswerPiece::Thought(text.into())))
}

fn piece(text: &str) -> Result<RequestNews, UnansweredRequest> {
    Ok(RequestNews::Piece(AnswerPiece::Text(text.into())))
}

fn answer(look: &Look, text: &str) -> Result<RequestNews, UnansweredRequest> {
    Ok(RequestNews::Answer(Box::new(Answer {
        prompt: Arc::clone(&look.prompts[0]),
        region: None,
        body: AnswerBody::Text {
            text: text.into(),
            score: 0.5,
            source: Default::default(),
        },
        truncated: false,
        unchanged: false,
        reasoning: None,
        tokens: TokenCounts {
            prompt: 740,
            answer: 3,
        },
        marks: StageTimes::default(),
    })))
}

/// The last part of a body that is complete.
const END: &str = "\r\n0\r\n\r\n";

#[tokio::test]
async fn text_is_sent_piece_by_piece_in_both_shapes() {
    let api = served().await;
    let last = [
        "\"completed\":true",
        "\"total_tokens\":743}}\n\ndata: [DONE]\n\n",
    ];
    for (is_chat, last) in [false, true].into_iter().zip(last) {
        let mut client = match is_chat {
            false => StreamClient::query(&api).await,
            true => StreamClient::chat(&api).await,
        };
        let BegunRequest { look, reply } = within(api.queue().next()).await;
        assert!(look.in_pieces);
        // Each arrives before the next is there.
        for text in ["two", " cars"] {
            reply.try_send(piece(text)).unwrap();
            assert!(
                client.until(&format!("\"{text}\"")).await,
                "{}",
                client.answer
            );
            assert!(!client.answer.contains(last));
        }
        reply.try_send(answer(&look, "two cars")).unwrap();
        assert!(client.until(END).await, "{}", client.answer);
        assert!(client.answer.contains(last), "{}", client.answer);
        assert!(client.answer.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(client.answer.contains("content-type: text/event-stream"));
    }
    api.close().await;
}

#[tokio::test]
async fn thoughts_come_before_the_answer_with_their_points() {
    let api = served().await;
    let points = vec![NormPoint::new(0.25, 0.5)];
    let grounding = vec![GroundedSpan {
        start: 0,
        end: 3,
        points,
    }];
    let reasoning = Reasoning {
        text: "two".into(),
        grounding,
    };
    let expected = json!({
        "text": "two",
        "grounding": [{"start_idx": 0, "end_idx": 3, "points": [[0.25, 0.5]]}],
    });
    for is_streamed in [false, true] {
        let body = json!({"image_url": picture(), "question": "What is it?", "reasoning": true, "stream": is_streamed});
        let mut client = StreamClient::post(&api, "/v1/query", body).await;
        let BegunRequest { look, reply } = within(api.queue().next()).await;
        let Task::Query { options, .. } = &look.prompts[0].task else {
            panic!("{look:?}");
        };
        assert!(options.reasoning);
        if is_streamed {
            reply.try_send(thought("two")).unwrap();
            let part = "data: {\"reasoning\":{\"chunk\":\"two\"}}\n\n";
            assert!(client.until(part).await, "{}", client.answer);
        }
        let Ok(RequestNews::Answer(mut whole)) = answer(&look, "two cars") else {
            panic!("an answer");
        };
        whole.reasoning = Some(reasoning.clone());
        reply.try_send(Ok(RequestNews::Answer(whole))).unwrap();
        assert!(
            client.until(&expected.to_string()).await,
            "{}",
            client.answer
        );
    }
    api.close().await;
}

#[tokio::test]
async fn outline_is_sent_as_box_path_and_whole() {
    let api = served().await;
    let bounds = NormBox::from_corners(0.0, 0.25, 0.5, 1.0);
    let outline = Outline {
        bounds: Some(bounds),
        path: "M 0 0 L 1 0 1 1".into(),
        polygons: vec![vec![NormPoint::new(0.0, 0.25)]],
        parse_error: None,
        score: 0.5,
    };
    let bbox = json!({"x_min": 0.0, "y_min": 0.25, "x_max": 0.5, "y_max": 1.0});
    for is_streamed in [false, true] {
        let places = json!([[0.5, 0.5]]);
        let body = json!({"image_url": picture(), "object": "cat", "spatial_refs": places, "stream": is_streamed});
        let mut client = StreamClient::post(&api, "/v1/segment", body).await;
        let BegunRequest { look, reply } = within(api.queue().next()).await;
        assert_eq!(look.in_pieces, is_streamed);
        assert!(matches!(&look.prompts[0].task, Task::Segment { places, .. } if places.len() == 1));
        if is_streamed {
            let path = AnswerPiece::Path("M 0 0".into());
            for (piece, event) in [
                (
                    AnswerPiece::Bounds(bounds),
                    json!({"type": "bbox", "bbox": bbox}),
                ),
                (
                    path,
                    json!({"type": "path_delta", "chunk": "M 0 0", "completed": false}),
                ),
            ] {
                reply.send(Ok(RequestNews::Piece(piece))).await.unwrap();
                let event = format!("data: {event}\n\n");
                assert!(client.until(&event).await, "{}", client.answer);
            }
        }
        let Ok(RequestNews::Answer(mut whole)) = answer(&look, "") else {
            panic!("an answer");
        };
        whole.body = AnswerBody::Outline(outline.clone());
        reply.send(Ok(RequestNews::Answer(whole))).await.unwrap();
        let mut parts = vec![
            "\"path\":\"M 0 0 L 1 0 1 1\"".to_owned(),
            format!("\"bbox\":{bbox}"),
            "\"polygons\":[[[0.0,0.25]]]".to_owned(),
        ];
        if is_streamed {
            parts.extend(["\"type\":\"final\"", "\"completed\":true"].map(str::to_owned));
        }
        for part in parts {
            assert!(client.until(&part).await, "{part}: {}", client.answer);
        }
        assert!(!client.answer.contains("parse_error"));
    }
    api.close().await;
}

// Faults: K6.
#[tokio::test]
async fn client_that_leaves_a_stream_gives_back_its_place() {
    let api = served().await;
    let mut client = StreamClient::query(&api).await;
    let BegunRequest { reply, .. } = within(api.queue().next()).await;
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

#[tokio::test]
async fn failure_before_the_first_piece_has_its_status() {
    let api = served().await;
    let mut client = StreamClient::query(&api).await;
    let BegunRequest { reply, .. } = within(api.queue().next()).await;
    let why = UnansweredRequest::Unfit("the text has 3000 tokens".into());
    reply.try_send(Err(why)).unwrap();
    assert!(client.until("3000 tokens").await);
    assert!(
        client.answer.starts_with("HTTP/1.1 400"),
        "{}",
        client.answer
    );
    api.close().await;
}

// Faults: K8.
#[tokio::test]
async fn late_failure_is_an_event_and_cuts_the_body() {
    let api = served().await;
    for is_chat in [false, true] {
        let mut client = match is_chat {
            false => StreamClient::query(&api).await,
            true => StreamClient::chat(&api).await,
        };
        let BegunRequest { reply, .. } = within(api.queue().next()).await;
        reply.try_send(piece("two")).unwrap();
        assert!(client.until("two").await);
        // The engine is lost.
        drop(reply);
        assert!(client.until("data: {\"error\":").await, "{}", client.answer);
        assert!(!client.until(END).await, "{}", client.answer);
        assert!(client.answer.contains("the engine stopped"));
        assert!(!client.answer.contains("[DONE]"));
        assert!(!client.answer.contains("completed"));
    }
    api.close().await;
}
