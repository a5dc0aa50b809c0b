//! From the bytes of a file to a picture.

use std::{
    fs::File,
    io::{Cursor, Read as _},
    path::Path,
};

use crate::{
    decode_jpeg, decode_png,
    error::{PictureFileError, RATIO_MAX, SIDE_MAX},
    format::PictureFormat,
};
use spotter_core::Picture;

/// Pixels of a user's own file: what a phone takes at most, 300 MB once it is decoded.
pub const FILE_PIXELS_MAX: usize = 100_000_000;
/// Bytes of a user's own file.
const FILE_BYTES_MAX: u64 = 256 << 20;

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
