//! What counts as changed, and what is kept.

use proptest::prelude::*;

use super::{cells::CellMeans, *};
use crate::model::{VisionConfig, tiling};
use spotter_core::{
    ColourMatrix, ColourRange, Picture, PictureLayout, PixelFormat, Prompt, PromptId, Task,
};
use std::sync::Arc;

const SIZE: (usize, usize) = (480, 400);
const MAX_AGE: Duration = Duration::from_secs(10);

fn vision() -> VisionConfig {
    VisionConfig::default()
}

fn formats() -> impl Strategy<Value = PixelFormat> {
    prop::sample::select(vec![PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420])
}

/// A picture whose bytes are made of their plane, row and column in bytes.
fn picture(
    format: PixelFormat,
    size: (usize, usize),
    byte: impl Fn(usize, usize, usize) -> u8,
) -> Picture {
    let plane = |index| {
        let (row_bytes, rows) = format.plane_size(index, size.0, size.1)?;
        let places = (0..rows).flat_map(|y| (0..row_bytes).map(move |x| (y, x)));
        Some((
            row_bytes,
            places.map(|(y, x)| byte(index, y, x)).collect::<Vec<u8>>(),
        ))
    };
    let planes: Vec<_> = (0..3).map_while(plane).collect();
    let stride = |index: usize| planes.get(index).map_or(0, |plane| plane.0);
    let layout = PictureLayout {
        format,
        size,
        strides: [0, 1, 2].map(stride),
        colour: (ColourMatrix::Bt601, ColourRange::Limited),
    };
    let planes: Vec<Vec<u8>> = planes.into_iter().map(|plane| plane.1).collect();
    Picture::new(layout, Arc::new(planes)).unwrap()
}

/// The same of pictures that are not drawn: with noise of up to `noise` levels, and a square of `side` pixels in the middle of
/// which `contrast` is added.
#[derive(Clone, Copy, Default)]
struct Drawn {
    noise: u32,
    seed: u64,
    side: usize,
    contrast: u8,
    light: u8,
}

fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn drawn(drawn: Drawn) -> Picture {
    let middle = (SIZE.0 / 2, SIZE.1 / 2);
    picture(PixelFormat::I420, SIZE, |plane, y, x| {
        let place = (plane << 40 | y << 20 | x) as u64;
        let bits = mix(place ^ mix(drawn.seed));
        let noise = ((bits >> 40) as u32 % (2 * drawn.noise + 1)) as u8;
        let is_thing = plane == 0
            && x.abs_diff(middle.0) < drawn.side / 2
            && y.abs_diff(middle.1) < drawn.side / 2;
        let thing = if is_thing { drawn.contrast } else { 0 };
        20 + (x / 40 % 5 * 10) as u8 + noise + thing + drawn.light
    })
}

fn measure(picture: &Picture, detail: PictureDetail) -> PictureMeasure {
    let tiling = tiling(picture.width(), picture.height(), &vision());
    PictureMeasure::of(picture, tiling, &vision(), detail)
}

fn view(number: usize) -> ViewKey {
    ViewKey {
        strip: None,
        camera: CameraId::new(&format!("c{number}")).unwrap(),
        part: None,
        tiling: tiling(SIZE.0, SIZE.1, &vision()),
    }
}

/// A camera whose pictures come one after the other.
struct Shown {
    kept: KeptPictures,
    images: u64,
    now: Mono,
}

impl Shown {
    fn new(entries: usize) -> Self {
        Self {
            kept: KeptPictures::new(entries, MAX_AGE),
            images: 0,
            now: Mono::default(),
        }
    }

    /// Which crops are encoded.
    fn show(&mut self, number: usize, picture: &Picture, detail: PictureDetail) -> Vec<bool> {
        let (view, measure) = (view(number), measure(picture, detail));
        let verdict = self.kept.judge(&view, &measure, self.now);
        self.images += 1;
        let image = ImageNumber(self.images);
        if verdict.same_as().is_some() {
            return vec![false; measure.crops()];
        }
        let encoded = (self.kept).encode(&view, &measure, &verdict, image, self.now);
        let is_encoded = |source: &CropSource| matches!(source, CropSource::Encoded(_));
        encoded.sources.iter().map(is_encoded).collect()
    }

