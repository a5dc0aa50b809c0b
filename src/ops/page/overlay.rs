//! What is drawn over the picture of a camera: zones and lines of the configuration, and what was found.
//!
//! Positions are shares of the picture, so the widths of strokes and letters do not scale with it. All of it is hidden from screen readers,
//! which have the table of answers.

use maud::{Markup, html};

use super::{
    names::{NameAnchor, NamePlace, PictureNames},
    plot::two,
    status::{CameraStatus, LookStatus, MarkPlace, PictureMark, PromptStatus},
    words::number,
};
use spotter_core::{
    DirectionId, NormPoint,
    config::{LineConfig, ZoneConfig},
};

/// Number of colours of prompts.
pub const INKS: usize = 6;
/// With more things than this in a picture, names would hide it; their colours are those of the prompts.
const NAMED: usize = 6;
/// Characters of a name that are shown in a picture.
const NAME_CHARS: usize = 14;
/// The arrow across a line that goes to the right: up to its left side, down to its right side.
const ARROW: &str = "M0-12V12M-4-7 0-12 4-7M-4 7 0 12 4 7";
/// Pixels from the line to where the name of a direction begins.
const ARROW_PX: f64 = 16.0;
/// Pixels from the end of a line to its name.
const END_PX: f64 = 6.0;
/// Where the arrow may be, in shares of the line's length.
const ARROW_AT: [f64; 5] = [0.5, 0.35, 0.65, 0.2, 0.8];
/// Pixels from a base line to the middle of its letters.
const MIDDLE_PX: f64 = 4.5;

/// Words over the picture.
struct PictureWords {
    characters: usize,
    markup: Markup,
}

/// A place on a line.
#[derive(Clone, Copy, Default)]
struct LineSpot {
    at: NormPoint,
    /// Where the line goes there.
    along: ScreenDirection,
}

/// A direction on the screen, of length 1.
#[derive(Clone, Copy, Default)]
struct ScreenDirection {
    across: f64,
    down: f64,
}

impl ScreenDirection {
    fn right(self) -> Self {
        Self {
            across: -self.down,
            down: self.across,
        }
    }

    fn back(self) -> Self {
        Self {
            across: -self.across,
            down: -self.down,
        }
    }
}

pub fn overlay(camera: &CameraStatus, look: &LookStatus) -> Markup {
    let (width, height) = look.size;
    let aspect = f64::from(width.max(1)) / f64::from(height.max(1));
    let marks = look.marks();
    let mut texts = PictureTexts {
        names: PictureNames::new(aspect),
        written: Vec::new(),
    };
    // What does not move is written first, so that it stays where it is.
    let arrows = camera.lines.iter();
    let arrows = arrows.map(|line| texts.line(camera, line, aspect));
    let arrows: Vec<LineSpot> = arrows.collect();
    camera.zones.iter().for_each(|zone| texts.zone(zone));
    let is_named = marks.len() <= NAMED;
    for mark in &marks {
        texts.mark(mark, camera, is_named);
    }
    html! {
        svg.overlay aria-hidden="true" focusable="false" {
            svg.plain viewBox="0 0 1 1" preserveAspectRatio="none" {
                @for zone in &camera.zones { (zone_shape(zone)) }
                @for line in &camera.lines { (line_shape(line)) }
            }
            @for mark in &marks { (mark_shape(mark)) }
            @for spot in arrows { (arrow(spot)) }
            @for text in texts.written { (text) }
        }
    }
}

/// The words over a picture, each where it covers no others if there is such a place.
struct PictureTexts {
    names: PictureNames,
    written: Vec<Markup>,
}

impl PictureTexts {
    fn write(&mut self, words: &PictureWords, places: &[NamePlace]) {
        let Some(place) = self.names.write(words.characters, places) else {
            return;
        };
        self.written.push(html! {
            text x=(percent(place.at.x)) y=(percent(place.at.y)) dx=(two(place.dx)) dy=(two(place.dy))
                text-anchor=(place.anchor.word()) { (words.markup) }
        });
    }

