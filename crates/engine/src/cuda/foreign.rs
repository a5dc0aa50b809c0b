//! Frames that a decoder left on a GPU, in a CUDA context of its own.
//!
//! GStreamer's decoders create contexts of their own, and a kernel cannot read memory that was allocated in another context. So a frame
//! is copied once on the device, into the step's memory: 1.4 MB at 1280x720, some microseconds, also from another GPU, and never
//! through the host. The decoder gets its buffer back when the step is committed.
//!
//! A decoder's work may not be done when it hands over a frame (GStreamer 1.22 waits for it, newer versions leave that to the reader).
//! [`take_frame`] waits for it in the decoder's thread; the engine's thread queues copies and does not wait.

use std::{any::Any, ffi::c_void, mem::MaybeUninit, ptr};

use cudarc::driver::{
    CudaStream,
    sys::{
        self, CUDA_MEMCPY3D_PEER, CUcontext, CUmemorytype::CU_MEMORYTYPE_DEVICE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
    },
};
use gstreamer as gst;

use super::{
    error::{CudaError, tried},
    memory::{Pointer, wait_for_context},
};
use spotter_core::DeviceMemory;

/// A function that takes over a buffer that GStreamer decoded on the device ([`take_frame`]).
pub type FrameImport = fn(gst::Buffer) -> Result<DeviceMemory, String>;

/// Takes over a buffer in GStreamer's CUDA memory (`memory:CUDAMemory`) and keeps it until the result is dropped. Waits until the work
/// that fills it is done, so call it in the thread that made the buffer.
pub fn take_frame(buffer: gst::Buffer) -> Result<DeviceMemory, String> {
    let mapped = MappedCudaBuffer::new(buffer)?;
    let (address, len) = (mapped.info.data as u64, mapped.info.size);
    // SAFETY: GStreamer guarantees `len` bytes on a GPU at this address while the buffer is mapped, which it is until `mapped`
    // is dropped.
    let foreign = unsafe { ForeignMemory::new(address, len, Box::new(mapped)) };
    Ok(Box::new(foreign.map_err(|e| e.to_string())?))
}

/// Rows of a plane in a decoder's memory.
#[derive(Clone, Copy, Debug)]
pub struct ForeignRows {
    /// Bytes before the first row.
    pub offset: usize,
    /// Bytes from row to row.
    pub stride: usize,
    /// Bytes of a row that are pixels.
    pub row_bytes: usize,
    pub rows: usize,
}

/// Memory on a GPU that was allocated in another context of this process.
pub struct ForeignMemory {
    context: CUcontext,
    address: u64,
    len: usize,
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: the context is a handle that the driver accepts from any thread; it is never changed, and `_keeper` is `Send`.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above; through a shared reference the handle and the address are only read.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// Waits until all work in the memory's context is done.
    ///
    /// # Safety
    /// A GPU has `len` bytes at `address`, which stay allocated until `keeper` is dropped.
    pub unsafe fn new(
        address: u64,
        len: usize,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, CudaError> {
        let mut context: CUcontext = ptr::null_mut();
        let out: *mut c_void = (&raw mut context).cast();
        // SAFETY: this attribute is a context, which fits into the local. The driver is loaded, because it has allocated this memory.
        unsafe { sys::cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_CONTEXT, address) }
            .result()
            .map_err(tried("finding the context that owns a frame's GPU memory"))?;
        if context.is_null() {
            return Err(CudaError::Frame(
                "its memory was allocated in no context of the driver",
            ));
        }
        // SAFETY: a context exists as long as its memory, and the caller keeps this memory.
        unsafe { wait_for_context(context) }?;
        Ok(Self {
            context,
            address,
            len,
            _keeper: keeper,
        })
    }

