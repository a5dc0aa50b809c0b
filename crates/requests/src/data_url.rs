//! The picture of a request: a data URL with a JPEG or PNG file in base64. Nothing is ever fetched.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use spotter_core::Picture;
use spotter_pictures::decode;

/// The largest picture, in pixels: 75 MB once it is decoded.
const PIXELS_MAX: usize = 25_000_000;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The picture in a URL, or what is wrong with it. Takes up to half a second.
pub fn picture(url: &str) -> Result<Picture, String> {
    picture_of_file(&bytes(url)?)
}

/// The same of a file's bytes.
pub fn picture_of_file(file: &[u8]) -> Result<Picture, String> {
    decode(file, PIXELS_MAX).map_err(|error| error.to_string())
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
    // MIME breaks lines.
    let is_broken = encoded.bytes().any(|byte| byte.is_ascii_whitespace());
    let joined = is_broken.then(|| encoded.split_ascii_whitespace().collect::<String>());
    BASE64
        .decode(joined.as_deref().unwrap_or(encoded))
        .map_err(|error| format!("the base64 of the image is damaged: {error}"))
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;
    use spotter_pictures::{RgbPixels, jpeg_file, png_file};

    const PIXELS: RgbPixels<'_> = RgbPixels {
        rgb: &[200; 30 * 20 * 3],
        width: 30,
        height: 20,
    };

    fn url(bytes: &[u8]) -> String {
        format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(bytes))
    }

    #[test]
    fn jpeg_and_png_become_pictures() {
        for file in [jpeg_file(PIXELS, 75).unwrap(), png_file(PIXELS).unwrap()] {
            let url = url(&file);
            assert_eq!(picture(&url).unwrap().size(), (30, 20));
            let unpadded = url.trim_end_matches('=');
            assert_eq!(picture(unpadded).unwrap().size(), (30, 20));
            let (kind, data) = url.split_once(',').unwrap();
            let lines = data
                .as_bytes()
                .chunks(76)
                .map(|line| str::from_utf8(line).unwrap());
            let lines: String = lines.map(|line| format!("{line}\r\n")).collect();
            let broken = format!("{kind},\n {lines}");
            assert_eq!(picture(&broken).unwrap().size(), (30, 20));
        }
    }

    #[test]
    fn other_files_and_urls_are_refused_with_the_reason() {
        let large = RgbPixels {
            rgb: &[0; 5_001 * 5_000 * 3],
            width: 5_001,
            height: 5_000,
        };
        let large = url(&png_file(large).unwrap());
        for (url, part) in [
            ("https://example.net/a.jpg", "fetches no pictures"),
            ("a.jpg", "must start with"),
            ("data:image/png,abc", "not in base64"),
            ("data:image/png;base64,!!!", "is damaged"),
            (&url(b"some text"), "neither JPEG nor PNG"),
            (&large, "5001 x 5000 pixels"),
        ] {
            let error = picture(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
