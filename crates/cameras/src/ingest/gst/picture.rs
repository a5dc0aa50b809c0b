//! Makes a [`Picture`] of GStreamer's sample.
//!
//! Pixels are mapped: the frame keeps GStreamer's buffer alive, and the decoder's pool gets it back when the last clone of
//! the frame is gone. A picture on a GPU stays there; GStreamer copies it to the host when a row is read. Only looks that go on for
//! seconds have a copy outside of the pool ([`Planes::unpooled`]).

use std::sync::{Arc, OnceLock};

use gstreamer::{self as gst, glib};
use gstreamer_video::{self as video, prelude::*};
use tracing::warn;

use super::tail::is_in_nvmm;
use spotter_core::{
    ColourMatrix, ColourRange, DeviceMemory, DevicePlanes, Picture, PictureLayout, PixelFormat,
    Planes,
};

/// Takes over a buffer in a GPU's memory for the engine's device, in GStreamer's thread; the error says why not. Handed in,
/// because only that device's backend can read such memory.
pub type DeviceMap = fn(gst::Buffer) -> Result<DeviceMemory, String>;

struct MappedPlanes(video::VideoFrame<video::video_frame::Readable>);

impl Planes for MappedPlanes {
    fn plane(&self, index: usize) -> &[u8] {
        self.0.plane_data(index as u32).unwrap_or(&[])
    }

    fn unpooled(&self) -> Option<Arc<dyn Planes>> {
        let planes = (0..self.0.n_planes() as usize).map(|index| self.plane(index).to_vec());
        Some(Arc::new(planes.collect::<Vec<_>>()))
    }
}

/// On a GPU, and on the host once a byte was read.
struct GpuPlanes {
    memory: DeviceMemory,
    map: DeviceMap,
    offsets: [usize; 3],
    bytes: usize,
    buffer: gst::Buffer,
    info: video::VideoInfo,
    /// The host's copy, or planes of zeros, because the copy failed.
    host: OnceLock<Result<MappedPlanes, Vec<Vec<u8>>>>,
}

impl GpuPlanes {
    /// The planes of a buffer whose memory `map` takes over.
    fn new(
        buffer: gst::Buffer,
        info: video::VideoInfo,
        offsets: [usize; 3],
        map: DeviceMap,
    ) -> Result<Self, String> {
        Ok(Self {
            memory: map(buffer.clone())?,
            map,
            offsets,
            bytes: buffer.size(),
            buffer,
            info,
            host: OnceLock::new(),
        })
    }

    /// GStreamer copies memory of a GPU within that GPU, and waits for the end of the copy.
    fn copied_on_device(&self) -> Result<Self, String> {
        let buffer = self.buffer.copy_deep().map_err(|e| e.to_string())?;
        if buffer.size() < self.bytes {
            return Err("the copy has less memory".into());
        }
        Self::new(buffer, self.info.clone(), self.offsets, self.map)
    }

    /// GStreamer copies memory of a GPU to the host when it is mapped without flags.
    fn on_host(&self) -> &Result<MappedPlanes, Vec<Vec<u8>>> {
        self.host.get_or_init(|| {
            let mapped = video::VideoFrame::from_buffer_readable(self.buffer.clone(), &self.info);
            mapped.map(MappedPlanes).map_err(|_| {
                warn!("a picture cannot be fetched from the GPU");
                (0..3).map(|plane| vec![0; self.plane_len(plane)]).collect()
            })
        })
    }
}

impl Planes for GpuPlanes {
    fn plane(&self, index: usize) -> &[u8] {
        match self.on_host() {
            Ok(mapped) => mapped.plane(index),
            Err(zeros) => &zeros[index],
        }
    }

    fn fetch(&self) -> bool {
        self.on_host().is_ok()
    }

    fn plane_len(&self, index: usize) -> usize {
        self.bytes.saturating_sub(self.offsets[index])
    }

    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        Some(DevicePlanes {
            memory: &*self.memory,
            offsets: self.offsets,
        })
    }

    fn is_on_host(&self) -> bool {
        matches!(self.host.get(), Some(Ok(_)))
    }

    fn unpooled(&self) -> Option<Arc<dyn Planes>> {
        match self.copied_on_device() {
            Ok(copy) => Some(Arc::new(copy)),
            Err(reason) => {
                warn!(
                    "a picture that texts are written about keeps the decoder's buffer, because it cannot be copied on the GPU: {reason}"
                );
                None
            }
        }
    }
}

