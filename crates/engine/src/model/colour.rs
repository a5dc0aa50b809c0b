//! Any picture becomes packed RGB. Each chroma sample is used for all the pixels it covers (no smoothing between them).

use rayon::prelude::*;

use spotter_core::{ColourMatrix, ColourRange, Picture, PixelFormat};

/// Fractional bits of the coefficients.
const BITS: u32 = 16;

/// The pixels of `picture`, `[height, width, 3]`, on all cores.
pub fn rgb_from_picture(picture: &Picture) -> Vec<u8> {
    let (width, height) = (picture.width(), picture.height());
    let mut rgb = vec![0; width * height * 3];
    let rows = rgb.par_chunks_exact_mut(width * 3).enumerate();
    match picture.format() {
        PixelFormat::Rgb => rows.for_each(|(y, out)| out.copy_from_slice(picture.row(0, y))),
        PixelFormat::Nv12 => {
            let yuv = Yuv::new(picture.matrix(), picture.range());
            rows.for_each(|(y, out)| {
                let uv = picture.row(1, y / 2);
                yuv.row(out, picture.row(0, y), |pair| {
                    (uv[2 * pair], uv[2 * pair + 1])
                });
            });
        }
        PixelFormat::I420 => {
            let yuv = Yuv::new(picture.matrix(), picture.range());
            rows.for_each(|(y, out)| {
                let (u, v) = (picture.row(1, y / 2), picture.row(2, y / 2));
                yuv.row(out, picture.row(0, y), |pair| (u[pair], v[pair]));
            });
        }
    }
    rgb
}

/// Black, luma, red from V, green from U, green from V, blue from U: what turns YUV into RGB, with 16 fractional bits.
pub fn yuv_coefficients(matrix: ColourMatrix, range: ColourRange) -> [i32; 6] {
    let yuv = Yuv::new(matrix, range);
    [
        yuv.black,
        yuv.luma,
        yuv.red_from_v,
        yuv.green_from_u,
        yuv.green_from_v,
        yuv.blue_from_u,
    ]
}

/// Fixed-point coefficients of one matrix and range.
struct Yuv {
    black: i32,
    luma: i32,
    red_from_v: i32,
    green_from_u: i32,
    green_from_v: i32,
    blue_from_u: i32,
}

impl Yuv {
    /// From the luma weights of red and blue (ITU-R BT.601-7 section 2.5.1, BT.709-6 section 3).
    fn new(matrix: ColourMatrix, range: ColourRange) -> Self {
        let (red, blue) = match matrix {
            ColourMatrix::Bt601 => (0.299, 0.114),
            ColourMatrix::Bt709 => (0.2126, 0.0722),
        };
        let green = 1.0 - red - blue;
        let (black, luma, chroma) = match range {
            ColourRange::Limited => (16, 255.0 / 219.0, 255.0 / 224.0),
            ColourRange::Full => (0, 1.0, 1.0),
        };
        let fixed = |factor: f64| (factor * f64::from(1 << BITS)).round() as i32;
        Self {
            black,
            luma: fixed(luma),
            red_from_v: fixed(2.0 * (1.0 - red) * chroma),
            green_from_u: fixed(-2.0 * (1.0 - blue) * blue / green * chroma),
            green_from_v: fixed(-2.0 * (1.0 - red) * red / green * chroma),
            blue_from_u: fixed(2.0 * (1.0 - blue) * chroma),
        }
    }

