//! A random scene, for training and evaluation: any place, any light, up to fifteen objects.

use rand::RngExt;
use rand_pcg::Pcg32;
use strum::VariantArray as _;
use tiny_skia::Rect;

use super::{
    chance,
    paint::{bounds, item_of_object, item_of_prop},
    routes::{any_colour, any_facing, any_weather},
    scene::{
        Backdrop, CANVAS_HEIGHT, CANVAS_WIDTH, Class, Lens, ObjectIdentity, Prop, PropKind, RIDER,
        Scene, SceneLayout, SceneObject, View,
    },
    truth::area,
};

/// Objects of a scene, with one more if the last one is a bicycle with its rider.
const OBJECTS_MAX: usize = 14;
/// Attempts to place an object that would cover or be covered too much.
const TRIES: usize = 12;

/// The scene number `seed`: always the same for the same seed.
pub fn random(seed: u64) -> Scene {
    let mut rng = chance::rng(seed, chance::SCENE);
    let mut scene = empty(seed, &mut rng);
    let mut taken = Vec::new();
    for _ in 0..rng.random_range(0..=6) {
        add_prop(&mut scene, &mut taken, &mut rng);
    }
    // Few objects more often than many; none at all now and then.
    let share: f32 = rng.random();
    let wanted = (share.powf(1.1) * (OBJECTS_MAX + 1) as f32) as usize;
    // Often several of one kind, so that counting is learnt.
    let favourite = rng.random_bool(0.5).then(|| any_class(&mut rng));
    for _ in 0..wanted {
        let class = match favourite {
            Some(class) if rng.random_bool(0.4) => class,
            _ => any_class(&mut rng),
        };
        if scene.objects.len() < OBJECTS_MAX {
            add_object(&mut scene, class, &mut taken, &mut rng);
        }
    }
    scene
}

fn empty(seed: u64, rng: &mut Pcg32) -> Scene {
    let layout = match rng.random_range(0..10) {
        0..=3 => SceneLayout::Street,
        4 | 5 => SceneLayout::Avenue,
        6 | 7 => SceneLayout::Park,
        8 => SceneLayout::CarPark,
        _ => SceneLayout::Square,
    };
    let horizon_y: f32 = rng.random_range(70.0..150.0);
    let ground_y = horizon_y + rng.random_range(22.0..50.0);
    let top = ground_y + rng.random_range(8.0..36.0);
    let road_y = match layout {
        SceneLayout::Avenue => (ground_y + 15.0, CANVAS_HEIGHT),
        SceneLayout::CarPark => (top, 350.0),
        _ => (top, (top + rng.random_range(80.0..130.0)).min(350.0)),
    };
    let darkness = match rng.random_range(0..10) {
        0..=4 => rng.random_range(0.0..0.25),
        5 | 6 => rng.random_range(0.42..0.62),
        _ => rng.random_range(0.78..1.0),
    };
    let weather = any_weather(rng);
    Scene {
        view: View {
            horizon_y,
            camera_m: rng.random_range(2.4..5.6),
        },
        backdrop: Backdrop {
            layout,
            ground_y,
            road_y,
            seed,
        },
        darkness,
        weather,
        weather_strength: rng.random_range(0.55..1.0),
        lens: any_lens(seed, rng),
        props: Vec::new(),
        objects: Vec::new(),
    }
}

fn any_lens(seed: u64, rng: &mut Pcg32) -> Lens {
    Lens {
        brightness: rng.random_range(-16.0..16.0),
        contrast: rng.random_range(0.82..1.15),
        grain: rng.random_range(0.0..6.0),
        soft: rng.random_bool(0.3),
        vignette: match rng.random_bool(0.4) {
            true => rng.random_range(0.0..0.5),
            false => 0.0,
        },
        seed,
    }
}

fn any_class(rng: &mut Pcg32) -> Class {
    Class::ALL[rng.random_range(0..Class::ALL.len())]
}

fn add_prop(scene: &mut Scene, taken: &mut Vec<(f32, Rect)>, rng: &mut Pcg32) {
    let kind = PropKind::VARIANTS[rng.random_range(0..PropKind::VARIANTS.len())];
    let tall = matches!(kind, PropKind::Tree | PropKind::Fir | PropKind::Lamp);
    let low = scene.backdrop.ground_y + 3.0;
    let high = if tall {
        low + 60.0
    } else {
        CANVAS_HEIGHT - 5.0
    };
    let prop = Prop {
        kind,
        x: rng.random_range(0.0..CANVAS_WIDTH),
        foot_y: rng.random_range(low..high),
        size: rng.random_range(0.8..1.25),
        look: rng.random(),
    };
    if let Some(place) = bounds(&item_of_prop(scene, &prop).shapes) {
        taken.push((prop.foot_y, place));
    }
    scene.props.push(prop);
}

