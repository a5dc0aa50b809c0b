//! People: walking (seen from the side), standing (from the front), in a dress or coat, riding a bicycle.

use std::f32::consts::TAU;

use super::{
    figure::{Figure, FigurePoint},
    shade::{Rgb, accent, paint_of, pick, tone},
};
use crate::scene::SceneObject;

struct PersonColours {
    clothes: Rgb,
    sleeve: Rgb,
    trousers: Rgb,
    skin: Rgb,
    hair: Rgb,
}

pub(super) fn person(figure: &mut Figure, object: &SceneObject) {
    const TROUSERS: [Rgb; 4] = [[58, 62, 78], [92, 88, 82], [150, 134, 108], [70, 66, 64]];
    const SKIN: [Rgb; 4] = [
        [240, 200, 170],
        [222, 172, 136],
        [164, 112, 78],
        [106, 70, 50],
    ];
    const HAIR: [Rgb; 5] = [
        [40, 28, 22],
        [92, 58, 34],
        [196, 160, 92],
        [120, 116, 112],
        [24, 22, 24],
    ];
    let clothes = paint_of(object);
    let look = PersonColours {
        clothes,
        sleeve: accent(clothes, 1.10, 0.84),
        trousers: pick(object.look, 1, TROUSERS),
        skin: pick(object.look, 2, SKIN),
        hair: pick(object.look, 3, HAIR),
    };
    match object.variant {
        0 => walking(figure, &look, object.phase),
        1 => standing(figure, &look),
        2 => in_coat(figure, &look, object.phase),
        _ => riding(figure, &look, object.phase),
    }
}

fn walking(figure: &mut Figure, look: &PersonColours, phase: f32) {
    figure.shadow(0.5, 0.09);
    let swing = (phase * TAU).sin();
    let arm = |side: f32| {
        [
            (0.0, 1.38),
            (0.16 * side - 0.04, 1.1),
            (0.3 * side + 0.06, 0.88),
        ]
    };
    limb(figure, &arm(-swing), 0.13, look);
    leg(figure, -swing, tone(look.trousers, 0.8));
    leg(figure, swing, look.trousers);
    figure.panel((-0.2, 0.78), (0.2, 1.48), 0.13, look.clothes);
    limb(figure, &arm(swing), 0.14, look);
    head(figure, 0.03, look, true);
}

fn leg(figure: &mut Figure, swing: f32, colour: Rgb) {
    let (foot_x, lift) = (0.34 * swing, 0.05 * (1.0 - swing.abs()));
    let knee = (0.17 * swing + 0.05, 0.47);
    figure.line(&[(0.0, 0.84), knee, (foot_x, 0.1 + lift)], 0.18, colour);
    figure.ellipse((foot_x + 0.06, 0.06 + lift), (0.14, 0.06), [36, 32, 34]);
}

fn standing(figure: &mut Figure, look: &PersonColours) {
    figure.shadow(0.42, 0.09);
    for side in [-1.0, 1.0] {
        let leg = [(0.1 * side, 0.82), (0.13 * side, 0.1)];
        figure.line(&leg, 0.18, look.trousers);
        figure.ellipse((0.15 * side, 0.05), (0.11, 0.055), [36, 32, 34]);
        let arm = [(0.22 * side, 1.36), (0.31 * side, 1.08), (0.3 * side, 0.82)];
        limb(figure, &arm, 0.13, look);
    }
    figure.panel((-0.25, 0.76), (0.25, 1.48), 0.12, look.clothes);
    head(figure, 0.0, look, false);
}

fn in_coat(figure: &mut Figure, look: &PersonColours, phase: f32) {
    figure.shadow(0.42, 0.09);
    let swing = (phase * TAU).sin() * 0.1;
    for side in [-1.0, 1.0] {
        let x = 0.1 * side + swing * side;
        figure.line(&[(0.1 * side, 0.6), (x, 0.1)], 0.12, look.skin);
        figure.ellipse((x + 0.04, 0.05), (0.11, 0.05), [60, 36, 34]);
        let arm = [(0.18 * side, 1.38), (0.29 * side, 1.1), (0.27 * side, 0.86)];
        limb(figure, &arm, 0.12, look);
    }
    let body = [
        (-0.32, 0.42),
        (0.32, 0.42),
        (0.17, 0.98),
        (0.23, 1.47),
        (-0.23, 1.47),
        (-0.17, 0.98),
    ];
    figure.smooth(&body, 0.1, look.clothes);
    figure.ellipse((-0.02, 1.56), (0.19, 0.2), look.hair);
    head(figure, 0.0, look, false);
}

/// Fits a bicycle (see `things::bicycle`) of the same place, size and facing.
fn riding(figure: &mut Figure, look: &PersonColours, phase: f32) {
    let turn = phase * TAU;
    for (offset, factor) in [(std::f32::consts::PI, 0.8), (0.0, 1.0)] {
        let (sin, cos) = (turn + offset).sin_cos();
        let foot: FigurePoint = (-0.04 + 0.15 * cos, 0.34 + 0.15 * sin);
        let knee: FigurePoint = (0.2 + 0.05 * cos, 0.78 + 0.08 * sin);
        let trousers = tone(look.trousers, factor);
        figure.line(&[(-0.24, 1.0), knee, foot], 0.17, trousers);
        figure.ellipse((foot.0 + 0.06, foot.1 - 0.03), (0.13, 0.06), [36, 32, 34]);
    }
    let back = [
        (-0.42, 0.92),
        (-0.1, 0.88),
        (0.24, 1.42),
        (0.06, 1.6),
        (-0.14, 1.5),
    ];
    figure.smooth(&back, 0.12, look.clothes);
    limb(
        figure,
        &[(0.08, 1.44), (0.24, 1.16), (0.42, 1.08)],
        0.12,
        look,
    );
    figure.ellipse((0.22, 1.7), (0.13, 0.15), look.skin);
    figure.ellipse((0.19, 1.79), (0.16, 0.1), look.hair);
}

fn limb(figure: &mut Figure, points: &[FigurePoint; 3], width: f32, look: &PersonColours) {
    figure.line(points, width, look.sleeve);
    figure.ellipse(points[2], (width * 0.56, width * 0.6), look.skin);
}

fn head(figure: &mut Figure, x: f32, look: &PersonColours, from_side: bool) {
    figure.rect((x - 0.06, 1.42), (x + 0.06, 1.54), tone(look.skin, 0.85));
    figure.ellipse((x, 1.62), (0.125, 0.15), look.skin);
    let back = if from_side { 0.05 } else { 0.0 };
    figure.ellipse((x - back, 1.71), (0.13, 0.085), look.hair);
    if from_side {
        figure.ellipse((x - 0.09, 1.64), (0.055, 0.1), look.hair);
    }
}
