//! `spotter eval`: how right a model is about the user's own pictures, and what its scores mean.
//!
//! ```text
//!   labels, or --history: judged events ───▶ what is right ─┐
//!   or --against: pictures ─▶ other engine ─▶ answers ──────┤
//!   pictures with their prompts ─▶ engine ─▶ answers ───────┴─▶ Evaluation ─┬─▶ table, the most different pictures as PNG
//!                                                                           └─▶ ScoreFit ─▶ model.toml
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use spotter_core::{
    Answer, AnswerBody, FoundObject, Look, NormBox, NormPoint, ScoreMaps, ScoredAnswer, ScoredKind,
    Task,
};
use spotter_engine::open::ModelCard;
use spotter_street::score::{HitShare, TruthObject, same_answer};

use super::{
    judged_answer::{JudgedAnswer, LabelledSample, PromptTally},
    labels::{LabelledCategory, LabelledPictures, ObjectLabels, PictureLabels},
    score_fit::{ScoreFit, ScoredAnswers, model_directory, write_maps},
};
use crate::cli::{
    args::{EvalPicturesArgs, ModelArgs},
    ask,
    out::{remark, say},
    table::{TextTable, known},
};

/// Pictures between two lines of progress.
const PROGRESS_EVERY: usize = 20;
/// Pictures that are drawn, at most.
const DRAWN: usize = 10;
/// Half the sides of a square in which two points are the same; parts of the picture's width and height.
const SAME_POINT: f64 = 0.02;

/// Blocks for a look at each picture, with `--against` for two.
pub fn eval(args: &EvalPicturesArgs) -> anyhow::Result<()> {
    ensure!(
        args.against.is_none() || args.model.precision != args.against,
        "bf16 is what others are compared with; name another with --precision, e.g. --precision int8"
    );
    let mut pictures = asked_pictures(args)?;
    let is_sample = args.against.is_none() && (args.history || !is_complete(&pictures));
    ensure!(
        !(args.write && (args.history || is_sample)),
        "--write needs pictures on which all objects are labelled: judged events are those that were found with min_score and that a person looked at, so a map of their scores would be wrong for others; docs/scores.md says how to label pictures"
    );
    let settings = args.model.settings();
    let directory = args.write.then(|| model_directory(&settings)).transpose()?;
    let reference = match args.against {
        None => None,
        Some(precision) => {
            let model = ModelArgs {
                precision: Some(precision),
                ..args.model.clone()
            };
            let reference = answers(&model, &pictures)?;
            if directory.is_some() {
                require_maps(&reference, &pictures)?;
            }
            take_for_right(&reference, &mut pictures);
            Some(reference)
        }
    };
    let given = answers(&args.model, &pictures)?;
    let mut evaluation = Evaluation::default();
    for (index, (picture, answers)) in pictures.iter().zip(&given.answers).enumerate() {
        evaluation.add(index, picture, answers);
    }
    let mut report = PicturesReport::new(&given, reference.as_ref(), &evaluation, &pictures);
    if is_sample {
        report.scores.clear();
    }
    match args.json {
        true => say(serde_json::to_string(&report)?)?,
        false => say(&report)?,
    }
    if let Some(reference) = &reference {
        draw_different(&args.draw, &report, [reference, &given])?;
    }
    match directory {
        Some(directory) => write_maps(&directory, &given.card, &report.scores),
        None => Ok(()),
    }
}

/// A picture with what is asked about it.
struct AskedPicture {
    path: PathBuf,
    tasks: Vec<Task>,
    /// What is taken for right, in the order of the tasks.
    known: Vec<RightAnswer>,
}

/// An answer that is taken for right, each part of it with the probability that it is.
enum RightAnswer {
    Objects {
        labels: ObjectLabels,
        /// Of its things.
        probabilities: Vec<f64>,
    },
    Text(String, f64),
}

