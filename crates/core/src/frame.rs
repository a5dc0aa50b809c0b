//! One decoded picture and its times. Cheap to clone: the pixels stay where the decoder put them, until a copy is made for texts
//! ([`Picture::unpooled`]).

use std::{any::Any, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{CameraId, Capture, Mono, PixelRect, WallTime};

/// Memory that holds the planes of a picture: a mapped GStreamer frame, a `Vec`, or memory of a GPU.
pub trait Planes: Send + Sync {
    /// Bytes of plane `index` from its first pixel on. Never called with an index the format does not have. Planes on a
    /// device are copied to the host when this is first called, so call it only when the bytes are needed.
    fn plane(&self, index: usize) -> &[u8];

    /// Length of plane `index` in bytes; copies nothing.
    fn plane_len(&self, index: usize) -> usize {
        self.plane(index).len()
    }

    /// The planes in the memory of a device, when they are there.
    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        None
    }

    /// False while [`Planes::plane`] would have to copy from a device.
    fn is_on_host(&self) -> bool {
        true
    }

    /// Copies planes on a device to the host, as [`Planes::plane`] would do; false when that fails. `plane` gives zeros then.
    fn fetch(&self) -> bool {
        true
    }

    /// A copy outside of the decoder's pool, with the same layout; `None`: the planes lie in no pool's buffer, or cannot be copied.
    fn unpooled(&self) -> Option<Arc<dyn Planes>> {
        None
    }
}

/// Owned memory of a device. Only the crate that drives the device creates it and reads it, so that no other code can make an
/// invalid address.
pub type DeviceMemory = Box<dyn Any + Send + Sync>;

/// Planes in the memory of a device.
#[derive(Clone, Copy)]
pub struct DevicePlanes<'a> {
    /// The content of a [`DeviceMemory`].
    pub memory: &'a (dyn Any + Send + Sync),
    /// Bytes from the memory's beginning to each plane.
    pub offsets: [usize; 3],
}

/// A packed picture in one vector (RGB, or an I420/NV12 frame cut into its planes).
impl Planes for Vec<Vec<u8>> {
    fn plane(&self, index: usize) -> &[u8] {
        &self[index]
    }
}

/// Layouts the decoder may hand over; 8 bits a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PixelFormat {
    /// One plane, R G B.
    Rgb,
    /// Y plane, then interleaved U V at half size.
    Nv12,
    /// Y plane, U plane, V plane; chroma at half size.
    I420,
}

impl PixelFormat {
    /// Bytes from one column of plane `index` to the next, and columns and rows of the picture that one of the plane covers.
    pub fn plane_step(self, index: usize) -> (usize, usize) {
        match (self, index) {
            (Self::Rgb, _) => (3, 1),
            (_, 0) => (1, 1),
            (Self::Nv12, _) => (2, 2),
            (Self::I420, _) => (1, 2),
        }
    }

    /// The byte that is black in plane `index`, or no colour.
    pub fn black(self, index: usize, range: ColourRange) -> u8 {
        match (self, index, range) {
            (Self::Nv12 | Self::I420, 0, ColourRange::Limited) => 16,
            (Self::Rgb, ..) | (_, 0, ColourRange::Full) => 0,
            _ => 128,
        }
    }

    /// Width in bytes and height in rows of plane `index` of a picture of `width` x `height` pixels.
    pub fn plane_size(self, index: usize, width: usize, height: usize) -> Option<(usize, usize)> {
        let half = (width.div_ceil(2), height.div_ceil(2));
        match (self, index) {
            (Self::Rgb, 0) => Some((width * 3, height)),
            (Self::Nv12 | Self::I420, 0) => Some((width, height)),
            (Self::Nv12, 1) => Some((half.0 * 2, half.1)),
            (Self::I420, 1 | 2) => Some(half),
            _ => None,
        }
    }
}

/// Coefficients of the conversion from RGB to YUV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColourMatrix {
    /// ITU-R BT.601, standard definition.
    Bt601,
    /// ITU-R BT.709, high definition.
    Bt709,
}

/// Which bytes mean black and white in YUV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColourRange {
    /// Luma 16..235, the rule in video.
    Limited,
    /// 0..255, as in JPEG.
    Full,
}

/// Memory does not fit the layout of a picture: a plane ends before its last row, rows overlap, or there is no pixel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory of a picture does not fit its layout: {0:?}")]
pub struct PictureError(PictureLayout);

