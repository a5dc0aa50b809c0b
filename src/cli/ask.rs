//! `spotter detect | point | query | segment | caption`: one question about one picture.

use std::{mem, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{
    args::{AskArgs, CaptionArgs, ModelArgs, PictureArgs, QueryArgs, SegmentArgs},
    out::{remark, say, say_part},
};
use crate::app::Canvas;
use spotter_api::{outline_json, reasoning_json};
use spotter_cameras::ingest;
use spotter_config as config;
use spotter_core::{
    AdapterId, Answer, AnswerBody, AnswerPiece, Clock, Location, Look, LookNews, NormBox,
    NormPoint, Picture, QueryOptions, SystemClock, Task, WholeLook,
};
use spotter_engine::{
    model,
    open::{ModelCard, check_adapters},
    service::Engine,
};
use spotter_pictures::{PictureFileError, RgbPixels, png_file};

/// `task` asks for an object.
pub fn find(args: &AskArgs, task: fn(String) -> Task) -> anyhow::Result<()> {
    ask(args, task(words(args)?))
}

pub fn query(args: &QueryArgs) -> anyhow::Result<()> {
    let task = Task::Query {
        question: words(&args.ask)?,
        choices: choices(&args.choices)?,
        options: QueryOptions {
            places: args.places.clone(),
            reasoning: args.reasoning,
        },
    };
    ask(&args.ask, task)
}

pub fn segment(args: &SegmentArgs) -> anyhow::Result<()> {
    let task = Task::Segment {
        object: words(&args.ask)?,
        places: args.area.into_iter().collect(),
    };
    ask(&args.ask, task)
}

pub fn caption(args: &CaptionArgs) -> anyhow::Result<()> {
    let length = args.length;
    printed_answer(&args.picture, Task::Caption { length })?;
    Ok(())
}

fn words(args: &AskArgs) -> anyhow::Result<String> {
    let words = args.prompt.trim();
    if words.is_empty() {
        bail!("the prompt is empty; say what to look for, e.g. \"red car\"");
    }
    Ok(words.to_owned())
}

/// The texts of `--choice`, by the rules of the configuration's key; none is a free answer.
fn choices(given: &[String]) -> anyhow::Result<Vec<String>> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    config::choices(given).map_err(|wrong| anyhow::anyhow!("--choice: {wrong}"))
}

fn ask(args: &AskArgs, task: Task) -> anyhow::Result<()> {
    let (picture, answer) = printed_answer(&args.picture, task)?;
    if let Some(path) = &args.draw {
        let drawn = draw(path, &picture, |canvas| match &answer.body {
            AnswerBody::Outline(outline) if !outline.polygons.is_empty() => {
                canvas.fill(0, &outline.polygons);
            }
            body => {
                let places = places(body).into_iter().enumerate();
                places.for_each(|(colour, place)| canvas.mark(colour, place));
            }
        });
        drawn.with_context(|| format!("writing {}", path.display()))?;
        remark(format_args!("drawn: {}", path.display()));
    }
    Ok(())
}

/// Loads the model, and prints what its user should know. Blocks.
pub fn open(args: &ModelArgs) -> anyhow::Result<(Engine, ModelCard)> {
    open_settings(&args.settings(), 0)
}

/// The same with an adapter, which must fit.
fn open_with(args: &PictureArgs) -> anyhow::Result<(Engine, Option<AdapterId>)> {
    let settings = args.model.settings();
    let id = AdapterId::new("file")?;
    let adapter = args.adapter.clone().map(|path| config::AdapterConfig {
        id: id.clone(),
        path,
    });
    let adapters = Vec::from_iter(adapter);
    // Before the model is loaded.
    if let Some(unfit) = check_adapters(&settings.source, &adapters).first() {
        bail!("adapter {}: {}", unfit.id, unfit.reason);
    }
    let (engine, _) = open_settings(&settings, adapters.len())?;
    match engine.set_adapters(&adapters).first() {
        None => Ok((engine, args.adapter.as_ref().map(|_| id))),
        Some(unread) => bail!("adapter {}: {}", unread.id, unread.reason),
    }
}

