//! Dogs, cats and birds.

use std::f32::consts::TAU;

use super::{
    figure::{Figure, FigurePoint, trapezoid},
    shade::{Rgb, accent, paint_of, pick, tone},
};
use crate::scene::SceneObject;

/// Four legs from the hips at the back and at the front, which move in pairs, with a factor of their colour.
fn legs(hips: [FigurePoint; 2], swing: f32, width: f32) -> [([FigurePoint; 3], f32); 4] {
    let leg = |hip: FigurePoint, side: f32, factor: f32| {
        let knee = (hip.0 + swing * side * 0.6 - 0.02, hip.1 * 0.5);
        let foot = (hip.0 + swing * side, width / 2.0);
        ([hip, knee, foot], factor)
    };
    let [back, front] = hips;
    [
        leg(back, -1.0, 0.75),
        leg(front, 1.0, 0.75),
        leg(back, 1.0, 1.0),
        leg(front, -1.0, 1.0),
    ]
}

pub(super) fn dog(figure: &mut Figure, object: &SceneObject) {
    let fur = pick(
        object.look,
        1,
        [
            [142, 92, 48],
            [196, 152, 92],
            [64, 50, 44],
            [224, 208, 180],
            [110, 80, 60],
        ],
    );
    let dark = tone(fur, 0.68);
    let swing = (object.phase * TAU).sin();
    figure.shadow(0.6, 0.08);
    match object.variant {
        0 => {
            figure.line(&[(-0.48, 0.66), (-0.62, 0.8), (-0.66, 0.96)], 0.1, fur);
            for (leg, factor) in legs([(-0.38, 0.5), (0.34, 0.5)], swing * 0.2, 0.12) {
                figure.line(&leg, 0.12, tone(fur, factor));
            }
            let body = [(-0.54, 0.44), (0.5, 0.42), (0.56, 0.78), (-0.5, 0.76)];
            figure.smooth(&body, 0.2, fur);
            figure.line(&[(0.42, 0.66), (0.58, 0.88)], 0.24, fur);
            dog_head(figure, (0.66, 0.94), fur, dark);
        }
        1 => {
            // sitting
            figure.line(&[(-0.3, 0.1), (-0.52, 0.12), (-0.64, 0.28)], 0.09, fur);
            figure.ellipse((-0.16, 0.26), (0.3, 0.26), fur);
            let body = [(-0.42, 0.2), (0.2, 0.1), (0.32, 0.86), (0.06, 0.9)];
            figure.smooth(&body, 0.18, fur);
            figure.line(&[(0.2, 0.6), (0.22, 0.07)], 0.13, fur);
            figure.ellipse((-0.06, 0.07), (0.22, 0.07), dark);
            dog_head(figure, (0.3, 0.98), fur, dark);
        }
        _ => {
            // long and low
            figure.line(&[(-0.68, 0.46), (-0.9, 0.62)], 0.08, fur);
            for (leg, factor) in legs([(-0.5, 0.3), (0.44, 0.3)], swing * 0.12, 0.13) {
                figure.line(&leg, 0.13, tone(fur, factor));
            }
            let body = [(-0.74, 0.24), (0.66, 0.24), (0.68, 0.56), (-0.72, 0.54)];
            figure.smooth(&body, 0.2, fur);
            figure.line(&[(0.58, 0.46), (0.7, 0.62)], 0.22, fur);
            dog_head(figure, (0.76, 0.68), fur, dark);
        }
    }
}

fn dog_head(figure: &mut Figure, middle: FigurePoint, fur: Rgb, dark: Rgb) {
    let at = |x: f32, y: f32| (middle.0 + x, middle.1 + y);
    figure.ellipse(middle, (0.18, 0.16), fur);
    figure.panel(at(0.05, -0.13), at(0.36, 0.04), 0.07, tone(fur, 1.12));
    figure.ellipse(at(0.35, 0.0), (0.045, 0.045), [22, 18, 18]);
    let ear = [
        at(-0.16, 0.14),
        at(0.02, 0.12),
        at(-0.04, -0.2),
        at(-0.2, -0.16),
    ];
    figure.smooth(&ear, 0.07, dark);
    figure.ellipse(at(0.08, 0.06), (0.03, 0.03), [18, 16, 16]);
}

pub(super) fn cat(figure: &mut Figure, object: &SceneObject) {
    let fur = pick(
        object.look,
        1,
        [
            [222, 132, 56],
            [124, 124, 130],
            [44, 42, 46],
            [236, 228, 216],
            [168, 132, 96],
        ],
    );
    let stripe = tone(fur, 0.72);
    figure.shadow(0.42, 0.07);
    match object.variant {
        0 => {
            // walking, tail up
            let swing = (object.phase * TAU).sin() * 0.12;
            let tail = [(-0.38, 0.42), (-0.52, 0.56), (-0.5, 0.8), (-0.42, 0.92)];
            figure.line(&tail, 0.08, fur);
            for (leg, factor) in legs([(-0.3, 0.34), (0.26, 0.34)], swing, 0.09) {
                figure.line(&leg, 0.09, tone(fur, factor));
            }
            let body = [(-0.44, 0.28), (0.36, 0.28), (0.38, 0.52), (-0.42, 0.52)];
            figure.smooth(&body, 0.14, fur);
            for x in [-0.24, -0.08, 0.08] {
                figure.line(&[(x, 0.5), (x + 0.03, 0.38)], 0.05, stripe);
            }
            cat_head(figure, (0.46, 0.6), fur, stripe);
        }
        1 => {
            // sitting, seen from the front, tail round the side
            let tail = [(0.18, 0.08), (0.38, 0.08), (0.44, 0.2), (0.38, 0.34)];
            figure.line(&tail, 0.08, stripe);
            figure.smooth(&trapezoid((0.3, 0.0), (0.16, 0.62)), 0.2, fur);
            figure.ellipse((0.0, 0.36), (0.11, 0.18), tone(fur, 1.3));
            for x in [-0.09, 0.09] {
                figure.line(&[(x, 0.34), (x, 0.06)], 0.1, fur);
            }
            cat_head(figure, (0.0, 0.7), fur, stripe);
        }
        _ => {
            // lying like a loaf
            figure.line(&[(-0.4, 0.1), (-0.58, 0.08), (-0.62, 0.2)], 0.08, stripe);
            let body = [(-0.5, 0.0), (0.46, 0.0), (0.4, 0.4), (-0.4, 0.42)];
            figure.smooth(&body, 0.2, fur);
            for x in [-0.26, -0.1, 0.06] {
                figure.line(&[(x, 0.38), (x - 0.02, 0.22)], 0.05, stripe);
            }
            cat_head(figure, (0.36, 0.46), fur, stripe);
        }
    }
}

