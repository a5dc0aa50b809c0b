//! Frames as a decoder outputs them: NV12 in host memory.

use std::sync::Arc;

use rand::{Rng as _, SeedableRng};
use rand_pcg::Pcg64;

use spotter_core::{ColourMatrix, ColourRange, Picture, PictureError, PictureLayout, PixelFormat};

/// Frames of a size, used in turn: more than any cache keeps of one camera.
const POOL: usize = 16;
/// Noise: no two frames share a tile.
pub fn noise(width: usize, height: usize) -> Result<Vec<Picture>, PictureError> {
    let mut random = Pcg64::seed_from_u64((width * 10_000 + height) as u64);
    let mut frame = || {
        let mut plane = |index| {
            let size = PixelFormat::Nv12.plane_size(index, width, height);
            let mut bytes = vec![0; size.map_or(0, |(row, rows)| row * rows)];
            random.fill_bytes(&mut bytes);
            bytes
        };
        let planes = vec![plane(0), plane(1)];
        let layout = PictureLayout {
            format: PixelFormat::Nv12,
            size: (width, height),
            strides: [width, width.div_ceil(2) * 2, 0],
            colour: (ColourMatrix::Bt601, ColourRange::Limited),
        };
        Picture::new(layout, Arc::new(planes))
    };
    (0..POOL).map(|_| frame()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_noise_differ() {
        let frames = noise(64, 48).unwrap();
        for (i, frame) in frames.iter().enumerate() {
            assert_eq!(frame.format(), PixelFormat::Nv12);
            for other in &frames[..i] {
                assert_ne!(frame.row(0, 0), other.row(0, 0));
                assert_ne!(frame.row(1, 23), other.row(1, 23));
            }
        }
    }
}