/// Reads the labels and the folders of pictures. Blocks on the disk.
fn asked_pictures(args: &EvalPicturesArgs) -> anyhow::Result<Vec<AskedPicture>> {
    let mut labelled = LabelledPictures::default();
    for path in &args.labels {
        labelled.add(path, args.pictures.as_deref())?;
    }
    if args.history {
        labelled.add_judged(&args.state_dir, args.camera.as_deref())?;
    }
    let has_labels =
        |labels: &PictureLabels| labels.objects.is_some() || !labels.questions.is_empty();
    let is_compared = args.against.is_some();
    ensure!(
        is_compared || (labelled.pictures.values().all(has_labels) && args.query.is_empty()),
        "a folder of pictures, and --query, have no labels: with --against bf16, what bf16 answers is taken for right"
    );
    let objects = object_prompts(args, &labelled.categories)?;
    let mut pictures = Vec::new();
    for (path, labels) in labelled.pictures {
        let (mut tasks, mut known) = (Vec::new(), Vec::new());
        if is_compared || labels.objects.is_some() {
            let judged = labels.objects.unwrap_or_default();
            for task in &objects {
                let mut of_task = judged.iter().filter(|(category, _)| category.is_of(task));
                let labels = of_task.next().map(|(_, labels)| labels.clone());
                if labels.is_none() && !is_compared {
                    continue;
                }
                let labels = labels.unwrap_or_default();
                let probabilities = vec![1.0; labels.things.len()];
                known.push(RightAnswer::Objects {
                    labels,
                    probabilities,
                });
                tasks.push(task.clone());
            }
        }
        for labelled in labels.questions {
            tasks.push(query(&labelled.question, &labelled.choices));
            known.push(RightAnswer::Text(labelled.answer, 1.0));
        }
        tasks.extend(args.query.iter().map(|question| query(question, &[])));
        if !tasks.is_empty() {
            pictures.push(AskedPicture { path, tasks, known });
        }
    }
    ensure!(
        !pictures.is_empty(),
        "say what to ask: --detect \"person\", --point \"door handle\" or --query \"Is the gate open?\", as often as needed"
    );
    Ok(pictures)
}

/// All objects of all pictures are labelled.
fn is_complete(pictures: &[AskedPicture]) -> bool {
    let mut known = pictures.iter().flat_map(|picture| &picture.known);
    let is_complete = |known: &RightAnswer| match known {
        RightAnswer::Objects { labels, .. } => labels.is_complete,
        RightAnswer::Text(..) => true,
    };
    known.all(is_complete)
}

/// What is looked for in pictures, by default all categories of the file of objects.
fn object_prompts(
    args: &EvalPicturesArgs,
    labelled: &BTreeSet<LabelledCategory>,
) -> anyhow::Result<Vec<Task>> {
    let detect = |object: &String| Task::Detect {
        object: object.trim().to_owned(),
    };
    let point = |object: &String| Task::Point {
        object: object.trim().to_owned(),
    };
    if args.detect.is_empty() && args.point.is_empty() {
        let tasks = labelled
            .iter()
            .map(|category| match category.kind.as_deref() {
                Some("point") => point(&category.name),
                _ => detect(&category.name),
            });
        return Ok(tasks.collect());
    }
    let named = args.detect.iter().map(detect);
    let named = Vec::from_iter(named.chain(args.point.iter().map(point)));
    for task in &named {
        let (kind, text) = (task.kind(), task.text());
        ensure!(!text.is_empty(), "--detect and --point need a text");
        ensure!(
            args.against.is_some() || labelled.iter().any(|category| category.is_of(task)),
            "no labels for {kind} {text:?}; the labelled categories are: {}",
            Vec::from_iter(labelled.iter().map(LabelledCategory::to_string)).join(", ")
        );
    }
    Ok(named)
}

fn query(question: &str, choices: &[String]) -> Task {
    Task::Query {
        question: question.trim().to_owned(),
        choices: choices.to_vec(),
        options: Default::default(),
    }
}

/// What one engine answered.
struct AnsweredPictures {
    card: ModelCard,
    /// Of each picture, in the order of its tasks. Scores are the model's own probabilities.
    answers: Vec<Vec<AnswerBody>>,
    /// What the probabilities mean in this precision, as `model.toml` has it.
    maps: ScoreMaps,
}

