//! Frames in the memory of other contexts on the GPU, as GStreamer's decoders leave them: their patches are equal to those of frames on
//! the host, and they are never copied to the host.

use std::{
    any::Any,
    ptr,
    sync::{Arc, Mutex},
    thread,
};

use cudarc::driver::sys::{self, CUcontext, CUresult, CUstream, CUstream_flags};

use super::{
    Random, Rig,
    frames::{patches, picture},
    rig,
    whole::micro,
};
use crate::{
    cuda::{
        foreign::{ForeignMemory, take_frame},
        frames::FramePreprocessor,
        library,
        memory::Buffer,
        stage::FrameStage,
    },
    model::VisionConfig,
    scheduler::backend::{Backend, Pick, PickResult, SlotId, Step},
    testing::golden_model::{job, prompt},
};
use spotter_cameras::testing::uploaded;
use spotter_core::{DeviceMemory, DevicePlanes, Picture, PictureLayout, PixelFormat, Planes};

/// Bytes from row to row of these frames.
const PITCH: usize = 1536;
const ROWS: usize = 720;
/// Of a step with some frames.
const STAGED_BYTES: usize = 4 * PITCH * ROWS * 3;
/// Bytes whose filling takes longer than all work of the test with a frame.
const SCRATCH: usize = 1 << 30;

/// A context beside that of the process, with room for some frames.
struct Other {
    context: usize,
    stream: usize,
    scratch: u64,
    source: u64,
    free: Mutex<Vec<u64>>,
}

/// A frame's memory, until it is released.
struct LentFrame(Arc<Other>, u64);

impl Drop for LentFrame {
    fn drop(&mut self) {
        self.0.free.lock().unwrap().push(self.1);
    }
}

fn done(result: CUresult) {
    result.result().unwrap();
}

impl Other {
    fn new(device: sys::CUdevice, frames: usize) -> Arc<Self> {
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // Behind the copies from the host, which are on the context's own stream.
        let flags = CUstream_flags::CU_STREAM_DEFAULT as u32;
        let room = |bytes| {
            let mut address = 0;
            // SAFETY: called below with the context current.
            done(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) });
            address
        };
        // SAFETY: the device exists. Creating makes the context the thread's, until it is popped.
        unsafe {
            done(sys::cuCtxCreate_v4(
                &mut context,
                ptr::null_mut(),
                0,
                device,
            ));
            done(sys::cuStreamCreate(&mut stream, flags));
        }
        let (scratch, source) = (room(SCRATCH), room(PITCH * ROWS * 3 / 2));
        let free = (0..frames).map(|_| room(PITCH * ROWS * 3 / 2)).collect();
        // SAFETY: as above.
        done(unsafe { sys::cuCtxPopCurrent_v2(&mut ptr::null_mut()) });
        Arc::new(Self {
            context: context as usize,
            stream: stream as usize,
            scratch,
            source,
            free: Mutex::new(free),
        })
    }

    fn free(&self) -> usize {
        self.free.lock().unwrap().len()
    }

    /// The NV12 picture in memory of this context; its copy has not ended when this returns.
    fn put(self: &Arc<Self>, picture: &Picture) -> Picture {
        let frame = self.free.lock().unwrap().pop();
        let frame = frame.expect("a step lets its frames go");
        let mut bytes = vec![99; PITCH * ROWS * 3 / 2];
        for (y, row) in bytes.chunks_exact_mut(PITCH).enumerate() {
            let from = match y.checked_sub(ROWS) {
                None => picture.row(0, y),
                Some(y) => picture.row(1, y),
            };
            row[..from.len()].copy_from_slice(from);
        }
        let stream = self.stream as CUstream;
        // SAFETY: context, stream and memory are those of `new` and large enough. The copy before the last has ended: it was waited for.
        unsafe {
            done(sys::cuCtxPushCurrent_v2(self.context as CUcontext));
            let from = bytes.as_ptr().cast();
            done(sys::cuMemcpyHtoD_v2(self.source, from, bytes.len()));
            done(sys::cuMemsetD8Async(self.scratch, 1, SCRATCH, stream));
            let len = bytes.len();
            done(sys::cuMemcpyDtoDAsync_v2(frame, self.source, len, stream));
            done(sys::cuCtxPopCurrent_v2(&mut ptr::null_mut()));
        }
        let keeper: Box<dyn Any + Send + Sync> = Box::new(LentFrame(Arc::clone(self), frame));
        // SAFETY: the memory is large enough, and stays allocated until the keeper is dropped.
        let memory = unsafe { ForeignMemory::new(frame, bytes.len(), keeper) }.unwrap();
        let planes = Arc::new(There(Box::new(memory)));
        Picture::new(layout_of(picture, [PITCH, PITCH, 0]), planes).unwrap()
    }
}

