//! Strips: frames of a camera over some seconds in one picture, for questions about what happens.
//!
//! ```text
//!   ┌─────────┬─────────┐
//!   │ oldest  │         │    panels of one size in a square, in reading order,
//!   ├─────────┼─────────┤    with black lines between them
//!   │         │ newest  │
//!   └─────────┴─────────┘
//! ```

use std::{ops::Range, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Picture, PictureLayout, PixelFormat, PromptRegion};

/// Longest side of a strip, pixels: a strip of a 16:9 camera is cut into as many crops as a look of 720p, nine.
const SIDE_MAX: usize = 1134;
/// Width of the lines between panels, pixels. Even, so that panels begin with a sample of chroma.
const LINE: usize = 4;

/// How many frames a strip shows, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StripShape {
    /// A square of 2 or more: 4 or 9.
    pub frames: u8,
    /// From the oldest frame to the newest.
    pub over: Duration,
}

impl StripShape {
    /// Panels across, and down.
    pub fn side(self) -> usize {
        usize::from(self.frames).isqrt().max(1)
    }

    /// From one frame to the next.
    pub fn spacing(self) -> Duration {
        self.over / u32::from(self.frames).saturating_sub(1).max(1)
    }

    /// The longest time between two frames of a camera of which strips can be made.
    pub fn longest_interval(self) -> Duration {
        2 * self.spacing()
    }

    /// A camera that streams for this time without a strip sends frames that make none.
    pub fn patience(self) -> Duration {
        2 * self.over + Duration::from_secs(10)
    }

    /// The longest side of a panel, pixels.
    pub fn panel_max(self) -> usize {
        let side = self.side();
        (SIDE_MAX - (side - 1) * LINE) / side / 2 * 2
    }

    /// Width and height of each panel when what it shows has `seen` pixels.
    pub fn panel(self, seen: (usize, usize)) -> (usize, usize) {
        shrunk(seen, self.panel_max())
    }

    /// Width and height of the strip when its panels show `seen` pixels each.
    pub fn size(self, seen: (usize, usize)) -> (usize, usize) {
        let (width, height) = self.panel(seen);
        (self.along(width), self.along(height))
    }

    fn along(self, panel: usize) -> usize {
        self.side() * (panel + LINE) - LINE
    }

    /// The drawing of a strip of these pictures, the oldest first. All have one size, format and colour; `None` without a picture.
    pub fn drawing(self, pictures: &[Picture]) -> Option<Drawing> {
        let first = pictures.first()?;
        let (width, height) = self.panel(first.size());
        let place = |(index, picture): (usize, &Picture)| PlacedPicture {
            picture: picture.clone(),
            left: index % self.side() * (width + LINE),
            top: index / self.side() * (height + LINE),
            size: (width, height),
        };
        Some(Drawing {
            size: self.size(first.size()),
            pictures: pictures.iter().enumerate().map(place).collect(),
        })
    }

    /// What the model reads before a question about a strip.
    pub fn explanation(self) -> String {
        let Self { frames, over } = self;
        let seconds = over.as_secs_f64();
        format!(
            "The picture shows {frames} frames of one camera over {seconds} seconds, in reading order from the oldest to the newest."
        )
    }
}

/// The even size of a picture of `size` pixels when its sides are at most `most`, which is even. It keeps its shape and is not enlarged
/// by more than a pixel.
pub fn shrunk(size: (usize, usize), most: usize) -> (usize, usize) {
    let longest = size.0.max(size.1).max(most);
    let side = |pixels: usize| (pixels * most / longest).next_multiple_of(2).max(2);
    (side(size.0), side(size.1))
}

/// The strip of a look for the prompts with its shape and region.
#[derive(Clone, Debug)]
pub struct Strip {
    pub shape: StripShape,
    pub region: PromptRegion,
    pub picture: Picture,
}

/// A picture to be made of others, black where none is.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Width and height in pixels.
    pub size: (usize, usize),
    pictures: Vec<PlacedPicture>,
}

/// A picture with its place in a [`Drawing`], which has room for it.
#[derive(Clone, Debug)]
struct PlacedPicture {
    picture: Picture,
    /// Even.
    left: usize,
    /// Even.
    top: usize,
    /// Width and height in the drawing, even.
    size: (usize, usize),
}

impl Drawing {
    /// One picture in another size, which is even.
    pub fn scaled(picture: Picture, size: (usize, usize)) -> Self {
        let placed = PlacedPicture {
            picture,
            left: 0,
            top: 0,
            size,
        };
        Self {
            size,
            pictures: vec![placed],
        }
    }