/// Opens an engine, looks at all pictures and closes it. Blocks.
fn answers(model: &ModelArgs, pictures: &[AskedPicture]) -> anyhow::Result<AnsweredPictures> {
    let (mut engine, card) = ask::open(model)?;
    if let Some(layers) = &card.layers {
        remark(layers);
    }
    let maps = engine.set_score_maps(ScoreMaps::default());
    let mut answers = Vec::new();
    for (done, picture) in pictures.iter().enumerate() {
        if done % PROGRESS_EVERY == 0 {
            let (precision, nth, all) = (&card.precision, done + 1, pictures.len());
            remark(format_args!("{precision}: picture {nth} of {all}"));
        }
        let name = || picture.path.display().to_string();
        let look = Look::still(ask::load(&picture.path)?, picture.tasks.clone());
        let prompts = look.prompts.clone();
        let found = engine.look(look)?.into_answers();
        let mut found = found.map_err(anyhow::Error::msg).with_context(name)?;
        // Answers come as they are finished.
        let place = |answer: &Answer| prompts.iter().position(|p| p.id == answer.prompt.id);
        found.sort_by_key(place);
        answers.push(found.into_iter().map(|answer| answer.body).collect());
    }
    Ok(AnsweredPictures {
        card,
        answers,
        maps,
    })
}

/// An error when the scores of a prompt cannot be carried over.
fn require_maps(reference: &AnsweredPictures, pictures: &[AskedPicture]) -> anyhow::Result<()> {
    let tasks = pictures.iter().flat_map(|picture| &picture.tasks);
    for kind in tasks.filter_map(ScoredKind::of) {
        let (kind_name, precision) = (kind.name(), &reference.card.precision);
        reference.maps.get(&kind).with_context(|| {
            format!(
                "model.toml has no map of the scores of {kind_name} in {precision}, which --write would carry over; `spotter eval --write` makes it of labelled pictures"
            )
        })?;
    }
    Ok(())
}

/// The answers of `reference` are right from now on, each as probably as its calibrated score says.
fn take_for_right(reference: &AnsweredPictures, pictures: &mut [AskedPicture]) {
    for (picture, answers) in pictures.iter_mut().zip(&reference.answers) {
        let both = picture.tasks.iter().zip(answers);
        let known = both.map(|(task, answer)| {
            let map = ScoredKind::of(task).and_then(|kind| reference.maps.get(&kind));
            known_answer(answer, |score| map.map_or(score, |map| map.share(score)))
        });
        picture.known = known.collect();
    }
}

fn known_answer(answer: &AnswerBody, share: impl Fn(f64) -> f64) -> RightAnswer {
    let (bounds, scores): (Vec<NormBox>, _) = match answer {
        AnswerBody::Text { text, score, .. } => {
            return RightAnswer::Text(text.clone(), share(*score));
        }
        AnswerBody::Boxes(found) => places_and_scores(found),
        AnswerBody::Points(found) => {
            let (points, scores) = places_and_scores(found);
            (points.into_iter().map(around).collect(), scores)
        }
        AnswerBody::Outline(_) => Default::default(),
    };
    let ignored = false;
    let things = bounds.into_iter();
    RightAnswer::Objects {
        labels: ObjectLabels {
            things: things
                .map(|bounds| TruthObject { bounds, ignored })
                .collect(),
            wrong: Vec::new(),
            is_complete: true,
        },
        probabilities: scores.into_iter().map(share).collect(),
    }
}

fn places_and_scores<T: Copy>(found: &[FoundObject<T>]) -> (Vec<T>, Vec<f64>) {
    found.iter().map(|one| (one.place, one.score)).unzip()
}

fn around(at: NormPoint) -> NormBox {
    let (x, y, by) = (at.x, at.y, SAME_POINT);
    NormBox::from_corners(x - by, y - by, x + by, y + by)
}

/// Answers against what is right, of all pictures so far. Empty by default.
#[derive(Debug, Default)]
struct Evaluation {
    of_prompt: BTreeMap<String, PromptTally>,
    questions: HitShare,
    scored: ScoredAnswers,
    /// Of each picture, how much of it is right: the mean over its prompts.
    shares: Vec<f64>,
}

impl Evaluation {
    /// Adds the answers about a picture, in the order of its prompts.
    fn add(&mut self, index: usize, picture: &AskedPicture, answers: &[AnswerBody]) {
        let mut shares = Vec::new();
        let asked = picture.tasks.iter().zip(&picture.known);
        for ((task, known), answer) in asked.zip(answers) {
            shares.extend(self.right_share(index, task, known, answer));
        }
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        self.shares.push(if shares.is_empty() { 1.0 } else { mean });
    }