    fn changed(&mut self, shown: Drawn) -> bool {
        self.show(0, &drawn(shown), PictureDetail::Cells)
            .contains(&true)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(24)))]

    #[test]
    fn cell_means_are_those_of_their_pixels(
        format in formats(), width in 60_usize..900, height in 60_usize..700, factor in 1_usize..250,
    ) {
        let byte = |plane: usize, y: usize, x: usize| ((plane + 1) * (x * factor / 7 + y * 3) % 251) as u8;
        let picture = picture(format, (width, height), byte);
        let found = measure(&picture, PictureDetail::Cells);
        prop_assert_eq!(found.crops(), tiling(width, height, &vision()).crops());
        let along = |pixels: usize| 54.min((pixels / 8).max(27)).min(pixels.div_ceil(2));
        let CropMeasure::Cells(CellMeans { cols, means }) = &found.crops[0] else { panic!("digests") };
        prop_assert_eq!((*cols, means.len()), (along(width), cols * along(height)));
        // The whole picture's cells cover it once, so their weighted mean is that of all samples of a channel.
        let rows = means.len() / cols;
        for channel in 0..3 {
            let (plane, first, step, halved) = match format {
                PixelFormat::Rgb => (0, channel, 3, false),
                PixelFormat::Nv12 => [(0, 0, 1, false), (1, 0, 2, true), (1, 1, 2, true)][channel],
                PixelFormat::I420 => (channel, 0, 1, channel > 0),
            };
            let size = match halved { true => (width.div_ceil(2), height.div_ceil(2)), false => (width, height) };
            let samples = (0..size.1).flat_map(|y| picture.row(plane, y).iter().skip(first).step_by(step));
            let want = samples.map(|&sample| f64::from(sample)).sum::<f64>();
            let border = |i: usize, count: usize, samples: usize| i * samples / count;
            let area = |cell: usize| {
                let (row, col) = (cell / cols, cell % cols);
                let across = border(col + 1, *cols, size.0) - border(col, *cols, size.0);
                across * (border(row + 1, rows, size.1) - border(row, rows, size.1))
            };
            let got: f64 = means.iter().enumerate().map(|(i, mean)| f64::from(mean[channel]) * area(i) as f64).sum();
            prop_assert!((got - want).abs() <= 1e-5 * want + 1.0, "channel {}: {} of {}", channel, got, want);
        }
    }

    /// Wherever a byte changes, each crop that the model would see changed is found: the filter reaches over a tile's edge, and a
    /// sample of chroma over several pixels.
    #[test]
    fn digests_find_every_changed_crop(
        format in formats(), plane in any::<prop::sample::Index>(), y in any::<prop::sample::Index>(), x in any::<prop::sample::Index>(),
    ) {
        let small = VisionConfig { crop_size: 84, ..vision() };
        let size = (160, 120);
        let planes: Vec<_> = (0..3).map_while(|plane| format.plane_size(plane, size.0, size.1)).collect();
        let plane = plane.index(planes.len());
        let at = (y.index(planes[plane].1), x.index(planes[plane].0));
        let byte = |plane: usize, y: usize, x: usize| (plane * 31 + y * 7 + x * 37 % 251) as u8;
        let before = picture(format, size, byte);
        let after = picture(format, size, |p, y, x| byte(p, y, x) ^ if (p, (y, x)) == (plane, at) { 0x80 } else { 0 });
        let small = VisionConfig { overlap_margin: 1, enc_patch_size: 14, max_crops: 6, ..small };
        let cut = tiling(size.0, size.1, &small);
        let [a, b] = [&before, &after].map(|p| PictureMeasure::of(p, cut, &small, PictureDetail::Bytes));
        let [seen, seen_after] = [&before, &after].map(|p| crate::model::cut_crops(p, cut, &small));
        prop_assert!(a.crops() > 1 && a.crops() == seen.encoded);
        let differs = |i: &usize| a.crops[*i] != b.crops[*i];
        for index in 0..seen.encoded {
            prop_assert!(differs(&index) || seen.crop(index) == seen_after.crop(index), "crop {}", index);
        }
        prop_assert!((0..seen.encoded).filter(differs).count() <= 5);
    }

    #[test]
    fn equal_bytes_never_change_and_noise_below_the_floor_passes(noise in 0_u32..7, seed in any::<u64>()) {
        let mut shown = Shown::new(64);
        let first = Drawn { noise, seed, ..Drawn::default() };
        prop_assert!(shown.changed(first));
        prop_assert!(!shown.changed(first));
        for more in 1..4 {
            let next = Drawn { seed: seed.wrapping_add(more), ..first };
            prop_assert!(!shown.changed(next), "noise {} look {}", noise, more);
        }
    }

    /// However long the floor has been learned, and however noisy the scene is.
    #[test]
    fn thing_of_usual_contrast_is_always_seen(
        noise in 0_u32..40, looks in 0_u64..40, side in 40_usize..200, contrast in 15_u8..60,
    ) {
        let mut shown = Shown::new(64);
        let scene = Drawn { noise, ..Drawn::default() };
        for seed in 0..looks {
            shown.changed(Drawn { seed, ..scene });
        }
        shown.changed(scene);
        let thing = Drawn { seed: looks + 1, side, contrast, ..scene };
        prop_assert!(shown.changed(thing));
    }
}

