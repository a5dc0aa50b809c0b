//! A picture in a message: planes one behind the other, rows without anything between them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{WireError, malformed};
use spotter_core::{ColourMatrix, ColourRange, Picture, PictureLayout, PixelFormat, Planes};

/// Longest side of a picture, pixels.
const SIDE_MAX: usize = 1 << 15;

/// Layout of a picture whose rows are one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PictureShape {
    format: PixelFormat,
    pub(super) width: usize,
    pub(super) height: usize,
    matrix: ColourMatrix,
    range: ColourRange,
}

/// The rows of all planes of a picture, in the order of a message. Brings a picture that is on a device to the host.
pub fn rows(picture: &Picture) -> impl Iterator<Item = &[u8]> {
    let planes = PictureShape::of(picture).planes().enumerate();
    planes.flat_map(move |(plane, (_, rows))| (0..rows).map(move |y| picture.row(plane, y)))
}

impl PictureShape {
    /// That of a picture, be its own rows apart.
    pub fn of(picture: &Picture) -> Self {
        Self {
            format: picture.format(),
            width: picture.width(),
            height: picture.height(),
            matrix: picture.matrix(),
            range: picture.range(),
        }
    }

    /// Bytes of a row, and rows, of each plane.
    fn planes(self) -> impl Iterator<Item = (usize, usize)> {
        (0..).map_while(move |plane| self.format.plane_size(plane, self.width, self.height))
    }

    /// Bytes of all planes; an error when no picture is so large.
    pub fn bytes(self) -> Result<usize, WireError> {
        let side = self.width.max(self.height);
        if side > SIDE_MAX {
            let size = (self.width, self.height);
            return Err(malformed(format!("a picture of {size:?} pixels")));
        }
        Ok(self.planes().map(|(row, rows)| row * rows).sum())
    }

    /// The picture of these bytes.
    pub fn picture(self, body: Vec<u8>) -> Result<Picture, WireError> {
        let (expected, found) = (self.bytes()?, body.len());
        if expected != found {
            let text = format!("{self:?} has {expected} bytes, its message {found}");
            return Err(malformed(text));
        }
        let (mut strides, mut starts, mut start) = ([0; 3], [0; 4], 0);
        for (plane, (row, rows)) in self.planes().enumerate() {
            start += row * rows;
            (strides[plane], starts[plane + 1]) = (row, start);
        }
        let planes = Arc::new(PackedPlanes { body, starts });
        let (size, colour) = ((self.width, self.height), (self.matrix, self.range));
        let picture = Picture::new(
            PictureLayout {
                format: self.format,
                size,
                strides,
                colour,
            },
            planes,
        );
        picture.map_err(malformed)
    }
}

/// Planes one behind the other.
struct PackedPlanes {
    body: Vec<u8>,
    /// Where each plane begins, and behind the last its end.
    starts: [usize; 4],
}

impl Planes for PackedPlanes {
    fn plane(&self, index: usize) -> &[u8] {
        &self.body[self.starts[index]..self.starts[index + 1]]
    }
}
