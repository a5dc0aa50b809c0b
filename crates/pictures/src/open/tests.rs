use jpeg_encoder::{ColorType, Encoder};
use proptest::prelude::*;

use super::*;
use crate::{RgbPixels, jpeg_file, png_file};

const PIXELS_MAX: usize = 25_000_000;
const EXIF: &[u8] = b"Exif\0\0";

/// A picture whose quarters differ, so that each way to turn it is another picture.
fn quarters(width: usize, height: usize) -> Vec<u8> {
    let mut rgb = Vec::new();
    for y in 0..height {
        for x in 0..width {
            rgb.extend(match (x < width / 2, y < height / 2) {
                (true, true) => [240, 20, 20],
                (false, true) => [20, 240, 20],
                (true, false) => [20, 20, 240],
                (false, false) => [230, 230, 230],
            });
        }
    }
    rgb
}

fn pixels_of(rgb: &[u8], width: usize, height: usize) -> RgbPixels<'_> {
    RgbPixels { rgb, width, height }
}

fn png(rgb: &[u8], width: usize, height: usize) -> Vec<u8> {
    png_file(pixels_of(rgb, width, height)).unwrap()
}

fn jpeg(rgb: &[u8], width: usize, height: usize) -> Vec<u8> {
    jpeg_file(pixels_of(rgb, width, height), 95).unwrap()
}

/// Another kind of JPEG than Spotter writes.
fn jpeg_of(colours: ColorType, change: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let samples = match colours {
        ColorType::Luma => 1,
        ColorType::Cmyk | ColorType::CmykAsYcck => 4,
        _ => 3,
    };
    let noise = (0..48 * 40 * samples).map(|at| (at * at % 251) as u8);
    let noise: Vec<u8> = noise.collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 80);
    change(&mut encoder);
    encoder.encode(&noise, 48, 40, colours).unwrap();
    file
}

/// A TIFF header with one tag.
fn exif(orientation: u16, is_little: bool) -> Vec<u8> {
    let u16_of = |value: u16| match is_little {
        true => value.to_le_bytes(),
        false => value.to_be_bytes(),
    };
    let u32_of = |value: u32| match is_little {
        true => value.to_le_bytes(),
        false => value.to_be_bytes(),
    };
    let mut tiff = if is_little { *b"II*\0" } else { *b"MM\0*" }.to_vec();
    tiff.extend(u32_of(8));
    tiff.extend([u16_of(1), u16_of(0x0112), u16_of(3)].concat());
    tiff.extend(u32_of(1));
    tiff.extend([u16_of(orientation), u16_of(0)].concat());
    tiff.extend(u32_of(0));
    tiff
}

fn with_exif(jpeg: &[u8], tiff: &[u8]) -> Vec<u8> {
    let length = (EXIF.len() + tiff.len() + 2) as u16;
    let (start, rest) = jpeg.split_at(2);
    let header = [&[0xff, 0xe1], length.to_be_bytes().as_slice(), EXIF, tiff].concat();
    [start, &header, rest].concat()
}

/// The pixels that a camera stores of an upright picture: EXIF 2.32, figure of tag 0x0112. Row 0 is the named side, column 0 too.
fn stored(upright: &[u8], (width, height): (usize, usize), number: u16) -> (Vec<u8>, usize, usize) {
    let is_turned = number >= 5;
    let (columns, rows) = if is_turned {
        (height, width)
    } else {
        (width, height)
    };
    let mut rgb = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let (x, y) = match number {
                1 => (column, row),                          // top, left
                2 => (width - 1 - column, row),              // top, right
                3 => (width - 1 - column, height - 1 - row), // bottom, right
                4 => (column, height - 1 - row),             // bottom, left
                5 => (row, column),                          // left, top
                6 => (width - 1 - row, column),              // right, top
                7 => (width - 1 - row, height - 1 - column), // right, bottom
                _ => (row, height - 1 - column),             // left, bottom
            };
            let at = (y * width + x) * 3;
            rgb.extend(&upright[at..at + 3]);
        }
    }
    (rgb, columns, rows)
}

fn rgb(picture: &Picture) -> Vec<u8> {
    let rows = (0..picture.height()).map(|y| picture.row(0, y));
    rows.collect::<Vec<_>>().concat()
}

fn error(file: &[u8]) -> String {
    decode(file, PIXELS_MAX).unwrap_err().to_string()
}

fn assert_near(got: &[u8], want: &[u8], context: &str) {
    assert_eq!(got.len(), want.len(), "{context}");
    let worst = got.iter().zip(want).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst.unwrap() < 40, "{context}: {worst:?}");
}

