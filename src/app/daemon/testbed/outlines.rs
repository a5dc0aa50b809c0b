//! `segment`: boxes at once, and outlines of an earlier frame in later messages.

use spotter_engine::testing::{outline_model, simulated::outline_engine};

use super::*;

const MESSAGES: &str = "cam/gate/det/thing";
/// The left edge of what the mask leaves, through the object.
const MASKED_TO: f64 = 0.45;

#[test]
fn segmented_objects_have_boxes_at_once_and_outlines_later() {
    let test =
        "app::daemon::testbed::outlines::segmented_objects_have_boxes_at_once_and_outlines_later";
    alone_without_an_error(test, scenario());
}

/// One engine whose model draws a triangle, its tip above the lower edge of the box.
async fn engine(plan: EnginePlan, scene: Scene) -> anyhow::Result<OpenedEngines> {
    let clock = Arc::clone(&plan.clock);
    let build = move || outline_engine(SceneDevice::of_model(scene, &outline_model()), clock);
    Ok(OpenedEngines {
        slots: vec![slot_of(&plan, "cpu", build).await?],
        card: testing::card(),
    })
}

/// A model that draws outlines, with weights of no layers: the device needs none.
fn model_directory(testbed: &Testbed) -> PathBuf {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/md3-segment-tiny");
    let model = testbed.directory.path().join("model");
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "tokenizer.json"] {
        fs::copy(set.join(file), model.join(file)).unwrap();
    }
    fs::write(model.join("model.safetensors"), b"\x02\0\0\0\0\0\0\0{}").unwrap();
    model
}

fn the_object(message: &Value) -> &Value {
    &message["objects"][0]
}

async fn scenario() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let model = model_directory(&testbed);
    let text = testbed.text().replace("detect = ", "segment = ");
    // The lower edge of the box is in the zone, and the foot of the outline is not.
    let text = format!(
        "model.path = {model:?}\n{text}mask = [[[0, 0], [{MASKED_TO}, 0], [{MASKED_TO}, 1], [0, 1]]]\n\
         zone.low.polygon = [[0, 0.62], [1, 0.62], [1, 1], [0, 1]]\n"
    );
    testbed.write(&text);
    let scene = testbed.scene.clone();
    let engines: Arc<OpenEngines> = Arc::new(move |plan| Box::pin(engine(plan, scene.clone())));
    let looking = async {
        let mut received = ReceivedJson::default();
        testbed.scene.show("gate", true);
        let has_outline = |message: &Value| the_object(message)["outline"].is_object();
        received.one(&testbed, MESSAGES, has_outline).await;
        let has_left = |message: &Value| {
            the_object(message)["zones"]
                .as_array()
                .is_some_and(Vec::is_empty)
        };
        received.one(&testbed, MESSAGES, has_left).await;
        // The event's snapshot with the box, and the one with the outline.
        let two = "spotter_app_snapshots_total{outcome=\"taken\"} 2";
        until("two snapshots", || testbed.metrics().contains(two)).await;
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_with(machine_clock(), engines, looking).await;
    assert!(report.balanced(), "{report}");
    check(&received);
}

fn check(received: &ReceivedJson) {
    let messages = received
        .of(MESSAGES)
        .filter(|message| message["count"] == 1);
    let messages = Vec::from_iter(messages);
    let first = the_object(messages[0]);
    assert!(
        first["outline"].is_null() && first["zones"] == serde_json::json!(["low"]),
        "{first}"
    );
    let mut last = None;
    for message in &messages {
        let outline = &the_object(message)["outline"];
        if message["unchanged"] == true {
            assert_eq!(Some(outline), last, "the last one again");
        } else if outline.is_object() {
            let [frame, drawn] =
                [&message["frame"]["n"], &outline["frame"]].map(|n| n.as_u64().unwrap());
            assert!(drawn < frame, "{outline}");
            let rings: Vec<Vec<[f64; 2]>> =
                serde_json::from_value(outline["polygon"].clone()).unwrap();
            let left = rings.iter().flatten().map(|[x, _]| *x).fold(1.0, f64::min);
            assert!((left - MASKED_TO).abs() < 1e-3, "{outline}");
        }
        if outline.is_object() {
            last = Some(outline);
        }
    }
}
