//! A reload that names another model, under which cameras and what is known of them stay.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::{
    moves::{Site, detections, tells},
    *,
};
use crate::ops::page::{EngineState, StatusSource as _};
use spotter_scripted::broker::{Broker, Script};

/// Engines are opened when that is allowed, but those of a model that may return seven objects.
fn others(allowed: watch::Receiver<bool>) -> Arc<OpenEngines> {
    Arc::new(move |plan| {
        let mut allowed = allowed.clone();
        Box::pin(async move {
            allowed.wait_for(|allowed| *allowed).await?;
            let objects = plan.config.model.max_objects;
            anyhow::ensure!(objects != 7, "model: seven do not fit");
            let device = rig::Fragile::after(usize::MAX);
            let build = move || Ok((simulated::engine(device, plan.clock), 2));
            let started = handle::start(build).await?;
            let limits = TimeLimits::new(Duration::from_secs(3600), None);
            let cameras = plan.config.cameras.iter();
            let cameras = cameras.map(|camera| camera.id.clone()).collect();
            let share = plan.sampler.share(limits);
            let station = Station::new("cuda 0".into(), started, cameras, share);
            assert!(plan.only.is_none() || !station.cameras().is_empty());
            let card = ModelCard {
                name: format!("of {objects} objects").into(),
                ..rig::card()
            };
            Ok(Opened {
                stations: vec![station],
                card,
            })
        })
    })
}

/// Tests beside each other cannot have one address.
const NO_PAGE: &str = "http.listen = \"off\"";

/// A model that may return so many objects.
fn objects(count: u32) -> String {
    format!("{NO_PAGE}\nmodel.max_objects = {count}")
}

fn boots(detections: &[(String, u64)]) -> BTreeSet<&str> {
    detections.iter().map(|(boot, _)| boot.as_str()).collect()
}