/// The sample's picture on the host, without a copy when it is there. Errors say what is wrong with it.
pub fn picture_from_sample(sample: &gst::Sample) -> Result<Picture, String> {
    let (buffer, info) = buffer_of(sample)?;
    mapped_picture(buffer, &info)
}

/// The same of a picture in any format that GStreamer knows: what is neither NV12 nor I420 is converted, which takes as long as in the scaler.
pub fn picture_of_any_format(sample: &gst::Sample) -> Result<Picture, String> {
    let (buffer, info) = buffer_of(sample)?;
    if pixel_format(&info).is_ok() {
        return mapped_picture(buffer, &info);
    }
    let format = info.format();
    let (buffer, info) = converted(buffer, &info)
        .map_err(|e| format!("it cannot be converted from {}: {e}", format.to_str()))?;
    mapped_picture(buffer, &info)
}

fn mapped_picture(buffer: gst::Buffer, info: &video::VideoInfo) -> Result<Picture, String> {
    let mapped = video::VideoFrame::from_buffer_readable(buffer, info)
        .map_err(|_| "its memory cannot be mapped".to_owned())?;
    let strides = mapped.plane_stride().to_vec();
    picture(info, &strides, Arc::new(MappedPlanes(mapped)))
}

/// A copy in I420, with the same colours where they are YUV.
fn converted(
    buffer: gst::Buffer,
    info: &video::VideoInfo,
) -> Result<(gst::Buffer, video::VideoInfo), glib::BoolError> {
    let wanted = video::VideoInfo::builder(video::VideoFormat::I420, info.width(), info.height())
        .fps(info.fps())
        .interlace_mode(info.interlace_mode())
        .colorimetry_if(&info.colorimetry(), info.format_info().is_yuv())
        .build()?;
    let converter = video::VideoConverter::new(info, &wanted, None)?;
    let unmapped = |_| glib::bool_error!("its memory cannot be mapped");
    let from = video::VideoFrame::from_buffer_readable(buffer, info).map_err(unmapped)?;
    let copy = gst::Buffer::with_size(wanted.size())?;
    let mut into = video::VideoFrame::from_buffer_writable(copy, &wanted).map_err(unmapped)?;
    converter.frame(&from, &mut into);
    Ok((into.into_buffer(), wanted))
}

/// The sample's picture on a GPU, with its memory taken over by `map`. Errors say what is wrong with it; it may still be one
/// for the host.
pub fn picture_on_device(sample: &gst::Sample, map: DeviceMap) -> Result<Picture, String> {
    let (buffer, info) = buffer_of(sample)?;
    // The driver pads rows on a GPU, which the caps do not show.
    let meta = buffer.meta::<video::VideoMeta>();
    let (begins, strides) = match &meta {
        Some(meta) => (meta.offset().to_vec(), meta.stride().to_vec()),
        None => (info.offset().to_vec(), info.stride().to_vec()),
    };
    let offsets = std::array::from_fn(|plane| begins.get(plane).copied().unwrap_or_default());
    let planes = GpuPlanes::new(buffer, info.clone(), offsets, map)?;
    picture(&info, &strides, Arc::new(planes))
}

/// The colorimetry of pictures in a Jetson decoder's memory, `None` for other pictures. The decoder marks its memory as BT.601 with
/// limited range where the stream does not say.
pub fn nvmm_colorimetry(caps: &gst::CapsRef) -> Option<String> {
    let stream = caps.structure(0).filter(|_| is_in_nvmm(caps))?;
    let named = stream.get::<&str>("colorimetry").unwrap_or("bt601");
    Some(named.to_owned())
}

