//! Dogs, cats and birds.

use std::f32::consts::TAU;

use super::{
    figure::Figure,
    shade::{Rgb, paint_of, pick, tone},
};
use crate::scene::SceneObject;

/// Four legs, which move in pairs.
struct Legs {
    back_x: f32,
    front_x: f32,
    hip_y: f32,
    swing: f32,
    width: f32,
    colour: Rgb,
}

fn legs(figure: &mut Figure, legs: Legs) {
    let Legs {
        back_x,
        front_x,
        hip_y,
        swing,
        width,
        colour,
    } = legs;
    for (x, side, factor) in [
        (back_x, -1.0, 0.75),
        (front_x, 1.0, 0.75),
        (back_x, 1.0, 1.0),
        (front_x, -1.0, 1.0),
    ] {
        let foot = x + swing * side;
        figure.line(
            &[
                (x, hip_y),
                (x + swing * side * 0.6 - 0.02, hip_y * 0.5),
                (foot, width / 2.0),
            ],
            width,
            tone(colour, factor),
        );
    }
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
    figure.shadow(0.6, 0.08);
    match object.variant {
        0 => {
            let swing = (object.phase * TAU).sin() * 0.2;
            figure.line(&[(-0.48, 0.66), (-0.62, 0.8), (-0.66, 0.96)], 0.1, fur);
            legs(
                figure,
                Legs {
                    back_x: -0.38,
                    front_x: 0.34,
                    hip_y: 0.5,
                    swing,
                    width: 0.12,
                    colour: fur,
                },
            );
            figure.smooth(
                &[(-0.54, 0.44), (0.5, 0.42), (0.56, 0.78), (-0.5, 0.76)],
                0.2,
                fur,
            );
            figure.line(&[(0.42, 0.66), (0.58, 0.88)], 0.24, fur);
            dog_head(
                figure,
                AnimalHead {
                    x: 0.66,
                    y: 0.94,
                    main: fur,
                    accent: dark,
                },
            );
        }
        1 => {
            // sitting
            figure.line(&[(-0.3, 0.1), (-0.52, 0.12), (-0.64, 0.28)], 0.09, fur);
            figure.ellipse((-0.16, 0.26), (0.3, 0.26), fur);
            figure.smooth(
                &[(-0.42, 0.2), (0.2, 0.1), (0.32, 0.86), (0.06, 0.9)],
                0.18,
                fur,
            );
            figure.line(&[(0.2, 0.6), (0.22, 0.07)], 0.13, fur);
            figure.ellipse((-0.06, 0.07), (0.22, 0.07), dark);
            dog_head(
                figure,
                AnimalHead {
                    x: 0.3,
                    y: 0.98,
                    main: fur,
                    accent: dark,
                },
            );
        }
        _ => {
            // long and low
            let swing = (object.phase * TAU).sin() * 0.12;
            figure.line(&[(-0.68, 0.46), (-0.9, 0.62)], 0.08, fur);
            legs(
                figure,
                Legs {
                    back_x: -0.5,
                    front_x: 0.44,
                    hip_y: 0.3,
                    swing,
                    width: 0.13,
                    colour: fur,
                },
            );
            figure.smooth(
                &[(-0.74, 0.24), (0.66, 0.24), (0.68, 0.56), (-0.72, 0.54)],
                0.2,
                fur,
            );
            figure.line(&[(0.58, 0.46), (0.7, 0.62)], 0.22, fur);
            dog_head(
                figure,
                AnimalHead {
                    x: 0.76,
                    y: 0.68,
                    main: fur,
                    accent: dark,
                },
            );
        }
    }
}

/// A head by its middle.
struct AnimalHead {
    x: f32,
    y: f32,
    main: Rgb,
    /// Of ears or beak.
    accent: Rgb,
}

