//! A look at a built-in picture: do weights, tokenizer and prompts of a model fit together?
//!
//! Weights of another revision often have the same shapes. They load, and their answers are nonsense, because they were trained
//! with another vocabulary or other prompts.

use crate::service::{Engine, EngineError};
use spotter_core::{Answer, AnswerBody, FoundObject, Look, NormBox, Outcome, Picture, Task};

/// One crop for Moondream 2.
const SIZE: (usize, usize) = (640, 360);
/// Where the ball is: centre and radius in pixels. Neither a box in the middle nor one around everything overlaps much with it.
const BALL: (f64, f64, f64) = (430.0, 240.0, 40.0);
/// Row where the grass begins.
const HORIZON: usize = 150;
const SKY: [u8; 3] = [176, 208, 236];
const GRASS: [u8; 3] = [96, 148, 76];
const RED: [u8; 3] = [208, 32, 38];

/// With both first letters: models differ in it, and a choice that a model would write otherwise has a low score.
const COLOURS: [&str; 8] = [
    "Red", "red", "Green", "green", "Blue", "blue", "Yellow", "yellow",
];
/// What a box must have in common with the ball, intersection over union.
const MIN_IOU: f64 = 0.5;
/// More boxes than that are not an answer about one ball.
const MAX_BOXES: usize = 3;
/// Probability that a model gives to a colour which it would say by itself. With another vocabulary it is some millionths.
const MIN_SCORE: f64 = 0.1;

/// Looks at the built-in picture. A text says what is wrong with the answers; `None` when one of them is right. Blocks for one
/// look. An error means that the device does not work.
pub fn nonsense(engine: &mut Engine) -> Result<Option<String>, String> {
    let tasks = [
        Task::Detect {
            object: "red ball".to_owned(),
        },
        Task::Query {
            question: "What colour is the ball?".to_owned(),
            choices: COLOURS.map(str::to_owned).into(),
            options: Default::default(),
        },
    ];
    let Ok(picture) = drawn() else {
        return Ok(None);
    };
    let looked = engine.look(Look::still(picture, tasks));
    // The last step of the look may still run.
    while looked.is_ok() && !engine.is_idle() {
        engine.turn().map_err(|error| error.to_string())?;
    }
    match looked {
        Ok(look) if matches!(look.outcome, Some(Outcome::Answered(_))) => {
            let answers = look.into_answers()?;
            Ok(wrong(&answers))
        }
        Err(EngineError::Device(error)) => Err(error.to_string()),
        // A model that cannot be asked this cannot be judged by it.
        Ok(_) | Err(_) => Ok(None),
    }
}

/// A red ball with a ring on grass below a bright sky.
pub(crate) fn drawn() -> Result<Picture, spotter_core::PictureError> {
    let (width, height) = SIZE;
    let mut rgb = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            rgb.extend(pixel(x as f64, y));
        }
    }
    Picture::from_rgb(width, height, rgb)
}

fn pixel(x: f64, row: usize) -> [u8; 3] {
    let (ball_x, ball_y, radius) = BALL;
    // In radii from the centre of the ball.
    let (across, down) = ((x - ball_x) / radius, (row as f64 - ball_y) / radius);
    let distance = across.hypot(down);
    let is_shine = ((across + 0.33) / 0.2).hypot((down + 0.43) / 0.15) < 1.0;
    let is_shadow = (across / 1.07).hypot((down - 1.0) / 0.23) < 1.0;
    let (colour, light) = match () {
        () if distance < 1.0 && is_shine => (RED, 1.55),
        () if (distance - 0.5).abs() < 0.08 => (RED, 0.66),
        () if distance < 1.0 => (RED, 1.0),
        () if row < HORIZON => (SKY, 1.0),
        () if is_shadow => (GRASS, 0.75),
        () => (GRASS, 1.0),
    };
    colour.map(|part| (f64::from(part) * light).min(255.0) as u8)
}

fn ball() -> NormBox {
    let (x, y, radius) = BALL;
    let (width, height) = (SIZE.0 as f64, SIZE.1 as f64);
    NormBox::from_corners(
        (x - radius) / width,
        (y - radius) / height,
        (x + radius) / width,
        (y + radius) / height,
    )
}

/// What is wrong with both answers. One right answer is enough: a vocabulary that does not fit leaves none.
fn wrong(answers: &[Answer]) -> Option<String> {
    if answers.iter().any(|answer| is_right(&answer.body)) {
        return None;
    }
    let given: Vec<String> = answers.iter().map(|a| described(&a.body)).collect();
    Some(format!(
        "of a picture with one red ball it says: {}",
        given.join("; ")
    ))
}

fn is_right(body: &AnswerBody) -> bool {
    match body {
        AnswerBody::Boxes(found) => {
            let overlaps = |found: &FoundObject<NormBox>| found.place.iou(&ball()) >= MIN_IOU;
            found.len() <= MAX_BOXES && found.iter().any(overlaps)
        }
        AnswerBody::Text { text, score, .. } => {
            text.eq_ignore_ascii_case(COLOURS[0]) && *score >= MIN_SCORE
        }
        AnswerBody::Points(_) | AnswerBody::Outline(_) => false,
    }
}

fn described(body: &AnswerBody) -> String {
    match body {
        AnswerBody::Text { text, score, .. } => {
            format!("its colour is {text} (probability {score:.2})")
        }
        places => match places.count() {
            Some(0) | None => "no red ball".to_owned(),
            Some(1) => "a red ball in another place".to_owned(),
            Some(count) => format!("{count} red balls, in other places"),
        },
    }
}

#[cfg(test)]
mod tests;
