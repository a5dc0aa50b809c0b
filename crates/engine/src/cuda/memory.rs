//! Memory of the GPU and memory that it can copy from and to.
//!
//! Everything is allocated while a backend is built and freed when it is dropped, after its streams have ended. A
//! [`Pointer`] is therefore valid for as long as the parts of the backend that have it, and nothing here borrows.
//!
//! All allocations and all waits for the GPU are in this file and are counted: a step of a known shape allocates nothing, and waits once,
//! in its commit.

use std::{
    cell::Cell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Range,
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

use cudarc::driver::{
    CudaContext, CudaEvent, CudaSlice, CudaStream, DeviceRepr, DriverError, ValidAsZeroBits,
    result,
    sys::{self, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE},
};

use super::error::{CudaError, tried};

/// Driver calls that take longer than queueing work, of the calling thread: each backend has a thread of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCalls {
    /// Allocations of GPU memory or pinned memory.
    pub allocations: u64,
    /// Waits of the thread for the GPU.
    pub waits: u64,
}

thread_local! {
    static CALLS: Cell<DriverCalls> = const { Cell::new(DriverCalls { allocations: 0, waits: 0 }) };
}

impl DriverCalls {
    /// Of this thread, since it began.
    #[cfg(test)]
    pub fn so_far() -> Self {
        CALLS.get()
    }

    fn count(allocations: u64, waits: u64) {
        let before = CALLS.get();
        CALLS.set(Self {
            allocations: before.allocations + allocations,
            waits: before.waits + waits,
        });
    }
}

/// Waits until the GPU has passed the event.
pub fn wait_for_event(event: &CudaEvent, what: &'static str) -> Result<(), CudaError> {
    DriverCalls::count(0, 1);
    event.synchronize().map_err(tried(what))
}

/// Waits until all work of the stream is done.
pub fn wait_for_stream(stream: &CudaStream, what: &'static str) -> Result<(), CudaError> {
    DriverCalls::count(0, 1);
    stream.synchronize().map_err(tried(what))
}

/// Waits until all work of a context is done, which may be another library's.
///
/// # Safety
/// The context exists until this returns.
pub unsafe fn wait_for_context(context: sys::CUcontext) -> Result<(), CudaError> {
    DriverCalls::count(0, 1);
    let failed = tried("waiting for what fills a frame on the GPU");
    // SAFETY: the caller's context is made this thread's, waited for, and taken off again, so that the thread has the one that
    // it had before.
    let (waited, popped) = unsafe {
        sys::cuCtxPushCurrent_v2(context)
            .result()
            .map_err(&failed)?;
        let waited = sys::cuCtxSynchronize().result();
        (
            waited,
            sys::cuCtxPopCurrent_v2(&mut ptr::null_mut()).result(),
        )
    };
    waited.and(popped).map_err(failed)
}

/// A context that is the thread's own until this is dropped. Threads of GStreamer have contexts of its, which must stay theirs, and a
/// thread that opened several GPUs has the context of another one.
pub struct CurrentContext(PhantomData<*const ()>);

impl CurrentContext {
    pub fn new(context: &CudaContext) -> Result<Self, CudaError> {
        // SAFETY: the context exists, because it is borrowed.
        unsafe { sys::cuCtxPushCurrent_v2(context.cu_ctx()) }
            .result()
            .map_err(tried("entering the context of the GPU"))?;
        Ok(Self(PhantomData))
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        // SAFETY: takes off what `new` put on: this is not `Send`, so it is the same thread, and cudarc's calls meanwhile leave the
        // context as it is, because it is theirs. A failure means that the context is gone.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut ptr::null_mut()) }.result();
    }
}

/// Milliseconds between two events; waits for both.
pub fn wait_between(
    from: &CudaEvent,
    to: &CudaEvent,
    what: &'static str,
) -> Result<f32, CudaError> {
    DriverCalls::count(0, 2);
    from.elapsed_ms(to).map_err(tried(what))
}

/// Memory of the GPU. Any thread may drop it.
#[derive(Debug)]
pub struct Buffer<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    address: u64,
    // Counted while it exists.
    _held: HeldBytes,
}

