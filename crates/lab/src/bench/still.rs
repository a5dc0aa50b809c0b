//! `spotter-lab still`: what pictures that do not change save, on video as cameras send it.
//!
//! ```text
//!   drawn street + sensor noise ─┐
//!   recording, scaled ───────────┴▶ x264 ─▶ libav ─▶ two looks a second ─▶ scheduler of Moondream 2 on a simulated device
//!                                                                          ─▶ crops, prefill positions, answers without a step
//! ```
//!
//! Which crops are encoded does not depend on the weights, so a device without tensors shows it. Time is the video's.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::table::{TableRow, TextTable};
use crate::args::StillScene;
use spotter::ops::machine::Machine;
use spotter_config as config;
use spotter_core::{CameraId, Clock, LookNews, ManualClock, Picture, SystemClock, Task, WallTime};
use spotter_engine::{
    model::{ModelConfig, load_model, tiling},
    scheduler::{
        Options,
        backend::BackendLimits,
        request::Work,
        sequence::Bounds,
        still::{PictureDetail, PictureMeasure, ReuseRule},
    },
    service::{Engine, EngineModel},
    sim::{SimBackend, SimCosts, SimModel},
};
use spotter_street::{
    Scene, Street, draw_i420,
    h264::{Encoding, recording_through_h264, through_h264},
};

/// Frames a second of all videos.
const FPS: u32 = 15;
/// Two looks a second: every frame with one of these numbers modulo [`FPS`].
const LOOKED_AT: [usize; 2] = [0, 7];
const VIDEO_SIZE: (usize, usize) = (1280, 720);
const REUSE: ReuseRule = ReuseRule {
    detail: PictureDetail::Cells,
    max_age: Duration::from_secs(10),
};
const PAGE_TOKENS: usize = 16;
/// The street of all drawn scenes.
const STREET: u64 = 5;
/// 2026-01-01: the first moment that is tried for a scene.
const FIRST_MOMENT_S: i64 = 1_767_225_600;
/// Clouds: change of light, levels, and its period.
const CLOUD_LEVELS: f32 = 12.0;
const CLOUD_S: f32 = 20.0;

/// What is measured.
#[derive(Clone, Debug)]
pub struct StillOptions {
    pub sizes: Vec<(usize, usize)>,
    pub kbit_per_s: Vec<u32>,
    /// Drawn scenes; none means all.
    pub scenes: Vec<StillScene>,
    pub videos: Vec<PathBuf>,
    /// Length of each video.
    pub seconds: u32,
}

/// What one video saved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StillRow {
    /// The drawn scene, or the name of the recording.
    pub scene: String,
    pub size: (usize, usize),
    pub kbit_per_s: u32,
    pub looks: u64,
    /// Shares of what a look needs that were saved.
    pub crops_saved: f64,
    pub positions_saved: f64,
    /// Share of the looks that were answered without a step.
    pub without_step: f64,
    /// The host's time to measure a picture, microseconds.
    pub measure_us: f64,
}

impl StillRow {
    fn cells(&self) -> TableRow {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        vec![
            ("scene", self.scene.clone()),
            ("size", format!("{}x{}", self.size.0, self.size.1)),
            ("kbit/s", self.kbit_per_s.to_string()),
            ("looks", self.looks.to_string()),
            ("crops saved", percent(self.crops_saved)),
            ("positions saved", percent(self.positions_saved)),
            ("without a step", percent(self.without_step)),
            ("measure µs", format!("{:.0}", self.measure_us)),
        ]
    }
}

impl fmt::Display for StillRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size;
        let saved = 100.0 * self.crops_saved;
        let kbit_per_s = self.kbit_per_s;
        write!(
            f,
            "{} {width}x{height} at {kbit_per_s} kbit/s: {saved:.1} % of crops saved",
            self.scene
        )
    }
}

/// `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct StillReport {
    pub machine: Machine,
    pub seconds: u32,
    pub rows: Vec<StillRow>,
}

impl fmt::Display for StillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}\n{} s of each video at {FPS} frames a second, two looks a second, one detect prompt; tiles of Moondream 2\n",
            self.machine, self.seconds
        )?;
        write!(
            f,
            "{}",
            TextTable::new(self.rows.iter().map(StillRow::cells))
        )
    }
}

