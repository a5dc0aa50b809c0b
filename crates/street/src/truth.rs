//! What a picture of a scene shows: boxes, classes, colours and the visible share of each thing.

use tiny_skia::{Color, FillRule, Paint, Pixmap, Rect, Shader, Transform};

use super::{
    paint::{FigureShape, Item, ShapePart, bounds, items},
    scene::{
        CANVAS_HEIGHT, CANVAS_WIDTH, Class, Colour, Daylight, ObjectIdentity, Scene, SceneLayout,
        Weather,
    },
    score::TruthObject,
};
use spotter_core::NormBox;

/// From this visible share on an object is present: it has to be found.
pub const VISIBLE_MIN: f32 = 0.35;
/// Below this visible share an object does not exist: naming it is a mistake. Between the two it is ignored: neither
/// naming nor missing it is a mistake.
pub const IGNORE_BELOW: f32 = 0.10;
/// An object whose box is narrower than this share of the picture is ignored.
pub const WIDTH_MIN: f32 = 0.012;
/// An object whose box is lower than this share of the picture is ignored.
pub const HEIGHT_MIN: f32 = 0.02;

/// Whether an object has to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It has to be found.
    Present,
    /// Too little of it is visible, or it is too small: finding it is neither right nor wrong.
    Ignored,
}

/// One object as the picture shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenObject {
    pub identity: ObjectIdentity,
    pub class: Class,
    /// Its colour, for classes that have one.
    pub colour: Option<Colour>,
    /// Its extents, hidden parts included, clipped to the picture.
    pub box_in_frame: NormBox,
    /// Visible share of the whole thing, 0..1: not covered by others and inside of the picture.
    pub visible: f32,
    /// Whether it has to be found.
    pub visibility: Visibility,
}

/// Everything that is true of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    pub layout: SceneLayout,
    /// Time of the day.
    pub light: Daylight,
    /// What the sky does; `Clear` when there is too little of anything else to see.
    pub weather: Weather,
    /// Far ones first; those that do not exist ([`IGNORE_BELOW`]) are left out.
    pub seen: Vec<SeenObject>,
}

impl Truth {
    /// The objects of `class` that have to be found.
    pub fn present(&self, class: Class) -> impl Iterator<Item = &SeenObject> {
        let is_present =
            move |seen: &&SeenObject| seen.class == class && seen.visibility == Visibility::Present;
        self.seen.iter().filter(is_present)
    }

    /// The things that a prompt for `class` should find, those that it may find included; with a colour, only those of that
    /// colour.
    pub fn things(&self, class: Class, colour: Option<Colour>) -> Vec<TruthObject> {
        let of_class = self.seen.iter().filter(|seen| seen.class == class);
        let wanted = of_class.filter(|seen| colour.is_none() || seen.colour == colour);
        let thing = |seen: &SeenObject| TruthObject {
            bounds: seen.box_in_frame,
            ignored: seen.visibility == Visibility::Ignored,
        };
        wanted.map(thing).collect()
    }

    /// True when an object of `class` is ignored, so that counting the class has no sure answer.
    pub fn is_unsure(&self, class: Class) -> bool {
        let of_class = self.seen.iter().filter(|seen| seen.class == class);
        of_class.count() > self.present(class).count()
    }
}

/// What a picture of `scene` shows. Silhouettes are painted on a canvas in the order of drawing, so shares are counted,
/// not estimated; only the part outside of the picture is judged by the box.
pub fn truth(scene: &Scene) -> Truth {
    let weather = match scene.weather_strength < 0.4 {
        true => Weather::Clear,
        false => scene.weather,
    };
    let mut seen = Vec::with_capacity(scene.objects.len());
    for (object, bounds, uncovered) in uncovered_shares(scene) {
        let object = &scene.objects[object];
        let Some(inside) = clip(bounds) else {
            continue;
        };
        let visible = uncovered * (area(inside) / area(bounds)).min(1.0);
        if visible < IGNORE_BELOW {
            continue;
        }
        let box_in_frame = NormBox::from_corners(
            f64::from(inside.left() / CANVAS_WIDTH),
            f64::from(inside.top() / CANVAS_HEIGHT),
            f64::from(inside.right() / CANVAS_WIDTH),
            f64::from(inside.bottom() / CANVAS_HEIGHT),
        );
        let large = inside.width() >= WIDTH_MIN * CANVAS_WIDTH
            && inside.height() >= HEIGHT_MIN * CANVAS_HEIGHT;
        let visibility = match visible >= VISIBLE_MIN && large {
            true => Visibility::Present,
            false => Visibility::Ignored,
        };
        seen.push(SeenObject {
            identity: object.identity,
            class: object.class,
            colour: object.colour,
            box_in_frame,
            visible,
            visibility,
        });
    }
    Truth {
        layout: scene.backdrop.layout,
        light: Daylight::from_darkness(scene.darkness),
        weather,
        seen,
    }
}

/// Each object that is at least partly in the picture, by its place in the scene, far ones first, with its extents and the uncovered share of
/// the part in the picture.
fn uncovered_shares(scene: &Scene) -> Vec<(usize, Rect, f32)> {
    let Some(mut mask) = Pixmap::new(CANVAS_WIDTH as u32, CANVAS_HEIGHT as u32) else {
        return Vec::new();
    };
    let mut painted = Vec::with_capacity(scene.objects.len());
    for item in items(scene) {
        let mark = item.object.map_or(0, |i| i as u8 + 1);
        stamp(&mut mask, &item, mark);
        if let (Some(object), Some(bounds)) = (item.object, bounds(&item.shapes)) {
            // Just painted, so nothing covers it yet.
            painted.push((object, bounds, count(&mask, mark, bounds)));
        }
    }
    painted.retain(|(.., whole)| *whole > 0);
    let share = |(object, bounds, whole)| {
        let open = count(&mask, object as u8 + 1, bounds);
        (object, bounds, open as f32 / whole as f32)
    };
    painted.into_iter().map(share).collect()
}

/// Paints the outlines of `item` with `mark` in the red channel, and its fixtures without a mark.
fn stamp(mask: &mut Pixmap, item: &Item, mark: u8) {
    let covers = |shape: &&FigureShape| shape.part != ShapePart::Air && shape.alpha == 255;
    for shape in item.shapes.iter().filter(covers) {
        let red = match shape.part {
            ShapePart::Body => mark,
            _ => 0,
        };
        let paint = Paint {
            shader: Shader::SolidColor(Color::from_rgba8(red, 0, 0, 255)),
            anti_alias: false,
            ..Paint::default()
        };
        let transform = Transform::identity();
        mask.fill_path(&shape.path, &paint, FillRule::Winding, transform, None);
    }
}

fn count(mask: &Pixmap, mark: u8, bounds: Rect) -> usize {
    let Some(inside) = clip(bounds) else { return 0 };
    let columns =
        inside.left() as usize..(inside.right().ceil() as usize).min(mask.width() as usize);
    let rows = inside.top() as usize..(inside.bottom().ceil() as usize).min(mask.height() as usize);
    let pixels = mask.data().as_chunks::<4>().0;
    rows.map(|y| {
        let row = &pixels[y * mask.width() as usize..][columns.clone()];
        row.iter().filter(|pixel| pixel[0] == mark).count()
    })
    .sum()
}

fn clip(bounds: Rect) -> Option<Rect> {
    Rect::from_ltrb(0.0, 0.0, CANVAS_WIDTH, CANVAS_HEIGHT)?.intersect(&bounds)
}

pub(super) fn area(rect: Rect) -> f32 {
    rect.width() * rect.height()
}

#[cfg(test)]
mod tests;
