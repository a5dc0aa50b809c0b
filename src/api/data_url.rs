//! The picture of a request: a data URL with a JPEG or PNG file in base64. Nothing is ever fetched.

use std::io::Cursor;

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use image::{ImageFormat, ImageReader, Limits};

use spotter_core::Picture;
use spotter_engine::model::picture_from_image;

/// The largest picture, in pixels: 75 MB once it is decoded.
const PIXELS_MAX: u64 = 25_000_000;
/// What a decoder may allocate, bytes.
const DECODER_MAX_BYTES: u64 = 256 << 20;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The picture in a URL, or what is wrong with it. Takes up to half a second.
pub fn picture(url: &str) -> Result<Picture, String> {
    decoded(&bytes(url)?)
}

fn bytes(url: &str) -> Result<Vec<u8>, String> {
    let Some(rest) = url.strip_prefix("data:") else {
        let is_remote = url.starts_with("http://") || url.starts_with("https://");
        return Err(match is_remote {
            true => "Spotter fetches no pictures; send it as \"data:image/jpeg;base64,…\"",
            false => "the image URL must start with \"data:image/jpeg;base64,\" or \"data:image/png;base64,\"",
        }
        .to_owned());
    };
    let encoded = rest
        .split_once(',')
        .and_then(|(kind, data)| kind.ends_with(";base64").then_some(data));
    let encoded = encoded.ok_or("the data URL of the image is not in base64")?;
    BASE64
        .decode(encoded.trim())
        .map_err(|error| format!("the base64 of the image is damaged: {error}"))
}

fn decoded(bytes: &[u8]) -> Result<Picture, String> {
    // The file says what it is; the type in the URL is often wrong.
    let format = match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Jpeg | ImageFormat::Png)) => format,
        Ok(other) => {
            let name = format!("{other:?}").to_uppercase();
            return Err(format!("the image is {name}; convert it to JPEG or PNG"));
        }
        Err(_) => return Err("the image is neither JPEG nor PNG".to_owned()),
    };
    let reader = || ImageReader::with_format(Cursor::new(bytes), format);
    let damaged = |error| format!("the image is damaged: {error}");
    let (width, height) = reader().into_dimensions().map_err(damaged)?;
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        return Err(format!(
            "the image has {width} x {height} pixels; scale it to at most {PIXELS_MAX}"
        ));
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODER_MAX_BYTES);
    let mut reader = reader();
    reader.limits(limits);
    let image = reader.decode().map_err(damaged)?;
    picture_from_image(image).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    fn file(format: ImageFormat) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        let image = image::RgbImage::from_pixel(30, 20, image::Rgb([200, 10, 10]));
        image.write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    fn url(bytes: &[u8]) -> String {
        format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(bytes))
    }

    #[test]
    fn jpeg_and_png_become_pictures() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png] {
            let url = url(&file(format));
            assert_eq!(picture(&url).unwrap().size(), (30, 20));
            let unpadded = url.trim_end_matches('=');
            assert_eq!(picture(unpadded).unwrap().size(), (30, 20));
        }
    }

    #[test]
    fn other_files_and_urls_are_refused_with_the_reason() {
        let mut cut = file(ImageFormat::Png);
        cut.truncate(60);
        // The header of a PNG of 50000 x 50000 pixels, whose check sum is wrong too.
        let mut huge = file(ImageFormat::Png);
        huge[16..24].copy_from_slice(&[0, 0, 0xc3, 0x50, 0, 0, 0xc3, 0x50]);
        for (url, part) in [
            (
                "https://example.net/a.jpg".to_owned(),
                "fetches no pictures",
            ),
            ("a.jpg".to_owned(), "must start with"),
            ("data:image/png,abc".to_owned(), "not in base64"),
            ("data:image/png;base64,!!!".to_owned(), "is damaged"),
            (url(b"some text"), "neither JPEG nor PNG"),
            (url(b"GIF89a\x01\x00\x01\x00"), "is GIF"),
            (url(b"RIFF\x10\x00\x00\x00WEBPVP8 "), "is WEBP"),
            (url(&cut), "is damaged"),
            (url(&huge), "damaged"),
            (url(&[]), "neither JPEG nor PNG"),
        ] {
            let error = picture(&url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn picture_with_too_many_pixels_is_not_decoded() {
        let mut file = Cursor::new(Vec::new());
        let image = image::GrayImage::new(25_001, 1_000);
        image.write_to(&mut file, ImageFormat::Png).unwrap();
        let error = picture(&url(file.get_ref())).unwrap_err();
        assert!(error.contains("25001 x 1000 pixels"), "{error}");
    }
}
