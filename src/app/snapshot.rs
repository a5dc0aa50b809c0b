//! A look's picture as a JPEG of bounded size, with what was found drawn into it.
//!
//! The frame of a look is masked already, so what is masked is black here too.
//!
//! Belongs here: the picture, also the thumbnail of the status page. Does not belong here: when one is taken (`snapshots`) and
//! where it goes (`publish`).

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};

use super::canvas::Canvas;
use spotter_core::{Drawing, Location, ObjectOutline, Picture};
use spotter_engine::model;
use spotter_pictures::{RgbPixels, jpeg_file, jpeg_photo};

/// Largest size of a snapshot (docs/mqtt.md section 4).
pub const BYTES_MAX: usize = 256 * 1024;
/// Tried in this order: what is lost in quality is seen less than what is lost in size. The last width is small enough for
/// noise of any aspect that a camera has.
const WIDTHS: [usize; 5] = [1280, 960, 640, 480, 320];
const QUALITIES: [u8; 4] = [85, 70, 55, 40];
/// Faces are recognised, and 640 x 360 pixels are about 40 kB.
const THUMBNAIL_QUALITY: u8 = 75;

/// Pixels across of the picture of now at most: that of a screen.
const NOW_WIDTH: usize = 1920;
/// Pixels across of a stored picture at most.
const HISTORY_WIDTH: usize = 1920;
/// Pictures are looked at again, by people and by the model: 1920 x 1080 pixels are 150 to 400 kB.
const HISTORY_QUALITY: u8 = 80;

/// A found thing, and the words beside it; none when they are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub place: Location,
    /// Drawn instead of the place.
    pub outline: Option<Arc<ObjectOutline>>,
    /// What, and how sure.
    pub words: String,
}

impl Mark {
    /// With the prompt's words and the score: "person 83 %".
    pub fn of(place: Location, words: &str, score: f64) -> Self {
        let percent = (score * 100.0).round().clamp(0.0, 100.0);
        Self {
            place,
            outline: None,
            words: format!(" {words} {percent:.0} % "),
        }
    }
}

/// The JPEG of a picture with its marks, at most [`BYTES_MAX`] bytes and 1280 pixels wide, in the best quality that fits.
/// Blocks for some tens of milliseconds, with noise for some hundred; copies a picture from the GPU to the host first.
pub fn jpeg(picture: &Picture, marks: &[Mark]) -> anyhow::Result<Vec<u8>> {
    fetch(picture)?;
    for width in widths(picture.width()) {
        let page = drawn(picture, width, marks).with_context(|| too_large(picture))?;
        for quality in QUALITIES {
            let jpeg = encode(&page, quality)?;
            if jpeg.len() <= BYTES_MAX {
                return Ok(jpeg);
            }
        }
    }
    bail!(too_large(picture))
}

/// A copy in the size of a snapshot, which holds no memory of a decoder. Blocks for some milliseconds.
pub fn small_copy(picture: &Picture) -> Option<Picture> {
    let scaled = scaled(picture, picture.width().min(WIDTHS[0]))?;
    let (width, height) = scaled.size();
    Picture::from_rgb(width, height, model::rgb_from_picture(&scaled)).ok()
}

/// A JPEG of a picture for the status page, at most this wide, without marks. Blocks for some milliseconds; copies a picture from
/// the GPU to the host first.
pub fn thumbnail(picture: &Picture, width: usize) -> anyhow::Result<Vec<u8>> {
    fetch(picture)?;
    let small = scaled(picture, picture.width().min(width)).with_context(|| too_large(picture))?;
    encode(&small, THUMBNAIL_QUALITY)
}

/// A JPEG of what a camera shows now, in its own size if it is not wider than 1920 pixels. Blocks for some tens of milliseconds.
pub fn picture_now(picture: &Picture) -> anyhow::Result<Vec<u8>> {
    let width = picture.width().min(NOW_WIDTH);
    let shown = scaled(picture, width).with_context(|| too_large(picture))?;
    encode(&shown, QUALITIES[0])
}

/// A JPEG of a picture for the history, without marks. Blocks for some tens of milliseconds; copies a picture from the GPU to the host first.
pub fn history_picture(picture: &Picture) -> anyhow::Result<Vec<u8>> {
    fetch(picture)?;
    let width = picture.width().min(HISTORY_WIDTH);
    let page = scaled(picture, width).context("the picture cannot be scaled")?;
    let pixels = RgbPixels {
        rgb: &model::rgb_from_picture(&page),
        width: page.width(),
        height: page.height(),
    };
    Ok(jpeg_photo(pixels, HISTORY_QUALITY)?)
}

fn too_large(picture: &Picture) -> String {
    format!(
        "a picture of {}x{} pixels gives no JPEG of at most {BYTES_MAX} bytes; its sides differ too much",
        picture.width(),
        picture.height()
    )
}

/// The picture's own width where it is not larger than wanted, and every smaller one.
fn widths(own: usize) -> impl Iterator<Item = usize> {
    let first = own.min(WIDTHS[0]);
    let smaller = WIDTHS.into_iter().filter(move |&width| width < first);
    std::iter::once(first).chain(smaller)
}

/// The picture in that width with its marks. Scaled first, so that lines and letters stay sharp.
fn drawn(whole: &Picture, width: usize, marks: &[Mark]) -> Option<Picture> {
    let scaled = scaled(whole, width)?;
    let (width, height) = scaled.size();
    let mut canvas = Canvas::new(&model::rgb_from_picture(&scaled), width, height)?;
    for (index, mark) in marks.iter().enumerate() {
        match &mark.outline {
            Some(outline) => canvas.fill(index, &outline.polygons),
            None => canvas.mark(index, mark.place),
        }
    }
    // Above every line.
    for (index, mark) in marks.iter().enumerate() {
        canvas.label(index, mark.place, &mark.words);
    }
    Picture::from_rgb(width, height, canvas.into_rgb()).ok()
}

/// The picture as it is, or in a smaller width, which is even. Scaled before the conversion to RGB, which takes longer.
fn scaled(picture: &Picture, width: usize) -> Option<Picture> {
    if width == picture.width() {
        return Some(picture.clone());
    }
    let height = (picture.height() * width / picture.width()).next_multiple_of(2);
    Drawing::scaled(picture.clone(), (width, height.max(2))).draw()
}

/// Copies a picture from the GPU to the host.
fn fetch(picture: &Picture) -> anyhow::Result<()> {
    ensure!(
        picture.is_on_host() || picture.fetch(),
        "the picture cannot be fetched from the GPU; is the device failing?"
    );
    Ok(())
}

fn encode(page: &Picture, quality: u8) -> anyhow::Result<Vec<u8>> {
    let pixels = RgbPixels {
        rgb: &model::rgb_from_picture(page),
        width: page.width(),
        height: page.height(),
    };
    Ok(jpeg_file(pixels, quality)?)
}

#[cfg(test)]
mod tests;
