//! What a file is, by its first bytes: the ending of its name is often wrong.

use crate::error::PictureFileError;

/// A format that Spotter reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PictureFormat {
    Jpeg,
    Png,
}

/// First bytes of other formats that have them at the beginning.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\0\0\x01\0", "ICO"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"8BPS", "PSD"),
];

/// Brands of still pictures in files of ISO base media (`ftyp`). Videos have others.
const AVIF: [&[u8]; 2] = [b"avif", b"avis"];
const HEIC: [&[u8]; 8] = [
    b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1",
];

impl PictureFormat {
    /// First bytes of a file that [`PictureFormat::of`] needs.
    pub(crate) const HEAD_BYTES: usize = 32;

    /// The format of a file with these first bytes.
    pub(crate) fn of(head: &[u8]) -> Result<Self, PictureFileError> {
        match head {
            [] => Err(PictureFileError::Empty),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            _ if head.starts_with(b"\x89PNG\r\n\x1a\n") => Ok(Self::Png),
            _ => {
                Err(unreadable(head)
                    .map_or(PictureFileError::Unknown, PictureFileError::Unsupported))
            }
        }
    }
}

/// The name of a format that Spotter does not read; `None` when it is no picture that is known.
fn unreadable(head: &[u8]) -> Option<&'static str> {
    let signed = SIGNATURES
        .iter()
        .find(|(signature, _)| head.starts_with(signature));
    if let Some((_, name)) = signed {
        return Some(name);
    }
    let at = |from: usize, to: usize| head.get(from..to.min(head.len())).unwrap_or_default();
    match (at(0, 4), at(4, 8), at(8, 12)) {
        (b"RIFF", _, b"WEBP") => Some("WebP"),
        (_, b"ftyp", major) if AVIF.contains(&major) => Some("AVIF"),
        (_, b"ftyp", major) if HEIC.contains(&major) => {
            // A generic brand (`mif1`) with a compatible one that says more is what the latter says.
            let mut compatible = at(16, PictureFormat::HEAD_BYTES).chunks_exact(4);
            let is_avif = compatible.any(|brand| brand == b"avif");
            Some(if is_avif { "AVIF" } else { "HEIC" })
        }
        // The header's own size says that it is not just a text with these letters.
        ([b'B', b'M', ..], ..)
            if matches!(at(14, 18), [12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]) =>
        {
            Some("BMP")
        }
        _ => None,
    }
}
