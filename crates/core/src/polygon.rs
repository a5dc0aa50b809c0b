//! Areas of a picture that people draw: zones and masks.

use super::{NormPoint, Segment};

/// Distance below which a point is on an edge; a thousandth of a pixel in the largest picture.
const ON_EDGE: f64 = 1e-7;

/// A closed polygon in shares of the picture, even-odd rule. Fewer than three corners hold nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    corners: Vec<NormPoint>,
}

impl Polygon {
    /// From corners `(x, y)` in order, the last joined to the first; clamped to the picture.
    pub fn new(corners: &[(f64, f64)]) -> Self {
        Self {
            corners: corners.iter().map(|&(x, y)| NormPoint::new(x, y)).collect(),
        }
    }

    /// True when `point` is inside or on an edge. The edge counts, because a box that leaves the picture at the
    /// bottom has its lower edge exactly at 1.0, where zones end too.
    pub fn contains(&self, point: NormPoint) -> bool {
        if self.corners.len() < 3 {
            return false;
        }
        if self.edges().any(|edge| edge.distance(point) <= ON_EDGE) {
            return true;
        }
        let to_the_right = self.crossings(point.y).filter(|&x| x > point.x).count();
        to_the_right % 2 == 1
    }

    /// The stretches `(from, to)` of the horizontal line at `y` that lie inside, from left to right, in shares of
    /// the width.
    pub fn spans(&self, y: f64) -> Vec<(f64, f64)> {
        let mut xs: Vec<f64> = self.crossings(y).collect();
        xs.sort_by(f64::total_cmp);
        xs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// Where edges cross the line at `y`. An edge owns its upper end and not its lower one, so that a corner between
    /// two edges is crossed once and the number of crossings is even.
    fn crossings(&self, y: f64) -> impl Iterator<Item = f64> {
        self.edges()
            .filter(move |Segment { from, to }| (from.y <= y) != (to.y <= y))
            .map(move |Segment { from, to }| {
                from.x + (y - from.y) / (to.y - from.y) * (to.x - from.x)
            })
    }

    fn edges(&self) -> impl Iterator<Item = Segment> {
        let next = self.corners.iter().cycle().skip(1);
        let ends = self.corners.iter().zip(next);
        ends.map(|(&from, &to)| Segment { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_and_corners_are_inside_and_a_notch_is_not() {
        let drive = Polygon::new(&[(0.05, 0.55), (0.95, 0.55), (0.95, 1.0), (0.05, 1.0)]);
        let contains = |(x, y)| drive.contains(NormPoint::new(x, y));
        assert!(
            [(0.5, 0.7), (0.5, 1.0), (0.05, 0.55), (0.95, 0.8)]
                .into_iter()
                .all(contains)
        );
        assert!(
            ![(0.5, 0.5499), (0.04, 0.7), (0.96, 1.0)]
                .into_iter()
                .any(contains)
        );
        // The letter U: between its arms there is nothing.
        let [left, right] = [
            [(0.0, 0.0), (0.2, 0.0), (0.2, 0.8)],
            [(0.8, 0.8), (0.8, 0.0), (1.0, 0.0)],
        ];
        let u = Polygon::new(&[&left[..], &right, &[(1.0, 1.0), (0.0, 1.0)]].concat());
        assert!(!u.contains(NormPoint::new(0.5, 0.4)));
        assert!(u.contains(NormPoint::new(0.1, 0.4)));
        assert_eq!(u.spans(0.4), [(0.0, 0.2), (0.8, 1.0)]);
        assert_eq!(u.spans(0.9), [(0.0, 1.0)]);
        let line = Polygon::new(&[(0.0, 0.0), (1.0, 1.0)]);
        assert!(!line.contains(NormPoint::new(0.5, 0.5)));
    }
}
