//! Cars, trucks and buses: from the side (most) and from the front (the last variant of each).

use super::{
    figure::{Figure, FigurePoint, trapezoid},
    shade::{Rgb, accent, paint_of, pick, tone},
};
use crate::scene::SceneObject;

const GLASS: Rgb = [66, 84, 104];
const TYRE: Rgb = [26, 26, 28];
const CHASSIS: Rgb = [48, 48, 52];

/// The colour of a vehicle, and a shade of it for details.
#[derive(Clone, Copy)]
struct Paintwork {
    colour: Rgb,
    darker: Rgb,
}

fn paint(object: &SceneObject) -> Paintwork {
    let colour = paint_of(object);
    Paintwork {
        colour,
        darker: accent(colour, 1.14, 0.8),
    }
}

/// Both front wheels, seen from the front: from `inner` to `outer` metres beside the middle.
fn front_wheels(figure: &mut Figure, inner: f32, outer: f32, high: f32) {
    for side in [-1.0_f32, 1.0] {
        let (a, b) = (inner * side, outer * side);
        figure.panel((a.min(b), 0.0), (a.max(b), high), 0.06, TYRE);
    }
}

fn wheel(figure: &mut Figure, x: f32, radius: f32) {
    figure.ellipse((x, radius), (radius, radius), TYRE);
    figure.ellipse((x, radius), (radius * 0.55, radius * 0.55), [168, 170, 176]);
}

/// A front lamp, at night with its light on the road, and a rear lamp.
fn side_lamps(figure: &mut Figure, front_x: f32, back_x: f32, y: f32) {
    figure.lamp((front_x, y), (0.11, 0.1), [255, 246, 206]);
    figure.lamp((back_x, y), (0.08, 0.11), [216, 30, 30]);
    figure.glow((front_x + 0.5, y - 0.1), (1.1, 0.5), [255, 240, 190]);
}

/// Outlines of a car from the side, metres.
struct CarOutline {
    /// From the rear sill on, against the clock: sill, sill, nose, bonnet, tail, tail.
    body: [FigurePoint; 6],
    roof: [FigurePoint; 4],
    /// Rear and front.
    windows: [[FigurePoint; 4]; 2],
    wheel_radius: f32,
}

const SALOON: CarOutline = CarOutline {
    body: [
        (-2.15, 0.3),
        (2.15, 0.3),
        (2.18, 0.72),
        (1.25, 0.92),
        (-2.0, 0.98),
        (-2.18, 0.8),
    ],
    roof: [(-1.6, 0.92), (1.3, 0.88), (0.55, 1.46), (-0.85, 1.46)],
    windows: [
        [(-1.3, 0.97), (-0.22, 0.97), (-0.22, 1.38), (-0.8, 1.38)],
        [(-0.1, 0.97), (1.05, 0.95), (0.5, 1.38), (-0.1, 1.38)],
    ],
    wheel_radius: 0.34,
};

const HATCHBACK: CarOutline = CarOutline {
    body: [
        (-1.85, 0.3),
        (1.9, 0.3),
        (1.95, 0.72),
        (1.15, 0.95),
        (-1.8, 1.05),
        (-1.9, 0.8),
    ],
    roof: [(-1.85, 0.95), (1.2, 0.9), (0.5, 1.5), (-1.6, 1.52)],
    windows: [
        [(-1.62, 1.0), (-0.45, 1.0), (-0.45, 1.42), (-1.5, 1.42)],
        [(-0.33, 1.0), (0.95, 0.98), (0.45, 1.42), (-0.33, 1.42)],
    ],
    wheel_radius: 0.34,
};

const OFF_ROADER: CarOutline = CarOutline {
    body: [
        (-2.1, 0.38),
        (2.1, 0.38),
        (2.15, 0.98),
        (1.2, 1.12),
        (-2.1, 1.15),
        (-2.15, 0.9),
    ],
    roof: [(-2.05, 1.1), (1.15, 1.08), (0.7, 1.75), (-1.9, 1.78)],
    windows: [
        [(-1.85, 1.16), (-0.45, 1.16), (-0.45, 1.66), (-1.75, 1.66)],
        [(-0.32, 1.16), (0.95, 1.16), (0.62, 1.66), (-0.32, 1.66)],
    ],
    wheel_radius: 0.4,
};

pub(super) fn car(figure: &mut Figure, object: &SceneObject) {
    let paint = paint(object);
    match object.variant {
        0 => car_side(figure, &SALOON, paint),
        1 => car_side(figure, &HATCHBACK, paint),
        2 => car_side(figure, &OFF_ROADER, paint),
        _ => car_front(figure, paint),
    }
}

