//! Pictures that lie on a device, or say so.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::AppSink;

use crate::{
    cuda,
    domain::{DevicePlanes, Picture, Planes},
    ingest::{self, DeviceMap},
};

/// What takes frames over for the first GPU; `None`, with a word, where GStreamer has not these elements or no GPU works.
pub fn device_map(elements: &[&str]) -> Option<DeviceMap> {
    if let Err(error) = cuda::open(0) {
        println!("left out: {error}");
        return None;
    }
    has(elements).then_some(cuda::take_frame)
}

fn has(elements: &[&str]) -> bool {
    ingest::start_gstreamer().unwrap();
    let missing = |name: &&&str| gst::ElementFactory::find(name).is_none();
    let missing = elements.iter().find(missing);
    if let Some(name) = missing {
        println!(
            "left out: GStreamer has no {name}; its plugin nvcodec needs libcuda, libnvcuvid and, to scale, an NVRTC \
             that GStreamer can use (GST_CUDA_NVRTC_LIBNAME; 1.22: CUDA 12's), and a registry made with them"
        );
    }
    missing.is_none()
}

/// So many pictures that GStreamer brought to a GPU, of a size that is padded there; `None`, with a word, where it cannot.
pub fn uploaded(count: usize, map: DeviceMap) -> Option<Vec<Picture>> {
    if !has(&["cudaupload"]) {
        return None;
    }
    let text = format!(
        "videotestsrc num-buffers={count} pattern=ball ! video/x-raw,format=NV12,width=1286,height=722 \
         ! cudaupload ! video/x-raw(memory:CUDAMemory) ! appsink name=sink sync=false"
    );
    let pipeline = gst::parse::launch(&text).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let sink = pipeline.by_name("sink").unwrap();
    let sink = sink.downcast::<AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let limit = gst::ClockTime::from_seconds(20);
    let samples = std::iter::from_fn(|| sink.try_pull_sample(limit));
    let pictures = samples
        .map(|sample| ingest::picture_on_device(&sample, map).unwrap())
        .collect();
    pipeline.set_state(gst::State::Null).unwrap();
    Some(pictures)
}

/// Planes that say that they lie on a device, one behind the other, and count how often they are copied to the host.
pub struct Elsewhere {
    there: Vec<Vec<u8>>,
    here: OnceLock<Vec<Vec<u8>>>,
    copies: AtomicUsize,
    lost: bool,
}

impl Elsewhere {
    /// These planes.
    pub fn new(planes: Vec<Vec<u8>>) -> Self {
        Self {
            there: planes,
            here: OnceLock::new(),
            copies: AtomicUsize::new(0),
            lost: false,
        }
    }

    /// The same, which cannot be copied.
    pub fn lost(planes: Vec<Vec<u8>>) -> Self {
        Self {
            lost: true,
            ..Self::new(planes)
        }
    }

    /// How often they were copied to the host.
    pub fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }
}

impl Planes for Elsewhere {
    fn plane(&self, index: usize) -> &[u8] {
        let copy = || {
            self.copies.fetch_add(1, Ordering::Relaxed);
            match self.lost {
                true => self
                    .there
                    .iter()
                    .map(|plane| vec![0; plane.len()])
                    .collect(),
                false => self.there.clone(),
            }
        };
        &self.here.get_or_init(copy)[index]
    }

    fn fetch(&self) -> bool {
        self.plane(0);
        !self.lost
    }

    fn plane_len(&self, index: usize) -> usize {
        self.there[index].len()
    }

    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        let mut offsets = [0; 3];
        for (index, plane) in self.there.iter().enumerate().take(2) {
            offsets[index + 1] = offsets[index] + plane.len();
        }
        offsets[self.there.len()..].fill(0);
        Some(DevicePlanes {
            memory: &(),
            offsets,
        })
    }

    fn is_on_host(&self) -> bool {
        !self.lost && self.here.get().is_some()
    }
}
