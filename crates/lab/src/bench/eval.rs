//! Accuracy of a model on scenes that no training has seen.

use anyhow::Context as _;

use super::{
    ask::ask,
    clip::Clip,
    progress::ProgressLine,
    report::{EvalOptions, EvalReport, figures, parts, score_figures},
    scores::{EvalSetting, Scores},
};
use spotter_core::Task;
use spotter_engine::service::Engine;
use spotter_street::{questions::questions, truth};

/// Words for things that the street does not have, and that the trainer of the embedded model does not train on
/// (`models/embedded/words_unknown.py`).
const UNKNOWN: [&str; 12] = [
    "penguin",
    "walrus",
    "hedgehog",
    "flamingo",
    "armchair",
    "telescope",
    "pineapple",
    "motorbike",
    "wheelbarrow",
    "teapot",
    "fire engine",
    "vending machine",
];
/// Prompts with unknown words for each scene.
const UNKNOWN_PER_SCENE: usize = 2;

/// Asks every question with a certain answer about each scene and scores the answers. The same options and model give the same
/// report; one scene is in memory at a time. Blocks for all of it: seconds a scene on a slow machine.
pub fn eval(
    engine: &mut Engine,
    options: &EvalOptions,
    progress: &mut ProgressLine,
) -> anyhow::Result<EvalReport> {
    let mut scores = Scores::default();
    for index in 0..options.scenes {
        let seed = options.first_seed.wrapping_add(index);
        eval_scene(engine, seed, options.kbit_per_s, &mut scores)
            .with_context(|| format!("scene {seed}"))?;
        progress.step();
    }
    Ok(EvalReport {
        options: options.clone(),
        figures: figures(&scores),
        detect_by: parts(&scores),
        scores: score_figures(&scores),
    })
}

fn eval_scene(
    engine: &mut Engine,
    seed: u64,
    kbit_per_s: Option<u32>,
    scores: &mut Scores,
) -> anyhow::Result<()> {
    let clip = Clip::new(seed);
    let truth = truth(clip.last());
    let picture = clip.picture(kbit_per_s)?;
    let known = questions(&truth, seed);
    let unknown = unknown_words(seed);
    let tasks = known.iter().map(|question| question.task.clone());
    let tasks = tasks.chain(unknown.map(|word| Task::Detect {
        object: word.into(),
    }));
    let answers = ask(engine, picture, tasks)?;
    let setting = EvalSetting {
        is_street: Clip::is_street(seed),
        light: truth.light,
    };
    let (to_known, to_unknown) = answers.split_at(known.len());
    for (question, answer) in known.iter().zip(to_known) {
        scores.add(setting, question, &answer.body);
    }
    for answer in to_unknown {
        scores.add_unknown(&answer.body);
    }
    Ok(())
}

/// Neighbours in the list; every second scene takes the next ones, so that both origins of scenes see all words.
fn unknown_words(seed: u64) -> [&'static str; UNKNOWN_PER_SCENE] {
    let first = (seed / 2 % UNKNOWN.len() as u64) as usize;
    std::array::from_fn(|i| UNKNOWN[(first + i) % UNKNOWN.len()])
}

#[cfg(test)]
mod tests;