    /// The picture; pictures in the memory of a device are copied to the host first. `None` without a picture, for pictures that do not fit
    /// together, and for those that cannot be read.
    pub fn draw(&self) -> Option<Picture> {
        let (size, first) = (self.size, &self.pictures.first()?.picture);
        let format = first.format();
        let colour = |picture: &Picture| (picture.matrix(), picture.range());
        let is_usable = |PlacedPicture { picture, .. }: &PlacedPicture| {
            picture.format() == format && colour(picture) == colour(first) && picture.fetch()
        };
        if !self.pictures.iter().all(is_usable) {
            return None;
        }
        let (mut strides, mut planes) = ([0; 3], Vec::new());
        for (index, stride) in strides.iter_mut().enumerate() {
            let Some((row_bytes, rows)) = format.plane_size(index, size.0, size.1) else {
                break;
            };
            *stride = row_bytes;
            let mut plane = vec![format.black(index, first.range()); row_bytes * rows];
            for placed in &self.pictures {
                placed.draw_plane(index, &mut plane, row_bytes);
            }
            planes.push(plane);
        }
        let layout = PictureLayout {
            format,
            size,
            strides,
            colour: colour(first),
        };
        Picture::new(layout, Arc::new(planes)).ok()
    }
}

/// Samples across and down of plane `index` of a picture of `size`; `None`: the format does not have it.
fn samples(format: PixelFormat, index: usize, size: (usize, usize)) -> Option<(usize, usize)> {
    let (row_bytes, rows) = format.plane_size(index, size.0, size.1)?;
    Some((row_bytes / format.plane_step(index).0, rows))
}

impl PlacedPicture {
    /// Every sample of the drawing becomes the mean of the samples of the picture that it touches; each byte of a sample on its own.
    fn draw_plane(&self, index: usize, plane: &mut [u8], stride: usize) {
        let format = self.picture.format();
        let [from, to] = [self.picture.size(), self.size].map(|size| samples(format, index, size));
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let (sample_bytes, pixels) = format.plane_step(index);
        let columns: Vec<Range<usize>> = (0..to.0).map(|x| touched(x, from.0, to.0)).collect();
        let scaled_row = match sample_bytes {
            1 => scaled_row::<1>,
            2 => scaled_row::<2>,
            _ => scaled_row::<3>,
        };
        let mut sums = vec![0u32; from.0 * sample_bytes];
        for y in 0..to.1 {
            let begin = (self.top / pixels + y) * stride + self.left / pixels * sample_bytes;
            let out = &mut plane[begin..begin + to.0 * sample_bytes];
            if from == to {
                out.copy_from_slice(self.picture.row(index, y));
                continue;
            }
            let rows = touched(y, from.1, to.1);
            sums.fill(0);
            for row in rows.clone() {
                let samples = self.picture.row(index, row).iter();
                for (sum, sample) in sums.iter_mut().zip(samples) {
                    *sum += u32::from(*sample);
                }
            }
            scaled_row(&sums, &columns, rows.len(), out);
        }
    }
}

/// Writes the means of samples of `N` bytes. `sums` are those of `rows` rows, and `columns` the samples that each mean is of.
fn scaled_row<const N: usize>(sums: &[u32], columns: &[Range<usize>], rows: usize, out: &mut [u8]) {
    let (sums, _) = sums.as_chunks::<N>();
    let (out, _) = out.as_chunks_mut::<N>();
    for (bytes, columns) in out.iter_mut().zip(columns) {
        let mut total = [0u64; N];
        for sample in &sums[columns.clone()] {
            for (total, sum) in total.iter_mut().zip(sample) {
                *total += u64::from(*sum);
            }
        }
        let count = (rows * columns.len()) as u64;
        *bytes = total.map(|total| ((total + count / 2) / count) as u8);
    }
}

