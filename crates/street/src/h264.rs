//! Pictures through an H.264 encoder and decoder, as a camera sends them. Evaluation uses these, because no camera sends clean
//! drawings.

use std::path::Path;

use gstreamer::prelude::*;
use gstreamer_app::{AppSink, AppSrc};

use super::i420_picture;
use spotter_core::Picture;

/// Why pictures were not encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[error("H.264: {0}; it needs gstreamer1.0-plugins-ugly and gstreamer1.0-libav")]
pub struct CodecError(String);

impl CodecError {
    fn new(reason: impl ToString) -> Self {
        Self(reason.to_string())
    }
}

/// Settings of the encoder.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// Pixels, a multiple of 8, so that the decoder's rows have no padding.
    pub width: usize,
    /// Pixels, even.
    pub height: usize,
    pub fps: u32,
    /// Rate of the stream.
    pub kbit_per_s: u32,
}

/// Sends packed I420 frames (BT.601, limited range) through x264 and libav; iterates over the decoded pictures in order, one
/// for each frame sent. Each `next` blocks until the next picture is decoded.
pub fn through_h264(
    encoding: Encoding,
    frames: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> Result<impl Iterator<Item = Result<Picture, CodecError>>, CodecError> {
    let elements = format!("{} ! {DECODER}", x264(&encoding));
    let samples = CodecPipeline::start(RAW, &elements, encoding, frames)?;
    Ok(samples.map(move |sample| decoded_picture(&sample?, encoding)))
}

/// Scales a recording to the encoding's size and rate and sends it through x264 and libav, as a camera would send it; iterates
/// over the decoded pictures.
pub fn recording_through_h264(
    file: &Path,
    encoding: Encoding,
) -> Result<impl Iterator<Item = Result<Picture, CodecError>>, CodecError> {
    let Encoding {
        width, height, fps, ..
    } = encoding;
    let launch = format!(
        "filesrc name=file ! decodebin ! videoconvert ! videoscale ! videorate \
         ! {RAW},width={width},height={height},framerate={fps}/1 ! {} ! {DECODER} ! {SINK}",
        x264(&encoding)
    );
    let codec = CodecPipeline::build(&launch)?;
    let source = codec.pipeline.by_name("file");
    let source = source.ok_or_else(|| CodecError::new("filesrc is missing"))?;
    source.set_property("location", file);
    codec.play()?;
    Ok(codec.map(move |sample| decoded_picture(&sample?, encoding)))
}

/// The same frames as x264 sends them: an access unit with start codes for each, a key frame every two seconds. Blocks for
/// all of it.
pub fn encoded(
    encoding: Encoding,
    frames: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> Result<Vec<Vec<u8>>, CodecError> {
    let profile = "video/x-h264,profile=main,stream-format=byte-stream,alignment=au";
    let launch = format!("{} ! {profile}", x264(&encoding));
    let pipeline = CodecPipeline::start(RAW, &launch, encoding, frames)?;
    pipeline
        .map(|sample| sample_bytes(&sample?, <[u8]>::to_vec))
        .collect()
}

/// Decodes units of [`encoded`] with one thread of libav, at full speed; returns the number of pictures. Blocks for all of it.
pub fn decode(
    encoding: Encoding,
    units: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> Result<usize, CodecError> {
    let mut pictures = 0;
    for sample in CodecPipeline::start(UNITS, "avdec_h264 max-threads=1", encoding, units)? {
        sample?;
        pictures += 1;
    }
    Ok(pictures)
}

/// Caps of what is pushed, without size and rate.
const RAW: &str = "video/x-raw,format=I420,colorimetry=bt601";
const UNITS: &str = "video/x-h264,stream-format=byte-stream,alignment=au";

const DECODER: &str = "h264parse ! avdec_h264 max-threads=1 ! video/x-raw,format=I420";
const SINK: &str = "appsink name=out sync=false max-buffers=8";

/// One encoder thread: with more, the picture is cut into as many slices as the machine has cores, and evaluation must see
/// the same pictures everywhere.
fn x264(encoding: &Encoding) -> String {
    format!(
        "x264enc tune=zerolatency speed-preset=veryfast threads=1 key-int-max={} bitrate={}",
        encoding.fps * 2,
        encoding.kbit_per_s,
    )
}

/// A pipeline and the thread that pushes buffers into it; iterates over its samples. It stops when it is dropped.
struct CodecPipeline {
    pipeline: gstreamer::Pipeline,
    sink: AppSink,
}

impl CodecPipeline {
    fn start(
        caps: &str,
        elements: &str,
        encoding: Encoding,
        buffers: impl Iterator<Item = Vec<u8>> + Send + 'static,
    ) -> Result<Self, CodecError> {
        let (width, height, fps) = (encoding.width, encoding.height, encoding.fps);
        let codec = Self::build(&format!(
            "appsrc name=in format=time block=true max-buffers=8 \
             caps={caps},width={width},height={height},framerate={fps}/1 ! {elements} ! {SINK}"
        ))?;
        let source = codec.pipeline.by_name("in");
        let source = source.and_then(|e| e.downcast::<AppSrc>().ok());
        let source = source.ok_or_else(|| CodecError::new("appsrc is missing"))?;
        codec.play()?;
        let feed = move || feed(&source, encoding, buffers);
        std::thread::Builder::new()
            .name("h264-feed".into())
            .spawn(feed)
            .map_err(CodecError::new)?;
        Ok(codec)
    }

    /// With an `appsink` of the name `out`.
    fn build(launch: &str) -> Result<Self, CodecError> {
        gstreamer::init().map_err(CodecError::new)?;
        let pipeline = gstreamer::parse::launch(launch).map_err(CodecError::new)?;
        let pipeline = pipeline.downcast::<gstreamer::Pipeline>();
        let pipeline = pipeline.map_err(|_| CodecError::new("not a pipeline"))?;
        let sink = pipeline.by_name("out");
        let sink = sink.and_then(|e| e.downcast::<AppSink>().ok());
        let sink = sink.ok_or_else(|| CodecError::new("appsink is missing"))?;
        Ok(Self { pipeline, sink })
    }

    fn play(&self) -> Result<(), CodecError> {
        let playing = self.pipeline.set_state(gstreamer::State::Playing);
        playing.map_err(CodecError::new)?;
        Ok(())
    }

    fn failure(&self) -> Option<CodecError> {
        let bus = self.pipeline.bus()?;
        let message = bus.pop_filtered(&[gstreamer::MessageType::Error])?;
        match message.view() {
            gstreamer::MessageView::Error(e) => Some(CodecError::new(e.error())),
            _ => None,
        }
    }
}

impl Iterator for CodecPipeline {
    type Item = Result<gstreamer::Sample, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.sink.pull_sample() {
            Ok(sample) => Some(Ok(sample)),
            // The end, or an error that the bus explains.
            Err(_) => self.failure().map(Err),
        }
    }
}

impl Drop for CodecPipeline {
    fn drop(&mut self) {
        // A pipeline that is not set to NULL keeps its threads. If it does not stop, there is nothing to do about it.
        let _ = self.pipeline.set_state(gstreamer::State::Null);
    }
}

/// Pushes every frame, then the end of stream. A push fails when the reader was dropped; then there is nothing left to do.
fn feed(source: &AppSrc, encoding: Encoding, frames: impl Iterator<Item = Vec<u8>>) {
    for (number, frame) in frames.enumerate() {
        let mut buffer = gstreamer::Buffer::from_mut_slice(frame);
        if let Some(buffer) = buffer.get_mut() {
            let seconds = gstreamer::ClockTime::SECOND;
            buffer.set_pts(seconds.mul_div_floor(number as u64, u64::from(encoding.fps)));
            buffer.set_duration(seconds.mul_div_floor(1, u64::from(encoding.fps)));
        }
        if source.push_buffer(buffer).is_err() {
            return;
        }
    }
    let _ = source.end_of_stream();
}

fn decoded_picture(sample: &gstreamer::Sample, encoding: Encoding) -> Result<Picture, CodecError> {
    let Encoding { width, height, .. } = encoding;
    let picture = sample_bytes(sample, |bytes| {
        let pixels = bytes.get(..width * height * 3 / 2);
        pixels.map(|pixels| i420_picture(pixels, width, height))
    })?;
    let odd = "the decoder's picture has another layout; use a width that is a multiple of 8";
    let picture = picture.filter(|_| width.is_multiple_of(8));
    picture
        .ok_or_else(|| CodecError::new(odd))?
        .map_err(CodecError::new)
}

fn sample_bytes<T>(
    sample: &gstreamer::Sample,
    read: impl FnOnce(&[u8]) -> T,
) -> Result<T, CodecError> {
    let buffer = sample.buffer();
    let map = buffer.and_then(|buffer| buffer.map_readable().ok());
    let map = map.ok_or_else(|| CodecError::new("a sample cannot be read"))?;
    Ok(read(&map))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Encoding = Encoding {
        width: 64,
        height: 48,
        fps: 5,
        kbit_per_s: 500,
    };

    #[test]
    fn encoded_stream_decodes_with_keyframes_every_two_seconds() {
        // All equal: at a change of scene the encoder would insert a key frame.
        let frames = (0..25).map(|_| vec![100; 64 * 48 * 3 / 2]);
        let units = encoded(SMALL, frames).expect("x264");
        assert_eq!(units.len(), 25);
        // A key frame brings its parameter sets (type 7) along.
        let is_key = |unit: &Vec<u8>| {
            unit.windows(4)
                .any(|at| at[..3] == [0, 0, 1] && at[3] & 31 == 7)
        };
        let keys: Vec<usize> = (0..25).filter(|&i| is_key(&units[i])).collect();
        assert_eq!(keys, [0, 10, 20]);
        assert_eq!(decode(SMALL, units.into_iter()).expect("libav"), 25);
        let garbage = decode(SMALL, [vec![0; 100]].into_iter());
        assert!(matches!(garbage, Ok(0) | Err(CodecError(_))));
    }
}