    /// The names of a line and its directions; the place of its arrow.
    fn line(&mut self, camera: &CameraStatus, line: &LineConfig, aspect: f64) -> LineSpot {
        let words = line.directions.each_ref();
        let words = words.map(|way| direction_words(camera, line, way));
        let [right, left] = &words;
        let cost = |spot: &LineSpot| {
            let [to_right, to_left] = spot.sides();
            self.names.cost(right.characters, to_right) + self.names.cost(left.characters, to_left)
        };
        let spots = ARROW_AT.map(|share| spot(line, aspect, share));
        let best = spots.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let arrow = best.unwrap_or(spots[0]);
        self.names.keep_free(arrow.at, ARROW_PX);
        for (words, place) in words.iter().zip(arrow.sides()) {
            self.write(words, &[place]);
        }
        let (first, last) = (spot(line, aspect, 0.0), spot(line, aspect, 1.0));
        let mut ends = first.end(first.along.back()).to_vec();
        ends.extend(last.end(last.along));
        self.write(&plain_words(line.id.as_str()), &ends);
        arrow
    }

    /// The name of a zone, in one of its corners or in its middle.
    fn zone(&mut self, zone: &ZoneConfig) {
        let corners = zone.polygon.iter();
        let mut corners: Vec<NormPoint> = corners.map(|&(x, y)| NormPoint { x, y }).collect();
        let middle = middle(&corners);
        corners.sort_by(|a, b| (a.x + a.y).total_cmp(&(b.x + b.y)));
        let in_corner = |at: NormPoint| {
            let (dx, anchor) = match at.x < middle.x {
                true => (5.0, NameAnchor::Start),
                false => (-5.0, NameAnchor::End),
            };
            let dy = if at.y < middle.y { 15.0 } else { -6.0 };
            NamePlace { at, dx, dy, anchor }
        };
        let mut places: Vec<NamePlace> = corners.into_iter().map(in_corner).collect();
        places.push(NamePlace {
            at: middle,
            dx: 0.0,
            dy: MIDDLE_PX,
            anchor: NameAnchor::Middle,
        });
        self.write(&plain_words(zone.id.as_str()), &places);
    }

    /// The score of what was found, with the name of its prompt if that covers no other words.
    fn mark(&mut self, mark: &PictureMark, camera: &CameraStatus, is_named: bool) {
        let places = mark_places(mark);
        let score = format!("{:.0}", mark.score * 100.0);
        let prompt = camera.prompts.get(mark.prompt).filter(|_| is_named);
        let named = prompt.map(|prompt| format!("{} {score}", short(prompt.prompt.id.as_str())));
        let fits = |words: &String| self.names.fits(words.chars().count(), &places);
        let words = named.filter(fits).unwrap_or(score);
        let words = PictureWords {
            characters: words.chars().count(),
            markup: html! { tspan class=(ink(mark.prompt)) { (words) } },
        };
        self.write(&words, &places);
    }
}

impl LineSpot {
    /// Where the names of the directions are: to the right of the line, and to its left.
    fn sides(self) -> [NamePlace; 2] {
        let right = self.along.right();
        [right, right.back()].map(|way| self.name(way, ARROW_PX))
    }

    /// Places for the line's name at an end: beyond it, and on both sides. `onwards` leads away from the line.
    fn end(self, onwards: ScreenDirection) -> [NamePlace; 3] {
        let right = self.along.right();
        [onwards, right, right.back()].map(|way| self.name(way, END_PX))
    }

    /// A name that begins `pixels` away, in the direction of `way`.
    fn name(self, way: ScreenDirection, pixels: f64) -> NamePlace {
        let anchor = match way.across {
            x if x > 0.4 => NameAnchor::Start,
            x if x < -0.4 => NameAnchor::End,
            _ => NameAnchor::Middle,
        };
        NamePlace {
            at: self.at,
            dx: way.across * pixels,
            dy: way.down * (pixels + MIDDLE_PX) + MIDDLE_PX,
            anchor,
        }
    }
}