/// A part of what the buffers of this thread take.
#[derive(Debug)]
struct HeldBytes(usize);

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

impl HeldBytes {
    fn new(bytes: usize) -> Self {
        HELD.set(HELD.get() + bytes);
        Self(bytes)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        // A buffer may be dropped by another thread than the one that made it.
        HELD.set(HELD.get().saturating_sub(self.0));
    }
}

/// Bytes of GPU memory that the buffers of this thread take.
pub fn held_bytes() -> usize {
    HELD.get()
}

/// A position in a [`Buffer`], and the number of values behind it.
#[derive(Clone, Copy, Debug)]
pub struct Pointer<T> {
    address: u64,
    len: usize,
    of: PhantomData<T>,
}

impl<T> Pointer<T> {
    /// Address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Values from here to the buffer's end.
    pub fn len(&self) -> usize {
        self.len
    }

    /// `values` further on; at most at the end.
    pub fn at(&self, values: usize) -> Self {
        let values = values.min(self.len);
        Self {
            address: self.address + (values * size_of::<T>()) as u64,
            len: self.len - values,
            of: PhantomData,
        }
    }

    /// The same position with `values` values behind it, or as many as there are.
    pub fn first(&self, values: usize) -> Self {
        Self {
            len: self.len.min(values),
            address: self.address,
            of: PhantomData,
        }
    }

    /// The same memory as bytes.
    pub fn as_bytes(&self) -> Pointer<u8> {
        Pointer {
            address: self.address,
            len: self.len * size_of::<T>(),
            of: PhantomData,
        }
    }
}

impl Pointer<u8> {
    /// The same bytes as numbers of two.
    #[cfg(test)]
    pub fn as_bf16(&self) -> Pointer<half::bf16> {
        Pointer {
            address: self.address,
            len: self.len / 2,
            of: PhantomData,
        }
    }

    /// The same bytes as numbers with signs.
    pub fn as_i8(&self) -> Pointer<i8> {
        Pointer {
            address: self.address,
            len: self.len,
            of: PhantomData,
        }
    }
}

impl<T: DeviceRepr + ValidAsZeroBits> Buffer<T> {
    /// `len` zeros. Waits until they are written.
    pub fn zeros(stream: &Arc<CudaStream>, len: usize) -> Result<Self, CudaError> {
        let slice = stream
            .alloc_zeros(len.max(1))
            .map_err(tried("allocating memory of the GPU"))?;
        Self::ready(stream, slice)
    }

    /// A copy of `values`. Waits for it.
    pub fn from_host(stream: &Arc<CudaStream>, values: &[T]) -> Result<Self, CudaError> {
        let slice = stream
            .clone_htod(values)
            .map_err(tried("copying to the GPU"))?;
        Self::ready(stream, slice)
    }

    fn ready(stream: &Arc<CudaStream>, slice: CudaSlice<T>) -> Result<Self, CudaError> {
        use cudarc::driver::DevicePtr as _;
        DriverCalls::count(1, 0);
        wait_for_stream(stream, "waiting for the GPU's memory")?;
        let address = slice.device_ptr(stream).0;
        let held = HeldBytes::new(slice.len() * size_of::<T>());
        Ok(Self {
            slice: ManuallyDrop::new(slice),
            address,
            _held: held,
        })
    }

    /// The stream that it is freed on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.slice.stream()
    }

    pub fn start(&self) -> Pointer<T> {
        Pointer {
            address: self.address,
            len: self.slice.len(),
            of: PhantomData,
        }
    }

    /// A copy of it. Waits for everything on the stream.
    pub fn to_host(&self, stream: &Arc<CudaStream>) -> Result<Vec<T>, CudaError> {
        DriverCalls::count(0, 1);
        stream
            .clone_dtoh(&*self.slice)
            .map_err(tried("copying from the GPU"))
    }
}

