//! What tests of several crates share: pictures that GStreamer brings to a GPU.

use gstreamer::{self as gst, prelude::*};
use gstreamer_app::AppSink;

use crate::ingest::{self, DeviceMap};
use spotter_core::Picture;

/// Has GStreamer these elements? Says on stdout which one is missing.
pub fn has_elements(elements: &[&str]) -> bool {
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
    if !has_elements(&["cudaupload"]) {
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
