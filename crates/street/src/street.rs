//! The live street of the demo camera. What is there at a given time is a pure function of seed and UTC time: nothing is
//! simulated step by step, so any process can compute the truth of a frame from its capture time.
//!
//! Each [`Route`] divides time into slots. A random generator, seeded by street, route and slot, decides whether something
//! passes in a slot, what, when and how fast; its place follows from the time alone. No passage reaches into the next slot.

use rand::RngExt;
use rand_pcg::Pcg32;

use super::{
    chance,
    routes::{self, ROUTES, Route},
    scene::{
        Backdrop, Class, Colour, Facing, Lens, ObjectIdentity, Prop, PropKind, RIDER, Scene,
        SceneLayout, SceneObject, View, Weather,
    },
};
use spotter_core::WallTime;

/// One day of the street, from noon to noon, seconds.
const DAY_S: f64 = 24.0 * 60.0;
/// How long one kind of weather lasts, and how long it needs to begin and to end, seconds.
const WEATHER_S: f64 = 5.0 * 60.0;
const WEATHER_RAMP_S: f64 = 40.0;
/// Green, amber and red once, seconds.
const LIGHTS_S: f64 = 24.0;

const VIEW: View = View {
    horizon_y: 108.0,
    camera_m: 3.6,
};

const SCENERY: u64 = 100;
const SKY: u64 = 101;

/// A street as a function of UTC time, where things move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Street {
    seed: u64,
}

impl Street {
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The scene at `wall`.
    pub fn at(&self, wall: WallTime) -> Scene {
        let seconds = wall.unix_nanos() as f64 * 1e-9;
        let mut rng = self.chance(SCENERY, 0);
        let mut objects = fixtures(&mut rng, seconds);
        let props = scenery(&mut rng);
        for (index, route) in ROUTES.iter().enumerate() {
            objects.extend(self.passing(index, route, seconds));
        }
        let (weather, weather_strength) = self.weather(seconds);
        Scene {
            view: VIEW,
            backdrop: Backdrop {
                layout: SceneLayout::Street,
                ground_y: 150.0,
                road_y: (172.0, 290.0),
                seed: chance::mix(self.seed),
            },
            darkness: darkness(seconds, self.seed),
            weather,
            weather_strength,
            lens: Lens {
                brightness: 0.0,
                contrast: 1.0,
                grain: 2.0,
                soft: false,
                vignette: 0.15,
                seed: chance::mix(wall.unix_nanos() as u64),
            },
            props,
            objects,
        }
    }

    fn chance(&self, route: u64, slot: i64) -> Pcg32 {
        let stream = chance::mix(route ^ chance::mix(slot as u64));
        chance::rng(self.seed ^ stream, chance::STREET)
    }

    /// What passes along `route`, the rider last.
    fn passing(&self, index: usize, route: &Route, seconds: f64) -> Vec<SceneObject> {
        // Every route has its own phase, so that not all slots begin together.
        let phase: f64 = self.chance(index as u64, i64::MIN).random();
        let slots = seconds / route.slot_s + phase;
        let (slot, into_s) = (slots.floor() as i64, slots.fract() * route.slot_s);
        let mut rng = self.chance(index as u64, slot);
        if !rng.random_bool(route.chance) {
            return Vec::new();
        }
        let duration_s = rng.random_range(route.takes_s.0..route.takes_s.1);
        let starts_s = rng.random_range(0.0..=(route.slot_s - duration_s).max(0.0));
        let done = (into_s - starts_s) / duration_s;
        if !(0.0..1.0).contains(&done) {
            return Vec::new();
        }
        let identity = |rider| ObjectIdentity::Passing {
            route: index as u8,
            slot,
            rider,
        };
        let moment = routes::PassageMoment {
            done,
            since_s: into_s - starts_s,
            view: VIEW,
            identity: identity(false),
        };
        let object = route.object(&mut rng, &moment);
        let rider = route
            .is_ridden()
            .then(|| rider(identity(true), &object, &mut rng));
        [object].into_iter().chain(rider).collect()
    }

    fn weather(&self, seconds: f64) -> (Weather, f32) {
        let slots = seconds / WEATHER_S;
        let mut rng = self.chance(SKY, slots.floor() as i64);
        let weather = routes::any_weather(&mut rng);
        let into_s = slots.fract() * WEATHER_S;
        let ramp = (into_s.min(WEATHER_S - into_s) / WEATHER_RAMP_S).min(1.0);
        (weather, ramp as f32 * rng.random_range(0.65..0.95))
    }
}

/// 0 at noon, 1 at midnight; day and night last longer than dusk.
fn darkness(seconds: f64, seed: u64) -> f32 {
    let phase = (seed % 8) as f64 / 8.0;
    let turn = (seconds / DAY_S + phase) * std::f64::consts::TAU;
    (0.45 - 0.8 * turn.cos()).clamp(0.0, 1.0) as f32
}

fn rider(identity: ObjectIdentity, bicycle: &SceneObject, rng: &mut Pcg32) -> SceneObject {
    SceneObject {
        identity,
        class: Class::Person,
        colour: Some(routes::any_colour(rng)),
        variant: RIDER,
        look: rng.random(),
        ..*bicycle
    }
}

/// Permanent objects: a traffic light, which switches, and a stop sign.
fn fixtures(rng: &mut Pcg32, seconds: f64) -> Vec<SceneObject> {
    let fixture = |number, class, x: f32, foot_y: f32, phase: f64| SceneObject {
        identity: ObjectIdentity::Fixture(number),
        class,
        colour: None::<Colour>,
        x,
        foot_y,
        lift_m: 0.0,
        size: 0.9,
        facing: Facing::Right,
        variant: 0,
        phase: phase as f32,
        look: 0,
    };
    let left = rng.random_range(60.0..150.0);
    let right = rng.random_range(500.0..590.0);
    let lights = (seconds / LIGHTS_S).rem_euclid(1.0);
    vec![
        fixture(0, Class::TrafficLight, left, 298.0, lights),
        fixture(1, Class::StopSign, right, 301.0, 0.0),
    ]
}

fn scenery(rng: &mut Pcg32) -> Vec<Prop> {
    let mut prop = |kind, x: (f32, f32), foot_y: f32| Prop {
        kind,
        x: rng.random_range(x.0..x.1),
        foot_y,
        size: rng.random_range(0.9..1.1),
        look: rng.random(),
    };
    vec![
        prop(PropKind::Tree, (20.0, 180.0), 166.0),
        prop(PropKind::Lamp, (220.0, 300.0), 170.0),
        prop(PropKind::Fir, (440.0, 620.0), 164.0),
        prop(PropKind::Bin, (400.0, 470.0), 297.0),
        prop(PropKind::Hydrant, (250.0, 330.0), 296.0),
    ]
}

#[cfg(test)]
mod tests;
