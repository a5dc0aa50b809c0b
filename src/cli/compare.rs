//! `spotter compare`: does another precision give the same answers about the user's own pictures?
//!
//! ```text
//!   pictures ─▶ engine in bf16 ─▶ answers ─┐
//!            ─▶ engine in int8 ─▶ answers ─┴▶ Agreement of each prompt and picture ─▶ table, the worst pictures as PNG
//! ```

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::{
    agreement::Agreement,
    args::{CompareArgs, ModelArgs},
    ask,
    carried_scores::scored_answers,
    out::{remark, say},
    pictures::pictures_in,
    score_fit::{ScoredAnswers, model_directory, write_maps},
};
use spotter_core::{Answer, AnswerBody, Look, ScoreMaps, ScoredKind, Task, config::GpuPrecision};
use spotter_engine::open::ModelCard;

/// Pictures that are drawn, at most.
const DRAWN: usize = 10;
/// Pictures between two lines of progress.
const PROGRESS_EVERY: usize = 20;

/// Answers in two precisions, side by side.
#[derive(Debug, Serialize)]
struct Comparison {
    precisions: [String; 2],
    prompts: Vec<ComparedPrompt>,
    /// Those that differ, the most different first.
    different: Vec<ComparedPicture>,
}

#[derive(Debug, Serialize)]
struct ComparedPrompt {
    prompt: String,
    #[serde(flatten)]
    agreement: Agreement,
}

#[derive(Debug, PartialEq, Serialize)]
struct ComparedPicture {
    picture: PathBuf,
    /// Mean over the prompts.
    share: f64,
    /// Its place among all pictures.
    #[serde(skip)]
    index: usize,
}

pub fn compare(args: &CompareArgs) -> anyhow::Result<()> {
    let tasks = tasks(args)?;
    let pictures = pictures_in(&args.pictures)?;
    if args.model.precision == Some(GpuPrecision::Bf16) {
        bail!(
            "bf16 is what others are compared with; name another with --precision, e.g. --precision int8"
        );
    }
    let directory = args
        .write
        .then(|| model_directory(&args.model.settings()))
        .transpose()?;
    let in_bf16 = ModelArgs {
        precision: Some(GpuPrecision::Bf16),
        ..args.model.clone()
    };
    let first = answers(&in_bf16, None, &pictures, &tasks)?;
    if directory.is_some() {
        require_maps(&first.maps, &tasks)?;
    }
    let second = answers(&args.model, Some(&first), &pictures, &tasks)?;
    let comparison = Comparison::of(&pictures, &tasks, [&first, &second]);
    match args.json {
        true => say(serde_json::to_string(&comparison)?)?,
        false => say(&comparison)?,
    }
    let worst = comparison.different.iter().take(DRAWN);
    for (rank, ComparedPicture { picture, index, .. }) in worst.enumerate() {
        let name = format!("{:02}-{}.png", rank + 1, stem(picture));
        let (to, both) = (
            args.draw.join(name),
            [&first, &second].map(|run| &run.answers[*index]),
        );
        draw(&to, picture, both).with_context(|| format!("writing {}", to.display()))?;
    }
    if !comparison.different.is_empty() {
        remark(format_args!(
            "the worst are drawn in {}: {} orange, {} blue",
            args.draw.display(),
            first.card.precision,
            second.card.precision
        ));
    }
    match directory {
        Some(directory) => {
            let fits = scored_by_first(&tasks, [&first, &second]).fit(&second.maps);
            fits.iter().try_for_each(say)?;
            write_maps(&directory, &second.card, &fits)
        }
        None => Ok(()),
    }
}

fn tasks(args: &CompareArgs) -> anyhow::Result<Vec<Task>> {
    let object = |object: &String| object.trim().to_owned();
    let detect = args.detect.iter().map(object);
    let point = args.point.iter().map(object);
    let query = args.query.iter().map(object);
    let tasks: Vec<Task> = detect
        .map(|object| Task::Detect { object })
        .chain(point.map(|object| Task::Point { object }))
        .chain(query.map(|question| Task::Query {
            question,
            choices: Vec::new(),
            options: Default::default(),
        }))
        .collect();
    if tasks.is_empty() || tasks.iter().any(|task| task.text().is_empty()) {
        bail!(
            "say what to compare: --detect \"person\", --point \"door handle\" or --query \"Is the gate open?\", as often as needed"
        );
    }
    Ok(tasks)
}

