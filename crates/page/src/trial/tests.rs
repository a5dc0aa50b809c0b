//! The test is the camera and the engine.

use std::future::{pending, ready};

use spotter_core::{
    AdapterId, Answer, AnswerBody, FoundObject, Mono, NormBox, NormPoint, Outline, QueryOptions,
    RegionBox, ScoreSource, SpatialReference, StageTimes, SystemClock, Task,
    testing::{answer_to, asked},
};
use spotter_pictures::{RgbPixels, png_file};
use tokio::task::JoinHandle;

use super::*;
use spotter_history::testing::{EVENT_ID, stored_event};
use spotter_requests::BegunRequest;

/// A camera `gate`, and `dock`, which sends no frame.
struct Cameras;

fn grey(grey: u8) -> Picture {
    Picture::from_rgb(64, 48, vec![grey; 64 * 48 * 3]).unwrap()
}

impl TrialSource for Cameras {
    fn camera(&self, camera: &str) -> Option<CameraConfig> {
        let person = PromptConfig {
            task: Task::Detect {
                object: "person".into(),
            },
            ..spotter_config::testing::prompt("person")
        };
        let plate = PromptConfig {
            task: Task::Query {
                question: "Whose van?".into(),
                choices: vec!["post".into(), "none".into()],
                options: QueryOptions::default(),
            },
            adapter: Some(AdapterId::new("vans").unwrap()),
            ..spotter_config::testing::prompt("van")
        };
        let known = ["gate", "dock"].contains(&camera);
        known.then(|| spotter_config::testing::camera(camera, vec![person, plate]))
    }

    fn next_picture(&self, camera: &CameraId, areas: ShownAreas) -> NextPicture {
        if camera.as_str() == "dock" {
            return Box::pin(pending());
        }
        let picture = grey(if areas == ShownAreas::Masked { 9 } else { 200 });
        let camera_size = (64, 48);
        Box::pin(ready(Some(CameraPicture {
            picture,
            camera_size,
        })))
    }

    fn unfit(&self, _: &CameraConfig, prompt: &PromptConfig) -> Option<String> {
        let is_fit = prompt.task.text() != "unfit";
        (!is_fit).then(|| "detect: the model cannot".to_owned())
    }

    fn cost(&self, camera: &CameraConfig, size: (usize, usize)) -> Option<PromptCost> {
        let region = camera.view_of(&camera.prompts[0]).part(size, None);
        let (width, height) = region.map_or(size, |part| (part.width, part.height));
        Some(PromptCost {
            pixels: (width as u32, height as u32),
            crops: 1,
            tflop: 1.5,
            share: Some(0.125),
            ..PromptCost::default()
        })
    }

    fn jpeg(&self, picture: &Picture) -> anyhow::Result<Vec<u8>> {
        Ok(format!("{} picture", picture.row(0, 0)[0]).into())
    }
}

/// All pictures end with the word picture.
pub(crate) fn trial_parts() -> TrialParts {
    TrialParts {
        source: Arc::new(Cameras),
        queue: Arc::default(),
    }
}

fn trials() -> (Arc<Trials>, Arc<RequestQueue>) {
    let (trials, parts) = (Arc::new(Trials::default()), trial_parts());
    let queue = Arc::clone(&parts.queue);
    trials.open(parts);
    (trials, queue)
}

async fn ask(trials: &Trials, body: &Value) -> Result<Value, TrialRefusal> {
    let body = trials.read(body.to_string().into()).await?;
    trials.answer(body, None).await
}

fn asking(trials: &Arc<Trials>, body: Value) -> JoinHandle<Result<Value, TrialRefusal>> {
    let trials = Arc::clone(trials);
    tokio::spawn(async move { ask(&trials, &body).await })
}

fn found<T>(place: T, score: f64) -> FoundObject<T> {
    FoundObject {
        place,
        score,
        source: ScoreSource::TokenProb,
        sharpness: 1.0,
    }
}