fn car_side(figure: &mut Figure, outline: &CarOutline, paint: Paintwork) {
    let Paintwork { colour, darker } = paint;
    figure.shadow(2.3, 0.2);
    figure.smooth(&outline.roof, 0.22, colour);
    figure.smooth(&outline.body, 0.2, colour);
    for window in &outline.windows {
        figure.smooth(window, 0.08, GLASS);
    }
    let [rear, front, nose, _, tail, _] = outline.body;
    let sill = rear.1;
    figure.rect((rear.0 + 0.1, sill), (front.0 - 0.1, sill + 0.12), darker);
    let door = [(-0.27, sill + 0.15), (-0.27, tail.1 - 0.05)];
    figure.line(&door, 0.03, darker);
    figure.line(&[(-0.62, 0.84), (-0.42, 0.84)], 0.05, darker);
    let lamps_y = (sill + nose.1) / 2.0 + 0.1;
    side_lamps(figure, front.0 - 0.06, rear.0 + 0.02, lamps_y);
    wheel(figure, -1.3, outline.wheel_radius);
    wheel(figure, 1.3, outline.wheel_radius);
}

fn car_front(figure: &mut Figure, paint: Paintwork) {
    let Paintwork { colour, darker } = paint;
    figure.shadow(1.05, 0.16);
    front_wheels(figure, 0.55, 0.85, 0.5);
    figure.smooth(&trapezoid((0.82, 0.85), (0.6, 1.48)), 0.16, colour);
    figure.smooth(&trapezoid((0.68, 0.92), (0.52, 1.38)), 0.08, GLASS);
    figure.panel((-0.92, 0.24), (0.92, 0.95), 0.16, colour);
    figure.panel((-0.45, 0.42), (0.45, 0.62), 0.06, [34, 34, 38]);
    figure.rect((-0.9, 0.26), (0.9, 0.34), darker);
    figure.panel((-0.2, 0.3), (0.2, 0.4), 0.02, [236, 236, 230]);
    for side in [-1.0, 1.0] {
        figure.lamp((0.68 * side, 0.68), (0.17, 0.11), [255, 246, 210]);
        figure.glow((0.68 * side, 0.6), (0.55, 0.4), [255, 240, 190]);
        figure.ellipse((0.96 * side, 0.98), (0.1, 0.07), darker);
    }
}

pub(super) fn truck(figure: &mut Figure, object: &SceneObject) {
    let paint = paint(object);
    let Paintwork { colour, darker } = paint;
    if object.variant == 3 {
        return truck_front(figure, object, paint);
    }
    figure.shadow(3.6, 0.22);
    figure.rect((-3.4, 0.5), (3.2, 0.8), CHASSIS);
    match object.variant {
        0 => {
            figure.panel((-3.5, 0.78), (1.45, 3.15), 0.06, colour);
            figure.rect((-3.5, 0.78), (1.45, 0.92), darker);
            for x in [-2.5, -1.5, -0.5, 0.5] {
                figure.line(&[(x, 1.1), (x, 2.95)], 0.05, darker);
            }
        }
        1 => {
            // a tipper full of sand
            let sand = [(-3.2, 1.7), (1.2, 1.7), (0.4, 2.35), (-1.6, 2.5)];
            figure.smooth(&sand, 0.5, [176, 148, 104]);
            figure.poly(&[(-3.1, 0.8), (1.2, 0.8), (1.4, 2.0), (-3.5, 2.0)], colour);
            figure.rect((-3.5, 1.88), (1.4, 2.02), darker);
            for x in [-2.3, -1.0, 0.3] {
                figure.line(&[(x, 0.9), (x, 1.85)], 0.1, darker);
            }
        }
        _ => {
            // a tanker
            figure.panel((-3.5, 0.85), (1.4, 2.75), 0.8, colour);
            figure.line(&[(-2.9, 2.2), (0.8, 2.2)], 0.12, tone(colour, 1.3));
            for x in [-2.2, -1.0, 0.2] {
                figure.line(&[(x, 0.9), (x, 2.7)], 0.06, darker);
            }
            figure.panel((-1.4, 2.7), (-0.7, 2.9), 0.05, CHASSIS);
        }
    }
    let cab = [
        (1.6, 0.5),
        (3.45, 0.5),
        (3.45, 1.5),
        (3.15, 2.55),
        (1.6, 2.6),
    ];
    figure.smooth(&cab, 0.16, colour);
    let window = [(2.3, 1.5), (3.3, 1.5), (3.05, 2.35), (2.3, 2.35)];
    figure.smooth(&window, 0.08, GLASS);
    figure.line(&[(2.15, 0.7), (2.15, 2.45)], 0.04, darker);
    figure.rect((3.1, 0.4), (3.52, 0.7), CHASSIS);
    side_lamps(figure, 3.4, -3.4, 0.9);
    for x in [-2.6, -1.55, 2.5] {
        wheel(figure, x, 0.5);
    }
}

