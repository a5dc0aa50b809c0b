//! A figure: one thing as a list of filled outlines, built in metres and kept in canvas units.

use tiny_skia::{Path, PathBuilder, Rect, Stroke, Transform};

use super::shade::{Rgb, Shade};
use crate::scene::{Facing, Prop, SceneObject, View};

/// What an outline is for the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapePart {
    /// Of the thing itself: counts for its box and covers what is behind.
    Body,
    /// Carries the thing, as a pole does: covers what is behind, does not count.
    Fixture,
    /// Shadow or glow: neither.
    Air,
}

/// One filled outline, canvas units.
#[derive(Clone, Debug)]
pub(crate) struct FigureShape {
    pub path: Path,
    pub colour: Rgb,
    /// 255 is opaque.
    pub alpha: u8,
    pub part: ShapePart,
}

/// Builds shapes in local metres: origin at the foot, x the way the thing looks, y up.
pub(crate) struct Figure {
    shapes: Vec<FigureShape>,
    to_canvas: Transform,
    shade: Shade,
    part: ShapePart,
}

/// A point in local metres.
pub(super) type FigurePoint = (f32, f32);

impl Figure {
    pub fn of_object(object: &SceneObject, view: &View, shade: Shade) -> Self {
        let per_m = view.units_per_m(object.foot_y);
        let scale = per_m * object.size;
        // Signs are never mirrored: their letters would be.
        let mirrored = object.facing == Facing::Left && !object.class.is_sign();
        let across = if mirrored { -scale } else { scale };
        let foot_y = object.foot_y - object.lift_m * per_m;
        let to_canvas = Transform::from_row(across, 0.0, 0.0, -scale, object.x, foot_y);
        Self::new(to_canvas, shade)
    }

    pub fn of_prop(prop: &Prop, view: &View, shade: Shade) -> Self {
        let scale = view.units_per_m(prop.foot_y) * prop.size;
        let to_canvas = Transform::from_row(scale, 0.0, 0.0, -scale, prop.x, prop.foot_y);
        Self::new(to_canvas, shade)
    }

    /// Built in canvas units directly.
    pub fn on_canvas(shade: Shade) -> Self {
        Self::new(Transform::identity(), shade)
    }

    fn new(to_canvas: Transform, shade: Shade) -> Self {
        Self {
            shapes: Vec::with_capacity(24),
            to_canvas,
            shade,
            part: ShapePart::Body,
        }
    }

    /// What the outlines that follow are.
    pub fn part(&mut self, part: ShapePart) {
        self.part = part;
    }

    pub fn into_shapes(self) -> Vec<FigureShape> {
        self.shapes
    }

    pub fn rect(&mut self, low: FigurePoint, high: FigurePoint, colour: Rgb) {
        let path = rect_from(low, high).map(PathBuilder::from_rect);
        self.add(path, colour, 255);
    }

    pub fn ellipse(&mut self, centre: FigurePoint, radius: FigurePoint, colour: Rgb) {
        self.haze_ellipse(centre, radius, colour, 255);
    }

    /// An ellipse of `alpha` of 255.
    pub fn haze_ellipse(
        &mut self,
        centre: FigurePoint,
        radius: FigurePoint,
        colour: Rgb,
        alpha: u8,
    ) {
        let low = (centre.0 - radius.0, centre.1 - radius.1);
        let high = (centre.0 + radius.0, centre.1 + radius.1);
        let path = rect_from(low, high).and_then(PathBuilder::from_oval);
        self.add(path, colour, alpha);
    }

    /// A polygon with sharp corners.
    pub fn poly(&mut self, points: &[FigurePoint], colour: Rgb) {
        let mut builder = path_along(points);
        builder.close();
        self.add(builder.finish(), colour, 255);
    }

    /// A polygon whose corners are cut by curves that begin `radius` metres before each corner.
    pub fn smooth(&mut self, points: &[FigurePoint], radius: f32, colour: Rgb) {
        let mut builder = PathBuilder::new();
        let n = points.len();
        for i in 0..n {
            let (before, corner, after) = (points[(i + n - 1) % n], points[i], points[(i + 1) % n]);
            let [start, end] = [before, after].map(|other| towards(corner, other, radius));
            add_point(&mut builder, start);
            builder.quad_to(corner.0, corner.1, end.0, end.1);
        }
        builder.close();
        self.add(builder.finish(), colour, 255);
    }

