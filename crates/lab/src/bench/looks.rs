//! How fast looks are: one picture with three cars, asked one prompt and more.

use std::ops::Range;

use super::{
    ask::{MeasureError, ask},
    clip::{HEIGHT, WIDTH, drawn},
    progress::ProgressLine,
    stages::{Spread, StageDurations},
    table::{LooksReport, LooksRow, floor_ms, second_prompt_percent},
    work::{DetectWork, look_work},
};
use spotter::ops::machine::Machine;
use spotter_core::{Answer, Clock, Picture, Task};
use spotter_engine::{
    model::{ModelConfig, Tokenizer},
    service::Engine,
};
use spotter_street::{random, scene::Class, truth};

/// Prompts of the rows.
const PROMPTS: [usize; 4] = [1, 2, 4, 8];
/// Cars that the picture shows and that the first prompt should find.
const CARS: usize = 3;
/// Pictures that the model is tried on before the best of them is taken.
const CANDIDATES: usize = 16;
/// Scenes that are looked through for candidates; about every fiftieth has three cars. Training saw none of them.
const SCENES: Range<u64> = 1 << 41..(1 << 41) + 4000;
/// Looks before the measurement, for each row.
const WARM_UP: usize = 3;

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LooksOptions {
    /// Looks for each row of the table.
    pub looks: usize,
    /// Name of the model, for the report.
    pub model: String,
    /// What the machine reaches in large products, GFLOP/s, measured in the same run; gives the floor of each row.
    pub ceiling_gflop_per_s: Option<f64>,
}

impl LooksOptions {
    /// Steps that the progress counts.
    pub fn steps(&self) -> u64 {
        (self.looks * PROMPTS.len()) as u64
    }
}

/// Measures looks with 1, 2, 4 and 8 detect prompts on the same picture. The rows take turns, so that a machine that
/// slows down slows all of them. Blocks for all of it.
pub fn looks(
    engine: &mut Engine,
    options: &LooksOptions,
    clock: &dyn Clock,
    progress: &mut ProgressLine,
) -> Result<LooksReport, MeasureError> {
    let chosen = choose(engine)?;
    let mut rows: Vec<Vec<MeasuredLook>> = vec![Vec::new(); PROMPTS.len()];
    for round in 0..WARM_UP + options.looks {
        for (row, &prompts) in rows.iter_mut().zip(&PROMPTS) {
            let look = MeasuredLook::run(engine, &chosen.picture, prompts, clock)?;
            if round >= WARM_UP {
                row.push(look);
                progress.step();
            }
        }
    }
    let ceiling = options.ceiling_gflop_per_s;
    let rows: Vec<LooksRow> = PROMPTS
        .iter()
        .zip(&rows)
        .map(|(&prompts, looks)| row(prompts, looks, engine.model(), ceiling))
        .collect();
    Ok(LooksReport {
        machine: Machine::now(),
        model: options.model.clone(),
        picture: (WIDTH, HEIGHT),
        scene_seed: chosen.seed,
        cars: CARS,
        cars_found: chosen.found,
        ceiling_gflop_per_s: ceiling,
        second_prompt_percent: second_prompt_percent(&rows),
        rows,
    })
}

struct Chosen {
    seed: u64,
    picture: Picture,
    found: usize,
}

/// The first scene with three cars of which the model returns three boxes; else the one where it comes nearest.
fn choose(engine: &mut Engine) -> Result<Chosen, MeasureError> {
    let mut best: Option<Chosen> = None;
    for seed in SCENES.filter(|&seed| has_three_cars(seed)).take(CANDIDATES) {
        let picture = drawn(&random(seed), seed)?;
        let answers = ask(engine, picture.clone(), tasks(1))?;
        let found = boxes(&answers);
        let nearer = |best: &Chosen| found.abs_diff(CARS) < best.found.abs_diff(CARS);
        if best.as_ref().is_none_or(nearer) {
            best = Some(Chosen {
                seed,
                picture,
                found,
            });
        }
        if found == CARS {
            break;
        }
    }
    best.ok_or_else(|| {
        MeasureError::Unanswered(format!("no scene of seeds {SCENES:?} has {CARS} cars"))
    })
}

fn has_three_cars(seed: u64) -> bool {
    let scene = random(seed);
    // Most scenes have other numbers of cars at all, and the truth takes longer.
    let cars = scene.objects.iter().filter(|o| o.class == Class::Car);
    if cars.count() != CARS {
        return false;
    }
    truth(&scene).present(Class::Car).count() == CARS
}

/// "car" first, then the other classes.
fn tasks(prompts: usize) -> impl Iterator<Item = Task> {
    let others = Class::ALL.into_iter().filter(|&class| class != Class::Car);
    let classes = std::iter::once(Class::Car).chain(others).take(prompts);
    classes.map(|class| Task::Detect {
        object: class.name().into(),
    })
}

fn boxes(answers: &[Answer]) -> usize {
    answers
        .iter()
        .filter_map(|answer| answer.body.count())
        .sum()
}

/// One measured look.
#[derive(Clone)]
struct MeasuredLook {
    times: StageDurations,
    /// Boxes of each prompt.
    boxes: Vec<usize>,
}

impl MeasuredLook {
    fn run(
        engine: &mut Engine,
        picture: &Picture,
        prompts: usize,
        clock: &dyn Clock,
    ) -> Result<Self, MeasureError> {
        let began = clock.now();
        let answers = ask(engine, picture.clone(), tasks(prompts))?;
        let times = StageDurations::of(&answers, began, clock.now());
        let count = |answer: &Answer| answer.body.count().unwrap_or_default();
        Ok(Self {
            times,
            boxes: answers.iter().map(count).collect(),
        })
    }
}

fn row(
    prompts: usize,
    looks: &[MeasuredLook],
    (config, tokenizer): (&ModelConfig, &Tokenizer),
    ceiling_gflop_per_s: Option<f64>,
) -> LooksRow {
    let spread =
        |stage: fn(&StageDurations) -> f64| Spread::of(looks.iter().map(|l| stage(&l.times)));
    // Every look of a row sees the same picture with the same words, so the first stands for all.
    let boxes: &[usize] = looks.first().map_or(&[], |look| &look.boxes);
    let detect = |(task, &boxes): (Task, &usize)| DetectWork {
        tokens: config
            .family
            .prompt(&task, config, tokenizer, false)
            .map_or(0, |prompt| prompt.inputs.len()),
        boxes,
    };
    let detects: Vec<DetectWork> = tasks(prompts).zip(boxes).map(detect).collect();
    let picture = (WIDTH as usize, HEIGHT as usize);
    let work = look_work(config, picture, &detects);
    LooksRow {
        prompts,
        boxes: boxes.iter().sum(),
        total: spread(|t| t.total_ms),
        prepare: spread(|t| t.prepare_ms),
        encode: spread(|t| t.encode_ms),
        prompt: spread(|t| t.prompt_ms),
        generate: spread(|t| t.generate_ms),
        work,
        floor_ms: floor_ms(&work, ceiling_gflop_per_s),
    }
}

#[cfg(test)]
mod tests;
