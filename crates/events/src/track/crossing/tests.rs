use proptest::prelude::*;
use spotter_config::ZonePoint;
use spotter_core::{DirectionId, NormBox, testing::cases};

use super::*;

/// The box of a walker whose feet are here.
fn walker(x: f64, y: f64) -> Location {
    Location::Box(NormBox {
        x0: x - 0.03,
        y0: y - 0.3,
        x1: x + 0.03,
        y1: y,
    })
}

fn line(points: &[(f64, f64)]) -> LineConfig {
    LineConfig {
        id: LineId::new("door").unwrap(),
        points: points.to_vec(),
        directions: DirectionId::in_and_out(),
        point: ZonePoint::Bottom,
        reset: None,
    }
}

/// From the top of the picture to its bottom, so that its left is the right of the picture.
fn upright() -> LineConfig {
    line(&[(0.5, 0.0), (0.5, 1.0)])
}

/// The crossings of a path with a look every half second, and of its end.
fn crossings(line: &LineConfig, path: &[(f64, f64)]) -> Vec<Crossing> {
    let mut track = TrackPath::default();
    let mut all = Vec::new();
    for (look, &(x, y)) in path.iter().enumerate() {
        let seen = PathPoint {
            foot: None,
            location: walker(x, y),
            at: Mono::from_nanos(500_000_000 * look as u64),
            wall: WallTime::from_unix_millis(500 * look as i64),
            camera_size: (1600, 900),
        };
        track.look(seen, std::slice::from_ref(line));
        all.extend(track.take());
    }
    track.end();
    all.extend(track.take());
    all
}

/// Crossings to the right and to the left.
fn counts(line: &LineConfig, path: &[(f64, f64)]) -> [usize; 2] {
    let all = crossings(line, path);
    let right = all
        .iter()
        .filter(|crossing| crossing.direction == CrossingDirection::ToRight);
    let right = right.count();
    [right, all.len() - right]
}

#[test]
fn walker_crosses_once_with_direction_time_and_speed() {
    let path = [0.3, 0.4, 0.48, 0.58, 0.7].map(|x| (x, 0.8));
    let [crossing] = &crossings(&upright(), &path)[..] else {
        panic!("one crossing")
    };
    // Seen along the line, which goes down, the left of the picture is on the right.
    assert_eq!(crossing.direction, CrossingDirection::ToLeft);
    assert_eq!(crossing.at.unix_millis(), 1100);
    let speed = crossing.speed.unwrap();
    assert!((speed - 0.2).abs() < 1e-9, "{speed}");
    // Down the picture a share is shorter: 0.2 of the height is 0.1125 widths.
    let level = line(&[(0.0, 0.5), (1.0, 0.5)]);
    let [down] = &crossings(&level, &[(0.5, 0.4), (0.5, 0.6)])[..] else {
        panic!("one crossing")
    };
    assert_eq!(down.direction, CrossingDirection::ToRight);
    assert!((down.speed.unwrap() - 0.225).abs() < 1e-9, "{down:?}");
}

#[test]
fn walker_that_turns_back_counts_once_in_each_direction() {
    let path = [0.4, 0.49, 0.55, 0.49, 0.4].map(|x| (x, 0.8));
    assert_eq!(counts(&upright(), &path), [1, 1]);
}

#[test]
fn path_around_an_end_counts_never_through_a_corner_once() {
    let short = line(&[(0.5, 0.6), (0.5, 0.9)]);
    let around = [(0.4, 0.7), (0.45, 0.5), (0.55, 0.5), (0.6, 0.7)];
    assert_eq!(counts(&short, &around), [0, 0]);
    let bent = line(&[(0.2, 0.4), (0.5, 0.6), (0.8, 0.4)]);
    for x in [0.5, 0.4999, 0.5001] {
        assert_eq!(counts(&bent, &[(x, 0.3), (x, 0.8)]), [1, 0], "{x}");
        assert_eq!(counts(&bent, &[(x, 0.8), (x, 0.3)]), [0, 1], "{x}");
    }
    // A look on the line itself.
    assert_eq!(counts(&bent, &[(0.5, 0.3), (0.5, 0.6), (0.5, 0.8)]), [1, 0]);
}

fn any_point() -> impl Strategy<Value = (f64, f64)> {
    (0.0..1.0, 0.0..1.0)
}

/// A line with a bend that reaches over the whole picture, so that it has two sides everywhere.
fn any_division() -> impl Strategy<Value = LineConfig> {
    prop::collection::vec(0.05..0.95, 2..6).prop_map(|heights| {
        let last = (heights.len() - 1) as f64;
        let at = |(index, &y): (usize, &f64)| (index as f64 / last, y);
        line(&heights.iter().enumerate().map(at).collect::<Vec<_>>())
    })
}

/// Whether a point is below the line.
fn is_below(line: &LineConfig, (x, y): (f64, f64)) -> bool {
    let over = |piece: &Segment| piece.from.x <= x && x <= piece.to.x;
    let piece = pieces(line).find(over).unwrap();
    is_right(piece.side(NormPoint { x, y }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn reversed_path_swaps_the_directions(
        points in prop::collection::vec(any_point(), 2..5),
        mut path in prop::collection::vec(any_point(), 0..40),
    ) {
        let line = line(&points);
        let [right, left] = counts(&line, &path);
        path.reverse();
        prop_assert_eq!(counts(&line, &path), [left, right]);
    }

    #[test]
    fn path_that_ends_on_its_first_side_has_equal_counts(
        line in any_division(),
        path in prop::collection::vec(any_point(), 1..40),
    ) {
        let [right, left] = counts(&line, &path);
        let [first, last] = [path[0], path[path.len() - 1]].map(|at| is_below(&line, at));
        let expected = i64::from(last) - i64::from(first);
        prop_assert_eq!(right as i64 - left as i64, expected);
    }

    /// The ellipse around a walker is 0.015 wide and 0.075 high.
    #[test]
    fn trembling_at_a_line_counts_at_most_once(
        points in prop::collection::vec(any_point(), 2..5),
        share in 0.0..1.0_f64,
        tremble in prop::collection::vec((-0.7..0.7_f64, -0.7..0.7_f64), 1..60),
        ends in (any_point(), any_point()),
    ) {
        let line = line(&points);
        let piece = pieces(&line).next().unwrap();
        let on = |from: f64, to: f64| from + share * (to - from);
        let (x, y) = (on(piece.from.x, piece.to.x), on(piece.from.y, piece.to.y));
        let (x, y): (f64, f64) = (x, y);
        let near = |&(dx, dy): &(f64, f64)| ((x + 0.015 * dx).clamp(0.0, 1.0), (y + 0.075 * dy).clamp(0.0, 1.0));
        let path: Vec<_> = tremble.iter().map(near).collect();
        prop_assert!(counts(&line, &path).iter().sum::<usize>() <= 1);
        // With a way there and a way on too.
        let all: Vec<_> = std::iter::once(ends.0).chain(path.iter().copied()).chain([ends.1]).collect();
        prop_assert!(counts(&line, &all).iter().sum::<usize>() <= 1);
    }
}
