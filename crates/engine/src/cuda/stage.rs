//! Copies of a step's decoded frames to the GPU. The host only copies bytes; frames that a decoder left on a GPU are copied on the
//! device.
//!
//! ```text
//!   planes on the host ─▶ pinned ─┬─▶ the slot's buffer
//!   planes on a GPU ──────────────┘
//! ```

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{
    error::CudaError,
    foreign::{ForeignMemory, ForeignRows},
    kernels::{PixelSize, PlanarFrame},
    memory::{Buffer, PinnedBuffer, upload},
};
use crate::model::yuv_coefficients;
use spotter_core::Picture;

/// Memory for the frames of one slot: a buffer on the GPU and a pinned one of the same size.
pub struct FrameStage {
    host: PinnedBuffer<u8>,
    device: Buffer<u8>,
    used: usize,
    /// Pictures that are copied from decoders' memory; held until the copies have ended.
    held: Vec<Picture>,
    /// The driver rejected such a copy.
    is_rejected: bool,
}

impl FrameStage {
    /// Bytes that a picture of so many pixels takes at most, in any format and shape.
    pub fn bytes_for(pixels: usize) -> usize {
        pixels * 3 + 3 * ALIGNED
    }

    /// Room for `bytes` of frames.
    pub fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self {
            host: PinnedBuffer::zeros(bytes)?,
            device: Buffer::zeros(stream, bytes)?,
            used: 0,
            held: Vec::new(),
            is_rejected: false,
        })
    }

    /// Queues the copies of a step's pictures on the stream `copies`. The slot's last step must have ended.
    pub fn put(
        &mut self,
        copies: &Arc<CudaStream>,
        pictures: &[&Picture],
    ) -> Result<Vec<PlanarFrame>, CudaError> {
        self.release();
        let needed: usize = pictures.iter().map(|picture| bytes(picture)).sum();
        let room = self.host.as_slice().len();
        if needed > room {
            return Err(CudaError::TooLarge(format!(
                "the pictures of a step take {needed} bytes, its buffers have {room}; use smaller pictures"
            )));
        }
        self.used = 0;
        let mut staged = vec![None; pictures.len()];
        for (staged, picture) in staged.iter_mut().zip(pictures) {
            *staged = self.copy_on_device(copies, picture);
        }
        for (staged, picture) in staged.iter_mut().zip(pictures) {
            if staged.is_none() {
                *staged = Some(self.copy_from_host(copies, picture)?);
            }
        }
        Ok(staged.into_iter().flatten().collect())
    }

    /// Returns the decoders' buffers. The slot's last step must have ended.
    pub fn release(&mut self) {
        self.held.clear();
    }

    /// Queues copies of a picture that a decoder left on a GPU. `None` for others, and, with one log message, when the driver
    /// rejects it.
    fn copy_on_device(&mut self, copies: &CudaStream, picture: &Picture) -> Option<PlanarFrame> {
        let from = picture.on_device()?;
        let memory: &ForeignMemory = from.memory.downcast_ref()?;
        // Held before the first copy is queued, which runs even when the next one is rejected.
        self.held.push(picture.clone());
        let begin = self.used;
        let staged = self.place(picture, |stage, index, row_bytes, rows| {
            let source = ForeignRows {
                offset: from.offsets[index],
                stride: picture.stride(index),
                row_bytes,
                rows,
            };
            memory.copy_rows(copies, source, stage.device.start().at(stage.used))
        });
        match staged {
            Ok(staged) => Some(staged),
            Err(error) => {
                if !self.is_rejected {
                    tracing::warn!("decoded frames are copied through the host: {error}");
                }
                (self.is_rejected, self.used) = (true, begin);
                None
            }
        }
    }

    /// Copies a picture's rows to pinned memory and queues their upload. The GPU waits for it, so other threads copy a part of large
    /// pictures; this thread begins at once, because the others take time to wake up.
    fn copy_from_host(
        &mut self,
        copies: &CudaStream,
        picture: &Picture,
    ) -> Result<PlanarFrame, CudaError> {
        let begin = self.used;
        let mut pieces = Vec::new();
        let staged = self.place(picture, |stage, index, row_bytes, rows| {
            pieces.extend(Piece::of_plane(index, row_bytes, rows, stage.used));
            Ok(())
        })?;
        let (mut room, mut at) = (&mut self.host.as_mut_slice()[begin..self.used], begin);
        rayon::in_place_scope(|others| {
            let mut own = Vec::new();
            for piece in pieces {
                let (_, behind) = std::mem::take(&mut room).split_at_mut(piece.first - at);
                let (to, behind) = behind.split_at_mut(piece.bytes());
                at = piece.first + piece.bytes();
                room = behind;
                if piece.first - begin < OWN_BYTES {
                    own.push((piece, to));
                } else {
                    others.spawn(move |_| piece.copy(picture, to));
                }
            }
            for (piece, to) in own {
                piece.copy(picture, to);
            }
        });
        let to = self.device.start().at(begin);
        upload(copies, &self.host, begin..self.used, to)?;
        Ok(staged)
    }

    /// Assigns a place to each plane, from [`FrameStage::used`] on, and calls `fill` for its number, bytes of a row, and rows.
    fn place(
        &mut self,
        picture: &Picture,
        mut fill: impl FnMut(&mut Self, usize, usize, usize) -> Result<(), CudaError>,
    ) -> Result<PlanarFrame, CudaError> {
        let (format, width, height) = (picture.format(), picture.width(), picture.height());
        let mut planes = [self.device.start(); 3];
        let mut strides = [0; 2];
        for (index, plane) in planes.iter_mut().enumerate() {
            let Some((row_bytes, rows)) = format.plane_size(index, width, height) else {
                break;
            };
            *plane = self.device.start().at(self.used);
            strides[index.min(1)] = row_bytes;
            fill(self, index, row_bytes, rows)?;
            self.used = (self.used + row_bytes * rows).next_multiple_of(ALIGNED);
        }
        Ok(PlanarFrame {
            planes,
            format,
            strides,
            yuv: yuv_coefficients(picture.matrix(), picture.range()),
            size: PixelSize { width, height },
        })
    }
}