/// That of a picture with other strides.
fn layout_of(picture: &Picture, strides: [usize; 3]) -> PictureLayout {
    PictureLayout {
        format: picture.format(),
        size: (picture.width(), picture.height()),
        strides,
        colour: (picture.matrix(), picture.range()),
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SAFETY: created by `new`, and not used any more, because every frame keeps it alive.
        done(unsafe { sys::cuCtxDestroy_v2(self.context as CUcontext) });
    }
}

/// Planes whose bytes may not be read on the host.
struct There(DeviceMemory);

impl Planes for There {
    fn plane(&self, _: usize) -> &[u8] {
        panic!("fetched to the host")
    }

    fn plane_len(&self, index: usize) -> usize {
        (PITCH * ROWS) >> index
    }

    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        Some(DevicePlanes {
            memory: &*self.0,
            offsets: [0, PITCH * ROWS, 0],
        })
    }

    fn is_on_host(&self) -> bool {
        false
    }
}

/// Patches of pictures that are staged together.
fn staged_patches(
    rig: &Rig,
    frames: &mut FramePreprocessor,
    stage: &mut FrameStage,
    pictures: &[&Picture],
) -> Vec<Vec<f32>> {
    let staged = stage.put(&rig.stream, pictures).unwrap();
    let queued: Vec<_> = pictures
        .iter()
        .zip(&staged)
        .map(|(picture, staged)| patches(rig, frames, staged, picture))
        .collect();
    queued.iter().map(|patches| rig.down(patches)).collect()
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn frames_of_another_context_give_the_patches_of_the_host() {
    let rig = rig();
    let mut random = Random::new(11);
    let mut frames =
        FramePreprocessor::new(&rig.stream, &VisionConfig::default(), PITCH * ROWS).unwrap();
    let stage = || FrameStage::new(&rig.stream, STAGED_BYTES).unwrap();
    let (mut slots, mut of_host) = ([stage(), stage()], stage());
    let other = Other::new(rig.gpu.context.cu_device(), 4);
    for number in 0..100 {
        let [a, b, c] = [(); 3].map(|()| picture(&mut random, PixelFormat::Nv12, (1280, ROWS)));
        let want = staged_patches(&rig, &mut frames, &mut of_host, &[&a, &b, &c]);
        // Only the step keeps the frames, and releases them when its slot has the next step.
        let (there_a, there_c) = (other.put(&a), other.put(&c));
        let slot = &mut slots[number % 2];
        let got = staged_patches(&rig, &mut frames, slot, &[&there_a, &b, &there_c]);
        drop((there_a, there_c));
        assert_eq!(other.free(), 2, "held by the step");
        slot.release();
        assert_eq!(other.free(), 4);
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(got == want, "step {number}, picture {index}");
        }
    }
}

