//! Outlines: tokens of `segment` to a box, an SVG path and polygons (docs/moondream.md section 8). Pure.
//!
//! ```text
//!   tokens    x y size  "M" "0" "0" "L" "960" "0" "L" "960" "960" "Z"
//!   path      M 0 0 L 1 0 L 1 1 Z            shares of the box
//!   polygon   (0, 0) (1, 0) (1, 1)           the same, for those who draw no paths
//! ```

use spotter_core::NormBox;

use crate::model::{
    bins::{coord_from_bin, size_from_bin},
    output::{DrawnOutline, SequenceOutput, ValueBins, Vertex},
    tokenizer::{Tokenizer, TokenizerError},
};

/// Ids up to this one are no text.
const SPECIAL_MAX: u32 = 20;
/// Side of the box in the numbers that the model writes.
const VIEW_BOX: f64 = 960.0;
/// Commands of a path.
const COMMANDS: &str = "MmLlHhVvCcSsQqTtAaZz";
/// Chords of a curve.
const CHORDS: usize = 16;

/// What the model drew.
pub fn outline(
    found: &SequenceOutput,
    tokenizer: &Tokenizer,
) -> Result<DrawnOutline, TokenizerError> {
    let words = words(&found.tokens, tokenizer)?;
    let path = commands(&words);
    let (commands, parse_error) = match path {
        Ok(commands) => (commands, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let texts: Vec<String> = commands.iter().map(PathCommand::text).collect();
    Ok(DrawnOutline {
        bounds: bounds(&found.values),
        path: texts.join(" "),
        polygons: polygons(&commands),
        parse_error,
    })
}

/// The box of the first two coordinates, its centre, and of the first size; each is cut to the picture before its half is added.
fn bounds(values: &[ValueBins]) -> Option<NormBox> {
    let mut coords = values.iter().filter_map(|value| match value {
        ValueBins::Coord(bin) => Some(coord_from_bin(*bin)),
        ValueBins::Size(..) => None,
    });
    let mut sizes = values.iter().filter_map(|value| match value {
        ValueBins::Size(width, height) => Some([*width, *height].map(size_from_bin)),
        ValueBins::Coord(_) => None,
    });
    let (x, y, [width, height]) = (coords.next()?, coords.next()?, sizes.next()?);
    Some(NormBox::from_centre(x, y, width, height))
}

/// The words of a path: each token is one.
fn words(tokens: &[u32], tokenizer: &Tokenizer) -> Result<Vec<String>, TokenizerError> {
    let mut words = Vec::new();
    for &id in tokens.iter().filter(|&&id| id > SPECIAL_MAX) {
        let word = tokenizer.decode(&[id])?;
        words.extend((!word.trim().is_empty()).then(|| word.trim().to_owned()));
    }
    Ok(words)
}

/// Why words are no path.
#[derive(Debug, thiserror::Error)]
enum PathError {
    #[error("the path begins with {0:?}, which is no command")]
    NoCommand(String),
    #[error("{0:?} in the path is neither a command nor a whole number")]
    NoNumber(String),
    #[error("the path ends with a minus")]
    OpenMinus,
}

/// A command with pairs of numbers, in shares of the box with three decimals.
#[derive(Debug)]
struct PathCommand {
    letter: char,
    numbers: Vec<f64>,
}

impl PathCommand {
    fn text(&self) -> String {
        let numbers = self.numbers.iter().map(f64::to_string);
        let words = [self.letter.to_string()].into_iter().chain(numbers);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The commands of a path. Of an odd number of numbers behind a command, the last is dropped.
fn commands(words: &[String]) -> Result<Vec<PathCommand>, PathError> {
    let mut commands: Vec<PathCommand> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(letter) = command(word) {
            let numbers = Vec::new();
            commands.push(PathCommand { letter, numbers });
            continue;
        }
        let Some(last) = commands.last_mut() else {
            return Err(PathError::NoCommand(word.clone()));
        };
        let (sign, digits) = match word.as_str() {
            "-" => (-1.0, words.next().ok_or(PathError::OpenMinus)?),
            _ => (1.0, word),
        };
        let number: Result<i64, _> = digits.parse();
        let number = number.map_err(|_| PathError::NoNumber(digits.clone()))?;
        last.numbers.push(share(sign * number as f64));
    }
    for command in &mut commands {
        command.numbers.truncate(command.numbers.len() / 2 * 2);
    }
    Ok(commands)
}

fn command(word: &str) -> Option<char> {
    let mut letters = word.chars();
    let letter = letters.next().filter(|letter| COMMANDS.contains(*letter));
    letter.filter(|_| letters.next().is_none())
}

/// A number of the model as a share of the box, with the three decimals that a path has.
fn share(number: f64) -> f64 {
    let text = format!("{:.3}", number / VIEW_BOX);
    // Never fails for what was just written; adding zero makes a zero of a minus zero.
    text.parse::<f64>().unwrap_or_default() + 0.0
}

/// The polygons of a path. As drawing programs do, it ends at the first segment that is not complete. Arcs, which have seven numbers,
/// are never complete here.
fn polygons(commands: &[PathCommand]) -> Vec<Vec<Vertex>> {
    let mut pen = Pen::default();
    for (index, command) in commands.iter().enumerate() {
        let is_move = command.letter.eq_ignore_ascii_case(&'m');
        if (index == 0 && !is_move) || pen.draw(command).is_none() {
            break;
        }
    }
    pen.finish();
    pen.done
}

/// Where a path is while it is drawn.
#[derive(Default)]
struct Pen {
    at: Vertex,
    /// Of the subpath.
    start: Vertex,
    /// The last control point of a cubic curve, if the last segment was one.
    cubic: Option<Vertex>,
    /// The same of a quadratic curve.
    quadratic: Option<Vertex>,
    ring: Vec<Vertex>,
    done: Vec<Vec<Vertex>>,
}

impl Pen {
    /// Draws the segments of a command; `None` when the last one is not complete.
    fn draw(&mut self, command: &PathCommand) -> Option<()> {
        let kind = command.letter.to_ascii_uppercase();
        let length = match kind {
            'Z' => {
                self.finish();
                self.at = self.start;
                (self.cubic, self.quadratic) = (None, None);
                return command.numbers.is_empty().then_some(());
            }
            'H' | 'V' => 1,
            'M' | 'L' | 'T' => 2,
            'S' | 'Q' => 4,
            'C' => 6,
            _ => return None,
        };
        let is_relative = command.letter.is_ascii_lowercase();
        let (segments, rest) = (
            command.numbers.chunks_exact(length),
            command.numbers.len() % length,
        );
        for (nth, numbers) in segments.enumerate() {
            self.segment(kind, numbers, is_relative, nth == 0);
        }
        (rest == 0 && !command.numbers.is_empty()).then_some(())
    }

    fn segment(&mut self, kind: char, numbers: &[f64], is_relative: bool, is_first: bool) {
        let origin = match is_relative {
            true => self.at,
            false => Vertex::default(),
        };
        let point = |nth: usize| Vertex {
            x: origin.x + numbers[2 * nth],
            y: origin.y + numbers[2 * nth + 1],
        };
        let at = self.at;
        let (cubic, quadratic) = (self.cubic.take(), self.quadratic.take());
        match kind {
            'M' if is_first => {
                self.finish();
                (self.at, self.start) = (point(0), point(0));
            }
            'H' => self.line(Vertex {
                x: origin.x + numbers[0],
                ..at
            }),
            'V' => self.line(Vertex {
                y: origin.y + numbers[0],
                ..at
            }),
            'C' => self.curve([at, point(0), point(1), point(2)]),
            'S' => {
                let first = cubic.map_or(at, |control| control.mirrored_at(at));
                self.curve([at, first, point(0), point(1)]);
            }
            'Q' => self.quadratic_curve([at, point(0), point(1)]),
            'T' => {
                let control = quadratic.map_or(at, |control| control.mirrored_at(at));
                self.quadratic_curve([at, control, point(0)]);
            }
            _ => self.line(point(0)),
        }
    }

    fn line(&mut self, to: Vertex) {
        if self.ring.is_empty() {
            self.ring.push(self.at);
        }
        self.ring.push(to);
        self.at = to;
    }

    fn curve(&mut self, points: [Vertex; 4]) {
        self.chords(&points);
        self.cubic = Some(points[2]);
    }

    fn quadratic_curve(&mut self, points: [Vertex; 3]) {
        self.chords(&points);
        self.quadratic = Some(points[1]);
    }

    /// A Bézier curve with these control points as chords at equal steps of its parameter.
    fn chords(&mut self, points: &[Vertex]) {
        for step in 1..=CHORDS {
            let t = step as f64 / CHORDS as f64;
            let mut between = points.to_vec();
            while between.len() > 1 {
                between = between.windows(2).map(|p| p[0].towards(p[1], t)).collect();
            }
            self.line(between[0]);
        }
    }

    /// The subpath ends. Fewer than three vertices have no area.
    fn finish(&mut self) {
        let ring = std::mem::take(&mut self.ring);
        self.done.extend((ring.len() >= 3).then_some(ring));
    }
}

impl Vertex {
    fn towards(self, to: Self, t: f64) -> Self {
        Self {
            x: self.x + (to.x - self.x) * t,
            y: self.y + (to.y - self.y) * t,
        }
    }

    fn mirrored_at(self, centre: Self) -> Self {
        Self {
            x: 2.0 * centre.x - self.x,
            y: 2.0 * centre.y - self.y,
        }
    }
}

#[cfg(test)]
mod tests;
