//! Where decoded frames of a step lie on the GPU, and how they get there: the host copies bytes and touches no pixel.
//!
//! ```text
//!   planes ─▶ pinned ─▶ GPU
//! ```

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{
    error::CudaError,
    kernels::Coefficients,
    memory::{Buffer, Pinned, Pointer, upload},
};
use crate::{
    domain::{Picture, PixelFormat},
    model::yuv_coefficients,
};

/// Room that frames of one slot have on their way: host memory and its image on the GPU.
pub struct FrameStage {
    host: Pinned<u8>,
    device: Buffer<u8>,
    used: usize,
}

/// A frame on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// Where each begins.
    pub planes: [Pointer<u8>; 3],
    /// What they are.
    pub format: PixelFormat,
    /// Bytes from row to row: of the first plane, and of the others.
    pub strides: [usize; 2],
    /// From YUV to RGB.
    pub yuv: Coefficients,
    /// Pixels.
    pub size: (usize, usize),
}

impl FrameStage {
    /// Room for `bytes` of frames; it grows when more come.
    pub fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self {
            host: Pinned::zeros(bytes)?,
            device: Buffer::zeros(stream, bytes)?,
            used: 0,
        })
    }

    /// Copies the pictures of a step to the GPU, on the stream `copies`. Nothing of the slot's last step is under way.
    pub fn put(
        &mut self,
        copies: &Arc<CudaStream>,
        pictures: &[&Picture],
    ) -> Result<Vec<Staged>, CudaError> {
        let needed: usize = pictures.iter().map(|picture| bytes(picture)).sum();
        if needed > self.host.as_slice().len() {
            *self = Self::new(copies, needed.next_power_of_two())?;
        }
        self.used = 0;
        let staged = pictures.iter().map(|picture| self.copy(picture)).collect();
        upload(copies, &self.host, self.device.start(), self.used)?;
        Ok(staged)
    }

    fn copy(&mut self, picture: &Picture) -> Staged {
        let (format, size) = (picture.format(), (picture.width(), picture.height()));
        let mut planes = [self.device.start(); 3];
        let mut strides = [0; 2];
        for (index, plane) in planes.iter_mut().enumerate() {
            let Some((row_bytes, rows)) = format.plane_size(index, size.0, size.1) else {
                break;
            };
            *plane = self.device.start().at(self.used);
            strides[index.min(1)] = row_bytes;
            for y in 0..rows {
                let to = &mut self.host.as_mut_slice()[self.used..][..row_bytes];
                to.copy_from_slice(picture.row(index, y));
                self.used += row_bytes;
            }
            self.used = self.used.next_multiple_of(ALIGNED);
        }
        Staged {
            planes,
            format,
            strides,
            yuv: Coefficients(yuv_coefficients(picture.matrix(), picture.range())),
            size,
        }
    }
}

/// Planes begin at multiples of it.
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
