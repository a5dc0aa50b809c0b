//! A scene as a short clip: what a camera sends up to the moment of the look.
//!
//! A single picture would be a key frame with all bits to itself. In a clip the last picture is predicted from the ones
//! before, with the share of the bit rate that is left for it, as in a camera's stream.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use spotter_core::{Picture, WallTime};
use spotter_street::{
    Scene, Street, draw_i420,
    h264::{Encoding, through_h264},
    i420_picture, random,
};

/// Pixels across of every drawn picture.
pub(super) const WIDTH: u32 = 640;
/// Pixels down.
pub(super) const HEIGHT: u32 = 360;
/// Frames of a clip; the last is looked at.
const FRAMES: u32 = 12;
const FPS: u32 = 15;
/// A live street is shown at a second of the year that begins here: 2026-01-01.
const YEAR_START_MS: i64 = 1_767_225_600_000;
const YEAR_S: i64 = 365 * 24 * 3600;

/// The clip number `seed`: always the same for the same seed.
pub(super) struct Clip {
    frames: Vec<Scene>,
}

impl Clip {
    /// Even seeds give random scenes, which do not move except for the grain; odd seeds give moving streets.
    pub fn new(seed: u64) -> Self {
        let frames = match Self::is_street(seed) {
            true => moving(seed),
            false => standing(random(seed)),
        };
        Self { frames }
    }

    pub fn is_street(seed: u64) -> bool {
        !seed.is_multiple_of(2)
    }

    /// The scene that the last picture shows.
    pub fn last(&self) -> &Scene {
        &self.frames[self.frames.len() - 1]
    }

    /// The last picture, through H.264 at this rate; as it was drawn without one. Blocks.
    pub fn picture(self, kbit_per_s: Option<u32>) -> anyhow::Result<Picture> {
        match kbit_per_s {
            None => drawn(self.last()),
            Some(kbit_per_s) => self.compressed(kbit_per_s),
        }
    }

    fn compressed(self, kbit_per_s: u32) -> anyhow::Result<Picture> {
        let sent = self.frames.len();
        let frames = self.frames.into_iter();
        let pixels = frames.map(|scene| draw_i420(&scene, WIDTH, HEIGHT));
        let (mut found, mut last) = (0, None);
        for picture in through_h264(encoding(FPS, kbit_per_s), pixels)? {
            last = Some(picture?);
            found += 1;
        }
        // Otherwise the content of the last picture is unknown.
        ensure!(found == sent, "{found} of {sent} frames were decoded");
        last.context("a clip without frames")
    }
}

/// Encoding of all drawn streets.
pub(super) fn encoding(fps: u32, kbit_per_s: u32) -> Encoding {
    Encoding {
        width: WIDTH as usize,
        height: HEIGHT as usize,
        fps,
        kbit_per_s,
    }
}

/// The uncompressed picture of a scene.
pub(super) fn drawn(scene: &Scene) -> anyhow::Result<Picture> {
    let pixels = draw_i420(scene, WIDTH, HEIGHT);
    Ok(i420_picture(&pixels, WIDTH as usize, HEIGHT as usize)?)
}

fn standing(scene: Scene) -> Vec<Scene> {
    let frame = |number: u32| {
        let mut scene = scene.clone();
        scene.lens.seed = scene.lens.seed.wrapping_add(number.into());
        scene
    };
    (0..FRAMES).map(frame).collect()
}

fn moving(seed: u64) -> Vec<Scene> {
    let second = Pcg32::seed_from_u64(seed).random_range(0..YEAR_S);
    let end = WallTime::from_unix_millis(YEAR_START_MS + second * 1000);
    let street = Street::new(seed);
    let before_end = |number| Duration::from_secs(1) * (FRAMES - 1 - number) / FPS;
    (0..FRAMES)
        .map(|number| street.at(end.before(before_end(number))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::assert_compressed;

    #[test]
    fn a_clip_is_a_pure_function_of_its_seed() {
        for seed in [1 << 41, (1 << 41) + 1] {
            let (once, again) = (Clip::new(seed), Clip::new(seed));
            assert_eq!(once.frames, again.frames);
            assert_eq!(once.frames.len(), FRAMES as usize);
            let pixels = |clip: &Clip, number: usize| draw_i420(&clip.frames[number], 64, 36);
            assert_ne!(pixels(&once, 10), pixels(&once, 11), "grain or movement");
        }
    }

    #[test]
    fn random_scenes_stand_still_and_streets_move() {
        let stands = |clip: Clip| (clip.frames.iter()).all(|f| f.objects == clip.last().objects);
        assert!(stands(Clip::new(1 << 41)));
        assert!((0..8).any(|i| !stands(Clip::new((1 << 41) + 1 + 2 * i))));
    }

    #[test]
    fn the_last_picture_is_compressed() {
        let seed = (1 << 41) + 1;
        let plain = Clip::new(seed).picture(None).unwrap();
        let coded = Clip::new(seed).picture(Some(1000)).unwrap();
        assert_compressed(&plain, &coded);
    }
}