fn cat_head(figure: &mut Figure, middle: FigurePoint, fur: Rgb, stripe: Rgb) {
    let at = |x: f32, y: f32| (middle.0 + x, middle.1 + y);
    for side in [-1.0, 1.0] {
        let ear = [
            at(0.04 * side, 0.1),
            at(0.2 * side, 0.06),
            at(0.17 * side, 0.3),
        ];
        figure.poly(&ear, stripe);
    }
    figure.ellipse(middle, (0.21, 0.17), fur);
    for side in [-1.0, 1.0] {
        let eye = at(0.08 * side, 0.03);
        figure.ellipse(eye, (0.035, 0.045), [206, 220, 96]);
        figure.ellipse(eye, (0.014, 0.04), [14, 14, 14]);
        let whisker = [at(0.06 * side, -0.06), at(0.24 * side, -0.04)];
        figure.line(&whisker, 0.012, [230, 230, 226]);
    }
    figure.ellipse(at(0.0, -0.05), (0.03, 0.022), [226, 128, 130]);
}

const BEAK: Rgb = [236, 160, 40];

pub(super) fn bird(figure: &mut Figure, object: &SceneObject) {
    let colour = paint_of(object);
    let wing = accent(colour, 1.2, 0.74);
    match object.variant {
        0 => flying(figure, (object.phase * TAU).sin(), colour, wing),
        1 => {
            figure.shadow(0.26, 0.05);
            for x in [-0.02, 0.08] {
                let leg = [(x, 0.18), (x, 0.02), (x + 0.07, 0.02)];
                figure.line(&leg, 0.035, [200, 130, 50]);
            }
            let tail = [(-0.26, 0.4), (-0.56, 0.36), (-0.54, 0.24), (-0.2, 0.24)];
            figure.poly(&tail, wing);
            figure.ellipse((0.0, 0.34), (0.31, 0.2), colour);
            let folded = [(-0.3, 0.28), (0.08, 0.26), (0.12, 0.44), (-0.1, 0.46)];
            figure.smooth(&folded, 0.1, wing);
            bird_head(figure, (0.25, 0.56), colour);
        }
        _ => {
            // seen from behind and above, wings spread in a glide
            for side in [-1.0, 1.0] {
                let spread = [
                    (0.0, 0.16),
                    (0.4, 0.38),
                    (0.86, 0.22),
                    (0.4, 0.2),
                    (0.06, 0.0),
                ];
                figure.smooth(&spread.map(|(x, y)| (x * side, y)), 0.1, wing);
            }
            let tail = [(-0.05, 0.02), (0.05, 0.02), (0.12, -0.22), (-0.12, -0.22)];
            figure.poly(&tail, wing);
            figure.ellipse((0.0, 0.08), (0.12, 0.2), colour);
            figure.ellipse((0.0, 0.28), (0.09, 0.09), colour);
            figure.poly(&[(-0.04, 0.34), (0.04, 0.34), (0.0, 0.45)], BEAK);
        }
    }
}

fn flying(figure: &mut Figure, beat: f32, colour: Rgb, wing: Rgb) {
    let tip = 0.62 * beat;
    let far = [
        (0.16, 0.04),
        (-0.1, 0.04),
        (-0.3, tip * 0.9 + 0.04),
        (-0.12, tip + 0.06),
    ];
    figure.smooth(&far, 0.05, tone(wing, 0.8));
    let tail = [
        (-0.24, 0.06),
        (-0.58, 0.16),
        (-0.6, 0.0),
        (-0.56, -0.08),
        (-0.24, -0.06),
    ];
    figure.poly(&tail, wing);
    figure.ellipse((0.0, 0.0), (0.34, 0.14), colour);
    bird_head(figure, (0.34, 0.1), colour);
    let near = [
        (0.2, 0.04),
        (-0.18, 0.02),
        (-0.34, tip),
        (-0.1, tip + 0.1 * beat),
    ];
    figure.smooth(&near, 0.05, wing);
}

fn bird_head(figure: &mut Figure, middle: FigurePoint, colour: Rgb) {
    let at = |x: f32, y: f32| (middle.0 + x, middle.1 + y);
    figure.poly(&[at(0.08, 0.06), at(0.3, -0.02), at(0.08, -0.06)], BEAK);
    figure.ellipse(middle, (0.14, 0.13), colour);
    figure.ellipse(at(0.05, 0.03), (0.03, 0.03), [240, 240, 236]);
    figure.ellipse(at(0.055, 0.03), (0.016, 0.016), [14, 14, 14]);
}
