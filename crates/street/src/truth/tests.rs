use super::*;
use crate::{
    draw, random,
    scene::{Backdrop, Facing, Lens, ObjectIdentity, SceneObject, View},
    testing::{night_street, outlines, seen},
};
use spotter_core::rings_area;

/// An empty square under a grey sky, which makes weak shadows, seen by a perfect camera.
fn empty_square() -> Scene {
    Scene {
        view: View {
            horizon_y: 100.0,
            camera_m: 3.2,
        },
        backdrop: Backdrop {
            layout: SceneLayout::Square,
            ground_y: 130.0,
            road_y: (150.0, 300.0),
            seed: 3,
        },
        darkness: 0.0,
        weather: Weather::Overcast,
        weather_strength: 1.0,
        lens: Lens {
            brightness: 0.0,
            contrast: 1.0,
            grain: 0.0,
            soft: false,
            vignette: 0.0,
            seed: 0,
        },
        props: Vec::new(),
        objects: Vec::new(),
    }
}

fn object(class: Class, x: f32, foot_y: f32) -> SceneObject {
    SceneObject {
        identity: ObjectIdentity::Anonymous,
        class,
        colour: class.is_coloured().then_some(Colour::Purple),
        x,
        foot_y,
        lift_m: 0.0,
        size: 1.0,
        facing: Facing::Right,
        variant: 0,
        phase: 0.1,
        look: 5,
    }
}

fn with(objects: Vec<SceneObject>) -> Scene {
    Scene {
        objects,
        ..empty_square()
    }
}

fn only(truth: &Truth) -> &SeenObject {
    assert_eq!(truth.seen.len(), 1, "{truth:?}");
    &truth.seen[0]
}

/// Extents of the pixels that differ by more than a shadow, as x0, y0, x1, y1 in pixels of a 640 x 360 picture.
fn changed(before: &[u8], after: &[u8]) -> [f64; 4] {
    let mut extents = [f64::MAX, f64::MAX, f64::MIN, f64::MIN];
    let pixels = before.chunks_exact(3).zip(after.chunks_exact(3));
    for (i, (a, b)) in pixels.enumerate() {
        if a.iter().zip(b).any(|(a, b)| a.abs_diff(*b) > 48) {
            let (x, y) = ((i % 640) as f64, (i / 640) as f64);
            extents = [
                extents[0].min(x),
                extents[1].min(y),
                extents[2].max(x + 1.0),
                extents[3].max(y + 1.0),
            ];
        }
    }
    extents
}

#[test]
fn boxes_are_the_extents_of_the_drawn_pixels() {
    let before = draw(&empty_square(), 640, 360);
    for &class in Class::ALL {
        for variant in 0..class.variants() {
            for facing in [Facing::Left, Facing::Right] {
                let scene = with(vec![SceneObject {
                    variant,
                    facing,
                    ..object(class, 320.0, 300.0)
                }]);
                let b = only(&truth(&scene)).box_in_frame;
                let expected = [b.x0 * 640.0, b.y0 * 360.0, b.x1 * 640.0, b.y1 * 360.0];
                let found = changed(&before, &draw(&scene, 640, 360));
                for side in 0..4 {
                    // The pole of a sign reaches below its box.
                    let pole = side == 3 && class.is_sign() && found[side] > expected[side];
                    assert!(
                        pole || (expected[side] - found[side]).abs() <= 4.0,
                        "{class:?} variant {variant} {facing:?}: box {expected:?}, pixels {found:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_nearer_thing_covers_a_farther_one() {
    let visible = |bus_x| {
        let car = object(Class::Car, 300.0, 250.0);
        let truth = truth(&with(vec![car, object(Class::Bus, bus_x, 290.0)]));
        let mut cars = truth.seen.iter().filter(|seen| seen.class == Class::Car);
        cars.next().map(|seen| seen.visible)
    };
    assert_eq!(visible(300.0), None, "wholly covered things do not exist");
    // The bus reaches 4.4 m back at 59.4 units a metre, so that it ends at the middle of the car.
    let half = visible(300.0 + 4.4 * 59.4).expect("half of the car is free");
    assert!((0.35..0.65).contains(&half), "{half}");
    assert_eq!(visible(900.0), Some(1.0));
}

#[test]
fn leaving_or_tiny_things_are_ignored_and_then_absent() {
    let visibility = |x| {
        let truth = truth(&with(vec![object(Class::Bus, x, 300.0)]));
        truth.seen.first().map(|seen| seen.visibility)
    };
    assert_eq!(visibility(320.0), Some(Visibility::Present));
    assert_eq!(visibility(-150.0), Some(Visibility::Ignored));
    assert_eq!(visibility(-300.0), None);
    let ball = SceneObject {
        size: 0.3,
        ..object(Class::Ball, 320.0, 200.0)
    };
    let tiny = truth(&with(vec![ball]));
    assert_eq!(only(&tiny).visibility, Visibility::Ignored);
}

#[test]
fn things_are_those_of_the_class_and_colour() {
    let red = seen(Class::Car, Some(Colour::Red), Visibility::Present);
    let blue = seen(Class::Car, Some(Colour::Blue), Visibility::Ignored);
    let truth = night_street(vec![red, blue]);
    let ignored = |class, colour| -> Vec<bool> {
        let things = truth.things(class, colour);
        things.iter().map(|thing| thing.ignored).collect()
    };
    assert_eq!(ignored(Class::Car, None), [false, true]);
    assert_eq!(ignored(Class::Car, Some(Colour::Red)), [false]);
    assert_eq!(ignored(Class::Car, Some(Colour::Blue)), [true]);
    assert!(ignored(Class::Dog, None).is_empty());
    assert_eq!(truth.things(Class::Car, None)[0].bounds, red.box_in_frame);
}

/// By object of the scene, the pixels of the canvas that show it.
fn uncovered_pixels(scene: &Scene) -> Vec<usize> {
    let mut mask = Pixmap::new(CANVAS_WIDTH as u32, CANVAS_HEIGHT as u32).unwrap();
    for item in items(scene) {
        stamp(&mut mask, &item, item.object.map_or(0, |i| i as u8 + 1));
    }
    let whole = Rect::from_ltrb(0.0, 0.0, CANVAS_WIDTH, CANVAS_HEIGHT).unwrap();
    let objects = 1..=scene.objects.len();
    objects
        .map(|mark| count(&mask, mark as u8, whole))
        .collect()
}

#[test]
fn true_outlines_have_the_area_of_the_painted_silhouettes() {
    let pixels = f64::from(CANVAS_WIDTH * CANVAS_HEIGHT);
    let (mut all_drawn, mut all_painted) = (0.0, 0.0);
    for seed in 0..60 {
        let scene = random(seed);
        let painted = uncovered_pixels(&scene);
        for outline in outlines(&scene) {
            let drawn = rings_area(&outline.rings) * pixels;
            let painted = painted[outline.object] as f64;
            // The edge of a small silhouette is a large part of its pixels.
            if painted >= 2000.0 {
                let error = drawn / painted - 1.0;
                assert!(error.abs() < 0.03, "{seed}: {:?} {error}", outline.class);
                (all_drawn, all_painted) = (all_drawn + drawn, all_painted + painted);
            }
        }
    }
    assert!(all_painted > 0.0 && (all_drawn / all_painted - 1.0).abs() < 1e-3);
}
