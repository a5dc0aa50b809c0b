//! From figures to pixels.

use tiny_skia::{Color, FillRule, Paint, Pixmap, Shader, Transform};

use super::{
    backdrop::{Band, backdrop},
    effects::{RgbaPicture, i420_from_rgba},
    figure::FigureShape,
    items::items,
};
use crate::scene::{CANVAS_HEIGHT, CANVAS_WIDTH, Scene};

/// Draws the scene as packed RGB, `width * height * 3` bytes; empty when a side is zero. Does not block; a few
/// milliseconds at 640x360.
pub fn draw(scene: &Scene, width: u32, height: u32) -> Vec<u8> {
    let pixels = |pixmap: Pixmap| {
        let pixels = pixmap.data().as_chunks::<4>().0.iter();
        pixels.flat_map(|&[r, g, b, _]| [r, g, b]).collect()
    };
    render(scene, width, height).map_or_else(Vec::new, pixels)
}

/// Draws the scene as I420 (planes Y, U, V without padding; chroma at half size, rounded up), BT.601 limited range.
pub fn draw_i420(scene: &Scene, width: u32, height: u32) -> Vec<u8> {
    let i420 = |pixmap: Pixmap| i420_from_rgba(pixmap.data(), width as usize, height as usize);
    render(scene, width, height).map_or_else(Vec::new, i420)
}

fn render(scene: &Scene, width: u32, height: u32) -> Option<Pixmap> {
    let mut pixmap = Pixmap::new(width, height)?;
    let scale = (width as f32 / CANVAS_WIDTH, height as f32 / CANVAS_HEIGHT);
    let pixel_from_canvas = Transform::from_scale(scale.0, scale.1);
    let (bands, far) = backdrop(scene);
    for band in &bands {
        fill_band(&mut pixmap, band, scale.1);
    }
    let items = items(scene).into_iter().flat_map(|item| item.shapes);
    for shape in far.into_iter().chain(items) {
        fill(&mut pixmap, &shape, pixel_from_canvas);
    }
    let mut picture = RgbaPicture {
        bytes: pixmap.data_mut(),
        width: width as usize,
        height: height as usize,
    };
    picture.apply_effects(scene);
    Some(pixmap)
}

fn fill(pixmap: &mut Pixmap, shape: &FigureShape, transform: Transform) {
    let [r, g, b] = shape.colour;
    let paint = Paint {
        shader: Shader::SolidColor(Color::from_rgba8(r, g, b, shape.alpha)),
        anti_alias: true,
        ..Paint::default()
    };
    pixmap.fill_path(&shape.path, &paint, FillRule::Winding, transform, None);
}

fn fill_band(pixmap: &mut Pixmap, band: &Band, scale_y: f32) {
    let (width, height) = (pixmap.width() as usize, pixmap.height() as usize);
    let (first, last) = (band.y.0 * scale_y, band.y.1 * scale_y);
    let rows = first.round().max(0.0) as usize..(last.round().max(0.0) as usize).min(height);
    for y in rows {
        let share = ((y as f32 + 0.5 - first) / (last - first)).clamp(0.0, 1.0);
        let [r, g, b] = super::shade::mix(band.top, band.bottom, share);
        let row = &mut pixmap.data_mut()[y * width * 4..(y + 1) * width * 4];
        for pixel in row.as_chunks_mut::<4>().0 {
            *pixel = [r, g, b, 255];
        }
    }
}
