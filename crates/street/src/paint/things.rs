//! Bicycles, balls, parcels, traffic lights and stop signs.

use std::f32::consts::TAU;

use super::{
    figure::{Figure, FigurePoint, ShapePart},
    shade::{Rgb, accent, paint_of, pick, tone},
};
use crate::scene::SceneObject;

pub(super) fn bicycle(figure: &mut Figure, object: &SceneObject) {
    let colour = paint_of(object);
    let (back, front): (FigurePoint, FigurePoint) = ((-0.55, 0.36), (0.57, 0.36));
    figure.shadow(0.95, 0.07);
    for hub in [back, front] {
        figure.ring(hub, 0.33, 0.065, [30, 30, 32]);
        for turn in [0.0_f32, 1.05, 2.1] {
            let (sin, cos) = (turn + object.phase * TAU).sin_cos();
            let (dx, dy) = (0.32 * cos, 0.32 * sin);
            let spoke = [(hub.0 - dx, hub.1 - dy), (hub.0 + dx, hub.1 + dy)];
            figure.line(&spoke, 0.014, [150, 150, 154]);
        }
    }
    let (crank, seat, head): (FigurePoint, FigurePoint, FigurePoint) =
        ((-0.06, 0.34), (-0.22, 0.84), (0.4, 0.86));
    figure.line(&[back, crank, seat, back], 0.06, colour);
    match object.variant {
        0 => figure.line(&[seat, head, crank], 0.08, colour),
        // a step-through frame
        1 => figure.line(&[crank, (0.12, 0.42), head], 0.1, colour),
        // a frame with two parallel tubes
        _ => {
            figure.line(&[seat, head, crank], 0.07, colour);
            figure.line(&[(-0.18, 0.7), (0.42, 0.72)], 0.07, colour);
        }
    }
    figure.line(&[front, head, (0.37, 1.02)], 0.08, colour);
    figure.line(&[(0.37, 1.02), (0.5, 1.06)], 0.06, [40, 40, 42]);
    figure.line(&[seat, (-0.23, 0.94)], 0.05, [120, 120, 124]);
    figure.panel((-0.36, 0.92), (-0.08, 1.0), 0.04, [40, 34, 32]);
    figure.ellipse(crank, (0.09, 0.09), [64, 64, 68]);
    if object.variant == 1 {
        figure.panel((0.44, 0.78), (0.76, 1.0), 0.03, [150, 112, 70]);
    }
}

pub(super) fn ball(figure: &mut Figure, object: &SceneObject) {
    const R: f32 = 0.3;
    let colour = paint_of(object);
    let mark = accent(colour, 1.3, 0.66);
    if object.lift_m < 0.05 {
        figure.shadow(0.32, 0.07);
    }
    figure.ellipse((0.0, R), (R, R), colour);
    let (sin, cos) = (object.phase * TAU).sin_cos();
    match object.variant {
        0 => {
            let stripe = [(-0.26 * cos, R - 0.26 * sin), (0.26 * cos, R + 0.26 * sin)];
            figure.line(&stripe, 0.07, mark);
        }
        1 => {
            for i in 0..4 {
                let (sin, cos) = (object.phase * TAU + i as f32 * TAU / 4.0).sin_cos();
                figure.ellipse((0.17 * cos, R + 0.17 * sin), (0.06, 0.06), mark);
            }
        }
        _ => {
            figure.ring((0.0, R), R * 0.5, 0.04, mark);
            let seam = [(-0.28 * sin, R + 0.28 * cos), (0.28 * sin, R - 0.28 * cos)];
            figure.line(&seam, 0.035, mark);
        }
    }
    figure.ellipse((-0.1, R + 0.13), (0.06, 0.045), tone(colour, 1.55));
}

pub(super) fn parcel(figure: &mut Figure, object: &SceneObject) {
    const CARDS: [Rgb; 3] = [[196, 150, 96], [178, 132, 82], [208, 168, 116]];
    const TAPES: [Rgb; 3] = [[232, 214, 170], [150, 110, 66], [222, 196, 140]];
    let (card, tape) = (pick(object.look, 1, CARDS), pick(object.look, 2, TAPES));
    let (half, high, deep) = match object.variant {
        0 => (0.36, 0.5, 0.16),
        1 => (0.5, 0.34, 0.2),
        _ => (0.3, 0.72, 0.13),
    };
    figure.shadow(half + 0.14, 0.07);
    let back = deep * 1.2;
    // The upper side of a strip of the front, as wide as `half` to both sides.
    let upper = |half: f32| {
        let far = high + deep;
        [
            (-half, high),
            (half, high),
            (half + back, far),
            (-half + back, far),
        ]
    };
    figure.poly(&upper(half), tone(card, 1.18));
    let [_, near, far, _] = upper(half);
    let side = [(half, 0.0), (half + back, deep), far, near];
    figure.poly(&side, tone(card, 0.7));
    figure.rect((-half, 0.0), (half, high), card);
    figure.rect((-0.055, 0.0), (0.055, high), tape);
    figure.poly(&upper(0.055), tape);
    // a label with two lines
    let label = (-half + 0.05, high * 0.3);
    figure.rect(label, (-0.1, high * 0.62), [240, 238, 230]);
    for (low, right, top) in [(0.4, -0.15, 0.45), (0.5, -0.2, 0.54)] {
        let left = (-half + 0.09, high * low);
        figure.rect(left, (right, high * top), [70, 70, 74]);
    }
}

