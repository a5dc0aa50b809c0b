//! `spotter self-test`: what Spotter needs of this machine works. Needs no camera, broker or network.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, bail};

use super::{args::ModelArgs, ask, check, out::say};
use crate::app;
use spotter_cameras::ingest;
use spotter_config::{self as config, Environment, ModelSource};
use spotter_core::{AnswerBody, Clock, Look, NormBox, Picture, SystemClock, Task, WallTime};
use spotter_street::{
    Scene, Street, draw, draw_i420,
    rtsp::{RtspContent, RtspStreet, StreetOptions},
    scene::Class,
    score::match_boxes,
    truth,
};

/// The drawn street by day. Cars pass in each minute of it.
const STREET_SEED: u64 = 7;
const STREET_START_MS: i64 = 1_780_318_235_000;
const STREET_MS: i64 = 60_000;
const STREET_SIZE: (u32, u32) = (640, 360);
const STREET_FPS: u32 = 15;
const STREET_KBIT_PER_S: u32 = 1000;

/// Prints a line for each part that works; fails at the first that does not. Blocks for some seconds.
pub fn self_test(args: &ModelArgs) -> anyhow::Result<()> {
    video().context(
        "the test of video over RTSP failed; it needs GStreamer's base, good, bad and ugly plugins, and libav or a hardware decoder",
    )?;
    model(args).context("the test of the model failed")?;
    say("self-test passed")
}

/// Reads a camera of this program as `check --probe` reads one.
fn video() -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (width, height) = STREET_SIZE;
    let options = StreetOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        mount: "/street".into(),
        size: STREET_SIZE,
        fps: STREET_FPS,
        content: RtspContent::Pictures {
            kbit_per_s: STREET_KBIT_PER_S,
        },
    };
    let street = Street::new(STREET_SEED);
    let drawn = move |wall| draw_i420(&street.at(wall), width, height);
    ingest::start_gstreamer()?;
    let served = RtspStreet::start(options, Arc::clone(&clock), drawn)?;
    let text = format!(
        "mqtt.url = \"mqtt://127.0.0.1\"\n[camera.test]\nurl = \"{}\"\nprompt.car.detect = \"car\"\n",
        served.url()
    );
    let loaded = config::of_text("self-test", &text, &Environment::process())?;
    let camera = loaded.config.cameras.first().context("no camera")?;
    let probed = app::runtime()?.block_on(ingest::probe(camera, clock));
    match probed {
        Ok(report) => say(check::described(camera, &report)),
        Err(failure) => bail!("{}: {}", failure.fault.code(), failure.text),
    }
}

fn scene_with_car() -> Option<Scene> {
    let street = Street::new(STREET_SEED);
    let moments = (STREET_START_MS..STREET_START_MS + STREET_MS).step_by(1000);
    let mut scenes = moments.map(|at_ms| street.at(WallTime::from_unix_millis(at_ms)));
    scenes.find(|scene| truth(scene).present(Class::Car).next().is_some())
}

/// Looks at a drawn picture. The embedded model has to find its cars; another one has to answer.
fn model(args: &ModelArgs) -> anyhow::Result<()> {
    let (width, height) = STREET_SIZE;
    let scene = scene_with_car().context("no car passes in the drawn street")?;
    let rgb = draw(&scene, width, height);
    let picture = Picture::from_rgb(width as usize, height as usize, rgb)?;
    let cars = truth(&scene).things(Class::Car, None);
    let (mut engine, card) = ask::open(args)?;
    let object = Class::Car.name().into();
    let look = Look::still(picture, [Task::Detect { object }]);
    let answer = ask::answer(&mut engine, look, |_| Ok(()))?;
    let AnswerBody::Boxes(boxes) = &answer.body else {
        bail!("the answer to a detect prompt has no boxes");
    };
    let boxes: Vec<NormBox> = boxes.iter().map(|found| found.place).collect();
    let found = match_boxes(&boxes, &cars).found.len();
    let took = answer.marks.generated.since(answer.marks.taken);
    say(format_args!(
        "model {} on {}: found {found} of {} drawn cars in {} ms",
        card.name,
        card.device,
        cars.len(),
        took.as_millis()
    ))?;
    if card.doubt.is_some() {
        bail!(
            "its answers about a known picture are wrong; the warning above says how, and what to do"
        );
    }
    if args.settings().source == ModelSource::Embedded && found == 0 {
        bail!("the embedded model found none of the drawn cars");
    }
    Ok(())
}
