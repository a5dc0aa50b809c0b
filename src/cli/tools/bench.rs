//! `spotter bench`: how many cameras this machine can watch.
//!
//! The engine answers looks at the drawn street, one at a time and then as in the daemon: on its thread, with as many looks at
//! once as it learns to be best, each begun when there is a permit. libav decodes a recorded stream on one core. Both
//! figures divided by what one camera needs give the number of cameras. Everything else is measured with `spotter-lab`.

use std::{fmt, sync::Arc, thread, time::Duration};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    cli::{
        args::BenchArgs,
        out::{counted, remark, say},
        table::{TextTable, known},
    },
    ops::{machine::Machine, process},
};
use spotter_cameras::ingest;
use spotter_config as config;
use spotter_core::{CameraId, Clock, Look, Picture, SystemClock, Task, WallTime};
use spotter_engine::{
    open::{self, ExpectedLook, ModelCard},
    service::{
        Engine,
        handle::{self, EngineHandle},
    },
};
use spotter_street::{Street, draw, h264::Encoding, scene::Class, tape::StreetTape};

/// The drawn street at a moment by day with people and cars.
const STREET_SEED: u64 = 7;
const STREET_START: WallTime = WallTime::from_unix_millis(1_780_318_235_000);
/// Pictures that are drawn before the measurement; they repeat.
const PICTURES: u32 = 16;
/// Answers before the measurement, within which the number of looks at once is learned; fewer on a device that is slow.
const LEARNING_ANSWERS: u32 = 20;
const LEARNING_ANSWERS_MIN: u32 = 2;
/// Looks one at a time are measured for a third of the time, at least this many.
const SINGLE_LOOKS_MIN: usize = 3;
/// Pairs of seconds of the recorded stream.
const TAPE_PAIRS: u32 = 1;
/// Linux counts processor time in steps of 10 ms, so decoding is measured over at least this much of it.
const DECODE_TIME_MIN: Duration = Duration::from_secs(1);

/// Runs the command. Blocks for its whole time.
pub fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let subject = LookSubject {
        pictures: pictures(args)?.into(),
        tasks: tasks(args.prompts.into()),
        clock,
    };
    let time = Duration::from_secs(args.seconds);
    remark("loading the model");
    let runtime = tokio::runtime::Runtime::new()?;
    let settings = config::ModelSettings {
        // What a look costs when all of the picture is new.
        reuse: config::ReuseMode::Off,
        ..args.model.settings()
    };
    let engine = runtime.block_on(measured(settings, subject, time))?;
    remark("measuring the decoder");
    let decoder = decoder(args);
    let decoder =
        decoder.inspect_err(|error| remark(format_args!("decoder not measured: {error:#}")));
    let report = CapacityReport {
        machine: Machine::now(),
        model: engine.card.name.to_string(),
        device: engine.card.device,
        is_gpu: engine.card.gpu.is_some(),
        size: args.size,
        prompts: args.prompts.into(),
        rate_hz: args.rate,
        look_ms: engine.single.as_secs_f64() * 1e3,
        permits: engine.permits,
        looks_per_s: engine.looks_per_s,
        decoder: decoder.ok(),
    };
    match args.json {
        true => say(report.json()?),
        false => say(&report),
    }
}

/// The street at the rate of the looks, so that neighbouring pictures differ as those of a camera do.
fn pictures(args: &BenchArgs) -> anyhow::Result<Vec<Picture>> {
    let (width, height) = args.size;
    let street = Street::new(STREET_SEED);
    let pictures = (0..PICTURES).map(|number| {
        let at = STREET_START.unix_millis() + (f64::from(number) * 1e3 / args.rate) as i64;
        let scene = street.at(WallTime::from_unix_millis(at));
        let rgb = draw(&scene, width, height);
        Ok(Picture::from_rgb(width as usize, height as usize, rgb)?)
    });
    pictures.collect()
}

/// Objects to detect: "person", "car" and so on.
fn tasks(prompts: usize) -> Vec<Task> {
    let classes = Class::ALL.iter().copied().cycle().take(prompts);
    let tasks = classes.map(|class| Task::Detect {
        object: class.name().into(),
    });
    tasks.collect()
}

