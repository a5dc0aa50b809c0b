//! How a camera was held: EXIF's tag 0x0112, which viewers apply.

/// What has to be done with the pixels. EXIF numbers them from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Orientation {
    #[default]
    Upright,
    MirroredAcross,
    Rotated180,
    MirroredDown,
    Transposed,
    /// Clockwise.
    Rotated90,
    Transversed,
    Rotated270,
}

/// Pixels of a turned picture.
pub(crate) struct TurnedPixels {
    pub rgb: Vec<u8>,
    pub width: usize,
    pub height: usize,
}

const TAG: u16 = 0x0112;
const SHORT: u16 = 3;

impl Orientation {
    /// By EXIF, without its name in front. Upright when it says nothing that is known.
    pub fn of_exif(exif: &[u8]) -> Self {
        match number(exif) {
            Some(2) => Self::MirroredAcross,
            Some(3) => Self::Rotated180,
            Some(4) => Self::MirroredDown,
            Some(5) => Self::Transposed,
            Some(6) => Self::Rotated90,
            Some(7) => Self::Transversed,
            Some(8) => Self::Rotated270,
            _ => Self::Upright,
        }
    }

    /// Turns `rgb` of `width` x `height` pixels.
    pub fn turn(self, rgb: Vec<u8>, width: usize, height: usize) -> TurnedPixels {
        if self == Self::Upright {
            return TurnedPixels { rgb, width, height };
        }
        let (right, bottom) = (width - 1, height - 1);
        let (out_width, out_height) = match self {
            Self::Transposed | Self::Rotated90 | Self::Transversed | Self::Rotated270 => {
                (height, width)
            }
            _ => (width, height),
        };
        let (pixels, _) = rgb.as_chunks::<3>();
        let mut turned = Vec::with_capacity(rgb.len());
        for y in 0..out_height {
            for x in 0..out_width {
                let (from_x, from_y) = match self {
                    Self::Upright => (x, y),
                    Self::MirroredAcross => (right - x, y),
                    Self::Rotated180 => (right - x, bottom - y),
                    Self::MirroredDown => (x, bottom - y),
                    Self::Transposed => (y, x),
                    Self::Rotated90 => (y, bottom - x),
                    Self::Transversed => (right - y, bottom - x),
                    Self::Rotated270 => (right - y, x),
                };
                turned.extend_from_slice(&pixels[from_y * width + from_x]);
            }
        }
        TurnedPixels {
            rgb: turned,
            width: out_width,
            height: out_height,
        }
    }
}

/// The value of the tag in the first directory of a TIFF header. Total: each offset is of the file.
fn number(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let u16_at = |at: usize| -> Option<u16> {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(match is_little {
            true => u16::from_le_bytes(bytes),
            false => u16::from_be_bytes(bytes),
        })
    };
    let u32_at = |at: usize| -> Option<u32> {
        let bytes = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(match is_little {
            true => u32::from_le_bytes(bytes),
            false => u32::from_be_bytes(bytes),
        })
    };
    let directory = u32_at(4)? as usize;
    let entries = usize::from(u16_at(directory)?);
    let entry = (0..entries)
        .map(|index| directory + 2 + index * 12)
        .find(|&entry| u16_at(entry) == Some(TAG))?;
    (u16_at(entry + 2)? == SHORT && u32_at(entry + 4)? == 1).then_some(())?;
    u16_at(entry + 8)
}
