//! Words that are tried at the page of a whole daemon without `[api]`, while cameras are watched.

use serde_json::json;

use super::*;

#[test]
fn page_answers_words_beside_the_cameras() {
    let test = "app::daemon::testbed::trial::page_answers_words_beside_the_cameras";
    alone_without_an_error(test, answers());
}

/// Status and body of the answer to what a browser on this machine tries.
pub(super) async fn try_words(testbed: &Testbed, body: Value) -> (u16, Value) {
    let page = testbed.page;
    let headers = format!("Origin: http://{page}\r\nContent-Type: application/json\r\n");
    let answer =
        spawn_blocking(move || exchange(page, "POST /try", &headers, &body.to_string())).await;
    let (status, body) = answer.unwrap();
    (status, serde_json::from_str(&body).unwrap_or_default())
}

async fn answers() {
    let (_servers, testbed) = testbed_with_good_cameras().await;
    let scenario = async {
        host::all_see(&testbed).await;
        // As the engine names what is from no camera's look.
        testbed.scene.show(CameraId::of_still().as_str(), true);
        let asks = json!([
            {"kind": "detect", "words": "thing"},
            {"kind": "point", "words": "thing", "region": [0.25, 0.25, 0.75, 0.75], "crops": 1},
        ]);
        let body = json!({"cam": "gate", "asks": asks});
        let (status, answer) = try_words(&testbed, body.clone()).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["size"], answer["camera_size"]);
        assert!(answer["jpeg"].as_str().unwrap().starts_with("/9j/"));
        let [whole, part] = [0, 1].map(|ask| &answer["answers"][ask]);
        let numbers: Vec<f64> = serde_json::from_value(whole["objects"][0]["box"].clone()).unwrap();
        let middle = [0, 1].map(|axis| (numbers[axis] + numbers[axis + 2]) / 2.0);
        let point: [f64; 2] = serde_json::from_value(part["objects"][0]["point"].clone()).unwrap();
        for share in middle.iter().chain(&point) {
            assert!((share - 0.5).abs() < 0.02, "{answer}");
        }
        for ask in [whole, part] {
            assert!(ask["ms"].is_f64(), "{ask}");
            assert!(ask["tflop"].as_f64().unwrap() > 0.0, "{ask}");
        }
        let roof = json!({"cam": "cellar", "asks": body["asks"]});
        assert_eq!(try_words(&testbed, roof).await.0, 404);
        // The model of the configuration is a Moondream 2.
        let segment = json!({"cam": "gate", "asks": [{"kind": "segment", "words": "thing"}]});
        let (_, answer) = try_words(&testbed, segment).await;
        let error = answer["answers"][0]["error"].as_str().unwrap();
        assert!(error.contains("draws no outlines"), "{error}");
        signal("-TERM");
    };
    let (report, ()) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
}