/// The samples of a side of `from` that sample `at` of a side of `to` touches.
fn touched(at: usize, from: usize, to: usize) -> Range<usize> {
    at * from / to..((at + 1) * from).div_ceil(to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        PixelRect,
        testing::{cases, planar_picture},
    };

    fn shape(frames: u8) -> StripShape {
        StripShape {
            frames,
            over: Duration::from_secs(4),
        }
    }

    fn pixel(picture: &Picture, x: usize, y: usize) -> &[u8] {
        &picture.row(0, y)[x * 3..x * 3 + 3]
    }

    #[test]
    fn strip_of_a_camera_has_the_crops_of_720p() {
        assert_eq!(shape(9).spacing(), Duration::from_millis(500));
        assert_eq!(shape(9).panel((1920, 1080)), (374, 210));
        assert_eq!(shape(9).size((1920, 1080)), (1130, 638));
        assert_eq!(shape(4).size((1280, 720)), (1132, 640));
        assert_eq!(shape(9).panel((1080, 1920)), (210, 374));
        // Not enlarged, but even.
        assert_eq!(shape(9).size((101, 1)), (3 * 102 + 8, 3 * 2 + 8));
        let explanation = shape(9).explanation();
        assert!(
            explanation.contains("9 frames of one camera over 4 seconds"),
            "{explanation}"
        );
    }

    #[test]
    fn panels_are_in_reading_order_with_black_lines() {
        let grey = |n: u8| Picture::from_rgb(20, 10, vec![n * 20 + 20; 20 * 10 * 3]).unwrap();
        let strip = shape(9).drawing(&Vec::from_iter((0..9).map(grey)));
        let strip = strip.unwrap().draw().unwrap();
        assert_eq!(strip.size(), (68, 38));
        for y in 0..38 {
            for x in 0..68 {
                let (column, row) = (x / 24, y / 14);
                let is_line = x % 24 >= 20 || y % 14 >= 10;
                let grey = if is_line {
                    0
                } else {
                    (row * 3 + column) as u8 * 20 + 20
                };
                assert_eq!(pixel(&strip, x, y), [grey; 3], "{x} {y}");
            }
        }
        // Fewer pictures leave black panels.
        let strip = shape(4).drawing(&[grey(1)]).unwrap().draw().unwrap();
        assert_eq!(
            (pixel(&strip, 0, 0), pixel(&strip, 30, 0)),
            (&[40; 3][..], &[0; 3][..])
        );
        assert!(shape(4).drawing(&[]).is_none());
        let mixed = [
            grey(1),
            planar_picture(PixelFormat::Nv12, (20, 10), 3, |_, _| 200),
        ];
        assert!(shape(4).drawing(&mixed).unwrap().draw().is_none());
    }

    #[test]
    fn lines_of_video_are_black_without_colour() {
        for format in [PixelFormat::Nv12, PixelFormat::I420] {
            let picture = planar_picture(format, (8, 6), 3, |_, _| 200);
            let strip = shape(4).drawing(&vec![picture; 4]).unwrap().draw().unwrap();
            assert_eq!(strip.size(), (20, 16));
            assert_eq!(
                strip.row(0, 0),
                [[200; 8].as_slice(), &[16; 4], &[200; 8]].concat()
            );
            assert_eq!(strip.row(0, 7), [16; 20]);
            let chroma = strip.row(1, 0);
            let half = chroma.len() * 2 / 5;
            let is_line = |at: usize| (half..chroma.len() - half).contains(&at);
            let expected = |at: usize| if is_line(at) { 128 } else { 200 };
            assert!((0..chroma.len()).all(|at| chroma[at] == expected(at)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(48)))]

        #[test]
        fn sample_is_the_mean_of_what_it_touches(
            format in prop::sample::select(vec![PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420]),
            size in (1usize..60, 1usize..60),
            corner in (0usize..6, 0usize..6),
            to in (1usize..20, 1usize..20),
        ) {
            let picture = planar_picture(format, size, 3, |plane, at| (at * 31 + plane * 7) as u8);
            let part = PixelRect { left: corner.0 * 2, top: corner.1 * 2, width: 40, height: 40 };
            let picture = picture.part(part);
            let placed = PlacedPicture { picture, left: 2, top: 4, size: (to.0 * 2, to.1 * 2) };
            let size = (placed.size.0 + 5, placed.size.1 + 4);
            let drawn = Drawing { size, pictures: vec![placed.clone()] }.draw().unwrap();
            for index in 0..3 {
                let (sample_bytes, pixels) = format.plane_step(index);
                let [from, to] = [placed.picture.size(), placed.size].map(|size| samples(format, index, size));
                let (Some(from), Some(to)) = (from, to) else { break };
                let corner = (placed.left / pixels, placed.top / pixels);
                for (x, y) in (0..to.0).flat_map(|x| (0..to.1).map(move |y| (x, y))) {
                    for channel in 0..sample_bytes {
                        let (mut sum, mut count) = (0usize, 0usize);
                        for row in y * from.1 / to.1..((y + 1) * from.1).div_ceil(to.1) {
                            for column in x * from.0 / to.0..((x + 1) * from.0).div_ceil(to.0) {
                                sum += usize::from(placed.picture.row(index, row)[column * sample_bytes + channel]);
                                count += 1;
                            }
                        }
                        let row = drawn.row(index, corner.1 + y);
                        let found = row[(corner.0 + x) * sample_bytes + channel];
                        prop_assert_eq!(usize::from(found), (sum + count / 2) / count);
                    }
                }
            }
        }
    }
}