/// What one engine answered.
struct AnsweredPictures {
    card: ModelCard,
    /// Of each picture, in the order of the prompts. Scores are the model's own probabilities.
    answers: Vec<Vec<AnswerBody>>,
    /// What the probabilities mean in this precision.
    maps: ScoreMaps,
}

/// Opens an engine, looks at all pictures and closes it; an error when its precision is that of `first`. Blocks.
fn answers(
    model: &ModelArgs,
    first: Option<&AnsweredPictures>,
    pictures: &[PathBuf],
    tasks: &[Task],
) -> anyhow::Result<AnsweredPictures> {
    let (mut engine, card) = ask::open(model)?;
    if first.is_some_and(|first| first.card.precision == card.precision) {
        bail!(
            "here the model runs in {} ({}) with that --precision too: there is nothing to compare",
            card.precision,
            card.device
        );
    }
    if let Some(layers) = &card.layers {
        remark(layers);
    }
    let maps = engine.set_score_maps(ScoreMaps::default());
    let mut answers = Vec::new();
    for (done, path) in pictures.iter().enumerate() {
        if done % PROGRESS_EVERY == 0 {
            remark(format_args!(
                "{}: picture {} of {}",
                card.precision,
                done + 1,
                pictures.len()
            ));
        }
        let look = Look::still(ask::load(path)?, tasks.to_vec())?;
        let prompts = look.prompts.clone();
        let found = engine
            .look(look)?
            .into_answers()
            .map_err(anyhow::Error::msg)?;
        // Answers come as they are finished.
        let of_prompt = |id| found.iter().find(|answer: &&Answer| answer.prompt.id == id);
        let in_order: Option<Vec<AnswerBody>> = prompts
            .iter()
            .map(|prompt| of_prompt(prompt.id.clone()).map(|answer| answer.body.clone()))
            .collect();
        answers
            .push(in_order.with_context(|| format!("{}: an answer is missing", path.display()))?);
    }
    Ok(AnsweredPictures {
        card,
        answers,
        maps,
    })
}

/// An error when the scores of a prompt cannot be carried over.
fn require_maps(maps: &ScoreMaps, tasks: &[Task]) -> anyhow::Result<()> {
    let kinds = tasks.iter().filter_map(ScoredKind::of);
    for kind in kinds {
        let kind_name = kind.name();
        maps.of(kind).with_context(|| {
            format!(
                "model.toml has no map of bf16's scores of {kind_name}, which --write would carry over; `spotter eval --write` makes it of labelled pictures"
            )
        })?;
    }
    Ok(())
}

/// The answers of the second engine, each as right as the same answer of the first one, by its calibrated score. What the first one
/// did not answer counts as wrong.
fn scored_by_first(tasks: &[Task], runs: [&AnsweredPictures; 2]) -> ScoredAnswers {
    let [first, second] = runs;
    let mut scored = ScoredAnswers::default();
    for (picture, (known, given)) in first.answers.iter().zip(&second.answers).enumerate() {
        for ((task, known), given) in tasks.iter().zip(known).zip(given) {
            let Some(kind) = ScoredKind::of(task) else {
                continue;
            };
            let share = |probability: f64| {
                let map = first.maps.of(kind);
                map.map_or(probability, |map| map.share(probability))
            };
            for answer in scored_answers(known, given, share) {
                scored.add(kind, picture, answer);
            }
        }
    }
    scored
}