/// What is looked at.
#[derive(Clone)]
struct LookSubject {
    pictures: Arc<[Picture]>,
    tasks: Vec<Task>,
    clock: Arc<dyn Clock>,
}

/// What an engine did.
struct EngineSpeed {
    card: ModelCard,
    /// Median of looks one at a time.
    single: Duration,
    /// Looks at once, learned.
    permits: usize,
    looks_per_s: f64,
}

/// Opens an engine on its thread and measures it.
async fn measured(
    settings: config::ModelSettings,
    subject: LookSubject,
    time: Duration,
) -> anyhow::Result<EngineSpeed> {
    let own = subject.clone();
    let build = move || {
        let calibration = spotter_street::calibration_pictures;
        let (mut engine, card) = Engine::open(&settings, calibration, Arc::clone(&own.clock))?;
        open::measured_look(&mut engine, &own.tasks, own.clock.as_ref())?;
        open::warm_up(&mut engine, &[own.expected()], own.clock.as_ref())?;
        remark("measuring looks one at a time");
        let single = one_at_a_time(&mut engine, &own, time / 3).map_err(|e| format!("{e:#}"))?;
        let rule = card.look_rule(settings.budget);
        Ok((engine, rule, (card, single)))
    };
    let (engine, end, (card, single)) = handle::start_and_report(build).await?;
    remark("measuring as many looks at once as the engine learns to be best");
    let cameras = card.permits;
    let looks_per_s = at_once(&engine, &subject, cameras, time).await?;
    let permits = *engine.places().borrow();
    drop(engine);
    end.over().await;
    Ok(EngineSpeed {
        card,
        single,
        // None are free in the moment in which a look is in a hurry.
        permits: permits.max(1),
        looks_per_s,
    })
}

/// Median time of a look with nothing else in the engine and nothing reused from an earlier picture.
fn one_at_a_time(
    engine: &mut Engine,
    subject: &LookSubject,
    time: Duration,
) -> anyhow::Result<Duration> {
    let (mut took, clock) = (Vec::new(), &subject.clock);
    let began = clock.now();
    while took.len() < SINGLE_LOOKS_MIN || clock.now().since(began) < time {
        let look = subject.look(0, took.len())?;
        let from = clock.now();
        engine
            .look(look)?
            .into_answers()
            .map_err(anyhow::Error::msg)?;
        took.push(clock.now().since(from));
    }
    took.sort();
    Ok(took[took.len() / 2])
}

/// Looks per second with cameras that always have a frame: each is looked at when there is a permit.
async fn at_once(
    engine: &EngineHandle,
    subject: &LookSubject,
    cameras: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let mut looks = JoinSet::new();
    let begin = |camera: usize, number: usize| {
        let (engine, subject) = (engine.clone(), subject.clone());
        async move {
            let permit = engine.permit().await;
            // After the permit, so that its age counts from now on.
            let look = permit.whole_look(subject.look(camera, number)?).await;
            look.into_answers().map_err(anyhow::Error::msg)?;
            anyhow::Ok((camera, number))
        }
    };
    for camera in 0..cameras {
        looks.spawn(begin(camera, 0));
    }
    let (mut answers, mut from, mut counted) = (0, subject.clock.now(), None);
    while let Some(ended) = looks.join_next().await {
        let (camera, number) = ended??;
        let now = subject.clock.now();
        answers += 1;
        let has_learned = answers >= LEARNING_ANSWERS
            || answers >= LEARNING_ANSWERS_MIN && now.since(from) >= time;
        match &mut counted {
            None if has_learned => (from, counted) = (now, Some(0)),
            None => {}
            Some(counted) => {
                *counted += 1;
                let elapsed = now.since(from);
                if elapsed >= time {
                    return Ok(f64::from(*counted) / elapsed.as_secs_f64());
                }
            }
        }
        looks.spawn(begin(camera, number + 1));
    }
    bail!("the engine has stopped")
}

