//! JPEG: baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK.

use zune_jpeg::{
    JpegDecoder,
    errors::DecodeErrors,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use crate::{
    error::PictureFileError,
    orientation::{DecodedFile, Orientation},
    samples::rgb_of,
};

/// Width and height, from the first bytes of a file. `None`: it is no JPEG, or these bytes have no size.
pub fn jpeg_size(head: &[u8]) -> Option<(usize, usize)> {
    let mut decoder = JpegDecoder::new(ZCursor::new(head));
    decoder.decode_headers().ok()?;
    decoder.dimensions()
}

pub(crate) fn decode(
    mut file: &[u8],
    check_size: impl FnOnce(usize, usize) -> Result<(), PictureFileError>,
) -> Result<DecodedFile, PictureFileError> {
    // The decoder takes a second start for a header with a length.
    while file.get(2..4) == Some(&[0xff, 0xd8]) {
        file = &file[2..];
    }
    // The decoder finds a cut everywhere but in the last row of blocks.
    if !has_end(file) {
        return Err(PictureFileError::EndsEarly);
    }
    // The decoder's own limits are 16,384 a side; its message lacks the sizes.
    let options = DecoderOptions::default()
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX);
    // Some programs write bytes between the headers, which viewers pass over.
    let mut decoder =
        JpegDecoder::new_with_options(ZCursor::new(file), options.set_strict_mode(false));
    decoder.decode_headers().map_err(wrong)?;
    let (width, height) = decoder.dimensions().unwrap_or_default();
    check_size(width, height)?;
    // A lenient decoder paints grey what is damaged.
    let is_grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let colours = if is_grey {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    decoder.set_options(
        options
            .set_strict_mode(true)
            .jpeg_set_out_colorspace(colours),
    );
    let orientation = decoder.exif().map(|exif| Orientation::of_exif(exif));
    let pixels = decoder.decode().map_err(wrong)?;
    let rgb = if is_grey {
        rgb_of(&pixels, 1, 1)
    } else {
        pixels
    };
    Ok(DecodedFile {
        rgb,
        width,
        height,
        orientation: orientation.unwrap_or_default(),
    })
}

fn wrong(error: DecodeErrors) -> PictureFileError {
    match error {
        DecodeErrors::Unsupported(scheme) => PictureFileError::UnsupportedJpeg {
            reason: format!("{scheme:?}"),
        },
        other => PictureFileError::Damaged {
            reason: other.to_string(),
        },
    }
}

/// Is there an end's marker behind the first scan's header? Headers may have pictures of their own, with their ends.
fn has_end(file: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // Bytes between headers are passed over, as the decoder does.
        let Some(marker) = file
            .get(at..)
            .and_then(|rest| rest.iter().position(|&b| b == 0xff))
        else {
            return false;
        };
        at += marker;
        match file.get(at + 1..at + 4) {
            Some([0xda, ..]) => return file[at..].windows(2).any(|two| two == [0xff, 0xd9]),
            // TEM, restarts, start and end have no length.
            Some([0x01 | 0xd0..=0xd9, ..]) => at += 2,
            Some([0xc0..=0xfe, high, low]) => {
                at += 2 + usize::from(u16::from_be_bytes([*high, *low]));
            }
            Some(_) => at += 1,
            None => return false,
        }
    }
}
