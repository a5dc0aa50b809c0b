//! Strips of frames that a decoder left on a GPU: their reduced copies, and the pictures made of these, stay there.
//!
//! ```text
//!   frame in a decoder's memory ─▶ scratch ─▶ reduced ─▶ its place in a new buffer, which is a picture again
//! ```
//!
//! A canvas belongs to the device of an engine, but the threads of the decoders and the daemon draw on it, one at a time: it has a stream and
//! scratch memory of its own, and reads nothing of the engine. Each drawing is complete when [`CudaCanvas::draw`] returns, so a step may
//! copy it without an event.
//!
//! The number of cameras and strips is not known when the memory of the GPU is planned, so a canvas has a limit: what does not fit is drawn
//! on the host, as without a canvas.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use cudarc::driver::CudaStream;

use super::{
    error::{CudaError, tried},
    foreign::{ForeignMemory, ForeignRows},
    kernels::{Kernels, ShrunkPlane},
    library::Gpu,
    memory::{Buffer, CurrentContext, fill, wait_for_stream},
};
use spotter_core::{
    DeviceCanvas, DevicePlanes, Drawing, Picture, PictureLayout, PlacedPicture, Planes,
};

/// Draws on one GPU.
pub struct CudaCanvas {
    drawing: Mutex<DrawingState>,
    /// The driver rejected a drawing, which was logged.
    is_rejected: AtomicBool,
    /// A drawing did not fit into the memory, which was logged.
    is_full: AtomicBool,
}

struct DrawingState {
    kernels: Kernels,
    memory: Arc<CanvasMemory>,
    /// Planes of frames, one after the other.
    scratch: Buffer<u8>,
    /// Of the scratch.
    taken: Vec<TakenMemory>,
}

/// How much of the GPU's memory a canvas and its pictures take.
struct CanvasMemory {
    limit: usize,
    taken: AtomicUsize,
}

/// A part of a [`CanvasMemory`], given back when it is dropped.
struct TakenMemory {
    of: Arc<CanvasMemory>,
    bytes: usize,
}

impl CanvasMemory {
    fn new(limit: usize) -> Arc<Self> {
        let taken = AtomicUsize::new(0);
        Arc::new(Self { limit, taken })
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Result<TakenMemory, CudaError> {
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let taken = (self.taken).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match taken {
            Ok(_) => Ok(TakenMemory {
                of: Arc::clone(self),
                bytes,
            }),
            Err(_) => Err(CudaError::StripsFull {
                mib: self.limit >> 20,
            }),
        }
    }
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl CudaCanvas {
    /// Loads its kernel; `cache` is the folder of compiled kernels. It and its pictures take at most `limit` bytes.
    pub fn new(gpu: &Gpu, cache: &Path, limit: usize) -> Result<Self, CudaError> {
        let stream = gpu
            .context
            .new_stream()
            .map_err(tried("creating a stream for strips"))?;
        Ok(Self {
            drawing: Mutex::new(DrawingState {
                scratch: Buffer::zeros(&stream, 1)?,
                taken: Vec::new(),
                memory: CanvasMemory::new(limit),
                kernels: Kernels::load_file(gpu, stream, cache, "frame.cu")?,
            }),
            is_rejected: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        })
    }
}

impl DeviceCanvas for CudaCanvas {
    fn draw(&self, drawing: &Drawing) -> Option<Picture> {
        let layout = drawing.layout()?;
        let sources: Vec<DrawingSource<'_>> = (drawing.pictures.iter())
            .map(DrawingSource::of)
            .collect::<Option<_>>()?;
        // A panic while drawing leaves nothing half done that the next drawing reads.
        let mut state = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        match state.draw(layout, &sources) {
            Ok(picture) => Some(picture),
            Err(error) => {
                let is_logged = match error {
                    CudaError::StripsFull { .. } => &self.is_full,
                    _ => &self.is_rejected,
                };
                if !is_logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!("strips are made on the host: {error}");
                }
                None
            }
        }
    }
}

/// A picture of a drawing, in a GPU's memory.
struct DrawingSource<'a> {
    placed: &'a PlacedPicture,
    memory: &'a ForeignMemory,
    offsets: [usize; 3],
}

impl<'a> DrawingSource<'a> {
    /// `None`: it is not there.
    fn of(placed: &'a PlacedPicture) -> Option<Self> {
        let planes = placed.picture.on_device()?;
        Some(Self {
            placed,
            memory: planes.memory.downcast_ref()?,
            offsets: planes.offsets,
        })
    }
}

