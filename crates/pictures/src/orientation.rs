//! How a camera was held: EXIF's tag 0x0112, which viewers apply.

const TAG: usize = 0x0112;
const SHORT: usize = 3;

/// A picture as its file has it.
pub(crate) struct DecodedFile {
    /// `width * height * 3`.
    pub rgb: Vec<u8>,
    pub width: usize,
    pub height: usize,
    pub orientation: Orientation,
}

/// EXIF's number of an orientation, from 2 to 8; every other one is upright.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orientation(usize);

impl Orientation {
    /// By EXIF, without its name in front.
    pub fn of_exif(exif: &[u8]) -> Self {
        Self(number(exif).unwrap_or_default())
    }

    /// The pixels as viewers show them.
    pub fn turn(self, file: DecodedFile) -> DecodedFile {
        if !matches!(self.0, 2..=8) {
            return file;
        }
        let is_transposed = self.0 >= 5;
        let from_right = matches!(self.0, 2 | 3 | 7 | 8);
        let from_bottom = matches!(self.0, 3 | 4 | 6 | 7);
        let DecodedFile {
            rgb, width, height, ..
        } = file;
        let (out_width, out_height) = match is_transposed {
            true => (height, width),
            false => (width, height),
        };
        let (pixels, _) = rgb.as_chunks::<3>();
        let mut turned = Vec::with_capacity(rgb.len());
        for y in 0..out_height {
            for x in 0..out_width {
                let (across, down) = if is_transposed { (y, x) } else { (x, y) };
                let from_x = if from_right {
                    width - 1 - across
                } else {
                    across
                };
                let from_y = if from_bottom { height - 1 - down } else { down };
                turned.extend_from_slice(&pixels[from_y * width + from_x]);
            }
        }
        DecodedFile {
            rgb: turned,
            width: out_width,
            height: out_height,
            orientation: Self::default(),
        }
    }
}

/// The value of the tag in the first directory of a TIFF header. Total: each offset is of the file.
fn number(tiff: &[u8]) -> Option<usize> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let number_at = |at: usize, length: usize| {
        let bytes = tiff.get(at..at.checked_add(length)?)?.iter();
        let append = |value: usize, byte: &u8| value << 8 | usize::from(*byte);
        Some(match is_little {
            true => bytes.rev().fold(0, append),
            false => bytes.fold(0, append),
        })
    };
    let directory = number_at(4, 4)?;
    let entry = (0..number_at(directory, 2)?)
        .map(|index| directory + 2 + index * 12)
        .find(|&entry| number_at(entry, 2) == Some(TAG))?;
    let is_one_short = number_at(entry + 2, 2)? == SHORT && number_at(entry + 4, 4)? == 1;
    number_at(entry + 8, 2).filter(|_| is_one_short)
}
