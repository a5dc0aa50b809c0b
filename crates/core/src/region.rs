//! Parts of a picture and places in it, to the millionth.

use serde::{Deserialize, Serialize};

use super::{Location, NormBox, NormPoint};

/// Steps of a [`RegionBox`] from one side of the picture to the other.
const STEPS: f64 = 1e6;

/// A rectangle in millionths of the picture's width and height. Two are equal or they are not, which boxes of floating-point
/// numbers cannot say: prompts with equal regions share the encoding of their image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionBox {
    /// Left, upper, right and lower edge.
    edges: [u32; 4],
}

impl RegionBox {
    /// The box, rounded to millionths.
    pub fn new(NormBox { x0, y0, x1, y1 }: NormBox) -> Self {
        let edges = [x0, y0, x1, y1].map(steps);
        Self { edges }
    }

    /// In shares of the picture.
    pub fn norm_box(self) -> NormBox {
        let [x0, y0, x1, y1] = self.edges.map(share);
        NormBox::from_corners(x0, y0, x1, y1)
    }

    /// The pixels of a picture of `size` that the box touches, from an even column and row to an even one or to the picture's
    /// edge, so that chroma at half size can be cut too. At least one pixel.
    pub fn pixels(self, size: (usize, usize)) -> PixelRect {
        let [x0, y0, x1, y1] = self.edges;
        let (left, width) = even_span(x0, x1, size.0);
        let (top, height) = even_span(y0, y1, size.1);
        PixelRect {
            left,
            top,
            width,
            height,
        }
    }
}

fn steps(share: f64) -> u32 {
    (share * STEPS).round() as u32
}

fn share(steps: u32) -> f64 {
    f64::from(steps) / STEPS
}

/// A place in the picture that words are about, in millionths of its width and height.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpatialReference {
    Point { x: u32, y: u32 },
    Box(RegionBox),
}

impl SpatialReference {
    /// x and y of a point, or the left, upper, right and lower edge of a box, in shares of the picture. An error says what they have
    /// to be.
    pub fn from_shares(shares: &[f64]) -> Result<Self, &'static str> {
        if !shares.iter().all(|share| (0.0..=1.0).contains(share)) {
            return Err("each number must be between 0 and 1");
        }
        match *shares {
            [x, y] => Ok(Self::Point {
                x: steps(x),
                y: steps(y),
            }),
            [x0, y0, x1, y1] if x0 < x1 && y0 < y1 => {
                let area = NormBox::from_corners(x0, y0, x1, y1);
                Ok(Self::Box(RegionBox::new(area)))
            }
            [_, _, _, _] => Err("a box must have x0 < x1 and y0 < y1"),
            _ => Err("a place has 2 numbers (a point: x, y) or 4 (a box: x0, y0, x1, y1)"),
        }
    }

    /// The same place in millionths of a part of the picture; of a place outside of the part, what is nearest to it inside.
    #[must_use]
    pub fn inside(self, part: &NormBox) -> Self {
        match self.location() {
            Location::Point(point) => {
                let NormPoint { x, y } = part.point_inside(point);
                Self::Point {
                    x: steps(x),
                    y: steps(y),
                }
            }
            Location::Box(area) => Self::Box(RegionBox::new(part.box_inside(&area))),
        }
    }

    /// In shares of the picture.
    pub fn location(self) -> Location {
        match self {
            Self::Point { x, y } => Location::Point(NormPoint::new(share(x), share(y))),
            Self::Box(area) => Location::Box(area.norm_box()),
        }
    }
}

/// Begin and length of the span from `from` to `to`, millionths, of a side of `pixels` pixels.
fn even_span(from: u32, to: u32, pixels: usize) -> (usize, usize) {
    let at = |steps: u32| share(steps) * pixels as f64;
    // A millionth of a pixel too much is no pixel more.
    let begin = (at(from) + 1e-3).floor() as usize / 2 * 2;
    let begin = begin.min(pixels.saturating_sub(1) / 2 * 2);
    let end = ((at(to) - 1e-3).ceil().max(0.0) as usize).next_multiple_of(2);
    (begin, end.clamp(begin + 1, pixels.max(begin + 1)) - begin)
}

/// Pixels of a picture. Left and top are even.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PixelRect {
    pub left: usize,
    pub top: usize,
    pub width: usize,
    pub height: usize,
}

impl PixelRect {
    /// In shares of a picture of `size`.
    pub fn norm_box(self, size: (usize, usize)) -> NormBox {
        let x = |pixel: usize| pixel as f64 / size.0 as f64;
        let y = |pixel: usize| pixel as f64 / size.1 as f64;
        NormBox::from_corners(
            x(self.left),
            y(self.top),
            x(self.left + self.width),
            y(self.top + self.height),
        )
    }
}

/// The part of the picture that a prompt is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PromptRegion {
    #[default]
    Whole,
    Fixed(RegionBox),
    /// The box in which something moved, chosen for each look ([`Look::moved`](super::Look::moved)).
    Motion,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share() -> impl Strategy<Value = f64> {
        (0u32..=1_000_000).prop_map(|steps| f64::from(steps) / STEPS)
    }

    #[test]
    fn region_of_even_pixels_is_cut_exactly() {
        let quarter = RegionBox::new(NormBox::from_corners(0.25, 0.5, 0.75, 1.0));
        let rect = PixelRect {
            left: 480,
            top: 540,
            width: 960,
            height: 540,
        };
        assert_eq!(quarter.pixels((1920, 1080)), rect);
        let back = RegionBox::new(rect.norm_box((1920, 1080)));
        assert_eq!(back, quarter);
        // A third is no whole number of pixels: every pixel that it touches is in it.
        let third = RegionBox::new(NormBox::from_corners(1.0 / 3.0, 0.0, 2.0 / 3.0, 0.1));
        let rect = third.pixels((1000, 99));
        assert_eq!((rect.left, rect.width), (332, 336));
        assert_eq!((rect.top, rect.height), (0, 10));
    }

    proptest! {
        #[test]
        fn pixels_contain_the_region_and_stay_in_the_picture(
            corners in [share(), share(), share(), share()],
            size in (1usize..5000, 1usize..5000),
        ) {
            let [x0, y0, x1, y1] = corners;
            let area = NormBox::from_corners(x0, y0, x1, y1);
            let rect = RegionBox::new(area).pixels(size);
            prop_assert!(rect.width >= 1 && rect.left + rect.width <= size.0, "{rect:?}");
            prop_assert!(rect.height >= 1 && rect.top + rect.height <= size.1, "{rect:?}");
            prop_assert!(rect.left.is_multiple_of(2) && rect.top.is_multiple_of(2), "{rect:?}");
            let cut = rect.norm_box(size);
            // Up to the rounding to millionths and to what counts as no pixel.
            let slack = 1e-6 + 2e-3 / size.0.min(size.1) as f64;
            prop_assert!(cut.x0 <= area.x0 + slack && cut.x1 >= area.x1 - slack, "{cut:?} {area:?}");
            prop_assert!(cut.y0 <= area.y0 + slack && cut.y1 >= area.y1 - slack, "{cut:?} {area:?}");
        }
    }
}