/// Without a current context the driver does not free, and the error would be that of the engine's next call.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn buffer_dropped_on_another_thread_frees_its_memory() {
    let rig = rig();
    // Its context is destroyed with it.
    let other = Other::new(rig.gpu.context.cu_device(), 1);
    let foreign = other.context;
    let current = || {
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        done(unsafe { sys::cuCtxGetCurrent(&mut context) });
        context as usize
    };
    // The last holder of its context, as after the engine's end.
    let last = {
        let gpu = library::open(0).unwrap();
        Buffer::<u8>::zeros(&gpu.context.new_stream().unwrap(), 1).unwrap()
    };
    on_another_thread(move || {
        // SAFETY: the context exists as long as `other`.
        done(unsafe { sys::cuCtxPushCurrent_v2(foreign as CUcontext) });
        drop(last);
        assert_eq!(current(), foreign, "the decoder's context is still current");
        // SAFETY: it takes off what was pushed above.
        done(unsafe { sys::cuCtxPopCurrent_v2(&mut ptr::null_mut()) });
    });
    rig.gpu.context.check_err().unwrap();
    // More than the memory of a GPU, if it were not freed.
    for _ in 0..200 {
        let buffer = Buffer::<u8>::zeros(&rig.stream, 1 << 30).unwrap();
        on_another_thread(move || drop(buffer));
        rig.gpu.context.check_err().unwrap();
    }
}

fn on_another_thread(work: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(work).join().unwrap());
}

#[test]
#[ignore = "needs a GPU and the GStreamer plugin nvcodec; run make test-gpu"]
fn gstreamer_gpu_frames_give_the_patches_of_host_frames() {
    let rig = rig();
    let pictures = uploaded(20, take_frame);
    assert_eq!(pictures.len(), 20);
    let mut frames =
        FramePreprocessor::new(&rig.stream, &VisionConfig::default(), PITCH * ROWS).unwrap();
    let mut stage = FrameStage::new(&rig.stream, STAGED_BYTES).unwrap();
    for (number, picture) in pictures.iter().enumerate() {
        let unpooled = picture.unpooled();
        let got = staged_patches(&rig, &mut frames, &mut stage, &[picture]);
        let copied = staged_patches(&rig, &mut frames, &mut stage, &[&unpooled]);
        assert!(!picture.is_on_host(), "fetched to the host");
        let want = staged_patches(&rig, &mut frames, &mut stage, &[&fetched(picture)]);
        assert!(picture.is_on_host(), "fetched by the test");
        assert!(!unpooled.is_on_host(), "in the same memory, or fetched");
        assert!(got == want && copied == want, "picture {number}");
    }
}

/// A copy on the host.
fn fetched(picture: &Picture) -> Picture {
    let size = (picture.width(), picture.height());
    let (mut planes, mut strides) = (Vec::new(), [0; 3]);
    for (index, stride) in strides.iter_mut().enumerate() {
        let Some((row_bytes, rows)) = picture.format().plane_size(index, size.0, size.1) else {
            break;
        };
        *stride = row_bytes;
        planes.push(
            (0..rows)
                .flat_map(|y| picture.row(index, y).to_vec())
                .collect(),
        );
    }
    let planes = Arc::<Vec<Vec<u8>>>::new(planes);
    Picture::new(layout_of(picture, strides), planes).unwrap()
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn step_holds_gpu_frames_until_commit_and_encodes_all() {
    let mut backend = micro();
    let other = Other::new(library::open(0).unwrap().context.cu_device(), 1);
    let on_host = picture(&mut Random::new(12), PixelFormat::Nv12, (1280, ROWS));
    let row = prompt(&backend, 0, &[1, 498, 95], Pick::Coord);
    let mut decide = |picture: Picture| -> (Vec<PickResult>, usize) {
        let image = job(&backend, picture);
        let step = Step {
            images: vec![image],
            rows: vec![row.clone()],
        };
        backend.launch(SlotId(0), step).unwrap();
        let held = 1 - other.free();
        let done = backend.commit(SlotId(0)).unwrap();
        assert_eq!(other.free(), 1, "let go by the commit");
        assert_eq!(done.crops_reused, 0);
        (done.picked.concat(), held)
    };
    let (want, held) = decide(on_host.clone());
    assert_eq!(held, 0);
    for _ in 0..2 {
        assert_eq!(decide(other.put(&on_host)), (want.clone(), 1));
    }
}