fn open_settings(
    settings: &config::ModelSettings,
    adapter_slots: usize,
) -> anyhow::Result<(Engine, ModelCard)> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let calibration = spotter_street::calibration_pictures;
    let opened = Engine::open_for_adapters(settings, adapter_slots, calibration, clock);
    let (engine, card) = opened.map_err(anyhow::Error::msg)?;
    let no_model = config::advice::no_model(settings);
    for warning in card.warning().iter().chain(&no_model) {
        remark(format_args!("warning: {warning}"));
    }
    Ok((engine, card))
}

/// Answers about a picture, and prints the answer: as JSON, or for people, texts as they are written. Blocks for all of it.
fn printed_answer(args: &PictureArgs, task: Task) -> anyhow::Result<(Picture, Answer)> {
    let picture = load(&args.media)?;
    let (mut engine, adapter) = open_with(args)?;
    let look = Look::still(picture.clone(), [task]).with_adapter(adapter.as_ref());
    let mut is_thinking = false;
    let answer = answer(&mut engine, look, |piece| {
        let was_thinking = mem::replace(&mut is_thinking, matches!(piece, AnswerPiece::Thought(_)));
        match piece {
            _ if args.json => Ok(()),
            // An empty line is between both.
            AnswerPiece::Text(text) if was_thinking => say_part(format_args!("\n\n{text}")),
            AnswerPiece::Thought(text) | AnswerPiece::Text(text) => say_part(text),
            _ => Ok(()),
        }
    })?;
    match args.json {
        true => say(to_json(&answer))?,
        false => show(&answer, &picture)?,
    }
    Ok((picture, answer))
}

/// Answers a look with one prompt; `piece` gets every piece of the answer as soon as it is decided. Blocks for all of it.
pub fn answer(
    engine: &mut Engine,
    look: Look,
    mut piece: impl FnMut(&AnswerPiece) -> anyhow::Result<()>,
) -> anyhow::Result<Answer> {
    let look = look.in_pieces();
    let mut whole = WholeLook::new(&look);
    engine.submit(look)?;
    while whole.outcome.is_none() {
        for (_, news) in engine.turn()? {
            match news {
                LookNews::Piece { piece: new, .. } => piece(&new)?,
                news => whole.add(news),
            }
        }
    }
    let mut answers = whole.into_answers().map_err(anyhow::Error::msg)?;
    answers.pop().context("the engine gave no answer")
}

/// What follows the pieces of a text, or the whole of another answer. Places are in shares of the picture and in pixels.
fn show(answer: &Answer, picture: &Picture) -> anyhow::Result<()> {
    let numbered = |words: Vec<String>| {
        let mut lines = (1..).zip(words);
        lines.try_for_each(|(number, words)| say(format_args!("{number:>3}  {words}")))
    };
    match &answer.body {
        AnswerBody::Text { score, .. } => say(format_args!("   (score {score:.2})"))?,
        AnswerBody::Boxes(found) => {
            let boxes = found.iter();
            let boxes = boxes.map(|found| box_words(found.score, &found.place, picture));
            numbered(boxes.collect())?;
        }
        AnswerBody::Points(found) => {
            let (width, height) = (picture.width() as f64, picture.height() as f64);
            let points = found.iter().map(|found| {
                let (NormPoint { x, y }, score) = (found.place, found.score);
                let (right, down) = (x * width, y * height);
                format!("score {score:.2}  point {x:.3} {y:.3}  ({right:.0},{down:.0} px)")
            });
            numbered(points.collect())?;
        }
        AnswerBody::Outline(outline) => {
            if let Some(bounds) = outline.bounds {
                say(box_words(outline.score, &bounds, picture))?;
            }
            match &outline.parse_error {
                Some(error) => remark(format_args!("the outline is left out: {error}")),
                // In the box.
                None => say(format_args!("path {}", outline.path))?,
            }
        }
    }
    if let Some(count) = answer.body.count() {
        say(format_args!("{count} found: {}", answer.prompt.task.text()))?;
    }
    let truncated = match answer.truncated {
        true => ", stopped at the limit of objects or tokens",
        false => "",
    };
    remark(format_args!("{:.0} ms{truncated}", took_ms(answer)));
    Ok(())
}

