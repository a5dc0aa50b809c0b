//! `spotter eval`: how right a model is about the user's own labelled pictures, and what its scores mean.
//!
//! ```text
//!   labels ─▶ pictures with their prompts ─▶ engine ─▶ answers against the labels ─┬─▶ table
//!                                                                                 └─▶ `ScoreFit` ─▶ model.toml
//! ```

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use spotter_core::{
    Answer, AnswerBody, FoundObject, Look, ScoreMaps, ScoredAnswer, ScoredKind, Task,
};
use spotter_engine::{open::ModelCard, service::Engine};
use spotter_street::score::{
    HitShare, MatchTally, Matches, TruthObject, match_boxes, match_points, same_answer,
};

use super::{
    args::EvalLabelsArgs,
    ask,
    labels::{LabelledPictures, PictureLabels},
    out::{remark, say},
    score_fit::{ScoreFit, ScoredAnswers, model_directory, write_maps},
};

/// Pictures between two lines of progress.
const PROGRESS_EVERY: usize = 20;

/// Blocks for a look at each picture.
pub fn eval(args: &EvalLabelsArgs) -> anyhow::Result<()> {
    let settings = args.model.settings();
    let directory = args.write.then(|| model_directory(&settings)).transpose()?;
    let mut labelled = LabelledPictures::default();
    for path in &args.labels {
        labelled.add(path, args.pictures.as_deref())?;
    }
    let prompts = object_prompts(args, &labelled)?;
    let (mut engine, card) = ask::open(&args.model)?;
    // The maps are made of the model's own probabilities.
    let recorded = engine.set_score_maps(ScoreMaps::default());
    let mut evaluation = Evaluation::default();
    let pictures = labelled.pictures.len();
    for (index, (path, labels)) in labelled.pictures.iter().enumerate() {
        if index % PROGRESS_EVERY == 0 {
            remark(format_args!("picture {} of {pictures}", index + 1));
        }
        let tasks = tasks(labels, &prompts);
        let answers = answers(&mut engine, path, tasks);
        let answers = answers.with_context(|| path.display().to_string())?;
        evaluation.add(index, labels, &answers);
    }
    let report = LabelReport::new(&card, pictures, &evaluation, &recorded);
    match args.json {
        true => say(serde_json::to_string(&report)?)?,
        false => say(&report)?,
    }
    match directory {
        Some(directory) => write_maps(&directory, &card, &report.scores),
        None => Ok(()),
    }
}

/// What is looked for in each picture of the file of objects.
fn object_prompts(args: &EvalLabelsArgs, labelled: &LabelledPictures) -> anyhow::Result<Vec<Task>> {
    let all = &labelled.categories;
    for named in args.detect.iter().chain(&args.point) {
        ensure!(
            all.contains(named),
            "no labels for {named:?}; the labelled categories are: {}",
            Vec::from_iter(all.iter().map(String::as_str)).join(", ")
        );
    }
    let detect = |object: &String| Task::Detect {
        object: object.clone(),
    };
    if args.detect.is_empty() && args.point.is_empty() {
        return Ok(all.iter().map(detect).collect());
    }
    let points = args.point.iter().map(|object| Task::Point {
        object: object.clone(),
    });
    Ok(args.detect.iter().map(detect).chain(points).collect())
}

/// What is asked about one picture, its questions last.
fn tasks(labels: &PictureLabels, object_prompts: &[Task]) -> Vec<Task> {
    let objects = labels.objects.iter().flat_map(|_| object_prompts.to_vec());
    let questions = labels.questions.iter().map(|labelled| Task::Query {
        question: labelled.question.trim().to_owned(),
        choices: labelled.choices.clone(),
        options: Default::default(),
    });
    objects.chain(questions).collect()
}

/// The answers about one picture, in the order of the tasks. Blocks for a look.
fn answers(engine: &mut Engine, path: &Path, tasks: Vec<Task>) -> anyhow::Result<Vec<Answer>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let look = engine.look(Look::still(ask::load(path)?, tasks)?)?;
    look.into_answers().map_err(anyhow::Error::msg)
}

/// Answers against labels, of all pictures so far. Empty by default.
#[derive(Debug, Default)]
struct Evaluation {
    of_prompt: BTreeMap<String, MatchTally>,
    questions: HitShare,
    scored: ScoredAnswers,
}