    /// One row. `chroma` gives U and V of a pair of pixels.
    fn row(&self, out: &mut [u8], luma: &[u8], chroma: impl Fn(usize) -> (u8, u8)) {
        let (pixels, _) = out.as_chunks_mut::<3>();
        for (pair, (pixels, lumas)) in pixels.chunks_mut(2).zip(luma.chunks(2)).enumerate() {
            let (u, v) = chroma(pair);
            let (u, v) = (i32::from(u) - 128, i32::from(v) - 128);
            let offsets = [
                self.red_from_v * v,
                self.green_from_u * u + self.green_from_v * v,
                self.blue_from_u * u,
            ];
            for (pixel, &y) in pixels.iter_mut().zip(lumas) {
                let y = (i32::from(y) - self.black) * self.luma + (1 << (BITS - 1));
                *pixel = offsets.map(|offset| ((y + offset) >> BITS).clamp(0, 255) as u8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    const ALL: [(ColourMatrix, ColourRange); 4] = [
        (ColourMatrix::Bt601, ColourRange::Limited),
        (ColourMatrix::Bt601, ColourRange::Full),
        (ColourMatrix::Bt709, ColourRange::Limited),
        (ColourMatrix::Bt709, ColourRange::Full),
    ];

    /// The textbook formula in real numbers.
    fn textbook((y, u, v): (u8, u8, u8), matrix: ColourMatrix, range: ColourRange) -> [f64; 3] {
        let (kr, kb) = match matrix {
            ColourMatrix::Bt601 => (0.299, 0.114),
            ColourMatrix::Bt709 => (0.2126, 0.0722),
        };
        let (y, u, v) = (f64::from(y), f64::from(u) - 128.0, f64::from(v) - 128.0);
        let (y, pb, pr) = match range {
            ColourRange::Full => (y / 255.0, u / 255.0, v / 255.0),
            ColourRange::Limited => ((y - 16.0) / 219.0, u / 224.0, v / 224.0),
        };
        let red = y + 2.0 * (1.0 - kr) * pr;
        let blue = y + 2.0 * (1.0 - kb) * pb;
        let green = (y - kr * red - kb * blue) / (1.0 - kr - kb);
        [red, green, blue].map(|c| (c * 255.0).clamp(0.0, 255.0))
    }

    fn one_pixel(
        format: PixelFormat,
        yuv: (u8, u8, u8),
        colour: (ColourMatrix, ColourRange),
    ) -> Vec<u8> {
        let planes = match format {
            PixelFormat::Nv12 => vec![vec![yuv.0], vec![yuv.1, yuv.2]],
            _ => vec![vec![yuv.0], vec![yuv.1], vec![yuv.2]],
        };
        let picture = Picture::new(
            spotter_core::PictureLayout {
                format,
                size: (1, 1),
                strides: [1, 2, 1],
                colour,
            },
            Arc::new(planes),
        );
        rgb_from_picture(&picture.unwrap())
    }

    proptest! {
        #[test]
        fn each_colour_is_within_one_of_the_formula(yuv in any::<(u8, u8, u8)>()) {
            for (matrix, range) in ALL {
                let want = textbook(yuv, matrix, range);
                for format in [PixelFormat::Nv12, PixelFormat::I420] {
                    for (got, want) in one_pixel(format, yuv, (matrix, range)).iter().zip(want) {
                        prop_assert!((f64::from(*got) - want).abs() < 0.51, "{yuv:?} {got} {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn odd_sizes_and_padded_rows() {
        // 3x3 pixels in rows of 5 bytes; chroma 2x2. Four greys by luma, one red corner by chroma.
        let luma = [
            [0, 60, 120, 9, 9],
            [0, 60, 120, 9, 9],
            [200, 200, 200, 9, 9],
        ];
        let uv = [[128, 128, 128, 128, 9, 9], [128, 128, 128, 228, 9, 9]];
        let planes = vec![luma.concat(), uv.concat()];
        let colour = (ColourMatrix::Bt601, ColourRange::Full);
        let picture = Picture::new(
            spotter_core::PictureLayout {
                format: PixelFormat::Nv12,
                size: (3, 3),
                strides: [5, 6, 0],
                colour,
            },
            Arc::new(planes),
        );
        let rgb = rgb_from_picture(&picture.unwrap());
        assert_eq!(rgb[..9], [0, 0, 0, 60, 60, 60, 120, 120, 120]);
        assert_eq!(rgb[18..24], [200; 6]);
        assert_eq!(rgb[24..], [255, 129, 200]);
    }
}