impl LookSubject {
    /// Cameras begin at different pictures.
    fn look(&self, camera: usize, number: usize) -> anyhow::Result<Look> {
        let picture = &self.pictures[(camera * 5 + number) % self.pictures.len()];
        let mut look = Look::still(picture.clone(), self.tasks.iter().cloned())?;
        look.frame.camera = CameraId::new(&format!("bench-{camera}"))?;
        look.frame.times.received = self.clock.now();
        Ok(look)
    }

    fn expected(&self) -> ExpectedLook {
        ExpectedLook {
            width: self.pictures.first().map_or(0, Picture::width) as u32,
            tasks: self.tasks.clone(),
        }
    }
}

/// Decodes a recorded street with libav on one thread.
fn decoder(args: &BenchArgs) -> anyhow::Result<DecoderReport> {
    ingest::start_gstreamer()?;
    let (width, height) = args.size;
    let encoding = Encoding {
        width: width as usize,
        height: height as usize,
        fps: args.fps.into(),
        kbit_per_s: kbit_per_s(args.size.0, args.size.1, args.fps),
    };
    let tape = StreetTape::record(Street::new(STREET_SEED), STREET_START, encoding, TAPE_PAIRS)?;
    let used = || process::processor_time().context("/proc/self/stat cannot be read");
    let (before, mut pictures) = (used()?, 0);
    loop {
        pictures += tape.decode(1)?;
        let took = used()?.saturating_sub(before);
        if took >= DECODE_TIME_MIN {
            return Ok(DecoderReport {
                fps: args.fps,
                ms_per_frame: took.as_secs_f64() * 1e3 / pictures as f64,
                cores: thread::available_parallelism()?.get(),
            });
        }
    }
}

/// About 2000 kbit/s for 1280x720 at 15 frames per second, as small cameras send it.
fn kbit_per_s(width: u32, height: u32, fps: u16) -> u32 {
    let pixels_per_s = u64::from(width) * u64::from(height) * u64::from(fps);
    (pixels_per_s * 2000 / (1280 * 720 * 15)).max(200) as u32
}

/// Decoding one stream in software.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DecoderReport {
    /// Frames per second of a camera.
    fps: u16,
    /// Processor time of a frame on one core.
    ms_per_frame: f64,
    /// Cores that this process may use.
    cores: usize,
}

impl DecoderReport {
    /// Cores that one camera uses.
    fn cores_per_camera(&self) -> f64 {
        self.ms_per_frame * f64::from(self.fps) / 1e3
    }

    fn cameras(&self) -> f64 {
        self.cores as f64 / self.cores_per_camera()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct CapacityReport {
    machine: Machine,
    model: String,
    device: String,
    #[serde(skip)]
    is_gpu: bool,
    /// Pixels across and down.
    size: (u32, u32),
    /// Prompts of each look.
    prompts: usize,
    /// Looks per second and camera.
    rate_hz: f64,
    /// Median of looks one at a time.
    look_ms: f64,
    /// Looks at once that the engine learned to be best.
    permits: usize,
    /// With as many looks at once.
    looks_per_s: f64,
    /// `None` when GStreamer has no H.264 decoder or encoder.
    decoder: Option<DecoderReport>,
}

/// What a machine runs out of first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CapacityLimit {
    Engine,
    Decoder,
    /// Engine and decoder share the cores.
    Cores,
}

impl CapacityReport {
    fn cameras_by_engine(&self) -> f64 {
        self.looks_per_s / self.rate_hz
    }

    /// The number of cameras and what limits it.
    fn cameras(&self) -> (f64, CapacityLimit) {
        let engine = self.cameras_by_engine();
        match self.decoder.as_ref().map(DecoderReport::cameras) {
            None => (engine, CapacityLimit::Engine),
            Some(decoder) if !self.is_gpu => {
                (1.0 / (1.0 / engine + 1.0 / decoder), CapacityLimit::Cores)
            }
            Some(decoder) if decoder < engine => (decoder, CapacityLimit::Decoder),
            Some(_) => (engine, CapacityLimit::Engine),
        }
    }