pub(super) fn traffic_light(figure: &mut Figure, object: &SceneObject) {
    const LIT: [Rgb; 3] = [[255, 58, 46], [255, 190, 40], [60, 236, 110]];
    const UNLIT: [Rgb; 3] = [[82, 26, 24], [84, 62, 20], [18, 66, 34]];
    let casing = pick(object.look, 1, [[34, 36, 38], [40, 44, 40], [54, 52, 34]]);
    let lit = match object.phase {
        p if p < 0.45 => 2,
        p if p < 0.55 => 1,
        _ => 0,
    };
    figure.part(ShapePart::Fixture).shadow(0.3, 0.06);
    figure.rect((-0.06, 0.0), (0.06, 2.2), [92, 94, 98]);
    figure.part(ShapePart::Body);
    let across = object.variant == 1;
    let middle = 2.6;
    let half = if across { (0.76, 0.28) } else { (0.28, 0.76) };
    let (low, high) = ((-half.0, middle - half.1), (half.0, middle + half.1));
    figure.panel(low, high, 0.1, casing);
    let lamp = |i: usize| {
        let offset = (1.0 - i as f32) * 0.46;
        if across {
            (-offset, middle)
        } else {
            (0.0, middle + offset)
        }
    };
    for i in 0..3 {
        if i == lit {
            figure.lamp(lamp(i), (0.185, 0.185), LIT[i]);
        } else {
            figure.ellipse(lamp(i), (0.185, 0.185), UNLIT[i]);
        }
    }
    figure.glow(lamp(lit), (0.6, 0.6), LIT[lit]);
}

pub(super) fn stop_sign(figure: &mut Figure, object: &SceneObject) {
    // Seen straight on, or turned a little to either side.
    let narrow = [1.0, 0.86, 0.72][usize::from(object.variant % 3)];
    let centre = 2.3;
    figure.part(ShapePart::Fixture).shadow(0.28, 0.06);
    figure.rect((-0.05, 0.0), (0.05, 1.95), [136, 138, 142]);
    figure.part(ShapePart::Body);
    let octagon = |radius: f32| -> [FigurePoint; 8] {
        std::array::from_fn(|i| {
            let (sin, cos) = ((i as f32 + 0.5) * TAU / 8.0).sin_cos();
            (radius * cos * narrow, centre + radius * sin)
        })
    };
    figure.poly(&octagon(0.56), [244, 242, 240]);
    figure.poly(&octagon(0.49), [204, 22, 30]);
    letters(figure, centre, narrow);
}

/// STOP, in strokes.
fn letters(figure: &mut Figure, centre: f32, narrow: f32) {
    const S: &[FigurePoint] = &[
        (1.0, 0.9),
        (0.1, 1.0),
        (0.0, 0.6),
        (1.0, 0.4),
        (0.9, 0.0),
        (0.0, 0.1),
    ];
    const T: &[FigurePoint] = &[(0.0, 1.0), (1.0, 1.0)];
    const T_STEM: &[FigurePoint] = &[(0.5, 1.0), (0.5, 0.0)];
    const O: &[FigurePoint] = &[(0.1, 0.1), (0.1, 0.9), (0.9, 0.9), (0.9, 0.1), (0.1, 0.1)];
    const P: &[FigurePoint] = &[
        (0.1, 0.0),
        (0.1, 1.0),
        (0.95, 0.95),
        (0.95, 0.5),
        (0.1, 0.45),
    ];
    // width and height of a letter, and from one to the next, metres
    let (wide, high, step) = (0.13, 0.28, 0.2);
    for (i, letter) in [(0, S), (1, T), (1, T_STEM), (2, O), (3, P)] {
        let left = -1.5 * step - wide / 2.0 + i as f32 * step;
        let place =
            |&(x, y): &FigurePoint| ((left + x * wide) * narrow, centre - high / 2.0 + y * high);
        let points: Vec<FigurePoint> = letter.iter().map(place).collect();
        figure.line(&points, 0.05, [248, 246, 244]);
    }
}