    /// Queues a copy of rows to memory of the engine, without gaps. `self` must live until the copy has ended.
    pub fn copy_rows(
        &self,
        stream: &CudaStream,
        from: ForeignRows,
        to: Pointer<u8>,
    ) -> Result<(), CudaError> {
        let ForeignRows {
            offset,
            stride,
            row_bytes,
            rows,
        } = from;
        let last = rows
            .checked_sub(1)
            .and_then(|rows| rows.checked_mul(stride));
        let end = last.and_then(|last| last.checked_add(row_bytes)?.checked_add(offset));
        if stride < row_bytes || end.is_none_or(|end| end > self.len) || to.len() < row_bytes * rows
        {
            return Err(CudaError::Frame("its planes reach beyond its memory"));
        }
        let copy = CUDA_MEMCPY3D_PEER {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: CU_MEMORYTYPE_DEVICE,
            srcHost: ptr::null(),
            srcDevice: self.address + offset as u64,
            srcArray: ptr::null_mut(),
            srcContext: self.context,
            srcPitch: stride,
            srcHeight: rows,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: to.address(),
            dstArray: ptr::null_mut(),
            dstContext: stream.context().cu_ctx(),
            dstPitch: row_bytes,
            dstHeight: rows,
            WidthInBytes: row_bytes,
            Height: rows,
            Depth: 1,
        };
        // SAFETY: both sides have all of these rows, as was just checked. The source stays allocated: a step keeps its pictures
        // until it is committed (`stage`), and its context exists as long. All readers of `to` are ordered behind this stream.
        unsafe { sys::cuMemcpy3DPeerAsync(&copy, stream.cu_stream()) }
            .result()
            .map_err(tried("copying a decoded frame on the GPU"))
    }
}

/// A buffer whose one memory is mapped for CUDA, which only gives its address on the GPU.
struct MappedCudaBuffer {
    // Kept: its pool reuses a buffer that is released, even while its memory is referenced.
    _buffer: gst::Buffer,
    info: gst::ffi::GstMapInfo,
}

// SAFETY: GStreamer counts references and maps under its own locks, so any thread may unmap and release.
unsafe impl Send for MappedCudaBuffer {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for MappedCudaBuffer {}

/// GStreamer's name of the memory type.
const CUDA_MEMORY: &str = "gst.cuda.memory";
/// `GST_MAP_READ_CUDA` of GStreamer's library for CUDA, which is not linked here; a value of its interface since 1.18.
const READ_ON_DEVICE: gst::ffi::GstMapFlags =
    gst::ffi::GST_MAP_READ | (gst::ffi::GST_MAP_FLAG_LAST << 1);

impl MappedCudaBuffer {
    fn new(buffer: gst::Buffer) -> Result<Self, String> {
        if buffer.n_memory() != 1 || !buffer.peek_memory(0).is_type(CUDA_MEMORY) {
            return Err("its memory is not GStreamer's CUDA memory".into());
        }
        let mut info = MaybeUninit::zeroed();
        let memory = buffer.peek_memory(0).as_mut_ptr();
        // SAFETY: the buffer keeps its memory, and `info` is written when the call succeeds. For memory of this type the flag
        // requests the address on the GPU, which is never read as an address of the host.
        let mapped = unsafe { gst::ffi::gst_memory_map(memory, info.as_mut_ptr(), READ_ON_DEVICE) };
        if mapped == 0 {
            return Err("its memory on the GPU cannot be mapped".into());
        }
        Ok(Self {
            // SAFETY: the call succeeded.
            info: unsafe { info.assume_init() },
            _buffer: buffer,
        })
    }
}

impl Drop for MappedCudaBuffer {
    fn drop(&mut self) {
        // SAFETY: mapped once by `new` with this `info`, whose memory the buffer still keeps.
        unsafe { gst::ffi::gst_memory_unmap(self.info.memory, &mut self.info) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_host_is_not_taken_for_a_gpus() {
        gst::init().unwrap();
        for buffer in [gst::Buffer::new(), gst::Buffer::from_slice([7; 100])] {
            let refused = take_frame(buffer).err().unwrap();
            assert!(refused.contains("not GStreamer's CUDA memory"), "{refused}");
        }
    }
}