    /// How much of an answer is right. Objects on ignored things are neither right nor wrong.
    fn right_share(
        &mut self,
        picture: usize,
        task: &Task,
        known: &RightAnswer,
        answer: &AnswerBody,
    ) -> Option<f64> {
        let kind = ScoredKind::of(task);
        let mut score = |probability, right| {
            let answer = ScoredAnswer { probability, right };
            kind.iter()
                .for_each(|kind| self.scored.add(*kind, picture, answer));
        };
        let (labels, probabilities) = match (known, answer) {
            (
                RightAnswer::Text(known, probability),
                AnswerBody::Text {
                    text, score: own, ..
                },
            ) => {
                let is_right = same_answer(known, text);
                self.questions.count(is_right);
                let right = f64::from(u8::from(is_right));
                score(*own, right * probability);
                return Some(right);
            }
            (
                RightAnswer::Objects {
                    labels,
                    probabilities,
                },
                _,
            ) => (labels, probabilities),
            _ => return None,
        };
        let (judged, scores) = match answer {
            AnswerBody::Boxes(found) => {
                let (places, scores) = places_and_scores(found);
                (JudgedAnswer::of_boxes(&places, labels), scores)
            }
            AnswerBody::Points(found) => {
                let (places, scores) = places_and_scores(found);
                (JudgedAnswer::of_points(&places, labels), scores)
            }
            AnswerBody::Text { .. } | AnswerBody::Outline(_) => return None,
        };
        for found in &judged.matches.found {
            score(scores[found.answer], probabilities[found.thing]);
        }
        for &wrong in &judged.matches.wrong {
            score(scores[wrong], 0.0);
        }
        let prompt = format!("{} {}", task.kind(), task.text());
        self.of_prompt
            .entry(prompt)
            .or_default()
            .add(labels, &judged);
        Some(judged.matches.tally().f1().unwrap_or(1.0))
    }
}

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Debug, Serialize)]
struct PicturesReport {
    model: String,
    /// `f32`, `bf16`, `fp8`, `int8` or `int4`.
    precision: String,
    /// The precision whose answers are taken for right; `None`: labels are.
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<String>,
    pictures: usize,
    prompts: Vec<EvaluatedPrompt>,
    questions: usize,
    questions_right: usize,
    scores: Vec<ScoreFit>,
    /// With `against`: pictures whose answers differ, the most different first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    different: Vec<DifferentPicture>,
}

#[derive(Debug, Serialize)]
struct EvaluatedPrompt {
    prompt: String,
    found: u64,
    missed: u64,
    wrong: u64,
    /// Share of the answered objects that is right; `None` without any.
    right_share: Option<f64>,
    /// Share of the objects that was found; `None` without any.
    found_share: Option<f64>,
    /// Mean overlap of found boxes; `None` for points and without any.
    mean_iou: Option<f64>,
    /// Where not all objects of all pictures are labelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<LabelledSample>,
}

#[derive(Debug, PartialEq, Serialize)]
struct DifferentPicture {
    picture: PathBuf,
    /// How much of its answers is right.
    share: f64,
    /// Its place among all pictures.
    #[serde(skip)]
    index: usize,
}

impl PicturesReport {
    fn new(
        given: &AnsweredPictures,
        reference: Option<&AnsweredPictures>,
        evaluation: &Evaluation,
        pictures: &[AskedPicture],
    ) -> Self {
        let prompts = evaluation.of_prompt.iter();
        let prompts = prompts.map(|(prompt, tally)| EvaluatedPrompt {
            prompt: prompt.clone(),
            found: tally.all.found,
            missed: tally.complete.missed,
            wrong: tally.all.wrong,
            right_share: tally.all.precision(),
            found_share: tally.complete.recall(),
            mean_iou: (tally.all.mean_iou()).filter(|_| prompt.starts_with("detect")),
            sample: (tally.sample.complete < tally.sample.pictures).then_some(tally.sample),
        });
        let shares = evaluation.shares.iter().enumerate();
        let is_different = |(_, share): &(usize, &f64)| reference.is_some() && **share < 1.0;
        let different = shares.filter(is_different);
        let mut different: Vec<DifferentPicture> = different
            .map(|(index, share)| DifferentPicture {
                picture: pictures[index].path.clone(),
                share: *share,
                index,
            })
            .collect();
        different.sort_by(|a, b| a.share.total_cmp(&b.share));
        Self {
            model: given.card.name.to_string(),
            precision: given.card.precision.to_string(),
            against: reference.map(|reference| reference.card.precision.to_string()),
            pictures: pictures.len(),
            prompts: prompts.collect(),
            questions: evaluation.questions.asked as usize,
            questions_right: evaluation.questions.hits as usize,
            scores: evaluation.scored.fit(&given.maps),
            different,
        }
    }
}