/// How the bytes of a picture are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureLayout {
    pub format: PixelFormat,
    /// Width and height in pixels.
    pub size: (usize, usize),
    /// Bytes from row to row, by plane.
    pub strides: [usize; 3],
    /// Meaning of YUV bytes; ignored for RGB.
    pub colour: (ColourMatrix, ColourRange),
}

/// Pixels with their layout. Clones share the memory.
#[derive(Clone)]
pub struct Picture {
    layout: PictureLayout,
    /// Bytes of each plane before the first pixel: a part of a picture shares its memory.
    starts: [usize; 3],
    planes: Arc<dyn Planes>,
}

impl Picture {
    /// Checks that every plane has the bytes that the layout needs.
    pub fn new(layout: PictureLayout, planes: Arc<dyn Planes>) -> Result<Self, PictureError> {
        let (width, height) = layout.size;
        let fits = |(plane, &stride): (usize, &usize)| {
            let size = layout.format.plane_size(plane, width, height);
            size.is_none_or(|(row_bytes, rows)| {
                stride >= row_bytes && planes.plane_len(plane) >= stride * (rows - 1) + row_bytes
            })
        };
        let has_pixels = width > 0 && height > 0;
        if !has_pixels || !layout.strides.iter().enumerate().all(fits) {
            return Err(PictureError(layout));
        }
        Ok(Self {
            layout,
            starts: [0; 3],
            planes,
        })
    }

    /// A packed RGB picture, `width * height * 3` bytes.
    pub fn from_rgb(width: usize, height: usize, bytes: Vec<u8>) -> Result<Self, PictureError> {
        let colour = (ColourMatrix::Bt601, ColourRange::Full);
        Self::new(
            PictureLayout {
                format: PixelFormat::Rgb,
                size: (width, height),
                strides: [width * 3, 0, 0],
                colour,
            },
            Arc::new(vec![bytes]),
        )
    }

    /// A part of the picture, in the same memory; what of `part` is beyond the picture is left out. Its left and top are even, so
    /// that it begins with a sample of chroma.
    pub fn part(&self, part: PixelRect) -> Self {
        let (width, height) = self.layout.size;
        let left = part.left.min((width - 1) / 2 * 2);
        let top = part.top.min((height - 1) / 2 * 2);
        let mut cut = self.clone();
        cut.layout.size = (
            part.width.clamp(1, width - left),
            part.height.clamp(1, height - top),
        );
        for (index, start) in cut.starts.iter_mut().enumerate() {
            let (bytes, pixels) = self.layout.format.plane_step(index);
            *start += top / pixels * self.layout.strides[index] + left / pixels * bytes;
        }
        cut
    }

    pub fn format(&self) -> PixelFormat {
        self.layout.format
    }

    /// Width and height in pixels.
    pub fn size(&self) -> (usize, usize) {
        self.layout.size
    }

    pub fn width(&self) -> usize {
        self.layout.size.0
    }

    pub fn height(&self) -> usize {
        self.layout.size.1
    }

    /// Weights of the YUV formats.
    pub fn matrix(&self) -> ColourMatrix {
        self.layout.colour.0
    }

    /// Range of the YUV formats.
    pub fn range(&self) -> ColourRange {
        self.layout.colour.1
    }

    /// Bytes from row to row of plane `index`.
    pub fn stride(&self, index: usize) -> usize {
        self.layout.strides[index]
    }

    /// Its planes in the memory of a device, when they are there.
    pub fn on_device(&self) -> Option<DevicePlanes<'_>> {
        let planes = self.planes.on_device()?;
        let offsets = std::array::from_fn(|index| planes.offsets[index] + self.starts[index]);
        Some(DevicePlanes { offsets, ..planes })
    }

    /// False while [`Picture::row`] would have to copy the picture from a device.
    pub fn is_on_host(&self) -> bool {
        self.planes.is_on_host()
    }

    /// Copies a picture that is on a device to the host; false when that fails. Its rows are zeros then.
    pub fn fetch(&self) -> bool {
        self.planes.fetch()
    }

    /// The picture for one who keeps it for seconds. It does not keep a buffer that its decoder needs for the next pictures: a decoder
    /// with a pool of fixed size stops when all its buffers are kept. Copies the planes, on the device where they are on one.
    #[must_use]
    pub fn unpooled(&self) -> Self {
        let planes = self.planes.unpooled();
        Self {
            planes: planes.unwrap_or_else(|| Arc::clone(&self.planes)),
            ..self.clone()
        }
    }

    /// Row `y` of plane `index`, without padding. Copies a picture that is on a device to the host.
    pub fn row(&self, index: usize, y: usize) -> &[u8] {
        let PictureLayout { format, size, .. } = self.layout;
        let row = format.plane_size(index, size.0, size.1);
        let row_bytes = row.map_or(0, |(row_bytes, _)| row_bytes);
        let start = self.starts[index] + y * self.layout.strides[index];
        &self.planes.plane(index)[start..start + row_bytes]
    }
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PictureLayout { format, size, .. } = self.layout;
        write!(f, "Picture({format:?} {}x{})", size.0, size.1)
    }
}

