//! The routes through the live street: what passes where, how often and how fast.

use std::sync::LazyLock;

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
    classes: Vec<Class>,
    /// The shape, or any of the class's (of a person: any but the rider).
    variant: Option<u8>,
    motion: Motion,
    /// At most one thing passes in this time, seconds.
    pub slot_s: f64,
    /// Probability that one passes.
    pub chance: f64,
    /// How long it is there, seconds; below `slot_s`.
    pub takes_s: (f64, f64),
    /// Where it touches the ground, canvas units.
    foot_y: (f32, f32),
    /// Height above the ground, metres.
    lift_m: (f32, f32),
    /// Steps, wing beats, bounces or turns a second.
    beat_hz: f32,
}

pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let lines = include_str!("routes.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.filter_map(Route::read).collect()
});

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
    /// From a line of `routes.txt`; `None` when it is none.
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [classes, variant, way, figures @ ..] = &words[..] else {
            return None;
        };
        let class = |name| {
            Class::ALL
                .iter()
                .copied()
                .find(|class| class.name() == name)
        };
        let motion = match (*way, way.split_once("..")) {
            ("left", _) => Motion::Across(Facing::Left),
            ("right", _) => Motion::Across(Facing::Right),
            (_, between) => {
                let (from, to) = between?;
                Motion::Stay(from.parse().ok()?, to.parse().ok()?)
            }
        };
        let figures: Option<Vec<f64>> = figures.iter().map(|number| number.parse().ok()).collect();
        let [slot_s, chance, takes @ .., beat_hz] = &figures?[..] else {
            return None;
        };
        let pairs = takes.as_chunks::<2>().0;
        let &[[takes_0, takes_1], foot_y, lift_m] = pairs else {
            return None;
        };
        let narrow = |[from, to]: [f64; 2]| (from as f32, to as f32);
        Some(Self {
            classes: classes.split(',').map(class).collect::<Option<_>>()?,
            variant: variant.parse().ok(),
            motion,
            slot_s: *slot_s,
            chance: *chance,
            takes_s: (takes_0, takes_1),
            foot_y: narrow(foot_y),
            lift_m: narrow(lift_m),
            beat_hz: *beat_hz as f32,
        })
    }

    /// A person rides on what passes.
    pub fn is_ridden(&self) -> bool {
        self.classes == [Class::Bicycle] && matches!(self.motion, Motion::Across(_))
    }

    /// The thing at `moment`. `rng` is at the same state for every moment of one passage.
    pub fn object(&self, rng: &mut Pcg32, moment: &PassageMoment) -> SceneObject {
        let class = self.classes[rng.random_range(0..self.classes.len())];
        let any_variant = || rng.random_range(0..side_views(class));
        let variant = self.variant.unwrap_or_else(any_variant);
        let foot_y = rng.random_range(self.foot_y.0..=self.foot_y.1);
        let lift_m = rng.random_range(self.lift_m.0..=self.lift_m.1);
        // Outside of the picture at both ends, for every class.
        let margin = half_length_m(class) * 1.2 * moment.view.units_per_m(foot_y) + 4.0;
        let side = any_facing(rng);
        let (x, facing) = match self.motion {
            Motion::Across(facing) => {
                let way = -margin + (CANVAS_WIDTH + 2.0 * margin) * moment.done as f32;
                let x = match facing {
                    Facing::Right => way,
                    Facing::Left => CANVAS_WIDTH - way,
                };
                (x, facing)
            }
            Motion::Stay(from, to) => (rng.random_range(from..to), side),
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

pub(super) fn any_facing(rng: &mut Pcg32) -> Facing {
    match rng.random() {
        true => Facing::Left,
        false => Facing::Right,
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