/// At a share of a line's length on the screen, whose pixels are square.
fn spot(line: &LineConfig, aspect: f64, share: f64) -> LineSpot {
    let pieces = line.points.windows(2).map(|ends| {
        let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
        let (across, down) = ((x1 - x0) * aspect, y1 - y0);
        let length = across.hypot(down).max(f64::MIN_POSITIVE);
        let along = ScreenDirection {
            across: across / length,
            down: down / length,
        };
        (NormPoint { x: x0, y: y0 }, along, length)
    });
    let pieces: Vec<_> = pieces.collect();
    let whole: f64 = pieces.iter().map(|(_, _, length)| length).sum();
    let mut rest = share * whole;
    let mut found = LineSpot::default();
    for (from, along, length) in pieces {
        let part = rest.clamp(0.0, length);
        found = LineSpot {
            at: NormPoint {
                x: from.x + along.across * part / aspect,
                y: from.y + along.down * part,
            },
            along,
        };
        if rest <= length {
            break;
        }
        rest -= length;
    }
    found
}

fn middle(corners: &[NormPoint]) -> NormPoint {
    let mean = |of: fn(&NormPoint) -> f64| {
        corners.iter().map(of).sum::<f64>() / corners.len().max(1) as f64
    };
    NormPoint {
        x: mean(|corner| corner.x),
        y: mean(|corner| corner.y),
    }
}

/// Above the thing, else in it, below it, or at its other side.
fn mark_places(mark: &PictureMark) -> Vec<NamePlace> {
    let place = |x: f64, y: f64, dx: f64, dy: f64, anchor| NamePlace {
        at: NormPoint { x, y },
        dx,
        dy,
        anchor,
    };
    let mut places = match mark.place {
        MarkPlace::Box([x0, y0, x1, y1]) => [(y0, -5.0), (y0, 15.0), (y1, 15.0), (y1, -5.0)]
            .into_iter()
            .flat_map(|(y, dy)| {
                let start = place(x0, y, 2.0, dy, NameAnchor::Start);
                [start, place(x1, y, -2.0, dy, NameAnchor::End)]
            })
            .collect::<Vec<_>>(),
        MarkPlace::Point([x, y]) => [-5.0, 13.0]
            .into_iter()
            .flat_map(|dy| {
                let start = place(x, y, 9.0, dy, NameAnchor::Start);
                [start, place(x, y, -9.0, dy, NameAnchor::End)]
            })
            .collect(),
    };
    // Text in the right part of the picture ends where its thing ends.
    if left_of(mark) > 0.7 {
        places.chunks_mut(2).for_each(<[NamePlace]>::reverse);
    }
    places
}

fn left_of(mark: &PictureMark) -> f64 {
    match mark.place {
        MarkPlace::Box([x, ..]) | MarkPlace::Point([x, _]) => x,
    }
}

/// `12 3 in`: the count of each prompt in its colour, and the name of the direction.
fn direction_words(camera: &CameraStatus, line: &LineConfig, way: &DirectionId) -> PictureWords {
    let count = |(prompt, status): (usize, &PromptStatus)| {
        let at_line = status
            .lines
            .iter()
            .find(|counted| counted.line == line.id)?;
        let (_, count) = at_line.counts.iter().find(|(known, _)| known == way)?;
        Some((prompt, number(*count)))
    };
    let counts: Vec<_> = camera
        .prompts
        .iter()
        .enumerate()
        .filter_map(count)
        .collect();
    let name = plain_words(way.as_str());
    let digits = counts.iter().map(|(_, count)| count.chars().count() + 1);
    PictureWords {
        characters: digits.sum::<usize>() + name.characters,
        markup: html! {
            @for (prompt, count) in &counts { tspan class=(ink(*prompt)) { (count) } " " }
            (name.markup)
        },
    }
}

/// A name of the configuration.
fn plain_words(name: &str) -> PictureWords {
    let name = short(name);
    PictureWords {
        characters: name.chars().count(),
        markup: html! { tspan.plain { (name) } },
    }
}

fn zone_shape(zone: &ZoneConfig) -> Markup {
    let points = points(&zone.polygon);
    html! { @for class in ["under", "zone"] { polygon class=(class) points=(points) {} } }
}

fn line_shape(line: &LineConfig) -> Markup {
    let points = points(&line.points);
    html! { @for class in ["under", "line"] { polyline class=(class) points=(points) {} } }
}

