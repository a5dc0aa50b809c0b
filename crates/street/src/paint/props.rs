//! Scenery on the ground that is none of the classes.

use super::{
    figure::{Figure, trapezoid},
    shade::{Rgb, pick, tone},
};
use crate::scene::{Prop, PropKind};

pub(super) fn prop(figure: &mut Figure, prop: &Prop) {
    match prop.kind {
        PropKind::Tree => tree(figure, prop),
        PropKind::Fir => fir(figure, prop),
        PropKind::Bush => bush(figure, prop),
        PropKind::Bench => bench(figure),
        PropKind::Bin => bin(figure, prop),
        PropKind::Lamp => lamp(figure),
        PropKind::Sign => sign(figure, prop),
        PropKind::Fence => fence(figure, prop),
        PropKind::Hydrant => hydrant(figure, prop),
        PropKind::Cone => cone(figure),
        PropKind::Puddle => {
            figure.haze_ellipse((0.0, 0.0), (1.1, 0.14), [150, 172, 196], 150);
            figure.haze_ellipse((0.2, 0.02), (0.7, 0.07), [196, 210, 224], 120);
        }
    }
}

fn tree(figure: &mut Figure, prop: &Prop) {
    const LEAVES: [Rgb; 4] = [[64, 116, 52], [84, 128, 56], [52, 98, 58], [150, 116, 48]];
    let leaf = pick(prop.look, 1, LEAVES);
    figure.shadow(1.3, 0.14);
    figure.poly(&trapezoid((0.2, 0.0), (0.12, 2.0)), [92, 66, 44]);
    for (x, y, r, factor) in [
        (-0.7, 2.4, 0.9, 0.86),
        (0.7, 2.5, 0.85, 0.92),
        (0.0, 3.1, 1.1, 1.0),
        (0.3, 3.4, 0.6, 1.1),
    ] {
        figure.ellipse((x, y), (r, r * 0.85), tone(leaf, factor));
    }
}

fn fir(figure: &mut Figure, prop: &Prop) {
    let leaf = pick(prop.look, 1, [[36, 84, 56], [44, 92, 52], [30, 72, 58]]);
    figure.shadow(1.0, 0.12);
    figure.rect((-0.14, 0.0), (0.14, 0.7), [84, 60, 42]);
    for (low, high, half, factor) in [
        (0.5, 2.2, 1.15, 0.88),
        (1.4, 3.1, 0.9, 1.0),
        (2.3, 4.0, 0.62, 1.12),
    ] {
        let boughs = [(-half, low), (half, low), (0.0, high)];
        figure.poly(&boughs, tone(leaf, factor));
    }
}

fn bush(figure: &mut Figure, prop: &Prop) {
    let leaf = pick(prop.look, 1, [[70, 122, 58], [58, 104, 50], [94, 132, 66]]);
    figure.shadow(0.9, 0.1);
    for (x, y, r, factor) in [
        (-0.45, 0.35, 0.42, 0.88),
        (0.45, 0.38, 0.45, 0.94),
        (0.0, 0.5, 0.5, 1.04),
    ] {
        figure.ellipse((x, y), (r, r * 0.85), tone(leaf, factor));
    }
}

fn bench(figure: &mut Figure) {
    figure.shadow(0.9, 0.08);
    for x in [-0.65, 0.65] {
        figure.rect((x - 0.05, 0.0), (x + 0.05, 0.85), [60, 60, 64]);
    }
    for y in [0.42, 0.62, 0.78] {
        figure.rect((-0.85, y), (0.85, y + 0.1), [134, 94, 58]);
    }
}

fn bin(figure: &mut Figure, prop: &Prop) {
    let colour = pick(prop.look, 1, [[70, 84, 74], [88, 90, 96], [96, 78, 60]]);
    figure.shadow(0.36, 0.07);
    figure.smooth(&trapezoid((0.24, 0.0), (0.3, 0.85)), 0.04, colour);
    figure.panel((-0.34, 0.83), (0.34, 0.95), 0.05, tone(colour, 0.7));
    for x in [-0.12, 0.0, 0.12] {
        figure.line(&[(x, 0.1), (x, 0.75)], 0.03, tone(colour, 0.8));
    }
}