impl Comparison {
    fn of(pictures: &[PathBuf], tasks: &[Task], runs: [&AnsweredPictures; 2]) -> Self {
        let [first, second] = runs;
        let both = first.answers.iter().zip(&second.answers);
        // Of each picture, of each prompt.
        let agreements: Vec<Vec<Agreement>> = both
            .map(|(a, b)| a.iter().zip(b).map(|(a, b)| Agreement::of(a, b)).collect())
            .collect();
        let prompts = tasks.iter().enumerate().map(|(nth, task)| ComparedPrompt {
            prompt: format!("{} {}", task.kind(), task.text()),
            agreement: agreements.iter().map(|picture| picture[nth]).sum(),
        });
        let shares = agreements.iter().map(|prompts| {
            let shares = prompts.iter().map(Agreement::share);
            shares.sum::<f64>() / prompts.len().max(1) as f64
        });
        let mut different: Vec<ComparedPicture> = pictures
            .iter()
            .zip(shares)
            .enumerate()
            .filter(|(_, (_, share))| *share < 1.0)
            .map(|(index, (picture, share))| ComparedPicture {
                picture: picture.clone(),
                share,
                index,
            })
            .collect();
        different.sort_by(|a, b| a.share.total_cmp(&b.share));
        Self {
            precisions: runs.map(|run| run.card.precision.to_string()),
            prompts: prompts.collect(),
            different,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.precisions;
        writeln!(
            f,
            "{:<40} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8}",
            "prompt", "pictures", "equal %", first, second, "in both", "same %"
        )?;
        for ComparedPrompt { prompt, agreement } in &self.prompts {
            let Agreement {
                pictures,
                equal,
                first,
                second,
                both,
            } = agreement;
            writeln!(
                f,
                "{prompt:<40} {pictures:>8} {:>8.1} {first:>9} {second:>9} {both:>8} {:>8.1}",
                100.0 * *equal as f64 / (*pictures).max(1) as f64,
                100.0 * agreement.share(),
            )?;
        }
        match self.different.as_slice() {
            [] => write!(f, "\nno picture differs"),
            different => {
                write!(f, "\n{} pictures differ, the worst first:", different.len())?;
                for ComparedPicture { picture, share, .. } in different.iter().take(DRAWN) {
                    write!(f, "\n{:>6.1} %  {}", 100.0 * share, picture.display())?;
                }
                Ok(())
            }
        }
    }
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// The picture with the places of both answers to all prompts.
fn draw(to: &Path, picture: &Path, both: [&Vec<AnswerBody>; 2]) -> anyhow::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let marked = both.into_iter().enumerate();
    let marks = marked.flat_map(|(colour, answers)| {
        let places = answers.iter().flat_map(ask::places);
        places.map(move |place| (colour, place))
    });
    ask::draw(to, &ask::load(picture)?, marks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_support;
    use spotter_core::ScoreSource;

    fn run(precision: &str, texts: &[&str]) -> AnsweredPictures {
        let text = |text: &&str| AnswerBody::Text {
            text: (*text).to_owned(),
            score: 1.0,
            source: ScoreSource::TokenProb,
        };
        AnsweredPictures {
            card: ModelCard {
                precision: precision.into(),
                ..test_support::card()
            },
            answers: texts.iter().map(|one| vec![text(one)]).collect(),
            maps: ScoreMaps::default(),
        }
    }

    #[test]
    fn table_has_prompts_and_different_pictures() {
        let pictures = ["a.png", "b.png", "c.png"].map(PathBuf::from);
        let tasks = [Task::Query {
            question: "Is it open?".into(),
            choices: Vec::new(),
            options: Default::default(),
        }];
        let (first, second) = (
            run("bf16", &["yes", "no", "no"]),
            run("int8", &["yes", "yes", "no"]),
        );
        let comparison = Comparison::of(&pictures, &tasks, [&first, &second]);
        assert_eq!(comparison.prompts[0].agreement.equal, 2);
        let different = ComparedPicture {
            picture: "b.png".into(),
            share: 0.0,
            index: 1,
        };
        assert_eq!(comparison.different, [different]);
        let table = comparison.to_string();
        assert!(
            table.contains("query Is it open?") && table.ends_with("  0.0 %  b.png"),
            "{table}"
        );
    }
}
