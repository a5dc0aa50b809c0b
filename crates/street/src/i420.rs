//! Packed I420 bytes as a picture.

use std::sync::Arc;

use spotter_core::{ColourMatrix, ColourRange, Picture, PictureError, PictureLayout, PixelFormat};

/// A picture of planes Y, U, V without padding, chroma at half size, rounded up; BT.601 limited range.
pub fn i420_picture(bytes: &[u8], width: usize, height: usize) -> Result<Picture, PictureError> {
    let (luma, chroma) = bytes.split_at((width * height).min(bytes.len()));
    let (u, v) = chroma.split_at(chroma.len() / 2);
    let chroma_row = width.div_ceil(2);
    Picture::new(
        PictureLayout {
            format: PixelFormat::I420,
            size: (width, height),
            strides: [width, chroma_row, chroma_row],
            colour: (ColourMatrix::Bt601, ColourRange::Limited),
        },
        Arc::new(vec![luma.to_vec(), u.to_vec(), v.to_vec()]),
    )
}
