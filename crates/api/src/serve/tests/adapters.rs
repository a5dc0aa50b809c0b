//! Requests that name an adapter, over a socket, with an engine that a test plays.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use super::{super::*, picture};
use crate::{RequestNews, UnansweredRequest};
use spotter_config::{Environment, of_text};
use spotter_core::{Answer, AnswerBody, StageTimes, SystemClock, TokenCounts};

/// Status and body of the answer.
async fn call(api: SocketAddr, method: &'static str, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {api}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = move || {
        let mut stream = TcpStream::connect(api).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = spawn_blocking(exchange).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// Answers with the adapter's name; `broken` cannot be read.
async fn play_engine(queue: Arc<RequestQueue>) {
    loop {
        let begun = queue.next().await;
        let prompt = Arc::clone(&begun.look.prompts[0]);
        let adapter = prompt.adapter.clone();
        let reply = match adapter {
            Some(id) if id.as_str() == "broken" => Err(UnansweredRequest::Adapter {
                id,
                reason: "its file is cut off".into(),
            }),
            adapter => Ok(RequestNews::Answer(Box::new(Answer {
                reasoning: None,
                prompt,
                region: None,
                body: AnswerBody::Text {
                    text: adapter.map_or("none".into(), |id| id.to_string()),
                    score: 1.0,
                    source: Default::default(),
                },
                truncated: false,
                unchanged: false,
                tokens: TokenCounts::default(),
                marks: StageTimes::default(),
            }))),
        };
        let _ = begun.reply.try_send(reply);
    }
}

/// An API whose model is called `md3`, with these adapters.
async fn api_with(adapters: &[&str]) -> (ServedApi, SocketAddr) {
    let text = "mqtt.url = \"mqtt://127.0.0.1:1\"\nmodel.path = \"embedded\"\n[api]\nlisten = \"127.0.0.1:0\"\nrate = 1000\n\
         [camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";
    let loaded = of_text("site.toml", text, &Environment::process()).unwrap();
    let config = loaded.config;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let names = HostNames::of_this_machine(&[]);
    let api = ServedApi::start(config.api.as_ref(), names, &clock).await;
    let api = api.unwrap().unwrap();
    let adapters = adapters.iter().map(|name| AdapterConfig {
        id: AdapterId::new(name).unwrap(),
        path: name.into(),
    });
    api.open("md3", &adapters.collect::<Vec<_>>());
    tokio::spawn(play_engine(Arc::clone(api.queue())));
    let address = api.status().address.parse().unwrap();
    (api, address)
}

fn question(variant: &Value) -> Value {
    json!({"image_url": picture(), "question": "What?", "settings": {"variant": variant}})
}

fn chat_with(model: &str) -> Value {
    let image = json!({"type": "image_url", "image_url": {"url": picture()}});
    let parts = json!([{"type": "text", "text": "What?"}, image]);
    json!({"model": model, "messages": [{"role": "user", "content": parts}]})
}

fn message(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_names_its_adapter_or_gets_the_names() {
    let (_api, address) = api_with(&["plates", "dogs"]).await;
    for (variant, text) in [(json!("dogs"), "dogs"), (json!(null), "none")] {
        let (status, body) = call(address, "POST", "/v1/query", &question(&variant)).await;
        assert_eq!((status, &body["answer"]), (200, &json!(text)), "{body}");
    }
    for (model, text) in [("plates", "plates"), ("md3", "none")] {
        let path = "/v1/chat/completions";
        let (status, body) = call(address, "POST", path, &chat_with(model)).await;
        let content = &body["choices"][0]["message"]["content"];
        assert_eq!((status, content), (200, &json!(text)), "{body}");
    }
    let unknown = call(address, "POST", "/v1/query", &question(&json!("cats"))).await;
    assert_eq!(unknown.0, 404);
    assert_eq!(
        message(&unknown.1),
        "no adapter \"cats\"; there are: plates, dogs"
    );
    let path = "/v1/chat/completions";
    let unknown = call(address, "POST", path, &chat_with("gpt")).await;
    assert_eq!(unknown.0, 404);
    assert_eq!(
        message(&unknown.1),
        "no adapter \"gpt\"; there are: md3, plates, dogs"
    );

    let (_, models) = call(address, "GET", "/v1/models", &json!(null)).await;
    let data = models["data"].as_array().unwrap();
    let listed: Vec<_> = data
        .iter()
        .map(|one| (&one["id"], &one["parent"]))
        .collect();
    let [md3, plates, dogs] = ["md3", "plates", "dogs"].map(Value::from);
    assert_eq!(
        listed,
        [(&md3, &Value::Null), (&plates, &md3), (&dogs, &md3)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_adapters_any_model_name_is_accepted() {
    let (_api, address) = api_with(&[]).await;
    let path = "/v1/chat/completions";
    assert_eq!(call(address, "POST", path, &chat_with("any")).await.0, 200);
    let (status, body) = call(address, "POST", "/v1/query", &question(&json!("plates"))).await;
    assert_eq!(status, 404);
    assert_eq!(
        message(&body),
        "no adapter is configured; leave \"variant\" out"
    );
}

// Faults: E11.
#[tokio::test(flavor = "multi_thread")]
async fn broken_adapter_fails_its_requests_alone_and_is_in_health() {
    let (api, address) = api_with(&["plates", "broken"]).await;
    let ask = async |name: &str| call(address, "POST", "/v1/query", &question(&json!(name))).await;
    assert_eq!(ask("plates").await.0, 200);
    let (status, body) = ask("broken").await;
    assert_eq!(
        (status, message(&body)),
        (500, "adapter broken: its file is cut off")
    );
    assert_eq!(ask("plates").await.0, 200);
    let trouble = "adapter broken: its file is cut off; requests with it fail";
    assert_eq!(api.troubles(), [trouble]);

    // One that could not be read at the start is named until a request has it.
    let plates = AdapterId::new("plates").unwrap();
    api.queue().adapter_is_broken(plates, "not there".into());
    assert_eq!(api.troubles().len(), 2);
    assert_eq!(ask("plates").await.0, 200);
    assert_eq!(api.troubles(), [trouble]);
}
