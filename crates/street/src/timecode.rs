//! The time burnt into a picture, so that the error of a published capture time can be measured.
//!
//! ```text
//!   ┌ 48 blocks: Unix milliseconds, highest bit first ┬ 16 blocks: their checksum ┐   a strip along the upper edge,
//!   │ ■ ■ □ ■ □ □ …  black is 0, white is 1           │ □ ■ ■ …                   │   1/45 of the picture's height
//!   └─────────────────────────────────────────────────┴───────────────────────────┘
//! ```
//!
//! Blocks are as wide as a 64th of the picture, so they survive H.264 and scaling down to two pixels a block.
//! A grey block or a wrong checksum is no time.

use xxhash_rust::xxh3::xxh3_64;

use spotter_core::{Picture, PixelFormat, WallTime};

/// Blocks side by side: a bit each.
const BLOCKS: usize = 64;
const CHECKSUM_BITS: u32 = 16;
/// The strip's share of the picture's height. It is thin and in the sky: the model answers as without it.
const HEIGHT_SHARE: usize = 45;
/// Video levels.
const BLACK: u8 = 16;
const WHITE: u8 = 235;
/// No colour, in a plane of U or V.
const GREY: u8 = 128;
const BLACK_MAX: u32 = 80;
const WHITE_MIN: u32 = 170;

/// Writes `wall`, rounded down to a millisecond, into a packed I420 picture of `width` x `height` pixels. A picture that is
/// too small for the blocks, or has another length than its size, is not changed.
pub fn burn(wall: WallTime, i420: &mut [u8], width: u32, height: u32) {
    let (width, height) = (width as usize, height as usize);
    let half = (width.div_ceil(2), height.div_ceil(2));
    let whole = width * height + 2 * half.0 * half.1;
    let Some(rows) = rows(width, height).filter(|_| i420.len() == whole) else {
        return;
    };
    let word = word_of(wall);
    let (luma, chroma) = i420.split_at_mut(width * height);
    for row in luma.chunks_exact_mut(width).take(rows) {
        for (x, pixel) in row.iter_mut().enumerate() {
            let bit = word >> (BLOCKS - 1 - x * BLOCKS / width) & 1;
            *pixel = if bit == 1 { WHITE } else { BLACK };
        }
    }
    for plane in chroma.chunks_exact_mut(half.0 * half.1) {
        plane[..half.0 * rows.div_ceil(2)].fill(GREY);
    }
}

/// The time that was burnt into a picture; `None` without a readable one. Copies a picture on a
/// device to the host.
pub fn read(picture: &Picture) -> Option<WallTime> {
    let (width, height) = (picture.width(), picture.height());
    let rows = rows(width, height)?;
    // The middle of the strip and of each block, where neighbours disturb least.
    let lines: Vec<&[u8]> = (rows / 4..rows - rows / 4)
        .map(|y| picture.row(0, y))
        .collect();
    let (step, first) = match picture.format() {
        // Green is most of the brightness.
        PixelFormat::Rgb => (3, 1),
        PixelFormat::Nv12 | PixelFormat::I420 => (1, 0),
    };
    let mut word = 0;
    for block in 0..BLOCKS {
        let edge = |quarters: usize| (block * 4 + quarters) * width / (BLOCKS * 4);
        let (from, to) = (edge(1), edge(3).max(edge(1) + 1));
        let pixels = lines
            .iter()
            .flat_map(|line| (from..to).map(|x| u32::from(line[x * step + first])));
        let (count, sum) = pixels.fold((0, 0), |(count, sum), pixel| (count + 1, sum + pixel));
        word = word << 1 | bit_of(sum / count)?;
    }
    wall_of(word)
}

fn bit_of(brightness: u32) -> Option<u64> {
    match brightness {
        ..=BLACK_MAX => Some(0),
        WHITE_MIN.. => Some(1),
        _ => None,
    }
}

/// Rows of the strip; `None` when the picture is too small for it.
fn rows(width: usize, height: usize) -> Option<usize> {
    let rows = (height / HEIGHT_SHARE).max(2);
    (width >= 2 * BLOCKS && height > rows).then_some(rows)
}

