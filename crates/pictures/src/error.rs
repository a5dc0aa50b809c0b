//! Why a file gives no picture.

use std::io;

/// Pixels of a picture's side.
pub const SIDE_MAX: usize = 16_384;
/// How many times as long as its shorter side a picture's longer side may be.
pub const RATIO_MAX: usize = 50;

/// Each text is a clause about "the picture" and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PictureFileError {
    #[error("the file cannot be read: {0}")]
    Disk(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("the file is neither JPEG nor PNG")]
    Unknown,
    #[error("the picture is {0}, which Spotter does not read; convert it to JPEG or PNG")]
    Unsupported(&'static str),
    #[error("the file has more than {max_bytes} bytes; scale the picture down")]
    FileTooLarge { max_bytes: u64 },
    #[error(
        "the picture is too large: {width} x {height} pixels; the limit is {pixels_max} pixels in all and {SIDE_MAX} a side; scale it down"
    )]
    TooLarge {
        width: usize,
        height: usize,
        pixels_max: usize,
    },
    #[error(
        "the picture is too narrow: {width} x {height} pixels; the longer side may have {RATIO_MAX} times as many as the shorter one; cut it"
    )]
    TooNarrow { width: usize, height: usize },
    #[error("the picture ends early: a part of the file is missing; transfer it again")]
    EndsEarly,
    #[error("the picture is damaged: {reason}")]
    Damaged { reason: String },
    #[error(
        "the picture is a kind of JPEG that Spotter does not read ({reason}); save it as baseline JPEG or PNG"
    )]
    UnsupportedJpeg { reason: String },
}