fn lamp(figure: &mut Figure) {
    figure.shadow(0.3, 0.06);
    figure.rect((-0.06, 0.0), (0.06, 4.2), [70, 74, 80]);
    figure.line(&[(0.0, 4.15), (0.5, 4.3)], 0.09, [70, 74, 80]);
    figure.glow((0.0, 0.05), (2.4, 0.45), [255, 214, 140]);
    figure.glow((0.6, 4.2), (1.5, 1.5), [255, 222, 150]);
    figure.lamp((0.6, 4.22), (0.3, 0.12), [255, 240, 200]);
}

fn sign(figure: &mut Figure, prop: &Prop) {
    figure.shadow(0.25, 0.05);
    figure.rect((-0.04, 0.0), (0.04, 2.1), [140, 142, 146]);
    match prop.look % 4 {
        0 => {
            figure.ellipse((0.0, 2.4), (0.4, 0.4), [36, 84, 180]);
            figure.line(&[(0.0, 2.18), (0.0, 2.6)], 0.09, [244, 244, 242]);
        }
        1 => {
            figure.smooth(&[(-0.5, 2.0), (0.5, 2.0), (0.0, 2.86)], 0.06, [206, 32, 38]);
            figure.poly(&[(-0.33, 2.1), (0.33, 2.1), (0.0, 2.66)], [246, 244, 240]);
        }
        2 => {
            figure.ellipse((0.0, 2.4), (0.42, 0.42), [206, 32, 38]);
            figure.ellipse((0.0, 2.4), (0.3, 0.3), [246, 244, 240]);
        }
        _ => {
            figure.panel((-0.4, 2.05), (0.4, 2.85), 0.06, [30, 92, 176]);
            let letter = [
                (-0.12, 2.2),
                (-0.12, 2.7),
                (0.14, 2.66),
                (0.14, 2.46),
                (-0.1, 2.44),
            ];
            figure.line(&letter, 0.08, [244, 244, 242]);
        }
    }
}

fn fence(figure: &mut Figure, prop: &Prop) {
    const COLOURS: [Rgb; 3] = [[146, 112, 76], [206, 202, 192], [96, 98, 102]];
    let colour = pick(prop.look, 1, COLOURS);
    for y in [0.35, 0.75] {
        figure.rect((-2.4, y), (2.4, y + 0.1), tone(colour, 0.85));
    }
    for i in 0..9 {
        let x = -2.4 + 0.6 * i as f32;
        let (left, right) = (x - 0.09, x + 0.09);
        let slat = [
            (left, 0.0),
            (right, 0.0),
            (right, 0.95),
            (x, 1.08),
            (left, 0.95),
        ];
        figure.poly(&slat, colour);
    }
}

fn hydrant(figure: &mut Figure, prop: &Prop) {
    let colour = pick(prop.look, 1, [[190, 56, 44], [200, 168, 60]]);
    figure.shadow(0.3, 0.05);
    figure.rect((-0.2, 0.0), (0.2, 0.1), tone(colour, 0.7));
    figure.panel((-0.14, 0.05), (0.14, 0.65), 0.05, colour);
    figure.rect((-0.26, 0.38), (0.26, 0.52), tone(colour, 0.8));
    figure.ellipse((0.0, 0.66), (0.17, 0.13), colour);
}

fn cone(figure: &mut Figure) {
    figure.shadow(0.3, 0.05);
    figure.rect((-0.28, 0.0), (0.28, 0.07), [200, 86, 30]);
    figure.poly(&trapezoid((0.2, 0.05), (0.04, 0.72)), [236, 104, 34]);
    figure.poly(&trapezoid((0.14, 0.28), (0.09, 0.46)), [244, 242, 238]);
}
