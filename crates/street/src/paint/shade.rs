//! How light and air change a colour before it is painted.

use crate::scene::{Colour, Scene, SceneObject, Weather};

/// Red, green, blue, 0..255.
pub(crate) type Rgb = [u8; 3];

/// Light that falls on a thing and the air before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shade {
    gain: [f32; 3],
    air: [f32; 3],
    /// Share of the air's colour, 0..1.
    air_share: f32,
    darkness: f32,
    shadow_alpha: u8,
}

impl Shade {
    /// For a thing at `foot_y`, canvas units: the farther, the more air.
    pub fn at(scene: &Scene, foot_y: f32) -> Self {
        let (dark, strength) = (scene.darkness, scene.weather_strength);
        let near =
            ((foot_y - scene.view.horizon_y) / (360.0 - scene.view.horizon_y)).clamp(0.0, 1.0);
        let (grey, fog, shadow) = match scene.weather {
            Weather::Clear => (0.0, 0.0, 46.0),
            Weather::Overcast => (0.10, 0.04, 20.0),
            Weather::Rain => (0.14, 0.14, 16.0),
            Weather::Fog => (0.10, 0.72, 10.0),
        };
        let grey = 1.0 - grey * strength;
        let gain = gain_of(dark).map(|g| g * grey);
        let air = sky_low(scene).map(f32::from);
        let shadow_alpha =
            ((shadow * strength + 20.0 * (1.0 - strength)) * (1.0 - 0.6 * dark)) as u8;
        Self {
            gain,
            air,
            air_share: fog * strength * (1.0 - near).powf(1.3) * 0.95,
            darkness: dark,
            shadow_alpha,
        }
    }

    /// The colour as the camera sees it.
    pub fn apply(&self, colour: Rgb) -> Rgb {
        std::array::from_fn(|i| {
            let lit = f32::from(colour[i]) * self.gain[i];
            (lit + (self.air[i] - lit) * self.air_share) as u8
        })
    }

    /// The same air, but the thing has its own light.
    #[must_use]
    pub fn shining(self) -> Self {
        Self {
            gain: [1.0; 3],
            air_share: self.air_share * 0.6,
            ..self
        }
    }

    /// 0 by day .. 1 at night.
    pub fn glow_strength(&self) -> f32 {
        ((self.darkness - 0.4) / 0.4).clamp(0.0, 1.0)
    }

    pub fn shadow_alpha(&self) -> u8 {
        self.shadow_alpha
    }
}

/// Of the keys for day, dusk and night: the one before `darkness`, and the share of the next.
fn key_of(darkness: f32) -> (usize, f32) {
    match darkness.clamp(0.0, 1.0) * 2.0 {
        place if place < 1.0 => (0, place),
        place => (1, place - 1.0),
    }
}

/// Day is neutral, dusk warm, night blue and dark, but not so dark that colours are lost.
fn gain_of(darkness: f32) -> [f32; 3] {
    const KEYS: [[f32; 3]; 3] = [[1.0, 1.0, 1.0], [0.88, 0.76, 0.72], [0.52, 0.54, 0.66]];
    let (key, share) = key_of(darkness);
    std::array::from_fn(|i| KEYS[key][i] + (KEYS[key + 1][i] - KEYS[key][i]) * share)
}

/// Colour of the sky at the zenith.
pub(super) fn sky_high(scene: &Scene) -> Rgb {
    let keys = [[86, 142, 214], [82, 84, 140], [10, 14, 32]];
    sky(scene, keys, [150, 158, 168])
}

/// Colour of the sky at the horizon, and of the air.
pub(super) fn sky_low(scene: &Scene) -> Rgb {
    let keys = [[190, 214, 236], [226, 150, 104], [34, 40, 64]];
    sky(scene, keys, [196, 200, 206])
}

fn sky(scene: &Scene, keys: [Rgb; 3], grey: Rgb) -> Rgb {
    let (key, share) = key_of(scene.darkness);
    let clear = mix(keys[key], keys[key + 1], share);
    let cover = match scene.weather {
        Weather::Clear => 0.0,
        _ => 0.85 * scene.weather_strength,
    };
    let dim = gain_of(scene.darkness).map(|g| g * g * g);
    let grey = std::array::from_fn(|i| (f32::from(grey[i]) * dim[i]) as u8);
    mix(clear, grey, cover)
}

/// From `a` to `b` by `share` of 1.
pub(super) fn mix(a: Rgb, b: Rgb, share: f32) -> Rgb {
    std::array::from_fn(|i| (f32::from(a[i]) + (f32::from(b[i]) - f32::from(a[i])) * share) as u8)
}

/// Darker (`factor` below 1) or lighter, towards black or white.
pub(super) fn tone(colour: Rgb, factor: f32) -> Rgb {
    match factor <= 1.0 {
        true => mix([0; 3], colour, factor),
        false => mix(colour, [255; 3], factor - 1.0),
    }
}

/// One paint of a thing's colour; its look varies it a little, well within what people call by the same name.
pub(super) fn paint_of(object: &SceneObject) -> Rgb {
    let base: [i32; 3] = match object.colour {
        Some(Colour::Red) => [208, 32, 38],
        Some(Colour::Orange) => [242, 128, 20],
        Some(Colour::Yellow) => [246, 216, 44],
        Some(Colour::Green) => [36, 148, 62],
        Some(Colour::Blue) => [36, 84, 204],
        Some(Colour::Purple) => [128, 50, 168],
        Some(Colour::White) => [238, 238, 234],
        Some(Colour::Black) => [28, 28, 32],
        None => [128, 128, 128],
    };
    std::array::from_fn(|i| {
        let jitter = ((object.look >> (8 + 5 * i)) & 31) as i32 - 16;
        (base[i] + jitter * 3 / 4).clamp(8, 250) as u8
    })
}

/// A tone for details on `colour`: one factor if it is dark, another one if it is not.
pub(super) fn accent(colour: Rgb, if_dark: f32, if_bright: f32) -> Rgb {
    let is_dark = colour.iter().all(|&c| c < 90);
    tone(colour, if is_dark { if_dark } else { if_bright })
}

/// One of `options`, chosen by some bits of `look` (`at` distinguishes the choices of one thing).
pub(super) fn pick<'a>(look: u32, at: u32, options: &[&'a str]) -> &'a str {
    let mixed = (look ^ at.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
    options[(mixed >> 16) as usize % options.len()]
}