/// Draws the places of both answers to all prompts into the most different pictures.
fn draw_different(
    folder: &Path,
    report: &PicturesReport,
    both: [&AnsweredPictures; 2],
) -> anyhow::Result<()> {
    for (rank, different) in report.different.iter().take(DRAWN).enumerate() {
        let DifferentPicture { picture, index, .. } = different;
        let stem = picture.file_stem().unwrap_or_default().to_string_lossy();
        let to = folder.join(format!("{:02}-{stem}.png", rank + 1));
        let marks = both.iter().enumerate().flat_map(|(colour, run)| {
            let places = run.answers[*index].iter().flat_map(ask::places);
            places.map(move |place| (colour, place))
        });
        fs::create_dir_all(folder)
            .map_err(anyhow::Error::new)
            .and_then(|()| {
                let picture = ask::load(picture)?;
                ask::draw(&to, &picture, |canvas| {
                    marks.for_each(|(colour, place)| canvas.mark(colour, place));
                })
            })
            .with_context(|| format!("writing {}", to.display()))?;
    }
    if !report.different.is_empty() {
        let [first, second] = both.map(|run| &run.card.precision);
        let folder = folder.display();
        remark(format_args!(
            "the most different are drawn in {folder}: {first} orange, {second} blue"
        ));
    }
    Ok(())
}

