use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg32;

use super::*;
use spotter_core::{NormBox, NormPoint, testing::FakeDevicePlanes};

fn grey(width: usize, height: usize) -> Picture {
    Picture::from_rgb(width, height, vec![128; width * height * 3]).unwrap()
}

fn noise(width: usize, height: usize) -> Picture {
    let mut bytes = vec![0; width * height * 3];
    Pcg32::seed_from_u64(1).fill_bytes(&mut bytes);
    Picture::from_rgb(width, height, bytes).unwrap()
}

fn decoded(jpeg: &[u8]) -> Picture {
    assert!(jpeg.len() <= BYTES_MAX, "{} bytes", jpeg.len());
    spotter_pictures::decode(jpeg, usize::MAX).expect("a JPEG")
}

fn box_at(x0: f64, y0: f64, x1: f64, y1: f64) -> Location {
    Location::Box(NormBox { x0, y0, x1, y1 })
}

fn silent(place: Location) -> Mark {
    Mark {
        place,
        outline: None,
        words: String::new(),
    }
}

/// How far a pixel is from the grey of the background.
fn drawn_at(image: &Picture, x: usize, y: usize) -> u8 {
    let pixel = &image.row(0, y)[x * 3..x * 3 + 3];
    let differences = pixel.iter().map(|value| value.abs_diff(128));
    differences.max().unwrap()
}

#[test]
fn boxes_and_points_are_drawn_where_they_are() {
    let marks = [silent(box_at(0.25, 0.25, 0.75, 0.5))];
    let image = decoded(&jpeg(&grey(640, 360), &marks).unwrap());
    assert_eq!(image.size(), (640, 360));
    for (x, y) in [(160, 135), (480, 135), (320, 90), (320, 180)] {
        assert!(drawn_at(&image, x, y) > 60, "the line at {x},{y}");
    }
    for (x, y) in [(320, 135), (100, 135), (320, 50), (320, 250), (5, 5)] {
        assert!(drawn_at(&image, x, y) < 12, "nothing at {x},{y}");
    }
    let place = Location::Point(NormPoint { x: 0.5, y: 0.5 });
    let image = decoded(&jpeg(&grey(640, 360), &[silent(place)]).unwrap());
    assert!(drawn_at(&image, 326, 180) > 60);
    assert!(drawn_at(&image, 320, 180) < 40, "what it is about is seen");
}

#[test]
fn label_is_above_the_box_or_inside_without_room() {
    let written = |place, words: &str| {
        let marks = [Mark {
            place,
            outline: None,
            words: words.into(),
        }];
        decoded(&jpeg(&grey(640, 360), &marks).unwrap())
    };
    let plate = |image: &Picture, x: std::ops::Range<usize>, y: std::ops::Range<usize>| {
        let all = x.len() * y.len();
        let inked = y.flat_map(|y| x.clone().map(move |x| (x, y)));
        let inked = inked.filter(|&(x, y)| drawn_at(image, x, y) > 40).count();
        inked * 100 / all
    };
    let low = box_at(0.25, 0.5, 0.75, 0.9);
    let image = written(low, "person 83 %");
    assert!(plate(&image, 162..240, 160..176) > 90, "above");
    assert!(plate(&image, 170..300, 200..220) < 5, "not inside");
    let high = written(box_at(0.25, 0.0, 0.75, 0.9), "person 83 %");
    assert!(plate(&high, 165..240, 6..20) > 90, "inside");

    // Letters that the font lacks, and more words than fit, draw no less and break nothing.
    let strange = written(low, "человек 83 %");
    assert!(plate(&strange, 162..240, 160..176) > 50);
    written(box_at(0.9, 0.0, 1.0, 1.0), &"long words ".repeat(50));
    written(box_at(-1.0, -1.0, 2.0, 2.0), "everywhere");

    let mark = Mark::of(low, "red car", 0.834);
    assert_eq!(mark.words, " red car 83 % ");
}

#[test]
fn large_pictures_are_made_smaller_with_their_boxes() {
    let marks = [Mark::of(box_at(0.25, 0.25, 0.75, 0.5), "person", 0.5)];
    let image = decoded(&jpeg(&grey(3840, 2160), &marks).unwrap());
    assert_eq!(image.size(), (1280, 720));
    assert!(drawn_at(&image, 320, 270) > 60);
    assert!(drawn_at(&image, 640, 270) < 12);
    let tall = decoded(&jpeg(&grey(1080, 1920), &[]).unwrap());
    assert_eq!(tall.size(), (1080, 1920));
}

#[test]
fn noise_of_any_size_keeps_the_bound() {
    let noisy = jpeg(&noise(3840, 2160), &[]).unwrap();
    let image = decoded(&noisy);
    assert!((320..=1280).contains(&image.width()));
    assert!(noisy.len() > BYTES_MAX / 8, "as good as fits");
    decoded(&jpeg(&noise(1, 1), &[]).unwrap());
    let ribbon = jpeg(&noise(400, 12_000), &[]).unwrap_err().to_string();
    assert!(ribbon.contains("400x12000 pixels"), "{ribbon}");
}

#[test]
fn thumbnail_is_small_and_unmarked_and_never_enlarged() {
    for (size, shown) in [((1920, 1080), (640, 360)), ((320, 240), (320, 240))] {
        let image = decoded(&thumbnail(&grey(size.0, size.1), 640).unwrap());
        assert_eq!(image.size(), shown);
        assert!(drawn_at(&image, shown.0 / 2, shown.1 / 2) < 12);
    }
}

#[test]
fn masked_pixels_stay_black_and_unreadable_pictures_are_reported() {
    let mut bytes = vec![200; 640 * 360 * 3];
    bytes[..640 * 100 * 3].fill(0);
    let masked = Picture::from_rgb(640, 360, bytes).unwrap();
    let image = decoded(&jpeg(&masked, &[]).unwrap());
    let dark = image.row(0, 50).iter().all(|&value| value < 8);
    assert!(dark);

    let planes = Arc::new(FakeDevicePlanes::new(vec![
        vec![90; 16 * 16],
        vec![128; 16 * 8],
    ]));
    let colour = (
        spotter_core::ColourMatrix::Bt709,
        spotter_core::ColourRange::Limited,
    );
    let format = spotter_core::PixelFormat::Nv12;
    let picture = Picture::new(
        spotter_core::PictureLayout {
            format,
            size: (16, 16),
            strides: [16, 16, 0],
            colour,
        },
        planes.clone(),
    )
    .unwrap();
    let image = decoded(&jpeg(&picture, &[]).unwrap());
    assert_eq!((image.size(), planes.copies()), ((16, 16), 1));
}

#[test]
fn outline_is_drawn_instead_of_its_box() {
    let corners = [(0.25, 0.25), (0.75, 0.25), (0.75, 0.75)].map(|(x, y)| NormPoint { x, y });
    let outline = ObjectOutline {
        frame: 1,
        bounds: NormBox::from_corners(0.25, 0.25, 0.75, 0.75),
        path: String::new(),
        polygons: vec![corners.into()],
        area: 0.125,
        score: 0.5,
    };
    let mark = Mark {
        outline: Some(Arc::new(outline)),
        ..silent(box_at(0.25, 0.25, 0.75, 0.75))
    };
    let image = decoded(&jpeg(&grey(640, 360), &[mark]).unwrap());
    assert!(drawn_at(&image, 320, 180) > 60, "the slanted side");
    let inside = drawn_at(&image, 430, 130);
    assert!((12..60).contains(&inside), "half transparent: {inside}");
    assert!(
        drawn_at(&image, 200, 230) < 12,
        "in the box and not in the outline"
    );
}
