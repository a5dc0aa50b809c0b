//! `spotter-lab still --check`: answers with reuse against answers without, where something changes.
//!
//! ```text
//!   scene ─▶ thirteen looks before: the floor is learned, the picture kept
//!         ─▶ a thing appears, moves by its own width, or leaves
//!         ─▶ a look at once and one half a second later ─▶ with reuse ─┬─▶ the same objects? F1 of both
//!                                                       ─▶ without ────┘
//! ```
//!
//! All pictures pass through H.264 with noise. Two answers are the same when each box of one has a box of the other with an overlap of
//! a half (the rule by which boxes are right).

use std::fmt;

use anyhow::{Context as _, ensure};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::{
    ask::ask,
    clip::{Clip, HEIGHT, WIDTH, encoding},
    progress::ProgressLine,
    still::{SensorNoise, drawn},
};
use spotter::ops::machine::Machine;
use spotter_core::{Answer, AnswerBody, CameraId, Look, LookNews, NormBox, Picture, Task};
use spotter_engine::service::Engine;
use spotter_street::{
    Scene,
    h264::through_h264,
    scene::{CANVAS_WIDTH, Class},
    score::{MatchTally, TruthObject, match_boxes},
    truth,
};

const FPS: u32 = 15;
/// Frames before the change; looks are at every third.
const BEFORE: usize = 37;
const LOOKS_BEFORE: usize = 13;
/// Answers before the change are compared in one of so many scenes.
const BEFORE_COMPARED_EVERY: u64 = 10;
/// Frames from the change on; looks are at the first and the last.
const AFTER: usize = 8;
const NOISE_LEVELS: f32 = 2.0;
/// Scenes that are tried for each that is wanted: in some, nothing fits.
const TRIES: u64 = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckOptions {
    pub scenes: u64,
    pub first_seed: u64,
    pub kbit_per_s: u32,
}

/// What happens to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SceneChange {
    Appears,
    Moves,
    Leaves,
}

/// Looks of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ComparedLooks {
    pub looks: u64,
    /// Of these, answered without a step.
    pub unchanged: u64,
    /// Of these, with other objects than without reuse.
    pub different: u64,
}

/// A look that was answered otherwise than without reuse.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferentLook {
    pub seed: u64,
    pub change: SceneChange,
    pub class: &'static str,
    /// Of the thing that changed, pixels across and down.
    pub thing_px: (u32, u32),
    /// Without a step.
    pub unchanged: bool,
    /// Boxes with reuse and without.
    pub boxes: (usize, usize),
}

/// `Display` gives the lines, serde the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    pub machine: Machine,
    pub model: String,
    pub options: CheckOptions,
    /// By what happens.
    pub appears: ComparedLooks,
    pub moves: ComparedLooks,
    pub leaves: ComparedLooks,
    /// The looks before a change, which differ by noise alone.
    pub before: ComparedLooks,
    /// Of all looks after a change.
    pub f1_with: Option<f64>,
    pub f1_without: Option<f64>,
    /// Crops of all looks: encoded and reused.
    pub crops: (u64, u64),
    /// After a change.
    pub different: Vec<DifferentLook>,
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.machine, self.model)?;
        let mut all = ComparedLooks::default();
        for (what, looks) in [
            ("appears", self.appears),
            ("moves", self.moves),
            ("leaves", self.leaves),
        ] {
            write_looks(f, what, looks)?;
            all.looks += looks.looks;
            all.unchanged += looks.unchanged;
            all.different += looks.different;
        }
        write_looks(f, "all", all)?;
        write_looks(f, "before", self.before)?;
        let f1 = [self.f1_with, self.f1_without].map(|f1| f1.unwrap_or_default());
        writeln!(f, "F1 with reuse {:.4}, without {:.4}", f1[0], f1[1])?;
        writeln!(f, "crops encoded {}, reused {}", self.crops.0, self.crops.1)?;
        for look in &self.different {
            writeln!(f, "different: {look}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DifferentLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            change,
            class,
            thing_px: (width, height),
            unchanged,
            boxes: (with, without),
        } = self;
        let step = if *unchanged { "without" } else { "with" };
        write!(
            f,
            "scene {seed}, {class} of {width}x{height} px {change:?}, {step} a step, {with} boxes instead of {without}"
        )
    }
}

fn write_looks(f: &mut fmt::Formatter<'_>, what: &str, looks: ComparedLooks) -> fmt::Result {
    let share = 100.0 * looks.different as f64 / looks.looks.max(1) as f64;
    writeln!(
        f,
        "{what:8} {} looks, {} without a step, {} different ({share:.2} %)",
        looks.looks, looks.unchanged, looks.different
    )
}

