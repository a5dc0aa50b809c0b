//! The things of a scene as figures, in the order in which they are painted.

use tiny_skia::Rect;

use super::{
    drawing::{FigureDrawing, Placement},
    figure::{Figure, FigureShape, ShapePart},
    shade::{Shade, paint_of},
};
use crate::scene::{Class, Prop, PropKind, Scene, SceneObject};

/// One thing with its outlines.
pub(crate) struct Item {
    /// Place in [`Scene::objects`]; `None` for scenery.
    pub object: Option<usize>,
    /// Canvas units; back to front.
    pub shapes: Vec<FigureShape>,
}

/// All props and objects, far ones first, so that nearer ones cover them.
pub(crate) fn items(scene: &Scene) -> Vec<Item> {
    let props = scene.props.iter().map(|prop| {
        // A puddle is flat: it covers no upright thing.
        let is_flat = prop.kind == PropKind::Puddle;
        let depth = if is_flat { 0.0 } else { prop.foot_y };
        (depth, item_of_prop(scene, prop))
    });
    let objects = scene.objects.iter().enumerate();
    let objects = objects.map(|(i, object)| (object.foot_y, item_of_object(scene, i, object)));
    let mut all: Vec<(f32, Item)> = props.chain(objects).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, item)| item).collect()
}

pub(crate) fn item_of_prop(scene: &Scene, prop: &Prop) -> Item {
    let mut figure = Figure::of_prop(prop, &scene.view, Shade::at(scene, prop.foot_y));
    let name = match prop.kind {
        PropKind::Sign => ["sign 0", "sign 1", "sign 2", "sign 3"][prop.look as usize % 4],
        kind => kind.into(),
    };
    FigureDrawing::new(&mut figure, [0; 3], prop.look, 0.0).draw(name, Placement::default());
    Item {
        object: None,
        shapes: figure.into_shapes(),
    }
}

pub(crate) fn item_of_object(scene: &Scene, index: usize, object: &SceneObject) -> Item {
    let mut figure = Figure::of_object(object, &scene.view, Shade::at(scene, object.foot_y));
    let (class, variant) = (object.class, object.variant);
    let paint = paint_of(object);
    let mut drawing = FigureDrawing::new(&mut figure, paint, object.look, object.phase);
    if class == Class::Ball && object.lift_m < 0.05 {
        drawing.draw("ball on the ground", Placement::default());
    }
    drawing.draw(&format!("{} {variant}", class.name()), Placement::default());
    if class == Class::TrafficLight {
        lamps(&mut drawing, object);
    }
    Item {
        object: Some(index),
        shapes: figure.into_shapes(),
    }
}

/// Red, amber and green, one of them lit.
fn lamps(drawing: &mut FigureDrawing<'_>, object: &SceneObject) {
    let lit = match object.phase {
        p if p < 0.45 => 2,
        p if p < 0.55 => 1,
        _ => 0,
    };
    let placed = |lamp: i8| {
        let offset = f32::from(1 - lamp) * 0.46;
        let at = match object.variant {
            1 => (-offset, 2.6),
            _ => (0.0, 2.6 + offset),
        };
        Placement { at, narrow: 1.0 }
    };
    for lamp in 0..3 {
        let is_lit = if lamp == lit { "lit " } else { "" };
        drawing.draw(&format!("{is_lit}lamp {lamp}"), placed(lamp));
    }
    drawing.draw(&format!("light of lamp {lit}"), placed(lit));
}

/// Extents of the outlines that belong to the thing, canvas units, not clipped. `None` when nothing has an area.
pub(crate) fn bounds(shapes: &[FigureShape]) -> Option<Rect> {
    let own = shapes.iter().filter(|shape| shape.part == ShapePart::Body);
    own.filter_map(|shape| shape.path.compute_tight_bounds())
        .reduce(|a, b| {
            let (left, top) = (a.left().min(b.left()), a.top().min(b.top()));
            let (right, bottom) = (a.right().max(b.right()), a.bottom().max(b.bottom()));
            Rect::from_ltrb(left, top, right, bottom).unwrap_or(a)
        })
}
