//! Drawing on a picture: outlines around objects, shapes over them, and words beside them.
//!
//! Belongs here: lines, colours, letters. Does not belong here: files and formats, and the choice of objects.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster};
use tiny_skia::{
    Color, FillRule, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke, Transform,
};

use spotter_core::{Location, NormPoint};

/// Colours of successive objects, distinguishable with red-green colour blindness (Okabe and Ito).
const COLOURS: [(u8, u8, u8); 6] = [
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (213, 94, 0),
    (204, 121, 167),
];
/// Letters on a dark plate of the same height.
const LETTERS: RasterHeight = RasterHeight::Size20;
const PLATE_PX: u32 = 20;
/// Replaces letters that the font does not have.
const UNKNOWN: char = '\u{fffd}';

/// A picture that is drawn on.
pub struct Canvas {
    pixels: Pixmap,
    stroke_px: f32,
}

impl Canvas {
    /// With the packed `rgb` of a picture on it. `None` when it has no pixels or more than can be drawn on.
    pub fn new(rgb: &[u8], width: usize, height: usize) -> Option<Self> {
        let size = u32::try_from(width).ok().zip(u32::try_from(height).ok());
        let mut pixels = size.and_then(|(width, height)| Pixmap::new(width, height))?;
        for (to, from) in pixels.pixels_mut().iter_mut().zip(rgb.chunks_exact(3)) {
            *to = opaque(from[0], from[1], from[2]);
        }
        Some(Self {
            pixels,
            stroke_px: (width as f32 / 320.0).max(1.5),
        })
    }

    /// Marks a place in the colour of the `index`-th object: a box with its outline, a point with a ring around it.
    pub fn mark(&mut self, index: usize, place: Location) {
        let (w, h) = (self.pixels.width() as f32, self.pixels.height() as f32);
        let path = match place {
            Location::Box(b) => {
                let [x0, y0, x1, y1] = [b.x0, b.y0, b.x1, b.y1].map(|v| v as f32);
                Rect::from_ltrb(x0 * w, y0 * h, x1 * w, y1 * h).map(PathBuilder::from_rect)
            }
            Location::Point(p) => {
                let (x, y) = (p.x as f32 * w, p.y as f32 * h);
                PathBuilder::from_circle(x, y, 3.0 * self.stroke_px)
            }
        };
        if let Some(path) = path {
            self.outline(&path, index);
        }
    }

    /// Marks the inside of polygons in the colour of the `index`-th object, half transparent, with their outline around it. What two
    /// of them enclose in opposite directions is not inside.
    pub fn fill(&mut self, index: usize, polygons: &[Vec<NormPoint>]) {
        let (w, h) = (self.pixels.width() as f32, self.pixels.height() as f32);
        let mut path = PathBuilder::new();
        for polygon in polygons {
            let mut points = polygon.iter().map(|p| (p.x as f32 * w, p.y as f32 * h));
            if let Some((x, y)) = points.next() {
                path.move_to(x, y);
                points.for_each(|(x, y)| path.line_to(x, y));
                path.close();
            }
        }
        let Some(path) = path.finish() else {
            return;
        };
        let (r, g, b) = COLOURS[index % COLOURS.len()];
        let mut paint = Paint::default();
        paint.set_color(Color::from_rgba8(r, g, b, 110));
        let still = Transform::identity();
        self.pixels
            .fill_path(&path, &paint, FillRule::Winding, still, None);
        self.outline(&path, index);
    }

    /// Writes one line of words above the place, or inside of it where there is no space above. Text that leaves the
    /// picture is cut off.
    pub fn label(&mut self, index: usize, place: Location, words: &str) {
        let letters: Vec<RasterizedChar> = words
            .chars()
            .filter_map(|letter| raster(letter).or_else(|| raster(UNKNOWN)))
            .collect();
        let width: usize = letters.iter().map(RasterizedChar::width).sum();
        let (w, h) = (self.pixels.width(), self.pixels.height());
        let margin = self.stroke_px.ceil() as u32;
        let (left, top, below) = match place {
            Location::Box(b) => (b.x0, b.y0, margin),
            // Clear of the ring.
            Location::Point(p) => (p.x, p.y, 5 * margin),
        };
        let left = ((left.max(0.0) * f64::from(w)) as u32).min(w.saturating_sub(width as u32));
        let top = (top.max(0.0) * f64::from(h)) as u32;
        let top = match top.checked_sub(PLATE_PX + below) {
            Some(above) => above,
            None => top + below,
        };
        let (r, g, b) = COLOURS[index % COLOURS.len()];
        let mut x = left;
        for letter in &letters {
            for (row, y) in letter.rows().zip(top..) {
                for (&strength, x) in row.iter().zip(x..) {
                    let ink = |colour: u8| (u16::from(colour) * u16::from(strength) / 255) as u8;
                    self.dot(x, y, opaque(ink(r), ink(g), ink(b)));
                }
            }
            x += letter.width() as u32;
        }
    }

    /// The pixels, packed RGB.
    pub fn into_rgb(self) -> Vec<u8> {
        let pixels = self.pixels.pixels().iter();
        pixels
            .flat_map(|p| [p.red(), p.green(), p.blue()])
            .collect()
    }

    /// A dark line under a bright one is seen on every background.
    fn outline(&mut self, path: &tiny_skia::Path, index: usize) {
        let (r, g, b) = COLOURS[index % COLOURS.len()];
        for (colour, width) in [
            (Color::BLACK, self.stroke_px * 2.0),
            (Color::from_rgba8(r, g, b, 255), self.stroke_px),
        ] {
            let mut paint = Paint::default();
            paint.set_color(colour);
            let stroke = Stroke {
                width,
                ..Stroke::default()
            };
            let still = Transform::identity();
            self.pixels.stroke_path(path, &paint, &stroke, still, None);
        }
    }

    fn dot(&mut self, x: u32, y: u32, colour: PremultipliedColorU8) {
        let (width, height) = (self.pixels.width(), self.pixels.height());
        if x < width && y < height {
            self.pixels.pixels_mut()[(y * width + x) as usize] = colour;
        }
    }
}

fn raster(letter: char) -> Option<RasterizedChar> {
    get_raster(letter, FontWeight::Regular, LETTERS)
}

fn opaque(r: u8, g: u8, b: u8) -> PremultipliedColorU8 {
    PremultipliedColorU8::from_rgba(r, g, b, 255).unwrap_or(PremultipliedColorU8::TRANSPARENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_covers_its_inside_half_and_not_its_hole() {
        let (width, height) = (96, 96);
        let white = vec![255; 3 * width * height];
        let mut canvas = Canvas::new(&white, width, height).expect("a canvas");
        let square = |low: f64, high: f64| {
            [(low, low), (high, low), (high, high), (low, high)]
                .map(|(x, y)| NormPoint::new(x, y))
                .to_vec()
        };
        // A square that runs in the other direction is a hole.
        let mut hole = square(0.4, 0.6);
        hole.reverse();
        canvas.fill(0, &[square(0.1, 0.9), hole]);
        let rgb = canvas.into_rgb();
        let at = |x: usize, y: usize| &rgb[3 * (y * width + x)..][..3];
        assert_eq!(at(2, 2), [255; 3], "outside");
        assert_eq!(at(48, 48), [255; 3], "the hole");
        let (r, g, b) = COLOURS[0];
        let inside = at(24, 48);
        assert!(inside[2] > b && inside[2] < 255, "{inside:?}");
        assert!(inside[0] > r && inside[1] > g, "{inside:?}");
    }
}
