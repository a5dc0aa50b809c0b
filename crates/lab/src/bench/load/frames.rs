//! Frames as a decoder outputs them: NV12 in host memory.

use std::sync::Arc;

use rand::{Rng as _, SeedableRng};
use rand_pcg::Pcg64;

use spotter_core::{
    ColourMatrix, ColourRange, Picture, PictureError, PictureLayout, PixelFormat, WallTime,
};
use spotter_street::{Street, draw_i420};

/// Frames of a size, used in turn: more than any cache keeps of one camera.
const POOL: usize = 16;
/// The demo's street at a moment with traffic: 2026-01-01 11:00 UTC.
const STREET: u64 = 7;
const MOMENT: WallTime = WallTime::from_unix_millis(1_767_265_200_000);

/// Noise: no two frames share a tile.
pub(super) fn noise(width: usize, height: usize) -> Result<Vec<Picture>, PictureError> {
    let mut random = Pcg64::seed_from_u64((width * 10_000 + height) as u64);
    let mut frame = || {
        let mut plane = |index| {
            let size = PixelFormat::Nv12.plane_size(index, width, height);
            let mut bytes = vec![0; size.map_or(0, |(row, rows)| row * rows)];
            random.fill_bytes(&mut bytes);
            bytes
        };
        nv12(width, height, vec![plane(0), plane(1)])
    };
    (0..POOL).map(|_| frame()).collect()
}

/// One picture of the drawn street.
pub(super) fn still_street(width: usize, height: usize) -> Result<Picture, PictureError> {
    let scene = Street::still(STREET, MOMENT).at(MOMENT);
    let drawn = draw_i420(&scene, width as u32, height as u32);
    let luma = width * height;
    let chroma = width.div_ceil(2) * height.div_ceil(2);
    let (y, rest) = drawn.split_at(luma.min(drawn.len()));
    let (u, v) = rest.split_at(chroma.min(rest.len()));
    let uv = u.iter().zip(v).flat_map(|(&u, &v)| [u, v]).collect();
    nv12(width, height, vec![y.to_vec(), uv])
}

fn nv12(width: usize, height: usize, planes: Vec<Vec<u8>>) -> Result<Picture, PictureError> {
    let chroma_row = width.div_ceil(2) * 2;
    Picture::new(
        PictureLayout {
            format: PixelFormat::Nv12,
            size: (width, height),
            strides: [width, chroma_row, 0],
            colour: (ColourMatrix::Bt601, ColourRange::Limited),
        },
        Arc::new(planes),
    )
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

    #[test]
    fn the_street_in_nv12_keeps_its_colours() {
        let (width, height) = (64, 36);
        let scene = Street::still(STREET, MOMENT).at(MOMENT);
        let i420 = draw_i420(&scene, width as u32, height as u32);
        let picture = still_street(width, height).unwrap();
        assert_eq!(picture.row(0, 5), &i420[5 * width..6 * width]);
        let (u, v) = i420[width * height..].split_at(width * height / 4);
        let interleaved: Vec<u8> = (0..width / 2)
            .flat_map(|i| [u[3 * width / 2 + i], v[3 * width / 2 + i]])
            .collect();
        assert_eq!(picture.row(1, 3), interleaved);
    }
}
