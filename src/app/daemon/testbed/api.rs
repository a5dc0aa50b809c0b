//! The HTTP API of a whole daemon: a client asks about pictures while cameras are watched.
//!
//! Faults: H5, H9, H11.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;
use tokio::sync::watch;

use super::*;
use spotter_pictures::{RgbPixels, png_file};

const TOKEN: &str = "0123456789abcdef";

// Faults: K5.
#[test]
fn api_answers_clients_beside_the_cameras() {
    let test = "app::daemon::testbed::api::api_answers_clients_beside_the_cameras";
    let check_log = |log: &str| {
        assert_eq!(lines_but(log, " ERROR ", &[]), [""; 0]);
        assert!(!log.contains(TOKEN), "{log}");
        assert_eq!(log.matches("token is missing or unknown").count(), 1);
    };
    if is_alone(test, &[("API_TOKEN", TOKEN)], check_log) {
        crate::app::runtime().unwrap().block_on(answers());
    }
}

/// A client of the API.
#[derive(Clone)]
pub(super) struct ApiCaller {
    pub(super) api: SocketAddr,
    pub(super) token: Option<&'static str>,
}

impl ApiCaller {
    /// Of an API that will listen on a free address.
    pub(super) fn new(token: Option<&'static str>) -> Self {
        Self {
            api: free_address(),
            token,
        }
    }

    /// Status and body of an answer; status 0 without one.
    pub(super) async fn send(&self, method: &str, path: &str, body: String) -> (u16, String) {
        let token = self
            .token
            .map(|token| format!("Authorization: Bearer {token}\r\n"));
        let (api, request) = (self.api, format!("{method} {path}"));
        let answer =
            spawn_blocking(move || exchange(api, &request, &token.unwrap_or_default(), &body));
        answer.await.unwrap()
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, body) = self.send("POST", path, body.to_string()).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    async fn detect(&self) -> (u16, Value) {
        let body = json!({"image_url": picture(), "object": "thing"});
        self.post("/v1/detect", body).await
    }
}

/// The data URL of a small picture.
pub(super) fn picture() -> String {
    let pixels = RgbPixels {
        rgb: &[9, 99, 200].repeat(64 * 48),
        width: 64,
        height: 48,
    };
    let encoded = BASE64_STANDARD.encode(png_file(pixels).unwrap());
    format!("data:image/png;base64,{encoded}")
}