impl DrawingState {
    fn draw(
        &mut self,
        layout: PictureLayout,
        sources: &[DrawingSource<'_>],
    ) -> Result<Picture, CudaError> {
        let stream = Arc::clone(&self.kernels.stream);
        let _current = CurrentContext::new(stream.context())?;
        let drawn = self.planes(layout, &stream).and_then(|planes| {
            self.fill(layout, &planes, sources)?;
            Ok(planes)
        });
        // Also after an error: what is queued reads the frames, which are released behind this.
        wait_for_stream(&stream, "drawing a strip on the GPU")?;
        Picture::new(layout, Arc::new(drawn?)).map_err(|e| CudaError::Shape(e.to_string()))
    }

    /// Memory for a picture of this layout.
    fn planes(
        &self,
        layout: PictureLayout,
        stream: &Arc<CudaStream>,
    ) -> Result<DrawnPlanes, CudaError> {
        let (mut offsets, mut lens, mut bytes) = ([0; 3], [0; 3], 0);
        for index in 0..3 {
            let (width, height) = layout.size;
            let plane = layout.format.plane_size(index, width, height);
            lens[index] = plane.map_or(0, |(row_bytes, rows)| row_bytes * rows);
            offsets[index] = bytes;
            bytes += lens[index];
        }
        let taken = self.memory.take(bytes)?;
        let buffer = Arc::new(Buffer::zeros(stream, bytes)?);
        Ok(DrawnPlanes {
            memory: ForeignMemory::of_buffer(Arc::clone(&buffer)),
            buffer,
            offsets,
            lens,
            host: OnceLock::new(),
            _taken: taken,
        })
    }

    /// Queues everything.
    fn fill(
        &mut self,
        layout: PictureLayout,
        planes: &DrawnPlanes,
        sources: &[DrawingSource<'_>],
    ) -> Result<(), CudaError> {
        let stream = planes.buffer.stream();
        for index in 0..3 {
            let plane = planes.buffer.start().at(planes.offsets[index]);
            let black = layout.format.black(index, layout.colour.1);
            fill(stream, plane, black, planes.lens[index])?;
            for source in sources {
                let Some(scaling) = source.placed.scaling(index) else {
                    continue;
                };
                let row_bytes = scaling.from.0 * scaling.sample_bytes;
                let rows = ForeignRows {
                    offset: source.offsets[index],
                    stride: source.placed.picture.stride(index),
                    row_bytes,
                    rows: scaling.from.1,
                };
                self.make_room(row_bytes * scaling.from.1)?;
                let scratch = self.scratch.start();
                source.memory.copy_rows(stream, rows, scratch)?;
                let stride = layout.strides[index];
                let (column, row) = scaling.corner;
                self.kernels.shrink_plane(&ShrunkPlane {
                    from: scratch,
                    out: plane.at(row * stride + column * scaling.sample_bytes),
                    stride,
                    scaling,
                })?;
            }
        }
        Ok(())
    }

    /// The old scratch is freed on its stream, behind the work that uses it.
    fn make_room(&mut self, bytes: usize) -> Result<(), CudaError> {
        let there = self.scratch.start().len();
        if there < bytes {
            let taken = self.memory.take(bytes - there)?;
            self.scratch = Buffer::zeros(&self.kernels.stream, bytes)?;
            self.taken.push(taken);
        }
        Ok(())
    }
}

/// Planes of a drawing on the GPU, and on the host once a byte was read.
struct DrawnPlanes {
    memory: ForeignMemory,
    buffer: Arc<Buffer<u8>>,
    offsets: [usize; 3],
    lens: [usize; 3],
    /// The host's copy, or zeros, because the copy failed.
    host: OnceLock<Result<Vec<u8>, Vec<u8>>>,
    /// Given back behind the buffer.
    _taken: TakenMemory,
}

impl DrawnPlanes {
    fn on_host(&self) -> &Result<Vec<u8>, Vec<u8>> {
        self.host.get_or_init(|| {
            let copy = || {
                let stream = self.buffer.stream();
                let _current = CurrentContext::new(stream.context())?;
                self.buffer.to_host(stream)
            };
            copy().map_err(|error| {
                tracing::warn!("a strip cannot be fetched from the GPU: {error}");
                vec![0; self.lens.iter().sum()]
            })
        })
    }
}

impl Planes for DrawnPlanes {
    fn plane(&self, index: usize) -> &[u8] {
        let (begin, len) = (self.offsets[index], self.lens[index]);
        let (Ok(bytes) | Err(bytes)) = self.on_host();
        &bytes[begin..begin + len]
    }

    fn plane_len(&self, index: usize) -> usize {
        self.lens[index]
    }

    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        Some(DevicePlanes {
            memory: &self.memory,
            offsets: self.offsets,
        })
    }

    fn is_on_host(&self) -> bool {
        matches!(self.host.get(), Some(Ok(_)))
    }

    fn fetch(&self) -> bool {
        self.on_host().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_with_the_picture() {
        let memory = CanvasMemory::new(3 << 20);
        let taken: Vec<_> = (0..3).map(|_| memory.take(1 << 20).unwrap()).collect();
        let error = memory.take(1).err().unwrap();
        assert!(error.to_string().contains("fill the 3 MiB"), "{error}");
        assert!(memory.take(usize::MAX).is_err() && memory.take(0).is_ok());
        drop(taken);
        assert!(memory.take(3 << 20).is_ok());
    }
}