fn points(shares: &[(f64, f64)]) -> String {
    let point = |&(x, y): &(f64, f64)| format!("{x:.4},{y:.4}");
    shares.iter().map(point).collect::<Vec<_>>().join(" ")
}

fn mark_shape(mark: &PictureMark) -> Markup {
    html! {
        g class=(ink(mark.prompt)) {
            @for class in ["under", "line"] {
                @match mark.place {
                    MarkPlace::Box([x0, y0, x1, y1]) => {
                        rect class=(class) x=(percent(x0)) y=(percent(y0)) width=(percent(x1 - x0)) height=(percent(y1 - y0)) rx="2" {}
                    }
                    MarkPlace::Point([x, y]) => {
                        circle class=(class) cx=(percent(x)) cy=(percent(y)) r="5" {}
                    }
                }
            }
        }
    }
}

fn arrow(spot: LineSpot) -> Markup {
    let angle = spot.along.down.atan2(spot.along.across).to_degrees();
    let turned = format!("rotate({})", two(angle));
    html! {
        svg.plain x=(percent(spot.at.x)) y=(percent(spot.at.y)) {
            @for class in ["under", "line"] { path class=(class) d=(ARROW) transform=(turned) {} }
        }
    }
}

/// The class of a prompt's colour.
fn ink(prompt: usize) -> String {
    format!("ink{}", prompt % INKS)
}

fn percent(share: f64) -> String {
    format!("{}%", two(share * 100.0))
}

/// The first characters of a name.
fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{LineId, config::ZonePoint};

    fn line(points: &[(f64, f64)]) -> LineConfig {
        LineConfig {
            id: LineId::new("door").unwrap(),
            points: points.to_vec(),
            directions: DirectionId::in_and_out(),
            point: ZonePoint::Bottom,
            reset: None,
        }
    }

    #[test]
    fn user_text_is_escaped_and_long_names_are_cut() {
        assert_eq!(short("<script>"), "<script>");
        let drawn = html! { (short("<script>")) }.into_string();
        assert_eq!(short(&"ä".repeat(15)), "ä".repeat(14) + "…");
        assert!(
            drawn.contains("&lt;script&gt;") && !drawn.contains("<script>"),
            "{drawn}"
        );
    }

    #[test]
    fn first_direction_is_named_to_the_right_of_the_line() {
        // Seen from its first point, along it, on a screen of twice the width.
        for (from, to, side) in [
            ((0.2, 0.5), (0.8, 0.5), (0.0, 1.0)),
            ((0.8, 0.5), (0.2, 0.5), (0.0, -1.0)),
            ((0.5, 0.2), (0.5, 0.8), (-1.0, 0.0)),
            ((0.5, 0.8), (0.5, 0.2), (1.0, 0.0)),
            ((0.25, 0.0), (0.75, 1.0), (-1.0, 1.0)),
        ] {
            let middle = spot(&line(&[from, to]), 2.0, 0.5);
            assert_eq!(middle.at, NormPoint { x: 0.5, y: 0.5 }, "{from:?} {to:?}");
            let [right, left] = middle.sides();
            let (right, left) = (
                (right.dx, right.dy - MIDDLE_PX),
                (left.dx, left.dy - MIDDLE_PX),
            );
            let is = |value: f64| {
                if value.abs() < 1.0 {
                    0.0
                } else {
                    value.signum()
                }
            };
            assert_eq!((is(right.0), is(right.1)), side, "{from:?} {to:?}");
            assert_eq!((is(left.0), is(left.1)), (-side.0, -side.1));
        }
    }

    #[test]
    fn middle_of_a_line_is_measured_along_its_pieces() {
        // 0.4 across on a screen of twice the width is as long as 0.8 down.
        let corner = line(&[(0.1, 0.1), (0.5, 0.1), (0.5, 0.9)]);
        let near = |spot: LineSpot, x: f64, y: f64| {
            assert!((spot.at.x - x).abs() < 1e-9 && (spot.at.y - y).abs() < 1e-9);
        };
        near(spot(&corner, 2.0, 0.5), 0.5, 0.1);
        near(spot(&corner, 2.0, 0.75), 0.5, 0.5);
        near(spot(&corner, 2.0, 1.0), 0.5, 0.9);
    }
}