fn add_object(scene: &mut Scene, class: Class, taken: &mut Vec<(f32, Rect)>, rng: &mut Pcg32) {
    // Mostly apart from others; now and then more is covered, because that happens too.
    let covered_max = if rng.random_bool(0.12) { 0.6 } else { 0.25 };
    let model = any_object(class, rng);
    for _ in 0..TRIES {
        let object = place(scene, model, rng);
        let extents = bounds(&item_of_object(scene, 0, &object).shapes);
        let Some(extents) = extents.filter(|extents| fits(*extents)) else {
            continue;
        };
        let place = (object.foot_y, extents);
        if taken
            .iter()
            .any(|other| covered(other, &place) > covered_max)
        {
            continue;
        }
        taken.push((object.foot_y, extents));
        scene.objects.push(object);
        if class == Class::Bicycle && rng.random_bool(0.35) {
            let rider = SceneObject {
                class: Class::Person,
                colour: Some(any_colour(rng)),
                variant: RIDER,
                phase: rng.random(),
                look: rng.random(),
                ..object
            };
            if let Some(extents) = bounds(&item_of_object(scene, 0, &rider).shapes) {
                taken.push((rider.foot_y, extents));
            }
            scene.objects.push(rider);
        }
        return;
    }
}

/// An object without its place.
fn any_object(class: Class, rng: &mut Pcg32) -> SceneObject {
    let variants = match class {
        Class::Person => RIDER,
        _ => class.variants(),
    };
    let variant = rng.random_range(0..variants);
    let lift_m = match class {
        Class::Bird if variant != 1 => rng.random_range(0.8..5.0),
        Class::Ball if rng.random_bool(0.4) => rng.random_range(0.1..1.6),
        _ => 0.0,
    };
    SceneObject {
        identity: ObjectIdentity::Anonymous,
        class,
        colour: class.is_coloured().then(|| any_colour(rng)),
        x: 0.0,
        foot_y: 0.0,
        lift_m,
        size: rng.random_range(0.85..1.2),
        facing: any_facing(rng),
        variant,
        phase: rng.random(),
        look: rng.random(),
    }
}

fn place(scene: &Scene, model: SceneObject, rng: &mut Pcg32) -> SceneObject {
    let place = &scene.backdrop;
    // A foot below this line makes the thing large enough to recognise its class.
    let height_m = match model.class {
        Class::Ball | Class::Cat | Class::Parcel => 0.65,
        Class::Bird | Class::Dog => 0.85,
        Class::Bicycle => 1.1,
        Class::Car | Class::Person | Class::StopSign => 1.4,
        Class::TrafficLight => 1.7,
        Class::Truck | Class::Bus => 3.0,
    };
    let clear_y = scene.view.horizon_y + 15.0 / (height_m * model.size) * scene.view.camera_m;
    let (from, to) = match model.class.is_vehicle() {
        true => (place.road_y.0 + 14.0, place.road_y.1 + 2.0),
        false => (place.ground_y + 6.0, CANVAS_HEIGHT - 3.0),
    };
    let from = from.max(clear_y).min(to - 4.0);
    SceneObject {
        x: rng.random_range(-10.0..CANVAS_WIDTH + 10.0),
        foot_y: rng.random_range(from..to),
        ..model
    }
}

/// Not too large for the picture and at least half of it inside.
fn fits(extents: Rect) -> bool {
    let canvas = Rect::from_ltrb(0.0, 0.0, CANVAS_WIDTH, CANVAS_HEIGHT);
    let inside = canvas.and_then(|canvas| canvas.intersect(&extents));
    let share = inside.map_or(0.0, |inside| area(inside) / area(extents));
    share > 0.5 && extents.width() < 0.85 * CANVAS_WIDTH && extents.height() < 0.95 * CANVAS_HEIGHT
}

/// Share of the farther one of two things (foot, extents) that the box of the nearer one covers.
fn covered(a: &(f32, Rect), b: &(f32, Rect)) -> f32 {
    let far = if a.0 < b.0 { a.1 } else { b.1 };
    let shared = a.1.intersect(&b.1);
    shared.map_or(0.0, |shared| area(shared) / area(far))
}