impl fmt::Display for PicturesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (model, precision, pictures) = (&self.model, &self.precision, self.pictures);
        let against = self.against.as_ref();
        let against_it = against.map_or(String::new(), |against| format!(" against {against}"));
        writeln!(
            f,
            "{model} in {precision}{against_it}, {pictures} pictures\n"
        )?;
        let percent = |share: Option<f64>| known(share.map(|share| 100.0 * share), 1);
        let rows = self.prompts.iter().map(|prompt| {
            vec![
                ("prompt", prompt.prompt.clone()),
                ("found", prompt.found.to_string()),
                ("missed", prompt.missed.to_string()),
                ("wrong", prompt.wrong.to_string()),
                ("right %", percent(prompt.right_share)),
                ("found %", percent(prompt.found_share)),
                ("IoU", known(prompt.mean_iou, 3)),
            ]
        });
        write!(f, "{}", TextTable::new(rows))?;
        if self.questions > 0 {
            let (right, asked) = (self.questions_right, self.questions);
            let share = percent(Some(right as f64 / asked as f64));
            let like = against.map_or("labelled".to_owned(), |against| format!("in {against}"));
            writeln!(
                f,
                "{asked} questions, {right} answered as {like} ({share} %)"
            )?;
        }
        for EvaluatedPrompt { prompt, sample, .. } in &self.prompts {
            if let Some(sample) = sample {
                write!(f, "\n{prompt}: {sample}")?;
            }
        }
        for fit in &self.scores {
            write!(f, "\n{fit}")?;
        }
        if against.is_none() {
            return Ok(());
        }
        let pictures = self.different.len();
        write!(f, "\n{pictures} pictures differ")?;
        for DifferentPicture { picture, share, .. } in self.different.iter().take(DRAWN) {
            write!(f, "\n{:>6.1} %  {}", 100.0 * share, picture.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing;
    use spotter_core::ScoreSource;

    fn found<T>(place: T, score: f64) -> FoundObject<T> {
        FoundObject {
            place,
            score,
            source: ScoreSource::TokenProb,
            sharpness: 1.0,
        }
    }

    fn text(text: &str, score: f64) -> AnswerBody {
        AnswerBody::Text {
            text: text.into(),
            score,
            source: ScoreSource::TokenProb,
        }
    }

    fn detect() -> Task {
        Task::Detect {
            object: "car".into(),
        }
    }

    /// The answers with how right they are, when `known` is half as often right as the model believes.
    fn scores(task: Task, known: &AnswerBody, given: AnswerBody) -> ScoredAnswers {
        let picture = AskedPicture {
            path: "a.png".into(),
            known: vec![known_answer(known, |probability| probability / 2.0)],
            tasks: vec![task],
        };
        let mut evaluation = Evaluation::default();
        evaluation.add(0, &picture, &[given]);
        evaluation.scored
    }

    fn expected(kind: ScoredKind, answers: &[(f64, f64)]) -> ScoredAnswers {
        let mut expected = ScoredAnswers::default();
        for &(probability, right) in answers {
            expected.add(kind, 0, ScoredAnswer { probability, right });
        }
        expected
    }

    #[test]
    fn answers_are_as_right_as_the_same_answers_known() {
        let at = |x: f64| NormBox::from_corners(x, 0.1, x + 0.2, 0.3);
        let known = AnswerBody::Boxes(vec![found(at(0.1), 0.8), found(at(0.5), 0.4)]);
        let given = AnswerBody::Boxes(vec![
            found(at(0.51), 0.3),
            found(at(0.75), 0.9),
            found(at(0.1), 0.7),
        ]);
        let right = expected(ScoredKind::Detect, &[(0.7, 0.4), (0.3, 0.2), (0.9, 0.0)]);
        assert_eq!(scores(detect(), &known, given), right);

        let point = |x| found(NormPoint::new(x, 0.5), 0.6);
        let (known, given) = ([point(0.5)], [point(0.51), point(0.1)]);
        let [known, given] = [known.to_vec(), given.to_vec()].map(AnswerBody::Points);
        let object = "handle".into();
        let right = expected(ScoredKind::Point, &[(0.6, 0.3), (0.6, 0.0)]);
        assert_eq!(scores(Task::Point { object }, &known, given), right);

        for (given, right) in [("yes.", 0.45), ("No", 0.0)] {
            let right = expected(ScoredKind::Query, &[(0.8, right)]);
            let task = query("Is it open?", &[]);
            assert_eq!(scores(task, &text("Yes", 0.9), text(given, 0.8)), right);
        }
    }

    #[test]
    fn pictures_that_differ_come_the_most_different_first() {
        let run = |precision: &str, bodies: [AnswerBody; 3]| AnsweredPictures {
            card: ModelCard {
                precision: precision.into(),
                ..testing::card()
            },
            answers: bodies.map(|body| vec![body]).into(),
            maps: ScoreMaps::default(),
        };
        let boxes = |xs: &[f64]| {
            let place = |x: &f64| found(NormBox::from_corners(*x, 0.1, x + 0.1, 0.3), 0.9);
            AnswerBody::Boxes(xs.iter().map(place).collect())
        };
        let first = run("bf16", [boxes(&[0.1, 0.5]), boxes(&[0.2]), boxes(&[])]);
        let second = run("int8", [boxes(&[0.1]), boxes(&[0.7]), boxes(&[])]);
        let asked = |path: &str| AskedPicture {
            path: path.into(),
            tasks: vec![detect()],
            known: Vec::new(),
        };
        let mut pictures = ["a.png", "b.png", "c.png"].map(asked);
        take_for_right(&first, &mut pictures);
        let mut evaluation = Evaluation::default();
        for (index, picture) in pictures.iter().enumerate() {
            evaluation.add(index, picture, &second.answers[index]);
        }
        let report = PicturesReport::new(&second, Some(&first), &evaluation, &pictures);
        let table = report.to_string();
        assert!(
            table.contains("in int8 against bf16, 3 pictures"),
            "{table}"
        );
        let expected = "2 pictures differ\n   0.0 %  b.png\n  66.7 %  a.png";
        assert!(table.ends_with(expected), "{table}");
        let cars = &report.prompts[0];
        assert_eq!((cars.found, cars.missed, cars.wrong), (1, 2, 1));
    }
}