/// When a frame was seen, in the process's monotonic time and in the world's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameTimes {
    /// Its first packet arrived.
    pub received: Mono,
    /// The same moment, UTC.
    pub received_wall: WallTime,
    /// The decoded picture was handed over.
    pub decoded: Mono,
    /// Capture time at the sensor; `None` when it is unknown.
    pub capture: Option<Capture>,
    /// The RTP time stamp, when the source has one.
    pub rtp: Option<u32>,
}

/// One picture of one camera.
#[derive(Clone, Debug)]
pub struct Frame {
    pub camera: CameraId,
    /// Counts every decoded frame of the camera since the process started, from 1, also over reconnects.
    pub number: u64,
    /// Size that the camera sent, pixels, before Spotter scales it.
    pub camera_size: (u32, u32),
    /// True for a key frame.
    pub key: bool,
    pub times: FrameTimes,
    pub picture: Picture,
}

/// Which frame of which camera.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId {
    pub camera: CameraId,
    /// As [`Frame::number`].
    pub number: u64,
}

impl Frame {
    pub fn id(&self) -> FrameId {
        FrameId {
            camera: self.camera.clone(),
            number: self.number,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{FakeDevicePlanes, planar_picture};

    /// A picture whose bytes all differ from their neighbours, with padded rows.
    fn numbered(format: PixelFormat, size: (usize, usize)) -> Picture {
        planar_picture(format, size, 5, |plane, at| (at * 7 + plane) as u8)
    }

    proptest! {
        #[test]
        fn part_has_the_rows_of_its_picture_and_no_others(
            format in prop::sample::select(vec![PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420]),
            size in (1usize..40, 1usize..40),
            corner in (0usize..20, 0usize..20),
            part in (1usize..40, 1usize..40),
        ) {
            let picture = numbered(format, size);
            let wanted = PixelRect { left: corner.0 * 2, top: corner.1 * 2, width: part.0, height: part.1 };
            let cut = picture.part(wanted);
            let left = wanted.left.min((size.0 - 1) / 2 * 2);
            let top = wanted.top.min((size.1 - 1) / 2 * 2);
            prop_assert_eq!(cut.size(), (wanted.width.min(size.0 - left), wanted.height.min(size.1 - top)));
            for index in 0..3 {
                let Some((row_bytes, rows)) = format.plane_size(index, cut.width(), cut.height()) else { break };
                let (bytes, pixels) = format.plane_step(index);
                for y in 0..rows {
                    let from = left / pixels * bytes;
                    let whole = picture.row(index, top / pixels + y);
                    prop_assert_eq!(cut.row(index, y), &whole[from..from + row_bytes]);
                }
            }
        }
    }

    #[test]
    fn device_picture_is_copied_once_when_a_row_is_read() {
        let of = |strides| {
            let planes = Arc::new(FakeDevicePlanes::new(vec![vec![1; 8 * 4], vec![2; 8 * 2]]));
            let colour = (ColourMatrix::Bt709, ColourRange::Limited);
            let picture = Picture::new(
                PictureLayout {
                    format: PixelFormat::Nv12,
                    size: (6, 4),
                    strides,
                    colour,
                },
                planes.clone(),
            );
            (picture, planes)
        };
        let (picture, planes) = of([8, 8, 0]);
        let picture = picture.unwrap();
        assert_eq!(picture.on_device().unwrap().offsets, [0, 32, 0]);
        assert!(!picture.clone().is_on_host());
        assert_eq!(planes.copies(), 0);
        assert_eq!(
            (picture.row(0, 3), picture.row(1, 0)),
            (&[1; 6][..], &[2; 6][..])
        );
        assert!(picture.is_on_host() && picture.on_device().is_some());
        assert_eq!(planes.copies(), 1);

        let part = picture.part(PixelRect {
            left: 2,
            top: 2,
            width: 4,
            height: 2,
        });
        assert_eq!(part.on_device().unwrap().offsets[..2], [18, 42]);

        let (short, planes) = of([9, 8, 0]);
        assert!(short.is_err());
        assert_eq!(planes.copies(), 0);
    }
}