/// Rows of a plane that a thread copies.
struct Piece {
    plane: usize,
    top: usize,
    rows: usize,
    row_bytes: usize,
    /// Where they begin in the buffer.
    first: usize,
}

impl Piece {
    /// All pieces of a plane that begins at `first` of the buffer.
    fn of_plane(
        plane: usize,
        row_bytes: usize,
        rows: usize,
        first: usize,
    ) -> impl Iterator<Item = Self> {
        let at_once = PIECE_BYTES.div_ceil(row_bytes);
        (0..rows).step_by(at_once).map(move |top| Self {
            plane,
            top,
            rows: at_once.min(rows - top),
            row_bytes,
            first: first + top * row_bytes,
        })
    }

    fn bytes(&self) -> usize {
        self.rows * self.row_bytes
    }

    fn copy(&self, picture: &Picture, to: &mut [u8]) {
        for (y, row) in to.chunks_exact_mut(self.row_bytes).enumerate() {
            row.copy_from_slice(picture.row(self.plane, self.top + y));
        }
    }
}

/// Bytes of a piece, and bytes of a frame that the engine's own thread copies. A core copies some 4 GB/s of uncached memory, and threads
/// wake up in some 100 us (16 cores of an H200's host; 1280x720: alone 332 us, by others only 283, so 187).
const PIECE_BYTES: usize = 240 << 10;
const OWN_BYTES: usize = 400 << 10;
/// Planes begin at multiples of this number of bytes.
const ALIGNED: usize = 256;

fn bytes(picture: &Picture) -> usize {
    let plane = |index| {
        let size = picture
            .format()
            .plane_size(index, picture.width(), picture.height());
        size.map_or(0, |(row_bytes, rows)| {
            (row_bytes * rows).next_multiple_of(ALIGNED)
        })
    };
    (0..3).map(plane).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{PixelFormat, testing::planar_picture};

    #[test]
    fn every_picture_takes_at_most_the_planned_bytes() {
        for format in [PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420] {
            for size in [(1, 1), (1, 400), (400, 1), (2, 2), (33, 15), (640, 363)] {
                let picture = planar_picture(format, size, 0, |_, i| i as u8);
                let planned = FrameStage::bytes_for(size.0 * size.1);
                assert!(bytes(&picture) <= planned, "{format:?} {size:?}");
            }
        }
    }

    #[test]
    fn pieces_hold_each_plane_row_once_in_order() {
        for (row_bytes, rows) in [(1280, 720), (1, 1), (PIECE_BYTES, 3), (PIECE_BYTES + 7, 2)] {
            let (mut top, mut at) = (0, 512);
            for piece in Piece::of_plane(1, row_bytes, rows, 512) {
                assert_eq!((piece.top, piece.first, piece.plane), (top, at, 1));
                (top, at) = (top + piece.rows, at + piece.bytes());
            }
            assert_eq!((top, at), (rows, 512 + row_bytes * rows));
        }
    }
}
