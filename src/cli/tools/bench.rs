//! `spotter bench`: how many cameras this machine can watch.
//!
//! The engine answers looks at the drawn street, one at a time and then as in the daemon: on its thread, with as many looks at
//! once as it learns to be best, each begun when there is a permit. libav decodes a recorded stream on one core. Both
//! figures divided by what one camera needs give the number of cameras. Everything else is measured with `spotter-lab`.

use std::{fmt, sync::Arc, thread, time::Duration};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{
    cli::{
        args::BenchArgs,
        out::{counted, remark, say},
        table::TextTable,
    },
    ops::{machine::Machine, process},
};
use spotter_cameras::ingest;
use spotter_config as config;
use spotter_core::{CameraId, Clock, Look, Picture, SystemClock, Task, WallTime};
use spotter_engine::{
    open::{self, ExpectedLook},
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
        size: args.size,
        prompts: args.prompts.into(),
        rate_hz: args.rate,
        capacity: Capacity::new(
            engine.looks_per_s / args.rate,
            decoder.as_ref().ok().map(DecoderReport::cameras),
            engine.is_gpu,
        ),
        engine,
        decoder: decoder.ok(),
    };
    match args.json {
        true => say(serde_json::to_string(&report)?),
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
#[derive(Clone, Debug, PartialEq, Serialize)]
struct EngineSpeed {
    model: String,
    device: String,
    #[serde(skip)]
    is_gpu: bool,
    /// Median of looks one at a time.
    look_ms: f64,
    /// Looks at once that the engine learned to be best.
    permits: usize,
    /// With as many looks at once.
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
        model: card.name.to_string(),
        is_gpu: !card.gpus.is_empty(),
        device: card.device,
        look_ms: single.as_secs_f64() * 1e3,
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
    let (mut answers, mut from, mut is_learning) = (0, subject.clock.now(), true);
    while let Some(ended) = looks.join_next().await {
        let (camera, number) = ended??;
        let now = subject.clock.now();
        answers += 1;
        let elapsed = now.since(from);
        let is_over = elapsed >= time;
        if is_learning {
            if answers >= LEARNING_ANSWERS || answers >= LEARNING_ANSWERS_MIN && is_over {
                (answers, from, is_learning) = (0, now, false);
            }
        } else if is_over {
            return Ok(f64::from(answers) / elapsed.as_secs_f64());
        }
        looks.spawn(begin(camera, number + 1));
    }
    bail!("the engine has stopped")
}

impl LookSubject {
    /// Cameras begin at different pictures.
    fn look(&self, camera: usize, number: usize) -> anyhow::Result<Look> {
        let picture = &self.pictures[(camera * 5 + number) % self.pictures.len()];
        let mut look = Look::still(picture.clone(), self.tasks.iter().cloned());
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
    let ((width, height), fps) = (args.size, u32::from(args.fps));
    // 2000 kbit/s for 1280x720 at 15 frames per second, as small cameras send it.
    let pixels_per_s = u64::from(width) * u64::from(height) * u64::from(fps);
    let kbit_per_s = (pixels_per_s * 2000 / (1280 * 720 * 15)).max(200) as u32;
    let encoding = Encoding {
        width: width as usize,
        height: height as usize,
        fps,
        kbit_per_s,
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
    #[serde(flatten)]
    engine: EngineSpeed,
    /// Pixels across and down.
    size: (u32, u32),
    /// Prompts of each look.
    prompts: usize,
    /// Looks per second and camera.
    rate_hz: f64,
    /// `None` when GStreamer has no H.264 decoder or encoder.
    decoder: Option<DecoderReport>,
    #[serde(flatten)]
    capacity: Capacity,
}

/// Numbers of cameras, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Capacity {
    cameras: u64,
    cameras_by_engine: u64,
    cameras_by_decoder: Option<u64>,
    limit: CapacityLimit,
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

impl Capacity {
    fn new(by_engine: f64, by_decoder: Option<f64>, is_gpu: bool) -> Self {
        let (cameras, limit) = match by_decoder {
            Some(decoder) if !is_gpu => {
                let together = 1.0 / (1.0 / by_engine + 1.0 / decoder);
                (together, CapacityLimit::Cores)
            }
            Some(decoder) if decoder < by_engine => (decoder, CapacityLimit::Decoder),
            Some(_) | None => (by_engine, CapacityLimit::Engine),
        };
        Self {
            cameras: cameras as u64,
            cameras_by_engine: by_engine as u64,
            cameras_by_decoder: by_decoder.map(|cameras| cameras as u64),
            limit,
        }
    }
}

impl fmt::Display for CapacityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size;
        let (engine, capacity, rate) = (&self.engine, &self.capacity, self.rate_hz);
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "{} on {}", engine.model, engine.device)?;
        let prompts = counted(self.prompts, "prompt");
        writeln!(
            f,
            "{width}x{height} pixels, {prompts} per look, {rate} looks/s per camera\n"
        )?;
        let row = |name: &str, measured: String, cameras: Option<u64>| {
            let cameras = cameras.map(|cameras| cameras.to_string());
            vec![
                ("", name.to_owned()),
                ("measured", measured),
                ("cameras", cameras.unwrap_or_default()),
            ]
        };
        let decoded = self.decoder.as_ref().map(|decoder| {
            let (ms, cores) = (decoder.ms_per_frame, decoder.cores_per_camera());
            let (all, fps) = (decoder.cores, decoder.fps);
            format!("{ms:.2} ms/frame, {cores:.2} of {all} cores at {fps} fps")
        });
        let decoded = decoded.unwrap_or_else(|| "not measured".to_owned());
        let ms = engine.look_ms;
        let single = format!("{ms:.1} ms, {:.1} looks/s", 1e3 / ms);
        let at_once = format!("{} at once", counted(engine.permits, "look"));
        let speed = format!("{:.1} looks/s", engine.looks_per_s);
        let rows = [
            row("one look at a time", single, None),
            row(&at_once, speed, Some(capacity.cameras_by_engine)),
            row(
                "software decoder (libav)",
                decoded,
                capacity.cameras_by_decoder,
            ),
        ];
        write!(f, "{}", TextTable::new(rows))?;
        let limit = match capacity.limit {
            CapacityLimit::Engine => "the engine limits first",
            CapacityLimit::Decoder => {
                "decoding limits first; a hardware decoder or `decode = \"keyframes\"` helps"
            }
            CapacityLimit::Cores => "engine and decoder share the cores",
        };
        let cameras = counted(capacity.cameras as usize, "camera");
        write!(f, "\nThis machine can watch about {cameras}: {limit}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_that_of_the_scarcer_resource() {
        let decoder = DecoderReport {
            fps: 10,
            ms_per_frame: 20.0,
            cores: 4,
        };
        for (by_engine, by_decoder, is_gpu, cameras, limit) in [
            (40.0, Some(200.0), true, 40, CapacityLimit::Engine),
            (
                40.0,
                Some(decoder.cameras()),
                true,
                20,
                CapacityLimit::Decoder,
            ),
            (40.0, Some(40.0), false, 20, CapacityLimit::Cores),
            (40.0, None, false, 40, CapacityLimit::Engine),
        ] {
            let capacity = Capacity::new(by_engine, by_decoder, is_gpu);
            assert_eq!((capacity.cameras, capacity.limit), (cameras, limit));
        }
        let report = CapacityReport {
            machine: Machine::default(),
            engine: EngineSpeed {
                model: "moondream-2b".into(),
                device: "cuda 0".into(),
                is_gpu: true,
                look_ms: 20.0,
                permits: 8,
                looks_per_s: 80.0,
            },
            size: (1280, 720),
            prompts: 1,
            rate_hz: 2.0,
            capacity: Capacity::new(40.0, Some(20.0), true),
            decoder: Some(decoder),
        };
        assert!(report.to_string().contains("about 20 cameras: decoding"));
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(json["cameras"], 20);
        assert_eq!(json["limit"], "decoder");
        assert_eq!(json["decoder"]["cores"], 4);
    }
}