async fn answers() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let client = ApiCaller::new(Some(TOKEN));
    let api = client.api;
    let section = format!(
        "[api]\nlisten = \"{api}\"\ntokens = [{{ env = \"API_TOKEN\" }}]\nrate = 100\nmax_body_mb = 1\nwait = \"300ms\"\n"
    );
    testbed.write(&(testbed.text() + &section));
    let (allow, allowed) = watch::channel(false);
    let scene = testbed.scene.clone();
    let engines: Arc<OpenEngines> = Arc::new(move |plan| {
        let (mut allowed, scene) = (allowed.clone(), scene.clone());
        Box::pin(async move {
            allowed.wait_for(|allowed| *allowed).await?;
            engine(plan, scene).await
        })
    });
    let scenario = async {
        while client.send("GET", "/health", String::new()).await.0 != 503 {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(client.detect().await.0, 503, "the model is being opened");
        let opening = (503, "the model is being opened\n".to_owned());
        assert_eq!(get(testbed.page, "/readyz"), opening);
        assert_eq!(get(testbed.page, "/status.json").0, 503);
        allow.send_replace(true);
        host::all_see(&testbed).await;
        finds_what_the_picture_shows(&client, &testbed).await;
        refuses_what_it_does_not_accept(&client).await;
        is_counted(&testbed).await;
        answers_programs_that_look_around(&client).await;
        gives_no_place_to_slow_bodies(&client).await;
        gives_way_to_the_cameras(&client, &testbed).await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_with(machine_clock(), engines, scenario).await;
    assert!(report.balanced(), "{report}");
    let counted = report.frame_counters.iter();
    let counted = counted.map(|(camera, _)| camera.as_str());
    // By name.
    let cameras = ["dock", "gate", "roof", "yard"];
    assert_eq!(Vec::from_iter(counted), cameras, "a request is no frame");
    let topics = testbed.broker.consumed().into_iter().map(|one| one.topic);
    assert_eq!(topics.filter(|topic| topic.contains("still)")).count(), 0);
    assert_eq!(client.detect().await.0, 0, "stopped");
}

async fn finds_what_the_picture_shows(client: &ApiCaller, testbed: &Testbed) {
    let (status, answer) = client.detect().await;
    assert_eq!((status, &answer["objects"]), (200, &json!([])), "{answer}");
    let camera = CameraId::of_still();
    testbed.scene.show(camera.as_str(), true);
    let (status, answer) = client.detect().await;
    assert_eq!(status, 200, "{answer}");
    let objects = answer["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 1);
    let middle = |low: &str, high: &str| {
        let side = |key| objects[0][key].as_f64().unwrap();
        (side(low) + side(high)) / 2.0
    };
    for middle in [middle("x_min", "x_max"), middle("y_min", "y_max")] {
        assert!((middle - 0.5).abs() < 0.01, "{answer}");
    }
    let body = json!({"image_url": picture(), "object": "thing"});
    let (_, answer) = client.post("/v1/point", body).await;
    assert!((answer["points"][0]["x"].as_f64().unwrap() - 0.5).abs() < 0.01);
    let image = json!({"type": "image_url", "image_url": {"url": picture()}});
    let parts = json!([{"type": "text", "text": "What is it?"}, image]);
    let chat = json!({"model": "any", "messages": [{"role": "user", "content": parts}]});
    let (status, answer) = client.post("/v1/chat/completions", chat).await;
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    assert!(choice["message"]["content"].is_string(), "{answer}");
    let tokens = |key| answer["usage"][key].as_u64().unwrap();
    assert!(
        tokens("prompt_tokens") > 1 && tokens("completion_tokens") > 0,
        "{answer}"
    );
    assert_eq!(
        tokens("total_tokens"),
        tokens("prompt_tokens") + tokens("completion_tokens")
    );
    let (status, models) = client.send("GET", "/v1/models", String::new()).await;
    assert!(
        status == 200 && models.contains("\"simulated\""),
        "{models}"
    );
}

async fn refuses_what_it_does_not_accept(client: &ApiCaller) {
    for token in [None, Some("fedcba9876543210")] {
        let stranger = ApiCaller {
            token,
            ..client.clone()
        };
        let (status, answer) = stranger.detect().await;
        assert_eq!(status, 401);
        assert_eq!(answer["error"]["type"], "authentication_error");
    }
    let text = format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode("text"));
    let detect = |image: &str| json!({"image_url": image, "object": "thing"});
    for (path, body, status, part) in [
        ("/v1/detect", detect(&text), 400, "neither JPEG nor PNG"),
        (
            "/v1/detect",
            detect("https://example.net/a.jpg"),
            400,
            "fetches no pictures",
        ),
        (
            "/v1/detect",
            detect(&"x".repeat(1_100_000)),
            413,
            "longer than 1 MB",
        ),
        ("/v1/query", detect(&picture()), 400, "\"question\""),
        // The embedded model is a Moondream 2.
        ("/v1/segment", detect(&picture()), 400, "draws no outlines"),
        ("/v1/gaze", detect(&picture()), 404, "no such path"),
        ("/v1/models", json!({}), 405, "POST"),
    ] {
        let (found, answer) = client.post(path, body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            found == status && message.contains(part),
            "{found} {answer}"
        );
    }
}

async fn is_counted(testbed: &Testbed) {
    let counts = "spotter_api_requests_total{endpoint=\"detect\",status=\"401\"} 2";
    until("metrics", || testbed.metrics().contains(counts)).await;
    let api = &testbed.status()["api"];
    assert_eq!(
        (&api["tokens"], &api["answered"], &api["failed"]),
        (&json!(1), &json!(5), &json!(1)),
        "{api}"
    );
}

async fn answers_programs_that_look_around(client: &ApiCaller) {
    let stranger = ApiCaller {
        token: None,
        ..client.clone()
    };
    for (client, path) in [(&stranger, "/health"), (client, "/v1/models")] {
        let answer = client.send("HEAD", path, String::new()).await;
        assert_eq!(answer, (200, String::new()), "HEAD {path}");
    }
    let hello = json!({"model": "any", "messages": [{"role": "user", "content": "Hi"}]});
    let (status, answer) = client.post("/v1/chat/completions", hello).await;
    assert_eq!(status, 200, "{answer}");
    let text = answer["choices"][0]["message"]["content"].as_str();
    assert!(text.unwrap().contains("image_url"), "{answer}");
}

/// More bodies than the API has places, each of which never ends.
async fn gives_no_place_to_slow_bodies(client: &ApiCaller) {
    let head = format!(
        "POST /v1/detect HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 5000\r\n\r\n{{",
        client.api
    );
    let slow = (0..12).map(|_| {
        let mut stream = TcpStream::connect(client.api).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
    let slow: Vec<TcpStream> = slow.collect();
    // The server has read their heads when it answers a later request.
    for _ in 0..5 {
        let (status, answer) = client.detect().await;
        assert_eq!(status, 200, "{answer}");
    }
    drop(slow);
}

async fn gives_way_to_the_cameras(client: &ApiCaller, testbed: &Testbed) {
    testbed.scene.hang(true);
    until("the engine waits for its device", || {
        testbed.scene.is_awaited()
    })
    .await;
    // Of all cameras. The metrics are of the last seconds: those of before show permits that are free again.
    let sum = |metric: &str| -> u64 {
        let metrics = testbed.metrics();
        let of_camera = format!("{metric}{{camera=");
        let lines = metrics.lines().filter(|line| line.starts_with(&of_camera));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    };
    let before = sum("spotter_ingest_frames_total");
    until("the cameras have both permits", || {
        sum("spotter_ingest_frames_total") > before && sum("spotter_engine_frames_in_flight") >= 2
    })
    .await;
    let (status, answer) = client.detect().await;
    assert_eq!(status, 429, "{answer}");
    testbed.scene.hang(false);
    while client.detect().await.0 != 200 {
        sleep(Duration::from_millis(50)).await;
    }
}