/// The sample with that colorimetry in its caps, `None` when they have one. A converter copies pixels as they are and drops the name.
pub fn with_colorimetry(sample: &gst::Sample, colorimetry: &str) -> Option<gst::Sample> {
    let mut caps = sample.caps_owned()?;
    if caps.structure(0)?.has_field("colorimetry") {
        return None;
    }
    caps.make_mut().set("colorimetry", colorimetry);
    let buffer = sample.buffer_owned()?;
    let named = gst::Sample::builder().buffer(&buffer).caps(&caps);
    Some(named.build())
}

fn buffer_of(sample: &gst::Sample) -> Result<(gst::Buffer, video::VideoInfo), String> {
    let caps = sample.caps().ok_or("it has no caps")?;
    let info = video::VideoInfo::from_caps(caps).map_err(|_| "its caps are no video".to_owned())?;
    Ok((sample.buffer_owned().ok_or("it has no buffer")?, info))
}

fn picture(
    info: &video::VideoInfo,
    padded: &[i32],
    planes: Arc<dyn Planes>,
) -> Result<Picture, String> {
    let format = pixel_format(info)?;
    let mut strides = [0; 3];
    for (stride, found) in strides.iter_mut().zip(padded) {
        *stride = usize::try_from(*found).map_err(|_| "its rows run upwards".to_owned())?;
    }
    let layout = PictureLayout {
        format,
        size: (info.width() as usize, info.height() as usize),
        strides,
        colour: colour(&info.colorimetry(), info.height()),
    };
    Picture::new(layout, planes).map_err(|e| e.to_string())
}

fn pixel_format(info: &video::VideoInfo) -> Result<PixelFormat, String> {
    match info.format() {
        video::VideoFormat::Nv12 => Ok(PixelFormat::Nv12),
        video::VideoFormat::I420 => Ok(PixelFormat::I420),
        other => Err(format!("its format is {}", other.to_str())),
    }
}

/// Unknown weights are guessed by the height, as everybody does: high definition is BT.709.
fn colour(colorimetry: &video::VideoColorimetry, height: u32) -> (ColourMatrix, ColourRange) {
    let matrix = match colorimetry.matrix() {
        video::VideoColorMatrix::Bt709 => ColourMatrix::Bt709,
        video::VideoColorMatrix::Bt601 => ColourMatrix::Bt601,
        _ if height >= 720 => ColourMatrix::Bt709,
        _ => ColourMatrix::Bt601,
    };
    let range = match colorimetry.range() {
        video::VideoColorRange::Range0_255 => ColourRange::Full,
        _ => ColourRange::Limited,
    };
    (matrix, range)
}

/// The even size with the wanted width and the camera's aspect; `None` when the camera is not wider.
pub fn scaled_size(width: u32, height: u32, wanted_width: u32) -> Option<(u32, u32)> {
    if width <= wanted_width || width == 0 {
        return None;
    }
    let wanted_width = (wanted_width & !1).max(2);
    let exact = f64::from(height) * f64::from(wanted_width) / f64::from(width);
    Some((wanted_width, ((exact / 2.0).round() as u32 * 2).max(2)))
}

#[cfg(test)]
mod tests {
    use gstreamer_app::AppSink;

    use super::*;

    /// NV12 of 4 x 2 pixels, with rows 6 bytes apart and a gap between the planes, as a GPU may pad them.
    fn padded() -> gst::Sample {
        gst::init().unwrap();
        let caps = "video/x-raw,format=NV12,width=4,height=2,framerate=0/1";
        let caps: gst::Caps = caps.parse().unwrap();
        let mut buffer = gst::Buffer::from_slice((0..26u8).collect::<Vec<_>>());
        let (format, flags) = (video::VideoFormat::Nv12, video::VideoFrameFlags::empty());
        let made = buffer.get_mut().unwrap();
        video::VideoMeta::add_full(made, flags, format, 4, 2, &[0, 20], &[6, 6]).unwrap();
        gst::Sample::builder().buffer(&buffer).caps(&caps).build()
    }

