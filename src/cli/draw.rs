//! Draws an answer into its picture.

use std::path::Path;

use anyhow::Context as _;

use crate::app::Canvas;
use spotter_core::{AnswerBody, Location, Picture};
use spotter_engine::model;

/// Writes `picture` with the boxes or points of `answer` as a PNG file.
pub fn write(path: &Path, picture: &Picture, answer: &AnswerBody) -> anyhow::Result<()> {
    let canvas = Canvas::new(
        &model::rgb_from_picture(picture),
        picture.width(),
        picture.height(),
    );
    let mut canvas = canvas.context("the picture is too large to draw on")?;
    let places: Vec<Location> = match answer {
        AnswerBody::Boxes(found) => found.iter().map(|f| Location::Box(f.place)).collect(),
        AnswerBody::Points(found) => found.iter().map(|f| Location::Point(f.place)).collect(),
        AnswerBody::Text { .. } => Vec::new(),
    };
    for (index, place) in places.into_iter().enumerate() {
        canvas.mark(index, place);
    }
    image::save_buffer_with_format(
        path,
        &canvas.into_rgb(),
        picture.width() as u32,
        picture.height() as u32,
        image::ColorType::Rgb8,
        image::ImageFormat::Png,
    )?;
    Ok(())
}