fn box_words(score: f64, &NormBox { x0, y0, x1, y1 }: &NormBox, picture: &Picture) -> String {
    let (width, height) = (picture.width() as f64, picture.height() as f64);
    format!(
        "score {score:.2}  box {x0:.3} {y0:.3} {x1:.3} {y1:.3}  ({:.0},{:.0} to {:.0},{:.0} px)",
        x0 * width,
        y0 * height,
        x1 * width,
        y1 * height,
    )
}

fn took_ms(answer: &Answer) -> f64 {
    answer
        .marks
        .generated
        .since(answer.marks.taken)
        .as_secs_f64()
        * 1e3
}

fn to_json(answer: &Answer) -> Value {
    let mut all = match &answer.body {
        AnswerBody::Boxes(found) => json!({"objects": found.iter().map(|f| json!({
            "x_min": f.place.x0, "y_min": f.place.y0, "x_max": f.place.x1, "y_max": f.place.y1,
            "score": f.score, "score_src": f.source.name(), "sharpness": f.sharpness,
        })).collect::<Vec<_>>()}),
        AnswerBody::Points(found) => json!({"points": found.iter().map(|f| json!({
            "x": f.place.x, "y": f.place.y, "score": f.score, "score_src": f.source.name(),
            "sharpness": f.sharpness,
        })).collect::<Vec<_>>()}),
        AnswerBody::Text {
            text,
            score,
            source,
        } => json!({"answer": text, "score": score, "score_src": source.name()}),
        AnswerBody::Outline(outline) => outline_json(outline),
    };
    all["kind"] = json!(answer.prompt.task.kind());
    all["prompt"] = json!(answer.prompt.task.text());
    all["truncated"] = json!(answer.truncated);
    all["ms"] = json!(took_ms(answer));
    if let Some(reasoning) = &answer.reasoning {
        all["reasoning"] = reasoning_json(reasoning);
    }
    all
}

/// Reads a PNG or JPEG picture, else takes the first frame of a video. Blocks.
pub fn load(path: &Path) -> anyhow::Result<Picture> {
    let name = path.display();
    match spotter_pictures::read(path) {
        Err(PictureFileError::Unknown) => {
            let failed = |failure: ingest::Failure| anyhow::anyhow!(failure.text);
            let picture = ingest::first_picture(path).map_err(failed);
            picture.with_context(|| format!("{name} is neither PNG, JPEG nor a video"))
        }
        picture => picture.with_context(|| format!("reading {name}")),
    }
}

/// Where the objects of an answer are.
pub fn places(answer: &AnswerBody) -> Vec<Location> {
    match answer {
        AnswerBody::Boxes(found) => found.iter().map(|f| Location::Box(f.place)).collect(),
        AnswerBody::Points(found) => found.iter().map(|f| Location::Point(f.place)).collect(),
        AnswerBody::Outline(outline) => outline.bounds.map(Location::Box).into_iter().collect(),
        AnswerBody::Text { .. } => Vec::new(),
    }
}

/// Writes `picture` as a PNG file with what `mark` draws into it.
pub fn draw(path: &Path, picture: &Picture, mark: impl FnOnce(&mut Canvas)) -> anyhow::Result<()> {
    let (width, height) = (picture.width(), picture.height());
    let canvas = Canvas::new(&model::rgb_from_picture(picture), width, height);
    let mut canvas = canvas.context("the picture is too large to draw on")?;
    mark(&mut canvas);
    let rgb = &canvas.into_rgb();
    let file = png_file(RgbPixels { rgb, width, height })?;
    Ok(std::fs::write(path, file)?)
}
