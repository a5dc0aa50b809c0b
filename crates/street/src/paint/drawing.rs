//! Draws the figures of `figures.txt`, which says what its lines mean.

use std::{collections::HashMap, f32::consts::TAU, sync::LazyLock};

use super::{
    figure::{Figure, FigurePoint, ShapePart},
    shade::{Rgb, accent, pick, tone},
};

/// The lines of each figure by its name.
static FIGURES: LazyLock<HashMap<&str, Vec<FigureLine>>> =
    LazyLock::new(|| read(include_str!("figures.txt")));

/// What a number can move with, in the order of [`FigureDrawing::moves`].
const MOVES: [char; 5] = ['s', 'c', 'S', 'C', 'l'];

struct FigureLine {
    verb: &'static str,
    /// Names and colours.
    words: Vec<&'static str>,
    numbers: Vec<Vec<Term>>,
}

/// A constant, or a factor of one of [`MOVES`].
struct Term {
    factor: f32,
    moves: Option<usize>,
}

fn read(text: &'static str) -> HashMap<&'static str, Vec<FigureLine>> {
    let mut figures = HashMap::new();
    let bare = |line: &'static str| line.split('#').next().unwrap_or_default().trim();
    let mut name = "";
    for line in text.lines().map(bare).filter(|line| !line.is_empty()) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        if verb == "figure" {
            name = rest;
            figures.insert(name, Vec::new());
            continue;
        }
        let is_word = |word: &&str| word.contains(',') || word.starts_with(char::is_alphabetic);
        let (words, numbers): (Vec<_>, Vec<_>) = rest.split_whitespace().partition(is_word);
        let numbers = numbers.into_iter().map(terms).collect();
        let line = FigureLine {
            verb,
            words,
            numbers,
        };
        figures.entry(name).or_default().push(line);
    }
    figures
}

/// Of a number like `0.34s+0.06`.
fn terms(number: &str) -> Vec<Term> {
    let apart = number.replace('-', " -").replace('+', " ");
    let term = |text: &str| {
        let moves = MOVES.iter().position(|letter| text.ends_with(*letter));
        let factor = text.trim_end_matches(char::is_alphabetic).parse();
        Term {
            factor: factor.unwrap_or(f32::NAN),
            moves,
        }
    };
    apart.split_whitespace().map(term).collect()
}

/// Where a figure is drawn in another one: from there on, and how wide.
#[derive(Clone, Copy)]
pub(super) struct Placement {
    pub at: FigurePoint,
    pub narrow: f32,
}

impl Default for Placement {
    fn default() -> Self {
        let at = (0.0, 0.0);
        Self { at, narrow: 1.0 }
    }
}

/// A figure that is being drawn.
pub(super) struct FigureDrawing<'a> {
    figure: &'a mut Figure,
    look: u32,
    /// Angle of the thing's phase.
    turn: f32,
    moves: [f32; MOVES.len()],
    palette: Vec<(&'static str, Rgb)>,
}

impl<'a> FigureDrawing<'a> {
    pub fn new(figure: &'a mut Figure, paint: Rgb, look: u32, phase: f32) -> Self {
        let turn = phase * TAU;
        let ((s, c), (opposite_s, opposite_c)) =
            (turn.sin_cos(), (turn + std::f32::consts::PI).sin_cos());
        Self {
            figure,
            look,
            turn,
            moves: [s, c, opposite_s, opposite_c, 0.05 * (1.0 - s.abs())],
            palette: vec![("paint", paint)],
        }
    }

    pub fn draw(&mut self, name: &str, placed: Placement) {
        for line in FIGURES.get(name).into_iter().flatten() {
            self.line(line, placed);
        }
    }

