//! Looks that wait for texts, and the buffers of their camera's decoder.
//!
//! Faults: C56.

use gstreamer::{self as gst, prelude::*};

use super::*;
use crate::ingest::{picture_from_sample, picture_on_device, start_gstreamer};

/// Buffers of a decoder's pool.
const BUFFERS: u32 = 4;

/// A pool of fixed size for NV12 pictures of 4 x 2 pixels.
struct DecoderPool {
    pool: gst::BufferPool,
    caps: gst::Caps,
}

impl DecoderPool {
    fn new() -> Self {
        start_gstreamer().unwrap();
        let caps = "video/x-raw,format=NV12,width=4,height=2,framerate=0/1";
        let caps: gst::Caps = caps.parse().unwrap();
        let pool = gst::BufferPool::new();
        let mut config = pool.config();
        config.set_params(Some(&caps), 12, 0, BUFFERS);
        pool.set_config(config).unwrap();
        pool.set_active(true).unwrap();
        Self { pool, caps }
    }

    /// The next picture of one grey level; `None` when a decoder would have to wait for a buffer.
    fn decode(&self, grey: u8) -> Option<gst::Sample> {
        let flags = gst::BufferPoolAcquireFlags::DONTWAIT;
        let params = gst::BufferPoolAcquireParams::with_flags(flags);
        let mut buffer = self.pool.acquire_buffer(Some(&params)).ok()?;
        let bytes = [[grey; 8].as_slice(), &[128; 4]].concat();
        buffer
            .get_mut()
            .unwrap()
            .copy_from_slice(0, &bytes)
            .unwrap();
        let sample = gst::Sample::builder().buffer(&buffer).caps(&self.caps);
        Some(sample.build())
    }
}

/// One that asks for texts of the model's own words.
fn describing(id: &str) -> CameraConfig {
    let mut camera = person(id);
    camera.prompts[0].task = what_happens();
    camera
}

/// One whose objects get outlines.
fn outlining(id: &str) -> CameraConfig {
    let mut camera = person(id);
    camera.prompts[0].outlines_max = 3;
    camera
}

/// Takes a look each second and keeps its picture. Returns how many got one before the decoder has no buffer.
fn kept_looks(camera: CameraConfig, picture: impl Fn(&gst::Sample) -> Picture) -> u32 {
    let pool = DecoderPool::new();
    let mut bench = Bench::new(&[camera]);
    let mut kept = Vec::new();
    for number in 0..3 * BUFFERS {
        let grey = 100 + number as u8;
        let Some(sample) = pool.decode(grey) else {
            return number;
        };
        let mut frame = bench.frame(0, ms(20), 0);
        frame.picture = picture(&sample);
        drop(sample);
        bench.put_frame(frame);
        let look = bench.look();
        // The prompt is due again, and the picture is still kept.
        let picture = look.frame.picture.clone();
        bench.end(look, FrameEnd::Failed);
        kept.push((grey, picture));
        bench.clock.advance(ms(1000));
    }
    for (grey, picture) in kept {
        assert_eq!(picture.row(0, 1), [grey; 4]);
    }
    3 * BUFFERS
}

#[test]
fn looks_with_texts_keep_no_buffer_of_the_decoder() {
    let on_host = |sample: &gst::Sample| picture_from_sample(sample).unwrap();
    // In the place of memory of a GPU.
    let on_device = |sample: &gst::Sample| {
        let picture = picture_on_device(sample, |buffer| Ok(Box::new(buffer)));
        picture.unwrap()
    };
    for camera in [describing("gate"), outlining("gate")] {
        assert_eq!(kept_looks(camera.clone(), on_host), 3 * BUFFERS);
        assert_eq!(kept_looks(camera, on_device), 3 * BUFFERS);
    }
    // Short answers have a time limit, so their looks are not copied.
    assert_eq!(kept_looks(person("gate"), on_host), BUFFERS);
}