impl<T> Drop for Buffer<T> {
    /// Frees it on its stream, behind the work that uses it. The thread may be a decoder's, without a context or with one of its own, and
    /// the driver frees in the context that is current; an error here would be that of the engine's next call.
    fn drop(&mut self) {
        // Behind the buffer, which may be the last to have it.
        let context = Arc::clone(self.slice.stream().context());
        // An error means that the context is gone, and the memory with it.
        let current = CurrentContext::new(&context);
        // SAFETY: dropped here alone, once, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.slice) };
        drop(current);
        if let Some(last) = Arc::into_inner(context) {
            release(last);
        }
    }
}

/// Releases a context without holders. To do that cudarc makes it the thread's, whose own is current again afterwards.
fn release(context: CudaContext) {
    let (mut own, released) = (ptr::null_mut(), context.cu_ctx());
    // SAFETY: the driver writes a handle to this local.
    let known = unsafe { sys::cuCtxGetCurrent(&mut own) }.result();
    drop(context);
    if known.is_ok() && own != released {
        // SAFETY: `own` was this thread's a moment ago and is not what was released, so it is as valid as it was; null is valid too. A
        // failure means that its owner has destroyed it meanwhile.
        let _ = unsafe { sys::cuCtxSetCurrent(own) }.result();
    }
}

/// Memory of the host that the GPU copies from and to by itself. Not write-combined: the host reads it too.
#[derive(Debug)]
pub struct PinnedBuffer<T> {
    start: NonNull<T>,
    len: usize,
}

impl<T: DeviceRepr + ValidAsZeroBits> PinnedBuffer<T> {
    /// `len` zeros. The calling thread must have a context.
    pub fn zeros(len: usize) -> Result<Self, CudaError> {
        DriverCalls::count(1, 0);
        let failed = tried("allocating memory that the GPU can copy");
        let bytes = len.max(1) * size_of::<T>();
        // SAFETY: the size is not zero; the memory is freed once, in `drop`.
        let start = unsafe { result::malloc_host(bytes, 0) }.map_err(&failed)?;
        // SAFETY: the driver gave `bytes` bytes, aligned for every type.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        let start = NonNull::new(start.cast())
            .ok_or_else(|| failed(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)))?;
        Ok(Self { start, len })
    }
}

impl<T> PinnedBuffer<T> {
    /// To be read after the copy into it has ended.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `len` values of a type for which zeros are valid were allocated and set to zero. A copy of the GPU into them
        // ends before the host reads: `slot` waits for its event first.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Values whose copy to the GPU is queued may not be written before that copy has ended.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeros`, freed once; the backend waits for its streams before its parts are dropped. A failure
        // means that the context is gone, and the memory with it.
        let _ = unsafe { result::free_host(self.start.as_ptr().cast()) };
    }
}

/// Memory that other GPUs read and write too: of a GPU, where they have access to it, or of the host.
#[derive(Debug)]
pub struct PeerMemory {
    context: Arc<CudaContext>,
    address: u64,
    // Of the GPU.
    held: Option<HeldBytes>,
}

impl PeerMemory {
    /// `bytes` zeros of the GPU. Not of its pool, whose memory other GPUs cannot access.
    pub fn of_gpu(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, CudaError> {
        DriverCalls::count(1, 1);
        let failed = tried("allocating memory that other GPUs can access");
        let _current = CurrentContext::new(context)?;
        // SAFETY: the context is current and the size is not zero; the memory is freed once, in `drop`.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(&failed)?;
        let memory = Self {
            context: Arc::clone(context),
            address,
            held: Some(HeldBytes::new(bytes)),
        };
        // SAFETY: these are the bytes that were allocated, which no one else knows.
        unsafe { result::memset_d8_sync(address, 0, bytes) }.map_err(&failed)?;
        context.synchronize().map_err(failed)?;
        Ok(memory)
    }

    /// `bytes` zeros of the host, at the same address for all GPUs.
    pub fn of_host(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, CudaError> {
        DriverCalls::count(1, 0);
        let failed = tried("allocating memory of the host that all GPUs can access");
        let _current = CurrentContext::new(context)?;
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current and the size is not zero; the memory is freed once, in `drop`.
        let start = unsafe { result::malloc_host(bytes.max(1), flags) }.map_err(failed)?;
        // SAFETY: the driver gave `bytes` bytes, which no one else knows.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self {
            context: Arc::clone(context),
            address: start as u64,
            held: None,
        })
    }

    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        let Ok(_current) = CurrentContext::new(&self.context) else {
            return;
        };
        // SAFETY: allocated by one of the functions above, freed once; its owner (`peers`) knows that all GPUs are done with it. A
        // failure means that the context is gone, and the memory with it.
        let _ = unsafe {
            match &self.held {
                Some(_) => result::free_sync(self.address),
                None => result::free_host(self.address as *mut _),
            }
        };
    }
}