    fn line(&mut self, line: &FigureLine, placed: Placement) {
        let value = |term: &Term| term.factor * term.moves.map_or(1.0, |which| self.moves[which]);
        let numbers = line.numbers.iter();
        let numbers: Vec<f32> = numbers.map(|sum| sum.iter().map(value).sum()).collect();
        match (line.verb, &line.words[..], &numbers[..]) {
            ("with", figure, placed) => {
                let number = |nth: usize, usual| placed.get(nth).copied().unwrap_or(usual);
                let (at, narrow) = ((number(0, 0.0), number(1, 0.0)), number(2, 1.0));
                self.draw(&figure.join(" "), Placement { at, narrow });
            }
            ("part", ["body"], []) => self.figure.part(ShapePart::Body),
            ("part", ["fixture"], []) => self.figure.part(ShapePart::Fixture),
            ("shadow", [], &[half_width, depth]) => self.figure.shadow(half_width, depth),
            ("pick", [name, colours @ ..], &[bits]) => {
                let colour = self.colour(pick(self.look, bits as u32, colours));
                self.palette.push((*name, colour));
            }
            ("accent", [name], &[if_dark, if_bright]) => {
                let shade = accent(self.colour("paint"), if_dark, if_bright);
                self.palette.push((*name, shade));
            }
            ("colour", [name, colour], []) => self.palette.push((*name, self.colour(colour))),
            (verb, [colour], numbers) => self.outline(verb, self.colour(colour), numbers, placed),
            _ => {}
        }
    }

    fn outline(&mut self, verb: &str, colour: Rgb, numbers: &[f32], placed: Placement) {
        let Placement { at, narrow } = placed;
        let moved = |x: f32, y: f32| (x * narrow + at.0, y + at.1);
        let points = |numbers: &[f32]| -> Vec<FigurePoint> {
            let pairs = numbers.as_chunks::<2>().0.iter();
            pairs.map(|&[x, y]| moved(x, y)).collect()
        };
        let figure = &mut *self.figure;
        match (verb, numbers) {
            ("rect", &[x0, y0, x1, y1]) => figure.rect(moved(x0, y0), moved(x1, y1), colour),
            ("panel", &[radius, x0, y0, x1, y1]) => {
                figure.panel(moved(x0, y0), moved(x1, y1), radius, colour);
            }
            ("poly", corners) => figure.poly(&points(corners), colour),
            ("smooth", [radius, corners @ ..]) => figure.smooth(&points(corners), *radius, colour),
            ("line", [width, bends @ ..]) => figure.line(&points(bends), *width, colour),
            ("ellipse", &[x, y, rx, ry]) => figure.ellipse(moved(x, y), (rx, ry), colour),
            ("haze", &[alpha, x, y, rx, ry]) => {
                figure.haze_ellipse(moved(x, y), (rx, ry), colour, alpha as u8);
            }
            ("lamp", &[x, y, rx, ry]) => figure.lamp(moved(x, y), (rx, ry), colour),
            ("glow", &[x, y, rx, ry]) => figure.glow(moved(x, y), (rx, ry), colour),
            ("ring", &[width, x, y, radius]) => figure.ring(moved(x, y), radius, width, colour),
            ("spokes", &[width, x, y, radius]) => {
                for turn in [0.0, 1.05, 2.1] {
                    let (sin, cos) = (turn + self.turn).sin_cos();
                    let (dx, dy) = (radius * cos, radius * sin);
                    figure.line(
                        &[moved(x - dx, y - dy), moved(x + dx, y + dy)],
                        width,
                        colour,
                    );
                }
            }
            _ => {}
        }
    }

    /// Of `RED,GREEN,BLUE` or a name, with `*FACTOR` behind it or not.
    fn colour(&self, word: &str) -> Rgb {
        let (base, factor) = word.split_once('*').unwrap_or((word, "1"));
        let named = self.palette.iter().rev().find(|(name, _)| *name == base);
        let colour = named.map_or_else(
            || {
                let mut parts = base.split(',').map(|part| part.parse().unwrap_or_default());
                [(); 3].map(|()| parts.next().unwrap_or_default())
            },
            |(_, colour)| *colour,
        );
        match factor.parse() {
            Ok(1.0) | Err(_) => colour,
            Ok(factor) => tone(colour, factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_figures_is_understood() {
        let verbs = "with part shadow pick accent colour rect panel poly smooth line ellipse haze lamp glow ring spokes";
        for (name, lines) in &*FIGURES {
            assert!(!lines.is_empty(), "{name}");
            for FigureLine {
                verb,
                words,
                numbers,
            } in lines
            {
                assert!(
                    verbs.split(' ').any(|known| known == *verb),
                    "{name}: {verb}"
                );
                let is_known = *verb != "with" || FIGURES.contains_key(words.join(" ").as_str());
                assert!(is_known, "{name}: with {words:?}");
                let mut terms = numbers.iter().flatten();
                assert!(terms.all(|term| term.factor.is_finite()), "{name}: {verb}");
            }
        }
    }
}