/// Measures every scene at every size and bit rate, then the recordings. Blocks for all of it, up to a minute each.
pub fn still(
    options: &StillOptions,
    mut progress: impl FnMut(&StillRow),
) -> anyhow::Result<StillReport> {
    let all = [
        StillScene::Standing,
        StillScene::Night,
        StillScene::Light,
        StillScene::Moving,
    ];
    let scenes = match options.scenes.is_empty() {
        true => &all[..],
        false => &options.scenes,
    };
    let mut rows = Vec::new();
    let mut add = |row: StillRow| {
        progress(&row);
        rows.push(row);
    };
    for &scene in scenes {
        for &size in &options.sizes {
            for &kbit_per_s in &options.kbit_per_s {
                let encoding = encoding(size, kbit_per_s);
                let frames = options.seconds as usize * FPS as usize;
                let drawn = (0..frames).map(DrawnVideo::new(scene, size)?.into_frames());
                let pictures = through_h264(encoding, drawn)?;
                let name = format!("{scene:?}").to_lowercase();
                add(row(name, encoding, pictures.map(|p| Ok(p?)))?);
            }
        }
    }
    for video in &options.videos {
        for &kbit_per_s in &options.kbit_per_s {
            let encoding = encoding(VIDEO_SIZE, kbit_per_s);
            let frames = options.seconds as usize * FPS as usize;
            let pictures = recording_through_h264(video, encoding)?.take(frames);
            add(row(name_of(video), encoding, pictures.map(|p| Ok(p?)))?);
        }
    }
    Ok(StillReport {
        machine: Machine::now(),
        seconds: options.seconds,
        rows,
    })
}

fn name_of(video: &Path) -> String {
    let name = video.file_stem().unwrap_or(video.as_os_str());
    name.to_string_lossy().into_owned()
}

fn encoding(size: (usize, usize), kbit_per_s: u32) -> Encoding {
    Encoding {
        width: size.0,
        height: size.1,
        fps: FPS,
        kbit_per_s,
    }
}

/// Frames of a drawn scene, with noise that is another one in each.
struct DrawnVideo {
    scene: StillScene,
    size: (usize, usize),
    street: Street,
    /// Street time of the first frame, Unix seconds.
    begins_s: i64,
    still: Vec<u8>,
    noise: SensorNoise,
}

/// Noise of a camera's sensor, another one in each frame.
pub(super) struct SensorNoise {
    random: Pcg64,
    /// Of a normal distribution with variance 1.
    values: Vec<f32>,
}

impl SensorNoise {
    pub fn new(seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut normal = || {
            let (u, v): (f32, f32) = (random.random(), random.random());
            (-2.0 * u.max(1e-9).ln()).sqrt() * (std::f32::consts::TAU * v).cos()
        };
        Self {
            values: (0..1 << 18).map(|_| normal()).collect(),
            random,
        }
    }

    /// Adds noise of `levels` (standard deviation), and `light` to all, to rows of `width` samples.
    pub fn add(&mut self, samples: &mut [u8], width: usize, levels: f32, light: f32) {
        for row in samples.chunks_mut(width) {
            let first = self.random.random_range(0..self.values.len() - row.len());
            for (sample, noise) in row.iter_mut().zip(&self.values[first..]) {
                *sample = (f32::from(*sample) + levels * noise + light).round() as u8;
            }
        }
    }
}

impl DrawnVideo {
    fn new(scene: StillScene, size: (usize, usize)) -> anyhow::Result<Self> {
        let street = Street::new(STREET);
        let wanted = |darkness: f32| match scene {
            StillScene::Night => darkness > 0.9,
            _ => darkness < 0.1,
        };
        let at = |second: i64| street.at(WallTime::from_unix_millis(second * 1000));
        let moments = (0..24).map(|minute| FIRST_MOMENT_S + minute * 60);
        let begins_s = moments
            .into_iter()
            .find(|second| wanted(at(*second).darkness));
        let begins_s = begins_s.context("a street without day or night")?;
        Ok(Self {
            still: drawn(at(begins_s), size),
            scene,
            size,
            street,
            begins_s,
            noise: SensorNoise::new(1),
        })
    }

    fn into_frames(mut self) -> impl FnMut(usize) -> Vec<u8> + Send + 'static {
        move |frame| self.frame(frame)
    }

    fn frame(&mut self, frame: usize) -> Vec<u8> {
        let seconds = frame as f32 / FPS as f32;
        let mut samples = match self.scene {
            StillScene::Moving => {
                let at_ms = self.begins_s * 1000 + (seconds * 1000.0) as i64;
                drawn(self.street.at(WallTime::from_unix_millis(at_ms)), self.size)
            }
            _ => self.still.clone(),
        };
        let levels = match self.scene {
            StillScene::Night => 4.0,
            _ => 2.0,
        };
        let light = match self.scene {
            StillScene::Light => CLOUD_LEVELS * (std::f32::consts::TAU * seconds / CLOUD_S).sin(),
            _ => 0.0,
        };
        let luma = self.size.0 * self.size.1;
        let (luma, chroma) = samples.split_at_mut(luma);
        self.noise.add(luma, self.size.0, levels, light);
        self.noise.add(chroma, self.size.0, levels, 0.0);
        samples
    }
}

/// Without the lens's own grain.
pub(super) fn drawn(mut scene: Scene, size: (usize, usize)) -> Vec<u8> {
    scene.lens.grain = 0.0;
    draw_i420(&scene, size.0 as u32, size.1 as u32)
}