// Faults: P3.
#[test]
fn every_orientation_becomes_the_upright_picture() {
    let size = (32, 16);
    let upright = quarters(size.0, size.1);
    for number in 1..=8 {
        for is_little in [true, false] {
            let (sideways, width, height) = stored(&upright, size, number);
            let file = with_exif(&jpeg(&sideways, width, height), &exif(number, is_little));
            let picture = decode(&file, PIXELS_MAX).unwrap();
            assert_eq!(picture.size(), size, "{number}");
            assert_near(&rgb(&picture), &upright, &format!("orientation {number}"));
        }
    }
}

// Faults: P3.
#[test]
fn png_with_exif_is_turned_too() {
    let upright = quarters(32, 16);
    let (sideways, width, height) = stored(&upright, (32, 16), 6);
    let mut file = Vec::new();
    let mut info = png::Info::with_size(width as u32, height as u32);
    info.color_type = png::ColorType::Rgb;
    info.exif_metadata = Some(exif(6, true).into());
    let mut writer = png::Encoder::with_info(&mut file, info)
        .unwrap()
        .write_header()
        .unwrap();
    writer.write_image_data(&sideways).unwrap();
    writer.finish().unwrap();
    let picture = decode(&file, PIXELS_MAX).unwrap();
    assert_eq!((picture.size(), rgb(&picture)), ((32, 16), upright));
}

// Faults: P1.
#[test]
fn cut_picture_is_an_error_wherever_it_is_cut() {
    let noise: Vec<u8> = (0..48 * 40 * 3).map(|at| (at * at % 251) as u8).collect();
    let rgb = |change: fn(&mut Encoder<&mut Vec<u8>>)| jpeg_of(ColorType::Rgb, change);
    let files = [
        ("noise", jpeg(&noise, 48, 40)),
        ("plain", jpeg(&[9; 48 * 40 * 3], 48, 40)),
        ("one row", jpeg(&noise[..48 * 8 * 3], 48, 8)),
        ("grey", jpeg_of(ColorType::Luma, |_| {})),
        ("progressive", rgb(|of| of.set_progressive(true))),
        ("restarts", rgb(|of| of.set_restart_interval(2))),
        ("CMYK", jpeg_of(ColorType::Cmyk, |_| {})),
    ];
    for (name, file) in files {
        decode(&file, PIXELS_MAX).unwrap();
        // From behind the signature to before the end's marker.
        for length in 3..file.len() - 2 {
            let error = error(&file[..length]);
            assert!(error.contains("ends early"), "{name}, {length}: {error}");
        }
    }
    let file = png(&noise, 48, 40);
    // Twelve bytes of IEND, four of a check sum.
    for length in 8..file.len() - 16 {
        assert!(error(&file[..length]).contains("ends early"), "{length}");
    }
}

#[test]
fn jpeg_with_bytes_behind_it_or_between_headers_is_read() {
    let file = jpeg(&quarters(32, 16), 32, 16);
    let behind = [file.as_slice(), b"garbage", &file].concat();
    // Behind the first header, which says its length.
    let first = 4 + usize::from(file[5]);
    let between = [&file[..first], &[0; 9], &file[first..]].concat();
    for file in [behind, between] {
        assert_eq!(decode(&file, PIXELS_MAX).unwrap().size(), (32, 16));
    }
}

// Faults: P6.
#[test]
fn jpeg_of_each_kind_becomes_colours() {
    for (colours, is_grey) in [
        (ColorType::Luma, true),
        (ColorType::Rgb, false),
        (ColorType::Ycbcr, false),
        (ColorType::Cmyk, false),
        (ColorType::CmykAsYcck, false),
    ] {
        let picture = decode(&jpeg_of(colours, |_| {}), PIXELS_MAX).unwrap();
        assert_eq!(picture.size(), (48, 40));
        let rgb = rgb(&picture);
        let (pixels, _) = rgb.as_chunks::<3>();
        let all_grey = pixels.iter().all(|[r, g, b]| r == g && g == b);
        assert_eq!(all_grey, is_grey, "{colours:?}");
    }
}

/// A PNG of one pixel.
fn one_pixel(colour: png::ColorType, depth: png::BitDepth, data: &[u8]) -> [u8; 3] {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 1, 1);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    if colour == png::ColorType::Indexed {
        encoder.set_palette(vec![1, 2, 3, 10, 20, 30]);
        encoder.set_trns(vec![0, 0]);
    }
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(data).unwrap();
    writer.finish().unwrap();
    rgb(&decode(&file, PIXELS_MAX).unwrap()).try_into().unwrap()
}