fn truck_front(figure: &mut Figure, object: &SceneObject, paint: Paintwork) {
    let Paintwork { colour, darker } = paint;
    figure.shadow(1.4, 0.18);
    front_wheels(figure, 0.7, 1.1, 0.6);
    let container = pick(object.look, 7, [darker, colour]);
    figure.panel((-1.3, 0.9), (1.3, 3.2), 0.06, container);
    figure.panel((-1.15, 0.35), (1.15, 2.6), 0.14, colour);
    figure.panel((-1.02, 1.55), (1.02, 2.4), 0.1, GLASS);
    figure.panel((-0.7, 0.75), (0.7, 1.35), 0.06, [40, 40, 44]);
    for y in [0.9, 1.05, 1.2] {
        figure.line(&[(-0.62, y), (0.62, y)], 0.04, [120, 120, 124]);
    }
    figure.rect((-1.15, 0.35), (1.15, 0.6), CHASSIS);
    for side in [-1.0, 1.0] {
        figure.lamp((0.92 * side, 0.78), (0.16, 0.13), [255, 246, 210]);
        figure.glow((0.92 * side, 0.7), (0.6, 0.45), [255, 240, 190]);
        let x = 1.28 * side;
        figure.panel((x - 0.08, 1.5), (x + 0.08, 2.2), 0.04, CHASSIS);
    }
}

pub(super) fn bus(figure: &mut Figure, object: &SceneObject) {
    let paint = paint(object);
    match object.variant {
        0 => bus_side(figure, paint, 4.4, &[1.55]),
        1 => bus_side(figure, paint, 3.9, &[1.3, 2.75]),
        _ => bus_front(figure, paint),
    }
}

/// `decks` are the lower edges of the rows of windows, metres above the ground.
fn bus_side(figure: &mut Figure, paint: Paintwork, half: f32, decks: &[f32]) {
    let Paintwork { colour, darker } = paint;
    figure.shadow(half + 0.1, 0.22);
    let top = decks.iter().fold(0.0_f32, |top, y| top.max(*y)) + 1.45;
    figure.panel((-half, 0.35), (half, top), 0.28, colour);
    figure.rect((-half + 0.05, 0.38), (half - 0.05, 0.62), darker);
    let (first, last) = (-half + 0.3, half - 1.35);
    for &low in decks {
        let n = 6;
        let step = (last - first) / n as f32;
        for i in 0..n {
            let x = first + step * i as f32;
            figure.panel((x + 0.05, low), (x + step - 0.05, low + 0.85), 0.08, GLASS);
        }
        let front = (half - 0.06, low + 0.9);
        figure.panel((half - 1.2, low), front, 0.1, tone(GLASS, 1.12));
    }
    // the door and the line number
    let low = decks.first().copied().unwrap_or(1.5);
    let door = (half - 0.55, low + 0.85);
    figure.panel((half - 1.25, 0.5), door, 0.06, tone(GLASS, 0.75));
    figure.line(&[(half - 0.9, 0.55), (half - 0.9, low + 0.8)], 0.05, colour);
    figure.lamp((half - 1.9, top - 0.3), (0.55, 0.12), [255, 190, 60]);
    side_lamps(figure, half - 0.08, -half + 0.06, 0.8);
    wheel(figure, -half * 0.62, 0.5);
    wheel(figure, half * 0.5, 0.5);
}

fn bus_front(figure: &mut Figure, paint: Paintwork) {
    let Paintwork { colour, darker } = paint;
    figure.shadow(1.4, 0.18);
    front_wheels(figure, 0.75, 1.1, 0.5);
    figure.panel((-1.28, 0.3), (1.28, 3.1), 0.26, colour);
    figure.panel((-1.14, 1.15), (1.14, 2.5), 0.14, GLASS);
    figure.line(&[(0.0, 1.2), (0.0, 2.45)], 0.05, darker);
    figure.panel((-0.85, 2.58), (0.85, 2.92), 0.06, [24, 24, 26]);
    figure.lamp((0.0, 2.75), (0.68, 0.1), [255, 190, 60]);
    figure.rect((-1.2, 0.34), (1.2, 0.52), darker);
    for side in [-1.0, 1.0] {
        figure.lamp((0.95 * side, 0.82), (0.19, 0.13), [255, 246, 210]);
        figure.glow((0.95 * side, 0.75), (0.6, 0.45), [255, 240, 190]);
        figure.ellipse((1.36 * side, 2.1), (0.09, 0.28), CHASSIS);
    }
}
