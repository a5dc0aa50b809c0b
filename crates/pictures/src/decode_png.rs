//! PNG in all its kinds; of an animation its still picture.

use std::io::{self, BufRead, Seek};

use png::{BitDepth, Decoder, DecodingError, Limits, Transformations};

use crate::{error::PictureFileError, open::DecodedFile, orientation::Orientation};

/// Bytes of rows and of chunks that the decoder may hold beside the picture. Chunks of edited pictures have megabytes.
const WORKING_BYTES_MAX: usize = 64 << 20;

pub(crate) fn decode(
    file: impl BufRead + Seek,
    check_size: impl FnOnce(usize, usize) -> Result<(), PictureFileError>,
) -> Result<DecodedFile, PictureFileError> {
    let limits = Limits {
        bytes: WORKING_BYTES_MAX,
    };
    let mut decoder = Decoder::new_with_limits(file, limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(wrong)?;
    let (width, height) = (header.width as usize, header.height as usize);
    check_size(width, height)?;
    // Palettes become colours, and fewer than 8 bits become 8.
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(wrong)?;
    let (colours, depth) = reader.output_color_type();
    let too_large = || PictureFileError::Damaged {
        reason: "its size does not fit its header".to_owned(),
    };
    let mut pixels = vec![0; reader.output_buffer_size().ok_or_else(too_large)?];
    reader.next_frame(&mut pixels).map_err(wrong)?;
    // EXIF may be behind the pixels, which are complete even when that is damaged.
    let _ = reader.finish();
    let exif = reader.info().exif_metadata.as_deref();
    let orientation = exif.map(Orientation::of_exif).unwrap_or_default();
    let sample_bytes = if depth == BitDepth::Sixteen { 2 } else { 1 };
    let rgb = match (colours.samples(), sample_bytes) {
        (3, 1) => pixels,
        (samples, bytes) => rgb_of(&pixels, samples, bytes),
    };
    Ok(DecodedFile {
        rgb,
        width,
        height,
        orientation,
    })
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

fn wrong(error: DecodingError) -> PictureFileError {
    match error {
        DecodingError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            PictureFileError::EndsEarly
        }
        other => PictureFileError::Damaged {
            reason: other.to_string(),
        },
    }
}