    /// A rectangle with round corners.
    pub fn panel(&mut self, low: FigurePoint, high: FigurePoint, radius: f32, colour: Rgb) {
        let corners = [low, (high.0, low.1), high, (low.0, high.1)];
        self.smooth(&corners, radius, colour);
    }

    /// A bent line of `width` metres with round ends.
    pub fn line(&mut self, points: &[FigurePoint], width: f32, colour: Rgb) {
        self.stroke(path_along(points).finish(), width, colour);
    }

    /// A circle's rim of `width` metres.
    pub fn ring(&mut self, centre: FigurePoint, radius: f32, width: f32, colour: Rgb) {
        let path = PathBuilder::from_circle(centre.0, centre.1, radius);
        self.stroke(path, width, colour);
    }

    /// An outline that shines: it keeps its colour at night.
    pub fn lamp(&mut self, centre: FigurePoint, radius: FigurePoint, colour: Rgb) {
        let shade = self.shade;
        self.shade = shade.shining();
        self.ellipse(centre, radius, colour);
        self.shade = shade;
    }

    /// A pane of glass; at night a `lit` one shines.
    pub fn window(&mut self, low: FigurePoint, high: FigurePoint, lit: bool) {
        let shade = self.shade;
        let colour = if lit && shade.glow_strength() > 0.0 {
            self.shade = shade.shining();
            [226, 188, 112]
        } else {
            [84, 100, 120]
        };
        self.rect(low, high, colour);
        self.shade = shade;
    }

    /// Light around a lamp, when it is dark.
    pub fn glow(&mut self, centre: FigurePoint, radius: FigurePoint, colour: Rgb) {
        let strength = self.shade.glow_strength();
        if strength <= 0.0 {
            return;
        }
        let (shade, part) = (self.shade, self.part);
        (self.shade, self.part) = (shade.shining(), ShapePart::Air);
        for share in [1.0, 0.72, 0.45] {
            let radius = (radius.0 * share, radius.1 * share);
            self.haze_ellipse(centre, radius, colour, (strength * 36.0) as u8);
        }
        (self.shade, self.part) = (shade, part);
    }

    /// A soft shadow on the ground, `half_width` metres to both sides.
    pub fn shadow(&mut self, half_width: f32, depth: f32) {
        let part = self.part;
        self.part = ShapePart::Air;
        let alpha = self.shade.shadow_alpha();
        for share in [1.08, 0.9, 0.7] {
            let radius = (half_width * share, depth * share);
            self.haze_ellipse((0.0, 0.0), radius, [12, 12, 20], alpha);
        }
        self.part = part;
    }

    fn stroke(&mut self, path: Option<Path>, width: f32, colour: Rgb) {
        let stroke = Stroke {
            width,
            line_cap: tiny_skia::LineCap::Round,
            line_join: tiny_skia::LineJoin::Round,
            ..Stroke::default()
        };
        let scale = self.to_canvas.sy.abs();
        let outline = path.and_then(|path| path.stroke(&stroke, scale));
        self.add(outline, colour, 255);
    }

    /// Nothing without an area.
    fn add(&mut self, path: Option<Path>, colour: Rgb, alpha: u8) {
        let path = path.filter(|_| alpha > 0);
        let shape = |path| FigureShape {
            path,
            colour: self.shade.apply(colour),
            alpha,
            part: self.part,
        };
        let on_canvas = path.and_then(|path| path.transform(self.to_canvas));
        self.shapes.extend(on_canvas.map(shape));
    }
}

fn path_along(points: &[FigurePoint]) -> PathBuilder {
    let mut builder = PathBuilder::new();
    points
        .iter()
        .for_each(|&point| add_point(&mut builder, point));
    builder
}

fn add_point(builder: &mut PathBuilder, point: FigurePoint) {
    let (x, y) = point;
    match builder.is_empty() {
        true => builder.move_to(x, y),
        false => builder.line_to(x, y),
    }
}

fn rect_from(low: FigurePoint, high: FigurePoint) -> Option<Rect> {
    Rect::from_ltrb(low.0, low.1, high.0, high.1)
}

fn towards(from: FigurePoint, to: FigurePoint, distance: f32) -> FigurePoint {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let share = (distance / (dx * dx + dy * dy).sqrt().max(1e-6)).min(0.5);
    (from.0 + dx * share, from.1 + dy * share)
}
