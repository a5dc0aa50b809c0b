//! `segment`: boxes at once, and outlines of an earlier frame in later messages.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use spotter_engine::{
    model::{CalibrationState, random_weights, without_ends},
    open::{ModelDevice, ModelToPlace},
    scheduler::{
        backend::{BackendError, Pick, Step},
        sequence::Bounds,
    },
    testing::{
        outline_model,
        simulated::{BeforeLaunch, FaultyDevice, outline_engine},
    },
};

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

/// An engine whose model draws a triangle, its tip above the lower edge of the box.
fn scripted_engine(plan: &EnginePlan, scene: Scene) -> Engine {
    let device = SceneDevice::of_model(scene, &outline_model());
    outline_engine(device, Arc::clone(&plan.clock))
}

async fn one(
    plan: EnginePlan,
    engine: impl FnOnce(&EnginePlan) -> Engine + Send + 'static,
) -> anyhow::Result<OpenedEngines> {
    let of = plan.clone();
    Ok(OpenedEngines {
        slots: vec![slot_of(&plan, "cpu", move || engine(&of)).await?],
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
    let engines: Arc<OpenEngines> = Arc::new(move |plan| {
        let scene = scene.clone();
        Box::pin(one(plan, |plan| scripted_engine(plan, scene)))
    });
    let looking = async {
        let mut received = ReceivedJson::default();
        testbed.scene.show("gate", true);
        let has_outline = |message: &Value| the_object(message)["outline"].is_object();
        received.one(&testbed, MESSAGES, has_outline).await;
        tried_words_have_outlines(&testbed).await;
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

async fn tried_words_have_outlines(testbed: &Testbed) {
    testbed.scene.show(CameraId::of_still().as_str(), true);
    let asks = json!([{"kind": "segment", "words": "thing"}]);
    let (_, answer) = trial::try_words(testbed, json!({"cam": "gate", "asks": asks})).await;
    let found = &answer["answers"][0]["objects"][0];
    assert!(found["box"].is_array(), "{answer}");
    let corners = found["polygons"][0].as_array().map(Vec::len);
    assert!(corners.is_some_and(|corners| corners > 2), "{answer}");
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

#[test]
fn random_weights_have_boxes_and_are_asked_for_outlines() {
    let test =
        "app::daemon::testbed::outlines::random_weights_have_boxes_and_are_asked_for_outlines";
    alone_without_an_error(test, of_random_weights());
}

/// An engine on the CPU with random weights, whose answers end at their bounds: each look has five objects. `drawn` counts its steps with
/// an outline.
fn random_engine(plan: &EnginePlan, drawn: Arc<AtomicUsize>) -> Engine {
    let clock = Arc::clone(&plan.clock);
    let model = outline_model();
    let mut weights = random_weights(&model.config).unwrap();
    without_ends(&mut weights, &model.config).unwrap();
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 32,
    };
    let to_place = ModelToPlace {
        settings: &plan.config.model,
        adapter_slots: 0,
        config: &model.config,
        weights,
        measured: &CalibrationState::Missing,
        bounds,
        calibration: Vec::new,
        clock: Arc::clone(&clock),
    };
    let placed = ModelDevice::Cpu("cpu".into()).place(to_place).unwrap();
    let device = FaultyDevice::new(placed.backend, |_| None);
    let device = BeforeLaunch::new(device, move |step: &Step| {
        drawn.fetch_add(usize::from(draws(step)), Ordering::Relaxed);
    });
    Engine::new(Box::new(device), model, bounds, clock)
}

async fn of_random_weights() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let model = model_directory(&testbed);
    let text = testbed.text().replace("detect = ", "segment = ");
    let text = text.replace("2 of 3", "1 of 1");
    testbed.write(&format!(
        "model.path = {model:?}\nmodel.device = \"cpu\"\n{text}"
    ));
    let drawn = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&drawn);
    let engines: Arc<OpenEngines> = Arc::new(move |plan| {
        let count = Arc::clone(&count);
        Box::pin(one(plan, |plan| random_engine(plan, count)))
    });
    let looking = async {
        let mut received = ReceivedJson::default();
        let has_objects = |message: &&Value| message["count"] != 0;
        let is_enough = |all: &ReceivedJson| {
            drawn.load(Ordering::Relaxed) > 500 && all.of(MESSAGES).filter(has_objects).count() > 20
        };
        received.until(&testbed, is_enough).await;
        let health = testbed.retained("cam/gate/health").unwrap();
        let health: Value = serde_json::from_str(&health).unwrap();
        assert_eq!(health["state"], "streaming");
        assert!(health["reason"].is_null(), "{health}");
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_with(machine_clock(), engines, looking).await;
    assert!(report.balanced(), "{report}");
    let messages = received.of(MESSAGES);
    for object in messages.flat_map(|message| message["objects"].as_array().unwrap()) {
        // What random weights write is hardly ever a path.
        let outline = object.get("outline").unwrap();
        assert!(outline.is_null() || outline["path"].is_string(), "{object}");
    }
}

/// Two engines whose models draw. The first one that draws an outline when `is_armed` is lost then.
#[derive(Clone)]
struct BreaksWhileDrawing {
    scene: Scene,
    is_armed: Arc<AtomicBool>,
}

impl BreaksWhileDrawing {
    async fn open(self, plan: EnginePlan) -> anyhow::Result<OpenedEngines> {
        if plan.only.is_some() {
            // The lost one does not return.
            return pending().await;
        }
        let mut slots = Vec::new();
        for label in ["cuda 0", "cuda 1"] {
            let (scene, is_armed) = (self.scene.clone(), Arc::clone(&self.is_armed));
            let clock = Arc::clone(&plan.clock);
            let build = move || outline_engine(breaking(scene, is_armed), clock);
            let mut slot = slot_of(&plan, label, build).await?;
            slot.device = Some(ModelDevice::Cpu("simulated".into()));
            slots.push(slot);
        }
        let card = testing::card();
        Ok(OpenedEngines { slots, card })
    }
}

fn breaking(scene: Scene, is_armed: Arc<AtomicBool>) -> impl Backend + 'static {
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let fault = move |_| {
        let is_broken = broken.load(Ordering::Relaxed);
        is_broken.then(|| BackendError::Device("it fell off the bus".into()))
    };
    let device = SceneDevice::of_model(scene, &outline_model());
    let device = FaultyDevice::new(Box::new(device), fault);
    BeforeLaunch::new(device, move |step: &Step| {
        if draws(step) && is_armed.swap(false, Ordering::Relaxed) {
            is_broken.store(true, Ordering::Relaxed);
        }
    })
}

fn draws(step: &Step) -> bool {
    let mut picks = step.rows.iter().flat_map(|row| &row.picks);
    picks.any(|pick| matches!(pick, Pick::Token { values, .. } if values.size.is_some()))
}

// Faults: E16.
#[test]
fn outlines_of_a_lost_engine_are_drawn_by_another() {
    let test = "app::daemon::testbed::outlines::outlines_of_a_lost_engine_are_drawn_by_another";
    alone_with_errors(test, &["it fell off the bus"], engine_is_lost());
}

async fn engine_is_lost() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let model = model_directory(&testbed);
    let text = testbed.text().replace("detect = ", "segment = ");
    testbed.write(&format!("model.path = {model:?}\n{text}"));
    let two = BreaksWhileDrawing {
        scene: testbed.scene.clone(),
        is_armed: Arc::default(),
    };
    let is_armed = Arc::clone(&two.is_armed);
    let engines: Arc<OpenEngines> = Arc::new(move |plan| Box::pin(two.clone().open(plan)));
    let looking = async {
        let mut received = ReceivedJson::default();
        testbed.scene.show("gate", true);
        let has_outline = |message: &Value| the_object(message)["outline"].is_object();
        let first = received.one(&testbed, MESSAGES, has_outline).await;
        is_armed.store(true, Ordering::Relaxed);
        let is_end = |event: &Value| event["reason"] == "engine_lost";
        received.one(&testbed, "cam/gate/event/thing", is_end).await;
        let track = the_object(&first)["track"].clone();
        let is_new =
            |message: &Value| has_outline(message) && the_object(message)["track"] != track;
        received.one(&testbed, MESSAGES, is_new).await;
        signal("-TERM");
    };
    let (report, ()) = testbed.run_with(machine_clock(), engines, looking).await;
    assert!(report.balanced(), "{report}");
}
