//! A picture becomes crops: scaled twice, once as a whole and once to be cut into tiles (docs/moondream.md section 4).

use super::tiling::{Tiling, tiling};
use crate::model::{colour, config::VisionConfig, resize::resize_rgb};
use spotter_core::Picture;

/// What the vision encoder reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crops {
    /// How the local crops lie in the picture.
    pub tiling: Tiling,
    /// Pixels along the side of a crop.
    pub crop_size: usize,
    /// `[encoded, crop_size, crop_size, 3]`, R G B: the whole picture, then the local crops row by row.
    pub bytes: Vec<u8>,
    /// Crops in `bytes`. A single tile has one crop, because its local crop is the global one.
    pub encoded: usize,
}

impl Crops {
    /// Bytes of crop `index`, `[crop_size, crop_size, 3]`.
    pub fn crop(&self, index: usize) -> &[u8] {
        let size = self.crop_size * self.crop_size * 3;
        &self.bytes[index * size..][..size]
    }
}

/// Scales and cuts `picture` by the model's own rule, on all cores.
pub fn crops(picture: &Picture, vision: &VisionConfig) -> Crops {
    let tiling = tiling(picture.width(), picture.height(), vision);
    cut_crops(picture, tiling, vision)
}

/// Scales and cuts `picture` into these tiles, on all cores.
pub fn cut_crops(picture: &Picture, tiling: Tiling, vision: &VisionConfig) -> Crops {
    let source = picture.size();
    let rgb = colour::rgb_from_picture(picture);
    let size = vision.crop_size;
    let mut bytes = resize_rgb(&rgb, source, (size, size));
    if tiling.is_single() {
        return Crops {
            tiling,
            crop_size: size,
            bytes,
            encoded: tiling.crops(),
        };
    }
    let tiled = tiling.resized(vision);
    let whole = resize_rgb(&rgb, source, tiled);
    let window = vision.window_pixels();
    for tile in 0..tiling.rows * tiling.cols {
        let (top, left) = (tile / tiling.cols * window, tile % tiling.cols * window);
        for y in top..top + size {
            bytes.extend_from_slice(&whole[(y * tiled.0 + left) * 3..][..size * 3]);
        }
    }
    Crops {
        tiling,
        crop_size: size,
        bytes,
        encoded: tiling.crops(),
    }
}

/// What each byte of a crop becomes: `(x/255 - 0.5) / 0.5`, each step in single precision, as the reference does.
pub fn normalise_table() -> [f32; 256] {
    std::array::from_fn(|byte| (byte as f32 / 255.0 - 0.5) / 0.5)
}

#[cfg(test)]
mod tests;
