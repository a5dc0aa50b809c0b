//! Where names are written over a picture, so that no name covers another one. Pure.
//!
//! A browser shows the picture at any width, and letters do not scale with it. Places are found for a narrow picture, in which letters need
//! the largest share of it: names that do not cover each other there do so in no wider one.

use spotter_core::{NormBox, NormPoint};

/// Pixels across of a picture on a phone.
const PICTURE_WIDTH: f64 = 290.0;
/// Pixels across of a character, with its part of the outline.
const CHAR_WIDTH: f64 = 8.2;
/// Pixels of a line of text above and below its base line.
const ASCENT: f64 = 12.0;
const DESCENT: f64 = 4.0;
const WHOLE: NormBox = NormBox {
    x0: 0.0,
    y0: 0.0,
    x1: 1.0,
    y1: 1.0,
};

/// Which part of a name is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameAnchor {
    Start,
    Middle,
    End,
}

impl NameAnchor {
    /// As SVG writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The place of a name's base line: a point of the picture, and pixels from there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamePlace {
    pub at: NormPoint,
    pub dx: f64,
    pub dy: f64,
    pub anchor: NameAnchor,
}

/// The names that are in a picture.
pub struct PictureNames {
    /// Pixels down.
    height: f64,
    taken: Vec<NormBox>,
}

impl PictureNames {
    /// `aspect` is the width of the picture divided by its height.
    pub fn new(aspect: f64) -> Self {
        Self {
            height: PICTURE_WIDTH / aspect,
            taken: Vec::new(),
        }
    }

    /// No name is written within this number of pixels around `at`.
    pub fn keep_free(&mut self, at: NormPoint, pixels: f64) {
        let (across, down) = (pixels / PICTURE_WIDTH, pixels / self.height);
        self.taken.push(NormBox {
            x0: at.x - across,
            y0: at.y - down,
            x1: at.x + across,
            y1: at.y + down,
        });
    }

    /// Writes a name at the first of `places` with the lowest cost; inside of the picture.
    pub fn write(&mut self, characters: usize, places: &[NamePlace]) -> Option<NamePlace> {
        let costs = |place: &NamePlace| self.cost(characters, *place);
        let best = places.iter().min_by(|a, b| costs(a).total_cmp(&costs(b)))?;
        let best = self.inside(characters, *best);
        self.taken.push(self.area(characters, best));
        Some(best)
    }

    /// A name covers nothing at one of `places`.
    pub fn fits(&self, characters: usize, places: &[NamePlace]) -> bool {
        places
            .iter()
            .any(|place| self.cost(characters, *place) == 0.0)
    }

    /// Shares of the picture: what a name would cover of others, and what of it would be outside of the picture if it was not moved.
    pub fn cost(&self, characters: usize, place: NamePlace) -> f64 {
        let area = self.area(characters, place);
        let outside = area.area() - area.intersection(&WHOLE);
        let moved = self.area(characters, self.inside(characters, place));
        let covered = self.taken.iter().map(|other| moved.intersection(other));
        outside + covered.sum::<f64>()
    }

    /// The same place, or one at the edge of the picture beyond which the name would end.
    fn inside(&self, characters: usize, mut place: NamePlace) -> NamePlace {
        let area = self.area(characters, place);
        if area.x0 < 0.0 {
            (place.at.x, place.dx, place.anchor) = (0.0, 2.0, NameAnchor::Start);
        } else if area.x1 > 1.0 {
            (place.at.x, place.dx, place.anchor) = (1.0, -2.0, NameAnchor::End);
        }
        if area.y0 < 0.0 {
            (place.at.y, place.dy) = (0.0, ASCENT + 1.0);
        } else if area.y1 > 1.0 {
            (place.at.y, place.dy) = (1.0, -DESCENT - 1.0);
        }
        place
    }

    fn area(&self, characters: usize, place: NamePlace) -> NormBox {
        let width = characters as f64 * CHAR_WIDTH;
        let before = match place.anchor {
            NameAnchor::Start => 0.0,
            NameAnchor::Middle => width / 2.0,
            NameAnchor::End => width,
        };
        let left = place.at.x * PICTURE_WIDTH + place.dx - before;
        let base = place.at.y * self.height + place.dy;
        NormBox {
            x0: left / PICTURE_WIDTH,
            y0: (base - ASCENT) / self.height,
            x1: (left + width) / PICTURE_WIDTH,
            y1: (base + DESCENT) / self.height,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(x: f64, y: f64) -> NamePlace {
        NamePlace {
            at: NormPoint { x, y },
            dx: 0.0,
            dy: 0.0,
            anchor: NameAnchor::Start,
        }
    }

    #[test]
    fn name_goes_to_the_first_place_that_is_free() {
        let mut names = PictureNames::new(16.0 / 9.0);
        let places = [place(0.4, 0.5), place(0.42, 0.5), place(0.4, 0.7)];
        assert_eq!(names.write(6, &places), Some(places[0]));
        assert_eq!(names.write(6, &places), Some(places[2]));
        names.keep_free(NormPoint { x: 0.5, y: 0.2 }, 20.0);
        let places = [place(0.5, 0.2), place(0.5, 0.3)];
        assert_eq!(names.write(3, &places), Some(places[1]));
        // Without a free place, the one that covers least.
        let places = [place(0.5, 0.3), place(0.5, 0.33)];
        assert_eq!(names.write(3, &places), Some(places[1]));
        assert_eq!(names.write(3, &[]), None);
    }

    #[test]
    fn name_beyond_an_edge_is_moved_into_the_picture() {
        let names = PictureNames::new(16.0 / 9.0);
        for (x, y) in [(-0.1, 0.0), (0.99, 0.5), (0.5, 1.0), (1.0, 0.02)] {
            let inside = names.area(8, names.inside(8, place(x, y)));
            assert!(WHOLE.covers(&inside), "{x}, {y}: {inside:?}");
        }
        assert_eq!(names.inside(8, place(0.3, 0.5)), place(0.3, 0.5));
    }
}
