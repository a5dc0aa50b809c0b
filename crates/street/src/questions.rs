//! Questions about a picture with their answers, for evaluation. The forms of the questions are defined here only;
//! the trainer of the embedded model gets them from [`phrases`] through the header of the record stream.

use rand::RngExt;

use super::{
    chance,
    scene::{Class, Colour},
    truth::{SeenObject, Truth},
};
use ExpectedAnswer::{Boxes, PointsIn, Text};
use QuestionKind::{Count, Detect, Point, YesNo};
use spotter_core::{NormBox, Task};

const THING: &str = "{thing}";
const THINGS: &str = "{things}";
const COLOURED_THING: &str = "{colour} {thing}";
const COLOURED_THINGS: &str = "{colour} {things}";
const YES_NO: &str = "Is there {a thing}?";
const COUNT: &str = "How many {things} are there?";
const COLOUR: &str = "What colour is the {thing}?";
const YES: &str = "Yes";
const NO: &str = "No";
/// Counts are answered in one digit.
const COUNT_MAX: usize = 9;

/// What is true of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedAnswer {
    /// Exactly these boxes.
    Boxes(Vec<NormBox>),
    /// One point in each of these boxes, and no other point.
    PointsIn(Vec<NormBox>),
    Text(String),
}

/// What a question tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    Detect,
    Point,
    /// "Is there ...?"
    YesNo,
    /// "How many ...?"
    Count,
    /// "What colour ...?"
    Colour,
}

/// A task with its true answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub kind: QuestionKind,
    /// What it is about.
    pub class: Class,
    pub task: Task,
    pub expected: ExpectedAnswer,
}

/// Every form of words, with its placeholders: `{thing}` a class's name, `{things}` its plural, `{a thing}` the name
/// with its article, `{colour}` a colour.
pub fn phrases() -> serde_json::Value {
    serde_json::json!({
        "detect": [THING, THINGS],
        "detect_coloured": [COLOURED_THING, COLOURED_THINGS],
        "yes_no": YES_NO,
        "count": COUNT,
        "colour": COLOUR,
        "yes": YES,
        "no": NO,
    })
}

/// Questions whose answers are certain: none is about a class with an ignored object. `seed` chooses the absent things.
pub fn questions(truth: &Truth, seed: u64) -> Vec<Question> {
    let mut rng = chance::rng(seed, chance::QUESTIONS);
    let sure = Class::ALL.iter().copied();
    let sure = sure.filter(|&class| !truth.is_unsure(class));
    let is_there = |class: &Class| truth.present(*class).next().is_some();
    let (there, absent): (Vec<Class>, Vec<Class>) = sure.partition(is_there);
    let mut all = Vec::new();
    for &class in &there {
        let other_colour = rng.random_range(0..Colour::ALL.len());
        about_present(truth, class, other_colour, &mut all);
    }
    // Two absent classes, one after the other from a random one on.
    if !absent.is_empty() {
        let first = rng.random_range(0..absent.len());
        for i in 0..absent.len().min(2) {
            about_absent(absent[(first + i) % absent.len()], &mut all);
        }
    }
    all
}

fn about_present(truth: &Truth, class: Class, other_colour: usize, all: &mut Vec<Question>) {
    let seen: Vec<&SeenObject> = truth.present(class).collect();
    let boxes = |colour: Option<Colour>| -> Vec<NormBox> {
        let fits = |one: &&&SeenObject| colour.is_none() || one.colour == colour;
        let matching = seen.iter().filter(fits);
        matching.map(|one| one.box_in_frame).collect()
    };
    let ask = |kind, form, expected| question(kind, form, class, None, expected);
    all.push(ask(Detect, THING, Boxes(boxes(None))));
    all.push(ask(Detect, THINGS, Boxes(boxes(None))));
    all.push(ask(Point, THING, PointsIn(boxes(None))));
    all.push(ask(YesNo, YES_NO, Text(YES.into())));
    if seen.len() <= COUNT_MAX {
        all.push(ask(Count, COUNT, Text(seen.len().to_string())));
    }
    if !class.is_coloured() {
        return;
    }
    for &colour in Colour::ALL {
        let matching = boxes(Some(colour));
        // The colours that are present, and one more.
        if !matching.is_empty() || colour.index() == other_colour {
            let (colour, expected) = (Some(colour), Boxes(matching));
            all.push(question(Detect, COLOURED_THING, class, colour, expected));
        }
    }
    if let ([only], false) = (seen.as_slice(), class == Class::Person)
        && let Some(colour) = only.colour
    {
        all.push(ask(
            QuestionKind::Colour,
            COLOUR,
            Text(colour.name().into()),
        ));
    }
}

fn about_absent(class: Class, all: &mut Vec<Question>) {
    all.extend([
        question(Detect, THING, class, None, Boxes(Vec::new())),
        question(Point, THING, class, None, PointsIn(Vec::new())),
        question(YesNo, YES_NO, class, None, Text(NO.into())),
        question(Count, COUNT, class, None, Text("0".into())),
    ]);
}

fn question(
    kind: QuestionKind,
    form: &str,
    class: Class,
    colour: Option<Colour>,
    expected: ExpectedAnswer,
) -> Question {
    let words = filled(form, class, colour);
    Question {
        kind,
        class,
        task: match kind {
            Detect => Task::Detect { object: words },
            Point => Task::Point { object: words },
            YesNo | Count | QuestionKind::Colour => Task::question(words),
        },
        expected,
    }
}

fn filled(form: &str, class: Class, colour: Option<Colour>) -> String {
    form.replace("{a thing}", &super::words::a(class))
        .replace(THINGS, class.plural())
        .replace(THING, class.name())
        .replace("{colour}", colour.map_or("", Colour::name))
}

#[cfg(test)]
mod tests;