#[tokio::test]
async fn another_model_leaves_cameras_and_numbers_alone() {
    let broker = Broker::start(Script::default()).await;
    let retained = |topic: &str| {
        let topic = format!("spotter/edge1/{topic}");
        broker.retained(&topic).unwrap_or_default()
    };
    let mut site = Site::new().await;
    let (allow, allowed) = watch::channel(false);
    let config = site.write("edge1", &broker, NO_PAGE);
    let mut daemon = daemon_with(config, &[usize::MAX], others(allowed)).await;
    site.watch(&mut daemon, tells(&broker, "edge1")).await;
    let before = detections(&broker, "edge1");

    site.write("edge1", &broker, &objects(6));
    site.reload(&mut daemon).await.unwrap();
    let frames_replaced = |daemon: &Daemon| daemon.engines.sampler().books()[0].1.replaced;
    let replaced = frames_replaced(&daemon);
    // It is being opened: the camera goes on, what needs an answer is refused, and another file waits.
    let sampler = Arc::clone(daemon.engines.sampler());
    let frames_come = async {
        while sampler.books()[0].1.replaced == replaced {
            sleep(Duration::from_millis(20)).await;
        }
    };
    site.watch(&mut daemon, frames_come).await;
    assert_eq!(retained("cam/gate/status"), "online");
    let gate = CameraId::new("gate").unwrap();
    assert_eq!(daemon.watched(&gate), Ok(()));
    let page = daemon.board.status(false);
    assert_eq!(page.engines[0].state, EngineState::Opens);
    let refused = daemon.has_model().unwrap_err();
    assert_eq!(refused.code, RefusalCode::Unavailable);
    let head = objects(6) + "\n[defaults]\nevents = { end_after = \"9s\" }";
    let last = site.write("edge1", &broker, &head);
    assert!(daemon.reload_later(), "the file is read again afterwards");
    assert_eq!(daemon.file.model.max_objects, 50, "not in force yet");

    allow.send_replace(true);
    site.watch(&mut daemon, tells(&broker, "edge1")).await;
    assert_eq!(daemon.has_model(), Ok(()));
    // The page is told once a second.
    site.watch(&mut daemon, sleep(Duration::from_millis(1500)))
        .await;
    let page = daemon.board.status(false);
    assert_eq!(page.engines[0].state, EngineState::Runs);
    assert_eq!(page.node.model, "of 6 objects (bf16)");
    assert_eq!(daemon.file, last);
    let info = retained("info");
    assert!(info.contains("of 6 objects"), "{info}");
    let told = retained("config");
    assert!(
        told.contains("\"ok\"") && told.contains(&daemon.file.hash),
        "{told}"
    );

    // One connection, one run, numbers that go on, and every frame in the books.
    let camera = site.camera().memory();
    assert_eq!((camera.connections, camera.sessions), (1, 1));
    let all = detections(&broker, "edge1");
    assert_eq!(boots(&all).len(), 1);
    let numbers: Vec<u64> = all.iter().map(|(_, number)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(all.len() > before.len());
    let (_, books) = daemon.engines.sampler().books()[0];
    assert!(books.balanced(), "{books:?}");
}

#[tokio::test]
async fn a_model_that_cannot_be_opened_leaves_the_former_in_force_and_says_why() {
    let broker = Broker::start(Script::default()).await;
    let mut site = Site::new().await;
    let (_allow, allowed) = watch::channel(true);
    let config = site.write("edge1", &broker, NO_PAGE);
    let mut daemon = daemon_with(config.clone(), &[usize::MAX], others(allowed)).await;
    site.watch(&mut daemon, tells(&broker, "edge1")).await;

    site.write("edge1", &broker, &objects(7));
    site.reload(&mut daemon).await.unwrap();
    let is_refused = |broker: &Broker| {
        let told = broker.retained("spotter/edge1/config");
        told.is_some_and(|told| told.contains("seven do not fit"))
    };
    site.watch(&mut daemon, broker.until("a refusal", is_refused))
        .await;
    site.watch(&mut daemon, tells(&broker, "edge1")).await;
    assert!(daemon.swap.is_none());
    assert_eq!(daemon.file, config);
    let told = broker.retained("spotter/edge1/config").unwrap_or_default();
    assert!(
        told.contains("seven do not fit") && told.contains(&config.hash),
        "{told}"
    );
    let info = broker.retained("spotter/edge1/info").unwrap_or_default();
    assert!(
        info.contains("of 50 objects"),
        "the former, opened again: {info}"
    );
    let camera = site.camera().memory();
    assert_eq!((camera.connections, camera.sessions), (1, 1));
}

#[tokio::test]
async fn a_camera_that_lost_its_engine_is_watched_again_with_another_model() {
    let broker = Broker::start(Script::default()).await;
    let mut site = Site::new().await;
    let (_allow, allowed) = watch::channel(true);
    let config = site.write("edge1", &broker, NO_PAGE);
    // The second engine has no camera; it keeps the daemon going when the first fails.
    let mut daemon = daemon_with(config, &[30, usize::MAX], others(allowed)).await;
    site.watch(&mut daemon, broker.until("a lost engine", lost))
        .await;

    site.write("edge1", &broker, &objects(6));
    site.reload(&mut daemon).await.unwrap();
    site.watch(&mut daemon, tells(&broker, "edge1")).await;
    assert!(!lost(&broker));
    assert_eq!(daemon.cameras.troubles().count(), 0);
}

fn lost(broker: &Broker) -> bool {
    let health = broker.retained("spotter/edge1/cam/gate/health");
    health.is_some_and(|health| health.contains("engine_lost"))
}

#[tokio::test]
async fn a_lost_engine_is_opened_again_beside_the_others() {
    let broker = Broker::start(Script::default()).await;
    let mut site = Site::new().await;
    let (allow, allowed) = watch::channel(false);
    let config = site.write("edge1", &broker, NO_PAGE);
    let mut daemon = daemon_with(config, &[30, usize::MAX], others(allowed)).await;
    site.watch(&mut daemon, broker.until("a lost engine", lost))
        .await;
    let before = detections(&broker, "edge1");
    let opens = async {
        // One that opens and one that waits to be asked.
        while allow.receiver_count() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    site.watch(&mut daemon, opens).await;
    assert_eq!(daemon.has_model(), Ok(()), "the other looks meanwhile");

    allow.send_replace(true);
    site.watch(&mut daemon, tells(&broker, "edge1")).await;
    assert!(!lost(&broker));
    assert_eq!(daemon.cameras.troubles().count(), 0);
    assert!(daemon.engines.beats().all(|(_, beats)| beats.is_some()));
    let all = detections(&broker, "edge1");
    assert_eq!(boots(&all).len(), 1);
    let numbers: Vec<u64> = all.iter().map(|(_, number)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b) && all.len() > before.len());
    let (_, books) = daemon.engines.sampler().books()[0];
    assert!(books.balanced(), "{books:?}");
}