/// Compares answers over scenes of seeds from the first on. The engine has reuse on. Blocks for all of it: up to a second a scene.
pub fn check_still(
    engine: &mut Engine,
    model: &str,
    options: &CheckOptions,
    progress: &mut ProgressLine,
) -> anyhow::Result<CheckReport> {
    let mut check = Check {
        engine,
        kbit_per_s: options.kbit_per_s,
        with: MatchTally::default(),
        without: MatchTally::default(),
        report: CheckReport {
            machine: Machine::now(),
            model: model.to_owned(),
            options: options.clone(),
            appears: ComparedLooks::default(),
            moves: ComparedLooks::default(),
            leaves: ComparedLooks::default(),
            before: ComparedLooks::default(),
            f1_with: None,
            f1_without: None,
            crops: (0, 0),
            different: Vec::new(),
        },
    };
    let mut done = 0;
    for seed in (options.first_seed..).take((options.scenes * TRIES) as usize) {
        if done == options.scenes {
            break;
        }
        if let Some(scene) = ChangingScene::new(seed) {
            (check.scene(seed, &scene)).with_context(|| format!("scene {seed}"))?;
            done += 1;
            progress.step();
        }
    }
    ensure!(
        done == options.scenes,
        "{done} scenes have a thing that fits"
    );
    let work = check.engine.worker().work();
    let mut report = check.report;
    (report.f1_with, report.f1_without) = (check.with.f1(), check.without.f1());
    report.crops = (work.crops_encoded, work.crops_reused);
    Ok(report)
}

/// A scene before and after its change.
struct ChangingScene {
    change: SceneChange,
    class: Class,
    /// Size of the thing, pixels across and down.
    thing_px: (u32, u32),
    before: Scene,
    after: Scene,
}

impl ChangingScene {
    /// `None` when no thing of the scene can change in the way that the seed chooses.
    fn new(seed: u64) -> Option<Self> {
        let mut random = Pcg64::seed_from_u64(seed);
        let changes = [
            SceneChange::Appears,
            SceneChange::Moves,
            SceneChange::Leaves,
        ];
        let change = changes[random.random_range(0..changes.len())];
        let scene = Clip::new(seed).last().clone();
        let mut things: Vec<usize> = (0..scene.objects.len()).collect();
        things.shuffle(&mut random);
        things.into_iter().find_map(|index| {
            let class = scene.objects[index].class;
            let mut without = scene.clone();
            without.objects.remove(index);
            let (shown, absent) = (boxes_of(&scene, class), boxes_of(&without, class));
            let own = shown.iter().find(|place| !absent.contains(place))?;
            if shown.len() != absent.len() + 1 {
                return None;
            }
            let mut moved = scene.clone();
            let width = (own.x1 - own.x0) as f32 * CANVAS_WIDTH;
            let place = &mut moved.objects[index].x;
            *place += if *place < CANVAS_WIDTH / 2.0 {
                width
            } else {
                -width
            };
            let (before, after) = match change {
                SceneChange::Appears => (without, scene.clone()),
                SceneChange::Leaves => (scene.clone(), without),
                SceneChange::Moves if boxes_of(&moved, class).len() == shown.len() => {
                    (scene.clone(), moved)
                }
                SceneChange::Moves => return None,
            };
            Some(Self {
                change,
                class,
                thing_px: (
                    ((own.x1 - own.x0) * f64::from(WIDTH)).round() as u32,
                    ((own.y1 - own.y0) * f64::from(HEIGHT)).round() as u32,
                ),
                before,
                after,
            })
        })
    }

    /// The pictures that are looked at: before, after.
    fn pictures(&self, kbit_per_s: u32) -> anyhow::Result<(Vec<Picture>, Vec<Picture>)> {
        let size = (WIDTH as usize, HEIGHT as usize);
        let [before, after] = [&self.before, &self.after].map(|scene| drawn(scene.clone(), size));
        let mut noise = SensorNoise::new(self.before.lens.seed);
        let frames = (0..BEFORE + AFTER).map(move |number| {
            let mut frame = if number < BEFORE {
                before.clone()
            } else {
                after.clone()
            };
            noise.add(&mut frame, size.0, NOISE_LEVELS, 0.0);
            frame
        });
        let mut looked_at = (Vec::new(), Vec::new());
        for (number, picture) in through_h264(encoding(FPS, kbit_per_s), frames)?.enumerate() {
            let picture = picture?;
            if number >= BEFORE {
                if [BEFORE, BEFORE + AFTER - 1].contains(&number) {
                    looked_at.1.push(picture);
                }
            } else if number.is_multiple_of(BEFORE / (LOOKS_BEFORE - 1)) {
                looked_at.0.push(picture);
            }
        }
        ensure!(
            looked_at.0.len() == LOOKS_BEFORE && looked_at.1.len() == 2,
            "frames are missing"
        );
        Ok(looked_at)
    }
}

/// Boxes of the class that have to be found.
fn boxes_of(scene: &Scene, class: Class) -> Vec<NormBox> {
    let truth = truth(scene);
    truth.present(class).map(|seen| seen.box_in_frame).collect()
}

struct Check<'a> {
    engine: &'a mut Engine,
    kbit_per_s: u32,
    with: MatchTally,
    without: MatchTally,
    report: CheckReport,
}