fn word_of(wall: WallTime) -> u64 {
    // Milliseconds fit into 48 bits until the year 10889.
    let millis = wall.unix_millis() as u64 & (u64::MAX >> CHECKSUM_BITS);
    millis << CHECKSUM_BITS | checksum(millis)
}

fn wall_of(word: u64) -> Option<WallTime> {
    let millis = word >> CHECKSUM_BITS;
    let right = checksum(millis) == word & (u64::MAX >> (64 - CHECKSUM_BITS));
    right.then(|| WallTime::from_unix_millis(millis as i64))
}

fn checksum(millis: u64) -> u64 {
    xxh3_64(&millis.to_le_bytes()) >> (64 - CHECKSUM_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Street, draw_i420,
        h264::{Encoding, through_h264},
        i420_picture,
    };

    const NOW: WallTime = WallTime::from_unix_millis(1_787_393_730_123);

    fn i420(bytes: &[u8], width: usize, height: usize) -> Picture {
        i420_picture(bytes, width, height).unwrap()
    }

    #[test]
    fn each_size_carries_the_time_and_only_the_strip_changes() {
        for (width, height) in [(128, 72), (320, 180), (641, 361), (640, 360), (1920, 1080)] {
            let plain = draw_i420(&Street::new(7).at(NOW), width, height);
            let mut burnt = plain.clone();
            burn(NOW, &mut burnt, width, height);
            let (w, h) = (width as usize, height as usize);
            assert_eq!(read(&i420(&plain, w, h)), None);
            assert_eq!(read(&i420(&burnt, w, h)), Some(NOW), "{w}x{h}");
            let strip = (h / HEIGHT_SHARE).max(2);
            assert_eq!(plain[w * strip..w * h], burnt[w * strip..w * h]);
            assert!(strip * 36 <= h, "{strip} of {h}");
        }
    }

    #[test]
    fn it_survives_h264() {
        let (width, height) = (640, 360);
        let encoding = Encoding {
            width,
            height,
            fps: 15,
            kbit_per_s: 500,
        };
        let street = Street::new(7);
        let moments: Vec<WallTime> = (0..30)
            .map(|i| WallTime::from_unix_millis(1_787_393_730_123 + i * 67))
            .collect();
        let sent = moments.clone();
        let frames = sent.into_iter().map(move |moment| {
            let mut frame = draw_i420(&street.at(moment), width as u32, height as u32);
            burn(moment, &mut frame, width as u32, height as u32);
            frame
        });
        let back = through_h264(encoding, frames).expect("x264 and libav");
        let back: Vec<_> = back.collect();
        assert_eq!(back.len(), moments.len());
        for (picture, moment) in back.into_iter().zip(&moments) {
            assert_eq!(read(&picture.expect("a picture")), Some(*moment));
        }
    }

    #[test]
    fn an_unreadable_strip_is_no_time() {
        let (width, height) = (640, 360);
        let mut burnt = vec![100; width * height * 3 / 2];
        burn(NOW, &mut burnt, 640, 360);
        let with = |block: usize, luma: u8| {
            let mut bytes = burnt.clone();
            for row in bytes.chunks_exact_mut(width).take(8) {
                row[block * 10..][..10].fill(luma);
            }
            read(&i420(&bytes, width, height))
        };
        for block in 0..BLOCKS {
            let read = [16, 235].map(|luma| with(block, luma));
            assert!(read.contains(&Some(NOW)) && read.contains(&None), "{block}");
            assert_eq!(with(block, 120), None, "grey");
        }
        for flat in [0, 16, 128, 235, 255] {
            let picture = i420(&vec![flat; width * height * 3 / 2], width, height);
            assert_eq!(read(&picture), None, "{flat}");
        }
        // Too small, or of another size than given.
        let mut tiny = vec![7; 100 * 60 * 3 / 2];
        burn(NOW, &mut tiny, 100, 60);
        assert!(tiny.iter().all(|&byte| byte == 7));
        burn(NOW, &mut tiny, 640, 360);
        assert_eq!(read(&i420(&tiny, 100, 60)), None);
    }
}