    /// The report, the numbers of cameras and the limit.
    fn json(&self) -> serde_json::Result<Value> {
        let (cameras, limit) = self.cameras();
        let mut json = serde_json::to_value(self)?;
        json["cameras_by_engine"] = (self.cameras_by_engine() as u64).into();
        let by_decoder = self.decoder.as_ref().map(|d| d.cameras() as u64);
        json["cameras_by_decoder"] = by_decoder.into();
        json["cameras"] = (cameras as u64).into();
        json["limit"] = serde_json::to_value(limit)?;
        Ok(json)
    }
}

impl fmt::Display for CapacityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size;
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "{} on {}", self.model, self.device)?;
        writeln!(
            f,
            "{width}x{height} pixels, {} per look, {} looks/s per camera\n",
            counted(self.prompts, "prompt"),
            self.rate_hz
        )?;
        let row = |name: &str, measured: String, cameras: Option<f64>| {
            let cameras =
                cameras.map_or_else(String::new, |cameras| known(Some(cameras.floor()), 0));
            vec![
                ("", name.to_owned()),
                ("measured", measured),
                ("cameras", cameras),
            ]
        };
        let decoded = self
            .decoder
            .as_ref()
            .map_or("not measured".into(), |decoder| {
                let (ms, cores) = (decoder.ms_per_frame, decoder.cores_per_camera());
                let (all, fps) = (decoder.cores, decoder.fps);
                format!("{ms:.2} ms/frame, {cores:.2} of {all} cores at {fps} fps")
            });
        let single = format!("{:.1} ms, {:.1} looks/s", self.look_ms, 1e3 / self.look_ms);
        let at_once = format!("{} at once", counted(self.permits, "look"));
        let speed = format!("{:.1} looks/s", self.looks_per_s);
        let by_decoder = self.decoder.as_ref().map(DecoderReport::cameras);
        let rows = [
            row("one look at a time", single, None),
            row(&at_once, speed, Some(self.cameras_by_engine())),
            row("software decoder (libav)", decoded, by_decoder),
        ];
        write!(f, "{}", TextTable::new(rows))?;
        let (cameras, limit) = self.cameras();
        let limit = match limit {
            CapacityLimit::Engine => "the engine limits first",
            CapacityLimit::Decoder => {
                "decoding limits first; a hardware decoder or `decode = \"keyframes\"` helps"
            }
            CapacityLimit::Cores => "engine and decoder share the cores",
        };
        write!(
            f,
            "\nThis machine can watch about {}: {limit}.",
            counted(cameras as usize, "camera")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(is_gpu: bool, ms_per_frame: f64) -> CapacityReport {
        CapacityReport {
            machine: Machine::default(),
            model: "moondream-2b".into(),
            device: "cuda 0".into(),
            is_gpu,
            size: (1280, 720),
            prompts: 1,
            rate_hz: 2.0,
            look_ms: 20.0,
            permits: 8,
            looks_per_s: 80.0,
            decoder: Some(DecoderReport {
                fps: 10,
                ms_per_frame,
                cores: 4,
            }),
        }
    }

    #[test]
    fn capacity_is_that_of_the_scarcer_resource() {
        let (cameras, limit) = report(true, 2.0).cameras();
        assert_eq!((cameras.round(), limit), (40.0, CapacityLimit::Engine));
        let (cameras, limit) = report(true, 20.0).cameras();
        assert_eq!((cameras.round(), limit), (20.0, CapacityLimit::Decoder));
        let (cameras, limit) = report(false, 10.0).cameras();
        assert_eq!((cameras.round(), limit), (20.0, CapacityLimit::Cores));
        let without = CapacityReport {
            decoder: None,
            ..report(false, 1.0)
        };
        assert_eq!(without.cameras(), (40.0, CapacityLimit::Engine));
        assert!(without.to_string().contains("about 40 cameras"));
    }

    #[test]
    fn json_report_names_cameras_and_limit() {
        let json = report(true, 20.0).json().unwrap();
        assert_eq!(json["cameras"], 20);
        assert_eq!(json["cameras_by_engine"], 40);
        assert_eq!(json["limit"], "decoder");
        assert_eq!(json["decoder"]["cores"], 4);
    }
}
