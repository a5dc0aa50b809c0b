//! The things of a scene as figures, in the order in which they are painted.

use tiny_skia::Rect;

use super::{
    animals,
    figure::{Figure, FigureShape, ShapePart},
    people, props,
    shade::Shade,
    things, vehicles,
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
    let props = scene
        .props
        .iter()
        .map(|prop| (depth_of(prop), item_of_prop(scene, prop)));
    let objects = scene
        .objects
        .iter()
        .enumerate()
        .map(|(i, object)| (object.foot_y, item_of_object(scene, i, object)));
    let mut all: Vec<(f32, Item)> = props.chain(objects).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, item)| item).collect()
}

/// A puddle is flat: it covers no upright thing.
fn depth_of(prop: &Prop) -> f32 {
    if prop.kind == PropKind::Puddle {
        0.0
    } else {
        prop.foot_y
    }
}

pub(crate) fn item_of_prop(scene: &Scene, prop: &Prop) -> Item {
    let mut figure = Figure::of_prop(prop, &scene.view, Shade::at(scene, prop.foot_y));
    props::prop(&mut figure, prop);
    Item {
        object: None,
        shapes: figure.into_shapes(),
    }
}

pub(crate) fn item_of_object(scene: &Scene, index: usize, object: &SceneObject) -> Item {
    let mut figure = Figure::of_object(object, &scene.view, Shade::at(scene, object.foot_y));
    let paint = match object.class {
        Class::Person => people::person,
        Class::Car => vehicles::car,
        Class::Truck => vehicles::truck,
        Class::Bus => vehicles::bus,
        Class::Bicycle => things::bicycle,
        Class::Dog => animals::dog,
        Class::Cat => animals::cat,
        Class::Bird => animals::bird,
        Class::Ball => things::ball,
        Class::Parcel => things::parcel,
        Class::TrafficLight => things::traffic_light,
        Class::StopSign => things::stop_sign,
    };
    paint(&mut figure, object);
    Item {
        object: Some(index),
        shapes: figure.into_shapes(),
    }
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
