//! The truth in words: captions.

use super::{
    scene::{Class, Colour, Daylight, SceneLayout, Weather},
    truth::{SeenObject, Truth},
};

/// The longest caption, bytes.
pub const CAPTION_BYTES_MAX: usize = 159;

const NUMBERS: [&str; 10] = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];

/// A class's name with its article.
pub fn a(class: Class) -> String {
    format!("a {}", class.name())
}

/// A short, a usual and a long caption, each at most [`CAPTION_BYTES_MAX`] bytes, decided by the truth alone. Ignored
/// objects are not named.
pub fn captions(truth: &Truth) -> [String; 3] {
    let (by_light, by_weather) = (place_and_light(truth), place_and_weather(truth));
    // With many classes only the first ones are named.
    let fewer = (1..=Class::ALL.len()).rev();
    let short =
        first_that_fits(fewer.map(|most| sentence(&list(truth, Detail::Counts, most), &by_light)));
    let coloured = list(truth, Detail::SingleColours, Class::ALL.len());
    let usual = first_that_fits([sentence(&coloured, &by_weather), short.clone()]);
    let details = [Detail::AllColours, Detail::SingleColours, Detail::Counts];
    let long = details.map(|detail| two_sentences(truth, detail));
    let long = first_that_fits(long.into_iter().chain([usual.clone()]));
    [short, usual, long]
}

/// "It is a clear day. In the park there are two dogs."
fn two_sentences(truth: &Truth, detail: Detail) -> String {
    let (weather, place) = (weather_and_time(truth), truth.layout.place());
    let at = capitalised(preposition(truth.layout));
    let things = list(truth, detail, Class::ALL.len());
    let verb = if starts_plural(truth) { "are" } else { "is" };
    let things = or_word(&things, "nothing to see");
    format!("It is {weather}. {at} the {place} there {verb} {things}.")
}

fn or_word<'a>(things: &'a str, word: &'a str) -> &'a str {
    if things.is_empty() { word } else { things }
}

fn first_that_fits(texts: impl IntoIterator<Item = String>) -> String {
    let mut texts = texts.into_iter();
    let fitting = texts.find(|text| text.len() <= CAPTION_BYTES_MAX);
    fitting.unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Counts,
    /// The colour of a class of which there is exactly one.
    SingleColours,
    AllColours,
}

/// "two cars and a dog": the first `most` classes that are there, and a hint at the rest; empty when nothing is there.
fn list(truth: &Truth, detail: Detail, most: usize) -> String {
    let there = |class: &Class| {
        let all: Vec<&SeenObject> = truth.present(*class).collect();
        (!all.is_empty()).then(|| noun(*class, &all, detail))
    };
    let mut parts: Vec<String> = Class::ALL.iter().filter_map(there).collect();
    if parts.len() > most {
        parts.truncate(most);
        parts.push("other things".into());
    }
    joined(&parts)
}

fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn noun(class: Class, all: &[&SeenObject], detail: Detail) -> String {
    let colours: Vec<Colour> = all.iter().filter_map(|seen| seen.colour).collect();
    let one_colour = colours
        .first()
        .filter(|first| colours.iter().all(|colour| colour == *first));
    match (all.len(), detail, one_colour) {
        (1, Detail::SingleColours | Detail::AllColours, Some(colour)) => {
            with_colour(&a(class), class.name(), *colour)
        }
        (1, ..) => a(class),
        (n, Detail::AllColours, Some(colour)) => {
            let things = class.plural();
            with_colour(&format!("{} {things}", number(n)), things, *colour)
        }
        (n, ..) => format!("{} {}", number(n), class.plural()),
    }
}

/// Puts the colour before the noun of `phrase`; people wear it ("a person in red").
fn with_colour(phrase: &str, noun: &str, colour: Colour) -> String {
    if noun == Class::Person.name() || noun == Class::Person.plural() {
        return format!("{phrase} in {}", colour.name());
    }
    let article = match phrase.strip_suffix(noun).unwrap_or_default() {
        "a " if colour == Colour::Orange => "an ",
        article => article,
    };
    format!("{article}{} {noun}", colour.name())
}

fn number(n: usize) -> &'static str {
    NUMBERS.get(n).copied().unwrap_or("many")
}

fn starts_plural(truth: &Truth) -> bool {
    let mut counts = Class::ALL.iter().map(|&class| truth.present(class).count());
    counts.find(|&count| count > 0) > Some(1)
}

fn preposition(layout: SceneLayout) -> &'static str {
    match layout {
        SceneLayout::Street | SceneLayout::Avenue | SceneLayout::Square => "on",
        SceneLayout::Park | SceneLayout::CarPark => "in",
    }
}

fn at_place(layout: SceneLayout) -> String {
    let is_avenue = layout == SceneLayout::Avenue;
    let article = if is_avenue { "an" } else { "a" };
    format!("{} {article} {}", preposition(layout), layout.place())
}

fn place_and_light(truth: &Truth) -> String {
    let light = match truth.light {
        Daylight::Day => "by day",
        Daylight::Dusk => "at dusk",
        Daylight::Night => "at night",
    };
    format!("{} {light}", at_place(truth.layout))
}

fn place_and_weather(truth: &Truth) -> String {
    format!("{} on {}", at_place(truth.layout), weather_and_time(truth))
}

/// "a rainy night"
fn weather_and_time(truth: &Truth) -> String {
    let weather = match truth.weather {
        Weather::Clear => "clear",
        Weather::Overcast => "grey",
        Weather::Rain => "rainy",
        Weather::Fog => "foggy",
    };
    let light = match truth.light {
        Daylight::Day => "day",
        Daylight::Dusk => "evening",
        Daylight::Night => "night",
    };
    format!("a {weather} {light}")
}

fn sentence(things: &str, setting: &str) -> String {
    format!("{} {setting}.", capitalised(or_word(things, "nothing")))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.as_str().chars()).collect()
}

#[cfg(test)]
mod tests;
