//! What a file is, by its first bytes: the ending of its name is often wrong.

use std::fmt;

/// Formats of picture files that users have; Spotter reads the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFormat {
    Jpeg,
    Png,
    WebP,
    Gif,
    Avif,
    Heic,
    Bmp,
    Tiff,
    Ico,
    JpegXl,
    Jpeg2000,
    Psd,
}

/// First bytes of the formats that have them at the beginning.
const SIGNATURES: &[(&[u8], PictureFormat)] = &[
    (b"\xff\xd8\xff", PictureFormat::Jpeg),
    (b"\x89PNG\r\n\x1a\n", PictureFormat::Png),
    (b"GIF87a", PictureFormat::Gif),
    (b"GIF89a", PictureFormat::Gif),
    (b"II*\0", PictureFormat::Tiff),
    (b"MM\0*", PictureFormat::Tiff),
    (b"\0\0\x01\0", PictureFormat::Ico),
    (b"\xff\x0a", PictureFormat::JpegXl),
    (b"\0\0\0\x0cJXL \r\n\x87\n", PictureFormat::JpegXl),
    (b"\0\0\0\x0cjP  \r\n\x87\n", PictureFormat::Jpeg2000),
    (b"8BPS", PictureFormat::Psd),
];

/// Brands of still pictures in files of ISO base media (`ftyp`). Videos have others.
const BRANDS: &[(&[u8], PictureFormat)] = &[
    (b"avif", PictureFormat::Avif),
    (b"avis", PictureFormat::Avif),
    (b"heic", PictureFormat::Heic),
    (b"heix", PictureFormat::Heic),
    (b"heim", PictureFormat::Heic),
    (b"heis", PictureFormat::Heic),
    (b"hevc", PictureFormat::Heic),
    (b"hevx", PictureFormat::Heic),
    (b"mif1", PictureFormat::Heic),
    (b"msf1", PictureFormat::Heic),
];

impl PictureFormat {
    /// First bytes of a file that [`PictureFormat::of`] needs.
    pub(crate) const HEAD_BYTES: usize = 32;

    /// The format of a file with these first bytes; `None` when it is no picture that is known.
    pub fn of(head: &[u8]) -> Option<Self> {
        let signed = SIGNATURES
            .iter()
            .find(|(signature, _)| head.starts_with(signature));
        if let Some((_, format)) = signed {
            return Some(*format);
        }
        let at = |from: usize, to: usize| head.get(from..to.min(head.len())).unwrap_or_default();
        match (at(0, 4), at(4, 8), at(8, 12)) {
            (b"RIFF", _, b"WEBP") => Some(Self::WebP),
            (_, b"ftyp", major) => Self::of_brands(major, at(16, Self::HEAD_BYTES)),
            // The header's own size says that it is not just a text with these letters.
            ([b'B', b'M', ..], ..)
                if matches!(at(14, 18), [12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]) =>
            {
                Some(Self::Bmp)
            }
            _ => None,
        }
    }

    /// A generic brand (`mif1`) with a compatible one that says more is what the latter says.
    fn of_brands(major: &[u8], compatible: &[u8]) -> Option<Self> {
        let known = |brand: &[u8]| BRANDS.iter().find(|(name, _)| *name == brand);
        let (_, format) = known(major)?;
        let is_avif = compatible.chunks_exact(4).any(|brand| brand == b"avif");
        Some(if is_avif { Self::Avif } else { *format })
    }
}

impl fmt::Display for PictureFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Avif => "AVIF",
            Self::Heic => "HEIC",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
            Self::Ico => "ICO",
            Self::JpegXl => "JPEG XL",
            Self::Jpeg2000 => "JPEG 2000",
            Self::Psd => "PSD",
        })
    }
}