/// Allows kernels of a context, which is current, to use memory of another one's GPU.
pub fn enable_peer_access(peer: &CudaContext) -> Result<(), DriverError> {
    // SAFETY: both contexts exist, because they are borrowed or current.
    match unsafe { sys::cuCtxEnablePeerAccess(peer.cu_ctx(), 0) } {
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        enabled => enabled.result(),
    }
}

/// True when a GPU can use the memory of another one.
pub fn can_access(gpu: sys::CUdevice, peer: sys::CUdevice) -> bool {
    let mut can = 0;
    // SAFETY: the pointer is to a local.
    let known = unsafe { sys::cuDeviceCanAccessPeer(&mut can, gpu, peer) }.result();
    known.is_ok() && can != 0
}

/// Queues a copy of some values to the GPU.
pub fn upload<T>(
    stream: &CudaStream,
    from: &PinnedBuffer<T>,
    range: Range<usize>,
    to: Pointer<T>,
) -> Result<(), CudaError> {
    let from = &from.as_slice()[range.start.min(from.len)..];
    let len = range.len().min(to.len()).min(from.len());
    // SAFETY: both have `len` values. The host writes `from` again only after the event behind this copy (`slot`) or
    // after a wait for the stream (`weights`), and every kernel that reads `to` waits for that event or is behind that wait.
    unsafe { result::memcpy_htod_async(to.address(), &from[..len], stream.cu_stream()) }
        .map_err(tried("copying a step to the GPU"))
}

/// Records an event at the end of the stream's present work.
pub fn record(event: &CudaEvent, stream: &CudaStream) -> Result<(), CudaError> {
    event.record(stream).map_err(tried("recording an event"))
}

/// Work that is queued on the stream from now on is behind the event.
pub fn wait(stream: &CudaStream, event: &CudaEvent) -> Result<(), CudaError> {
    stream.wait(event).map_err(tried("ordering two streams"))
}

/// Queues a copy of `len` values within the GPU.
pub fn copy<T>(
    stream: &CudaStream,
    from: Pointer<T>,
    to: Pointer<T>,
    len: usize,
) -> Result<(), CudaError> {
    let bytes = len.min(to.len()).min(from.len()) * size_of::<T>();
    // SAFETY: both have at least `bytes` bytes. All work that reads or writes them is on this stream, in order.
    unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, stream.cu_stream()) }
        .map_err(tried("copying within the GPU"))
}

/// Queues zeros into `len` values.
pub fn clear<T>(stream: &CudaStream, to: Pointer<T>, len: usize) -> Result<(), CudaError> {
    let bytes = len.min(to.len()) * size_of::<T>();
    // SAFETY: there are as many bytes, and all work that reads or writes them is on this stream, in order.
    unsafe { result::memset_d8_async(to.address(), 0, bytes, stream.cu_stream()) }
        .map_err(tried("clearing memory of the GPU"))
}

/// Queues a copy of the first `len` values to the host.
pub fn download<T>(
    stream: &CudaStream,
    from: Pointer<T>,
    to: &mut PinnedBuffer<T>,
    len: usize,
) -> Result<(), CudaError> {
    let len = len.min(from.len()).min(to.len);
    // SAFETY: both have `len` values. The host reads `to` only after the event behind this copy (`slot`).
    unsafe {
        result::memcpy_dtoh_async(
            &mut to.as_mut_slice()[..len],
            from.address(),
            stream.cu_stream(),
        )
    }
    .map_err(tried("copying results from the GPU"))
}