/// It took 250 ms.
fn answer(look: &Look, body: AnswerBody) -> Answer {
    let at = |ms: u64| Mono::from_nanos(ms * 1_000_000);
    let marks = StageTimes {
        taken: at(1000),
        generated: at(1250),
        ..StageTimes::default()
    };
    Answer {
        marks,
        ..answer_to(&look.prompts[0], body)
    }
}

#[tokio::test]
async fn two_asks_see_the_same_frame_as_the_cameras_prompts() {
    let (trials, queue) = trials();
    let asks = json!([
        {"kind": "detect", "words": "person", "region": [0, 0, 0.5, 0.5], "crops": 1},
        {"kind": "query", "words": "Is it dark?", "adapter": "vans", "choices": ["yes", "no"]},
    ]);
    let asked = asking(&trials, json!({"cam": "gate", "asks": asks}));
    let first = queue.next().await;
    let view = first.look.prompts[0].view;
    let quarter = RegionBox::new(NormBox::from_corners(0.0, 0.0, 0.5, 0.5));
    assert_eq!(
        (view.region, view.crops_max),
        (PromptRegion::Fixed(quarter), Some(1))
    );
    let boxes = [
        found(NormBox::from_corners(0.0, 0.0, 0.25, 0.5), 0.25),
        found(NormBox::from_corners(0.5, 0.0, 1.0, 0.5), 0.75),
    ];
    let boxes = AnswerBody::Boxes(boxes.into());
    let body = Box::new(answer(&first.look, boxes));
    first.reply.try_send(Ok(RequestNews::Answer(body))).unwrap();
    let second = queue.next().await;
    // The model sees the whole picture in as many crops as for a prompt of the camera.
    assert_eq!(second.look.prompts[0].view.width_max, Some(1280));
    let Task::Query { choices, .. } = &second.look.prompts[0].task else {
        panic!("{:?}", second.look.prompts[0]);
    };
    let adapter = second.look.prompts[0].adapter.as_ref();
    assert_eq!(
        (choices.join(" "), adapter.map(AdapterId::as_str)),
        ("yes no".into(), Some("vans"))
    );
    let rows = [&first.look, &second.look].map(|look| look.frame.picture.row(0, 0).as_ptr());
    assert_eq!(rows[0], rows[1], "the same picture");
    let text = AnswerBody::Text {
        text: "<b>yes</b>".into(),
        score: 0.5,
        source: ScoreSource::TokenProb,
    };
    let text = Box::new(answer(&second.look, text));
    let sent = second.reply.try_send(Ok(RequestNews::Answer(text)));
    sent.unwrap();
    let cost = |pixels: [u32; 2], mut json: Value| {
        let its = json!({"ms": 250.0, "truncated": false, "crops": 1, "pixels": pixels, "tflop": 1.5, "share": 0.125});
        let its = its.as_object().unwrap().clone();
        json.as_object_mut().unwrap().extend(its);
        json
    };
    let objects = json!([
        {"box": [0.5, 0.0, 1.0, 0.5], "score": 0.75},
        {"box": [0.0, 0.0, 0.25, 0.5], "score": 0.25},
    ]);
    let answers = [
        cost([32, 24], json!({"objects": objects})),
        cost([64, 48], json!({"text": "<b>yes</b>", "score": 0.5})),
    ];
    // The frame is masked.
    let jpeg = BASE64_STANDARD.encode("9 picture");
    let expected =
        json!({"size": [64, 48], "camera_size": [64, 48], "jpeg": jpeg, "answers": answers});
    assert_eq!(asked.await.unwrap().unwrap(), expected);
}

