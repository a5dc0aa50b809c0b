//! The true outline of each thing: its silhouette without what others cover, from the same shapes that are painted.

use i_overlay::{
    core::{fill_rule::FillRule, overlay_rule::OverlayRule},
    float::single::SingleFloatOverlay,
};
use tiny_skia::{Path, PathSegment, Point};

use crate::{
    paint::{ShapePart, items},
    scene::{CANVAS_HEIGHT, CANVAS_WIDTH, Class, Scene},
};
use spotter_core::NormPoint;

/// Chords of a curve: of the largest thing, an arc of some pixels each.
const CHORDS: usize = 16;

/// Rings in canvas units.
type Rings = Vec<Vec<[f64; 2]>>;

/// What a picture shows of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct TrueOutline {
    /// Index in [`Scene::objects`].
    pub object: usize,
    pub class: Class,
    /// In shares of the picture; holes run in the opposite direction.
    pub rings: Vec<Vec<NormPoint>>,
}

/// Of all things of which something is seen.
pub fn outlines(scene: &Scene) -> Vec<TrueOutline> {
    let mut seen: Vec<Rings> = vec![Vec::new(); scene.objects.len()];
    for item in items(scene) {
        let covers = item.shapes.iter();
        let covers = covers.filter(|shape| shape.part != ShapePart::Air && shape.alpha == 255);
        for shape in covers {
            let drawn = flat(&shape.path);
            for (object, rings) in seen.iter_mut().enumerate() {
                if shape.part == ShapePart::Body && item.object == Some(object) {
                    *rings = overlay(rings, &drawn, OverlayRule::Union);
                } else if !rings.is_empty() {
                    *rings = overlay(rings, &drawn, OverlayRule::Difference);
                }
            }
        }
    }
    let (width, height) = (f64::from(CANVAS_WIDTH), f64::from(CANVAS_HEIGHT));
    let canvas = vec![vec![
        [0.0, 0.0],
        [width, 0.0],
        [width, height],
        [0.0, height],
    ]];
    let share = |[x, y]: [f64; 2]| NormPoint::new(x / width, y / height);
    let outline = |(object, rings): (usize, Rings)| {
        let rings = overlay(&rings, &canvas, OverlayRule::Intersect).into_iter();
        let rings = rings.map(|ring| ring.into_iter().map(share).collect());
        TrueOutline {
            object,
            class: scene.objects[object].class,
            rings: rings.collect(),
        }
    };
    let all = seen.into_iter().enumerate().map(outline);
    all.filter(|outline| !outline.rings.is_empty()).collect()
}

fn overlay(rings: &Rings, other: &Rings, rule: OverlayRule) -> Rings {
    let shapes = rings.overlay(other, rule, FillRule::NonZero);
    shapes.into_iter().flatten().collect()
}

/// A path with chords instead of curves.
fn flat(path: &Path) -> Rings {
    let mut rings = Rings::new();
    let mut at = Point::zero();
    for segment in path.segments() {
        let curve = match segment {
            PathSegment::MoveTo(start) => {
                rings.push(Vec::new());
                vec![start]
            }
            PathSegment::LineTo(end) => vec![end],
            PathSegment::QuadTo(control, end) => chords(&[at, control, end]),
            PathSegment::CubicTo(first, second, end) => chords(&[at, first, second, end]),
            PathSegment::Close => Vec::new(),
        };
        at = curve.last().copied().unwrap_or(at);
        let points = curve.into_iter().map(|p| [p.x, p.y].map(f64::from));
        rings
            .last_mut()
            .into_iter()
            .for_each(|ring| ring.extend(points.clone()));
    }
    rings
}

/// The ends of the chords of a Bézier curve, at equal steps of its parameter.
fn chords(controls: &[Point]) -> Vec<Point> {
    let between =
        |a: Point, b: Point, t: f32| Point::from_xy(a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t);
    let end = |step: usize| {
        let t = step as f32 / CHORDS as f32;
        let mut points = controls.to_vec();
        while points.len() > 1 {
            points = points
                .windows(2)
                .map(|two| between(two[0], two[1], t))
                .collect();
        }
        points[0]
    };
    (1..=CHORDS).map(end).collect()
}
