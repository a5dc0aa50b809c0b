//! Draws an answer into its picture.

use std::path::Path;

use anyhow::Context as _;
use tiny_skia::{Color, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke, Transform};

use crate::{
    domain::{AnswerBody, Picture},
    model,
};

/// Colours of successive objects, told apart also by people who see red and green alike (Okabe and Ito).
const COLOURS: [(u8, u8, u8); 6] = [
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (213, 94, 0),
    (204, 121, 167),
];

/// Writes `picture` with the boxes or points of `answer` as a PNG file.
pub fn write(path: &Path, picture: &Picture, answer: &AnswerBody) -> anyhow::Result<()> {
    let (width, height) = (picture.width(), picture.height());
    let mut canvas =
        Pixmap::new(width as u32, height as u32).context("the picture is too large to draw on")?;
    for (to, from) in canvas
        .pixels_mut()
        .iter_mut()
        .zip(model::rgb_from_picture(picture).chunks_exact(3))
    {
        let opaque = PremultipliedColorU8::from_rgba(from[0], from[1], from[2], 255);
        *to = opaque.unwrap_or(PremultipliedColorU8::TRANSPARENT);
    }
    let (w, h) = (width as f32, height as f32);
    let stroke_px = (w / 320.0).max(1.5);
    match answer {
        AnswerBody::Boxes(found) => {
            for (i, f) in found.iter().enumerate() {
                let b = f.place;
                let [x0, y0, x1, y1] = [b.x0, b.y0, b.x1, b.y1].map(|v| v as f32);
                if let Some(rect) = Rect::from_ltrb(x0 * w, y0 * h, x1 * w, y1 * h) {
                    outline(&mut canvas, &PathBuilder::from_rect(rect), i, stroke_px);
                }
            }
        }
        AnswerBody::Points(found) => {
            for (i, f) in found.iter().enumerate() {
                let (x, y) = (f.place.x as f32 * w, f.place.y as f32 * h);
                if let Some(ring) = PathBuilder::from_circle(x, y, 3.0 * stroke_px) {
                    outline(&mut canvas, &ring, i, stroke_px);
                }
            }
        }
        AnswerBody::Text { .. } => {}
    }
    let mut rgb = Vec::with_capacity(width * height * 3);
    for p in canvas.pixels() {
        rgb.extend([p.red(), p.green(), p.blue()]);
    }
    let format = image::ImageFormat::Png;
    image::save_buffer_with_format(
        path,
        &rgb,
        width as u32,
        height as u32,
        image::ColorType::Rgb8,
        format,
    )?;
    Ok(())
}

/// A dark line under a bright one is seen on every background.
fn outline(canvas: &mut Pixmap, path: &tiny_skia::Path, index: usize, stroke_px: f32) {
    let (r, g, b) = COLOURS[index % COLOURS.len()];
    for (colour, width) in [
        (Color::BLACK, stroke_px * 2.0),
        (Color::from_rgba8(r, g, b, 255), stroke_px),
    ] {
        let mut paint = Paint::default();
        paint.set_color(colour);
        let stroke = Stroke {
            width,
            ..Stroke::default()
        };
        canvas.stroke_path(path, &paint, &stroke, Transform::identity(), None);
    }
}