fn row(
    scene: String,
    encoding: Encoding,
    pictures: impl Iterator<Item = anyhow::Result<Picture>>,
) -> anyhow::Result<StillRow> {
    let size = (encoding.width, encoding.height);
    let clock = ManualClock::at(WallTime::default());
    let mut engine = engine(size, &clock)?;
    let camera = CameraId::new("still")?;
    let task = Task::Detect {
        object: "person".to_owned(),
    };
    let (mut looks, mut measured) = (0, Duration::ZERO);
    let prompt_positions = {
        let (config, tokenizer) = engine.model();
        config.family.prompt(&task, config, tokenizer)?.inputs.len()
    };
    let real = SystemClock::new();
    for (number, picture) in pictures.enumerate() {
        let picture = picture?;
        if LOOKED_AT.contains(&(number % FPS as usize)) {
            let began = real.now();
            let vision = &engine.model().0.vision;
            let tiling = tiling(picture.width(), picture.height(), vision);
            let measure = PictureMeasure::of(&picture, tiling, vision, REUSE.detail);
            measured += real.now().since(began);
            anyhow::ensure!(measure.crops() > 0, "a picture without crops");
            let mut look = spotter_core::Look::still(picture, [task.clone()]);
            look.frame.camera = camera.clone();
            engine.submit(look)?;
            while !engine.is_idle() {
                for (_, news) in engine.turn()? {
                    if let LookNews::Ended(outcome) = news {
                        outcome.answered().map_err(anyhow::Error::msg)?;
                    }
                }
            }
            looks += 1;
        }
        clock.advance(Duration::from_secs(1) / FPS);
    }
    anyhow::ensure!(looks > 0, "{scene}: no frames");
    let work = engine.worker().work();
    let (config, _) = engine.model();
    let prefix = config.prefix_positions() as f64;
    let each = prefix + prompt_positions as f64;
    let Work {
        images,
        prefills,
        crops_encoded,
        unchanged,
        ..
    } = work;
    let crops = tiling(size.0, size.1, &config.vision).crops() as f64;
    let positions = images as f64 * prefix + prefills as f64 * prompt_positions as f64;
    let of_looks = |part: f64| part / looks as f64;
    Ok(StillRow {
        scene,
        size,
        kbit_per_s: encoding.kbit_per_s,
        looks,
        crops_saved: 1.0 - of_looks(crops_encoded as f64) / crops,
        positions_saved: 1.0 - of_looks(positions) / each,
        without_step: of_looks(unchanged as f64),
        measure_us: measured.as_secs_f64() * 1e6 / looks as f64,
    })
}

/// The shape of Moondream 2 on a device whose steps cost nothing.
fn engine(size: (usize, usize), clock: &ManualClock) -> anyhow::Result<Engine> {
    let config = ModelConfig::default();
    let crops = tiling(size.0, size.1, &config.vision).crops();
    let limits = BackendLimits {
        slots: 2,
        rows: 4,
        pages: 8 * config.context().div_ceil(PAGE_TOKENS),
        page_tokens: PAGE_TOKENS,
        context: config.context(),
        prefix_positions: config.prefix_positions(),
        images: 1,
        positions: 2 * config.context(),
        tokens: 2 * config.context(),
        picks: usize::MAX,
        picture_pixels: usize::MAX,
        kept_crops: crops,
        adapters: 0,
    };
    let model = SimModel {
        vocab: config.text.vocab_size,
        objects: 3,
        crops,
        memory: false,
    };
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let device = SimBackend::new(limits, model, costs, clock.clone());
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 8,
    };
    let tokenizer = load_model(&config::ModelSource::Embedded)?.tokenizer;
    let model = EngineModel {
        config,
        tokenizer,
        explains_strips: true,
    };
    let mut engine = Engine::new(Box::new(device), model, bounds, Arc::new(clock.clone()));
    let options = Options {
        reuse: Some(REUSE),
        ..Options::default()
    };
    engine.restart(bounds, options);
    Ok(engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_street_is_saved_and_moving_one_is_not() {
        let options = |scene| StillOptions {
            sizes: vec![(640, 480)],
            kbit_per_s: vec![1000],
            scenes: vec![scene],
            videos: Vec::new(),
            seconds: 12,
        };
        let measure = |scene| still(&options(scene), |_| {}).unwrap().rows.remove(0);
        let standing = measure(StillScene::Standing);
        // Two of 24 looks are encoded: the first, and one after ten seconds.
        assert_eq!(standing.looks, 24);
        assert!(
            standing.crops_saved >= 0.85 && standing.positions_saved >= 0.8,
            "{standing:?}"
        );
        assert!(standing.without_step >= 0.8, "{standing:?}");
        let moving = measure(StillScene::Moving);
        assert!(moving.crops_saved < standing.crops_saved, "{moving:?}");
    }
}
