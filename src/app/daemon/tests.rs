//! The daemon with cameras that deliver and engines that break. No broker is there; nothing here depends on one.

use std::path::Path;

use super::{reload::Reloaded, *};
use crate::{
    app::{rig, seats::deal, station::Station},
    ops::telemetry::{Levels, SecretList},
};
use spotter_cameras::{ingest, sampler::TimeLimits};
use spotter_core::{CameraId, RefusalCode};
use spotter_engine::{open::Device, service::handle, testing::simulated};

/// Two cameras that deliver test pictures, as fast as looks are taken.
const CONFIG: &str = r#"
mqtt.url = "mqtt://127.0.0.1:1"
http.listen = "off"
[defaults]
rate = 30
[camera.gate]
url = "test://"
prompt.person.detect = "person"
[camera.yard]
url = "test://"
prompt.person.detect = "person"
"#;

/// A daemon whose devices break after so many steps.
async fn daemon(steps: &[usize]) -> Daemon {
    daemon_of(rig::config(CONFIG), steps).await
}

async fn daemon_of(config: Config, steps: &[usize]) -> Daemon {
    daemon_with(config, steps, Arc::new(|_| Box::pin(pending()))).await
}

/// The same, and who opens other engines for it; else nobody does.
async fn daemon_with(config: Config, steps: &[usize], others: Arc<OpenEngines>) -> Daemon {
    ingest::start_gstreamer().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let sampler = Sampler::new(&config.cameras, Arc::clone(&clock));
    let ids: Vec<CameraId> = config.cameras.iter().map(|c| c.id.clone()).collect();
    let labels: Vec<String> = (0..steps.len()).map(|i| format!("cuda {i}")).collect();
    let dealt = deal(&ids, &labels, &Seats::new());
    let limits = TimeLimits::new(Duration::from_secs(3600), None);
    let mut stations = Vec::new();
    for (index, (label, &steps)) in labels.into_iter().zip(steps).enumerate() {
        let engine_clock = Arc::clone(&clock);
        let build = move || {
            Ok((
                simulated::engine(rig::Fragile::after(steps), engine_clock),
                2,
            ))
        };
        let started = handle::start(build).await.unwrap();
        let its = ids.iter().zip(&dealt).filter(|(_, of)| **of == index);
        let its = its.map(|(camera, _)| camera.clone()).collect();
        let station = Station::new(label, started, its, sampler.share(limits));
        stations.push(station.on(Device::Cpu("simulated".into())));
    }
    let page = BoundPage::bind(&config.http).await.unwrap();
    let engines = (Engines::new(sampler, stations), rig::card());
    let force = Force::open(&config, clock.now());
    let around = Around {
        logging: Logging {
            secrets: SecretList::default(),
            levels: Levels::fixed(),
        },
        console: None,
        lines: None,
        engines: others,
    };
    Daemon::with(config, (page, force), engines, clock, around).unwrap()
}

#[tokio::test]
async fn the_last_engine_that_fails_ends_the_daemon_and_one_before_only_its_cameras() {
    let mut daemon = daemon(&[400, 8]).await;
    let mut signals = Signals::listen().unwrap();
    let error = loop {
        // Other tests of this process send it signals.
        if let Err(error) = daemon.watch(&mut signals, Path::new("site.toml")).await {
            break error;
        }
    };
    assert_eq!(
        format!("{error:#}"),
        "engine on cuda 0: device: it fell off the bus"
    );
    let troubles: Vec<String> = daemon.cameras.troubles().collect();
    let of = |camera, device| {
        format!("camera {camera}: engine_lost: engine on {device}: device: it fell off the bus")
    };
    assert_eq!(troubles, [of("gate", "cuda 0"), of("yard", "cuda 1")]);
    assert!(daemon.cameras.online().all(|(_, online)| !online));
    let refused = daemon.watched(&CameraId::new("gate").unwrap()).unwrap_err();
    assert_eq!(
        (refused.code, refused.text.as_str()),
        (
            RefusalCode::Unavailable,
            "camera gate is off: engine on cuda 0: device: it fell off the bus; it is opened again by itself"
        )
    );
    let books = daemon.engines.sampler().books();
    let [(_, gate), (_, yard)] = &books[..] else {
        panic!("two cameras: {books:?}");
    };
    assert!(gate.looked > yard.looked && yard.looked > 0, "{books:?}");
    for (camera, books) in &books {
        assert!(
            books.balanced() && books.in_flight == 0,
            "{camera}: {books:?}"
        );
    }
}

mod moves;
mod other_models;