fn dog_head(figure: &mut Figure, head: AnimalHead) {
    let AnimalHead {
        x,
        y,
        main: fur,
        accent: dark,
    } = head;
    figure.ellipse((x, y), (0.18, 0.16), fur);
    figure.panel(
        (x + 0.05, y - 0.13),
        (x + 0.36, y + 0.04),
        0.07,
        tone(fur, 1.12),
    );
    figure.ellipse((x + 0.35, y + 0.0), (0.045, 0.045), [22, 18, 18]);
    figure.smooth(
        &[
            (x - 0.16, y + 0.14),
            (x + 0.02, y + 0.12),
            (x - 0.04, y - 0.2),
            (x - 0.2, y - 0.16),
        ],
        0.07,
        dark,
    );
    figure.ellipse((x + 0.08, y + 0.06), (0.03, 0.03), [18, 16, 16]);
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
            figure.line(
                &[(-0.38, 0.42), (-0.52, 0.56), (-0.5, 0.8), (-0.42, 0.92)],
                0.08,
                fur,
            );
            legs(
                figure,
                Legs {
                    back_x: -0.3,
                    front_x: 0.26,
                    hip_y: 0.34,
                    swing,
                    width: 0.09,
                    colour: fur,
                },
            );
            figure.smooth(
                &[(-0.44, 0.28), (0.36, 0.28), (0.38, 0.52), (-0.42, 0.52)],
                0.14,
                fur,
            );
            for x in [-0.24, -0.08, 0.08] {
                figure.line(&[(x, 0.5), (x + 0.03, 0.38)], 0.05, stripe);
            }
            cat_head(
                figure,
                AnimalHead {
                    x: 0.46,
                    y: 0.6,
                    main: fur,
                    accent: stripe,
                },
            );
        }
        1 => {
            // sitting, seen from the front, tail round the side
            figure.line(
                &[(0.18, 0.08), (0.38, 0.08), (0.44, 0.2), (0.38, 0.34)],
                0.08,
                stripe,
            );
            figure.smooth(
                &[(-0.3, 0.0), (0.3, 0.0), (0.16, 0.62), (-0.16, 0.62)],
                0.2,
                fur,
            );
            figure.ellipse((0.0, 0.36), (0.11, 0.18), tone(fur, 1.3));
            for x in [-0.09, 0.09] {
                figure.line(&[(x, 0.34), (x, 0.06)], 0.1, fur);
            }
            cat_head(
                figure,
                AnimalHead {
                    x: 0.0,
                    y: 0.7,
                    main: fur,
                    accent: stripe,
                },
            );
        }
        _ => {
            // lying like a loaf
            figure.line(&[(-0.4, 0.1), (-0.58, 0.08), (-0.62, 0.2)], 0.08, stripe);
            figure.smooth(
                &[(-0.5, 0.0), (0.46, 0.0), (0.4, 0.4), (-0.4, 0.42)],
                0.2,
                fur,
            );
            for x in [-0.26, -0.1, 0.06] {
                figure.line(&[(x, 0.38), (x - 0.02, 0.22)], 0.05, stripe);
            }
            cat_head(
                figure,
                AnimalHead {
                    x: 0.36,
                    y: 0.46,
                    main: fur,
                    accent: stripe,
                },
            );
        }
    }
}

fn cat_head(figure: &mut Figure, head: AnimalHead) {
    let AnimalHead {
        x,
        y,
        main: fur,
        accent: stripe,
    } = head;
    for side in [-1.0, 1.0] {
        let ear = [
            (x + 0.04 * side, y + 0.1),
            (x + 0.2 * side, y + 0.06),
            (x + 0.17 * side, y + 0.3),
        ];
        figure.poly(&ear, stripe);
    }
    figure.ellipse((x, y), (0.21, 0.17), fur);
    for side in [-1.0, 1.0] {
        figure.ellipse((x + 0.08 * side, y + 0.03), (0.035, 0.045), [206, 220, 96]);
        figure.ellipse((x + 0.08 * side, y + 0.03), (0.014, 0.04), [14, 14, 14]);
        figure.line(
            &[(x + 0.06 * side, y - 0.06), (x + 0.24 * side, y - 0.04)],
            0.012,
            [230, 230, 226],
        );
    }
    figure.ellipse((x, y - 0.05), (0.03, 0.022), [226, 128, 130]);
}

