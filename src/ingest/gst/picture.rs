//! From GStreamer's sample to our picture.
//!
//! Pixels are mapped, never copied: the frame keeps GStreamer's buffer alive, and the decoder's pool gets it back when
//! the last clone of the frame is gone.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer_video::{self as video, prelude::*};

use crate::domain::{ColourRange, Matrix, Picture, PixelFormat, Planes};

struct Mapped(video::VideoFrame<video::video_frame::Readable>);

impl Planes for Mapped {
    fn plane(&self, index: usize) -> &[u8] {
        self.0.plane_data(index as u32).unwrap_or(&[])
    }
}

/// The sample's picture without a copy. Errors say what is wrong with it.
pub fn picture_from_sample(sample: &gst::Sample) -> Result<Picture, String> {
    let caps = sample.caps().ok_or("it has no caps")?;
    let info = video::VideoInfo::from_caps(caps).map_err(|_| "its caps are no video".to_owned())?;
    let format = match info.format() {
        video::VideoFormat::Nv12 => PixelFormat::Nv12,
        video::VideoFormat::I420 => PixelFormat::I420,
        other => return Err(format!("its format is {}", other.to_str())),
    };
    let buffer = sample.buffer_owned().ok_or("it has no buffer")?;
    let mapped = video::VideoFrame::from_buffer_readable(buffer, &info)
        .map_err(|_| "its memory cannot be mapped".to_owned())?;
    let mut strides = [0; 3];
    for (stride, found) in strides.iter_mut().zip(mapped.plane_stride()) {
        *stride = usize::try_from(*found).map_err(|_| "its rows run upwards".to_owned())?;
    }
    let size = (info.width() as usize, info.height() as usize);
    let colour = colour(&info.colorimetry(), info.height());
    Picture::new(format, size, strides, colour, Arc::new(Mapped(mapped))).map_err(|e| e.to_string())
}

/// Unknown weights are guessed by the height, as everybody does: high definition is BT.709.
fn colour(colorimetry: &video::VideoColorimetry, height: u32) -> (Matrix, ColourRange) {
    let matrix = match colorimetry.matrix() {
        video::VideoColorMatrix::Bt709 => Matrix::Bt709,
        video::VideoColorMatrix::Bt601 => Matrix::Bt601,
        _ if height >= 720 => Matrix::Bt709,
        _ => Matrix::Bt601,
    };
    let range = match colorimetry.range() {
        video::VideoColorRange::Range0_255 => ColourRange::Full,
        _ => ColourRange::Limited,
    };
    (matrix, range)
}

/// The even size with the wanted width and the camera's aspect; `None` when the camera is not wider.
pub fn scaled_size((width, height): (u32, u32), wanted_width: u32) -> Option<(u32, u32)> {
    if width <= wanted_width || width == 0 {
        return None;
    }
    let wanted_width = (wanted_width & !1).max(2);
    let exact = f64::from(height) * f64::from(wanted_width) / f64::from(width);
    Some((wanted_width, ((exact / 2.0).round() as u32 * 2).max(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_only_made_smaller_and_even() {
        assert_eq!(scaled_size((640, 360), 1280), None);
        assert_eq!(scaled_size((1280, 720), 1280), None);
        assert_eq!(scaled_size((1920, 1080), 1280), Some((1280, 720)));
        assert_eq!(scaled_size((2560, 1440), 755), Some((754, 424)));
        assert_eq!(scaled_size((4000, 10), 100), Some((100, 2)));
    }
}
