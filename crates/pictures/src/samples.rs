//! Pixels of a file to RGB.

/// Of `samples` in a pixel (grey, grey and alpha, RGB, RGB and alpha) of one byte or two, the highest first.
pub(crate) fn rgb_of(pixels: &[u8], samples: usize, sample_bytes: usize) -> Vec<u8> {
    let pixel_bytes = samples * sample_bytes;
    let sample = |pixel: &[u8], index: usize| match sample_bytes {
        1 => pixel[index],
        // Rounded: 0xffff is 0xff, and so is all that is nearer to it than to 0xfe.
        _ => {
            let wide = u32::from(pixel[2 * index]) << 8 | u32::from(pixel[2 * index + 1]);
            ((wide + 128) / 257) as u8
        }
    };
    let mut rgb = Vec::with_capacity(pixels.len() / pixel_bytes * 3);
    for pixel in pixels.chunks_exact(pixel_bytes) {
        rgb.extend(match samples {
            1 | 2 => [sample(pixel, 0); 3],
            _ => [0, 1, 2].map(|index| sample(pixel, index)),
        });
    }
    rgb
}
