//! Whether corners make an area, and points a line.

use super::{NormPoint, Segment};

/// Corners in shares of the picture.
type Point = (f64, f64);

/// What is wrong with a polygon, in the words of the configuration's messages.
pub fn check_polygon(corners: &[Point]) -> Result<(), String> {
    check_path(corners, true)?;
    if doubled_area(corners).abs() < f64::EPSILON {
        return Err("has no area; all points are on one line".to_owned());
    }
    Ok(())
}

/// What is wrong with the points of a line, in the words of the configuration's messages.
pub fn check_polyline(points: &[Point]) -> Result<(), String> {
    check_path(points, false)
}

fn check_path(points: &[Point], is_closed: bool) -> Result<(), String> {
    let (count, least) = (points.len(), 2 + usize::from(is_closed));
    let is_outside = |(x, y): &Point| !(0.0..=1.0).contains(x) || !(0.0..=1.0).contains(y);
    if let Some(index) = points.iter().position(is_outside) {
        let (number, (x, y)) = (index + 1, points[index]);
        return Err(format!("point {number} is [{x}, {y}]; values are 0 to 1"));
    }
    if count < least {
        return Err(format!("needs at least {least} points, has {count}"));
    }
    let ends = points.iter().zip(points.iter().cycle().skip(1));
    let edges: Vec<Segment> = ends
        .take(count - usize::from(!is_closed))
        .map(|(from, to)| segment(*from, *to))
        .collect();
    for (first, edge) in edges.iter().enumerate() {
        for (second, other) in edges.iter().enumerate().skip(first + 1) {
            let is_last = is_closed && first == 0 && second == count - 1;
            // Neighbours have a common point. Those of a line must not lie on each other.
            let crosses = match second == first + 1 || is_last {
                true => !is_closed && (is_on(*edge, other.to) || is_on(*other, edge.from)),
                false => touch(*edge, *other),
            };
            if crosses {
                let (first, second) = (first + 1, second + 1);
                return Err(format!(
                    "edges cross: the ones that start at points {first} and {second}; give the points in order"
                ));
            }
        }
    }
    match !is_closed && edges.iter().all(|edge| edge.from == edge.to) {
        true => Err("has no length; all points are the same".to_owned()),
        false => Ok(()),
    }
}

/// Twice the signed area (shoelace formula).
fn doubled_area(corners: &[Point]) -> f64 {
    let next = corners.iter().cycle().skip(1);
    corners
        .iter()
        .zip(next)
        .map(|(a, b)| a.0 * b.1 - b.0 * a.1)
        .sum()
}

fn segment(from: Point, to: Point) -> Segment {
    let [from, to] = [from, to].map(|(x, y)| NormPoint { x, y });
    Segment { from, to }
}

/// True when two segments share a point.
fn touch(one: Segment, other: Segment) -> bool {
    let is_crossed = |edge: Segment, ends: Segment| edge.side(ends.from) * edge.side(ends.to) < 0.0;
    let has_end = |edge: Segment, ends: Segment| is_on(edge, ends.from) || is_on(edge, ends.to);
    let cross = is_crossed(one, other) && is_crossed(other, one);
    cross || has_end(one, other) || has_end(other, one)
}

/// True when `point` is exactly on the segment.
fn is_on(segment: Segment, point: NormPoint) -> bool {
    let Segment { from, to } = segment;
    let within = |p: f64, q: f64, value: f64| (p.min(q)..=p.max(q)).contains(&value);
    segment.side(point) == 0.0 && within(from.x, to.x, point.x) && within(from.y, to.y, point.y)
}