impl Evaluation {
    /// Adds the answers about a picture, in the order of its prompts.
    fn add(&mut self, picture: usize, labels: &PictureLabels, answers: &[Answer]) {
        let first_question = answers.len() - labels.questions.len().min(answers.len());
        let (objects, texts) = answers.split_at(first_question);
        for answer in objects {
            let task = &answer.prompt.task;
            let of_category = labels.objects.as_ref();
            let truth = of_category.and_then(|all| all.get(task.text()));
            let truth = truth.map_or(&[] as &[TruthObject], Vec::as_slice);
            match &answer.body {
                AnswerBody::Boxes(found) => {
                    let places: Vec<_> = found.iter().map(|one| one.place).collect();
                    self.add_objects(picture, task, found, &match_boxes(&places, truth));
                }
                AnswerBody::Points(found) => {
                    let places: Vec<_> = found.iter().map(|one| one.place).collect();
                    self.add_objects(picture, task, found, &match_points(&places, truth));
                }
                AnswerBody::Text { .. } | AnswerBody::Outline(_) => {}
            }
        }
        for (labelled, answer) in labels.questions.iter().zip(texts) {
            if let AnswerBody::Text { text, score, .. } = &answer.body {
                let is_right = same_answer(&labelled.answer, text);
                self.questions.count(is_right);
                self.score(ScoredKind::Query, picture, *score, is_right);
            }
        }
    }

    /// Objects on ignored things are neither right nor wrong.
    fn add_objects<T>(
        &mut self,
        picture: usize,
        task: &Task,
        found: &[FoundObject<T>],
        matches: &Matches,
    ) {
        let prompt = format!("{} {}", task.kind(), task.text());
        self.of_prompt
            .entry(prompt)
            .or_default()
            .add(matches.tally());
        let Some(kind) = ScoredKind::of(task) else {
            return;
        };
        let right = matches.found.iter().map(|found| (found.answer, true));
        let wrong = matches.wrong.iter().map(|&answer| (answer, false));
        for (answer, is_right) in right.chain(wrong) {
            self.score(kind, picture, found[answer].score, is_right);
        }
    }

    fn score(&mut self, kind: ScoredKind, picture: usize, probability: f64, is_right: bool) {
        let answer = ScoredAnswer {
            probability,
            right: f64::from(u8::from(is_right)),
        };
        self.scored.add(kind, picture, answer);
    }
}

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Debug, Serialize)]
struct LabelReport {
    model: String,
    /// `f32`, `bf16`, `fp8`, `int8` or `int4`.
    precision: String,
    pictures: usize,
    prompts: Vec<EvaluatedPrompt>,
    questions: usize,
    questions_right: usize,
    scores: Vec<ScoreFit>,
}

#[derive(Debug, Serialize)]
struct EvaluatedPrompt {
    prompt: String,
    found: u64,
    missed: u64,
    wrong: u64,
    /// Share of the answered objects that is right; `None` without any.
    right_share: Option<f64>,
    /// Share of the labelled objects that was found; `None` without any.
    found_share: Option<f64>,
    /// Mean overlap of found boxes; `None` for points and without any.
    mean_iou: Option<f64>,
}

impl LabelReport {
    fn new(
        card: &ModelCard,
        pictures: usize,
        evaluation: &Evaluation,
        recorded: &ScoreMaps,
    ) -> Self {
        let prompts = evaluation.of_prompt.iter();
        let prompts = prompts.map(|(prompt, tally)| EvaluatedPrompt {
            prompt: prompt.clone(),
            found: tally.found,
            missed: tally.missed,
            wrong: tally.wrong,
            right_share: tally.precision(),
            found_share: tally.recall(),
            mean_iou: tally.mean_iou().filter(|_| prompt.starts_with("detect")),
        });
        Self {
            model: card.name.to_string(),
            precision: card.precision.to_string(),
            pictures,
            prompts: prompts.collect(),
            questions: evaluation.questions.asked as usize,
            questions_right: evaluation.questions.hits as usize,
            scores: evaluation.scored.fit(recorded),
        }
    }
}

impl fmt::Display for LabelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} in {}, {} pictures\n",
            self.model, self.precision, self.pictures
        )?;
        if !self.prompts.is_empty() {
            writeln!(
                f,
                "{:<40} {:>7} {:>7} {:>7} {:>8} {:>8} {:>6}",
                "prompt", "found", "missed", "wrong", "right %", "found %", "IoU"
            )?;
        }
        let percent = |share: Option<f64>| {
            share.map_or("-".to_owned(), |share| format!("{:.1}", 100.0 * share))
        };
        for prompt in &self.prompts {
            let iou = prompt
                .mean_iou
                .map_or("-".to_owned(), |iou| format!("{iou:.3}"));
            writeln!(
                f,
                "{:<40} {:>7} {:>7} {:>7} {:>8} {:>8} {:>6}",
                prompt.prompt,
                prompt.found,
                prompt.missed,
                prompt.wrong,
                percent(prompt.right_share),
                percent(prompt.found_share),
                iou
            )?;
        }
        if self.questions > 0 {
            let (right, asked) = (self.questions_right, self.questions);
            let share = percent(Some(right as f64 / asked as f64));
            writeln!(
                f,
                "{asked} questions, {right} answered as labelled ({share} %)"
            )?;
        }
        for fit in &self.scores {
            write!(f, "\n{fit}")?;
        }
        Ok(())
    }
}
