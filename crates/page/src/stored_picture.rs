//! The stored picture of an event, in its own size or in that of a list.
//!
//! A browser keeps decoded pictures: 5,000 of 1920 x 1080 pixels need hundreds of megabytes there.

use std::ops::RangeInclusive;

use spotter_core::{Drawing, Picture};
use spotter_pictures::{RgbPixels, decode, jpeg_photo};

/// Pixels across that may be asked for.
const WIDTHS: RangeInclusive<usize> = 160..=1920;
/// Faces are recognised, and 320 x 180 pixels are about 15 kB.
const QUALITY: u8 = 75;
/// Of a stored picture, which is at most 1920 pixels wide.
const PIXELS_MAX: usize = 16_000_000;

/// The query of a picture's address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PictureQuery {
    /// `v`: the number of the picture.
    pub number: Option<u64>,
    /// `width`: pixels across at most.
    pub width: Option<usize>,
}

impl PictureQuery {
    /// Returns what is wrong with a width. A `v` that is no number names no picture.
    pub fn read(query: Option<&str>) -> Result<Self, String> {
        let mut read = Self::default();
        let pairs = query.unwrap_or_default().split('&');
        for (key, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            match key {
                "v" => read.number = value.parse().ok(),
                "width" => read.width = Some(width(value)?),
                _ => {}
            }
        }
        Ok(read)
    }
}

fn width(value: &str) -> Result<usize, String> {
    let width = value.parse().ok().filter(|width| WIDTHS.contains(width));
    let (least, most) = (WIDTHS.start(), WIDTHS.end());
    width.ok_or_else(|| format!("width: a picture is {least} to {most} pixels wide"))
}

/// The file with at most `width` pixels across; the file itself if it is not wider or is damaged. Blocks for some tens of milliseconds.
pub(crate) fn at_most_wide(jpeg: Vec<u8>, width: usize) -> Vec<u8> {
    let whole = decode(&jpeg, PIXELS_MAX).ok();
    let wider = whole.filter(|whole| whole.width() > width);
    wider
        .and_then(|whole| smaller(whole, width))
        .unwrap_or(jpeg)
}

fn smaller(whole: Picture, width: usize) -> Option<Vec<u8>> {
    let height = (whole.height() * width / whole.width()).max(1);
    let small = Drawing::scaled(whole, (width, height)).draw()?;
    let rows = (0..height).flat_map(|y| small.row(0, y));
    let pixels = RgbPixels {
        rgb: &rows.copied().collect::<Vec<u8>>(),
        width,
        height,
    };
    jpeg_photo(pixels, QUALITY).ok()
}

#[cfg(test)]
mod tests {
    use spotter_street::{Street, draw};

    use super::*;

    #[test]
    fn widths_out_of_range_are_refused() {
        let read = |query| PictureQuery::read(Some(query));
        let (number, width) = (Some(7), Some(320));
        assert_eq!(read("v=7&width=320"), Ok(PictureQuery { number, width }));
        assert_eq!(read("v=x&other").unwrap(), PictureQuery::default());
        assert_eq!(PictureQuery::read(None).unwrap(), PictureQuery::default());
        for width in [
            "0",
            "159",
            "1921",
            "-320",
            "",
            "320.5",
            "99999999999999999999",
        ] {
            let query = format!("v=7&width={width}");
            let error = PictureQuery::read(Some(&query)).unwrap_err();
            assert!(error.contains("160 to 1920"), "{error}");
        }
    }

    #[test]
    fn wide_pictures_get_smaller_and_others_stay() {
        let street = Street::new(7).at(spotter_core::WallTime::from_unix_millis(1_780_318_245_000));
        let (width, height) = (641, 361);
        let rgb = draw(&street, 641, 361);
        let jpeg = jpeg_photo(
            RgbPixels {
                rgb: &rgb,
                width,
                height,
            },
            80,
        )
        .unwrap();
        let small = at_most_wide(jpeg.clone(), 320);
        assert!(small.len() < jpeg.len() / 2, "{} bytes", small.len());
        let shown = decode(&small, PIXELS_MAX).unwrap();
        assert_eq!(shown.size(), (320, 180));
        // The mean colour is the same.
        let mean = |picture: &Picture| {
            let bytes = (0..picture.height()).flat_map(|y| picture.row(0, y));
            let sum: u64 = bytes.map(|&byte| u64::from(byte)).sum();
            sum / (picture.width() * picture.height() * 3) as u64
        };
        let whole = decode(&jpeg, PIXELS_MAX).unwrap();
        assert!(mean(&shown).abs_diff(mean(&whole)) <= 2);
        assert_eq!(at_most_wide(jpeg.clone(), 641), jpeg);
        assert_eq!(at_most_wide(b"no JPEG".to_vec(), 320), b"no JPEG");
    }
}
