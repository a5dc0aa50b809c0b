//! What air and camera add to the finished picture: rain, softness, exposure, vignette, grain. And the way to I420.

use std::sync::LazyLock;

use rand::{Rng, RngExt};
use rand_pcg::Pcg32;

use crate::{
    chance,
    scene::{Lens, Scene, Weather},
};

const GRAIN_LEN: usize = 1 << 14;

/// Grain of standard deviation 64, to be scaled.
static GRAIN: LazyLock<Vec<i16>> = LazyLock::new(|| {
    let mut rng = chance::rng(0, chance::LENS);
    // The sum of four even draws is near enough to a bell.
    let draw = |rng: &mut Pcg32| (0..4).map(|_| rng.random_range(-55_i16..=55)).sum();
    (0..GRAIN_LEN).map(|_| draw(&mut rng)).collect()
});

/// Opaque pixels, four bytes each, row by row.
pub(super) struct RgbaPicture<'a> {
    pub bytes: &'a mut [u8],
    pub width: usize,
    pub height: usize,
}

impl RgbaPicture<'_> {
    /// Changes the pixels in place.
    pub fn apply_effects(&mut self, scene: &Scene) {
        let mut rng = chance::rng(scene.lens.seed, chance::LENS);
        if scene.weather == Weather::Rain {
            self.rain(scene.weather_strength, &mut rng);
        }
        if scene.lens.soft {
            self.soften();
        }
        self.expose(&scene.lens, &mut rng);
    }

    /// Slanted streaks, a little lighter than what is behind.
    fn rain(&mut self, strength: f32, rng: &mut Pcg32) {
        let (width, height) = (self.width, self.height);
        let unit = (height / 180).max(1);
        let streaks = (110.0 * strength) as usize;
        for _ in 0..streaks {
            let (x, y) = (rng.random_range(0..width), rng.random_range(0..height));
            let (length, light) = (rng.random_range(6..15) * unit, rng.random_range(18..44));
            for step in 0..length {
                let (x, y) = (x + step / 4, y + step);
                if x < width && y < height {
                    for sample in &mut self.bytes[(y * width + x) * 4..][..3] {
                        *sample = sample.saturating_add(light);
                    }
                }
            }
        }
    }

    /// A blur of weights 1 2 1 along the rows, then along the columns.
    fn soften(&mut self) {
        let blend =
            |a: u8, b: u8, c: u8| ((u16::from(a) + 2 * u16::from(b) + u16::from(c) + 2) >> 2) as u8;
        let row_bytes = self.width * 4;
        let mut line = vec![0; row_bytes];
        for row in self.bytes.chunks_exact_mut(row_bytes) {
            line.copy_from_slice(row);
            for i in 4..row_bytes.saturating_sub(4) {
                row[i] = blend(line[i - 4], line[i], line[i + 4]);
            }
        }
        let mut above = self.bytes[..row_bytes].to_vec();
        for y in 1..self.height.saturating_sub(1) {
            let (upper, below) = self.bytes.split_at_mut((y + 1) * row_bytes);
            let row = &mut upper[y * row_bytes..];
            line.copy_from_slice(row);
            for i in 0..row_bytes {
                row[i] = blend(above[i], line[i], below[i]);
            }
            std::mem::swap(&mut above, &mut line);
        }
    }

    /// Exposure, vignette and grain in one pass.
    fn expose(&mut self, lens: &Lens, rng: &mut Pcg32) {
        let (width, height) = (self.width, self.height);
        let curve: [i32; 256] = std::array::from_fn(|v| {
            (((v as f32 - 128.0) * lens.contrast + 128.0 + lens.brightness) * 256.0) as i32
        });
        // Loss of light grows with the square of the distance from the middle: a part of x and a part of y.
        let loss = |i: usize, n: usize| {
            ((i as f32 / n as f32 - 0.5) * 2.0).powi(2) * 0.5 * lens.vignette * 256.0
        };
        let loss_x: Vec<i32> = (0..width).map(|x| loss(x, width) as i32).collect();
        let grain_scale = (lens.grain * 4.0) as i32;
        for (y, row) in self.bytes.chunks_exact_mut(width * 4).enumerate() {
            let keep_y = 256 - loss(y, height) as i32;
            let start = rng.next_u32() as usize;
            for (x, pixel) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let keep = keep_y - loss_x[x];
                for channel in 0..3 {
                    let grain =
                        i32::from(GRAIN[(start + x + channel * 5003) % GRAIN_LEN]) * grain_scale;
                    let level = (curve[usize::from(pixel[channel])] * keep) >> 8;
                    pixel[channel] = ((level + grain) >> 8).clamp(0, 255) as u8;
                }
            }
        }
    }
}

/// BT.601 limited range, integer weights of 256; chroma is the mean of its 2x2 pixels.
pub(super) fn i420_from_rgba(rgba: &[u8], width: usize, height: usize) -> Vec<u8> {
    let (half_w, half_h) = (width.div_ceil(2), height.div_ceil(2));
    let mut out = vec![0; width * height + 2 * half_w * half_h];
    let (luma, chroma) = out.split_at_mut(width * height);
    let (u_plane, v_plane) = chroma.split_at_mut(half_w * half_h);
    for (sample, &[r, g, b, _]) in luma.iter_mut().zip(rgba.as_chunks::<4>().0) {
        *sample =
            (((66 * i32::from(r) + 129 * i32::from(g) + 25 * i32::from(b) + 128) >> 8) + 16) as u8;
    }
    for cy in 0..half_h {
        let rows = [2 * cy, (2 * cy + 1).min(height - 1)];
        for cx in 0..half_w {
            let columns = [2 * cx, (2 * cx + 1).min(width - 1)];
            let mut sum = [0_i32; 3];
            for y in rows {
                for x in columns {
                    for (total, &sample) in sum.iter_mut().zip(&rgba[(y * width + x) * 4..]) {
                        *total += i32::from(sample);
                    }
                }
            }
            let [r, g, b] = sum;
            u_plane[cy * half_w + cx] = (((-38 * r - 74 * g + 112 * b + 512) >> 10) + 128) as u8;
            v_plane[cy * half_w + cx] = (((112 * r - 94 * g - 18 * b + 512) >> 10) + 128) as u8;
        }
    }
    out
}
