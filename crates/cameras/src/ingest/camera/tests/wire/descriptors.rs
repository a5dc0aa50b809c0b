//! A process that has no descriptors left.

use std::fs::{self, File};

use super::*;
use spotter_scripted::rtsp::script::Takes;

// Faults: C51.
/// Other tests of this process need descriptors.
#[test]
fn cameras_without_free_descriptors_wait_and_recover() {
    let test = "wire::descriptors::cameras_without_free_descriptors_wait_and_recover";
    match run_alone(test, &[]) {
        Some(text) => println!("{text}"),
        None => {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(run_out_of_descriptors());
        }
    }
}

async fn run_out_of_descriptors() {
    tape(TapeCodec::H264);
    let streaming = serve(&good()).await;
    let datagrams = serve(&CameraScript {
        takes: Takes::Udp,
        ..good()
    })
    .await;
    let closing = serve(&good().after(60, CameraFault::Close)).await;
    let silent = serve(&good().at("DESCRIBE", CameraFault::Silence)).await;
    let camera = CheckedCamera::start(camera_of(&streaming), &good());
    let over_udp = CheckedCamera::start(rtsp(datagrams.url(), Transport::Udp), &good());
    let closed = CheckedCamera::start(camera_of(&closing), &good());
    let waiting = CheckedCamera::start(camera_of(&silent), &good());
    camera.frames(5).await;
    over_udp.frames(5).await;
    eventually("a request", || silent.memory().count("DESCRIBE") == 1).await;
    let before_s = cpu_s();
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for watched in [&camera, &over_udp, &waiting] {
        watched.handle.reconnect();
    }
    let is_out = |health: &Health| {
        let failure = health.failure.as_ref();
        failure.is_some_and(|failure| failure.text.contains("LimitNOFILE"))
    };
    for watched in [&camera, &over_udp, &closed, &waiting] {
        watched.until("no descriptors", is_out).await;
    }
    sleep(Duration::from_secs(5)).await;
    // Some for this measurement.
    held.truncate(held.len() - 8);
    let used_s = cpu_s() - before_s;
    println!("{used_s} s of CPU with {} descriptors held", held.len());
    assert!(used_s < 2.5, "{used_s} s: a thread does not wait");
    drop(held);
    for watched in [&camera, &over_udp] {
        watched.frames(watched.health().frames + 5).await;
    }
    for watched in [camera, over_udp, closed, waiting] {
        watched.stop_undated().await;
    }
}

/// Of all threads, with 100 ticks a second.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split(' ');
    let ticks = fields.skip(12).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap() / 100.0)
        .sum()
}