#[tokio::test]
async fn picture_of_the_client_has_outlines_and_no_rate() {
    let (trials, queue) = trials();
    let pixels = RgbPixels {
        rgb: &[9; 48],
        width: 4,
        height: 4,
    };
    let file = BASE64_STANDARD.encode(png_file(pixels).unwrap());
    let asks = json!([{"kind": "segment", "words": "car"}]);
    let image = format!("data:image/png;base64,{file}");
    let asking = asking(&trials, json!({"image": image, "asks": asks}));
    let BegunRequest { look, reply } = queue.next().await;
    assert_eq!(look.prompts[0].outlines_max, 3);
    let place = NormBox::from_corners(0.1, 0.2, 1.0 / 3.0, 0.5);
    let question = Task::Segment {
        object: "car".into(),
        places: vec![SpatialReference::Box(RegionBox::new(place))],
    };
    let outline = AnswerBody::Outline(Outline {
        bounds: Some(place),
        path: String::new(),
        polygons: vec![vec![NormPoint::new(0.1, 0.2)]],
        parse_error: None,
        score: 0.5,
    });
    let outline = Answer {
        prompt: asked("outline-0", 0, question),
        ..answer(&look, outline)
    };
    let boxes = AnswerBody::Boxes(vec![found(place, 0.5)]);
    for news in [
        RequestNews::Outline(Box::new(outline)),
        RequestNews::Answer(Box::new(answer(&look, boxes))),
    ] {
        reply.try_send(Ok(news)).unwrap();
    }
    let answer = asking.await.unwrap().unwrap();
    assert_eq!(
        (&answer["jpeg"], &answer["size"]),
        (&Value::Null, &json!([4, 4]))
    );
    let found = &answer["answers"][0];
    let expected =
        json!([{"box": [0.1, 0.2, 0.3333, 0.5], "polygons": [[[0.1, 0.2]]], "score": 0.5}]);
    assert_eq!(found["objects"], expected);
    assert_eq!(found["share"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn wrong_requests_are_refused_with_what_is_wrong() {
    let (trials, _) = trials();
    let detect = json!([{"kind": "detect", "words": "person"}]);
    let with = |key: &str, value: Value| {
        let mut ask = json!({"kind": "detect", "words": "person"});
        ask[key] = value;
        json!({"cam": "gate", "asks": [ask]})
    };
    let long = format!("data:image/png;base64,{}", "A".repeat(URL_MAX_BYTES));
    let longer = "A".repeat(TRIAL_MAX_BYTES);
    for (body, status, part) in [
        (json!({"asks": detect}), 422, "exactly one of cam, image"),
        (
            json!({"cam": "gate", "image": "", "asks": detect}),
            422,
            "exactly one",
        ),
        (json!({"cam": "gate", "asks": []}), 422, "1 to 2"),
        (
            json!({"cam": "gate", "asks": [detect[0], detect[0], detect[0]]}),
            422,
            "1 to 2",
        ),
        (
            json!({"image": "", "event": "a", "asks": detect}),
            422,
            "event only with cam",
        ),
        (
            json!({"cam": "gate", "event": "a", "asks": detect}),
            404,
            "no events are stored",
        ),
        (json!({"cam": "roof", "asks": detect}), 404, "\"roof\""),
        (
            json!({"cam": "dock", "asks": detect}),
            503,
            "camera dock sent no frame within 10 s",
        ),
        (
            json!({"image": "https://a.example/a.jpg", "asks": detect}),
            422,
            "fetches no pictures",
        ),
        (
            json!({"image": long, "asks": detect}),
            413,
            "more than 10 MB",
        ),
        (
            json!({"image": longer, "asks": detect}),
            413,
            "more than 10 MB",
        ),
        (with("kind", json!("caption")), 422, "unknown variant"),
        (with("crop", json!(1)), 422, "unknown field"),
        // Of one ask alone.
        (with("words", json!(" ")), 200, "prompt.detect"),
        (
            with("words", json!("unfit")),
            200,
            "detect: the model cannot",
        ),
        (with("region", json!([0, 0, 0, 1])), 200, "x1 is 0"),
        (
            with("region", json!("motion")),
            200,
            "elsewhere in each frame",
        ),
        (with("region", json!("drive")), 200, "prompt.region"),
        (with("crops", json!(99)), 200, "prompt.crops"),
    ] {
        let (found, error) = match ask(&trials, &body).await {
            Ok(answer) => (200, answer["answers"][0]["error"].to_string()),
            Err(refusal) => {
                let text = refusal.to_string();
                (refusal.into_response().status().as_u16(), text)
            }
        };
        assert_eq!(found, status, "{error}");
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(trials.places.available_permits(), PLACES);
}

// Faults: K5.
#[tokio::test(start_paused = true)]
async fn ask_without_room_is_refused_and_gives_its_place_back() {
    let (trials, queue) = trials();
    let body = || json!({"cam": "gate", "asks": [{"kind": "point", "words": "person"}]});
    let refused = ask(&trials, &body()).await.unwrap_err().into_response();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[axum::http::header::RETRY_AFTER], "5");

    let (mut waiting, mut begun) = (Vec::new(), Vec::new());
    for _ in 0..PLACES {
        waiting.push(asking(&trials, body()));
        // In the same order.
        begun.push(queue.next().await);
    }
    for refused in [
        ask(&trials, &body()).await.map(drop).unwrap_err(),
        trials.now("gate", ShownAreas::Masked).await.unwrap_err(),
    ] {
        assert!(matches!(refused, TrialRefusal::NoPlace), "{refused}");
    }
    // The engine fails at one, and is lost with another; clients disconnect.
    let failed = UnansweredRequest::Failed("the device".into());
    begun.pop().unwrap().reply.try_send(Err(failed)).unwrap();
    drop(begun.pop());
    waiting[0].abort();
    waiting[1].abort();
    let mut errors = Vec::new();
    for asked in waiting {
        if let Ok(answer) = asked.await {
            errors.push(answer.unwrap()["answers"][0]["error"].to_string());
        }
    }
    errors.sort();
    assert!(
        errors[0].contains("engine failed at this request: the device"),
        "{errors:?}"
    );
    assert!(
        errors[1].contains("stopped while it answered"),
        "{errors:?}"
    );
    assert_eq!(
        (errors.len(), trials.places.available_permits()),
        (2, PLACES)
    );
    for request in begun {
        assert!(request.reply.is_closed());
    }

    queue.close();
    let stopping = ask(&trials, &body()).await.unwrap_err().into_response();
    assert_eq!(stopping.status(), StatusCode::SERVICE_UNAVAILABLE);
    let starting = Trials::default().prompts("gate").unwrap_err();
    assert!(matches!(starting, TrialRefusal::Starting));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_picture_of_an_event_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let history = stored_event(folder.path());
    let events = EventAnswers::new(Some(history), Arc::new(SystemClock::new()));
    let (trials, _) = trials();
    let asks = json!([{"kind": "detect", "words": "person"}]);
    for (event, status, part) in [
        // Its picture is no file of a camera.
        (EVENT_ID, 422, "neither JPEG nor PNG"),
        ("unknown", 404, "no such event"),
    ] {
        let body = json!({"cam": "gate", "event": event, "asks": asks});
        let body = trials.read(body.to_string().into()).await.unwrap();
        let refused = trials.answer(body, Some(&events)).await.unwrap_err();
        assert!(refused.to_string().contains(part), "{refused}");
        assert_eq!(refused.into_response().status(), status);
    }
}

#[tokio::test]
async fn camera_shows_its_frame_and_its_prompts() {
    let (trials, _) = trials();
    for (areas, shown) in [
        (ShownAreas::Masked, "9 picture"),
        (ShownAreas::Whole, "200 picture"),
    ] {
        assert_eq!(trials.now("gate", areas).await.unwrap(), shown);
    }
    let prompt = json!({
        "id": "person", "kind": "detect", "words": "person", "region": null, "crops": null, "min_score": 0.0, "adapter": null, "choices": [],
    });
    let van = json!({
        "id": "van", "kind": "query", "words": "Whose van?", "region": null, "crops": null, "min_score": 0.0, "adapter": "vans",
        "choices": ["post", "none"],
    });
    let expected = json!({"prompts": [prompt, van], "rate_hz": 1.0});
    assert_eq!(trials.prompts("gate").unwrap(), expected);
}
