//! Whether corners make an area. Pure geometry.

/// `(x, y)` in shares of the picture.
type Corner = (f64, f64);
/// The two ends of an edge.
type CornerPair = (Corner, Corner);

/// What is wrong with a polygon, in the words of the configuration's messages.
pub(super) fn check(corners: &[Corner]) -> Result<(), String> {
    for (index, (x, y)) in corners.iter().enumerate() {
        let inside = |share: &f64| (0.0..=1.0).contains(share);
        if !inside(x) || !inside(y) {
            let number = index + 1;
            return Err(format!("point {number} is [{x}, {y}]; values are 0 to 1"));
        }
    }
    let count = corners.len();
    if count < 3 {
        return Err(format!("needs at least 3 points, has {count}"));
    }
    let edge = |index: usize| (corners[index], corners[(index + 1) % count]);
    for first in 0..count {
        for second in first + 1..count {
            let neighbours = second == first + 1 || (first == 0 && second == count - 1);
            if !neighbours && touch(edge(first), edge(second)) {
                let (first, second) = (first + 1, second + 1);
                return Err(format!(
                    "edges cross: the ones that start at points {first} and {second}; give the corners in order around the area"
                ));
            }
        }
    }
    if doubled_area(corners).abs() < f64::EPSILON {
        return Err("has no area; all points are on one line".to_owned());
    }
    Ok(())
}

/// Twice the signed area (shoelace formula).
fn doubled_area(corners: &[Corner]) -> f64 {
    let next = corners.iter().cycle().skip(1);
    corners
        .iter()
        .zip(next)
        .map(|(a, b)| a.0 * b.1 - b.0 * a.1)
        .sum()
}

/// True when two edges share a point.
fn touch(first: CornerPair, second: CornerPair) -> bool {
    let ((a, b), (c, d)) = (first, second);
    let [abc, abd, cda, cdb] = [side(a, b, c), side(a, b, d), side(c, d, a), side(c, d, b)];
    let crossing = abc * abd < 0.0 && cda * cdb < 0.0;
    let ends = [
        (abc, (a, b), c),
        (abd, (a, b), d),
        (cda, (c, d), a),
        (cdb, (c, d), b),
    ];
    crossing
        || ends
            .into_iter()
            .any(|(side, edge, point)| side == 0.0 && between(edge, point))
}

/// Positive, zero or negative: `point` is left of, on, or right of the line from `a` to `b`.
fn side(a: Corner, b: Corner, point: Corner) -> f64 {
    (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0)
}

/// True when `point`, which is on the line through `a` and `b`, lies between them.
fn between(ends: CornerPair, point: Corner) -> bool {
    let (a, b) = ends;
    let within = |p: f64, q: f64, value: f64| (p.min(q)..=p.max(q)).contains(&value);
    within(a.0, b.0, point.0) && within(a.1, b.1, point.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_accepted_whatever_their_direction() {
        let square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)];
        let mut reversed = square;
        reversed.reverse();
        let dented = [(0.0, 0.0), (1.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.0, 1.0)];
        assert_eq!(check(&square), Ok(()));
        assert_eq!(check(&reversed), Ok(()));
        assert_eq!(check(&dented), Ok(()));
    }

    #[test]
    fn what_is_no_area_is_named() {
        let cases: [(&[Corner], &str); 6] = [
            (&[(0.0, 0.0), (1.0, 1.0)], "needs at least 3 points, has 2"),
            (
                &[(0.0, 0.0), (0.5, 0.5), (1.2, 0.5)],
                "point 3 is [1.2, 0.5]; values are 0 to 1",
            ),
            (
                &[(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0)],
                "edges cross",
            ),
            (
                &[(0.0, 0.0), (1.0, 0.0), (0.5, 0.5), (0.5, 0.0)],
                "edges cross",
            ),
            (&[(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)], "has no area"),
            (
                &[(f64::NAN, 0.0), (0.5, 0.5), (1.0, 0.0)],
                "values are 0 to 1",
            ),
        ];
        for (corners, part) in cases {
            let error = check(corners).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
