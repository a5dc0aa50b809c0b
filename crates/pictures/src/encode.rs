//! From pixels to the bytes of a file.

use jpeg_encoder::{ColorType, Encoder, EncodingError as JpegError, SamplingFactor};

/// Packed RGB.
#[derive(Clone, Copy)]
pub struct RgbPixels<'a> {
    /// `width * height * 3`.
    pub rgb: &'a [u8],
    pub width: usize,
    pub height: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("a picture of {width} x {height} pixels does not fit this format")]
    Size { width: usize, height: usize },
    #[error("writing a PNG: {0}")]
    Png(#[from] png::EncodingError),
    #[error("writing a JPEG: {0}")]
    Jpeg(#[from] JpegError),
}

/// The bytes of a PNG file.
pub fn png_file(pixels: RgbPixels<'_>) -> Result<Vec<u8>, EncodeError> {
    let (width, height) = pixels.size::<u32>()?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels.rgb)?;
    writer.finish()?;
    Ok(file)
}

/// The bytes of a JPEG file; `quality` is 1 to 100. All colours are kept at full size: thin lines in colour stay sharp.
pub fn jpeg_file(pixels: RgbPixels<'_>, quality: u8) -> Result<Vec<u8>, EncodeError> {
    let (width, height) = pixels.size::<u16>()?;
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(SamplingFactor::F_1_1);
    encoder.encode(pixels.rgb, width, height, ColorType::Rgb)?;
    Ok(file)
}

/// The same of a frame: cameras send colours at half of the size, so no more is kept.
pub fn jpeg_photo(pixels: RgbPixels<'_>, quality: u8) -> Result<Vec<u8>, EncodeError> {
    let (width, height) = pixels.size::<u16>()?;
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.encode(pixels.rgb, width, height, ColorType::Rgb)?;
    Ok(file)
}

impl RgbPixels<'_> {
    fn size<N: TryFrom<usize>>(self) -> Result<(N, N), EncodeError> {
        let (width, height) = (self.width, self.height);
        let size = N::try_from(width).ok().zip(N::try_from(height).ok());
        size.ok_or(EncodeError::Size { width, height })
    }
}