impl Check<'_> {
    fn scene(&mut self, seed: u64, scene: &ChangingScene) -> anyhow::Result<()> {
        let (before, after) = scene.pictures(self.kbit_per_s)?;
        let camera = CameraId::new(&format!("s{}", seed % 100_000))?;
        let task = Task::Detect {
            object: scene.class.name().to_owned(),
        };
        let is_compared = seed.is_multiple_of(BEFORE_COMPARED_EVERY);
        for picture in &before {
            let with = self.with_reuse(&camera, picture, &task)?;
            if is_compared {
                let without = self.without_reuse(with.clone(), picture, &task)?;
                self.report.before.add(&with.answer, &without);
            }
        }
        let things = truth(&scene.after).things(scene.class, None);
        for picture in &after {
            let with = self.with_reuse(&camera, picture, &task)?;
            let without = self.without_reuse(with.clone(), picture, &task)?;
            let with = with.answer;
            let looks = match scene.change {
                SceneChange::Appears => &mut self.report.appears,
                SceneChange::Moves => &mut self.report.moves,
                SceneChange::Leaves => &mut self.report.leaves,
            };
            if looks.add(&with, &without) {
                self.report.different.push(DifferentLook {
                    seed,
                    change: scene.change,
                    class: scene.class.name(),
                    thing_px: scene.thing_px,
                    unchanged: with.unchanged,
                    boxes: (boxes(&with).len(), boxes(&without).len()),
                });
            }
            self.with.add(match_boxes(&boxes(&with), &things).tally());
            self.without
                .add(match_boxes(&boxes(&without), &things).tally());
        }
        Ok(())
    }

    fn with_reuse(
        &mut self,
        camera: &CameraId,
        picture: &Picture,
        task: &Task,
    ) -> anyhow::Result<ReusedAnswer> {
        let reused = self.engine.worker().work().crops_reused;
        let mut look = Look::still(picture.clone(), [task.clone()]);
        look.frame.camera = camera.clone();
        self.engine.submit(look)?;
        let mut answers = Vec::new();
        while !self.engine.is_idle() {
            for (_, news) in self.engine.turn()? {
                if let LookNews::Answer { answer, .. } = news {
                    answers.push(answer);
                }
            }
        }
        let answer = answers.pop().context("a look without an answer")?;
        let is_fresh = !answer.unchanged && self.engine.worker().work().crops_reused == reused;
        Ok(ReusedAnswer { answer, is_fresh })
    }

    /// Where all crops were encoded, it is the same work, and on the CPU the same to the bit.
    fn without_reuse(
        &mut self,
        with: ReusedAnswer,
        picture: &Picture,
        task: &Task,
    ) -> anyhow::Result<Answer> {
        if with.is_fresh {
            return Ok(with.answer);
        }
        let mut answers = ask(self.engine, picture.clone(), [task.clone()])?;
        answers.pop().context("a look without an answer")
    }
}

/// An answer of an engine with reuse.
#[derive(Clone)]
struct ReusedAnswer {
    answer: Answer,
    /// Nothing was reused.
    is_fresh: bool,
}

impl ComparedLooks {
    /// True when the answers differ.
    fn add(&mut self, with: &Answer, without: &Answer) -> bool {
        let is_different = !are_alike(&boxes(with), &boxes(without));
        self.looks += 1;
        self.unchanged += u64::from(with.unchanged);
        self.different += u64::from(is_different);
        is_different
    }
}

fn boxes(answer: &Answer) -> Vec<NormBox> {
    match &answer.body {
        AnswerBody::Boxes(found) => found.iter().map(|one| one.place).collect(),
        AnswerBody::Points(_) | AnswerBody::Text { .. } | AnswerBody::Outline(_) => Vec::new(),
    }
}

fn are_alike(a: &[NormBox], b: &[NormBox]) -> bool {
    let thing = |&bounds| TruthObject {
        bounds,
        ignored: false,
    };
    let things: Vec<TruthObject> = b.iter().map(thing).collect();
    match_boxes(a, &things).tally().found as usize == a.len().max(b.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use spotter_config as config;
    use spotter_core::ManualClock;

    #[test]
    fn answers_with_reuse_are_those_without() {
        let settings = config::ModelSettings::of(config::ModelSource::Embedded);
        let clock = Arc::new(ManualClock::default());
        let (mut engine, _) = Engine::open(&settings, Vec::new, clock).unwrap();
        let options = CheckOptions {
            scenes: 4,
            // Answers before the change are compared in it.
            first_seed: (1 << 41) + 8,
            kbit_per_s: 1000,
        };
        let mut progress = ProgressLine::default();
        let report = check_still(&mut engine, "embedded", &options, &mut progress).unwrap();
        let changes = [report.appears, report.moves, report.leaves];
        assert_eq!(changes.iter().map(|looks| looks.looks).sum::<u64>(), 8);
        let unchanged = changes.iter().map(|looks| looks.unchanged);
        assert!(unchanged.sum::<u64>() > 0, "{report}");
        assert!(
            report.before.looks == 13 && report.before.unchanged > 0,
            "{report}"
        );
        assert_eq!(report.different, []);
        assert_eq!(report.f1_with, report.f1_without);
    }
}
