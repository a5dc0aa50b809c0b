//! PNG in all its kinds; of an animation its still picture.

use std::io::{self, BufRead, Seek};

use png::{BitDepth, Decoder, DecodingError, Limits, Transformations};

use crate::{
    error::PictureFileError,
    orientation::{DecodedFile, Orientation},
    samples::rgb_of,
};

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
