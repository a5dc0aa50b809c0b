//! Areas that the model must not see.

use std::sync::Arc;

use spotter_core::{NormPoint, Picture, PictureLayout, Polygon};

/// The blacked-out areas of one camera; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask {
    polygons: Vec<Polygon>,
}

impl Mask {
    /// From polygons in shares of the picture.
    pub fn new(polygons: &[Vec<(f64, f64)>]) -> Self {
        Self {
            polygons: polygons.iter().map(|p| Polygon::new(p)).collect(),
        }
    }

    /// True when nothing is blacked out.
    pub fn is_empty(&self) -> bool {
        self.polygons.is_empty()
    }

    /// Is `point` blacked out?
    pub fn covers(&self, point: NormPoint) -> bool {
        self.polygons.iter().any(|polygon| polygon.contains(point))
    }

    /// The picture with the areas painted black. It is a copy on the host (about 1.4 MB at 1280x720), because the decoder's
    /// memory must not be written; without areas it is the same memory, wherever that is.
    pub fn paint(&self, picture: &Picture) -> Picture {
        match self.is_empty() {
            true => picture.clone(),
            false => self.painted_copy(picture),
        }
    }

    /// The same, always as a copy on the host.
    pub fn painted_copy(&self, picture: &Picture) -> Picture {
        let (width, height, format) = (picture.width(), picture.height(), picture.format());
        let (mut planes, mut strides) = (Vec::new(), [0; 3]);
        for (index, stride) in strides.iter_mut().enumerate() {
            let Some((row_bytes, rows)) = format.plane_size(index, width, height) else {
                break;
            };
            *stride = row_bytes;
            let mut plane = Vec::with_capacity(row_bytes * rows);
            for y in 0..rows {
                plane.extend_from_slice(picture.row(index, y));
                let painted = &mut plane[y * row_bytes..];
                let middle = (y as f64 + 0.5) / rows as f64;
                let black = format.black(index, picture.range());
                self.paint_row(painted, middle, format.plane_step(index).0, black);
            }
            planes.push(plane);
        }
        let layout = PictureLayout {
            format,
            size: (width, height),
            strides,
            colour: (picture.matrix(), picture.range()),
        };
        #[expect(clippy::expect_used, reason = "the planes were made to measure above")]
        Picture::new(layout, Arc::new(planes)).expect("a copy has the layout of its original")
    }

    /// Paints the pixels of a row that an area touches. `middle` is the row's height in shares of the picture.
    fn paint_row(&self, row: &mut [u8], middle: f64, pixel_bytes: usize, black: u8) {
        let columns = (row.len() / pixel_bytes) as f64;
        for (from, to) in self.polygons.iter().flat_map(|p| p.spans(middle)) {
            let first = (from * columns).floor() as usize;
            let end = (to * columns).ceil() as usize;
            row[first * pixel_bytes..end * pixel_bytes].fill(black);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{ColourMatrix, ColourRange, PixelFormat};

    /// The upper half of the picture.
    fn sky() -> Mask {
        Mask::new(&[vec![(0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)]])
    }

    fn yuv(format: PixelFormat, planes: Vec<Vec<u8>>, strides: [usize; 3]) -> Picture {
        let layout = PictureLayout {
            format,
            size: (4, 4),
            strides,
            colour: (ColourMatrix::Bt709, ColourRange::Limited),
        };
        Picture::new(layout, Arc::new(planes)).unwrap()
    }

    fn plane(picture: &Picture, index: usize, rows: usize) -> Vec<u8> {
        let rows = (0..rows).map(|y| picture.row(index, y));
        rows.collect::<Vec<_>>().concat()
    }

    #[test]
    fn nv12_with_padded_rows() {
        // Rows of four pixels, six bytes apart: the padding must neither be copied nor painted.
        let planes = vec![vec![200; 6 * 4], vec![90; 6 * 2]];
        let original = yuv(PixelFormat::Nv12, planes, [6, 6, 0]);
        let painted = sky().paint(&original);
        assert_eq!(plane(&painted, 0, 4), [[16; 8], [200; 8]].concat());
        assert_eq!(plane(&painted, 1, 2), [[128; 4], [90; 4]].concat());
        assert_eq!(plane(&original, 0, 4), [200; 16], "untouched");
    }

    #[test]
    fn rgb_touched_pixels_are_black() {
        // A triangle over the left half of a 4 x 2 picture.
        let mask = Mask::new(&[vec![(0.0, 0.0), (0.5, 1.0), (0.0, 1.0)]]);
        let painted = mask.paint(&Picture::from_rgb(4, 2, vec![9; 24]).unwrap());
        let black = [0u8; 3];
        let kept = [9u8; 3];
        assert_eq!(painted.row(0, 0), [black, kept, kept, kept].concat());
        assert_eq!(painted.row(0, 1), [black, black, kept, kept].concat());
    }
}