#[test]
fn drift_adds_up_until_it_counts() {
    let mut shown = Shown::new(64);
    let changes = (0..40).map(|light| {
        let light = Drawn {
            light,
            ..Drawn::default()
        };
        shown.changed(light)
    });
    let changes: Vec<bool> = changes.collect();
    assert!(changes[0], "the first picture");
    // A cell alone is changed by two thresholds, many together by one.
    let longest = changes.split(|changed| *changed).map(<[bool]>::len).max();
    assert!((1..=5).contains(&longest.unwrap_or(0)), "{changes:?}");
}

#[test]
fn all_crops_are_encoded_again_after_max_age() {
    let mut shown = Shown::new(64);
    let scene = drawn(Drawn::default());
    let crops = |shown: &mut Shown| {
        let encoded = shown.show(0, &scene, PictureDetail::Cells);
        (encoded.iter().filter(|e| **e).count(), encoded.len())
    };
    let (all, count) = crops(&mut shown);
    assert!(all == count && count > 4);
    assert_eq!(crops(&mut shown).0, 0);
    shown.now = Mono::default().after(MAX_AGE - Duration::from_millis(1));
    assert_eq!(crops(&mut shown).0, 0);
    shown.now = Mono::default().after(MAX_AGE);
    assert_eq!(crops(&mut shown).0, count);
    assert_eq!(crops(&mut shown).0, 0);
}

#[test]
fn view_that_was_used_longest_ago_makes_room() {
    let scene = drawn(Drawn::default());
    let crops = measure(&scene, PictureDetail::Bytes).crops();
    let mut shown = Shown::new(2 * crops + crops / 2);
    let mut is_new = |number| shown.show(number, &scene, PictureDetail::Bytes)[0];
    assert!(is_new(0) && is_new(1) && !is_new(0));
    assert!(is_new(2), "instead of view 1");
    assert!(!is_new(0) && is_new(1), "instead of view 2");
    assert!(is_new(2) && is_new(0), "instead of views 0 and 1");
    let mut none = Shown::new(crops - 1);
    assert!(
        none.show(0, &scene, PictureDetail::Bytes)[0]
            && none.show(0, &scene, PictureDetail::Bytes)[0]
    );
    // Another size is another picture, and its entries are given back.
    let mut sizes = Shown::new(crops);
    let small = picture(PixelFormat::Rgb, (64, 48), |_, _, _| 9);
    for picture in [&scene, &small, &scene, &small] {
        assert!(sizes.show(0, picture, PictureDetail::Cells)[0]);
        assert!(!sizes.show(0, picture, PictureDetail::Cells)[0]);
    }
}

#[test]
fn answers_belong_to_an_image_and_a_text() {
    let mut shown = Shown::new(64);
    let scene = drawn(Drawn::default());
    shown.show(0, &scene, PictureDetail::Bytes);
    let prompt = Prompt::new(
        PromptId::new("p").unwrap(),
        1,
        Task::Caption {
            length: Default::default(),
        },
    );
    let key = DraftKey::new(&view(0).camera, &prompt);
    let answer = KnownAnswer {
        prompt: vec![DecoderInput::Token(4)],
        found: SequenceOutput::default(),
    };
    let (image, text) = (ImageNumber(1), answer.prompt.clone());
    shown
        .kept
        .remember_answer(&view(0), ImageNumber(7), key.clone(), answer.clone());
    assert!(shown.kept.answer(&view(0), image, &key, &text).is_none());
    shown
        .kept
        .remember_answer(&view(0), image, key.clone(), answer);
    assert!(shown.kept.answer(&view(0), image, &key, &text).is_some());
    assert!(shown.kept.answer(&view(0), image, &key, &[]).is_none());
    assert!(shown.kept.answer(&view(1), image, &key, &text).is_none());
    shown.now = Mono::default().after(MAX_AGE);
    shown.show(0, &scene, PictureDetail::Bytes);
    let next = ImageNumber(2);
    assert!(
        shown.kept.answer(&view(0), next, &key, &text).is_none(),
        "encoded again"
    );
}
