//! From the bytes of a file to a picture.

use std::{
    fs::File,
    io::{Cursor, Read as _},
    path::Path,
};

use crate::{
    decode_jpeg, decode_png, error::PictureFileError, format::PictureFormat,
    orientation::Orientation,
};
use spotter_core::Picture;

/// Pixels of a picture's side.
pub const SIDE_MAX: usize = 16_384;
/// How many times as long as its shorter side a picture's longer side may be.
pub const RATIO_MAX: usize = 50;
/// Pixels of a user's own file: what a phone takes at most, 300 MB once it is decoded.
pub const FILE_PIXELS_MAX: usize = 100_000_000;
/// Bytes of a user's own file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A picture as its file has it.
pub(crate) struct DecodedFile {
    /// `width * height * 3`.
    pub rgb: Vec<u8>,
    pub width: usize,
    pub height: usize,
    pub orientation: Orientation,
}

/// Of `samples` in a pixel (grey, grey and alpha, RGB, RGB and alpha) of one byte or two, the highest first.
pub(crate) fn rgb_of(pixels: &[u8], samples: usize, sample_bytes: usize) -> Vec<u8> {
    let pixel_bytes = samples * sample_bytes;
    let sample = |pixel: &[u8], index: usize| match sample_bytes {
        1 => pixel[index],
        // Rounded: 0xffff is 0xff, and so is all that is nearer to it than to 0xfe.
        _ => {
            let wide = u32::from(pixel[2 * index]) << 8 | u32::from(pixel[2 * index + 1]);
            ((wide + 128) / 257) as u8
        }
    };
    let mut rgb = Vec::with_capacity(pixels.len() / pixel_bytes * 3);
    for pixel in pixels.chunks_exact(pixel_bytes) {
        rgb.extend(match samples {
            1 | 2 => [sample(pixel, 0); 3],
            _ => [0, 1, 2].map(|index| sample(pixel, index)),
        });
    }
    rgb
}

/// The picture in a file of the user. Blocks.
pub fn read(path: &Path) -> Result<Picture, PictureFileError> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref()
        .take(PictureFormat::HEAD_BYTES as u64)
        .read_to_end(&mut bytes)?;
    // A video, which is not a picture, may be longer than memory.
    PictureFormat::of(&bytes)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(PictureFileError::FileTooLarge {
            max_bytes: FILE_BYTES_MAX,
        });
    }
    decode(&bytes, FILE_PIXELS_MAX)
}

/// The picture in the bytes of a PNG or JPEG file, of at most `pixels_max` pixels, turned as viewers turn it. Needs at most 12 bytes of memory
/// for each of the picture's pixels. Takes up to half a second.
pub fn decode(file: &[u8], pixels_max: usize) -> Result<Picture, PictureFileError> {
    let check = |width, height| check_size(width, height, pixels_max);
    let decoded = match PictureFormat::of(file)? {
        PictureFormat::Jpeg => decode_jpeg::decode(file, check),
        PictureFormat::Png => decode_png::decode(Cursor::new(file), check),
    }?;
    let damaged = |reason: String| PictureFileError::Damaged { reason };
    if decoded.rgb.is_empty() || decoded.rgb.len() != decoded.width * decoded.height * 3 {
        return Err(damaged("its pixels do not fit its size".to_owned()));
    }
    let turned = decoded.orientation.turn(decoded);
    Picture::from_rgb(turned.width, turned.height, turned.rgb)
        .map_err(|error| damaged(error.to_string()))
}

/// What the header says, before anything of that size is allocated.
fn check_size(width: usize, height: usize, pixels_max: usize) -> Result<(), PictureFileError> {
    let (short, long) = (width.min(height), width.max(height));
    if long > SIDE_MAX || width * height > pixels_max {
        return Err(PictureFileError::TooLarge {
            width,
            height,
            pixels_max,
        });
    }
    if long > short * RATIO_MAX {
        return Err(PictureFileError::TooNarrow { width, height });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