pub(super) fn bird(figure: &mut Figure, object: &SceneObject) {
    let colour = object
        .colour
        .map_or([90, 90, 90], |c| paint_of(c, object.look));
    let dark = colour.iter().all(|&c| c < 90);
    let wing = if dark {
        tone(colour, 1.2)
    } else {
        tone(colour, 0.74)
    };
    let beak = [236, 160, 40];
    match object.variant {
        0 => flying(
            figure,
            (object.phase * TAU).sin(),
            BirdColours {
                body: colour,
                wing,
                beak,
            },
        ),
        1 => {
            figure.shadow(0.26, 0.05);
            for x in [-0.02, 0.08] {
                figure.line(
                    &[(x, 0.18), (x, 0.02), (x + 0.07, 0.02)],
                    0.035,
                    [200, 130, 50],
                );
            }
            figure.poly(
                &[(-0.26, 0.4), (-0.56, 0.36), (-0.54, 0.24), (-0.2, 0.24)],
                wing,
            );
            figure.ellipse((0.0, 0.34), (0.31, 0.2), colour);
            figure.smooth(
                &[(-0.3, 0.28), (0.08, 0.26), (0.12, 0.44), (-0.1, 0.46)],
                0.1,
                wing,
            );
            bird_head(
                figure,
                AnimalHead {
                    x: 0.25,
                    y: 0.56,
                    main: colour,
                    accent: beak,
                },
            );
        }
        _ => {
            // seen from behind and above, wings spread in a glide
            figure.smooth(
                &[
                    (0.0, 0.16),
                    (-0.4, 0.38),
                    (-0.86, 0.22),
                    (-0.4, 0.2),
                    (-0.06, 0.0),
                ],
                0.1,
                wing,
            );
            figure.smooth(
                &[
                    (0.0, 0.16),
                    (0.4, 0.38),
                    (0.86, 0.22),
                    (0.4, 0.2),
                    (0.06, 0.0),
                ],
                0.1,
                wing,
            );
            figure.poly(
                &[(-0.05, 0.02), (0.05, 0.02), (0.12, -0.22), (-0.12, -0.22)],
                wing,
            );
            figure.ellipse((0.0, 0.08), (0.12, 0.2), colour);
            figure.ellipse((0.0, 0.28), (0.09, 0.09), colour);
            figure.poly(&[(-0.04, 0.34), (0.04, 0.34), (0.0, 0.45)], beak);
        }
    }
}

struct BirdColours {
    body: Rgb,
    wing: Rgb,
    beak: Rgb,
}

fn flying(figure: &mut Figure, beat: f32, colours: BirdColours) {
    let BirdColours {
        body: colour,
        wing,
        beak,
    } = colours;
    let tip = 0.62 * beat;
    figure.smooth(
        &[
            (0.16, 0.04),
            (-0.1, 0.04),
            (-0.3, tip * 0.9 + 0.04),
            (-0.12, tip + 0.06),
        ],
        0.05,
        tone(wing, 0.8),
    );
    figure.poly(
        &[
            (-0.24, 0.06),
            (-0.58, 0.16),
            (-0.6, 0.0),
            (-0.56, -0.08),
            (-0.24, -0.06),
        ],
        wing,
    );
    figure.ellipse((0.0, 0.0), (0.34, 0.14), colour);
    bird_head(
        figure,
        AnimalHead {
            x: 0.34,
            y: 0.1,
            main: colour,
            accent: beak,
        },
    );
    figure.smooth(
        &[
            (0.2, 0.04),
            (-0.18, 0.02),
            (-0.34, tip),
            (-0.1, tip + 0.1 * beat),
        ],
        0.05,
        wing,
    );
}

fn bird_head(figure: &mut Figure, head: AnimalHead) {
    let AnimalHead {
        x,
        y,
        main: colour,
        accent: beak,
    } = head;
    figure.poly(
        &[
            (x + 0.08, y + 0.06),
            (x + 0.3, y - 0.02),
            (x + 0.08, y - 0.06),
        ],
        beak,
    );
    figure.ellipse((x, y), (0.14, 0.13), colour);
    figure.ellipse((x + 0.05, y + 0.03), (0.03, 0.03), [240, 240, 236]);
    figure.ellipse((x + 0.055, y + 0.03), (0.016, 0.016), [14, 14, 14]);
}
