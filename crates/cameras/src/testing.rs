//! What tests of several crates share: pictures that GStreamer brings to a GPU.

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::AppSink;

use crate::ingest::{self, DeviceMap};
use spotter_core::Picture;

/// Panics where GStreamer lacks one of these elements.
pub fn need_elements(elements: &[&str]) {
    ingest::start_gstreamer().unwrap();
    let missing = |name: &&&str| gst::ElementFactory::find(name).is_none();
    if let Some(name) = elements.iter().find(missing) {
        panic!(
            "GStreamer has no {name}; its plugin nvcodec needs libcuda, libnvcuvid and, to scale, an NVRTC \
             that GStreamer can use (GST_CUDA_NVRTC_LIBNAME; 1.22: CUDA 12's), and a registry made with them"
        );
    }
}

/// `count` pictures that GStreamer brought to a GPU, of a size that is padded there. Panics where GStreamer cannot.
pub fn uploaded(count: usize, map: DeviceMap) -> Vec<Picture> {
    need_elements(&["cudaupload"]);
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
    let picture = |sample| ingest::picture_on_device(&sample, map).unwrap();
    let pictures = samples.map(picture).collect();
    pipeline.set_state(gst::State::Null).unwrap();
    pictures
}
