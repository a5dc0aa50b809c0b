//! Drawn scenes from which fp8 learns the ranges of a model's values.

use super::{draw, random};
use spotter_core::Picture;

/// As many tiles as the pictures of most cameras.
const SIZE: (u32, u32) = (1280, 720);
const SCENES: u64 = 8;

/// Pictures of any place in any light, the same at every start. Drawing takes some milliseconds each.
pub fn calibration_pictures() -> Vec<Picture> {
    let (width, height) = SIZE;
    let drawn = |seed| {
        let rgb = draw(&random(seed), width, height);
        Picture::from_rgb(width as usize, height as usize, rgb).ok()
    };
    (0..SCENES).filter_map(drawn).collect()
}
