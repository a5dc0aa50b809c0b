//! The routes through the live street: what passes where, how often and how fast.

use rand::RngExt;
use rand_pcg::Pcg32;

use super::scene::{
    CANVAS_WIDTH, Class, Colour, Facing, ObjectIdentity, RIDER, SceneObject, View, Weather,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Motion {
    /// From one side of the picture to the other.
    Across(Facing),
    /// It appears between these two places (x, canvas units), stays and disappears.
    Stay(f32, f32),
}

#[derive(Debug)]
pub(super) struct Route {
    /// What may pass, each with the same probability.
    pub classes: &'static [Class],
    /// The shape, or any of the class's (of a person: any but the rider).
    pub variant: Option<u8>,
    pub motion: Motion,
    /// At most one thing passes in this time, seconds.
    pub slot_s: f64,
    /// Probability that one passes.
    pub chance: f64,
    /// How long it is there, seconds; below `slot_s`.
    pub takes_s: (f64, f64),
    /// Where it touches the ground, canvas units.
    pub foot_y: (f32, f32),
    /// Height above the ground, metres.
    pub lift_m: (f32, f32),
    /// Steps, wing beats, bounces or turns a second.
    pub beat_hz: f32,
    /// True when a person rides on it.
    pub ridden: bool,
}

const BASE: Route = Route {
    classes: &[],
    variant: None,
    motion: Motion::Stay(60.0, CANVAS_WIDTH - 60.0),
    slot_s: 60.0,
    chance: 0.5,
    takes_s: (20.0, 30.0),
    foot_y: (300.0, 320.0),
    lift_m: (0.0, 0.0),
    beat_hz: 0.0,
    ridden: false,
};

const fn across(classes: &'static [Class], facing: Facing, foot_y: (f32, f32)) -> Route {
    Route {
        classes,
        motion: Motion::Across(facing),
        foot_y,
        ..BASE
    }
}

/// Each stays in a strip of its own, so that they do not overlap.
const fn stay(classes: &'static [Class], variant: u8, x: (f32, f32), foot_y: (f32, f32)) -> Route {
    Route {
        classes,
        variant: Some(variant),
        motion: Motion::Stay(x.0, x.1),
        foot_y,
        ..BASE
    }
}

const TRAFFIC: &[Class] = &[
    Class::Car,
    Class::Car,
    Class::Car,
    Class::Car,
    Class::Truck,
    Class::Bus,
];

/// Speeds are those of a real street seen by this camera: a car crosses the picture in 5 to 8 s, a walker in 11 to 25 s.
pub(super) const ROUTES: &[Route] = &[
    Route {
        slot_s: 12.0,
        chance: 0.75,
        takes_s: (8.0, 11.0),
        ..across(TRAFFIC, Facing::Left, (210.0, 214.0))
    },
    Route {
        slot_s: 14.0,
        chance: 0.65,
        takes_s: (8.0, 11.0),
        ..across(TRAFFIC, Facing::Right, (266.0, 270.0))
    },
    Route {
        slot_s: 24.0,
        chance: 0.8,
        takes_s: (13.0, 18.0),
        beat_hz: 0.9,
        ..across(&[Class::Person], Facing::Right, (308.0, 318.0))
    },
    Route {
        slot_s: 28.0,
        chance: 0.7,
        takes_s: (13.0, 19.0),
        beat_hz: 0.9,
        ..across(&[Class::Person], Facing::Left, (332.0, 342.0))
    },
    Route {
        slot_s: 32.0,
        chance: 0.6,
        takes_s: (23.0, 28.0),
        beat_hz: 0.9,
        ..across(&[Class::Person], Facing::Left, (165.0, 168.0))
    },
    Route {
        slot_s: 26.0,
        chance: 0.55,
        takes_s: (8.0, 11.0),
        beat_hz: 1.1,
        ridden: true,
        ..across(&[Class::Bicycle], Facing::Right, (282.0, 287.0))
    },
    Route {
        variant: Some(0),
        slot_s: 30.0,
        chance: 0.5,
        takes_s: (6.0, 8.0),
        beat_hz: 2.4,
        ..across(&[Class::Dog], Facing::Right, (322.0, 328.0))
    },
    Route {
        variant: Some(0),
        slot_s: 48.0,
        chance: 0.45,
        takes_s: (16.0, 21.0),
        beat_hz: 1.6,
        ..across(&[Class::Cat], Facing::Left, (299.0, 304.0))
    },
    Route {
        variant: Some(0),
        slot_s: 18.0,
        chance: 0.6,
        takes_s: (6.0, 8.0),
        lift_m: (2.2, 3.4),
        beat_hz: 2.2,
        ..across(&[Class::Bird], Facing::Right, (225.0, 250.0))
    },
    Route {
        slot_s: 36.0,
        chance: 0.5,
        takes_s: (7.0, 10.0),
        lift_m: (0.5, 1.1),
        beat_hz: 0.8,
        ..across(&[Class::Ball], Facing::Left, (344.0, 350.0))
    },
    Route {
        slot_s: 75.0,
        chance: 0.7,
        takes_s: (25.0, 45.0),
        ..stay(&[Class::Parcel], 0, (430.0, 490.0), (304.0, 352.0))
    },
    Route {
        slot_s: 130.0,
        chance: 0.6,
        takes_s: (70.0, 110.0),
        ..stay(&[Class::Bicycle], 0, (340.0, 380.0), (300.0, 304.0))
    },
    Route {
        slot_s: 55.0,
        chance: 0.5,
        takes_s: (20.0, 35.0),
        ..stay(&[Class::Person], 1, (190.0, 230.0), (346.0, 354.0))
    },
    Route {
        slot_s: 42.0,
        chance: 0.4,
        takes_s: (10.0, 20.0),
        ..stay(&[Class::Bird], 1, (270.0, 300.0), (306.0, 350.0))
    },
    Route {
        slot_s: 64.0,
        chance: 0.4,
        takes_s: (20.0, 40.0),
        ..stay(&[Class::Cat], 1, (40.0, 130.0), (310.0, 345.0))
    },
    Route {
        slot_s: 70.0,
        chance: 0.4,
        takes_s: (20.0, 40.0),
        ..stay(&[Class::Dog], 1, (545.0, 610.0), (312.0, 350.0))
    },
];

/// A moment of a passage.
pub(super) struct PassageMoment {
    /// Share of the passage, 0..1.
    pub done: f64,
    /// The same in seconds.
    pub since_s: f64,
    pub view: View,
    pub identity: ObjectIdentity,
}

impl Route {
    /// The thing at `moment`. `rng` is at the same state for every moment of one passage.
    pub fn object(&self, rng: &mut Pcg32, moment: &PassageMoment) -> SceneObject {
        let class = self.classes[rng.random_range(0..self.classes.len())];
        let variant = self
            .variant
            .unwrap_or_else(|| rng.random_range(0..side_views(class)));
        let foot_y = rng.random_range(self.foot_y.0..=self.foot_y.1);
        let lift_m = rng.random_range(self.lift_m.0..=self.lift_m.1);
        // Outside of the picture at both ends, for every class.
        let margin = half_length_m(class) * 1.2 * moment.view.units_per_m(foot_y) + 4.0;
        let side = rng.random::<bool>();
        let (x, facing) = match self.motion {
            Motion::Across(facing) => {
                let way = -margin + (CANVAS_WIDTH + 2.0 * margin) * moment.done as f32;
                let x = match facing {
                    Facing::Right => way,
                    Facing::Left => CANVAS_WIDTH - way,
                };
                (x, facing)
            }
            Motion::Stay(from, to) => (
                rng.random_range(from..to),
                if side { Facing::Left } else { Facing::Right },
            ),
        };
        let beats = (moment.since_s * f64::from(self.beat_hz)) as f32;
        let lift_m = match class {
            // The path of a thrown ball: a parabola between two bounces.
            Class::Ball => lift_m * 4.0 * beats.fract() * (1.0 - beats.fract()),
            _ => lift_m,
        };
        SceneObject {
            identity: moment.identity,
            class,
            colour: class.is_coloured().then(|| any_colour(rng)),
            x,
            foot_y,
            lift_m,
            size: rng.random_range(0.95..1.08),
            facing,
            variant,
            phase: beats.fract(),
            look: rng.random(),
        }
    }
}

/// The variants of a class that may move sideways.
fn side_views(class: Class) -> u8 {
    match class {
        Class::Person => RIDER,
        Class::Car | Class::Truck => 3,
        Class::Bus => 2,
        _ => class.variants(),
    }
}

fn half_length_m(class: Class) -> f32 {
    match class {
        Class::Bus => 4.5,
        Class::Truck => 3.7,
        Class::Car => 2.4,
        Class::Bicycle => 1.1,
        _ => 0.8,
    }
}

/// Any colour, all equally likely.
pub(super) fn any_colour(rng: &mut Pcg32) -> Colour {
    Colour::ALL[rng.random_range(0..Colour::ALL.len())]
}

/// Clear half of the time.
pub(super) fn any_weather(rng: &mut Pcg32) -> Weather {
    match rng.random_range(0..10) {
        0..=4 => Weather::Clear,
        5 | 6 => Weather::Overcast,
        7 | 8 => Weather::Rain,
        _ => Weather::Fog,
    }
}