// Faults: P6.
#[test]
fn png_of_each_kind_becomes_colours_and_drops_alpha() {
    use png::{BitDepth::*, ColorType::*};
    for (colour, depth, data, want) in [
        (Rgb, Eight, vec![10, 20, 30], [10, 20, 30]),
        (Rgba, Eight, vec![10, 20, 30, 0], [10, 20, 30]),
        (Grayscale, Eight, vec![77], [77; 3]),
        (Grayscale, One, vec![0x80], [255; 3]),
        (GrayscaleAlpha, Eight, vec![77, 0], [77; 3]),
        (Indexed, Eight, vec![1], [10, 20, 30]),
        (Rgb, Sixteen, vec![10, 200, 20, 10, 255, 255], [11, 20, 255]),
        (
            Rgba,
            Sixteen,
            vec![10, 10, 20, 20, 30, 30, 0, 0],
            [10, 20, 30],
        ),
        (Grayscale, Sixteen, vec![77, 77], [77; 3]),
        (GrayscaleAlpha, Sixteen, vec![77, 77, 0, 0], [77; 3]),
    ] {
        assert_eq!(
            one_pixel(colour, depth, &data),
            want,
            "{colour:?} {depth:?}"
        );
    }
}

// Faults: P4.
#[test]
fn other_formats_are_named() {
    for (head, part) in [
        (b"GIF89a\x01\x00\x01\x00".as_slice(), "is GIF"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "is WebP"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "is AVIF"),
        (b"\0\0\0\x20ftypmif1\0\0\0\0mif1avif", "is AVIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "is HEIC"),
        (b"BM\x36\x10\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "is BMP"),
        (b"II*\0\x08\0\0\0", "is TIFF"),
        (b"MM\0*\0\0\0\x08", "is TIFF"),
        (b"<html>404 Not Found</html>", "neither JPEG nor PNG"),
        (b"BMW is a car, not a picture", "neither JPEG nor PNG"),
        (
            b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2",
            "neither JPEG nor PNG",
        ),
        (b"\x89PNG", "neither JPEG nor PNG"),
        (b"", "is empty"),
    ] {
        let error = error(head);
        assert!(error.contains(part), "{head:?}: {error}");
    }
}

/// The header of a PNG, with nothing behind it: a size that is refused is refused before a pixel is read.
fn header(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = png::Encoder::new(&mut file, width, height);
    drop(encoder.write_header().unwrap());
    file
}

// Faults: P5.
#[test]
fn size_beyond_the_limits_is_refused_before_it_is_decoded() {
    for ((width, height), part) in [
        (
            (50_000, 50_000),
            "too large: 50000 x 50000 pixels; the limit is 25000000",
        ),
        ((6_000, 5_000), "too large"),
        ((16_385, 400), "16384 a side"),
        ((1, 25_000_000), "too large: 1 x 25000000"),
        ((51, 1), "too narrow: 51 x 1"),
        ((1, 51), "too narrow"),
        ((50, 1), "IDAT"),
        ((16_384, 1_525), "IDAT"),
    ] {
        let error = error(&header(width, height));
        assert!(error.contains(part), "{width}x{height}: {error}");
    }
    // A frame header of JPEG says at most 65,535.
    let mut huge = jpeg(&quarters(32, 16), 32, 16);
    let frame = huge
        .windows(2)
        .position(|marker| marker == [0xff, 0xc0])
        .unwrap();
    huge[frame + 5..frame + 9].fill(0xff);
    assert!(error(&huge).contains("too large: 65535 x 65535"));
}

#[test]
fn file_of_no_picture_is_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("video.mp4");
    let video = File::create(&path).unwrap();
    // Sparse, and larger than memory.
    video.set_len(1 << 42).unwrap();
    assert!(matches!(read(&path), Err(PictureFileError::Unknown)));
    assert!(matches!(
        read(&folder.path().join("none.jpg")),
        Err(PictureFileError::Disk(_))
    ));
    let path = folder.path().join("named.png");
    std::fs::write(&path, jpeg(&quarters(32, 16), 32, 16)).unwrap();
    assert_eq!(read(&path).unwrap().size(), (32, 16));
}

proptest! {
    // Faults: P2.
    #[test]
    fn changed_bytes_never_panic(at in 0.0..1.0_f64, bytes in prop::collection::vec(any::<u8>(), 1..4)) {
        let files = [
            with_exif(&jpeg_of(ColorType::Rgb, |_| {}), &exif(6, true)),
            jpeg_of(ColorType::Cmyk, |of| of.set_progressive(true)),
            png(&quarters(32, 16), 32, 16),
        ];
        for mut file in files {
            let start = (file.len() as f64 * at) as usize;
            let end = (start + bytes.len()).min(file.len());
            file[start..end].copy_from_slice(&bytes[..end - start]);
            let _ = decode(&file, PIXELS_MAX);
        }
    }
}