    #[test]
    fn device_picture_keeps_its_layout_and_is_copied_when_read() {
        let sample = padded();
        let picture = picture_on_device(&sample, |buffer| Ok(Box::new(buffer.size()))).unwrap();
        let planes = picture.on_device().unwrap();
        assert_eq!(planes.memory.downcast_ref(), Some(&26_usize));
        assert_eq!((planes.offsets, picture.stride(1)), ([0, 20, 0], 6));
        assert!(!picture.is_on_host());
        assert_eq!(picture.row(0, 1), [6, 7, 8, 9]);
        assert_eq!(picture.row(1, 0), [20, 21, 22, 23]);
        assert!(picture.is_on_host());

        let on_host = picture_from_sample(&sample).unwrap();
        assert!(on_host.is_on_host() && on_host.on_device().is_none());
        assert_eq!(on_host.row(1, 0), picture.row(1, 0));
        let refused = picture_on_device(&sample, |_| Err("no such memory".into()));
        assert_eq!(refused.err().as_deref(), Some("no such memory"));
    }

    /// A red picture of GStreamer's test source.
    fn red(caps: &str) -> gst::Sample {
        gst::init().unwrap();
        let text = format!("videotestsrc num-buffers=1 pattern=red ! {caps} ! appsink name=end");
        let pipeline = gst::parse::launch(&text).unwrap();
        let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let end = pipeline.by_name("end").unwrap();
        let sample = end.downcast::<AppSink>().unwrap().pull_sample().unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
        sample
    }

    #[test]
    fn picture_of_any_format_has_its_size_and_colours() {
        let formats = "NV12 I420 Y42B YUY2 Y444 I420_10LE I422_10LE P010_10LE RGB";
        for format in formats.split(' ') {
            for colorimetry in ["bt601", "bt709", "1:4:0:0"] {
                let colours = format!("width=34,height=18,colorimetry={colorimetry}");
                let caps = match format {
                    "RGB" => "width=34,height=18",
                    _ => &colours,
                };
                let sample = red(&format!("video/x-raw,format={format},{caps}"));
                let picture = picture_of_any_format(&sample).unwrap();
                let same = red(&format!("video/x-raw,format=I420,{caps}"));
                let same = picture_from_sample(&same).unwrap();
                let of = |picture: &Picture| (picture.size(), picture.matrix(), picture.range());
                assert_eq!(of(&picture), of(&same), "{format} {caps}");
                // All pixels are red, so a byte of luma and one of chroma say all.
                for (plane, y, x) in [(0, 17, 33), (1, 8, 16)] {
                    let [found, wanted] = [&picture, &same].map(|of| of.row(plane, y)[x]);
                    assert!(
                        found.abs_diff(wanted) <= 1,
                        "{format} {caps}: {found} {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn colours_of_jetson_pictures_are_those_of_its_decoder() {
        gst::init().unwrap();
        let caps = |text: &str| text.parse::<gst::Caps>().unwrap();
        let unnamed = "video/x-raw(memory:NVMM),format=NV12,width=1280,height=720";
        assert_eq!(nvmm_colorimetry(&caps("video/x-raw,format=NV12")), None);
        let default = nvmm_colorimetry(&caps(unnamed)).unwrap();
        assert_eq!(default, "bt601");
        let named = caps(&format!("{unnamed},colorimetry=bt709"));
        assert_eq!(nvmm_colorimetry(&named).as_deref(), Some("bt709"));

        let on_host = caps("video/x-raw,format=NV12,width=1280,height=720,framerate=0/1");
        let buffer = gst::Buffer::from_slice(vec![0; 1280 * 720 * 3 / 2]);
        let sample = gst::Sample::builder()
            .buffer(&buffer)
            .caps(&on_host)
            .build();
        let matrix = |sample| picture_from_sample(sample).unwrap().matrix();
        assert_eq!(matrix(&sample), ColourMatrix::Bt709);
        let sample = with_colorimetry(&sample, &default).unwrap();
        assert_eq!(matrix(&sample), ColourMatrix::Bt601);
        assert!(with_colorimetry(&sample, "bt709").is_none());
    }

    #[test]
    fn pictures_are_only_made_smaller_and_even() {
        assert_eq!(scaled_size(640, 360, 1280), None);
        assert_eq!(scaled_size(1280, 720, 1280), None);
        assert_eq!(scaled_size(1920, 1080, 1280), Some((1280, 720)));
        assert_eq!(scaled_size(2560, 1440, 755), Some((754, 424)));
        assert_eq!(scaled_size(4000, 10, 100), Some((100, 2)));
    }
}
